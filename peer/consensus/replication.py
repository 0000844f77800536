"""Log replication: what a leader sends to whom, what a follower takes, and what is committed.

Thesis 3.5 (replication), 3.6.2 (only entries of the own term are committed by counting), 3.10 (transfer), 6.2 (contact
with a majority), 10.2 (entries go out before they are durable here). A follower is probed until its log agrees, then
entries are sent ahead, `max_inflight` messages at a time; a follower that needs compacted entries gets the snapshot.
"""

from __future__ import annotations

from peer.consensus import quorum, snapshot
from peer.consensus.message_codec import MAX_ENTRIES
from peer.consensus.messages import Append, AppendReply, Message, TimeoutNow
from peer.consensus.records import Entry, EntryKind
from peer.consensus.server import Progress, RaftServer

# --- the leader -------------------------------------------------------------------------------------------


def start_leading(server: RaftServer) -> None:
    """Begins a leader's term: nothing is sent yet, and nothing known of the others."""
    server.seq, server.send_times = 0, [(0, server.now)]
    server.progress = {}
    server.term_start = server.log.last_index + 1
    server.check_quorum_deadline = None


def stop_leading(server: RaftServer) -> None:
    """Drops what only a leader has; also a transfer, which may have brought this about."""
    server.transfer_target = ""
    server.progress, server.send_times, server.check_quorum_deadline = {}, [], None


def append(server: RaftServer, kind: EntryKind, data: bytes) -> Entry:
    """Appends one entry to the leader's log; it is counted here when it is durable (10.2.1)."""
    entry = Entry(server.log.last_index + 1, server.term, kind, data)
    server.log.append((entry,))
    return entry


def _voters_reached(server: RaftServer, own: int, values: dict[str, int]) -> int:
    """What a majority of the voters has reached; this server has `own`."""
    voters = server.config.voters
    return quorum.reached([own if voter == server.id else values.get(voter, 0) for voter in voters])


def quorum_contact_ms(server: RaftServer) -> int:
    """Returns the latest moment at which a majority certainly followed this leader (6.2)."""
    contacts = {peer: progress.contact_ms for peer, progress in server.progress.items()}
    return _voters_reached(server, server.now, contacts)


def quorum_acked_seq(server: RaftServer) -> int:
    """Returns the newest `seq` such that a majority answered that message or a newer one."""
    acked = {peer: progress.acked_seq for peer, progress in server.progress.items()}
    return _voters_reached(server, server.seq + 1, acked)


def broadcast_heartbeat(server: RaftServer) -> None:
    """Sends everybody a message. Each tells where the follower's log has to agree, so an idle gap is found, too."""
    server.heartbeat_deadline = server.now + server.settings.heartbeat_ms
    if server.now - server.send_times[-1][1] >= server.settings.heartbeat_ms // 4:
        server.send_times.append((server.seq, server.now))
        oldest = server.now - 2 * server.settings.election_max_ms
        while len(server.send_times) > 1 and server.send_times[0][1] < oldest:
            server.send_times.pop(0)
    for peer, progress in server.sorted_progress():
        replicate(server, peer, progress, heartbeat=True)
    if server.transfer_target:
        _continue_transfer(server)


def broadcast_append(server: RaftServer) -> None:
    """Sends new entries to everybody who may get them now."""
    for peer, progress in server.sorted_progress():
        replicate(server, peer, progress, heartbeat=False)


def broadcast_commit(server: RaftServer) -> None:
    """Tells the followers at once that the commit index rose."""
    for peer, progress in server.sorted_progress():
        if progress.state == "replicate":
            replicate(server, peer, progress, heartbeat=True)


