"""A group of cores that a test drives by hand: it says which messages arrive, which writes end, and how time passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from peer.consensus.core import Core
from peer.consensus.events import (
    Applied,
    Apply,
    Boot,
    Compact,
    Config,
    Deadline,
    Effect,
    Entry,
    Event,
    HardState,
    Persist,
    Persisted,
    Propose,
    Received,
    Restore,
    Role,
    Send,
    Server,
    Settings,
    Snapshot,
    SnapshotStored,
    Status,
    StoreSnapshot,
    Tick,
)
from peer.consensus.message_codec import decode, encode
from peer.consensus.messages import Body, Message

SMALL = Settings(keep_tail=2, snapshot_chunk_bytes=8, max_inflight=3)


def config_of(voters: str, learners: str = "", incarnation: int = 1) -> Config:
    servers = [Server(each, incarnation, each in voters) for each in sorted(voters + learners)]
    return Config(tuple(servers))


@dataclass
class Peer:
    """One core with its disk and state machine."""

    id: str
    incarnation: int = 1
    core: Core = field(default_factory=Core)
    hard_state: HardState = field(default_factory=HardState)
    snapshot: Snapshot | None = None
    entries: list[Entry] = field(default_factory=list)
    writes: list[Persist | StoreSnapshot] = field(default_factory=list)
    state: list[bytes] = field(default_factory=list)  # data of applied commands
    applied: int = 0
    answers: list[Effect] = field(default_factory=list)  # Proposed, Reject, ReadReady
    role: Role | None = None
    deadline: int | None = None
    up: bool = True
    writes_end: bool = True  # writes end by themselves when the group settles
    applies: bool = True

    @property
    def status(self) -> Status:
        return self.core.status()

    def write(self, effect: Persist | StoreSnapshot) -> None:
        """What the edge's store does."""
        match effect:
            case Persist():
                self.hard_state = HardState(effect.term, effect.vote)
                if effect.truncate_from:
                    self.entries = [each for each in self.entries if each.index < effect.truncate_from]
                self.entries += effect.entries
            case StoreSnapshot():
                self.snapshot = effect.snapshot
                kept = [each for each in self.entries if effect.first <= each.index <= effect.last]
                self.entries = kept


