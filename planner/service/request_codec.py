"""Decides the JSON forms of a PlanRequest and of its answer, and which bytes are refused as one.

Strict: exactly the fields of planner.types, no others and none twice; sizes and counts within the limits
below; finite numbers; every refusal is a RequestError that names the field. Sorted keys, no spaces, UTF-8.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar, get_args

from planner.cost.evaluator import MAX_REDUNDANCY, check_request
from planner.cost.objectives import Component, Goal, Strategy, Wish
from planner.errors import RequestError
from planner.model.arithmetic_class import EXPECTED, PATTERN
from planner.strict_json import parse_json
from planner.types import (
    Holding,
    Infeasible,
    Link,
    Objective,
    PeerFacts,
    PeerProfile,
    Plan,
    PlanRequest,
    SharedRun,
    Unit,
    UnitCut,
    UnitKind,
)

MAX_BYTES = 4 * 2**20  # 64 peers with all their links take 0.6 MiB
MAX_UNITS = 320  # 159 blocks; the deepest llama-family model known has 126
MAX_PEERS = 64
MAX_NAME = 128  # characters of a peer id or unit name
MAX_TEXT = 4096  # characters of a reason or sentence
MAX_OPS = 256
MAX_DOMAINS = 8
WISHED = ("strategy", "goal", "components", "min_tensor_bytes")
MAX_PIECES = 2**24  # of one unit: rows of a vocabulary
MAX_SUMS = 64  # of one unit in a step
MAX_INT = 2**53 - 1  # what JSON readers in browsers keep exact
MAX_CONTEXT = 2**24
MAX_SESSIONS = 4096
MAX_SHARED = 4096  # runs of units that other models have loaded

Item = TypeVar("Item")


def encode_request(request: PlanRequest) -> bytes:
    """Returns a request as JSON that `decode_request` reads."""
    return encoded(dataclasses.asdict(request))


def encode_answer(answer: Plan | Infeasible) -> bytes:
    """`{"plan": {...}}` or `{"infeasible": {...}}`."""
    return encoded({"plan" if isinstance(answer, Plan) else "infeasible": dataclasses.asdict(answer)})


def decode_request(data: bytes) -> PlanRequest:
    """Raises RequestError for anything but a request that `placement.plan` can answer."""
    return request_of(parse(data))


def decode_wished(data: bytes) -> tuple[PlanRequest, Wish | None]:
    """A request that may say in a field `wish` what its plan is to be good at: `strategy`, `goal`, `components`."""
    parsed = parse(data)
    wish = wish_of(parsed.pop("wish")) if isinstance(parsed, dict) and "wish" in parsed else None
    return request_of(parsed), wish


def request_of(parsed: object) -> PlanRequest:
    """Returns the request in parsed JSON. Raises RequestError that names the field."""
    top = Fields("request", parsed, PlanRequest)
    request = PlanRequest(
        units=top.items("units", _unit, MAX_UNITS),
        peers=top.items("peers", _peer, MAX_PEERS),
        links=top.items("links", _link, (MAX_PEERS + 1) * MAX_PEERS),
        context=top.integer("context", MAX_CONTEXT),
        sessions=top.integer("sessions", MAX_SESSIONS),
        objective=_objective(top),
        origin=None if top.raw.get("origin") is None else top.name("origin"),
        redundancy=top.integer("redundancy", MAX_REDUNDANCY),
        spare=top.flag("spare"),
        shared=top.items("shared", _shared, MAX_SHARED),
    )
    check_request(request)
    return request


def encoded(value: object) -> bytes:
    """Returns `value` as JSON with sorted keys, without spaces, in UTF-8. Raises ValueError for NaN and infinity."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def parse(data: bytes) -> object:
    """Returns what strict JSON of at most MAX_BYTES holds: no key twice, no NaN. Raises RequestError."""
    if len(data) > MAX_BYTES:
        raise RequestError(f"expected at most {MAX_BYTES} bytes of JSON, got {len(data)}")
    try:
        return parse_json(data.decode("utf-8"))
    except ValueError as error:  # not UTF-8, or no strict JSON
        raise RequestError(f"expected UTF-8 JSON: {str(error)[:200]}") from None


def refuse(where: str, expected: str, got: object) -> NoReturn:
    """Raises RequestError that says where, what was expected and what came."""
    raise RequestError(f"{where}: expected {expected}, got {repr(got)[:80]}")


