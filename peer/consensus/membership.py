"""Decides which change of members is allowed, and what a change means for a leader.

Thesis 4.1 and 4.2, one server at a time. The barrier: a leader changes nothing before an entry of its own term is
committed, nor while an earlier change is not (the flaw found after the thesis: two changes by two leaders may leave
two majorities without a common member). A server that comes back without its storage is another incarnation: its old
life is replaced by a learner, and nothing that the old life said counts.
"""

from __future__ import annotations

from typing import assert_never

from peer.consensus import election, quorum, replication
from peer.consensus.events import AddLearner, Change, ChangeConfig, Demote, Promote, Proposed, Reason, Remove
from peer.consensus.message_codec import MAX_SERVERS, config_bytes
from peer.consensus.records import Config, Server
from peer.consensus.server import Node, Progress

CAUGHT_UP = 64  # entries that a learner may lack when it becomes a voter (4.2.1)


def on_change(node: Node, event: ChangeConfig) -> None:
    if node.role != "leader":
        node.reject(event.ctx, "not_leader" if node.leader else "no_leader")
        return
    if node.transfer_to:
        node.reject(event.ctx, "transferring")
        return
    if node.commit < node.term_start and node.bug != 28:
        node.reject(event.ctx, "not_ready")
        return
    if node.log.config_index > node.commit:
        node.reject(event.ctx, "change_pending")
        return
    changed = _changed(node, event.change)
    if not isinstance(changed, Config):
        node.reject(event.ctx, changed)
        return
    entry = replication.append(node, "config", config_bytes(changed))
    follow_config(node)
    node.effects.append(Proposed(event.ctx, entry.index, entry.term))
    replication.ship_all(node)


def _changed(node: Node, change: Change) -> Config | Reason:
    """The configuration after the change, or why not."""
    config = node.config
    servers = dict(config.by_id)
    known = servers.get(change.id)
    match change:
        case AddLearner():
            if change.id == node.me or (known is not None and known.incarnation >= change.incarnation):
                return "already"
            if known is None and len(servers) >= MAX_SERVERS:
                return "busy"
            servers[change.id] = Server(change.id, change.incarnation, False)
        case Promote():
            if known is None:
                return "unknown_member"
            if known.voter:
                return "already"
            if not _caught_up(node, change.id):
                return "not_caught_up"
            servers[change.id] = Server(known.id, known.incarnation, True)
        case Demote():
            if known is None:
                return "unknown_member"
            if not known.voter:
                return "already"
            servers[change.id] = Server(known.id, known.incarnation, False)
        case Remove():
            if known is None:
                return "unknown_member"
            del servers[change.id]
        case _:
            assert_never(change)
    after = Config(tuple(servers[peer] for peer in sorted(servers)))
    if not after.voters:
        return "last_voter"
    if after.voters != config.voters and not _reachable(node, after):
        return "would_lose_quorum"
    return after


def _caught_up(node: Node, peer: str) -> bool:
    progress = node.progress.get(peer)
    return (
        progress is not None
        and progress.match > 0
        and progress.match + CAUGHT_UP >= node.log.last
        and progress.contact_ms >= node.now - node.settings.election_min_ms
    )


def _reachable(node: Node, after: Config) -> bool:
    """Whether a majority of the new voters was heard lately: what cannot be committed would block every change."""
    since = node.now - node.settings.election_min_ms
    heard = 0
    for voter in after.voters:
        progress = node.progress.get(voter)
        heard += voter == node.me or (progress is not None and progress.contact_ms >= since)
    return heard >= quorum.majority(len(after.voters))


def follow_config(node: Node) -> None:
    """A leader's list of whom it sends to follows the newest configuration at once (4.1)."""
    progress: dict[str, Progress] = {}
    for server in node.log.config.servers:
        if server.id == node.me:
            continue
        known = node.progress.get(server.id)
        if known is not None and (known.incarnation == server.incarnation or node.bug == 31):
            known.incarnation = server.incarnation
            progress[server.id] = known
        else:
            progress[server.id] = Progress(server.incarnation, node.log.last + 1, contact_ms=node.now)
    node.progress = progress


def committed(node: Node) -> None:
    """A leader that is no voter any more leads until that is committed, then lets the best voter campaign (4.2.2)."""
    if node.log.config_index > node.commit or node.votes_here:
        return
    for peer, progress in sorted(node.progress.items()):
        replication.ship(node, peer, progress, beat=True)  # they learn that the change is committed
    successor = election.best_successor(node)
    if successor:
        election.hand_over_to(node, successor)
    election.become_follower(node, node.term, "")
