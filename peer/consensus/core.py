"""Decides, event by event, what a server does next: each event goes to its part, then effects are collected."""

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
from peer.consensus.records import MAX_ENTRY_BYTES, MAX_UNCOMMITTED
from peer.consensus.server import Node


class Core:
    """One server. `step` takes one event and returns what the edge is to perform, in order."""

    def __init__(self) -> None:
        self._node: Node | None = None

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """The first event is Boot, and no other one is. Raises BadBoot only then."""
        if isinstance(event, Boot):
            self._node = node = Node(event, now_ms)
            _boot(node)
        else:
            node = self.node
            node.now = max(node.now, now_ms)  # a clock that goes back stands still here
            _resume(node)
            _handle(node, event)
        return _finish(node)

    @property
    def node(self) -> Node:
        if self._node is None:
            raise BadBoot("core: expected Boot as the first event, got another one")
        return self._node

    def status(self) -> Status:
        node = self.node
        matched = {peer: progress.match for peer, progress in sorted(node.progress.items())}
        if node.role == "leader":
            matched[node.me] = node.log.durable
        return Status(
            node.role, node.term, node.leader, node.commit, node.applied, node.log.last, node.config, matched
        )

    def digest(self) -> str:
        """16 hex digits over canonical JSON of the whole state: equal in every language for equal states."""
        return state_digest.digest(self.node)


def _boot(node: Node) -> None:
    newest = max(node.log.last_term, node.log.snapshot.term if node.log.snapshot is not None else 0)
    if node.term < newest and node.bug != 24:
        raise BadBoot(f"term: expected at least {newest}, the term of the newest entry, got {node.term}")
    if node.log.snapshot is not None:
        if node.log.stale:
            node.store_snapshot(node.log.snapshot)
        node.effects.append(Restore(node.log.snapshot))
    if node.votes_here and len(node.config.voters) == 1:
        node.election_at = node.now  # nobody else could lead
    elif election.may_campaign(node):
        node.reset_election()


def _resume(node: Node) -> None:
    """The process or tab stood still for longer than an election: what it believes of the others is old.

    A follower waits for the leader once more before it campaigns. A leader asks at once who follows it still, and
    leads on only if a majority says so within one heartbeat; reads wait for answers from after the pause.
    """
    due = node.said_deadline
    if due is None or node.now - due <= node.settings.election_min_ms or node.bug == 50:
        return
    if node.role == "leader":
        node.resumed_ms, node.quorum_check_at = node.now, node.now + node.settings.heartbeat_ms
        node.round_seq = node.seq
        replication.heartbeat(node)
    elif node.election_at is not None:
        node.reset_election()


def _handle(node: Node, event: Event) -> None:
    match event:
        case Tick():
            node.said_deadline = None  # the next one is said in any case
            _tick(node)
        case Received():
            _receive(node, event.sender, event.message)
        case Propose():
            _propose(node, event)
        case ChangeConfig():
            membership.on_change(node, event)
        case Transfer():
            _transfer(node, event)
        case Read():
            reads.on_read(node, event.ctx)
        case Persisted() | SnapshotStored():
            _durable(node, event.token)
        case Applied():
            node.applied = max(node.applied, min(event.index, node.handed))
        case Compact():
            snapshot.on_compact(node, event)
        case Unreachable():
            replication.on_unreachable(node, event.id)
            election.on_unreachable(node, event.id)
        case Boot():
            raise BadBoot("core: expected one Boot, got another")
        case _:
            assert_never(event)


def _tick(node: Node) -> None:
    reads.expire(node)
    if node.role != "leader":
        election.due(node)
        return
    if node.transfer_to and node.now >= node.transfer_until and node.bug != 45:
        node.reject(node.transfer_ctx, "timeout")
        node.transfer_to = ""
    heard_since = node.now - node.settings.election_max_ms
    if node.quorum_check_at is not None:
        heard_since = node.resumed_ms if node.now >= node.quorum_check_at else 0
    if replication.quorum_contact(node) < heard_since and node.bug != 44:
        election.become_follower(node, node.term, "")  # it reaches no majority (6.2)
        return
    if node.quorum_check_at is not None and node.now >= node.quorum_check_at:
        node.quorum_check_at = None
    if node.now >= node.heartbeat_at:
        replication.heartbeat(node)


