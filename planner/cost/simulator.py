"""Decides by playing, event by event, what a placement does: rounds of decode cohorts, a prompt in chunks.

The check on `cost`: an event queue, peers and links that serve one thing at a time, no formula. In whole picoseconds.
`trace` keeps who did what when, for timelines.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from planner.cost import evaluator
from planner.types import Link, PlanRequest, Stage

SETTLED = 4  # equal rounds in a row after which nothing new can come
MOST_ROUNDS = 400


@dataclass(frozen=True, slots=True)
class Work:
    """One bar of a timeline: `where` is a peer, or "a -> b" for a transfer."""

    where: str
    what: Literal["stage", "transfer"]
    stage: int
    batch: int  # cohort or chunk
    turn: int  # round of decode; 0 in a prompt
    start_ps: int
    stop_ps: int


@dataclass(slots=True)
class _Player:
    """Time, who is busy, who waits. A station serves in order of arrival, or in its own order where it has one."""

    events: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    now: int = 0
    count: int = 0
    busy: set[str] = field(default_factory=set)
    waiting: dict[str, deque[tuple[int, Callable[[], None]]]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    trace: list[Work] = field(default_factory=list)

    def after(self, delay: int, then: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, then))

    def use(self, station: str, duration: int, then: Callable[[int], None]) -> None:
        """Occupies `station` when it is free; `then` is told when that began."""

        def served() -> None:
            began = self.now - duration
            self.busy.discard(station)
            then(began)
            self._next(station)

        self.waiting[station].append((duration, served))
        self._next(station)

    def _next(self, station: str) -> None:
        if station not in self.busy and self.waiting[station]:
            duration, served = self.waiting[station].popleft()
            self.busy.add(station)
            self.after(duration, served)

    def run(self, until: Callable[[], bool]) -> None:
        while self.events and not until():
            self.now, _, then = heapq.heappop(self.events)
            then()


def decode_round_ps(request: PlanRequest, stages: Sequence[Stage]) -> int:
    """One token of one stream, played."""
    return _rounds(request, stages, 1, 1, [])[0]


def token_ps(request: PlanRequest, stages: Sequence[Stage], rows: int) -> Fraction:
    """Picoseconds per token of all sessions in cohorts of `rows`, once the rounds have settled."""
    turns = evaluator.cohorts(request.sessions, rows)
    rounds = _rounds(request, stages, rows, turns, [])
    return Fraction(rounds[-1], request.sessions)


def timeline(request: PlanRequest, stages: Sequence[Stage], rows: int, rounds: int = 3) -> tuple[Work, ...]:
    """What every peer and link does in the first rounds."""
    trace: list[Work] = []
    _rounds(request, stages, rows, evaluator.cohorts(request.sessions, rows), trace, rounds)
    return tuple(sorted(trace, key=lambda work: (work.start_ps, work.where, work.batch)))


def _rounds(
    request: PlanRequest,
    stages: Sequence[Stage],
    rows: int,
    batches: int,
    trace: list[Work],
    most: int = MOST_ROUNDS,
) -> list[int]:
    """How long each round of the first cohort took, until they are all alike."""
    peers = evaluator.profiles(request)
    hops = evaluator.hops(request, stages, evaluator.link_table(request))
    player, trace_to = _Player(), _Nothing() if most == MOST_ROUNDS else trace
    done: list[int] = [0]
    busy = [evaluator.place_ps(request, s, rows, peers, evaluator.link_table(request)) for s in stages]

    def settled() -> bool:
        gaps = [
            b - a for a, b in zip(done[-SETTLED * batches - 1 :], done[-SETTLED * batches :], strict=False)
        ]
        return len(done) > most or (
            most == MOST_ROUNDS and len(gaps) == SETTLED * batches and len(set(gaps)) == 1
        )

    def step(batch: int, at: int, turn: int) -> None:
        def served(began: int) -> None:
            trace_to.append(Work(stages[at].peer, "stage", at, batch, turn, began, player.now))
            if not hops:
                arrive(batch, 0, turn + 1)
                return
            link, size = hops[at]
            follower = (at + 1) % len(stages)
            onward = turn + (follower == 0)
            if link.src == link.dst:
                arrive(batch, follower, onward)
                return
            _send(
                player,
                link,
                at,
                evaluator.transfer_ps(link, size, rows),
                lambda: arrive(batch, follower, onward),
                Bar(batch, turn, trace_to),
            )

        player.use(stages[at].peer, busy[at], served)

    def arrive(batch: int, at: int, turn: int) -> None:
        if at == 0 and batch == 0 and turn > 0:
            done.append(player.now)
        step(batch, at, turn)

    for batch in range(batches):
        step(batch, 0, 0)
    player.run(settled)
    return [b - a for a, b in pairwise(done)]


class _Nothing(list[Work]):
    """A trace that nobody reads."""

    def append(self, item: Work) -> None:
        return


@dataclass(frozen=True, slots=True)
class Bar:
    """Whose transfer it is, and where its bar goes."""

    batch: int
    turn: int
    trace: list[Work]


def _send(player: _Player, link: Link, stage: int, transfer: int, then: Callable[[], None], bar: Bar) -> None:
    name = f"{link.src} -> {link.dst}"

    def sent(began: int) -> None:
        bar.trace.append(Work(name, "transfer", stage, bar.batch, bar.turn, began, player.now))
        player.after(evaluator.delay_ps(link), then)

    player.use(f"{name} after {stage}", transfer, sent)


def prefill_ps(
    request: PlanRequest,
    stages: Sequence[Stage],
    prompt_tokens: int,
    chunk_tokens: int,
    trace: list[Work] | None = None,
) -> int:
    """Until the origin has the first token, played. A peer with several places takes chunk after chunk."""
    peers, links = evaluator.profiles(request), evaluator.link_table(request)
    hops = evaluator.hops(request, stages, links)
    player, bars = _Player(), _Nothing() if trace is None else trace
    sizes = [min(chunk_tokens, prompt_tokens - start) for start in range(0, prompt_tokens, chunk_tokens)]
    order: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
    for chunk in range(len(sizes)):
        for at, stage in enumerate(stages):
            order[stage.peer].append((chunk, at))
    here: set[tuple[int, int]] = set()
    free: set[str] = set(order)
    finished: list[int] = []

    def arrive(chunk: int, at: int) -> None:
        here.add((chunk, at))
        begin(stages[at].peer)

    def begin(peer: str) -> None:
        if peer not in free or not order[peer] or order[peer][0] not in here:
            return
        chunk, at = order[peer].popleft()
        free.discard(peer)
        last = chunk == len(sizes) - 1
        busy = evaluator.place_chunk_ps(request, stages[at], sizes[chunk], peers, links, last=last)
        player.after(busy, lambda: end(chunk, at, player.now - busy))

    def end(chunk: int, at: int, began: int) -> None:
        peer = stages[at].peer
        bars.append(Work(peer, "stage", at, chunk, 0, began, player.now))
        free.add(peer)
        if at + 1 == len(stages):
            finished.append(player.now)
        elif hops[at][0].src == hops[at][0].dst:
            arrive(chunk, at + 1)
        else:
            link, size = hops[at]
            transfer = evaluator.transfer_ps(link, size, sizes[chunk])
            _send(player, link, at, transfer, lambda: arrive(chunk, at + 1), Bar(chunk, 0, bars))
        begin(peer)

    origin = request.origin or stages[0].peer
    entry = 0 if origin == stages[0].peer else evaluator.delay_ps(links[origin, stages[0].peer])
    for chunk in range(len(sizes)):
        player.after(entry, lambda chunk=chunk: arrive(chunk, 0))  # type: ignore[misc]
    player.run(lambda: len(finished) == len(sizes))
    total = finished[-1]
    if origin != stages[-1].peer:
        total += evaluator.hop_ps(links[stages[-1].peer, origin], request.units[-1].out_bytes_per_token, 1)
    return total
