"""What every member knows alike: one log of commands, applied by one function.

Pure. The coordinator appends commands; members receive them in order (ENTRY frames) or as a snapshot, and
`apply` builds the same `MeshState` everywhere. Wire form is canonical JSON of integers and strings only:
times in microseconds, so that Python and JavaScript spell every number alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, assert_never, cast

from peer.errors import BadCommand
from planner.types import Holding, Link, Objective, PeerProfile, Plan, Stage, UnitKind

MemberStatus = Literal["joining", "measured", "paused", "leaving"]
AWAY: Final[frozenset[MemberStatus]] = frozenset({"paused", "leaving"})  # no session may use such a member
MICRO = 1_000_000
_HOLDINGS: Mapping[str, Holding] = {
    "wasm": "wide",
    "webgpu": "packed",
}  # of tabs; processes map their weights
MAX_TEXT = 512  # characters of a name, reason or sentence in a command
MAX_ITEMS = 4096  # entries of a list or map in a command
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can spell it, UTF-8 cannot: no entry could carry it


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


@dataclass(frozen=True, slots=True)
class Member:
    """One peer of the mesh. `compute` is False for a peer that only asks."""

    peer: str
    name: str
    compute: bool
    status: MemberStatus
    profile: Profile | None = None
    held: tuple[tuple[int, int], ...] = ()  # runs of units [first, stop) that are loaded and can serve


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Measured path from `src` to `dst`."""

    src: str
    dst: str
    rtt_us: int
    bytes_per_s: int
    overhead_us: int


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
    peer: str
    name: str
    compute: bool


@dataclass(frozen=True, slots=True)
class MemberMeasured:
    peer: str
    profile: Profile
    links: tuple[LinkFacts, ...]


@dataclass(frozen=True, slots=True)
class PlanProposed:
    plan: PlanRecord


@dataclass(frozen=True, slots=True)
class UnitsHeld:
    peer: str
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlanActivated:
    version: int


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """No plan exists for the members there are; `reason` says what is missing."""

    reason: str


