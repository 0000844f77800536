"""Events and effects of the consensus core: what happened, and what the edge is to do.

Everything is frozen. Integers are below 2^53; ids are text, ordered by their UTF-8 bytes (which is the order of
Python's strings); times are whole milliseconds of a clock that only the edge knows. A `ctx` is a number by which the
edge finds again what it asked for; the core only hands it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from peer.consensus.messages import Message as Message
from peer.consensus.records import Config as Config
from peer.consensus.records import Entry as Entry
from peer.consensus.records import HardState as HardState
from peer.consensus.records import Server as Server
from peer.consensus.records import Snapshot as Snapshot
from peer.consensus.records import founding as founding

RoleName = Literal["follower", "precandidate", "candidate", "leader"]  # of a learner: always "follower"


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in milliseconds, sizes in bytes, and counts."""

    heartbeat_ms: int = 250
    election_min_ms: int = 1500
    election_max_ms: int = 3000  # also how long a leader goes on without hearing from a majority
    max_append_bytes: int = 65536  # of entries in one message; one entry is always sent, however long
    snapshot_chunk_bytes: int = 32768
    max_inflight: int = 4  # messages with entries, or pieces of a snapshot, on their way to one follower
    keep_tail: int = 256  # entries before a snapshot that stay, for followers that are a little behind


# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Boot:
    """The first event, once. An empty store (no snapshot, no entries) is a peer that waits to be made a learner.

    `seed` must differ in every boot: ids of forwarded reads begin there. `entries` may begin before the snapshot's
    index (a tail was kept) and must not leave a gap after it. Raises BadBoot when things do not fit together.
    """

    hard_state: HardState
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]
    mesh_id: str
    group_epoch: int
    me: str
    incarnation: int
    seed: int  # 1 .. 2^32 - 1
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at the last Deadline, harmless earlier."""


@dataclass(frozen=True, slots=True)
class Received:
    """`sender` is whom the connection belongs to; a message that names another one is dropped."""

    sender: str
    message: Message


@dataclass(frozen=True, slots=True)
class Propose:
    """Answered by Proposed (it is in the leader's log, not yet committed) or Reject.

    It is committed when Apply brings an entry of that very index and term; an entry of that index and another term
    means that it is lost.
    """

    data: bytes
    ctx: int


@dataclass(frozen=True, slots=True)
class AddLearner:
    """Also replaces an older incarnation of `id`, voter or not, by a learner with nothing."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Promote:
    """The learner `id` becomes a voter."""

    id: str


@dataclass(frozen=True, slots=True)
class Demote:
    """The voter `id` becomes a learner."""

    id: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The server `id` leaves the group."""

    id: str


Change = AddLearner | Promote | Demote | Remove


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """Answered by Proposed or Reject, as Propose is."""

    change: Change
    ctx: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """Hand leadership to `to` (3.10). Ends with a Role that leads no more, or with Reject within `election_min_ms`."""

    to: str
    ctx: int


@dataclass(frozen=True, slots=True)
class Read:
    """A linearizable read (6.4), on any member while there is a leader. ReadReady or Reject always answers it."""

    ctx: int


@dataclass(frozen=True, slots=True)
class Persisted:
    """Everything up to and with the Persist of this token is durable."""

    token: int


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """Everything up to and with the StoreSnapshot of this token is durable."""

    token: int


@dataclass(frozen=True, slots=True)
class Applied:
    """The state machine has taken all entries up to `index`, or was restored to it."""

    index: int


@dataclass(frozen=True, slots=True)
class Compact:
    """`data` is the state machine as it stood after `index`; the log before it may shrink."""

    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The connection to `id` closed: a hint, which may be wrong."""

    id: str


Event = (
    Boot
    | Tick
    | Received
    | Propose
    | ChangeConfig
    | Transfer
    | Read
    | Persisted
    | SnapshotStored
    | Applied
    | Compact
    | Unreachable
)


# --- effects: the edge performs them in order -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this durable in one step, then report Persisted(token).

    First drop every entry from `truncate_from` on (0: none), then append `entries`; `term` and `vote` replace the
    stored ones. Persist and StoreSnapshot share one row of tokens, which rise by one, and become durable in that order.
    """

    token: int
    term: int
    vote: str  # "": none in this term
    entries: tuple[Entry, ...]
    truncate_from: int


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """Make the snapshot durable, then cut the log to exactly first..last (first > last: empty), then report
    SnapshotStored(token).

    The snapshot must be durable before the log is cut; a crash between the two is found at Boot.
    """

    token: int
    snapshot: Snapshot
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Send:
    """`message` goes to `to`; it may be lost."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Apply:
    """Committed, durable here, in order, each index once per boot; kinds other than "command" are only counted."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """The state machine becomes this snapshot; what it was before is void. Also comes at Boot."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class ReadReady:
    """A read that sees everything up to `index` is linearizable now; Applied(index) was reported before."""

    ctx: int
    index: int


@dataclass(frozen=True, slots=True)
class Proposed:
    """The proposal `ctx` is in the leader's log at this index and term, not yet committed."""

    ctx: int
    index: int
    term: int


@dataclass(frozen=True, slots=True)
class Role:
    """Role, term or leader ("": unknown) became this."""

    role: RoleName
    term: int
    leader: str


@dataclass(frozen=True, slots=True)
class Deadline:
    """A Tick is due at `at_ms`, not later; replaces the deadline before it."""

    at_ms: int


Reason = Literal[
    "not_leader",  # ask `leader`
    "no_leader",  # nobody known: try again after a while
    "leader_changed",  # a read or transfer that the old leader can no longer finish
    "timeout",  # a read or transfer that took longer than an election
    "transferring",  # the leader is handing over
    "not_ready",  # the leader has not yet committed an entry of its own term
    "change_pending",  # one change of members at a time
    "unknown_member",
    "already",  # the change is true already, or an older incarnation
    "not_a_voter",
    "not_caught_up",  # a learner that is too far behind to vote
    "last_voter",
    "would_lose_quorum",  # too few of the voters that remain answered lately
    "too_large",
    "busy",  # too many entries wait for a majority
]


@dataclass(frozen=True, slots=True)
class Reject:
    """What was asked as `ctx` is not done, or nobody knows whether it is."""

    ctx: int
    reason: Reason
    leader: str  # "": unknown


Effect = Persist | StoreSnapshot | Send | Apply | Restore | ReadReady | Proposed | Role | Deadline | Reject


@dataclass(frozen=True, slots=True)
class Status:
    """For people. `matched` is what a leader knows to be durable at each server; of others it is empty."""

    role: RoleName
    term: int
    leader: str
    commit: int
    applied: int
    last: int
    config: Config
    matched: dict[str, int]
