"""Decides which member is asked to measure itself once more, and when: one of whose times a prediction abstained. Pure.

One member at a time in the whole mesh, so never two of a machine; when nothing has changed for a while; the same one
seldom, and ever more seldom while it does not help. One that was lost meanwhile is not asked again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal

from peer.state.generated.commands import Profile
from peer.state.mesh_state import MeshState

QUIET_S: Final = 30.0  # without a change of members, of what they hold, or of plans
NEXT_S: Final = 10.0  # between two members
BUSY_S: Final = 30.0  # after a member had something else to do; twice as long each time
PAUSE_S: Final = 600.0  # for one member after it measured; twice as long each time that it did not help
LONGEST_S: Final = 86400.0  # also for one that cannot measure, or does not know how
MAX_ASKED: Final = 1024  # members that are remembered, those who left among them
Outcome = Literal["measured", "busy", "unable", "lost"]
Place = tuple[str, str]  # a peer, and the model that it was asked about


@dataclass(frozen=True, slots=True)
class _Asked:
    not_before: float
    pause_s: float
    busy_s: float


class FreshTimes:
    """`asking`: the member that was asked and has not answered."""

    def __init__(self) -> None:
        self.asking: str | None = None
        self._doubted: frozenset[str] = frozenset()
        self._asked: dict[Place, _Asked] = {}
        self._fresh: dict[str, Profile] = {}
        self._seen: object = None
        self._quiet_since = float("inf")  # not seen yet
        self._next = float("-inf")

    def doubts(self, peers: Collection[str], looked_at: Collection[str]) -> None:
        """Of these members, of those that were looked at, a prediction abstains now."""
        for place, asked in self._asked.items():
            if place[0] in self._doubted and place[0] in looked_at and place[0] not in peers:
                self._asked[place] = replace(asked, pause_s=PAUSE_S)  # it helped
        self._doubted = frozenset(peers)

    def due(self, now: float, state: MeshState, *, calm: bool) -> str | None:
        """Whom to ask now. `calm`: nothing is planned, nobody is about to be relieved."""
        seen = (state.model, state.last_version, _members(state))
        if not calm or seen != self._seen:
            self._seen, self._quiet_since = seen, now
        if self.asking is not None or now < self._next or not self.is_quiet(now):
            return None
        if state.proposed is not None or state.serving() is None or state.model is None:
            return None
        for peer in sorted(self._doubted):
            member, asked = state.members.get(peer), self._asked.get((peer, state.model.model))
            if member is None or member.status != "measured" or member.profile is None:
                continue
            if asked is None or now >= asked.not_before:
                return peer
        return None

    def is_quiet(self, now: float) -> bool:
        """Whether nothing has changed for a while, as `due` saw it last."""
        return now - self._quiet_since >= QUIET_S

    def begun(self, peer: str) -> None:
        """It was asked."""
        self.asking = peer

    def heard(self, peer: str, profile: Profile) -> None:
        """`peer` says that this is what it measured because it was asked."""
        if peer == self.asking:
            self._fresh.pop(peer, None)
            self._fresh[peer] = profile
            if len(self._fresh) > MAX_ASKED:
                del self._fresh[next(iter(self._fresh))]

    def ended(self, now: float, model: str, outcome: Outcome) -> None:
        """Whoever was asked has answered, or will not."""
        peer, self.asking = self.asking, None
        if peer is None:
            return
        self._next = now + NEXT_S
        asked = self._asked.pop((peer, model), _Asked(now, PAUSE_S, BUSY_S))
        match outcome:
            case "measured":
                pause_s = min(2 * asked.pause_s, LONGEST_S)
                found = _Asked(now + asked.pause_s, pause_s, BUSY_S)
            case "busy":
                found = replace(asked, not_before=now + asked.busy_s, busy_s=min(2 * asked.busy_s, PAUSE_S))
            case "unable":
                found = replace(asked, not_before=now + LONGEST_S)
            case "lost":
                found = replace(asked, not_before=float("inf"))
        self._asked[peer, model] = found
        if len(self._asked) > MAX_ASKED:
            del self._asked[min(self._asked, key=lambda place: (self._asked[place].not_before, place))]

    def is_fresh(self, peer: str, profile: Profile | None) -> bool:
        """Whether `profile`, but for surroundings, is what `peer` measured because it was asked."""
        fresh = self._fresh.get(peer)
        return (
            fresh is not None
            and profile is not None
            and replace(fresh, surroundings=profile.surroundings) == profile
        )

    def fresh(self, state: MeshState) -> frozenset[str]:
        """The members that are planned with by what they measured because they were asked."""
        here = self._fresh.keys() & state.members.keys()
        return frozenset(peer for peer in here if self.is_fresh(peer, state.members[peer].profile))


def _members(state: MeshState) -> tuple[object, ...]:
    """What must not change for a while: who is here, as what, and what it holds."""
    return tuple((m.peer, m.status, m.incarnation, m.held) for _, m in sorted(state.members.items()))