class Group:
    def __init__(self, voters: str, learners: str = "", settings: Settings = SMALL) -> None:
        self.now, self.settings = 1000, settings
        self.mail: list[tuple[str, str, Message]] = []
        self.cuts: set[tuple[str, str]] = set()
        self.peers: dict[str, Peer] = {}
        self.boots = 0
        start = Snapshot(1, 1, config_of(voters, learners), b"")
        for each in sorted(voters + learners):
            self.boot(Peer(each, hard_state=HardState(1, ""), snapshot=start))

    def __getitem__(self, peer: str) -> Peer:
        return self.peers[peer]

    def boot(self, peer: Peer) -> None:
        self.peers[peer.id] = peer
        self.boots += 1
        entries = tuple(peer.entries)
        boot = Boot(
            peer.hard_state,
            peer.snapshot,
            entries,
            "mesh",
            0,
            peer.id,
            peer.incarnation,
            self.boots,
            self.settings,
        )
        self.tell(peer.id, boot)

    def restart(self, peer: str) -> None:
        """As after a crash: what was not written is lost."""
        old = self.peers[peer]
        self.mail = [each for each in self.mail if each[0] != peer]
        self.boot(Peer(peer, old.incarnation, Core(), old.hard_state, old.snapshot, list(old.entries)))

    def tell(self, peer: str, event: Event) -> list[Effect]:
        it = self.peers[peer]
        effects = it.core.step(self.now, event)
        for effect in effects:
            self._perform(it, effect)
        return effects

    def _perform(self, it: Peer, effect: Effect) -> None:
        match effect:
            case Persist() | StoreSnapshot():
                it.writes.append(effect)
            case Send():
                assert decode(encode(effect.message)) == effect.message
                self.mail.append((it.id, effect.to, effect.message))
            case Apply():
                for entry in effect.entries:
                    assert entry.index == it.applied + 1
                    it.applied = entry.index
                    if entry.kind == "command":
                        it.state.append(entry.data)
            case Restore():
                it.applied = effect.snapshot.index
                it.state = effect.snapshot.data.split(b"|") if effect.snapshot.data else []
            case Role():
                it.role = effect
            case Deadline():
                it.deadline = effect.at_ms
            case _:
                it.answers.append(effect)

    # --- time and delivery --------------------------------------------------------------------------------

    def end_write(self, peer: str) -> None:
        """The oldest write of `peer` becomes durable."""
        effect = self.peers[peer].writes.pop(0)
        self.peers[peer].write(effect)
        done = Persisted(effect.token) if isinstance(effect, Persist) else SnapshotStored(effect.token)
        self.tell(peer, done)

    def settle(self) -> None:
        """Until nothing is on its way any more, except writes of peers that hold them back."""
        for _ in range(10_000):
            if not self._one():
                return
        raise AssertionError("the group does not come to rest")

    def _one(self) -> bool:
        for peer in self.peers.values():
            if peer.up and peer.writes and peer.writes_end:
                self.end_write(peer.id)
                return True
            if peer.up and peer.applies and peer.applied > peer.status.applied:
                self.tell(peer.id, Applied(peer.applied))
                return True
        if self.mail:
            sender, to, message = self.mail.pop(0)
            if (sender, to) not in self.cuts and to in self.peers and self.peers[to].up:
                self.tell(to, Received(sender, message))
            return True
        return False

    def take(self, sender: str, to: str, kind: type[Any] | None = None) -> list[Message]:
        """Messages on their way, which are no longer."""
        chosen = [
            each
            for each in self.mail
            if each[:2] == (sender, to) and (kind is None or isinstance(each[2].body, kind))
        ]
        self.mail = [each for each in self.mail if each not in chosen]
        return [message for _, _, message in chosen]

    def give(self, to: str, message: Message) -> list[Effect]:
        return self.tell(to, Received(message.sender, message))

    def say(self, sender: str, to: str, body: Body, term: int) -> list[Effect]:
        """A message that the test makes up."""
        ours, theirs = self.peers[sender].incarnation, self.peers[to].incarnation
        return self.give(to, Message("mesh", 0, sender, ours, theirs, term, body))

    def tick(self, peer: str, at_ms: int | None = None) -> list[Effect]:
        """Time passes to the deadline of `peer`, which is woken."""
        due = self.peers[peer].deadline if at_ms is None else at_ms
        assert due is not None
        self.now = max(self.now, due)
        self.peers[peer].deadline = None
        return self.tell(peer, Tick())

    def pass_ms(self, duration_ms: int, awake: Iterable[str] | None = None) -> None:
        """Everybody (or those) wakes when it wants to; everything that may arrive does."""
        end = self.now + duration_ms
        self.settle()
        while True:
            names = [each for each in (awake or self.peers) if self.peers[each].up]
            due = [(at, each) for each in names if (at := self.peers[each].deadline) is not None]
            at, peer = min(due, default=(end, ""))
            if at >= end:
                break
            self.tick(peer, at)
            self.settle()
        self.now = end

    # --- what tests begin with ----------------------------------------------------------------------------

    def elect(self, peer: str) -> None:
        self.tick(peer)
        self.settle()
        assert self[peer].status.role == "leader", self[peer].status

    def cut(self, one: str, others: str) -> None:
        self.cuts |= {(one, each) for each in others} | {(each, one) for each in others}

    def mend(self) -> None:
        self.cuts = set()

    def propose(self, peer: str, *commands: bytes) -> None:
        for at, command in enumerate(commands):
            self.tell(peer, Propose(command, at))

    def compact(self, peer: str) -> None:
        it = self.peers[peer]
        self.tell(peer, Compact(it.status.applied, b"|".join(it.state)))

    def answers(self, peer: str) -> list[Effect]:
        found, self.peers[peer].answers = self.peers[peer].answers, []
        return found
