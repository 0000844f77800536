"""Decides how good a placement is by each of three objectives, and which placement a goal prefers.

D, decode: seconds per token of one stream. P, prefill: seconds to a first token. T, rate: tokens/s of all sessions.
They are never blended: a goal ranks by one and bounds by another. All from `cost`, the one evaluator.
  latency     least D, where T is at least the floor
  throughput  most T, where D is at most the cap
  memory      least share of the fullest peer, then D
  balanced    least share of a round that the busiest peer is busy, then D
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, assert_never

from planner.cost import evaluator
from planner.cost.wording import mib, ms
from planner.types import PlanRequest, Stage

Goal = Literal["latency", "throughput", "memory", "balanced"]
# expert and tiles have their place here; no solver offers them yet
Strategy = Literal[
    "optimal", "layer", "attention-ffn", "pipeline", "component", "hybrid", "tensor", "expert", "tiles"
]
PROMPT_TOKENS = 512  # the prompt whose first token is predicted, and the chunks it is sent in
CHUNK_TOKENS = 64
NAMED = 12  # stages of a plan whose name lists them all
MOST_STAGES = 64  # that the route of a mesh names


@dataclass(frozen=True, slots=True)
class Component:
    """Units [first, stop) as one group, on the peer it prefers where that peer can hold it."""

    name: str
    first: int
    stop: int
    prefers: str | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What the plan is to be good at, and what it must keep."""

    goal: Goal = "latency"
    strategy: Strategy = "optimal"
    rate_floor: float = 0.0  # tokens/s of all sessions
    decode_cap_s: float | None = None
    most_stages: int | None = None  # the hop cap
    components: tuple[Component, ...] = ()
    min_tensor_bytes: int = 0  # of weights: smaller units are computed whole, also beside a team


