"""Decides when a peer that `shoal validate` started as a liar lies: from the moment on at which its FILE is there.

Edge. Started as `python -m peer.cli.validate_liar_process KIND FILE join ...`: a peer like others until then, so that
it has earned something. No command of `shoal` leads here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from peer.cli.main import main
from peer.validation.world.wrong_results import Lie, let_lie


def lie_from(lie: Lie, file: Path) -> None:
    """This process lies while `file` is there; once it was seen it is not looked for any more."""
    begun = False

    def lies() -> bool:
        nonlocal begun
        begun = begun or file.exists()
        return begun

    let_lie(lie, lies)


if __name__ == "__main__":
    lie_from(Lie(sys.argv[1]), Path(sys.argv[2]))
    raise SystemExit(main(sys.argv[3:]))
