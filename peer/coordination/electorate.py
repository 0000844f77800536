"""Decides, for the leader, who stands for the vote: the members as the log and its own eyes show them.

Pure. peer.coordination.voter_policy says what follows from it. Who was lost a moment ago still stands: it may come
back, and be again what it was. Who said that it leaves before it was lost stands no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from peer.consensus.events import Status
from peer.coordination.voter_policy import PATIENCE, Candidate, Patience, Watch
from peer.state.generated.commands import Member
from peer.state.mesh_state import MeshState

NEARLY: Final = 64  # entries that a member may lack and count as caught up
LEARNER_KEPT_MS: Final = 10_000  # the place of a learner that was lost


def keeps_mesh(member: Member) -> bool:
    """Whether a mesh can live on with this member alone: a tab that keeps no log coordinates nothing."""
    return member.headless or member.durable


@dataclass(frozen=True, slots=True)
class Lost:
    """Somebody whose connection ended, as it was known."""

    member: Member
    since_ms: int


class Electorate:
    """What a leader remembers of members beside the log. A new leader begins with a new one."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self.watch = Watch()
        self._lost: dict[str, Lost] = {}
        self._patience = patience

    def lost(self, now_ms: int, member: Member) -> None:
        """The connection to a member ended, or it is silent and gone."""
        self._lost[member.peer] = Lost(member, now_ms)

    def left(self, peer: str) -> None:
        """It said goodbye: its place is free."""
        self._lost.pop(peer, None)

    def candidates(
        self, now_ms: int, state: MeshState, status: Status, connected: frozenset[str]
    ) -> tuple[Candidate, ...]:
        """Every member, and those whose place is kept. Who leads need not go because another one keeps more."""
        voters = status.config.voters
        for peer, lost in list(self._lost.items()):
            kept_ms = (
                self._patience.gone_ms if peer in voters and lost.member.durable else LEARNER_KEPT_MS
            )  # who keeps nothing never comes back as the voter that it was
            if peer in state.members or now_ms - lost.since_ms >= kept_ms:
                del self._lost[peer]
        members = {**state.members, **{peer: lost.member for peer, lost in self._lost.items()}}
        for peer, member in members.items():
            self.watch.see(now_ms, peer, peer in connected and peer not in self._lost, _ailing(member))
        self.watch.keep(members.__contains__)
        return tuple(
            Candidate(
                peer,
                member.incarnation,
                member.headless,
                member.durable or peer == status.leader,
                keeps_mesh(member),
                place,
                member.status == "leaving",
                status.matched.get(peer, 0) + NEARLY >= status.commit,
                self.watch.sight(now_ms, peer),
            )
            for place, (peer, member) in enumerate(members.items())
        )


def _ailing(member: Member) -> bool:
    """Its tab is hidden, say."""
    return member.status == "paused" or (member.status == "draining" and not member.headless)
