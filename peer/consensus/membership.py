"""Cluster membership: which change is allowed, and what a change means for a leader.

Thesis 4.1 and 4.2, one server at a time. The barrier: a leader changes nothing before an entry of its own term is
committed, nor while an earlier change is not (the flaw found after the thesis: two changes by two leaders may leave
two majorities without a common member). A server that comes back without its storage is another incarnation: it
begins as a learner, and nothing that its earlier incarnation said counts.
"""

from __future__ import annotations

from typing import assert_never

from peer.consensus import quorum, replication
from peer.consensus.events import AddLearner, Change, ChangeConfig, Demote, Promote, Proposed, Reason, Remove
from peer.consensus.message_codec import MAX_SERVERS, config_bytes
from peer.consensus.records import Config, Server
from peer.consensus.server import Progress, RaftServer

CAUGHT_UP_ENTRIES = 64  # that a learner may lack when it becomes a voter (4.2.1)


def on_change(server: RaftServer, event: ChangeConfig) -> None:
    """Appends the configuration after the change, which holds at once (4.1), or rejects the change."""
    if server.role != "leader":
        server.reject(event.ctx, "not_leader" if server.leader else "no_leader")
        return
    if server.transfer_target:
        server.reject(event.ctx, "transferring")
        return
    if server.commit_index < server.term_start:
        server.reject(event.ctx, "not_ready")
        return
    if server.log.config_index > server.commit_index:
        server.reject(event.ctx, "change_pending")
        return
    changed = _changed(server, event.change)
    if not isinstance(changed, Config):
        server.reject(event.ctx, changed)
        return
    entry = replication.append(server, "config", config_bytes(changed))
    follow_config(server)
    server.effects.append(Proposed(event.ctx, entry.index, entry.term))
    replication.broadcast_append(server)


def _changed(server: RaftServer, change: Change) -> Config | Reason:
    """The configuration after the change, or why not."""
    config = server.config
    servers = dict(config.by_id)
    known = servers.get(change.id)
    match change:
        case AddLearner():
            if change.id == server.id or (known is not None and known.incarnation >= change.incarnation):
                return "already"
            if known is None and len(servers) >= MAX_SERVERS:
                return "busy"
            servers[change.id] = Server(change.id, change.incarnation, False)
        case Promote():
            if known is None:
                return "unknown_member"
            if known.voter:
                return "already"
            if not _caught_up(server, change.id):
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
    if after.voters != config.voters and not _reachable(server, after):
        return "would_lose_quorum"
    return after


def _caught_up(server: RaftServer, peer: str) -> bool:
    progress = server.progress.get(peer)
    return (
        progress is not None
        and progress.match_index > 0
        and progress.match_index + CAUGHT_UP_ENTRIES >= server.log.last_index
        and progress.contact_ms >= server.now - server.settings.election_min_ms
    )


def _reachable(server: RaftServer, after: Config) -> bool:
    """Whether a majority of the new voters answered lately: what cannot be committed blocks every change."""
    since = server.now - server.settings.election_min_ms
    reachable = 0
    for voter in after.voters:
        progress = server.progress.get(voter)
        reachable += voter == server.id or (progress is not None and progress.contact_ms >= since)
    return reachable >= quorum.majority(len(after.voters))


def follow_config(server: RaftServer) -> None:
    """Sends to the servers of the newest configuration from now on, and to no others (4.1)."""
    progress: dict[str, Progress] = {}
    for peer in server.log.config.servers:
        if peer.id == server.id:
            continue
        known = server.progress.get(peer.id)
        if known is not None and known.incarnation == peer.incarnation:
            progress[peer.id] = known
        else:
            progress[peer.id] = Progress(peer.incarnation, server.log.last_index + 1, contact_ms=server.now)
    server.progress = progress


def leads_no_more(server: RaftServer) -> bool:
    """Returns whether the leader is no voter any more, and that is committed (4.2.2)."""
    return server.log.config_index <= server.commit_index and not server.is_voter


def hand_over(server: RaftServer) -> None:
    """Tells everybody that the change is committed, and lets the best voter campaign (4.2.2)."""
    for peer, progress in server.sorted_progress():
        replication.replicate(server, peer, progress, heartbeat=True)
    successor = _best_successor(server)
    if successor:
        replication.send_timeout_now(server, successor)


def _best_successor(server: RaftServer) -> str:
    """The voter that has most of this leader's log, and the newest contact; "" where there is none."""
    known = [
        (progress.match_index, progress.contact_ms, peer)
        for peer, progress in server.sorted_progress()
        if peer in server.config.voters
    ]
    return max(known, default=(0, 0, ""))[2]
