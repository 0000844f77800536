"""What the planner talks about: units, peers, links, requests, plans. Pure data, no behaviour beyond checks.

Times are seconds, sizes are bytes, rates are bytes per second. `stop` is exclusive everywhere. What is not known
has its default: an unknown limit binds nothing, an unknown hazard or relay counts as bad where copies are placed, of
unknown arithmetic nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

UnitKind = Literal["embed", "attn", "ffn", "head"]
Objective = Literal["latency", "throughput"]
WeightFormat = Literal["8bit", "4bit", "f32", "f16"]
# How a peer keeps weights: a process packed, with the embedding on its disk; a tab with a GPU packed, the embedding in
# memory; a tab without one as float32, because WebAssembly has no fast kernel for packed weights.
Holding = Literal["mapped", "packed", "wide"]


@dataclass(frozen=True, slots=True)
class UnitCut:
    """How a unit can be cut into slices for a team (planner.slices). `pieces`: what it comes in, so that no more
    members have a part of it; `common_bytes`: of its weights, what each slice has besides its part; `sums`: how often
    in a step members add up what each has made; `sent_bytes`: what a member sends to each other one for a token, in
    all sums.
    """

    pieces: int
    common_bytes: int
    sums: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Smallest piece that can be placed. Units of a model run in order; borders are between neighbours."""

    name: str  # "embed", "attn.3", "ffn.3", "head"
    kind: UnitKind
    weight_bytes: int  # resident in the runtime once loaded, tied embeddings counted where they are needed
    flops_per_token: int
    kv_bytes_per_token: int  # 0 except for attn
    out_bytes_per_token: int  # activation that crosses the border after this unit; head: one token id
    packed_bytes: int | None = None  # as weight_bytes, in a tab with a GPU; None: the same
    wide_bytes: int | None = None  # as weight_bytes, in a tab without one; None: the same
    largest_tensor_bytes: int = 0  # must fit one buffer of the peer
    ops: tuple[str, ...] = ()  # operators that the peer's provider must have
    kv_positions: int = 0  # of a session that it caches at most; 0: all of them
    cut: UnitCut | None = None  # None: it is computed whole

    def kv_bytes(self, context: int) -> int:
        """What a session of `context` tokens takes in its caches."""
        return self.kv_bytes_per_token * (min(context, self.kv_positions) if self.kv_positions else context)

    def held_bytes(self, holding: Holding) -> int:
        """Weights in memory on a peer that keeps them this way."""
        found = {"mapped": self.weight_bytes, "packed": self.packed_bytes, "wide": self.wide_bytes}[holding]
        return self.weight_bytes if found is None else found


@dataclass(frozen=True, slots=True)
class UnitWork:
    """One unit of a graph: what it occupies once loaded, what it needs while it runs, how much there is to compute."""

    name: str
    component: str
    weight_bytes: int
    scratch_bytes: int
    flops: int
    ops: tuple[str, ...] = ()  # operators that the peer must have
    types: tuple[str, ...] = ()  # of the values that it takes and makes


@dataclass(frozen=True, slots=True)
class Edge:
    """One value on its way from the unit that makes it to those that use it; a peer that needs it gets it once."""

    value: str
    bytes: int
    source: int | None  # None: the origin gives it
    users: tuple[int, ...]  # units, ascending
    returned: bool = False  # the origin gets it


@dataclass(frozen=True, slots=True)
class GraphWork:
    """One run of a model of units that form a graph: the units in topological order, and the values between them."""

    units: tuple[UnitWork, ...]
    edges: tuple[Edge, ...]
    opset: int = 0  # the version of ONNX's own operators that it is written in; 0: unknown
    content: str = ""  # equal for models that compute the same with the same weights; "": equal to no other


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """What was measured of a peer beyond its speed: how its memory is divided, how it may fail, what it can run."""

    weights_bytes: int | None = None  # memory that takes weights; None: any of the pledge
    kv_bytes: int | None = None  # memory that takes KV; None: any of the pledge
    scratch_bytes: int = 0  # at the peak of a step, beyond the overhead
    load_peak_milli: int = 1000  # thousandths of the weights in memory while they load; 2100 without a Blob
    decode_p90_s: Mapping[UnitKind, float] = field(default_factory=dict)  # 90th percentiles, where known
    prefill_p90_s: Mapping[UnitKind, float] = field(default_factory=dict)
    unit_decode_s: Mapping[str, float] = field(
        default_factory=dict
    )  # by unit name, before decode_s of its kind
    hazard_per_h: float | None = None  # how often such a peer leaves; None: unknown
    provider: str = ""  # "cpu", "webgpu", "wasm"
    max_buffer_bytes: int | None = None
    ops: tuple[str, ...] | None = None  # operators it has; None: all
    domains: tuple[str, ...] = ()  # what it fails with: machine, NAT, owner
    arithmetic: str = ""  # peers of the same class compute equal bits (planner.model.arithmetic_class)


