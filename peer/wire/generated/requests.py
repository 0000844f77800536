"""What peers ask of one another by REQUEST (docs/protocol.md, chapter Mesh state). Pure.

Generated from schema/requests.toml by `make generate`: change that, not this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from peer.limits import MAX_BODY_BYTES, MAX_ENTRY_BYTES, MAX_TEAM
from peer.wire.json_codec import (
    Codec,
    exactly,
    flag,
    integer,
    listed,
    matching,
    maybe,
    one_of,
    prose,
    record,
    span,
    table,
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
MAX_RELAY_HOSTS: Final = 4  # addresses of a peer that hands on for two others
MAX_HELD_BYTES: Final = 160 * 1024  # of a UnitsHeld or DecoderHeld
MAX_REPORTED: Final = 1024  # runs, round trips, breakers and the like in what a peer says of itself
MAX_VOTERS_TOLD: Final = 256

WitnessSide = Literal["tokens", "sent", "back", "place", "marks", "match", "in", "out", "token"]
ClaimOf = Literal["tokens", "weights"]
CheckVerdict = Literal["same", "differs", "disputed", "unable"]


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


@dataclass(frozen=True, slots=True)
class CachedRun:
    """What a peer caches of one session by one run of units: at `have` positions; `arrays`: the hash of each."""

    run: tuple[int, int]
    have: int
    arrays: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckCounts:
    """How many checks of steps came to which verdict."""

    same: int
    differs: int
    disputed: int
    unable: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a peer says of checks: those `made` here, those it `got` for its own answers, those without
    computing anew.
    """

    made: CheckCounts
    got: CheckCounts
    kept: int
    positions: int
    worst_ppm: int


@dataclass(frozen=True, slots=True)
class CallForm:
    """Calls that keep the promise of equal bits: rows of a call as least, multiple and most; where prompts end."""

    body: tuple[int, ...]
    head: tuple[int, ...]
    ends: int  # calls of prompts end at a multiple of it; 0: tokens of prompts are computed one at a time


# --- requests and their answers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """What a peer says of itself. Counts that are missing are those of another kind of peer."""

    name: str
    agent: str
    runs: tuple[tuple[int, int], ...]
    rss_bytes: int
    weight_bytes: int
    kv_bytes: int
    pledge_bytes: int
    sessions: int
    active: int
    steps: int
    tokens: int
    tokens_per_s_milli: int
    rtt_us: Mapping[str, int]
    step_us: tuple[tuple[int, ...], ...] = ()
    tasks: int | None = None
    replayed_bytes: int | None = None
    term: int | None = None
    commit: int | None = None
    applied: int | None = None
    log_bytes: int | None = None
    taken_over: int | None = None
    copied: int | None = None
    breakers: tuple[tuple[str, ...], ...] = ()
    fresh: tuple[str, ...] = ()
    checks: CheckReport | None = None


@dataclass(frozen=True, slots=True)
class LeaderAnswer:
    """Who leads, "" if nobody is known to. `epoch` 0: the peer is in no mesh yet."""

    leader: str
    term: int
    epoch: int
    voters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeasureLinkAnswer:
    """One way of a link as it was measured. `relayed` None: that side cannot tell."""

    rtt_us: int
    bytes_per_s: int
    overhead_us: int = 0
    relayed: bool | None = None


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """Asks a third peer for a way to `peer`."""

    peer: str


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """Addresses of a peer that hands on, and its ports for the asker (`mine`) and the other one (`theirs`)."""

    hosts: tuple[str, ...]
    mine: int
    theirs: int


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
class WaitAnswer:
    """Where the asker stands: 0 is called, -1 may not wait, and `why`. `wait_ms` -1: nobody can say."""

    place: int
    wait_ms: int = -1
    why: str = ""


@dataclass(frozen=True, slots=True)
class KvDigestRequest:
    """Asks for digests of what a peer caches of a session of the sender at positions [first, stop)."""

    session: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class KvDigestAnswer:
    """Digests of what is cached, run by run."""

    runs: tuple[CachedRun, ...]


@dataclass(frozen=True, slots=True)
class KvCopyRequest:
    """Asks for a copy of what a peer caches of a session in its run [from, to), of units [first, stop)."""

    session: str
    first: int
    stop: int
    from_: int
    to: int


