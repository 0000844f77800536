"""Decides what can be said in the log of a mesh, and how it stands in bytes.

Pure. Times in microseconds. Here stand members and plans; people, conversations, the ledger and upkeep have modules of
their own. `peer.state.mesh_state` says what the commands mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from peer.state.conversations import CONVERSATION_COMMANDS, ConversationCommand
from peer.state.failure_domains import UNKNOWN, Surroundings, surroundings_codec
from peer.state.fairness import FAIRNESS_COMMANDS, FairnessCommand
from peer.state.plan_alternatives import ChoiceRecord, choices_codec
from peer.state.plan_goal import WISH_COMMANDS, PlanWished
from peer.state.protection import SHADOWS, STRATEGIES, Protection
from peer.state.roles import PEOPLE_COMMANDS, PeopleCommand
from peer.state.upkeep import UPKEEP_COMMANDS, UpkeepCommand
from peer.state.work_ledger import LEDGER_COMMANDS, LedgerCommand
from peer.wire.json_codec import (
    Codec,
    dump,
    flag,
    listed,
    load,
    matching,
    maybe,
    one_of,
    record,
    span,
    table,
    text,
    uint,
)
from planner.model.arithmetic_class import EXPECTED, PATTERN
from planner.types import Objective

MemberStatus = Literal["joining", "measured", "draining", "paused", "leaving"]
MAX_LINKS: Final = 65536  # of a snapshot: between any two of 256 members


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured memory and speed of one peer, in bytes and microseconds (nanoseconds where stated)."""

    memory_bytes: int
    overhead_bytes: int
    decode_ns: Mapping[str, int]  # one unit of a kind, one decode token
    prefill_ns: Mapping[str, int]  # one unit of a kind, one prompt token
    batch_ns: Mapping[str, int]  # one more row in a decode batch
    step_ns: int
    provider: str
    threads: int
    surroundings: Surroundings = UNKNOWN
    arithmetic: str = ""  # two peers compute equal bits where both say the same; "": unknown


@dataclass(frozen=True, slots=True)
class Member:
    """One peer of the mesh. `compute` is False for a peer that only asks."""

    peer: str
    name: str
    compute: bool
    status: MemberStatus
    profile: Profile | None = None
    held: tuple[tuple[int, int], ...] = ()  # runs of units [first, stop) that are loaded and can serve
    reason: str = ""  # why it drains or is paused, for people
    headless: bool = False  # no tab: nobody closes it by accident
    durable: bool = False  # what it stores outlives a crash, so it may vote
    incarnation: int = 0  # counts the times that it lost what it had stored


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Measured path from `src` to `dst`."""

    src: str
    dst: str
    rtt_us: int
    bytes_per_s: int
    overhead_us: int
    relayed: bool | None = None  # through a relay or a third peer; None: unknown


@dataclass(frozen=True, slots=True)
class PlanStage:
    """Units [first, stop) on `primary`; `standbys` hold them too."""

    first: int
    stop: int
    primary: str
    standbys: tuple[str, ...] = ()
    weight_bytes: int = 0
    kv_bytes: int = 0
    overhead_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan numbered by a version that only rises."""

    version: int
    stages: tuple[PlanStage, ...]
    predicted_token_us: int
    predicted_rate_milli: int  # thousandths of tokens per second, all promised sessions together
    why: tuple[str, ...] = ()
    choices: tuple[ChoiceRecord, ...] = ()  # this plan among others, as it was chosen; for people only

    @property
    def route(self) -> tuple[str, ...]:
        """The primary of each stage, in pipeline order."""
        return tuple(stage.primary for stage in self.stages)

    def holders(self) -> dict[str, frozenset[tuple[int, int]]]:
        """Which runs of units each peer must hold for this plan."""
        runs: dict[str, set[tuple[int, int]]] = {}
        for stage in self.stages:
            for peer in (stage.primary, *stage.standbys):
                runs.setdefault(peer, set()).add((stage.first, stage.stop))
        return {peer: frozenset(ranges) for peer, ranges in runs.items()}


# --- commands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelChosen:
    """The mesh serves this model store entry, with this promise of room."""

    model: str
    name: str
    units: int
    context: int
    sessions: int
    objective: Objective


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """`incarnation` must not be below the highest that the log ever had for this peer."""

    peer: str
    name: str
    compute: bool
    headless: bool = False
    durable: bool = False
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class MemberMeasured:
    """A member's measurement of itself, and of its links."""

    peer: str
    profile: Profile
    links: tuple[LinkFacts, ...]


@dataclass(frozen=True, slots=True)
class PlanProposed:
    """A plan that members load for."""

    plan: PlanRecord


@dataclass(frozen=True, slots=True)
class UnitsHeld:
    """The runs of units that a member holds now, each [first, stop)."""

    peer: str
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlanActivated:
    """The proposed plan of that version serves from now on."""

    version: int


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """No plan exists for the members there are; `reason` says what is missing."""

    reason: str


@dataclass(frozen=True, slots=True)
class MemberDraining:
    """`peer` serves on, but only while nobody else can, until it measures again. `reason` is for people."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemberPaused:
    """`peer` stays, but lends nothing until it measures again: its tab is frozen, say. `reason` is for people."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemberLeaving:
    """A polite leave has begun: no new session may use this peer."""

    peer: str


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """A member is gone."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProtectionChosen:
    """How answers are protected from now on."""

    protection: Protection


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A command of a newer version: kept as it came and skipped."""

    kind: str
    body: bytes


