"""Snapshots: how one goes to a follower in chunks, when it is taken there, and what compaction keeps.

Thesis 5 and figure 5.3. Sending begins with the question how much is there already, so that it goes on after a lost
connection, a new leader with the same snapshot, or a restart of the sender. At most `max_inflight` chunks are on their
way; what was lost is sent again, chunk by chunk, once nothing moved for as long as an election may take.
"""

from __future__ import annotations

from zlib import crc32

from peer.consensus.events import Compact, Restore
from peer.consensus.messages import Install, InstallReply, Message
from peer.consensus.records import Snapshot
from peer.consensus.server import IncomingSnapshot, Progress, RaftServer

# --- the leader -------------------------------------------------------------------------------------------


def start(server: RaftServer, peer: str, progress: Progress) -> None:
    """Offers `peer`, which needs entries that were compacted, the newest snapshot."""
    progress.state, progress.inflight, progress.probe_sent = "snapshot", [], False
    if server.log.snapshot is None:
        return
    progress.snapshot = server.log.snapshot
    progress.snapshot_crc = crc32(progress.snapshot.data)
    progress.acked_bytes = progress.sent_bytes = 0
    progress.offset_unknown, progress.stalled_heartbeats = True, 0
    _send_chunk(server, peer, progress, 0, b"")


def send_chunks(server: RaftServer, peer: str, progress: Progress, heartbeat: bool) -> None:
    """Sends chunks ahead. A heartbeat sends only the question how much is there, or one chunk again where long
    nothing moved: a slow link must not get more to carry.
    """
    snapshot = progress.snapshot
    if snapshot is None:
        return
    chunk_bytes = server.settings.snapshot_chunk_bytes
    if progress.offset_unknown:
        if heartbeat:
            start(server, peer, progress)  # with the newest snapshot, in case there is a newer one
        return
    if heartbeat:
        progress.stalled_heartbeats += 1
        stalled_ms = progress.stalled_heartbeats * server.settings.heartbeat_ms
        again = stalled_ms >= server.settings.election_min_ms
        chunk = snapshot.data[progress.acked_bytes : progress.acked_bytes + chunk_bytes] if again else b""
        _send_chunk(server, peer, progress, progress.acked_bytes if chunk else 0, chunk)
        if chunk:
            progress.sent_bytes, progress.stalled_heartbeats = progress.acked_bytes + len(chunk), 0
        return
    ahead = progress.acked_bytes + server.settings.max_inflight * chunk_bytes
    while progress.sent_bytes < len(snapshot.data) and progress.sent_bytes < ahead:
        chunk = snapshot.data[progress.sent_bytes : progress.sent_bytes + chunk_bytes]
        _send_chunk(server, peer, progress, progress.sent_bytes, chunk)
        progress.sent_bytes += len(chunk)


def _send_chunk(server: RaftServer, peer: str, progress: Progress, offset: int, chunk: bytes) -> None:
    snapshot = progress.snapshot
    assert snapshot is not None
    server.seq += 1
    total = len(snapshot.data)
    body = Install(
        server.seq,
        snapshot.index,
        snapshot.term,
        snapshot.config,
        total,
        progress.snapshot_crc,
        offset,
        chunk,
    )
    server.send(peer, progress.incarnation, body)


def on_install_reply(server: RaftServer, peer: str, progress: Progress, body: InstallReply) -> None:
    """Goes on from as many bytes as are there."""
    snapshot = progress.snapshot
    if snapshot is None or (snapshot.index, snapshot.term) != (body.index, body.snapshot_term):
        return
    overtaken = body.offset < progress.acked_bytes and body.seq <= progress.accepted_seq
    if body.offset > len(snapshot.data) or overtaken:
        return
    progress.accepted_seq = max(progress.accepted_seq, body.seq)
    if body.offset == progress.acked_bytes and not progress.offset_unknown:
        return  # nothing moved
    if body.offset < progress.acked_bytes:
        progress.sent_bytes = body.offset  # it began anew
    progress.offset_unknown, progress.stalled_heartbeats = False, 0
    progress.acked_bytes = body.offset
    progress.sent_bytes = max(progress.sent_bytes, progress.acked_bytes)
    send_chunks(server, peer, progress, heartbeat=False)


def on_agreement(server: RaftServer, progress: Progress) -> None:
    """Goes back to sending entries once the snapshot is stored there, or is not needed any more."""
    snapshot, match_index = progress.snapshot, progress.match_index
    if snapshot is None or match_index >= snapshot.index or server.log.term_at(match_index) is not None:
        progress.state, progress.next_index, progress.snapshot = "replicate", match_index + 1, None


# --- the follower -----------------------------------------------------------------------------------------


def on_install(server: RaftServer, message: Message, body: Install) -> None:
    """Takes chunks in order; the whole replaces the log unless the log has that entry already (figure 5.3)."""
    to, incarnation = message.sender, message.sender_incarnation
    if body.index <= server.commit_index:  # it is there already, and commits never go back
        server.incoming_snapshot = None
        server.acknowledged_index = min(server.verified_index, server.log.durable_index)
        server.acknowledge(to, incarnation, body.seq)
        return
    incoming = server.incoming_snapshot
    if incoming is None or not _is_chunk_of(incoming, body):
        if body.offset != 0:
            server.send(to, incarnation, InstallReply(body.seq, body.index, body.snapshot_term, 0))
            return
        incoming = IncomingSnapshot(
            body.index, body.snapshot_term, body.config, body.total, body.crc, bytearray()
        )
        server.incoming_snapshot = incoming
    if body.offset == len(incoming.data):
        incoming.data += body.data
    if len(incoming.data) == incoming.total:
        data = bytes(incoming.data)
        server.incoming_snapshot = None
        if crc32(data) == incoming.crc:
            _install(server, Snapshot(incoming.index, incoming.term, incoming.config, data))
            return  # the answer comes once it is stored
        incoming.data = bytearray()
    reply = InstallReply(body.seq, body.index, body.snapshot_term, len(incoming.data))
    server.send(to, incarnation, reply)


def _is_chunk_of(incoming: IncomingSnapshot, body: Install) -> bool:
    return (incoming.index, incoming.term, incoming.total, incoming.crc) == (
        body.index,
        body.snapshot_term,
        body.total,
        body.crc,
    )


def _install(server: RaftServer, snapshot: Snapshot) -> None:
    server.log.install(snapshot, server.commit_index)
    server.commit_index = snapshot.index
    server.verified_index = max(server.verified_index, snapshot.index)
    server.restore_token = server.store_snapshot(snapshot)


def on_durable(server: RaftServer) -> None:
    """Replaces the state machine once the snapshot that was installed cannot be lost any more."""
    snapshot = server.log.snapshot
    if server.restore_token and server.restore_token <= server.durable_token and snapshot is not None:
        server.restore_token = 0
        server.applying_index = server.log.snapshot_index
        server.effects.append(Restore(snapshot))


# --- every server -----------------------------------------------------------------------------------------


def on_compact(server: RaftServer, event: Compact) -> None:
    """Keeps this state instead of the entries before it, but for a tail; nothing happens where a newer one is kept."""
    if event.index > server.applied_index or event.index <= server.log.snapshot_index:
        return
    term = server.log.term_at(event.index)
    if term is None:
        return
    snapshot = Snapshot(event.index, term, server.log.config_at(event.index), event.data)
    server.log.compact(snapshot, event.index - server.settings.keep_tail + 1)
    server.store_snapshot(snapshot)