@dataclass(frozen=True, slots=True)
class PeerProfile:
    """Measured speed and memory of one peer."""

    peer: str
    memory_bytes: int  # pledged to Shoal: weights + KV + overhead must fit
    overhead_bytes: int  # measured: interpreter, runtime and scratch without any weights
    decode_s: Mapping[UnitKind, float]  # one unit, one decode token
    prefill_s: Mapping[UnitKind, float]  # one unit, one prompt token, in a chunk
    step_s: float = 0.0  # fixed cost of one step on this peer, whatever the number of units
    batch_s: Mapping[UnitKind, float] = field(default_factory=dict)  # one more row in a decode batch
    holding: Holding = "mapped"
    facts: PeerFacts = PeerFacts()


@dataclass(frozen=True, slots=True)
class Link:
    """Measured one-way facts of the path from `src` to `dst`. Not assumed symmetric."""

    src: str
    dst: str
    rtt_s: float
    bytes_per_s: float
    overhead_s: float = 0.0  # fixed software cost of handing one small frame over, beyond rtt/2
    loss: float = (
        0.0  # share of packets that must be sent again: each costs a round trip and its share of the rate
    )
    relayed: bool | None = False  # through a relay; None: unknown


@dataclass(frozen=True, slots=True)
class SharedRun:
    """Units [first, stop) that `peer` may have as a stage with `bytes` of weights less: another model has equal ones
    loaded there. Runs with 0 are where another model of that sort is cut.
    """

    peer: str
    first: int
    stop: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Everything a plan depends on. The order of `peers` and `links` never changes the answer."""

    units: tuple[Unit, ...]
    peers: tuple[PeerProfile, ...]
    links: tuple[Link, ...]
    context: int  # tokens of KV promised to each session
    sessions: int  # sessions promised at the same time
    objective: Objective = "latency"
    origin: str | None = None  # peer that asks; None: the peer that holds the first stage
    redundancy: int = 1000  # thousandths of copies promised: 1000 none, 1500 half of the stages doubled
    spare: bool = True  # peers that would lie idle stand by as well, beyond what is promised
    shared: tuple[SharedRun, ...] = ()  # weights that other models have loaded, each run of a peer once


@dataclass(frozen=True, slots=True)
class Stage:
    """Units [first, stop) on `peer`; `standbys` hold the same units and can take over, the first named first.

    A peer may have several places, each a primary's or a standby's, but never two in one stage. With `helpers` a team
    computes the units: `peer` leads it, and `shares` say how large the slice of each member is, the lead's first. Bytes
    are then those of the member with most.
    """

    first: int
    stop: int
    peer: str
    standbys: tuple[str, ...] = ()
    weight_bytes: int = 0
    kv_bytes: int = 0
    overhead_bytes: int = 0
    helpers: tuple[str, ...] = ()
    shares: tuple[int, ...] = ()

    @property
    def team(self) -> tuple[str, ...]:
        """Who computes the stage: its primary, and its helpers in the order of their slices."""
        return (self.peer, *self.helpers)


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """A plan that was looked at beside the chosen one, with its figures; all 0 where it cannot run."""

    name: str  # "den 0-20 > eva 20-62", or "den alone"
    decode_s: float = 0.0
    prefill_s: float = 0.0  # for each token of a prompt
    tokens_per_s: float = 0.0
    memory_bytes: int = 0  # on the peer that it fills most
    chosen: bool = False
    best: bool = False  # none beats it in both decode time and rate
    knee: bool = False
    why_not: str = ""  # in numbers


@dataclass(frozen=True, slots=True)
class Plan:
    """Stages in pipeline order, what they are predicted to do, and why this plan was chosen."""

    stages: tuple[Stage, ...]
    objective: Objective
    decode_s: float  # predicted seconds per token of one stream, last hop back included
    tokens_per_s: float  # predicted total rate with `sessions` streams
    bottleneck_s: float  # slowest stage or link, seconds per token
    why: tuple[str, ...] = ()  # sentences a person can read
    choices: tuple[PlanChoice, ...] = ()  # this plan among others


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No plan exists. `missing_bytes` is the least extra memory that would make one exist (0: not memory)."""

    reason: str
    missing_bytes: int = 0


MOST_HELPERS = 8  # of a stage that a team computes, beside its lead, as in the log
Run = tuple[int, int]  # units [first, stop)
Held = Mapping[str, tuple[Run, ...]]  # runs by peer