@dataclass(frozen=True, slots=True)
class KvCopyAnswer:
    """How many positions are cached, and the SHA-256 of the copy, "" where nothing is."""

    have: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TeamFormRequest:
    """Asks a helper of a team that the sender leads for the form of calls that its slice of units [first, stop)
    needs.
    """

    first: int
    stop: int
    place: int
    shares: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TeamFormAnswer:
    """The form that was proven at the helper."""

    form: CallForm


@dataclass(frozen=True, slots=True)
class TeamOpenRequest:
    """Has a helper compute with its slice of units [first, stop) for the sender, in `form`: a team, until
    either ends it.
    """

    session: str
    first: int
    stop: int
    place: int
    shares: tuple[int, ...]
    members: tuple[str, ...]
    form: CallForm


@dataclass(frozen=True, slots=True)
class TeamHereRequest:
    """Asks a member of a team that the sender is in whether it is there, as one that the sender waits for."""

    session: str


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
class RunFolderAnswer:
    """Where the sender may leave values."""

    folder: str


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
class CheckAnswer:
    """What computing it again showed."""

    verdict: CheckVerdict


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
class WitnessAnswer:
    """What a peer can show: of `side` its own field or fields. Null: it has that no more."""

    tokens: tuple[int, ...] | None = None
    rows: str | None = None
    marks: str | None = None
    token: int | None = None
    same: bool | None = None
    units: tuple[int, int] | None = None
    before: str | None = None
    after: str | None = None
    spans: tuple[int, ...] | None = None


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
class MeasureAnswer:
    """Whether it measured itself. `busy`: another try may be worth it soon."""

    measured: bool
    busy: bool = False


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
class JoinAnswer:
    """Up to which entry the log is to be known before the sender takes part."""

    index: int


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
copied_pattern: Final = matching("([0-9a-f]{64})?", "a SHA-256 in hex, or nothing")
marks_pattern: Final = matching("([0-9a-f]{16})*", "marks of 8 bytes in hex")
conversation_pattern: Final = matching("[0-9A-Za-z_.:-]{1,64}", "the id of a conversation or message")
witness_side_codec: Final[Codec[WitnessSide]] = one_of(
    "tokens", "sent", "back", "place", "marks", "match", "in", "out", "token"
)
claim_of_codec: Final[Codec[ClaimOf]] = one_of("tokens", "weights")
check_verdict_codec: Final[Codec[CheckVerdict]] = one_of("same", "differs", "disputed", "unable")
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
cached_run_codec: Final = record(CachedRun, {"run": span, "have": uint, "arrays": table(text)})
check_counts_codec: Final = record(
    CheckCounts, {"same": uint, "differs": uint, "disputed": uint, "unable": uint}
)
check_report_codec: Final = record(
    CheckReport,
    {
        "made": check_counts_codec,
        "got": check_counts_codec,
        "kept": uint,
        "positions": uint,
        "worst_ppm": uint,
    },
)
call_form_codec: Final = record(CallForm, {"body": exactly(uint, 3), "head": exactly(uint, 3), "ends": uint})
status_answer_codec: Final = record(
    StatusAnswer,
    {
        "name": text,
        "agent": text,
        "runs": listed(span, MAX_REPORTED),
        "rss_bytes": uint,
        "weight_bytes": uint,
        "kv_bytes": uint,
        "pledge_bytes": uint,
        "sessions": uint,
        "active": uint,
        "steps": uint,
        "tokens": uint,
        "tokens_per_s_milli": uint,
        "rtt_us": table(uint, MAX_REPORTED),
        "step_us": listed(exactly(uint, 3), MAX_REPORTED),
        "tasks": maybe(uint),
        "replayed_bytes": maybe(uint),
        "term": maybe(uint),
        "commit": maybe(uint),
        "applied": maybe(uint),
        "log_bytes": maybe(uint),
        "taken_over": maybe(uint),
        "copied": maybe(uint),
        "breakers": listed(exactly(text, 2), MAX_REPORTED),
        "fresh": listed(text, MAX_REPORTED),
        "checks": maybe(check_report_codec),
    },
    since={
        "step_us": (),
        "tasks": None,
        "replayed_bytes": None,
        "term": None,
        "commit": None,
        "applied": None,
        "log_bytes": None,
        "taken_over": None,
        "copied": None,
        "breakers": (),
        "fresh": (),
        "checks": None,
    },
    omit={
        "tasks",
        "replayed_bytes",
        "term",
        "commit",
        "applied",
        "log_bytes",
        "taken_over",
        "copied",
        "fresh",
        "checks",
    },
)
leader_answer_codec: Final = record(
    LeaderAnswer, {"leader": text, "term": uint, "epoch": uint, "voters": listed(text, MAX_VOTERS_TOLD)}
)
measure_link_answer_codec: Final = record(
    MeasureLinkAnswer,
    {"rtt_us": uint, "bytes_per_s": uint, "overhead_us": uint, "relayed": maybe(flag)},
    since={
        "overhead_us": 0,
        "relayed": None,
    },
    omit={"relayed"},
)
relay_request_codec: Final = record(RelayRequest, {"peer": text})
relay_answer_codec: Final = record(
    RelayAnswer, {"hosts": listed(text, MAX_RELAY_HOSTS), "mine": up_to(65535), "theirs": up_to(65535)}
)
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
wait_answer_codec: Final = record(
    WaitAnswer,
    {"place": integer, "wait_ms": integer, "why": text},
    since={
        "wait_ms": -1,
        "why": "",
    },
    omit={"why"},
)
kv_digest_request_codec: Final = record(
    KvDigestRequest, {"session": session_pattern, "first": uint, "stop": uint}
)
kv_digest_answer_codec: Final = record(KvDigestAnswer, {"runs": listed(cached_run_codec)})
kv_copy_request_codec: Final = record(
    KvCopyRequest, {"session": session_pattern, "first": uint, "stop": uint, "from_": uint, "to": uint}
)
kv_copy_answer_codec: Final = record(KvCopyAnswer, {"have": uint, "sha256": copied_pattern})
team_form_request_codec: Final = record(
    TeamFormRequest, {"first": uint, "stop": uint, "place": uint, "shares": listed(uint, MAX_TEAM)}
)
team_form_answer_codec: Final = record(TeamFormAnswer, {"form": call_form_codec})
team_open_request_codec: Final = record(
    TeamOpenRequest,
    {
        "session": session_pattern,
        "first": uint,
        "stop": uint,
        "place": uint,
        "shares": listed(uint, MAX_TEAM),
        "members": listed(text, MAX_TEAM),
        "form": call_form_codec,
    },
)
team_here_request_codec: Final = record(TeamHereRequest, {"session": session_pattern})
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
run_folder_answer_codec: Final = record(RunFolderAnswer, {"folder": text})
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
check_answer_codec: Final = record(CheckAnswer, {"verdict": check_verdict_codec})
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
witness_answer_codec: Final = record(
    WitnessAnswer,
    {
        "tokens": maybe(listed(integer, MAX_CHECKED_POSITIONS)),
        "rows": maybe(prose(MAX_BODY_BYTES)),
        "marks": maybe(marks_pattern),
        "token": maybe(uint),
        "same": maybe(flag),
        "units": maybe(span),
        "before": maybe(text),
        "after": maybe(text),
        "spans": maybe(listed(integer, MAX_CHECKED_SPANS)),
    },
    since={
        "tokens": None,
        "rows": None,
        "marks": None,
        "token": None,
        "same": None,
        "units": None,
        "before": None,
        "after": None,
        "spans": None,
    },
    omit={"tokens", "rows", "marks", "token", "same", "units", "before", "after", "spans"},
)
odd_request_codec: Final = record(OddRequest, {"session": session_pattern, "position": uint})
measure_request_codec: Final = record(MeasureRequest, {"model": text})
measure_answer_codec: Final = record(
    MeasureAnswer,
    {"measured": flag, "busy": flag},
    since={
        "busy": False,
    },
)
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
join_answer_codec: Final = record(JoinAnswer, {"index": uint})
measured_request_codec: Final = record(
    MeasuredRequest,
    {"command": prose(MAX_ENTRY_BYTES), "again": flag},
    since={
        "again": False,
    },
)
held_request_codec: Final = record(HeldRequest, {"command": prose(MAX_HELD_BYTES)})
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
propose_request_codec: Final = record(ProposeRequest, {"command": prose(MAX_ENTRY_BYTES)})
work_request_codec: Final = record(WorkRequest, {"entries": listed(claim_codec, MAX_CLAIMS)})