@dataclass(frozen=True, slots=True)
class MemberPaused:
    """`peer` stays, but lends nothing until it measures again: a hidden tab, a low battery. `reason` is for people."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemberLeaving:
    """A polite leave has begun: no new session may use this peer."""

    peer: str


@dataclass(frozen=True, slots=True)
class MemberLeft:
    peer: str
    reason: str


Command = (
    ModelChosen
    | MemberJoined
    | MemberMeasured
    | PlanProposed
    | UnitsHeld
    | PlanActivated
    | PlanRefused
    | MemberPaused
    | MemberLeaving
    | MemberLeft
)
COMMANDS: tuple[type[Any], ...] = (
    ModelChosen,
    MemberJoined,
    MemberMeasured,
    PlanProposed,
    UnitsHeld,
    PlanActivated,
    PlanRefused,
    MemberPaused,
    MemberLeaving,
    MemberLeft,
)


# --- state ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeshState:
    """The result of applying every command up to `index`. `proposed` is a plan whose peers still load."""

    term: int = 0
    index: int = 0
    model: ModelChosen | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    links: tuple[LinkFacts, ...] = ()
    plan: PlanRecord | None = None
    proposed: PlanRecord | None = None
    last_version: int = 0
    refused: str = ""  # why there is no plan, when there is none

    def ready_for(self, plan: PlanRecord) -> bool:
        """Whether every primary of `plan` holds its units; standbys may still load."""
        return all(
            (member := self.members.get(stage.primary)) is not None
            and member.status not in AWAY
            and (stage.first, stage.stop) in member.held
            for stage in plan.stages
        )

    def serving(self) -> PlanRecord | None:
        """The active plan when all its primaries are here, else None."""
        return self.plan if self.plan is not None and self.ready_for(self.plan) else None


def apply(state: MeshState, command: Command) -> MeshState:
    """The state after `command`. Commands about members that are gone change nothing but the index."""
    state = replace(state, index=state.index + 1)
    match command:
        case ModelChosen():
            return replace(state, model=command, plan=None, proposed=None, refused="")
        case MemberJoined():
            member = Member(command.peer, command.name, command.compute, "joining")
            return replace(state, members={**state.members, command.peer: member})
        case MemberMeasured():
            return _measured(state, command)
        case PlanProposed():
            return replace(state, proposed=command.plan, last_version=command.plan.version, refused="")
        case UnitsHeld():
            return _with_member(state, command.peer, held=command.held)
        case PlanActivated():
            if state.proposed is None or state.proposed.version != command.version:
                return state
            return replace(state, plan=state.proposed, proposed=None, refused="")
        case PlanRefused():
            return replace(state, proposed=None, refused=command.reason)
        case MemberPaused():
            return _paused(state, command.peer)
        case MemberLeaving():
            return _with_member(state, command.peer, status="leaving")
        case MemberLeft():
            members = {peer: member for peer, member in state.members.items() if peer != command.peer}
            links = tuple(link for link in state.links if command.peer not in (link.src, link.dst))
            return replace(state, members=members, links=links)
        case _:
            assert_never(command)


def _with_member(state: MeshState, peer: str, **changes: Any) -> MeshState:
    member = state.members.get(peer)
    if member is None:
        return state
    return replace(state, members={**state.members, peer: replace(member, **changes)})


def _paused(state: MeshState, peer: str) -> MeshState:
    member = state.members.get(peer)
    if member is None or member.status != "measured":
        return state  # it lends nothing yet, or leaves anyway
    return _with_member(state, peer, status="paused")


def _measured(state: MeshState, command: MemberMeasured) -> MeshState:
    if command.peer not in state.members:
        return state
    fresh = {(link.src, link.dst): link for link in state.links}
    fresh.update({(link.src, link.dst): link for link in command.links if link.src != link.dst})
    links = tuple(fresh[key] for key in sorted(fresh))
    status = "leaving" if state.members[command.peer].status == "leaving" else "measured"
    return replace(_with_member(state, command.peer, profile=command.profile, status=status), links=links)


# --- to and from the planner ------------------------------------------------------------------------------


def planner_profile(member: Member) -> PeerProfile:
    """`member`'s profile in the planner's units. Raises BadCommand for a member that has not measured."""
    profile = member.profile
    if profile is None:
        raise BadCommand(f"peer {member.peer} has not measured itself yet")

    def seconds(table: Mapping[str, int]) -> dict[UnitKind, float]:
        return {cast(UnitKind, kind): ns / 1e9 for kind, ns in table.items()}

    return PeerProfile(
        peer=member.peer,
        memory_bytes=profile.memory_bytes,
        overhead_bytes=profile.overhead_bytes,
        decode_s=seconds(profile.decode_ns),
        prefill_s=seconds(profile.prefill_ns),
        step_s=profile.step_ns / 1e9,
        batch_s=seconds(profile.batch_ns),
        holding=_HOLDINGS.get(profile.provider, "mapped"),
    )


def planner_link(link: LinkFacts) -> Link:
    """`link` in the planner's units."""
    return Link(
        link.src, link.dst, link.rtt_us / MICRO, float(max(1, link.bytes_per_s)), link.overhead_us / MICRO
    )


def plan_record(plan: Plan, version: int) -> PlanRecord:
    """The planner's answer as a numbered record for the log."""
    return PlanRecord(
        version=version,
        stages=tuple(_plan_stage(stage) for stage in plan.stages),
        predicted_token_us=round(plan.decode_s * MICRO),
        predicted_rate_milli=round(plan.tokens_per_s * 1000),
        why=tuple(sentence[:MAX_TEXT] for sentence in plan.why),
    )


def _plan_stage(stage: Stage) -> PlanStage:
    return PlanStage(
        stage.first,
        stage.stop,
        stage.peer,
        stage.standbys,
        stage.weight_bytes,
        stage.kv_bytes,
        stage.overhead_bytes,
    )


# --- wire -------------------------------------------------------------------------------------------------


def encode_command(command: Command) -> bytes:
    """Canonical JSON of one command: {"kind": name, ...fields}."""
    return _dump({"kind": type(command).__name__, **_plain(command)})


def decode_command(data: bytes) -> Command:
    """The command in `data`. Raises BadCommand naming what was expected."""
    body = _load(data)
    kind = body.pop("kind", None)
    for variant in COMMANDS:
        if variant.__name__ == kind:
            return cast(Command, _build(variant, body, str(kind)))
    raise BadCommand(f"unknown command {kind!r}; this build is older than the coordinator, update it")


