"""The state of one Raft server, and the few ways in which every part of the core changes it.

Names follow the thesis (figure 3.1) and etcd. Nothing here decides; times are milliseconds of the edge's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from peer.consensus.events import (
    Boot,
    Deadline,
    Effect,
    Persist,
    Reason,
    Reject,
    Role,
    RoleName,
    Send,
    StoreSnapshot,
)
from peer.consensus.log import Log
from peer.consensus.messages import AppendReply, Body, Message
from peer.consensus.records import Config, Snapshot


@dataclass(slots=True)
class Progress:
    """What a leader knows of one other server; `state` is one of those of etcd's Progress."""

    incarnation: int
    next_index: int
    state: Literal["probe", "replicate", "snapshot"] = "probe"
    match_index: int = 0  # up to here its log agrees, and is durable there
    inflight: list[int] = field(default_factory=list)  # last index of each message with entries on its way
    probe_sent: bool = False  # a probe is on its way
    acked_seq: int = 0  # newest message of this leader that was answered
    accepted_seq: int = 0  # newest one whose answer was ok
    contact_ms: int = 0  # when that newest answered message was sent
    snapshot: Snapshot | None = None  # being sent
    acked_bytes: int = 0  # of the snapshot: are there
    sent_bytes: int = 0  # of the snapshot: were sent
    offset_unknown: bool = False  # the first answer of how much is there has not come yet
    stalled_heartbeats: int = 0  # since the snapshot last got on
    snapshot_crc: int = 0


@dataclass(slots=True)
class IncomingSnapshot:
    """A snapshot that arrives in chunks."""

    index: int
    term: int
    config: Config
    total: int
    crc: int
    data: bytearray


@dataclass(slots=True)
class PendingRead:
    """A read that is not served yet. `ctx` is of this edge (origin ""), or the number that `origin` gave it."""

    ctx: int
    origin: str
    incarnation: int  # of `origin`
    index: int  # the read index: to be applied before it is served; -1: not known yet
    expires_ms: int


