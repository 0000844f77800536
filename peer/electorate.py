"""Decides, for the leader, the next change of who is in the group and who of them votes.

Pure. One change at a time: the leader asks again when that one is committed. Whom it is best to have as voters is for
peer.voting to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from peer.consensus.records import Config
from peer.consensus.types import AddLearner, Change, Demote, Promote, Remove
from peer.mesh_state import Member


def keeps_mesh(member: Member) -> bool:
    """Whether a mesh can live on with this member alone: one that only asks is gone in a minute."""
    return member.compute or member.headless or member.durable


def wanted_voters(
    config: Config, members: Mapping[str, Member], me: str, connected: Callable[[str], bool]
) -> frozenset[str]:
    """An odd number of those who are here and stay, who leads among them."""

    def rank(peer: str) -> tuple[bool, bool, bool, str]:
        member = members[peer]
        return (not member.headless, not member.durable, peer not in config.voters, peer)

    fit = [
        p for p, m in members.items() if keeps_mesh(m) and m.status != "leaving" and p != me and connected(p)
    ]
    most = min(4, len(fit) // 2 * 2)
    return frozenset([me, *sorted(fit, key=rank)[:most]])


def next_change(
    config: Config,
    members: Mapping[str, Member],
    over: Collection[str],
    voters: Collection[str],
    refused: Collection[Change] = (),
) -> Change | None:
    """What brings `config` nearer to `members`, of whom `voters` should vote; None when nothing is left to do.

    `over`: servers whose place is not kept any more. `refused`: what the core refused a moment ago.
    """
    changes: list[Change] = []
    for peer, member in sorted(members.items()):
        server = config.by_id.get(peer)
        if server is None or server.incarnation < member.incarnation:
            changes.append(AddLearner(peer, member.incarnation))
    changes += [
        Remove(server.id) for server in config.servers if server.id in over and server.id not in members
    ]
    here = {server.id for server in config.servers if _is(server.id, server.incarnation, members)}
    changes += [Promote(peer) for peer in sorted(voters) if peer in here and peer not in config.voters]
    changes += [Demote(peer) for peer in config.voters if peer in members and peer not in voters]
    return next((change for change in changes if change not in refused), None)


def _is(peer: str, incarnation: int, members: Mapping[str, Member]) -> bool:
    member = members.get(peer)
    return member is not None and member.incarnation == incarnation
