"""A mesh in virtual time: a toy model whose tokens depend on all earlier ones, over a random network."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from peer.session.effects import (
    Broken,
    Emit,
    Ended,
    FindRoute,
    FreeSlot,
    NotRan,
    OriginEffect,
    PrefixWork,
    Ran,
    Reason,
    RunStep,
    Send,
    Spare,
    StageEffect,
    Suspect,
)
from peer.session.origin import Ask, OriginSession
from peer.session.position_spans import CHUNK_TOKENS
from peer.session.routes import Route
from peer.session.sampling import Sampling
from peer.session.stage import (
    StageCore,
)
from peer.state.generated.commands import PlanRecord, PlanStage
from peer.state.plan_record import route_of
from peer.wire.generated.frames import (
    Cancel,
    Feed,
    Frame,
    Here,
    Open,
    Refuse,
    Release,
    Step,
    Token,
    Where,
)

VOCAB = 97
UNITS = 8


class ToyRuntime:
    """Keeps, per session, the tokens of each position as its cache, and refuses positions that it lacks.

    The hidden state of a position is (token, number of units passed); the head's favourite token is a hash of the
    whole cache, so a lost, repeated or reordered position changes every later token.
    """

    def __init__(self, run: tuple[int, int]) -> None:
        self.run = run
        self.cache: dict[bytes, list[int]] = {}
        self.fronts: dict[bytes, list[int]] = {}
        self.positions = 0  # computed

    def step(self, step: RunStep) -> Ran | NotRan:
        have = self.cache.setdefault(step.session, [])
        if step.position > len(have):
            text = f"has {len(have)} positions"
            return NotRan(
                step.run, step.session, step.epoch, step.position, len(have), Reason.MISSING_POSITION, text
            )
        if step.tokens is not None:
            hidden = np.stack([step.tokens, np.zeros_like(step.tokens)], axis=1).astype(np.float32)
        else:
            assert step.hidden is not None
            hidden = step.hidden
        assert (hidden[:, 1] == self.run[0]).all(), "a stage was skipped or run twice"
        del have[step.position :]
        have += [int(token) for token in hidden[:, 0]]
        self.positions += len(hidden)
        hidden = hidden + np.array([0, self.run[1] - self.run[0]], dtype=np.float32)
        token = None
        if step.finish is not None:
            logits = np.zeros(VOCAB, dtype=np.float32)
            logits[favourite(have)] = 5.0
            token = step.finish(logits)
        return Ran(step.run, step.session, step.epoch, step.position, len(hidden), hidden, token)

    def front(self, work: PrefixWork) -> None:
        match work.what:
            case "keep":
                self.fronts[work.digest] = self.cache[work.session][: work.count]
            case "share":
                self.cache[work.session] = list(self.fronts[work.digest])
            case "drop":
                del self.fronts[work.digest]


def favourite(tokens: Iterable[int]) -> int:
    value = 17
    for token in tokens:
        value = (value * 31 + token + 1) % 1_000_003
    return value % VOCAB


def expected(prompt: list[int], count: int, end: tuple[int, ...] = ()) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(favourite(tokens))
        if tokens[-1] in end:
            break
    return tokens[len(prompt) :]


def plan_of(version: int, cuts: list[int], peers: list[str]) -> PlanRecord:
    borders = [0, *cuts, UNITS]
    stages = tuple(PlanStage(a, b, p) for (a, b), p in zip(pairwise(borders), peers, strict=True))
    return PlanRecord(version, stages, 0, 0)


def as_route(plan: PlanRecord) -> Route:
    return Route(plan.version, route_of(plan))


def opening(
    session: bytes,
    route: tuple[str, ...],
    stage: int,
    origin: str = "asker",
    prompt: int = 1,
    generated: int = 0,
) -> Open:
    """The first turn of a session that begins."""
    spans = (prompt - generated, generated) if generated else (prompt,)
    return Open(
        *(session, 1, 1, route, stage, origin, 0, prompt, 4, WIRE, (), generated, 0),
        *(1, 0, 0, spans, (), (), ()),
    )


class World:
    """Peers, askers and ordered links with random delays, all driven from one seed."""

    def __init__(self, seed: int, plans: list[PlanRecord], slots: int = 8) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.queue: list[tuple[float, int, str, str, object]] = []
        self.order = 0
        self.arrival: dict[tuple[str, str], float] = {}
        self.plans = plans
        self.cores: dict[str, StageCore] = {}
        self.runtimes: dict[tuple[str, tuple[int, int]], ToyRuntime] = {}
        self.gone: set[str] = set()
        self.origins: dict[bytes, OriginSession] = {}
        self.emitted: dict[bytes, list[int]] = {}
        self.outcome: dict[bytes, str] = {}
        self.searching: set[bytes] = set()
        for plan in plans:
            for stage in plan.stages:
                self.cores.setdefault(stage.primary, self.stage_core(stage.primary))
                self.runtimes[stage.primary, (stage.first, stage.stop)] = ToyRuntime(
                    (stage.first, stage.stop)
                )
        served = {
            p.version: tuple((frozenset((s.primary, *s.standbys)), (s.first, s.stop)) for s in p.stages)
            for p in plans
        }
        for peer, core in self.cores.items():
            core.serve(served, {run: slots for owner, run in self.runtimes if owner == peer})

    def stage_core(self, peer: str) -> StageCore:
        """The stages of one peer."""
        return StageCore(peer)

    def post(self, at: float, src: str, dst: str, item: object) -> None:
        self.order += 1
        heapq.heappush(self.queue, (at, self.order, src, dst, item))

    def send(self, src: str, dst: str, frame: Frame) -> None:
        at = max(self.now + self.random.uniform(0.0, 0.05), self.arrival.get((src, dst), 0.0))
        self.arrival[src, dst] = at
        self.post(at, src, dst, frame)

    def ask(self, session: bytes, origin: str, plan: PlanRecord, ask: Ask) -> None:
        core = self.origins.get(session)
        if core is None:
            core = self.origins[session] = OriginSession(session, origin)
        self.emitted[session] = []
        self.outcome.pop(session, None)
        self.from_origin(core, core.begin(self.now, as_route(plan), ask))

    def from_origin(self, core: OriginSession, effects: list[OriginEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, frame) | Spare(peer, frame):
                    self.send(core.me, peer, frame)
                case Suspect():
                    pass
                case Emit(token, position):
                    assert position == len(core.tokens) - 1
                    self.emitted[core.session].append(token)
                case Ended(why):
                    self.outcome[core.session] = why
                case Broken(text, _):
                    self.outcome[core.session] = f"broken: {text}"
                case FindRoute():
                    self.searching.add(core.session)

    def from_stage(self, peer: str, effects: list[StageEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, frame) | Spare(to, frame):
                    self.send(peer, to, frame)
                case RunStep():
                    self.send_result(peer, effect)
                case FreeSlot(run, session):
                    self.runtimes[peer, run].cache.pop(session, None)
                case PrefixWork(run=run):
                    self.runtimes[peer, run].front(effect)

    def send_result(self, peer: str, step: RunStep) -> None:
        result = self.runtimes[peer, step.run].step(step)  # in submission order, as the worker does
        at = max(self.now + self.random.uniform(0.001, 0.02), self.arrival.get((peer, "worker"), 0.0))
        self.arrival[peer, "worker"] = at
        self.post(at, "worker", peer, result)

    def deliver(self, src: str, dst: str, item: object) -> None:
        if src in self.gone or dst in self.gone:
            return
        core = self.cores.get(dst)
        match item:
            case Open() if core:
                self.from_stage(dst, core.open(self.now, src, item))
            case Step() if core:
                self.from_stage(dst, core.step(self.now, src, item))
            case Cancel() if core:
                self.from_stage(dst, core.cancel(src, item))
            case Release() if core:
                self.from_stage(dst, core.release(src, item))
            case Ran() if core:
                self.from_stage(dst, core.ran(self.now, item))
            case NotRan() if core:
                self.from_stage(dst, core.not_ran(self.now, item))
            case Where() if core:
                self.from_stage(dst, core.where(src, item))
            case Feed(session=session):
                if core:
                    self.from_stage(dst, core.feed(self.now, src, item))
                origin = self.origins.get(session)
                if origin and origin.me == dst and not item.stage:
                    self.from_origin(origin, origin.feed(self.now, src, item))
            case Here(session=session):
                origin = self.origins.get(session)
                if origin and origin.me == dst:
                    self.from_origin(origin, origin.here(self.now, src, item))
            case Token(session=session):
                if core:
                    self.from_stage(dst, core.token(self.now, src, item))
                origin = self.origins.get(session)
                if origin and origin.me == dst:
                    self.from_origin(origin, origin.token(self.now, src, item))
            case Refuse(session=session):
                origin = self.origins.get(session)
                if origin and origin.me == dst:
                    self.from_origin(origin, origin.refused(self.now, src, item))

    def run(self, until: float = 1e9, stop_after: int | None = None) -> None:
        delivered = 0
        while self.queue and self.queue[0][0] <= until:
            self.now, _, src, dst, item = heapq.heappop(self.queue)
            self.deliver(src, dst, item)
            delivered += 1
            assert delivered < 200_000
            if stop_after is not None and delivered >= stop_after:
                return

    def leave(self, peer: str) -> None:
        self.from_stage(peer, self.cores[peer].leave())


GREEDY = Sampling()
WIRE = tuple(GREEDY.to_wire())


def asks(rng: random.Random, count: int) -> list[Ask]:
    lengths = [rng.choice([1, 2, CHUNK_TOKENS, CHUNK_TOKENS + 1, 3 * CHUNK_TOKENS + 5]) for _ in range(count)]
    prompts = [[rng.randrange(VOCAB) for _ in range(length)] for length in lengths]
    return [Ask(tuple(prompt), rng.randint(1, 30), GREEDY, (13,)) for prompt in prompts]