def encode_state(state: MeshState) -> bytes:
    """Canonical JSON of a whole state, for a member that joins."""
    return _dump(_plain(state))


def decode_state(data: bytes) -> MeshState:
    """The state in `data`. Raises BadCommand naming what was expected."""
    return cast(MeshState, _build(MeshState, _load(data), "snapshot"))


def _dump(body: object) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _load(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadCommand(f"expected JSON, got {len(data)} bytes that are not: {error}") from None
    if not isinstance(body, dict):
        raise BadCommand(f"expected a JSON object, got {type(body).__name__}")
    return body


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or _LONE_SURROGATE.search(value):
        raise BadCommand(f"{where}: expected a string of at most {MAX_TEXT} characters")
    return value


def _int(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise BadCommand(f"{where}: expected an integer from 0 to 2^53-1, got {value!r:.60}")
    return value


def _bool(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise BadCommand(f"{where}: expected true or false")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise BadCommand(f"{where}: expected a list of at most {MAX_ITEMS} entries")
    return value


def _table(value: Any, where: str) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > MAX_ITEMS:
        raise BadCommand(f"{where}: expected a map of at most {MAX_ITEMS} entries")
    return {_text(key, where): _int(item, f"{where}.{key}") for key, item in value.items()}


def _runs(value: Any, where: str) -> tuple[tuple[int, int], ...]:
    runs = []
    for item in _list(value, where):
        pair = _list(item, where)
        if len(pair) != 2 or _int(pair[0], where) >= _int(pair[1], where):
            raise BadCommand(f"{where}: expected pairs [first, stop) with first < stop, got {item!r:.60}")
        runs.append((pair[0], pair[1]))
    return tuple(runs)


def _enum(value: Any, allowed: tuple[str, ...], where: str) -> str:
    if value not in allowed:
        raise BadCommand(f"{where}: expected one of {', '.join(allowed)}, got {value!r:.60}")
    return cast(str, value)


def _build(kind: type[Any], body: Any, where: str) -> Any:
    if not isinstance(body, dict):
        raise BadCommand(f"{where}: expected an object with the fields of {kind.__name__}")
    known = {f.name for f in fields(kind)}
    if set(body) != known:
        raise BadCommand(
            f"{where}: expected the fields {', '.join(sorted(known))}, got {sorted(body)!r:.200}"
        )
    return kind(**{name: _field(kind, name, body[name], f"{where}.{name}") for name in sorted(known)})


def _maybe(kind: type[Any], value: Any, where: str) -> Any:
    return None if value is None else _build(kind, value, where)


def _field(kind: type[Any], name: str, value: Any, where: str) -> Any:
    """Decodes one field; the table below is the whole wire schema of commands and snapshots."""
    match name:
        case "peer" | "name" | "src" | "dst" | "primary" | "reason" | "provider" | "refused":
            return _text(value, where)
        case "model" if kind is ModelChosen:
            return _text(value, where)
        case "model":
            return _maybe(ModelChosen, value, where)
        case "objective":
            return _enum(value, ("latency", "throughput"), where)
        case "status":
            return _enum(value, ("joining", "measured", "paused", "leaving"), where)
        case "compute":
            return _bool(value, where)
        case "held":
            return _runs(value, where)
        case "standbys" | "why":
            return tuple(_text(item, where) for item in _list(value, where))
        case "decode_ns" | "prefill_ns" | "batch_ns":
            return _table(value, where)
        case "stages":
            return tuple(_build(PlanStage, item, where) for item in _list(value, where))
        case "links":
            return tuple(_build(LinkFacts, item, where) for item in _list(value, where))
        case "profile" if kind is MemberMeasured:
            return _build(Profile, value, where)
        case "profile":
            return _maybe(Profile, value, where)
        case "plan" if kind is PlanProposed:
            return _build(PlanRecord, value, where)
        case "plan" | "proposed":
            return _maybe(PlanRecord, value, where)
        case "members":
            if not isinstance(value, dict) or len(value) > MAX_ITEMS:
                raise BadCommand(f"{where}: expected a map of members")
            return {_text(peer, where): _build(Member, item, where) for peer, item in value.items()}
        case _:
            return _int(value, where)