STATUS: Final = RequestKind("status", Sender.ANYONE, nothing, 2048, status_answer_codec, 524288)
LEADER: Final = RequestKind("leader", Sender.ANYONE, nothing, 2048, leader_answer_codec, 65536)
MEASURE_LINK: Final = RequestKind(
    "measure_link", Sender.ANYONE, nothing, 2048, measure_link_answer_codec, 2048
)
RELAY: Final = RequestKind("relay", Sender.ANYONE, relay_request_codec, 8192, relay_answer_codec, 26624)
WAIT: Final = RequestKind("wait", Sender.ANYONE, wait_request_codec, 2048, wait_answer_codec, 8192)
KV_DIGEST: Final = RequestKind(
    "kv_digest", Sender.ANYONE, kv_digest_request_codec, 2048, kv_digest_answer_codec, 262144
)
KV_COPY: Final = RequestKind(
    "kv_copy", Sender.ANYONE, kv_copy_request_codec, 2048, kv_copy_answer_codec, 2048
)
TEAM_FORM: Final = RequestKind(
    "team_form", Sender.MEMBERS, team_form_request_codec, 2048, team_form_answer_codec, 2048
)
TEAM_OPEN: Final = RequestKind("team_open", Sender.MEMBERS, team_open_request_codec, 8192, nothing, 2048)
TEAM_HERE: Final = RequestKind("team_here", Sender.MEMBERS, team_here_request_codec, 2048, nothing, 2048)
RUN_OPEN: Final = RequestKind("run_open", Sender.MEMBERS, run_open_request_codec, 65536, nothing, 2048)
RUN_CLOSE: Final = RequestKind("run_close", Sender.MEMBERS, run_close_request_codec, 2048, nothing, 2048)
RUN_FOLDER: Final = RequestKind("run_folder", Sender.MEMBERS, nothing, 2048, run_folder_answer_codec, 8192)
RUN_LEFT: Final = RequestKind("run_left", Sender.MEMBERS, run_left_request_codec, 2048, nothing, 2048)
LIVE: Final = RequestKind("live", Sender.ANYONE, live_request_codec, 482304, nothing, 2048)
TYPING: Final = RequestKind("typing", Sender.ANYONE, typing_request_codec, 2048, nothing, 2048)
CHECK: Final = RequestKind("check", Sender.MEMBERS, check_request_codec, 29696, check_answer_codec, 2048)
WITNESS: Final = RequestKind(
    "witness", Sender.MEMBERS, witness_request_codec, 8192, witness_answer_codec, 1032192
)
ODD: Final = RequestKind("odd", Sender.MEMBERS, odd_request_codec, 2048, nothing, 2048)
MEASURE: Final = RequestKind(
    "measure", Sender.LEADER, measure_request_codec, 8192, measure_answer_codec, 2048
)
JOIN: Final = RequestKind("join", Sender.ANYONE, join_request_codec, 8192, join_answer_codec, 2048)
MEASURED: Final = RequestKind("measured", Sender.MEMBERS, measured_request_codec, 525312, nothing, 2048)
HELD: Final = RequestKind("held", Sender.MEMBERS, held_request_codec, 196608, nothing, 2048)
DRAIN: Final = RequestKind("drain", Sender.MEMBERS, drain_request_codec, 8192, nothing, 2048)
PAUSED: Final = RequestKind("paused", Sender.MEMBERS, paused_request_codec, 8192, nothing, 2048)
LEAVING: Final = RequestKind("leaving", Sender.MEMBERS, nothing, 2048, nothing, 2048)
LEFT: Final = RequestKind("left", Sender.ANYONE, nothing, 2048, nothing, 2048)
SUSPECT: Final = RequestKind("suspect", Sender.MEMBERS, suspect_request_codec, 8192, nothing, 2048)
PROPOSE: Final = RequestKind("propose", Sender.MEMBERS, propose_request_codec, 787456, nothing, 2048)
WORK: Final = RequestKind("work", Sender.MEMBERS, work_request_codec, 131072, nothing, 2048)

# What is asked of whoever leads.
LEADER_REQUESTS: Final[tuple[RequestKind[Any, Any], ...]] = (
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