class Fields:
    """One JSON object whose fields are those of a dataclass; optional where the dataclass has a default."""

    def __init__(self, where: str, raw: object, shape: type) -> None:
        if not isinstance(raw, dict):
            refuse(where, "an object", raw)
        known = {field.name: field for field in dataclasses.fields(shape)}
        for name in raw:
            if name not in known:
                refuse(where, f"only the fields {', '.join(known)}", name)
        self.where = where
        self.raw: dict[str, Any] = raw
        for name, field in known.items():
            if name in raw:
                continue
            if field.default is not dataclasses.MISSING:
                raw[name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                raw[name] = field.default_factory()
            else:
                refuse(where, f"the field {name}", list(raw))

    def integer(self, name: str, most: int = MAX_INT) -> int:
        """Returns an integer from 0 to `most`. Raises RequestError."""
        value = self.raw[name]
        if type(value) is not int or not 0 <= value <= most:
            refuse(f"{self.where}.{name}", f"an integer from 0 to {most}", value)
        return value

    def integer_or_none(self, name: str) -> int | None:
        """Returns an integer from 0 to MAX_INT, or None for null. Raises RequestError."""
        return None if self.raw[name] is None else self.integer(name)

    def flag(self, name: str) -> bool:
        """Returns true or false. Raises RequestError."""
        value = self.raw[name]
        if not isinstance(value, bool):
            refuse(f"{self.where}.{name}", "true or false", value)
        return value

    def number(self, name: str) -> float:
        """Returns a number from 0 to MAX_INT. Raises RequestError."""
        return _number(f"{self.where}.{name}", self.raw[name])

    def text(self, name: str, most: int = MAX_TEXT) -> str:
        """Returns a string of at most `most` characters. Raises RequestError."""
        return _text(f"{self.where}.{name}", self.raw[name], most)

    def name(self, name: str) -> str:
        """Returns a string of at most MAX_NAME characters. Raises RequestError."""
        return self.text(name, MAX_NAME)

    def times(self, name: str) -> Mapping[UnitKind, float]:
        """Returns seconds by kind of unit. Raises RequestError."""
        raw, where = self.raw[name], f"{self.where}.{name}"
        if not isinstance(raw, dict):
            refuse(where, "an object of seconds per kind of unit", raw)
        for kind in raw:
            if kind not in get_args(UnitKind):
                refuse(where, f"kinds out of {', '.join(get_args(UnitKind))}", kind)
        return {kind: _number(f"{where}.{kind}", raw[kind]) for kind in get_args(UnitKind) if kind in raw}

    def times_by_name(self, name: str) -> Mapping[str, float]:
        """Returns seconds by unit, of at most MAX_UNITS. Raises RequestError."""
        raw, where = self.raw[name], f"{self.where}.{name}"
        if not isinstance(raw, dict) or len(raw) > MAX_UNITS:
            refuse(where, f"an object of seconds by unit, at most {MAX_UNITS}", raw)
        return {_text(where, key, MAX_NAME): _number(f"{where}.{key}", value) for key, value in raw.items()}

    def items(self, name: str, decode: Callable[[str, object], Item], most: int) -> tuple[Item, ...]:
        """Returns a list of at most `most`, each item decoded with its place. Raises RequestError."""
        raw, where = self.raw[name], f"{self.where}.{name}"
        if not isinstance(raw, (list, tuple)) or len(raw) > most:
            refuse(where, f"a list of at most {most}", raw)
        return tuple(decode(f"{where}[{at}]", item) for at, item in enumerate(raw))


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_INT:
        refuse(where, f"a number from 0 to {MAX_INT}", value)
    return float(value)


def _text(where: str, value: object, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most or not value.isprintable():
        refuse(where, f"1 to {most} printable characters", value)
    return value


def _objective(fields: Fields) -> Objective:
    value = fields.raw["objective"]
    if value not in get_args(Objective):
        refuse(f"{fields.where}.objective", " or ".join(get_args(Objective)), value)
    return "latency" if value == "latency" else "throughput"


def wish_of(raw: object) -> Wish:
    """Returns the wish in parsed JSON; what it does not name is the default. Raises RequestError."""
    if not isinstance(raw, dict) or not raw.keys() <= {*WISHED}:
        refuse("wish", f"an object of {', '.join(WISHED)}", raw)
    strategies: dict[object, Strategy] = {name: name for name in get_args(Strategy)}
    goals: dict[object, Goal] = {name: name for name in get_args(Goal)}
    strategy, goal = raw.get("strategy", "optimal"), raw.get("goal", "latency")
    if not isinstance(strategy, str) or strategy not in strategies:
        refuse("wish.strategy", " or ".join(get_args(Strategy)), strategy)
    if not isinstance(goal, str) or goal not in goals:
        refuse("wish.goal", " or ".join(get_args(Goal)), goal)
    components = raw.get("components", [])
    if not isinstance(components, list) or len(components) > MAX_PEERS:
        refuse("wish.components", f"a list of at most {MAX_PEERS}", components)
    groups = tuple(_component(f"wish.components[{at}]", each) for at, each in enumerate(components))
    least = raw.get("min_tensor_bytes", 0)
    if type(least) is not int or not 0 <= least <= MAX_INT:
        refuse("wish.min_tensor_bytes", f"an integer from 0 to {MAX_INT}", least)
    return Wish(goals[goal], strategies[strategy], components=groups, min_tensor_bytes=least)


def _component(where: str, raw: object) -> Component:
    fields = Fields(where, raw, Component)
    prefers = None if fields.raw["prefers"] in (None, "") else fields.name("prefers")
    return Component(
        fields.name("name"), fields.integer("first", MAX_UNITS), fields.integer("stop", MAX_UNITS), prefers
    )


def _holding(fields: Fields) -> Holding:
    known: dict[object, Holding] = {holding: holding for holding in get_args(Holding)}
    value = fields.raw["holding"]
    if not isinstance(value, str) or value not in known:
        refuse(f"{fields.where}.holding", " or ".join(get_args(Holding)), value)
    return known[value]


def _peer_name(where: str, raw: object) -> str:
    return _text(where, raw, MAX_NAME)


def _unit(where: str, raw: object) -> Unit:
    fields = Fields(where, raw, Unit)
    kinds: dict[object, UnitKind] = {kind: kind for kind in get_args(UnitKind)}
    kind = fields.name("kind")
    if kind not in kinds:
        refuse(f"{where}.kind", " or ".join(get_args(UnitKind)), kind)
    return Unit(
        name=fields.name("name"),
        kind=kinds[kind],
        weight_bytes=fields.integer("weight_bytes"),
        flops_per_token=fields.integer("flops_per_token"),
        kv_bytes_per_token=fields.integer("kv_bytes_per_token"),
        out_bytes_per_token=fields.integer("out_bytes_per_token"),
        packed_bytes=fields.integer_or_none("packed_bytes"),
        wide_bytes=fields.integer_or_none("wide_bytes"),
        largest_tensor_bytes=fields.integer("largest_tensor_bytes"),
        ops=fields.items("ops", _peer_name, MAX_OPS),
        kv_positions=fields.integer("kv_positions"),
        cut=_cut(f"{where}.cut", fields.raw["cut"]),
    )


def _cut(where: str, raw: object) -> UnitCut | None:
    if raw is None:
        return None
    fields = Fields(where, raw, UnitCut)
    return UnitCut(
        fields.integer("pieces", MAX_PIECES),
        fields.integer("common_bytes"),
        fields.integer("sums", MAX_SUMS),
        fields.integer("sent_bytes"),
    )


def _shared(where: str, raw: object) -> SharedRun:
    fields = Fields(where, raw, SharedRun)
    return SharedRun(
        fields.name("peer"),
        fields.integer("first", MAX_UNITS),
        fields.integer("stop", MAX_UNITS),
        fields.integer("bytes"),
    )


def _peer(where: str, raw: object) -> PeerProfile:
    fields = Fields(where, raw, PeerProfile)
    return PeerProfile(
        peer=fields.name("peer"),
        memory_bytes=fields.integer("memory_bytes"),
        overhead_bytes=fields.integer("overhead_bytes"),
        decode_s=fields.times("decode_s"),
        prefill_s=fields.times("prefill_s"),
        step_s=fields.number("step_s"),
        batch_s=fields.times("batch_s"),
        holding=_holding(fields),
        facts=_facts(f"{where}.facts", fields.raw["facts"]),
    )


def _facts(where: str, raw: object) -> PeerFacts:
    if isinstance(raw, PeerFacts):
        return raw  # the default of an absent field
    fields = Fields(where, raw, PeerFacts)
    return PeerFacts(
        weights_bytes=fields.integer_or_none("weights_bytes"),
        kv_bytes=fields.integer_or_none("kv_bytes"),
        scratch_bytes=fields.integer("scratch_bytes"),
        load_peak_milli=fields.integer("load_peak_milli"),
        decode_p90_s=fields.times("decode_p90_s"),
        prefill_p90_s=fields.times("prefill_p90_s"),
        unit_decode_s=fields.times_by_name("unit_decode_s"),
        hazard_per_h=None if fields.raw["hazard_per_h"] is None else fields.number("hazard_per_h"),
        provider=fields.raw["provider"] if fields.raw["provider"] == "" else fields.name("provider"),
        max_buffer_bytes=fields.integer_or_none("max_buffer_bytes"),
        ops=None if fields.raw["ops"] is None else fields.items("ops", _peer_name, MAX_OPS),
        domains=fields.items("domains", _peer_name, MAX_DOMAINS),
        arithmetic=_arithmetic(f"{where}.arithmetic", fields.raw["arithmetic"]),
    )


def _arithmetic(where: str, raw: object) -> str:
    if not isinstance(raw, str) or re.fullmatch(PATTERN, raw) is None:
        refuse(where, EXPECTED, raw)
    return raw


def _link(where: str, raw: object) -> Link:
    fields = Fields(where, raw, Link)
    return Link(
        src=fields.name("src"),
        dst=fields.name("dst"),
        rtt_s=fields.number("rtt_s"),
        bytes_per_s=fields.number("bytes_per_s"),
        overhead_s=fields.number("overhead_s"),
        loss=fields.number("loss"),
        relayed=None if fields.raw["relayed"] is None else fields.flag("relayed"),
    )
