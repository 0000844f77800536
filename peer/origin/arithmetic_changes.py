"""Decides where an answer went on with other arithmetic: units whose class changed between two of its tokens.

Pure; the same in web_peer/src/origin/arithmetic_changes.ts. A stage that was lost, or that another plan gives to
another peer, goes on at a peer whose class may be another one, or unknown where the other's is known. From that token
on the answer may have other words than without the change, where two tokens are about equally likely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from peer.state.generated.commands import Member, PlanRecord
from planner.model.arithmetic_class import crossed, shown

MOST: Final = 8  # of one answer that are told


@dataclass(frozen=True, slots=True)
class Part:
    """Units [first, stop) that a peer of this class computes; "": unknown."""

    first: int
    stop: int
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Crossing:
    """After `tokens` of an answer units [first, stop) went on with class `after` in place of `before`; "": unknown."""

    tokens: int
    first: int
    stop: int
    before: str
    after: str


def parts_of(
    plan: PlanRecord, peers: Sequence[str], members: Mapping[str, Member]
) -> tuple[Part, ...] | None:
    """Who computes the stages of `plan` how on a route over `peers`; None where one of them is no member."""
    found = []
    for stage, peer in zip(plan.stages, peers, strict=False):
        member = members.get(peer)
        if member is None:
            return None
        arithmetic = member.profile.arithmetic if member.profile is not None else ""
        found.append(Part(stage.first, stage.stop, arithmetic))
    return tuple(found)


class Crossings:
    """Of one answer, which has `tokens` of somebody else already. `found`: those between its tokens so far, the first
    MOST.
    """

    def __init__(self, tokens: int = 0) -> None:
        self.found: tuple[Crossing, ...] = ()
        self._tokens = tokens
        self._parts: tuple[Part, ...] = ()

    def token(self, parts: Sequence[Part] | None) -> None:
        """One more token came, of stages that compute so; None: as the one before, as far as anybody knows."""
        if parts is not None and tuple(parts) != self._parts:
            changed = _between(self._parts, parts)
            self.found = (*self.found, *(Crossing(self._tokens, *each) for each in changed))[:MOST]
            self._parts = tuple(parts)
        self._tokens += 1


def _between(before: Sequence[Part], after: Sequence[Part]) -> list[tuple[int, int, str, str]]:
    """Runs of units whose class changed: (first, stop, before, after)."""
    borders = sorted({border for part in (*before, *after) for border in (part.first, part.stop)})
    found: list[tuple[int, int, str, str]] = []
    for first, stop in pairwise(borders):
        was, now = _class_of(before, first), _class_of(after, first)
        if was is None or now is None or not crossed(was, now):
            continue
        if found and found[-1][1:] == (first, was, now):
            found[-1] = (found[-1][0], stop, was, now)
        else:
            found.append((first, stop, was, now))
    return found


def _class_of(parts: Sequence[Part], unit: int) -> str | None:
    return next((part.arithmetic for part in parts if part.first <= unit < part.stop), None)


def crossed_text(found: Sequence[Crossing]) -> str:
    """One line for people; "" where nothing crossed."""
    if not found:
        return ""
    one = found[0]
    units = f"unit {one.first}" if one.stop == one.first + 1 else f"units {one.first} to {one.stop - 1}"
    before, after = (shown(each) or "unknown" for each in (one.before, one.after))
    more = f", and {len(found) - 1} more such changes" if len(found) > 1 else ""
    return (
        f"after {one.tokens} token{'s' * (one.tokens != 1)} {units} went on with other arithmetic "
        f"({after}, before {before}){more}: wording may differ from there on"
    )
