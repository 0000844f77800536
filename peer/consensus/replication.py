"""Decides what a leader sends to whom, what a follower takes, and what is committed.

Thesis 3.5 (replication), 3.6.2 (only entries of the own term are committed by counting), 6.2 (contact with a majority),
10.2 (entries go out before they are durable here). A follower is probed until it agrees, then entries are sent
ahead, `max_inflight` messages at a time; who needs what is not in the log any more gets the snapshot.
"""

from __future__ import annotations

from peer.consensus import election, membership, quorum, reads, snapshot
from peer.consensus.message_codec import MAX_ENTRIES
from peer.consensus.messages import Append, AppendReply, Message
from peer.consensus.records import Entry, EntryKind
from peer.consensus.server import Node, Progress

# --- the leader -------------------------------------------------------------------------------------------


def become_leader(node: Node) -> None:
    """A noop of the new term commits what is there (3.6.2, 6.4) and opens membership changes (the barrier)."""
    if node.bug == 29:  # a configuration that the leader before did not commit is forgotten
        node.log.configs = [(at, config) for at, config in node.log.configs if at <= node.commit]
    node.role, node.leader, node.votes, node.election_at = "leader", node.me, {}, None
    node.incoming = None
    node.seq, node.marks = 0, [(0, node.now)]
    node.progress = {}
    node.term_start = node.log.last + 1
    node.quorum_check_at = None
    membership.follow_config(node)
    append(node, "noop", b"")
    heartbeat(node)


def step_down(node: Node) -> None:
    """What only a leader has goes; so does a transfer, which may have brought this about."""
    if node.bug != 45:
        node.transfer_to = ""
    if node.bug == 10 and node.log.last > node.commit:
        node.log.truncate(node.commit + 1)
    node.progress, node.marks, node.quorum_check_at = {}, [], None


def append(node: Node, kind: EntryKind, data: bytes) -> Entry:
    """Put one entry behind the leader's log; it is sent at once, and counted here when it is durable (10.2.1)."""
    entry = Entry(node.log.last + 1, node.term, kind, data)
    node.log.append((entry,))
    return entry


def voters_reached(node: Node, mine: int, values: dict[str, int]) -> int:
    """What a majority of the voters has reached; this server has `mine`."""
    voters = node.config.voters
    if node.bug == 30:  # a majority of those that were heard lately
        since = node.now - node.settings.election_min_ms
        voters = tuple(v for v in voters if v == node.me or node.progress[v].contact_ms >= since)
    if node.bug == 34 and node.me not in voters:  # a leader that removed itself goes on counting itself
        voters = (*voters, node.me)
    return quorum.reached([mine if voter == node.me else values.get(voter, 0) for voter in voters])


def quorum_contact(node: Node) -> int:
    """The latest moment of which it is sure that a majority still followed this leader (6.2)."""
    contacts = {peer: progress.contact_ms for peer, progress in node.progress.items()}
    return voters_reached(node, node.now, contacts)


def quorum_seq(node: Node) -> int:
    """A majority answered a message at least as new as this one."""
    return voters_reached(node, node.seq + 1, {peer: each.acked_seq for peer, each in node.progress.items()})


def heartbeat(node: Node) -> None:
    """A message to everybody; each tells where the follower's log has to agree, so a gap is found without traffic."""
    node.heartbeat_at = node.now + node.settings.heartbeat_ms
    if node.now - node.marks[-1][1] >= node.settings.heartbeat_ms // 4:
        node.marks.append((node.seq, node.now))
        oldest = node.now - 2 * node.settings.election_max_ms
        while len(node.marks) > 1 and node.marks[0][1] < oldest:
            node.marks.pop(0)
    for peer, progress in sorted(node.progress.items()):
        ship(node, peer, progress, beat=True)
    if node.transfer_to:
        _try_transfer(node)


def ship_all(node: Node) -> None:
    for peer, progress in sorted(node.progress.items()):
        ship(node, peer, progress, beat=False)


