"""Decides how a snapshot goes to a follower in pieces, when it is taken there, and what compaction keeps.

Thesis 5 and figure 5.3. A transfer begins with the question how much is there already, so that it goes on after a lost
connection, a new leader with the same snapshot, or a restart of the sender. At most `max_inflight` pieces are on their
way; what was lost is sent again, piece by piece, once nothing moved for as long as an election may take.
"""

from __future__ import annotations

from zlib import crc32

from peer.consensus import replication
from peer.consensus.events import Compact, Restore
from peer.consensus.messages import AppendReply, Install, InstallReply, Message
from peer.consensus.records import Snapshot
from peer.consensus.server import Incoming, Node, Progress

# --- the leader -------------------------------------------------------------------------------------------


def begin(node: Node, peer: str, progress: Progress) -> None:
    """`peer` needs entries that are not in the log any more."""
    progress.state, progress.inflight, progress.paused = "snapshot", [], False
    if node.log.snapshot is None or (node.bug == 27 and node.log.base < node.term_start):
        return
    progress.snapshot = node.log.snapshot
    progress.crc = crc32(progress.snapshot.data)
    progress.offset = progress.sent = 0
    progress.asked, progress.stalled = True, 0
    _send_piece(node, peer, progress, 0, b"")


def ship(node: Node, peer: str, progress: Progress, beat: bool) -> None:
    """Send pieces ahead. A heartbeat sends the question only, or one piece again where long nothing moved: what is
    slow must not get more to carry.
    """
    snapshot = progress.snapshot
    if snapshot is None or (beat and node.bug == 26):
        return
    chunk = node.settings.snapshot_chunk_bytes
    if progress.asked:
        if beat:
            begin(node, peer, progress)  # with the newest snapshot, in case it moved on
        return
    if beat:
        progress.stalled += 1
        again = progress.stalled * node.settings.heartbeat_ms >= node.settings.election_min_ms
        piece = snapshot.data[progress.offset : progress.offset + chunk] if again else b""
        _send_piece(node, peer, progress, progress.offset if piece else 0, piece)
        if piece:
            progress.sent, progress.stalled = progress.offset + len(piece), 0
        return
    ahead = progress.offset + node.settings.max_inflight * chunk
    while progress.sent < len(snapshot.data) and progress.sent < ahead:
        piece = snapshot.data[progress.sent : progress.sent + chunk]
        _send_piece(node, peer, progress, progress.sent, piece)
        progress.sent += len(piece)


def _send_piece(node: Node, peer: str, progress: Progress, offset: int, piece: bytes) -> None:
    snapshot = progress.snapshot
    assert snapshot is not None
    node.seq += 1
    total = len(snapshot.data)
    body = Install(
        node.seq, snapshot.index, snapshot.term, snapshot.config, total, progress.crc, offset, piece
    )
    node.send(peer, progress.incarnation, body)


def on_install_reply(node: Node, message: Message, body: InstallReply) -> None:
    progress = node.progress.get(message.sender)
    if node.role != "leader" or message.term != node.term or progress is None:
        return
    replication.answered(node, progress, body.seq)
    snapshot = progress.snapshot
    if snapshot is None or (snapshot.index, snapshot.term) != (body.index, body.snapshot_term):
        return
    if body.offset > len(snapshot.data) or (body.offset < progress.offset and body.seq <= progress.ok_seq):
        return  # cannot be, or was overtaken
    progress.ok_seq = max(progress.ok_seq, body.seq)
    if body.offset == progress.offset and not progress.asked:
        return  # nothing moved
    if body.offset < progress.offset:
        progress.sent = body.offset  # it began anew
    progress.asked, progress.stalled = False, 0
    progress.offset = body.offset
    progress.sent = max(progress.sent, progress.offset)
    ship(node, message.sender, progress, beat=False)


def agreed(node: Node, progress: Progress) -> None:
    """An AppendReply came from who gets a snapshot: it is stored there, or is not needed any more."""
    snapshot = progress.snapshot
    if snapshot is None or progress.match >= snapshot.index or node.log.term_at(progress.match) is not None:
        progress.state, progress.next, progress.snapshot = "replicate", progress.match + 1, None


# --- the follower -----------------------------------------------------------------------------------------


def on_install(node: Node, message: Message, body: Install) -> None:
    """Pieces are taken in order; the whole replaces the log unless the log has that entry already (figure 5.3)."""
    if node.role == "leader" or (node.bug == 47 and node.role != "follower"):
        return
    replication.heard(node, message, body.seq)
    to, incarnation = message.sender, message.sender_incarnation
    if body.index <= node.commit and node.bug != 22:  # it has that already, and commits never go back
        node.incoming = None
        node.acked = min(node.verified, node.log.durable)
        node.send(to, incarnation, AppendReply(body.seq, True, node.acked, 0, 0))
        return
    incoming = node.incoming
    if incoming is None or _name(incoming) != (body.index, body.snapshot_term, body.total, body.crc):
        if body.offset != 0:
            node.send(to, incarnation, InstallReply(body.seq, body.index, body.snapshot_term, 0))
            return
        incoming = Incoming(body.index, body.snapshot_term, body.config, body.total, body.crc, bytearray())
        node.incoming = incoming
    if body.offset == len(incoming.data):
        incoming.data += body.data
    if len(incoming.data) == incoming.total:
        data = bytes(incoming.data)
        node.incoming = None
        if crc32(data) == incoming.crc:
            _install(node, Snapshot(incoming.index, incoming.term, incoming.config, data))
            return  # the answer comes once it is stored
        incoming.data = bytearray()
    reply = InstallReply(body.seq, body.index, body.snapshot_term, len(incoming.data))
    node.send(to, incarnation, reply)


def _name(incoming: Incoming) -> tuple[int, int, int, int]:
    return (incoming.index, incoming.term, incoming.total, incoming.crc)


def _install(node: Node, snapshot: Snapshot) -> None:
    node.log.install(snapshot, node.commit)
    node.commit = snapshot.index
    node.verified = max(node.verified, snapshot.index)
    node.restore_token = node.store_snapshot(snapshot)


def stored(node: Node) -> None:
    """Called when something became durable: the state machine is replaced once its new state cannot be lost."""
    if node.restore_token and node.restore_token <= node.durable_token and node.log.snapshot is not None:
        node.restore_token = 0
        node.handed = node.log.base
        node.effects.append(Restore(node.log.snapshot))


# --- every server -----------------------------------------------------------------------------------------


def on_compact(node: Node, event: Compact) -> None:
    """Keep this state instead of the entries before it, but for a tail; an older one than there is says nothing new."""
    if event.index > node.applied or (event.index <= node.log.base and node.bug != 25):
        return
    term = node.log.term_at(event.index)
    if term is None:
        if node.bug != 25:
            return
        term = 1
    snapshot = Snapshot(event.index, term, node.log.config_at(event.index), event.data)
    node.log.compact(snapshot, event.index - node.settings.keep_tail + 1)
    node.store_snapshot(snapshot)
