"""Decides when a read may be served: ReadIndex, for the leader itself and for the others.

Thesis 6.4. A read takes the commit index of the moment, once an entry of the leader's own term is committed; then a
majority must answer a message sent after that moment; then the entry must be applied where the read is served. Reads
come in rounds: those that arrive while one is under way share the next.
"""

from __future__ import annotations

from peer.consensus import replication
from peer.consensus.events import ReadReady
from peer.consensus.messages import Message, ReadIndex, ReadIndexReply
from peer.consensus.server import Node, Waiting

MAX_READS = 4096  # that wait at one server


def on_read(node: Node, ctx: int) -> None:
    wait = Waiting(ctx, "", 0, -1, node.now + node.settings.election_max_ms)
    waiting = len(node.read_queue) + len(node.read_round) + len(node.read_ready) + len(node.forwarded)
    if waiting >= MAX_READS:
        node.reject(ctx, "busy")
    elif node.role == "leader":
        node.read_queue.append(wait)
        begin_round(node)
    elif node.leader == "":
        node.reject(ctx, "no_leader")
    else:
        node.read_number += 1
        node.forwarded[node.read_number] = wait
        node.send(node.leader, node.leader_incarnation, ReadIndex(node.read_number))


def on_read_index(node: Node, message: Message, body: ReadIndex) -> None:
    if node.role != "leader" or message.term != node.term or len(node.read_queue) >= MAX_READS:
        node.send(message.sender, message.sender_incarnation, ReadIndexReply(body.read, False, 0))
        return
    expires = node.now + node.settings.election_max_ms
    node.read_queue.append(Waiting(body.read, message.sender, message.sender_incarnation, -1, expires))
    begin_round(node)


def on_read_index_reply(node: Node, message: Message, body: ReadIndexReply) -> None:
    if message.sender != node.leader or message.term != node.term:
        return
    wait = node.forwarded.pop(body.read, None)
    if wait is None:
        return
    if not body.ok:
        node.reject(wait.ctx, "leader_changed")
        return
    wait.index = body.index
    node.read_ready.append(wait)


def begin_round(node: Node) -> None:
    """Give the waiting reads their index, and ask everybody whether this is the leader still."""
    if not node.read_queue or node.read_round:
        return
    if node.commit < node.term_start and node.bug not in (35, 38):
        return  # what earlier leaders committed is not known yet
    node.read_round, node.read_queue = node.read_queue, []
    for wait in node.read_round:
        wait.index = node.commit
    node.round_seq = node.seq
    if not settle(node):
        replication.heartbeat(node)


def settle(node: Node) -> bool:
    """Finish the round when a majority answered something that was sent after it began."""
    if not node.read_round:
        return False
    confirmed = replication.quorum_seq(node) > node.round_seq
    if node.bug == 36:  # any answer will do, also of a message sent before
        confirmed = replication.quorum_seq(node) > 0
    elif node.bug == 38:
        confirmed = True
    elif node.bug == 39:  # a lease: who was heard lately cannot have another leader
        confirmed = replication.quorum_contact(node) >= node.now - node.settings.election_max_ms
    if not confirmed:
        return False
    done, node.read_round = node.read_round, []
    for wait in done:
        if node.bug == 37:
            wait.index = node.applied
        if wait.origin:
            node.send(wait.origin, wait.incarnation, ReadIndexReply(wait.ctx, True, wait.index))
        else:
            node.read_ready.append(wait)
    begin_round(node)
    return True


def serve(node: Node) -> None:
    """Reads whose entry is applied."""
    still: list[Waiting] = []
    for wait in node.read_ready:
        if node.applied >= wait.index or node.bug == 40:
            node.effects.append(ReadReady(wait.ctx, wait.index))
        else:
            still.append(wait)
    node.read_ready = still


def drop_all(node: Node) -> None:
    """The leader changed: reads without an index are refused, so that who asked can ask again."""
    for wait in (*node.read_round, *node.read_queue):
        if wait.origin:
            node.send(wait.origin, wait.incarnation, ReadIndexReply(wait.ctx, False, 0))
        elif node.bug != 49:
            node.reject(wait.ctx, "leader_changed")
    for _, wait in sorted(node.forwarded.items()):
        if node.bug != 49:
            node.reject(wait.ctx, "leader_changed")
    node.read_round, node.read_queue, node.forwarded = [], [], {}


def expire(node: Node) -> None:
    """Nothing waits longer than an election."""
    for number, wait in sorted(node.forwarded.items()):
        if wait.expires_ms <= node.now:
            del node.forwarded[number]
            node.reject(wait.ctx, "timeout")
    for name in ("read_queue", "read_round", "read_ready"):
        waits: list[Waiting] = getattr(node, name)
        for wait in waits:
            if wait.expires_ms <= node.now and not wait.origin:
                node.reject(wait.ctx, "timeout")
        setattr(node, name, [wait for wait in waits if wait.expires_ms > node.now])


def deadline(node: Node) -> int | None:
    waits = [*node.forwarded.values(), *node.read_queue, *node.read_round, *node.read_ready]
    return min((wait.expires_ms for wait in waits), default=None)