class RaftServer:
    """One server's state. The parts of the core change it; `flush_*` and `report_*` turn changes into effects."""

    def __init__(self, boot: Boot, now_ms: int) -> None:
        """Raises BadBoot where the stored log has a gap."""
        self.settings = boot.settings
        self.mesh_id, self.group_epoch = boot.mesh_id, boot.group_epoch
        self.id, self.incarnation = boot.me, boot.incarnation
        self.now = now_ms
        self.random = boot.seed % 2**32 or 1
        # durable: term, vote, log
        self.term, self.voted_for = boot.hard_state.term, boot.hard_state.vote
        self.log = Log(boot.snapshot, boot.entries)
        # of everyone
        self.role: RoleName = "follower"
        self.leader = ""
        self.commit_index = self.log.snapshot_index
        self.applying_index = self.log.snapshot_index  # last index given to the state machine
        self.applied_index = self.log.snapshot_index  # last index that the state machine reported
        self.election_deadline: int | None = None
        # of a follower
        self.leader_contact_ms: int | None = None  # when the leader was heard last
        self.leader_incarnation = 0
        self.leader_seq = 0  # newest message of the leader
        self.verified_index = 0  # up to here the log agrees with the leader's
        self.acknowledged_index = 0  # up to here the leader was told so
        self.incoming_snapshot: IncomingSnapshot | None = None
        # The log's snapshot is to be restored once this token is durable; 0: none.
        self.restore_token = 0
        # of a candidate
        self.votes: dict[str, bool] = {}
        self.by_transfer = False
        # of a leader
        self.progress: dict[str, Progress] = {}
        self.term_start = 0  # the first entry of the own term
        self.seq = 0  # of the newest message in this term
        self.send_times: list[tuple[int, int]] = []  # (seq, ms): messages after seq were sent at ms or later
        self.heartbeat_deadline = 0
        # After a pause: by then a majority has answered something since `resumed_ms`.
        self.check_quorum_deadline: int | None = None
        self.resumed_ms = 0
        self.transfer_target, self.transfer_ctx, self.transfer_deadline = "", 0, 0
        # reads
        self.reads_queued: list[PendingRead] = []  # for the next round
        self.reads_in_round: list[PendingRead] = []  # in the round that began after `round_seq`
        self.round_seq = 0
        self.reads_confirmed: list[PendingRead] = []  # their index is known, and is to be applied
        self.reads_forwarded: dict[int, PendingRead] = {}  # asked of the leader, by number
        self.last_read_number = self.next_random() * 2**20
        # effects
        self.last_token = 0  # handed out
        self.durable_token = 0
        self.hard_state_token = 0  # the newest with term and vote: nothing is sent before it is durable
        self.hard_state_changed = False
        self.outbox: list[Send] = []
        self.held_sends: list[tuple[int, Send]] = []  # wait for a token
        self.effects: list[Effect] = []
        self.reported_role: Role | None = None
        self.reported_deadline: int | None = None

    # --- what every part needs ----------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The configuration in force: the newest in the log, committed or not (4.1)."""
        return self.log.config

    @property
    def is_voter(self) -> bool:
        """Whether this incarnation of this server is a voter now."""
        return self.config.votes(self.id, self.incarnation)

    def sorted_progress(self) -> list[tuple[str, Progress]]:
        """Returns a leader's progress of all the others, in the order of their ids."""
        return sorted(self.progress.items(), key=lambda each: each[0])

    def next_random(self) -> int:
        """The next number of xorshift32, 1 .. 2^32 - 1."""
        value = self.random
        value ^= value << 13 & 0xFFFFFFFF
        value ^= value >> 17
        value ^= value << 5 & 0xFFFFFFFF
        self.random = value
        return value

    def reset_election_timer(self) -> None:
        """Waits a new random election timeout (3.4)."""
        spread = self.settings.election_max_ms - self.settings.election_min_ms + 1
        self.election_deadline = self.now + self.settings.election_min_ms + self.next_random() % spread

    def set_hard_state(self, term: int, voted_for: str) -> None:
        """Takes a term and a vote in it ("": none); both become durable before anything is sent (3.8)."""
        if (term, voted_for) != (self.term, self.voted_for):
            self.term, self.voted_for = term, voted_for
            self.hard_state_changed = True

    def send(self, to: str, incarnation: int, body: Body) -> None:
        """Sends at the end of the step, or once the term and vote of this moment are durable."""
        message = Message(
            self.mesh_id, self.group_epoch, self.id, self.incarnation, incarnation, self.term, body
        )
        self.outbox.append(Send(to, message))

    def acknowledge(self, to: str, incarnation: int, seq: int) -> None:
        """Tells the leader `to` how much of its log is durable here, in answer to its message `seq`."""
        self.send(to, incarnation, AppendReply(seq, True, self.acknowledged_index, 0, 0))

    def reject(self, ctx: int, reason: Reason) -> None:
        """What was asked as `ctx` is refused; names the leader, where one is known."""
        self.effects.append(Reject(ctx, reason, self.leader))

    # --- effects ------------------------------------------------------------------------------------------

    def flush_persist(self) -> None:
        """Adds one Persist for all that changed since the last one, if anything did."""
        log = self.log
        if not self.hard_state_changed and log.unsaved_from > log.last_index and not log.truncate_from:
            return
        entries = log.span(log.unsaved_from, log.last_index)
        self.last_token += 1
        self.effects.append(Persist(self.last_token, self.term, self.voted_for, entries, log.truncate_from))
        log.write_began(self.last_token, log.last_index)
        if self.hard_state_changed:
            self.hard_state_token = self.last_token
        log.unsaved_from, log.truncate_from, self.hard_state_changed = log.last_index + 1, 0, False

    def store_snapshot(self, snapshot: Snapshot) -> int:
        """Adds a StoreSnapshot of the log's snapshot, after a Persist of what came before; returns its token."""
        self.flush_persist()
        self.last_token += 1
        self.effects.append(
            StoreSnapshot(self.last_token, snapshot, self.log.first_index, self.log.last_index)
        )
        self.log.write_began(self.last_token, self.log.last_index)
        return self.last_token

    def flush_sends(self) -> None:
        """Sends what may be sent. Nothing of a term leaves before that term, and the vote in it, are durable (3.8)."""
        waiting = self.hard_state_token > self.durable_token
        for send in self.outbox:
            if waiting:
                self.held_sends.append((self.hard_state_token, send))
            else:
                self.effects.append(send)
        self.outbox = []

    def release_sends(self) -> None:
        """Sends, in their order, the messages whose token has become durable."""
        while self.held_sends and self.held_sends[0][0] <= self.durable_token:
            self.effects.append(self.held_sends.pop(0)[1])

    def report_role(self) -> None:
        """Adds a Role if role, term or leader changed."""
        role = Role(self.role, self.term, self.leader)
        if role != self.reported_role:
            self.reported_role = role
            self.effects.append(role)

    def report_deadline(self, at_ms: int | None) -> None:
        """Adds a Deadline if it changed."""
        if at_ms is not None and at_ms != self.reported_deadline:
            self.effects.append(Deadline(at_ms))
        self.reported_deadline = at_ms
