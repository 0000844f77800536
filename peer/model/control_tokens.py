"""Decides which parts of a prompt are control tokens: those that its chat template writes, and none that a message
spells. Pure.

Texts of messages are marked before the template renders them: a mark, one character that no message has, stands inside
every spelling of a control token, and at both ends of a text where template or neighbour could complete one. It is
neither space nor letter, so that the filters of templates leave it in its place. The prompt has no marks any more; a
spelling that had one inside is words.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from peer.errors import TextError

# Unicode's noncharacters, which are for a program's own use, then its private area.
_MARKS: Final = (*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900))
_PUNCTUATION: Final = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Written:
    """A control token of the template: the characters [start, stop) of the prompt."""

    start: int
    stop: int
    token: int


class ControlTokens:
    """The control tokens of one vocabulary, by the text that stands for each."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = {
            name: token for name, token in ids.items() if len(name) > 1
        }  # no mark fits into one letter
        self._lengths: dict[str, list[int]] = {}  # of names, by their first two letters, the longest first
        for name in sorted(self._ids, key=len, reverse=True):
            lengths = self._lengths.setdefault(name[:2], [])
            if len(name) not in lengths:
                lengths.append(len(name))
        first, second = (re.escape("".join(sorted({name[at] for name in self._ids}))) for at in (0, 1))
        self._first = re.compile(f"[{first}](?=[{second}])") if self._ids else None
        self._begins = _parts(name[:length] for name in self._ids for length in range(1, len(name)))
        self._ends = _parts(name[length:] for name in self._ids for length in range(1, len(name)))

    def mark_for(self, *values: object) -> str:
        """A mark that is in none of `values`, lists and dicts of text; "" where nothing there needs one."""
        return free_mark(*values) if any(map(self._needs, values)) else ""

    def marked(self, value: Any, mark: str) -> Any:
        """`value` with marks in its texts, at any depth. Keys are marked where they spell a control token whole."""
        match value:
            case str() if mark:
                return _inserted(value, self._places(value), mark)
            case dict() if mark:
                return {
                    _inserted(key, self._inside(key), mark) if isinstance(key, str) else key: self.marked(
                        held, mark
                    )
                    for key, held in value.items()
                }
            case list() | tuple() if mark:
                return [self.marked(held, mark) for held in value]
        return value

    def written(self, text: str, marks: Sequence[int]) -> list[Written] | None:
        """The control tokens that the template wrote; None where no other is spelled, so that text says it all.

        `text` has no marks any more, `marks` are the places where they stood, ascending (`unmarked`).
        """
        if not marks:
            return None
        found: list[Written] = []
        forged, end = False, 0
        for start, name in self._spelled(text):
            if start < end:
                continue
            at = bisect_right(marks, start)
            if at < len(marks) and marks[at] < start + len(name):
                forged = True
            else:
                end = start + len(name)
                found.append(Written(start, end, self._ids[name]))
        return found if forged else None

    def _needs(self, value: object) -> bool:
        match value:
            case str():
                return bool(self._places(value))
            case dict():
                return any(self._needs(held) or bool(self._inside(str(key))) for key, held in value.items())
            case list() | tuple():
                return any(map(self._needs, value))
        return False

    def _places(self, text: str) -> list[int]:
        """Where marks belong in a text, ascending."""
        left, right = len(text) - len(text.lstrip()), len(text.rstrip())
        ends = {at for at in (len(text), right) if _fits(self._begins, text, at, -1)}
        ends |= {at for at in (0, left) if _fits(self._ends, text, at, 1)}
        return sorted({*self._inside(text), *ends})

    def _inside(self, text: str) -> list[int]:
        return [start + 1 for start, _ in self._spelled(text)]

    def _spelled(self, text: str) -> Iterator[tuple[int, str]]:
        """(place, name) of every control token that a text spells, from left to right, the longest first."""
        if self._first is None:
            return
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths.get(text[start : start + 2], ()):
                name = text[start : start + length]
                if len(name) == length and name in self._ids:
                    yield start, name


def free_mark(*values: object) -> str:
    """A character for marks that is in none of `values`. Raises TextError where all are in use."""
    used = json.dumps(values, ensure_ascii=False, default=str)
    for code in _MARKS:
        if chr(code) not in used and _escaped(chr(code)) not in used:
            return chr(code)
    raise TextError("text has every character that is kept for marks; leave out some of the private ones")


def unmarked(text: str, mark: str) -> tuple[str, list[int]]:
    """`text` without marks, and the places of the result at which they stood, ascending."""
    if not mark:
        return text, []
    parts = re.split(f"{mark}|{re.escape(_escaped(mark))}", text)
    places: list[int] = []
    for part in parts[:-1]:
        places.append((places[-1] if places else 0) + len(part))
    return "".join(parts), places


def _escaped(mark: str) -> str:
    """A mark as JSON may spell it."""
    return f"\\u{ord(mark):04x}"


def _parts(parts: Iterable[str]) -> tuple[frozenset[str], int]:
    """Those with punctuation in them, and the longest's length. Letters alone end or begin too many other words."""
    kept = frozenset(part for part in parts if _PUNCTUATION.search(part))
    return kept, max(map(len, kept), default=0)


def _fits(parts: tuple[frozenset[str], int], text: str, at: int, step: int) -> bool:
    """Whether one of `parts` stands before (step -1) or behind `at`."""
    kept, longest = parts
    return any(
        (text[at - length : at] if step < 0 else text[at : at + length]) in kept
        for length in range(1, min(longest, at if step < 0 else len(text) - at) + 1)
    )


def _inserted(text: str, places: Sequence[int], mark: str) -> str:
    cuts = [0, *places, len(text)]
    return mark.join(text[start:stop] for start, stop in pairwise(cuts))
