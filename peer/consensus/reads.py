"""Linearizable reads by read index, for the leader itself and for the others.

Thesis 6.4. A read takes the commit index of the moment, once an entry of the leader's own term is committed; then a
majority must answer a message sent after that moment; then the entry must be applied where the read is served. Reads
come in rounds: those that arrive while one is under way share the next.
"""

from __future__ import annotations

from peer.consensus import replication
from peer.consensus.events import ReadReady
from peer.consensus.messages import Message, ReadIndex, ReadIndexReply
from peer.consensus.server import PendingRead, RaftServer

MAX_READS = 4096  # that wait at one server


def on_read(server: RaftServer, ctx: int) -> None:
    """Queues a read of this edge at the leader, asks the leader for its index, or rejects it."""
    read = PendingRead(ctx, "", 0, -1, server.now + server.settings.election_max_ms)
    if _waiting(server) >= MAX_READS:
        server.reject(ctx, "busy")
    elif server.role == "leader":
        server.reads_queued.append(read)
        begin_round(server)
    elif server.leader == "":
        server.reject(ctx, "no_leader")
    else:
        server.last_read_number += 1
        server.reads_forwarded[server.last_read_number] = read
        server.send(server.leader, server.leader_incarnation, ReadIndex(server.last_read_number))


def _waiting(server: RaftServer) -> int:
    return (
        len(server.reads_queued)
        + len(server.reads_in_round)
        + len(server.reads_confirmed)
        + len(server.reads_forwarded)
    )


def on_read_index(server: RaftServer, message: Message, body: ReadIndex) -> None:
    """Queues the read of another server, which wants its index; refuses it where this is not the leader."""
    if server.role != "leader" or message.term != server.term or len(server.reads_queued) >= MAX_READS:
        server.send(message.sender, message.sender_incarnation, ReadIndexReply(body.read, False, 0))
        return
    expires_ms = server.now + server.settings.election_max_ms
    server.reads_queued.append(
        PendingRead(body.read, message.sender, message.sender_incarnation, -1, expires_ms)
    )
    begin_round(server)


def on_read_index_reply(server: RaftServer, message: Message, body: ReadIndexReply) -> None:
    """Takes the index of a read that was forwarded to the leader."""
    if message.sender != server.leader:
        return
    read = server.reads_forwarded.pop(body.read, None)
    if read is None:
        return
    if not body.ok:
        server.reject(read.ctx, "leader_changed")
        return
    read.index = body.index
    server.reads_confirmed.append(read)


def begin_round(server: RaftServer) -> None:
    """Gives the queued reads their index, and asks everybody whether this is the leader still."""
    if not server.reads_queued or server.reads_in_round:
        return
    if server.commit_index < server.term_start:
        return  # what earlier leaders committed is not known yet
    server.reads_in_round, server.reads_queued = server.reads_queued, []
    for read in server.reads_in_round:
        read.index = server.commit_index
    server.round_seq = server.seq
    if not end_round(server):
        replication.broadcast_heartbeat(server)


def end_round(server: RaftServer) -> bool:
    """Ends the round, if a majority answered something that was sent after it began; returns whether it did."""
    if not server.reads_in_round or replication.quorum_acked_seq(server) <= server.round_seq:
        return False
    done, server.reads_in_round = server.reads_in_round, []
    for read in done:
        if read.origin:
            server.send(read.origin, read.incarnation, ReadIndexReply(read.ctx, True, read.index))
        else:
            server.reads_confirmed.append(read)
    begin_round(server)
    return True


def serve(server: RaftServer) -> None:
    """Serves the reads whose index is applied here."""
    waiting: list[PendingRead] = []
    for read in server.reads_confirmed:
        if server.applied_index >= read.index:
            server.effects.append(ReadReady(read.ctx, read.index))
        else:
            waiting.append(read)
    server.reads_confirmed = waiting


def drop_unconfirmed(server: RaftServer) -> None:
    """Rejects the reads without an index, as the leader changed; whoever asked can ask again."""
    for read in (*server.reads_in_round, *server.reads_queued):
        if read.origin:
            server.send(read.origin, read.incarnation, ReadIndexReply(read.ctx, False, 0))
        else:
            server.reject(read.ctx, "leader_changed")
    for _, read in sorted(server.reads_forwarded.items()):
        server.reject(read.ctx, "leader_changed")
    server.reads_in_round, server.reads_queued, server.reads_forwarded = [], [], {}


def expire(server: RaftServer) -> None:
    """Rejects reads that have waited for as long as an election may take."""
    for number, read in sorted(server.reads_forwarded.items()):
        if read.expires_ms <= server.now:
            del server.reads_forwarded[number]
            server.reject(read.ctx, "timeout")
    server.reads_queued = _unexpired(server, server.reads_queued)
    server.reads_in_round = _unexpired(server, server.reads_in_round)
    server.reads_confirmed = _unexpired(server, server.reads_confirmed)


def _unexpired(server: RaftServer, reads: list[PendingRead]) -> list[PendingRead]:
    for read in reads:
        if read.expires_ms <= server.now and not read.origin:
            server.reject(read.ctx, "timeout")
    return [read for read in reads if read.expires_ms > server.now]


def deadline_ms(server: RaftServer) -> int | None:
    """Returns when the first read expires; None where none waits."""
    reads = [
        *server.reads_forwarded.values(),
        *server.reads_queued,
        *server.reads_in_round,
        *server.reads_confirmed,
    ]
    return min((read.expires_ms for read in reads), default=None)
