"""Mutants of the core: copies with one defect each, to show that the tests would notice it.

Each defect was found in some implementation of Raft. `mutant_patches` has a patch for each, for both languages:

    What the defect does, in one line.

    --- peer/consensus/replication.py
    @@
         context
    -    a line that goes
    +    a line that comes

Lines of context and lines that go must stand in the file exactly once, in this order, without a gap. The core of a
mutant is loaded from a temporary copy; product code knows nothing of it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, invalidate_caches
from pathlib import Path

from tests.consensus.sim.member import AnyCore, new_core

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent / "mutant_patches"
SOURCE = "peer/consensus"
# The language in which cores and tests speak is that of the product: a copy of it would be other classes.
SHARED = frozenset({"errors", "events", "message_codec", "messages", "records", "trace_json"})


@dataclass(frozen=True, slots=True)
class Edit:
    """In the file `path`, `old` becomes `new`; both are whole lines."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    defect: str
    edits: tuple[Edit, ...]


def parse(name: str, text: str) -> Mutant:
    """Returns the mutant that a patch describes. Raises ValueError where a line is of no known kind."""
    defect, _, patch = text.partition("\n\n")
    path, hunks = "", list[tuple[str, list[str], list[str]]]()
    for line in patch.splitlines():
        if line.startswith("--- "):
            path = line[4:]
        elif line == "@@":
            hunks.append((path, [], []))
        elif hunks and line[:1] in (" ", "-", "+"):
            _, old, new = hunks[-1]
            if line[0] != "+":
                old.append(line[1:])
            if line[0] != "-":
                new.append(line[1:])
        else:
            raise ValueError(f"{name}: expected a line of a patch, got {line!r}")
    return Mutant(name, defect, tuple(Edit(path, _lines(old), _lines(new)) for path, old, new in hunks))


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def apply(edit: Edit, source: str) -> str:
    """Returns `source` after the edit. Raises ValueError unless the lines that it changes stand there exactly once."""
    text = "\n" + source
    count = text.count("\n" + edit.old)
    if not edit.old or count != 1:
        raise ValueError(f"{edit.path}: expected these lines once, found them {count} times:\n{edit.old}")
    return text.replace("\n" + edit.old, "\n" + edit.new)[1:]


@cache
def mutants() -> Mapping[str, Mutant]:
    """Returns all of them by their names, in the order of their numbers."""
    paths = sorted(PATCHES.glob("*.patch"), key=lambda path: int(path.stem.partition("-")[0]))
    return {path.stem: parse(path.stem, path.read_text("utf-8")) for path in paths}


def core_of(name: str) -> Callable[[str], AnyCore]:
    """Returns what makes the core of a server, with the defect of that mutant; "" stands for the core as it is."""
    make = _mutated(name) if name else new_core
    return lambda _: make()


@cache
def _mutated(name: str) -> Callable[[], AnyCore]:
    sources = {path.stem: path.read_text("utf-8") for path in (ROOT / SOURCE).glob("*.py")}
    copied = sorted(sources.keys() - SHARED)
    for edit in mutants()[name].edits:
        if edit.path.startswith(SOURCE):
            module = Path(edit.path).stem
            if module not in copied:
                raise ValueError(f"{name}: expected a module that is copied, got {edit.path}")
            sources[module] = apply(edit, sources[module])
    package = f"mutant_{name.replace('-', '_')}"
    ours = re.compile(rf"from peer\.consensus(?= import|\.(?:{'|'.join(copied)}) import)")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / package).mkdir()
        for module in copied:
            copy = ours.sub(f"from {package}", sources[module])
            (Path(folder) / package / f"{module}.py").write_text(copy, "utf-8")
        sys.path.insert(0, folder)
        try:
            invalidate_caches()
            make: Callable[[], AnyCore] = import_module(f"{package}.core").Core
        finally:
            sys.path.remove(folder)
    return make