def _propose(node: Node, event: Propose) -> None:
    if node.role != "leader":
        node.reject(event.ctx, "not_leader" if node.leader else "no_leader")
    elif node.transfer_to:
        node.reject(event.ctx, "transferring")
    elif len(event.data) > MAX_ENTRY_BYTES:
        node.reject(event.ctx, "too_large")
    elif node.log.last - node.commit >= MAX_UNCOMMITTED:
        node.reject(event.ctx, "busy")
    else:
        entry = replication.append(node, "command", event.data)
        node.effects.append(Proposed(event.ctx, entry.index, entry.term))
        replication.ship_all(node)


def _transfer(node: Node, event: Transfer) -> None:
    """New proposals wait until the target has the whole log and campaigns, or an election's time is over (3.10)."""
    if node.role != "leader":
        node.reject(event.ctx, "not_leader" if node.leader else "no_leader")
    elif node.transfer_to:
        node.reject(event.ctx, "transferring")
    elif event.to == node.me:
        node.reject(event.ctx, "already")
    elif event.to not in node.config.voters:
        node.reject(event.ctx, "not_a_voter" if event.to in node.config.by_id else "unknown_member")
    else:
        node.transfer_to, node.transfer_ctx = event.to, event.ctx
        node.transfer_until = node.now + node.settings.election_min_ms
        replication.heartbeat(node)


def _durable(node: Node, token: int) -> None:
    node.durable_token = max(node.durable_token, min(token, node.token))
    node.log.settled(node.durable_token)
    node.release()
    snapshot.stored(node)
    election.vote_is_durable(node)
    replication.entries_are_durable(node)


def _receive(node: Node, sender: str, message: Message) -> None:
    """Drop what is not from whom it says, or of another mesh, epoch or life; then look at the term (3.3)."""
    if message.sender != sender or sender == node.me:
        return
    if message.mesh_id != node.mesh_id or message.group_epoch != node.group_epoch:
        return
    body = message.body
    if node.bug != 31:
        known = node.config.by_id.get(sender)
        if message.to_incarnation != node.incarnation:
            return
        if known is not None and message.sender_incarnation < known.incarnation:
            return  # an earlier life
        if isinstance(body, PreVoteReply | VoteReply | AppendReply | InstallReply) and (
            known is None or known.incarnation != message.sender_incarnation
        ):
            return
    match body:
        case PreVote():
            election.on_pre_vote(node, message, body)
            return
        case PreVoteReply():
            election.on_pre_vote_reply(node, message, body)
            return
        case Vote():
            election.on_vote(node, message, body)
            return
        case _:
            pass
    if message.term > node.term:
        leads = isinstance(body, Append | Install)
        election.become_follower(node, message.term, sender if leads else "")
    elif message.term < node.term:
        if isinstance(body, Append | Install):
            replication.refuse_old(node, message)
        elif isinstance(body, ReadIndex):
            reads.on_read_index(node, message, body)
        return
    match body:
        case Append():
            replication.on_append(node, message, body)
        case AppendReply():
            replication.on_append_reply(node, message, body)
        case Install():
            snapshot.on_install(node, message, body)
        case InstallReply():
            snapshot.on_install_reply(node, message, body)
        case VoteReply():
            election.on_vote_reply(node, message, body)
        case TimeoutNow():
            election.on_timeout_now(node, message)
        case ReadIndex():
            reads.on_read_index(node, message, body)
        case ReadIndexReply():
            reads.on_read_index_reply(node, message, body)
        case _:
            assert_never(body)


def _finish(node: Node) -> list[Effect]:
    """What is to be durable, then what may be said, then what is committed, then what may be read."""
    node.flush_persist()
    node.flush_sends()
    node.say_role()
    upto = min(node.commit, node.log.durable)
    if upto > node.handed and not node.restore_token:
        entries = node.log.span(node.handed + 1, upto)
        node.handed = upto
        node.effects.append(Apply(entries))
    reads.serve(node)
    node.say_deadline(_deadline(node))
    effects, node.effects = node.effects, []
    return effects


def _deadline(node: Node) -> int | None:
    due = [reads.deadline(node)]
    if node.role == "leader":
        due += [node.heartbeat_at, node.quorum_check_at]
        if node.transfer_to and node.bug != 45:
            due.append(node.transfer_until)
    else:
        due.append(node.election_at)
    return min((at for at in due if at is not None), default=None)
