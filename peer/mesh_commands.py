"""Decides what can be said in the log of a mesh, and how it stands in bytes.

Pure. Canonical JSON of integers and strings only, times in microseconds, so that Python and JavaScript spell every
number alike. `peer.mesh_state` says what the commands mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

from peer.errors import BadCommand
from peer.protection import SHADOWS, STRATEGIES, Protection
from planner.types import Objective

MemberStatus = Literal["joining", "measured", "draining", "paused", "leaving"]
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
    reason: str = ""  # why it drains or is paused, for people


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
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProtectionChosen:
    """How answers are protected from now on."""

    protection: Protection


Command = (
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
COMMANDS: tuple[type[Any], ...] = (
    ModelChosen,
    MemberJoined,
    MemberMeasured,
    PlanProposed,
    UnitsHeld,
    PlanActivated,
    PlanRefused,
    MemberDraining,
    MemberPaused,
    MemberLeaving,
    MemberLeft,
    ProtectionChosen,
)


# --- wire -------------------------------------------------------------------------------------------------


def encode_command(command: Command) -> bytes:
    """Canonical JSON of one command: {"kind": name, ...fields}."""
    return dump({"kind": type(command).__name__, **to_json(command)})


def decode_command(data: bytes) -> Command:
    """The command in `data`. Raises BadCommand naming what was expected."""
    body = load(data)
    kind = body.pop("kind", None)
    for variant in COMMANDS:
        if variant.__name__ == kind:
            return cast(Command, build(variant, body, str(kind)))
    raise BadCommand(f"unknown command {kind!r}; this build is older than the coordinator, update it")


def dump(body: object) -> bytes:
    """Canonical JSON."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def load(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises BadCommand."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadCommand(f"expected JSON, got {len(data)} bytes that are not: {error}") from None
    if not isinstance(body, dict):
        raise BadCommand(f"expected a JSON object, got {type(body).__name__}")
    return body


def to_json(value: Any) -> Any:
    """A value of this module, or one made of them, as JSON has it."""
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
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


def build(kind: type[Any], body: Any, where: str) -> Any:
    """A `kind` of the JSON value `body`, which has exactly its fields. Raises BadCommand naming the place `where`."""
    if not isinstance(body, dict):
        raise BadCommand(f"{where}: expected an object with the fields of {kind.__name__}")
    known = {f.name for f in fields(kind)}
    if set(body) != known:
        raise BadCommand(
            f"{where}: expected the fields {', '.join(sorted(known))}, got {sorted(body)!r:.200}"
        )
    return kind(**{name: _field(kind, name, body[name], f"{where}.{name}") for name in sorted(known)})


def _maybe(kind: type[Any], value: Any, where: str) -> Any:
    return None if value is None else build(kind, value, where)


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
            return _enum(value, ("joining", "measured", "draining", "paused", "leaving"), where)
        case "shadow":
            return _enum(value, SHADOWS, where)
        case "strategy":
            return _enum(value, STRATEGIES, where)
        case "compute" | "spare" | "transactions" | "together":
            return _bool(value, where)
        case "held":
            return _runs(value, where)
        case "standbys" | "why" | "priority":
            return tuple(_text(item, where) for item in _list(value, where))
        case "decode_ns" | "prefill_ns" | "batch_ns":
            return _table(value, where)
        case "stages":
            return tuple(build(PlanStage, item, where) for item in _list(value, where))
        case "links":
            return tuple(build(LinkFacts, item, where) for item in _list(value, where))
        case "profile" if kind is MemberMeasured:
            return build(Profile, value, where)
        case "profile":
            return _maybe(Profile, value, where)
        case "plan" if kind is PlanProposed:
            return build(PlanRecord, value, where)
        case "plan" | "proposed":
            return _maybe(PlanRecord, value, where)
        case "protection":
            return build(Protection, value, where)
        case "members":
            if not isinstance(value, dict) or len(value) > MAX_ITEMS:
                raise BadCommand(f"{where}: expected a map of members")
            return {_text(peer, where): build(Member, item, where) for peer, item in value.items()}
        case _:
            return _int(value, where)
