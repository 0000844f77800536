"""One Raft server: hands each event to its part, changes its role, and collects the effects.

Only this module changes roles. The parts (election, membership and reads, below them replication, below it snapshot)
change the rest of the state; what they return tells whether votes are to be counted or a commit is to follow.
"""

from __future__ import annotations

from typing import assert_never

from peer.consensus import election, membership, reads, replication, snapshot, state_digest
from peer.consensus.errors import BadBoot
from peer.consensus.events import (
    Applied,
    Apply,
    Boot,
    ChangeConfig,
    Compact,
    Effect,
    Event,
    Persisted,
    Propose,
    Proposed,
    Read,
    Received,
    Restore,
    SnapshotStored,
    Status,
    Tick,
    Transfer,
    Unreachable,
)
from peer.consensus.messages import (
    Append,
    AppendReply,
    Install,
    InstallReply,
    Message,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from peer.consensus.records import MAX_UNCOMMITTED
from peer.consensus.server import Progress, RaftServer
from peer.limits import MAX_ENTRY_BYTES


class Core:
    """One server. `step` takes one event and returns what the edge is to perform, in order."""

    def __init__(self) -> None:
        self._server: RaftServer | None = None

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Takes the next event; the first one is Boot, and no other one is. Raises BadBoot only then."""
        if isinstance(event, Boot):
            self._server = server = RaftServer(event, now_ms)
            _boot(server)
        else:
            server = self.server
            server.now = max(server.now, now_ms)  # a clock that goes back stands still here
            _resume(server)
            _handle(server, event)
        return _finish(server)

    @property
    def server(self) -> RaftServer:
        """The state, for tests. Raises BadBoot before Boot."""
        if self._server is None:
            raise BadBoot("core: expected Boot as the first event, got another one")
        return self._server

    def status(self) -> Status:
        """Returns what people are shown. Raises BadBoot before Boot."""
        server = self.server
        matched = {peer: progress.match_index for peer, progress in server.sorted_progress()}
        if server.role == "leader":
            matched[server.id] = server.log.durable_index
        return Status(
            server.role,
            server.term,
            server.leader,
            server.commit_index,
            server.applied_index,
            server.log.last_index,
            server.config,
            matched,
        )

    def digest(self) -> str:
        """Returns 16 hex digits over the whole state: equal in every language for equal states."""
        return state_digest.digest(self.server)


def _boot(server: RaftServer) -> None:
    log = server.log
    newest = max(log.last_term, log.snapshot.term if log.snapshot is not None else 0)
    if server.term < newest:
        raise BadBoot(f"term: expected at least {newest}, the term of the newest entry, got {server.term}")
    if log.snapshot is not None:
        if log.stale:
            server.store_snapshot(log.snapshot)
        server.effects.append(Restore(log.snapshot))
    if server.is_voter and len(server.config.voters) == 1:
        server.election_deadline = server.now  # nobody else could lead
    elif election.may_campaign(server):
        server.reset_election_timer()


def _resume(server: RaftServer) -> None:
    """Distrusts what is believed of the others, if the process or tab stood still for longer than an election.

    A follower waits for the leader once more before it campaigns. A leader asks at once who follows it still, and
    leads on only if a majority says so within one heartbeat; reads wait for answers from after the pause.
    """
    due_ms = server.reported_deadline
    if due_ms is None or server.now - due_ms <= server.settings.election_min_ms:
        return
    if server.role == "leader":
        server.resumed_ms = server.now
        server.check_quorum_deadline = server.now + server.settings.heartbeat_ms
        server.round_seq = server.seq
        replication.broadcast_heartbeat(server)
    elif server.election_deadline is not None:
        server.reset_election_timer()


def _handle(server: RaftServer, event: Event) -> None:
    match event:
        case Tick():
            server.reported_deadline = None  # the next one is reported in any case
            _tick(server)
        case Received():
            _receive(server, event.sender, event.message)
        case Propose():
            _propose(server, event)
        case ChangeConfig():
            membership.on_change(server, event)
        case Transfer():
            _transfer(server, event)
        case Read():
            reads.on_read(server, event.ctx)
        case Persisted() | SnapshotStored():
            _durable(server, event.token)
        case Applied():
            server.applied_index = max(server.applied_index, min(event.index, server.applying_index))
        case Compact():
            snapshot.on_compact(server, event)
        case Unreachable():
            _unreachable(server, event.id)
        case Boot():
            raise BadBoot("core: expected one Boot, got another")
        case _:
            assert_never(event)


# --- roles (figure 3.3) -----------------------------------------------------------------------------------


def _become_follower(server: RaftServer, term: int, leader: str) -> None:
    """In a newer term (3.3), under another leader ("": none known), or back from a campaign or from leading."""
    was, newer, other = server.role, term > server.term, leader != server.leader
    if newer or other:
        reads.drop_unconfirmed(server)
    if was == "leader":
        replication.stop_leading(server)
    if newer:
        server.set_hard_state(term, "")
    server.role, server.leader, server.votes = "follower", leader, {}
    if newer or other:
        server.verified_index = server.acknowledged_index = server.commit_index
        server.leader_seq = 0
    if was != "follower" or server.election_deadline is None:
        server.reset_election_timer()


def _become_precandidate(server: RaftServer) -> None:
    _become_follower(server, server.term, "")
    server.role = "precandidate"
    election.ask_for_pre_votes(server)
    _count_votes(server)


def _become_candidate(server: RaftServer, by_transfer: bool) -> None:
    _become_follower(server, server.term, "")
    server.role = "candidate"
    election.ask_for_votes(server, by_transfer)


def _become_leader(server: RaftServer) -> None:
    """A noop of the new term commits what is there (3.6.2, 6.4) and opens membership changes (the barrier)."""
    server.role, server.leader, server.votes = "leader", server.id, {}
    server.election_deadline, server.incoming_snapshot = None, None
    replication.start_leading(server)
    membership.follow_config(server)
    replication.append(server, "noop", b"")
    replication.broadcast_heartbeat(server)


def _count_votes(server: RaftServer) -> None:
    match election.verdict(server):
        case "won" if server.role == "precandidate":
            _become_candidate(server, by_transfer=False)
        case "won" if server.role == "candidate":
            _become_leader(server)
        case "lost" if server.role == "candidate":
            _become_follower(server, server.term, "")  # until the next election timeout
        case _:
            pass


def _follow(server: RaftServer, message: Message, seq: int) -> None:
    """Follows the leader of this term, which sent its message number `seq` (3.4)."""
    _become_follower(server, message.term, message.sender)
    server.leader_incarnation = message.sender_incarnation
    server.leader_seq = max(server.leader_seq, seq)
    server.leader_contact_ms = server.now
    server.reset_election_timer()


def _advance_commit(server: RaftServer) -> None:
    """Commits what a majority of the voters has; a leader that is no voter any more leads until then (4.2.2)."""
    if not replication.advance_commit(server):
        return
    if membership.leads_no_more(server):
        membership.hand_over(server)
        _become_follower(server, server.term, "")
    else:
        reads.begin_round(server)
        replication.broadcast_commit(server)


# --- events -----------------------------------------------------------------------------------------------


def _tick(server: RaftServer) -> None:
    reads.expire(server)
    if server.role == "leader":
        _tick_leader(server)
    elif server.election_deadline is not None and server.now >= server.election_deadline:
        if election.may_campaign(server):
            _become_precandidate(server)
        else:
            _become_follower(server, server.term, "")
            server.election_deadline = None


def _tick_leader(server: RaftServer) -> None:
    if server.transfer_target and server.now >= server.transfer_deadline:
        server.reject(server.transfer_ctx, "timeout")
        server.transfer_target = ""
    contact_since = server.now - server.settings.election_max_ms
    if server.check_quorum_deadline is not None:
        contact_since = server.resumed_ms if server.now >= server.check_quorum_deadline else 0
    if replication.quorum_contact_ms(server) < contact_since:
        _become_follower(server, server.term, "")  # it reaches no majority (6.2)
        return
    if server.check_quorum_deadline is not None and server.now >= server.check_quorum_deadline:
        server.check_quorum_deadline = None
    if server.now >= server.heartbeat_deadline:
        replication.broadcast_heartbeat(server)


def _propose(server: RaftServer, event: Propose) -> None:
    if server.role != "leader":
        server.reject(event.ctx, "not_leader" if server.leader else "no_leader")
    elif server.transfer_target:
        server.reject(event.ctx, "transferring")
    elif len(event.data) > MAX_ENTRY_BYTES:
        server.reject(event.ctx, "too_large")
    elif server.log.last_index - server.commit_index >= MAX_UNCOMMITTED:
        server.reject(event.ctx, "busy")
    else:
        entry = replication.append(server, "command", event.data)
        server.effects.append(Proposed(event.ctx, entry.index, entry.term))
        replication.broadcast_append(server)


def _transfer(server: RaftServer, event: Transfer) -> None:
    """New proposals wait until the target has the whole log and campaigns, or an election's time is over (3.10)."""
    if server.role != "leader":
        server.reject(event.ctx, "not_leader" if server.leader else "no_leader")
    elif server.transfer_target:
        server.reject(event.ctx, "transferring")
    elif event.to == server.id:
        server.reject(event.ctx, "already")
    elif event.to not in server.config.voters:
        server.reject(event.ctx, "not_a_voter" if event.to in server.config.by_id else "unknown_member")
    else:
        server.transfer_target, server.transfer_ctx = event.to, event.ctx
        server.transfer_deadline = server.now + server.settings.election_min_ms
        replication.broadcast_heartbeat(server)


def _durable(server: RaftServer, token: int) -> None:
    server.durable_token = max(server.durable_token, min(token, server.last_token))
    server.log.write_ended(server.durable_token)
    server.release_sends()
    snapshot.on_durable(server)
    if election.on_durable(server):
        _count_votes(server)
    if server.role == "leader":
        _advance_commit(server)
    else:
        replication.acknowledge_durable(server)


def _unreachable(server: RaftServer, peer: str) -> None:
    replication.on_unreachable(server, peer)
    if server.role == "follower" and peer == server.leader:
        _become_follower(server, server.term, "")
        election.on_leader_unreachable(server)


# --- messages ---------------------------------------------------------------------------------------------


def _receive(server: RaftServer, sender: str, message: Message) -> None:
    """Looks at the term of a message first (3.3); who asks for votes must not end the term of an active leader."""
    if not _is_for_here(server, sender, message):
        return
    body = message.body
    match body:
        case PreVote():
            if message.term > server.term and not election.has_active_leader(server):
                _become_follower(server, message.term, "")
            election.on_pre_vote(server, message, body)
        case PreVoteReply():
            if not body.granted and message.term > server.term:
                if not election.has_active_leader(server):
                    _become_follower(server, message.term, "")
            elif election.on_pre_vote_reply(server, message, body):
                _count_votes(server)
        case Vote():
            if message.term > server.term:
                if election.has_active_leader(server) and not body.transfer:
                    return  # it does not even look (4.2.3)
                _become_follower(server, message.term, "")
            election.on_vote(server, message, body)
        case _:
            if message.term > server.term:
                leads = isinstance(body, Append | Install)
                _become_follower(server, message.term, sender if leads else "")
            if message.term < server.term:
                _receive_from_older_term(server, message)
            else:
                _receive_in_term(server, message, body)


def _is_for_here(server: RaftServer, sender: str, message: Message) -> bool:
    """Whether it is from the one that it names, and of this mesh, epoch and incarnation."""
    if message.sender != sender or sender == server.id:
        return False
    if message.mesh_id != server.mesh_id or message.group_epoch != server.group_epoch:
        return False
    return not _is_of_another_incarnation(server, sender, message)


def _is_of_another_incarnation(server: RaftServer, sender: str, message: Message) -> bool:
    """Whether it is to or from an earlier incarnation, or an answer of one that the configuration does not name."""
    if message.to_incarnation != server.incarnation:
        return True
    known = server.config.by_id.get(sender)
    if known is not None and message.sender_incarnation < known.incarnation:
        return True
    return isinstance(message.body, PreVoteReply | VoteReply | AppendReply | InstallReply) and (
        known is None or known.incarnation != message.sender_incarnation
    )


def _receive_from_older_term(server: RaftServer, message: Message) -> None:
    match message.body:
        case Append() | Install():
            replication.refuse_older_term(server, message)
        case ReadIndex():
            reads.on_read_index(server, message, message.body)
        case _:
            pass


def _receive_in_term(
    server: RaftServer,
    message: Message,
    body: Append | AppendReply | Install | InstallReply | VoteReply | TimeoutNow | ReadIndex | ReadIndexReply,
) -> None:
    match body:
        case Append():
            if server.role != "leader":  # two leaders of one term cannot be
                _follow(server, message, body.seq)
                replication.on_append(server, message, body)
        case AppendReply() | InstallReply():
            progress = server.progress.get(message.sender)
            if server.role == "leader" and progress is not None:
                _receive_reply(server, message.sender, progress, body)
        case Install():
            if server.role != "leader":
                _follow(server, message, body.seq)
                snapshot.on_install(server, message, body)
        case VoteReply():
            if election.on_vote_reply(server, message, body):
                _count_votes(server)
        case TimeoutNow():
            if election.takes_over(server, message):
                _become_candidate(server, by_transfer=True)
        case ReadIndex():
            reads.on_read_index(server, message, body)
        case ReadIndexReply():
            reads.on_read_index_reply(server, message, body)
        case _:
            assert_never(body)


def _receive_reply(
    server: RaftServer, peer: str, progress: Progress, body: AppendReply | InstallReply
) -> None:
    """Any answer is contact, which may end a round of reads; then it is looked at what it says."""
    if replication.on_contact(server, progress, body.seq):
        reads.end_round(server)
    if isinstance(body, InstallReply):
        snapshot.on_install_reply(server, peer, progress, body)
    elif replication.on_append_reply(server, peer, progress, body):
        _advance_commit(server)
        if server.role == "leader":
            replication.send_more(server, peer, progress)


# --- effects ----------------------------------------------------------------------------------------------


def _finish(server: RaftServer) -> list[Effect]:
    """What is to be durable, then what may be sent, then what is committed, then what may be read."""
    server.flush_persist()
    server.flush_sends()
    server.report_role()
    index = min(server.commit_index, server.log.durable_index)
    if index > server.applying_index and not server.restore_token:
        entries = server.log.span(server.applying_index + 1, index)
        server.applying_index = index
        server.effects.append(Apply(entries))
    reads.serve(server)
    server.report_deadline(_deadline_ms(server))
    effects, server.effects = server.effects, []
    return effects


def _deadline_ms(server: RaftServer) -> int | None:
    deadlines = [reads.deadline_ms(server)]
    if server.role == "leader":
        deadlines += [server.heartbeat_deadline, server.check_quorum_deadline]
        if server.transfer_target:
            deadlines.append(server.transfer_deadline)
    else:
        deadlines.append(server.election_deadline)
    return min((at for at in deadlines if at is not None), default=None)
