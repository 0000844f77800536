"""Which functions of the protocol packages run while the vectors are written or replayed, printed as JSON.

Every function of these packages notes its first call: a finder of modules adds the note while they are compiled, which
costs less than a profiler. Run it in a process of its own, before anything of peer/ is imported.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
VECTORS: Final = ROOT / "tests" / "vectors"
PACKAGES: Final = ("wire", "consensus", "state", "session")
OTHERS: Final = ("make_text.py", "make_kv_slots.py")  # write vectors of packages other than these
LIVES: Final = 240  # of the recorded servers: all functions run in them
NOTE: Final = "__reached__"

reached: set[str] = set()


class Noting(importlib.machinery.SourceFileLoader):
    """Compiles a module so that each of its top-level functions notes its calls."""

    def get_code(self, fullname: str) -> CodeType:
        """Never from a cache, which has code without notes."""
        source = self.get_data(self.path)
        return self.source_to_code(source, self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        tree = ast.parse(data, path)
        module = Path(path).relative_to(ROOT / "peer").with_suffix("").as_posix()
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                note = ast.parse(f"{NOTE}({f'{module}:{node.name}'!r})").body
                node.body[0:0] = note
        ast.fix_missing_locations(tree)
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, NOTE, reached.add)
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the protocol packages before others do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        parts = fullname.split(".")
        if parts[0] != "peer" or len(parts) < 3 or parts[1] not in PACKAGES:
            return None
        file = ROOT.joinpath(*parts).with_suffix(".py")
        if not file.is_file():
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=Noting(fullname, str(file)))


def main() -> None:
    """Writes all vectors anew, into the air, and replays those that are only recorded."""
    sys.meta_path.insert(0, Finder())
    sys.path[0:0] = [str(ROOT), str(VECTORS)]
    with contextlib.redirect_stdout(io.StringIO()):
        for maker in sorted(VECTORS.glob("make_*.py")):
            if maker.name in OTHERS:
                continue
            write = runpy.run_path(str(maker)).get("text")
            if write is not None:
                write()
        replay_consensus()
    json.dump(sorted(reached), sys.stdout)


def replay_consensus() -> None:
    """The first recorded servers, and all messages of consensus."""
    from peer.consensus.core import Core
    from peer.consensus.trace_json import event_of, plain
    from tests.vectors.consensus_traces import read_lives

    for life in read_lives((VECTORS / "consensus.txt").read_text(encoding="utf-8"))[:LIVES]:
        core = Core()
        for now, event, _, _ in life["steps"]:
            for effect in core.step(now, event_of(json.dumps(event))):
                plain(effect)
            core.digest()
    runpy.run_path(str(VECTORS / "make_consensus_wire.py"))["rows"]()


if __name__ == "__main__":
    main()