MeshCommand = (
    ModelChosen
    | MemberJoined
    | MemberMeasured
    | PlanProposed
    | UnitsHeld
    | PlanActivated
    | PlanRefused
    | MemberDraining
    | MemberPaused
    | MemberLeaving
    | MemberLeft
    | ProtectionChosen
)
Command = (
    MeshCommand
    | ConversationCommand
    | PeopleCommand
    | LedgerCommand
    | FairnessCommand
    | UpkeepCommand
    | PlanWished
    | UnknownCommand
)


# --- wire -------------------------------------------------------------------------------------------------

_profile: Final = record(
    Profile,
    {
        "memory_bytes": uint,
        "overhead_bytes": uint,
        "decode_ns": table(uint),
        "prefill_ns": table(uint),
        "batch_ns": table(uint),
        "step_ns": uint,
        "provider": text,
        "threads": uint,
        "surroundings": surroundings_codec,
        "arithmetic": matching(PATTERN, EXPECTED),
    },
    since={"surroundings": UNKNOWN, "arithmetic": ""},
)
member_codec: Final = record(
    Member,
    {
        "peer": text,
        "name": text,
        "compute": flag,
        "status": one_of("joining", "measured", "draining", "paused", "leaving"),
        "profile": maybe(_profile),
        "held": listed(span),
        "reason": text,
        "headless": flag,
        "durable": flag,
        "incarnation": uint,
    },
    since={"headless": False, "durable": False, "incarnation": 0},
)
link_codec: Final = record(
    LinkFacts,
    {
        "src": text,
        "dst": text,
        "rtt_us": uint,
        "bytes_per_s": uint,
        "overhead_us": uint,
        "relayed": maybe(flag),
    },
    since={"relayed": None},
)
_plan_stage: Final = record(
    PlanStage,
    {
        "first": uint,
        "stop": uint,
        "primary": text,
        "standbys": listed(text),
        "weight_bytes": uint,
        "kv_bytes": uint,
        "overhead_bytes": uint,
    },
)
plan_codec: Final = record(
    PlanRecord,
    {
        "version": uint,
        "stages": listed(_plan_stage),
        "predicted_token_us": uint,
        "predicted_rate_milli": uint,
        "why": listed(text),
        "choices": choices_codec,
    },
    since={"choices": ()},
)
protection_codec: Final = record(
    Protection,
    {
        "redundancy_milli": uint,
        "spare": flag,
        "shadow": one_of(*SHADOWS),
        "strategy": one_of(*STRATEGIES),
        "transactions": flag,
        "priority": listed(text),
        "together": flag,
        "log_session_bytes": uint,
        "log_total_bytes": uint,
    },
)
model_codec: Final = record(
    ModelChosen,
    {
        "model": text,
        "name": text,
        "units": uint,
        "context": uint,
        "sessions": uint,
        "objective": one_of("latency", "throughput"),
    },
)
_CODECS: Final[Mapping[type[Any], Codec[Any]]] = {
    ModelChosen: model_codec,
    MemberJoined: record(
        MemberJoined,
        {"peer": text, "name": text, "compute": flag, "headless": flag, "durable": flag, "incarnation": uint},
        since={"headless": False, "durable": False, "incarnation": 0},
    ),
    MemberMeasured: record(MemberMeasured, {"peer": text, "profile": _profile, "links": listed(link_codec)}),
    PlanProposed: record(PlanProposed, {"plan": plan_codec}),
    UnitsHeld: record(UnitsHeld, {"peer": text, "held": listed(span)}),
    PlanActivated: record(PlanActivated, {"version": uint}),
    PlanRefused: record(PlanRefused, {"reason": text}),
    MemberDraining: record(MemberDraining, {"peer": text, "reason": text}),
    MemberPaused: record(MemberPaused, {"peer": text, "reason": text}),
    MemberLeaving: record(MemberLeaving, {"peer": text}),
    MemberLeft: record(MemberLeft, {"peer": text, "reason": text}),
    ProtectionChosen: record(ProtectionChosen, {"protection": protection_codec}),
    **PEOPLE_COMMANDS,
    **CONVERSATION_COMMANDS,
    **LEDGER_COMMANDS,
    **FAIRNESS_COMMANDS,
    **UPKEEP_COMMANDS,
    **WISH_COMMANDS,
}
COMMANDS: Final[tuple[type[Any], ...]] = tuple(_CODECS)
_BY_KIND: Final = {variant.__name__: codec for variant, codec in _CODECS.items()}


def encode_command(command: Command) -> bytes:
    """Canonical JSON of one command: {"kind": name, ...fields}. A command of a newer version is as it came."""
    if isinstance(command, UnknownCommand):
        return command.body
    variant = type(command)
    return dump({"kind": variant.__name__, **_CODECS[variant].encode(command)})


def decode_command(data: bytes) -> Command:
    """The command in `data`; what this build does not know is an UnknownCommand. Raises BadCommand."""
    body = load(data)
    kind = text.decode(body.get("kind"), "kind")
    codec = _BY_KIND.get(kind)
    return UnknownCommand(kind, data) if codec is None else cast(Command, codec.decode(body, kind))


def check_command(command: Command) -> None:
    """Raises BadCommand, naming the field, when `command` breaks a bound: to be asked before it is proposed."""
    decode_command(encode_command(command))
