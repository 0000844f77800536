"""What peers ask of one another by REQUEST (docs/protocol.md, chapter Mesh state). Pure.

Generated from schema/requests.toml by `make generate`: change that, not this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from peer.limits import MAX_BODY_BYTES
from peer.wire.json_codec import (
    Codec,
    flag,
    integer,
    listed,
    matching,
    one_of,
    prose,
    record,
    span,
    text,
    uint,
    up_to,
)
from peer.wire.request_kind import RequestKind, Sender, nothing

MAX_WAIT_POSITIONS: Final = 2**20  # and tokens, plans and stages of a `wait` are below it
MAX_CHECKED_POSITIONS: Final = 1024  # up to the one that is checked: all of them are computed again
MAX_CHECKED_SPANS: Final = 512
MAX_CHECKED_SETTINGS: Final = 8  # integers of sampling of an answer that is not held to a form
MAX_LIVE_IDS: Final = 4096
MAX_LIVE_SPANS: Final = 512
MAX_LIVE_BYTES: Final = 65536  # of UTF-8
MAX_RUN_STAGES: Final = 256  # of one run
MAX_LEFT_RANK: Final = 16  # axes of a value that is left for a peer, as of RUN_VALUE
MAX_CLAIMS: Final = 256  # of a `work`

WitnessSide = Literal["tokens", "sent", "back", "place", "marks", "match", "in", "out", "token"]
ClaimOf = Literal["tokens", "weights"]


# --- values -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """Work that the ledger should have, as its asker says it; whoever leads puts a price on it."""

    session: str
    started_ms: int
    peer: str
    positions: tuple[int, int]
    units: tuple[int, int]
    of: ClaimOf


# --- requests ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """Asks a third peer for a way to `peer`."""

    peer: str


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """Stands in line for a seat. `plan` and `stage` as in the OPEN that was refused; `place`: the one heard last."""

    session: str
    plan: int
    stage: int
    positions: int
    tokens: int
    place: int = -1


@dataclass(frozen=True, slots=True)
class KvDigestRequest:
    """Asks for digests of what a peer caches of a session of the sender at positions [first, stop)."""

    session: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class KvCopyRequest:
    """Asks for a copy of what a peer caches of a session in its run [from, to), of units [first, stop)."""

    session: str
    first: int
    stop: int
    from_: int
    to: int


@dataclass(frozen=True, slots=True)
class RunOpenRequest:
    """Has a peer make ready for its stages of a run: units spans[i] of `model` are computed by peers[i]."""

    run: str
    epoch: int
    model: str
    spans: tuple[tuple[int, int], ...]
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunCloseRequest:
    """Ends a run of the sender: what is kept of it is let go."""

    run: str


@dataclass(frozen=True, slots=True)
class RunLeftRequest:
    """Says that a value of a run lies in that folder, with the fields of RUN_VALUE."""

    run: str
    epoch: int
    item: int
    value: int
    shape: tuple[int, ...]
    total: int
    file: str


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """Shows how a running answer grows: `ids` and `text` follow its first `after` tokens."""

    conversation: str
    message: str
    after: int
    ids: tuple[int, ...]
    text: str
    answer: int
    turn: int
    spans: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TypingRequest:
    """Shows that somebody writes in a conversation, or has stopped."""

    conversation: str
    typing: bool


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Asks to compute one stage at one position again. `before`, `after`: its neighbours, "" for the asker itself."""

    session: str
    stage: int
    position: int
    units: tuple[int, int]
    peer: str
    before: str
    after: str
    spans: tuple[int, ...]
    token: int
    sampling: tuple[int, ...]
    sampled: int
    also: int = -1
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class WitnessRequest:
    """Asks what a stage, or the asker of a session, can show of positions [first, stop)."""

    session: str
    stage: int
    side: WitnessSide
    first: int
    stop: int
    seen: str = ""