def replicate(server: RaftServer, peer: str, progress: Progress, heartbeat: bool) -> None:
    """Sends what `peer` may get now; with `heartbeat` at least one message."""
    if progress.state == "snapshot":
        snapshot.send_chunks(server, peer, progress, heartbeat)
        return
    if server.log.term_at(progress.next_index - 1) is None:
        snapshot.start(server, peer, progress)
        return
    last = _last_to_send(server, peer)
    if progress.state == "probe":
        if heartbeat or not progress.probe_sent:
            # Entries go with the first probe only: they are on their way still where a link is slow.
            entries = () if progress.probe_sent else _batch(server, progress.next_index, last)
            progress.probe_sent = True
            _send_append(server, peer, progress, entries)
        return
    sent = False
    while progress.next_index <= last and len(progress.inflight) < server.settings.max_inflight:
        entries = _batch(server, progress.next_index, last)
        _send_append(server, peer, progress, entries)
        progress.next_index += len(entries)
        progress.inflight.append(progress.next_index - 1)
        sent = True
    if heartbeat and not sent:
        _send_append(server, peer, progress, ())


def _last_to_send(server: RaftServer, peer: str) -> int:
    """The last index that `peer` may get. A learner gets committed entries only.

    So nobody needs the vote of a learner whose log is newer than a majority's, to whom a promotion is unknown.
    """
    return server.log.last_index if peer in server.config.voters else server.commit_index


def _batch(server: RaftServer, start: int, last: int) -> tuple[Entry, ...]:
    return server.log.batch(
        start, server.settings.max_append_bytes, max(0, min(MAX_ENTRIES, last - start + 1))
    )


def _send_append(server: RaftServer, peer: str, progress: Progress, entries: tuple[Entry, ...]) -> None:
    server.seq += 1
    prev_index = progress.next_index - 1
    prev_term = server.log.term_at(prev_index) or 0
    body = Append(server.seq, prev_index, prev_term, server.commit_index, entries)
    server.send(peer, progress.incarnation, body)


def on_contact(server: RaftServer, progress: Progress, seq: int) -> bool:
    """Takes an answer as contact from when the answered message was sent, however late the answer comes.

    Returns whether this leader has sent that message.
    """
    if seq > server.seq:
        return False
    progress.acked_seq = max(progress.acked_seq, seq)
    for sent_seq, sent_ms in reversed(server.send_times):
        if sent_seq < seq:
            progress.contact_ms = max(progress.contact_ms, sent_ms)
            break
    return True


def on_append_reply(server: RaftServer, peer: str, progress: Progress, body: AppendReply) -> bool:
    """Takes what `peer` says of its log; returns whether more of it agrees, so that more may be committed."""
    if not body.ok:
        _on_refusal(server, peer, progress, body)
        return False
    progress.accepted_seq = max(progress.accepted_seq, body.seq)
    if body.index > server.log.last_index:
        return False  # nobody can have said this
    progress.match_index = max(progress.match_index, body.index)
    progress.next_index = max(progress.next_index, progress.match_index + 1)
    progress.inflight = [last for last in progress.inflight if last > progress.match_index]
    if progress.state == "snapshot":
        snapshot.on_agreement(server, progress)
    elif progress.state == "probe":
        progress.state, progress.next_index, progress.inflight = "replicate", progress.match_index + 1, []
    progress.probe_sent = False
    return True


def _on_refusal(server: RaftServer, peer: str, progress: Progress, body: AppendReply) -> None:
    """Goes back to where the logs may agree: past all entries here that are newer than the hint allows (3.5)."""
    if progress.state == "snapshot":
        return
    if body.index <= progress.match_index:
        if body.seq <= progress.accepted_seq:
            return  # overtaken by a newer answer
        # It lost what it had: only probing tells what is left.
        progress.match_index = min(progress.match_index, body.hint_index)
    elif progress.state == "probe" and body.index != progress.next_index - 1:
        return
    found = min(body.hint_index, server.log.last_index)
    while found > progress.match_index and (server.log.term_at(found) or 0) > body.hint_term:
        found -= 1
    progress.state, progress.next_index, progress.inflight = (
        "probe",
        max(found, progress.match_index) + 1,
        [],
    )
    progress.probe_sent = False
    replicate(server, peer, progress, heartbeat=False)