@dataclass(frozen=True, slots=True)
class Figures:
    """The objectives of one placement. `used` and `busy` are shares of the fullest and the busiest peer."""

    decode_ps: int
    prefill_ps: int
    token_ps: Fraction
    rows: int
    steady_chunk_ps: int  # between two chunks of a long prompt
    used: Fraction
    busy: Fraction
    saturating_sessions: Fraction  # D times the rate of the slowest part: more sessions only wait (Little)
    stages: int

    @property
    def decode_s(self) -> float:
        """Seconds a token of one answer."""
        return self.decode_ps / evaluator.PICO

    @property
    def prefill_s(self) -> float:
        """Seconds until the first token of a prompt of PROMPT_TOKENS."""
        return self.prefill_ps / evaluator.PICO

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all sessions together."""
        return float(evaluator.PICO / max(self.token_ps, Fraction(1)))


def figures(request: PlanRequest, stages: Sequence[Stage]) -> Figures:
    """Raises RequestError when the stages cannot run."""
    found = evaluator.evaluate(request, stages)
    peers = evaluator.profiles(request)
    links = evaluator.link_table(request)
    chunk, busy = list[int](), dict[str, int]()
    for stage in stages:
        chunk.append(evaluator.place_chunk_ps(request, stage, CHUNK_TOKENS, peers, links, last=False))
        taken = evaluator.place_ps(request, stage, 1, peers, links)
        for name in stage.team:
            busy[name] = busy.get(name, 0) + taken
    between = evaluator.hops(request, stages, links)
    transfers = [evaluator.transfer_ps(link, size, CHUNK_TOKENS) for link, size in between[:-1]]
    slowest_row = max([*busy.values(), *(evaluator.transfer_ps(link, size, 1) for link, size in between)])
    runs = evaluator.runs_by_peer(stages)
    return Figures(
        found.decode_ps,
        evaluator.prefill_ps(request, stages, PROMPT_TOKENS, CHUNK_TOKENS),
        found.token_ps,
        found.rows,
        max([*chunk, *transfers]),
        max(
            Fraction(evaluator.places_bytes(request, peers[name], places), max(1, peers[name].memory_bytes))
            for name, places in runs.items()
        ),
        Fraction(max(busy.values()), max(1, found.decode_ps)),
        Fraction(found.decode_ps, max(1, slowest_row)),
        len(stages),
    )


Key = tuple[Fraction | int | bool | tuple[tuple[object, ...], ...], ...]


def key(wish: Wish, found: Figures, stages: Sequence[Stage]) -> Key:
    """Of two placements, the one with the smaller key is chosen. Those that keep the bounds come first."""
    tail = (found.stages, tuple((stage.peer, stage.stop, stage.helpers, stage.shares) for stage in stages))
    kept = bool(refusals(wish, found))
    match wish.goal:
        case "latency":
            return (kept, found.decode_ps, found.token_ps, *tail)
        case "throughput":
            return (kept, found.token_ps, found.decode_ps, *tail)
        case "memory":
            return (kept, found.used, found.decode_ps, *tail)
        case "balanced":
            return (kept, found.busy, found.decode_ps, *tail)
        case _:
            assert_never(wish.goal)


def figure(wish: Wish, found: Figures) -> float:
    """What the goal makes smaller: picoseconds a token for latency and throughput, else a share."""
    match wish.goal:
        case "latency":
            return float(found.decode_ps)
        case "throughput":
            return float(found.token_ps)
        case "memory":
            return float(found.used)
        case "balanced":
            return float(found.busy)
        case _:
            assert_never(wish.goal)


def refusals(wish: Wish, found: Figures) -> tuple[str, ...]:
    """Which bounds a placement breaks, in numbers; none when it keeps them."""
    said: list[str] = []
    if found.tokens_per_s < wish.rate_floor:
        said.append(f"{found.tokens_per_s:.2f} tokens/s, the floor is {wish.rate_floor:.2f}")
    if wish.decode_cap_s is not None and found.decode_s > wish.decode_cap_s:
        said.append(f"{ms(found.decode_s)} a token, the cap is {ms(wish.decode_cap_s)}")
    if found.stages > MOST_STAGES:
        said.append(f"{found.stages} stages, a mesh carries at most {MOST_STAGES}")
    elif wish.most_stages is not None and found.stages > wish.most_stages:
        said.append(f"{found.stages} stages, at most {wish.most_stages} were wished for")
    return tuple(said)


def compared(wish: Wish, chosen: Figures, other: Figures) -> str:
    """Why `other` was not chosen, in the numbers of the goal."""
    broken = refusals(wish, other)
    if broken:
        return "; ".join(broken)
    match wish.goal:
        case "latency":
            return f"{ms(other.decode_s)} a token, {ms(other.decode_s - chosen.decode_s)} more"
        case "throughput":
            return f"{other.tokens_per_s:.2f} tokens/s, {chosen.tokens_per_s - other.tokens_per_s:.2f} less"
        case "memory":
            return f"fills its fullest peer to {float(other.used):.0%}, the chosen plan to {float(chosen.used):.0%}"
        case "balanced":
            shares = f"{float(other.busy):.1%} of a round, the chosen plan's {float(chosen.busy):.1%}"
            return f"its busiest peer works {shares}"
        case _:
            assert_never(wish.goal)


def whole_on(request: PlanRequest, name: str) -> str | None:
    """Why one peer cannot hold everything, in numbers; None when it can."""
    peer = evaluator.profiles(request)[name]
    whole = [(0, len(request.units))]
    short = evaluator.places_bytes(request, peer, whole) - peer.memory_bytes
    return f"{name} alone is {mib(short)} short" if short > 0 else evaluator.refuse_runs(request, peer, whole)


@dataclass(frozen=True, slots=True)
class Option:
    """A placement with its figures, and who found it."""

    stages: tuple[Stage, ...]
    found: Figures
    by: str

    @property
    def order(self) -> tuple[tuple[object, ...], ...]:
        """The peers with the borders at which their stages stop; equal orders are equal placements."""
        return tuple((stage.peer, stage.stop, stage.helpers, stage.shares) for stage in self.stages)

    @property
    def name(self) -> str:
        """The stages for people; with more than NAMED stages only how many, and on which peers."""
        if len(self.stages) > NAMED:
            peers = sorted({name for stage in self.stages for name in stage.team})
            return f"{len(self.stages)} stages on {', '.join(peers)}"
        return " > ".join(f"{'+'.join(stage.team)} {stage.first}-{stage.stop}" for stage in self.stages)


def pareto(options: Sequence[Option]) -> tuple[Option, ...]:
    """Those that none beats in both D and T, by D."""
    kept: list[Option] = []
    ranked = sorted(
        options,
        key=lambda option: (option.found.decode_ps, option.found.token_ps, len(option.stages), option.order),
    )
    for option in ranked:
        if not kept or option.found.token_ps < kept[-1].found.token_ps:
            kept.append(option)
    return tuple(kept)


def knee(front: Sequence[Option]) -> Option:
    """The option farthest below the line from the D-best to the T-best, both scaled to 1; the D-best when straight."""
    first, last = front[0].found, front[-1].found
    wide, high = last.decode_ps - first.decode_ps, first.token_ps - last.token_ps
    if not wide or not high:
        return front[0]

    def gain(option: Option) -> Fraction:
        right = Fraction(option.found.decode_ps - first.decode_ps, wide)
        return (first.token_ps - option.found.token_ps) / high - right

    best = max(gain(option) for option in front)
    return next(option for option in front if gain(option) == best)