@dataclass(frozen=True, slots=True)
class OddRequest:
    """Tells the asker that what came to the sender for a position looks wrong."""

    session: str
    position: int


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """Has a member measure itself once more."""

    model: str


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A peer comes into the mesh. What an older one does not say is refused only after its `protocol`."""

    name: str
    compute: bool
    protocol: int = 0
    incarnation: int = 0
    fresh: bool = False
    epoch: int = 0
    headless: bool = False
    durable: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredRequest:
    """Tells what the sender measured. `again`: it was asked for that."""

    command: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """Tells what the sender holds."""

    command: str


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """The sender serves on only while nobody else can."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class PausedRequest:
    """The sender stays, but lends nothing."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class SuspectRequest:
    """A member does not answer the sender."""

    peer: str


@dataclass(frozen=True, slots=True)
class ProposeRequest:
    """Asks that a command enters the log, in the name of the sender."""

    command: str


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """What was computed or given for the sender."""

    entries: tuple[Claim, ...]


# --- on the wire ------------------------------------------------------------------------------------------

session_pattern: Final = matching("[0-9a-f]{32}", "a session of 16 bytes in hex")
left_file_pattern: Final = matching("[0-9a-f]{32}", "a file of 16 bytes in hex")
conversation_pattern: Final = matching("[0-9A-Za-z_.:-]{1,64}", "the id of a conversation or message")
witness_side_codec: Final[Codec[WitnessSide]] = one_of(
    "tokens", "sent", "back", "place", "marks", "match", "in", "out", "token"
)
claim_of_codec: Final[Codec[ClaimOf]] = one_of("tokens", "weights")
claim_codec: Final = record(
    Claim,
    {
        "session": session_pattern,
        "started_ms": uint,
        "peer": text,
        "positions": span,
        "units": span,
        "of": claim_of_codec,
    },
)
relay_request_codec: Final = record(RelayRequest, {"peer": text})
wait_request_codec: Final = record(
    WaitRequest,
    {
        "session": session_pattern,
        "plan": up_to(MAX_WAIT_POSITIONS - 1),
        "stage": up_to(MAX_WAIT_POSITIONS - 1),
        "positions": up_to(MAX_WAIT_POSITIONS - 1),
        "tokens": up_to(MAX_WAIT_POSITIONS - 1),
        "place": integer,
    },
    since={
        "place": -1,
    },
)
kv_digest_request_codec: Final = record(
    KvDigestRequest, {"session": session_pattern, "first": uint, "stop": uint}
)
kv_copy_request_codec: Final = record(
    KvCopyRequest, {"session": session_pattern, "first": uint, "stop": uint, "from_": uint, "to": uint}
)
run_open_request_codec: Final = record(
    RunOpenRequest,
    {
        "run": session_pattern,
        "epoch": uint,
        "model": text,
        "spans": listed(span, MAX_RUN_STAGES),
        "peers": listed(text, MAX_RUN_STAGES),
    },
)
run_close_request_codec: Final = record(RunCloseRequest, {"run": session_pattern})
run_left_request_codec: Final = record(
    RunLeftRequest,
    {
        "run": session_pattern,
        "epoch": uint,
        "item": uint,
        "value": uint,
        "shape": listed(uint, MAX_LEFT_RANK),
        "total": uint,
        "file": left_file_pattern,
    },
)
live_request_codec: Final = record(
    LiveRequest,
    {
        "conversation": conversation_pattern,
        "message": conversation_pattern,
        "after": uint,
        "ids": listed(uint, MAX_LIVE_IDS),
        "text": prose(MAX_LIVE_BYTES),
        "answer": uint,
        "turn": uint,
        "spans": listed(uint, MAX_LIVE_SPANS),
    },
)
typing_request_codec: Final = record(TypingRequest, {"conversation": conversation_pattern, "typing": flag})
check_request_codec: Final = record(
    CheckRequest,
    {
        "session": session_pattern,
        "stage": uint,
        "position": up_to(MAX_CHECKED_POSITIONS - 1),
        "units": span,
        "peer": text,
        "before": text,
        "after": text,
        "spans": listed(integer, MAX_CHECKED_SPANS),
        "token": integer,
        "sampling": listed(integer, MAX_CHECKED_SETTINGS),
        "sampled": uint,
        "also": integer,
        "pinned": flag,
    },
    since={
        "also": -1,
        "pinned": False,
    },
)
witness_request_codec: Final = record(
    WitnessRequest,
    {
        "session": session_pattern,
        "stage": uint,
        "side": witness_side_codec,
        "first": uint,
        "stop": uint,
        "seen": text,
    },
    since={
        "seen": "",
    },
)
odd_request_codec: Final = record(OddRequest, {"session": session_pattern, "position": uint})
measure_request_codec: Final = record(MeasureRequest, {"model": text})
join_request_codec: Final = record(
    JoinRequest,
    {
        "name": text,
        "compute": flag,
        "protocol": uint,
        "incarnation": uint,
        "fresh": flag,
        "epoch": uint,
        "headless": flag,
        "durable": flag,
    },
    since={
        "protocol": 0,
        "incarnation": 0,
        "fresh": False,
        "epoch": 0,
        "headless": False,
        "durable": False,
    },
)
measured_request_codec: Final = record(
    MeasuredRequest,
    {"command": prose(MAX_BODY_BYTES), "again": flag},
    since={
        "again": False,
    },
)
held_request_codec: Final = record(HeldRequest, {"command": prose(MAX_BODY_BYTES)})
drain_request_codec: Final = record(
    DrainRequest,
    {"why": text},
    since={
        "why": "",
    },
)
paused_request_codec: Final = record(
    PausedRequest,
    {"why": text},
    since={
        "why": "",
    },
)
suspect_request_codec: Final = record(SuspectRequest, {"peer": text})
propose_request_codec: Final = record(ProposeRequest, {"command": prose(MAX_BODY_BYTES)})
work_request_codec: Final = record(WorkRequest, {"entries": listed(claim_codec, MAX_CLAIMS)})

STATUS: Final = RequestKind("status", Sender.ANYONE, nothing)
LEADER: Final = RequestKind("leader", Sender.ANYONE, nothing)
MEASURE_LINK: Final = RequestKind("measure_link", Sender.ANYONE, nothing)
RELAY: Final = RequestKind("relay", Sender.ANYONE, relay_request_codec)
WAIT: Final = RequestKind("wait", Sender.ANYONE, wait_request_codec)
KV_DIGEST: Final = RequestKind("kv_digest", Sender.ANYONE, kv_digest_request_codec)
KV_COPY: Final = RequestKind("kv_copy", Sender.ANYONE, kv_copy_request_codec)
RUN_OPEN: Final = RequestKind("run_open", Sender.MEMBERS, run_open_request_codec)
RUN_CLOSE: Final = RequestKind("run_close", Sender.MEMBERS, run_close_request_codec)
RUN_FOLDER: Final = RequestKind("run_folder", Sender.MEMBERS, nothing)
RUN_LEFT: Final = RequestKind("run_left", Sender.MEMBERS, run_left_request_codec)
LIVE: Final = RequestKind("live", Sender.ANYONE, live_request_codec)
TYPING: Final = RequestKind("typing", Sender.ANYONE, typing_request_codec)
CHECK: Final = RequestKind("check", Sender.MEMBERS, check_request_codec)
WITNESS: Final = RequestKind("witness", Sender.MEMBERS, witness_request_codec)
ODD: Final = RequestKind("odd", Sender.MEMBERS, odd_request_codec)
MEASURE: Final = RequestKind("measure", Sender.LEADER, measure_request_codec)
JOIN: Final = RequestKind("join", Sender.ANYONE, join_request_codec)
MEASURED: Final = RequestKind("measured", Sender.MEMBERS, measured_request_codec)
HELD: Final = RequestKind("held", Sender.MEMBERS, held_request_codec)
DRAIN: Final = RequestKind("drain", Sender.MEMBERS, drain_request_codec)
PAUSED: Final = RequestKind("paused", Sender.MEMBERS, paused_request_codec)
LEAVING: Final = RequestKind("leaving", Sender.MEMBERS, nothing)
LEFT: Final = RequestKind("left", Sender.ANYONE, nothing)
SUSPECT: Final = RequestKind("suspect", Sender.MEMBERS, suspect_request_codec)
PROPOSE: Final = RequestKind("propose", Sender.MEMBERS, propose_request_codec)
WORK: Final = RequestKind("work", Sender.MEMBERS, work_request_codec)

# What is asked of whoever leads.
LEADER_REQUESTS: Final[tuple[RequestKind[Any], ...]] = (
    JOIN,
    MEASURED,
    HELD,
    DRAIN,
    PAUSED,
    LEAVING,
    LEFT,
    SUSPECT,
    PROPOSE,
    WORK,
)
