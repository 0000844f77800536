"""What a server remembers, and the few ways in which every part of the core changes it."""

from __future__ import annotations

from dataclasses import dataclass, field

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
from peer.consensus.messages import Body, Message
from peer.consensus.records import Config, Snapshot


@dataclass(slots=True)
class Progress:
    """What a leader knows of one other server. `state` is "probe", "replicate" or "snapshot" (as etcd has them)."""

    incarnation: int
    next: int
    state: str = "probe"
    match: int = 0  # agrees and is durable there
    inflight: list[int] = field(default_factory=list)  # last index of each message with entries on its way
    paused: bool = False  # a probe is on its way
    acked_seq: int = 0  # newest message of this leader that was answered
    ok_seq: int = 0  # newest one whose answer was ok
    contact_ms: int = 0  # when that newest answered message was sent
    snapshot: Snapshot | None = None  # being sent
    offset: int = 0  # bytes of it that are there
    sent: int = 0  # bytes of it that were sent
    asked: bool = False  # the first answer of how much is there has not come yet
    stalled: int = 0  # heartbeats since the transfer last moved on
    crc: int = 0  # of the snapshot's bytes


@dataclass(slots=True)
class Incoming:
    """A snapshot that is coming in pieces."""

    index: int
    term: int
    config: Config
    total: int
    crc: int
    data: bytearray


@dataclass(slots=True)
class Waiting:
    """A read. `ctx` is of this edge (origin ""), or the number that `origin` gave it."""

    ctx: int
    origin: str
    incarnation: int  # of `origin`
    index: int  # to be applied before it is served; -1: not known yet
    expires_ms: int