def ship(node: Node, peer: str, progress: Progress, beat: bool) -> None:
    """Send what `peer` may get now; with `beat` at least something."""
    if progress.state == "snapshot":
        snapshot.ship(node, peer, progress, beat)
        return
    if node.log.term_at(progress.next - 1) is None:
        snapshot.begin(node, peer, progress)
        return
    if progress.state == "probe":
        if beat or not progress.paused:
            asked = progress.paused or (
                beat and node.bug == 48
            )  # entries go once: a slow link has them still
            progress.paused = True
            _send_append(node, peer, progress, () if asked else _batch(node, progress.next))
        return
    sent = False
    while progress.next <= node.log.last and len(progress.inflight) < node.settings.max_inflight:
        entries = _batch(node, progress.next)
        _send_append(node, peer, progress, entries)
        progress.next += len(entries)
        progress.inflight.append(progress.next - 1)
        sent = True
    if beat and not sent:
        _send_append(node, peer, progress, ())


def _batch(node: Node, start: int) -> tuple[Entry, ...]:
    return node.log.batch(start, node.settings.max_append_bytes, MAX_ENTRIES)


def _send_append(node: Node, peer: str, progress: Progress, entries: tuple[Entry, ...]) -> None:
    node.seq += 1
    before = progress.next - 1
    if node.bug == 48 and not entries:  # a heartbeat that says nothing of the log
        before = 0
    term = node.log.term_at(before) or 0
    body = Append(node.seq, before, term, node.commit, entries)
    node.send(peer, progress.incarnation, body)


def answered(node: Node, progress: Progress, seq: int) -> None:
    """Someone follows this leader still, as of when the answered message was sent, however late the answer comes."""
    if seq > node.seq:
        return
    progress.acked_seq = max(progress.acked_seq, seq)
    for mark_seq, mark_ms in reversed(node.marks):
        if mark_seq < seq:
            progress.contact_ms = max(progress.contact_ms, mark_ms)
            break
    reads.settle(node)


def on_append_reply(node: Node, message: Message, body: AppendReply) -> None:
    progress = node.progress.get(message.sender)
    if node.role != "leader" or message.term != node.term or progress is None:
        return
    answered(node, progress, body.seq)
    if body.ok:
        progress.ok_seq = max(progress.ok_seq, body.seq)
        _agreed(node, message.sender, progress, body.index)
    else:
        _refused(node, message.sender, progress, body)


def _agreed(node: Node, peer: str, progress: Progress, index: int) -> None:
    if index > node.log.last:
        return  # nobody can have said this
    progress.match = max(progress.match, index)
    progress.next = max(progress.next, progress.match + 1)
    progress.inflight = [last for last in progress.inflight if last > progress.match]
    if progress.state == "snapshot":
        snapshot.agreed(node, progress)
    elif progress.state == "probe" and node.bug != 48:
        progress.state, progress.next, progress.inflight = "replicate", progress.match + 1, []
    progress.paused = False
    advance(node)
    if node.role == "leader":
        ship(node, peer, progress, beat=False)
        if node.transfer_to == peer:
            _try_transfer(node)


def _refused(node: Node, peer: str, progress: Progress, body: AppendReply) -> None:
    """Go back to where the logs may agree: past all entries here that are newer than the hint allows (3.5)."""
    if progress.state == "snapshot":
        return
    if body.index <= progress.match:
        if body.seq <= progress.ok_seq:
            return  # overtaken by a newer answer
        progress.match = min(
            progress.match, body.hint_index
        )  # it lost what it had: only probing tells what is left
    elif progress.state == "probe" and body.index != progress.next - 1:
        return
    found = min(body.hint_index, node.log.last)
    while found > progress.match and (node.log.term_at(found) or 0) > body.hint_term:
        found -= 1
    progress.state, progress.next, progress.inflight = "probe", max(found, progress.match) + 1, []
    progress.paused = False
    ship(node, peer, progress, beat=False)