def send_more(server: RaftServer, peer: str, progress: Progress) -> None:
    """Sends `peer`, which has just agreed, what it may get now, and the word to campaign if it takes over."""
    replicate(server, peer, progress, heartbeat=False)
    if server.transfer_target == peer:
        _continue_transfer(server)


def advance_commit(server: RaftServer) -> bool:
    """Commits what a majority has, if its last entry is of this term (3.6.2); returns whether the index rose."""
    matches = {peer: progress.match_index for peer, progress in server.progress.items()}
    index = _voters_reached(server, server.log.durable_index, matches)
    if index <= server.commit_index or server.log.term_at(index) != server.term:
        return False
    server.commit_index = index
    return True


def _continue_transfer(server: RaftServer) -> None:
    """Lets the target campaign once it has the whole log (3.10); again with every heartbeat, as messages get lost."""
    progress = server.progress.get(server.transfer_target)
    if progress is not None and progress.match_index == server.log.last_index:
        send_timeout_now(server, server.transfer_target)


def send_timeout_now(server: RaftServer, peer: str) -> None:
    """Tells `peer` to campaign at once (3.10)."""
    known = server.config.by_id.get(peer)
    if known is not None:
        server.send(peer, known.incarnation, TimeoutNow())


def on_unreachable(server: RaftServer, peer: str) -> None:
    """Takes everything on its way to `peer` for lost; the next heartbeat asks what is there."""
    progress = server.progress.get(peer)
    if progress is None:
        return
    if progress.state == "replicate":
        progress.state, progress.next_index, progress.inflight = "probe", progress.match_index + 1, []
    progress.probe_sent = progress.offset_unknown = True


# --- the follower -----------------------------------------------------------------------------------------


def refuse_older_term(server: RaftServer, message: Message) -> None:
    """Lets a leader of an older term learn the newer one from an answer.

    It is numbered 0: the leader of the newer term counts anew, and must not take it for an answer to its own message.
    """
    server.send(message.sender, message.sender_incarnation, AppendReply(0, False, 0, 0, 0))


def on_append(server: RaftServer, message: Message, body: Append) -> None:
    """Takes entries that follow on an entry of this log, drops what conflicts with them, and commits (3.5)."""
    log, entries, prev_index = server.log, body.entries, body.prev_index
    if prev_index < server.commit_index:  # what is committed here agrees with every leader (3.6.3)
        known = server.commit_index - prev_index
        prev_index = min(server.commit_index, prev_index + len(entries))
        entries = entries[known:]
    elif log.term_at(prev_index) != body.prev_term:
        _refuse(server, message, body)
        return
    for place, entry in enumerate(entries):
        if log.term_at(entry.index) == entry.term:
            continue
        if entry.index <= log.last_index:
            log.truncate(entry.index)
        log.append(entries[place:])
        break
    server.verified_index = max(server.verified_index, prev_index + len(entries))
    server.commit_index = max(server.commit_index, min(body.commit, server.verified_index))
    incoming = server.incoming_snapshot
    if incoming is not None and incoming.index <= server.commit_index:
        server.incoming_snapshot = None  # entries were faster
    server.acknowledged_index = min(server.verified_index, log.durable_index)
    server.acknowledge(message.sender, message.sender_incarnation, body.seq)


def _refuse(server: RaftServer, message: Message, body: Append) -> None:
    """Says how far the logs can agree at most: no newer term than the leader had at `prev_index`."""
    found = min(server.log.last_index, body.prev_index - 1)
    while found > server.commit_index and (server.log.term_at(found) or 0) > body.prev_term:
        found -= 1
    hint = AppendReply(body.seq, False, body.prev_index, found, server.log.term_at(found) or 0)
    server.send(message.sender, message.sender_incarnation, hint)


def acknowledge_durable(server: RaftServer) -> None:
    """Tells the leader, where there is one, if more of its entries have become durable here."""
    durable_index = min(server.verified_index, server.log.durable_index)
    if server.leader and durable_index > server.acknowledged_index:
        server.acknowledged_index = durable_index
        server.acknowledge(server.leader, server.leader_incarnation, server.leader_seq)