class Node:
    """The state of one server. Handlers change it; `flush` of core turns what changed into effects."""

    def __init__(self, boot: Boot, now_ms: int) -> None:
        self.settings = boot.settings
        self.mesh_id, self.group_epoch = boot.mesh_id, boot.group_epoch
        self.me, self.incarnation = boot.me, boot.incarnation
        self.bug = int(boot.bug.partition("-")[0]) if boot.bug else 0
        self.now = now_ms
        self.random = boot.seed % 2**32 or 1
        # durable: term, vote, log
        self.term, self.vote = boot.hard_state.term, boot.hard_state.vote
        self.log = Log(boot.snapshot, boot.entries, self.bug)
        if self.bug == 3:
            self.term, self.vote = self.log.last_term, ""
        # of everyone
        self.role: RoleName = "follower"
        self.leader = ""
        self.commit = self.log.base
        self.handed = (
            self.log.base if self.bug != 18 else self.log.first - 1
        )  # last index given to the state machine
        self.applied = self.log.base  # last index it reported
        self.election_at: int | None = None
        self.heard_ms: int | None = None  # when the leader was heard last
        self.leader_incarnation = 0
        self.leader_seq = 0  # newest message of the leader
        self.verified = 0  # up to here the log agrees with the leader's
        self.acked = 0  # up to here that was said to the leader
        self.incoming: Incoming | None = None
        self.restore_token = (
            0  # the snapshot in the log is to be restored once this token is durable; 0: none
        )
        # of a candidate
        self.votes: dict[str, bool] = {}
        self.by_transfer = False
        # of a leader
        self.progress: dict[str, Progress] = {}
        self.term_start = 0  # the first entry of the own term
        self.seq = 0
        self.marks: list[tuple[int, int]] = []  # (seq, ms): messages after seq were sent at ms or later
        self.heartbeat_at = 0
        self.quorum_check_at: int | None = (
            None  # after a pause: a majority must have been heard since resumed_ms
        )
        self.resumed_ms = 0
        self.transfer_to, self.transfer_ctx, self.transfer_until = "", 0, 0
        # reads
        self.read_queue: list[Waiting] = []  # for the next round
        self.read_round: list[Waiting] = []  # in the round that began after `round_seq`
        self.round_seq = 0
        self.read_ready: list[Waiting] = []  # their index is known, wait to be applied
        self.forwarded: dict[int, Waiting] = {}  # asked of the leader, by number
        self.read_number = self.next_random() * 2**20
        # effects
        self.token = 0  # last one handed out
        self.durable_token = 0
        self.hard_token = 0  # the newest that made term and vote durable: nothing is said before it is
        self.hard_dirty = False
        self.outbox: list[Send] = []
        self.held: list[tuple[int, Send]] = []  # messages that wait for a token
        self.effects: list[Effect] = []
        self.said_role: Role | None = None
        self.said_deadline: int | None = None

    # --- small things that every part needs ---------------------------------------------------------------

    @property
    def config(self) -> Config:
        if self.bug == 33:  # the configuration changes only when it is committed
            return self.log.config_at(self.commit)
        return self.log.config

    @property
    def votes_here(self) -> bool:
        """Whether this life of this server is a voter now."""
        return self.config.votes(self.me, self.incarnation)

    def next_random(self) -> int:
        """xorshift32."""
        value = self.random
        value ^= value << 13 & 0xFFFFFFFF
        value ^= value >> 17
        value ^= value << 5 & 0xFFFFFFFF
        self.random = value
        return value

    def reset_election(self) -> None:
        """A new random time-out (3.4)."""
        spread = self.settings.election_max_ms - self.settings.election_min_ms + 1
        self.election_at = self.now + self.settings.election_min_ms + self.next_random() % spread

    def set_term(self, term: int, vote: str) -> None:
        if (term, vote) != (self.term, self.vote):
            self.term, self.vote = term, vote
            self.hard_dirty = True

    def send(self, to: str, incarnation: int, body: Body) -> None:
        """Goes out at the end of the step, or once the term and vote of this moment are durable."""
        message = Message(
            self.mesh_id, self.group_epoch, self.me, self.incarnation, incarnation, self.term, body
        )
        self.outbox.append(Send(to, message))

    def reject(self, ctx: int, reason: Reason) -> None:
        self.effects.append(Reject(ctx, reason, self.leader))

    # --- effects ------------------------------------------------------------------------------------------

    def flush_persist(self) -> None:
        """One Persist for all that changed in this step."""
        log = self.log
        if not self.hard_dirty and log.unsaved > log.last and not log.cut:
            return
        entries = log.span(log.unsaved, log.last)
        if self.bug == 4 and self.hard_dirty and self.vote:  # the term first, the vote after it
            self.token += 1
            self.hard_token = self.token
            self.effects.append(Persist(self.token, self.term, "", (), 0))
            log.written(self.token, log.durable)
            self.hard_dirty = False
        self.token += 1
        vote = self.vote
        if (self.bug == 2 and vote != self.me) or (self.bug == 8 and not self.config.servers):
            vote = ""  # given, but not stored
        self.effects.append(Persist(self.token, self.term, vote, entries, log.cut))
        log.written(self.token, log.last)
        if self.hard_dirty:
            self.hard_token = self.token
        if self.bug == 17:  # entries count as durable while they are being written
            log.durable = log.last
        log.unsaved, log.cut, self.hard_dirty = log.last + 1, 0, False

    def store_snapshot(self, snapshot: Snapshot) -> int:
        """Hand the log's snapshot to the store; earlier entries of this step first."""
        self.flush_persist()
        self.token += 1
        last = snapshot.index if self.bug == 15 else self.log.last
        self.effects.append(StoreSnapshot(self.token, snapshot, self.log.first, last))
        self.log.written(self.token, self.log.last)
        return self.token

    def flush_sends(self) -> None:
        """What may be said now. Nothing of a term is said before that term, and the vote in it, are durable (3.8)."""
        waiting = self.hard_token > self.durable_token
        for send in self.outbox:
            if waiting:
                self.held.append((self.hard_token, send))
            else:
                self.effects.append(send)
        self.outbox = []

    def release(self) -> None:
        """Messages whose token is durable go out, in their order."""
        while self.held and self.held[0][0] <= self.durable_token:
            self.effects.append(self.held.pop(0)[1])

    def say_role(self) -> None:
        said = Role(self.role, self.term, self.leader)
        if said != self.said_role:
            self.said_role = said
            self.effects.append(said)

    def say_deadline(self, at_ms: int | None) -> None:
        if at_ms is not None and at_ms != self.said_deadline:
            self.effects.append(Deadline(at_ms))
        self.said_deadline = at_ms