def advance(node: Node) -> None:
    """Commit what a majority has, if its last entry is of this term (3.6.2, figure 3.7)."""
    matches = {peer: progress.match for peer, progress in node.progress.items()}
    index = voters_reached(node, node.log.durable, matches)
    if index <= node.commit or (node.log.term_at(index) != node.term and node.bug != 1):
        return
    node.commit = index
    membership.committed(node)
    if node.role == "leader":
        reads.begin_round(node)
        for peer, progress in sorted(node.progress.items()):
            if progress.state == "replicate":
                ship(node, peer, progress, beat=True)  # the others learn of it now


def _try_transfer(node: Node) -> None:
    """The target has everything: it may campaign (3.10). Repeated with every heartbeat, as messages get lost."""
    progress = node.progress.get(node.transfer_to)
    if progress is not None and progress.match == node.log.last:
        election.hand_over_to(node, node.transfer_to)


def on_unreachable(node: Node, peer: str) -> None:
    """What was on its way to `peer` is lost."""
    progress = node.progress.get(peer)
    if progress is None:
        return
    if progress.state == "replicate":
        progress.state, progress.next, progress.inflight = "probe", progress.match + 1, []
    progress.paused = progress.asked = True  # the next heartbeat asks what is there


# --- the follower -----------------------------------------------------------------------------------------


def heard(node: Node, message: Message, seq: int) -> None:
    """The leader of this term spoke (3.4)."""
    election.become_follower(node, message.term, message.sender)
    node.leader_incarnation = message.sender_incarnation
    node.leader_seq = max(node.leader_seq, seq)
    node.heard_ms = node.now
    node.reset_election()


def refuse_old(node: Node, message: Message) -> None:
    """A leader of an older term learns the newer one from the answer.

    It is numbered 0: who leads the newer term, too, counts anew, and must not take it for an answer of that.
    """
    node.send(message.sender, message.sender_incarnation, AppendReply(0, False, 0, 0, 0))


def on_append(node: Node, message: Message, body: Append) -> None:
    if node.role == "leader":
        return  # two leaders of one term cannot be
    heard(node, message, body.seq)
    log, entries, before = node.log, body.entries, body.prev_index
    if before < node.commit and node.bug != 23:  # what is committed here agrees with every leader (3.6.3)
        entries, before = (
            entries[node.commit - before :],
            max(before, min(node.commit, before + len(entries))),
        )
    elif before >= node.commit and log.term_at(before) != body.prev_term:
        _refuse(node, message, body)
        return
    elif before < node.commit:
        entries, before = (), before + len(entries)
    for place, entry in enumerate(entries):
        if log.term_at(entry.index) == entry.term:
            continue
        if entry.index <= log.last:
            log.truncate(entry.index)
        log.append(entries[place:])
        break
    agreed = before + len(entries)
    node.verified = max(node.verified, agreed)
    upto = min(body.commit, node.verified if node.bug != 11 else log.last)
    node.commit = max(node.commit, upto)
    if node.incoming is not None and node.incoming.index <= node.commit:
        node.incoming = None  # entries were faster
    node.acked = min(node.verified, log.durable) if node.bug != 23 else min(node.verified, log.last)
    reply = AppendReply(body.seq, True, node.acked, 0, 0)
    node.send(message.sender, message.sender_incarnation, reply)


def _refuse(node: Node, message: Message, body: Append) -> None:
    """Say how far the logs can agree at most: no newer term than the leader had at `prev_index`."""
    found = min(node.log.last, body.prev_index - 1)
    while found > node.commit and (node.log.term_at(found) or 0) > body.prev_term:
        found -= 1
    hint = AppendReply(body.seq, False, body.prev_index, found, node.log.term_at(found) or 0)
    node.send(message.sender, message.sender_incarnation, hint)


def entries_are_durable(node: Node) -> None:
    """Called when something became durable: tell the leader, or count it as the leader (10.2.1)."""
    if node.role == "leader":
        advance(node)
    elif node.leader and min(node.verified, node.log.durable) > node.acked:
        node.acked = min(node.verified, node.log.durable)
        reply = AppendReply(node.leader_seq, True, node.acked, 0, 0)
        node.send(node.leader, node.leader_incarnation, reply)
