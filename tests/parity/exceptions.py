"""The committed list of differences that are meant: exceptions.txt, one line each.

    place | same | name_in_python = nameInTypeScript      the same under another name; or in another module:
    place | same | name_in_python = module:nameInTypeScript
    place | python | name, other_name | reason            only there
    place | typescript | name | reason                    only there
    place | differs | NAME~ | reason                      a constant with two values; `~` stands for a unit of time
    place | members | Name | reason                       an enum, or a union of strings
    place | vector | name | reason                        a function that no shared vector reaches

Lines that begin with # say something about those below. Every reason has words, and a line that is not needed any more
is a fault: the list never says more than the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.parity.compare import Finding, in_seconds, same
from tests.parity.names import Module

KINDS: Final = ("python", "typescript", "differs", "members", "vector")
LEAST_WORDS: Final = 4  # of a reason


class BadLine(Exception):
    """A line of the list that says nothing."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One thing with two names."""

    place: str
    python: str
    module: str
    typescript: str

    def __str__(self) -> str:
        where = "" if self.module == self.place else f"{self.module}:"
        return f"{self.place} | same | {self.python} = {where}{self.typescript}"


@dataclass(frozen=True, slots=True)
class Meant:
    """Differences of one kind at one place, and why."""

    place: str
    kind: str
    names: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.place} | {self.kind} | {', '.join(self.names)} | {self.reason}"


Line = Pair | Meant | str  # a comment or an empty line


def parse(text: str) -> list[Line]:
    """The lines of the list. Raises BadLine."""
    return [parsed(line) for line in text.splitlines()]


def parsed(line: str) -> Line:
    if not line.strip() or line.startswith("#"):
        return line
    parts = [part.strip() for part in line.split("|", 3)]
    if len(parts) == 3 and parts[1] == "same" and parts[2].count("=") == 1:
        python, _, typescript = (part.strip() for part in parts[2].partition("="))
        module, _, name = typescript.rpartition(":")
        return Pair(parts[0], python, module or parts[0], name)
    if len(parts) != 4 or parts[1] not in KINDS:
        raise BadLine(f"expected `place | kind | names | reason`, got {line!r}")
    if len(parts[3].split()) < LEAST_WORDS:
        raise BadLine(f"expected a reason of at least {LEAST_WORDS} words, got {line!r}")
    return Meant(parts[0], parts[1], tuple(name.strip() for name in parts[2].split(",")), parts[3])


def judged(
    findings: Sequence[Finding],
    lines: Iterable[Line],
    python: Mapping[str, Module],
    typescript: Mapping[str, Module],
) -> tuple[list[Finding], list[str], list[Line]]:
    """What the list does not cover, what is wrong with the list, and the list without what is not needed."""
    known = {(one.place, one.kind, one.name): one for one in findings}
    covered: set[tuple[str, str, str]] = set()
    faults: list[str] = []
    needed: list[Line] = []
    for line in lines:
        match line:
            case str():
                needed.append(line)
            case Pair():
                why = wrong_pair(line, python, typescript)
                keys = [
                    (line.place, "python", in_seconds(line.python, None)[0]),
                    (line.module, "typescript", in_seconds(line.typescript, None)[0]),
                ]
                found = [key for key in keys if key in known]
                if why or not found:
                    faults.append(f"{line}: {why or 'not needed any more'}")
                else:
                    covered |= set(found)
                    needed.append(line)
            case Meant():
                names = [name for name in line.names if (line.place, line.kind, name) in known]
                faults += [
                    f"{line.place} | {line.kind} | {name}: not needed any more"
                    for name in line.names
                    if name not in names
                ]
                covered |= {(line.place, line.kind, name) for name in names}
                if names:
                    needed.append(Meant(line.place, line.kind, tuple(names), line.reason))
    return [one for key, one in known.items() if key not in covered], faults, needed


def wrong_pair(pair: Pair, python: Mapping[str, Module], typescript: Mapping[str, Module]) -> str:
    if pair.place not in python or pair.python not in python[pair.place].names:
        return f"Python's {pair.place} defines no {pair.python}"
    if pair.module not in typescript or pair.typescript not in typescript[pair.module].names:
        return f"TypeScript's {pair.module} defines no {pair.typescript}"
    here, there = python[pair.place].names[pair.python], typescript[pair.module].names[pair.typescript]
    one, other = in_seconds(here.name, here.value)[1], in_seconds(there.name, there.value)[1]
    return "" if same(one, other) else f"Python has {one!r}, TypeScript {other!r}"
