"""Says in what the two languages differ beyond what exceptions.txt tells: `python -m tests.parity`, in make check.

`--prune` takes out of the list what is not needed any more; a new difference is mended, or put in by hand with a
reason.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.parity.compare import Finding, differences
from tests.parity.exceptions import BadLine, judged, parse
from tests.parity.names import python, typescript
from tests.parity.vectors import unreached

ROOT: Final = Path(__file__).parents[2]
LIST: Final = Path(__file__).with_name("exceptions.txt")


def main(words: list[str]) -> int:
    """The exit status: 0 where every difference has a reason and every reason is needed."""
    here = python(ROOT)
    there, users = typescript(ROOT)
    findings: list[Finding] = [*differences(here, there), *unreached(ROOT, here, there, users)]
    try:
        lines = parse(LIST.read_text(encoding="utf-8"))
    except BadLine as error:
        print(f"{LIST.name}: {error}", file=sys.stderr)
        return 1
    missing, faults, needed = judged(findings, lines, here, there)
    if "--prune" in words:
        LIST.write_text("".join(f"{line}\n" for line in needed), encoding="utf-8")
        faults = []
    for text in (*missing, *faults):
        print(f"  {text}", file=sys.stderr)
    if missing or faults:
        print(
            f"parity: {len(missing)} differences without a reason, {len(faults)} lines of tests/parity/{LIST.name} "
            "that say what is not so",
            file=sys.stderr,
        )
    return int(bool(missing or faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
