"""What a placement of a graph costs: seconds of one run, runs a second of a stream, bytes on each peer.

The one evaluator of graphs; solvers read their times from here. Whole picoseconds, so that a tie is a tie. The model:
  stage     step_s + flops / flops_per_s of its units. It starts when all it needs is there, and what it makes is
            there when it ends, since its units are one graph.
  peer      runs one stage at a time, without interruption: of those that are ready the one that was ready first; of
            equals the one with the earlier units
  transfer  bytes / bytes_per_s on the link, which sends one value at a time in the order in which they were made (of
            one stage: in the order of the model's values), then rtt_s / 2 + overhead_s. A peer that needs a value gets
            it once, and from itself at once.
  origin    has all inputs at the start, and needs a link to and from those who use them and make outputs
  latency   until the last stage has ended and the origin has all outputs: the critical path of one run alone
  rate      a stream keeps the busiest peer or link at work, so one run takes what that is busy for it. A peer is
            busy with values that it sends or takes, too: bytes * handling_s_per_byte, but no longer than the link is,
            which delays no run that is alone
A peer holds the weights of its units, and for each stage the scratch of its widest unit.
`planner.cost` has no clock: the tests play the same events by a queue and reach the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate

from planner.cost import evaluator
from planner.cost.evaluator import PICO, picoseconds
from planner.cost.graph_cost import GraphPeer, GraphRequest, GraphStage
from planner.errors import RequestError
from planner.types import Link

Place = tuple[int, int, int]  # units [first, stop), peer by its place among the sorted names
Way = tuple[int, int]  # peers of a link


@dataclass(frozen=True, slots=True)
class Board:
    """The numbers of a request by place: peers sorted by name, an origin that computes nothing after them."""

    request: GraphRequest
    names: tuple[str, ...]
    origin: int | None
    steps: tuple[int, ...]  # picoseconds
    busy: tuple[tuple[int, ...], ...]  # [peer][unit]: picoseconds of all units before it
    free: tuple[int, ...]
    weights: tuple[int, ...]  # [unit]: bytes of all units before it
    needs: tuple[tuple[int, ...], ...]  # [unit]: edges it uses
    makes: tuple[tuple[int, ...], ...]  # [unit]: edges it makes
    links: dict[Way, Link]
    edges: tuple[tuple[int | None, tuple[int, ...], bool], ...]  # source, users, whether the origin gets it
    handling: tuple[int, ...]  # [edge]: picoseconds of each peer at an end of its way
    ways: dict[Way, tuple[int, tuple[int, ...]]] = field(default_factory=dict)  # filled as links are used
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)  # of stages, filled as they are looked at

    @classmethod
    def of(cls, request: GraphRequest) -> Board:
        """`request` must have passed `check_graph_request`."""
        peers = sorted(request.peers, key=lambda peer: peer.peer)
        names = tuple(peer.peer for peer in peers)
        at = {name: place for place, name in enumerate(names)}
        if request.origin is not None:
            at.setdefault(request.origin, len(names))
        units, edges = request.work.units, request.work.edges
        needs: list[list[int]] = [[] for _ in units]
        makes: list[list[int]] = [[] for _ in units]
        for number, edge in enumerate(edges):
            for unit in edge.users:
                needs[unit].append(number)
            if edge.source is not None:
                makes[edge.source].append(number)
        return cls(
            request,
            names,
            None if request.origin is None else at[request.origin],
            tuple(picoseconds(peer.step_s) for peer in peers),
            tuple(_sums(picoseconds(unit.flops / peer.flops_per_s) for unit in units) for peer in peers),
            tuple(peer.free_bytes for peer in peers),
            _sums(unit.weight_bytes for unit in units),
            tuple(tuple(numbers) for numbers in needs),
            tuple(tuple(numbers) for numbers in makes),
            {
                (at[link.src], at[link.dst]): link
                for link in request.links
                if {link.src, link.dst} <= at.keys()
            },
            tuple((edge.source, edge.users, edge.returned) for edge in edges),
            tuple(picoseconds(edge.bytes * request.handling_s_per_byte) for edge in edges),
        )

    def peer(self, at: int) -> GraphPeer:
        """The peer at a place."""
        return next(peer for peer in self.request.peers if peer.peer == self.names[at])

    def name(self, at: int) -> str:
        """The name of a peer, or of an origin that computes nothing."""
        return self.names[at] if at < len(self.names) else self.request.origin or ""

    def stage_ps(self, place: Place) -> int:
        """How long a stage keeps its peer busy."""
        first, stop, peer = place
        return self.steps[peer] + self.busy[peer][stop] - self.busy[peer][first]

    def stage_bytes(self, first: int, stop: int) -> int:
        """What a stage occupies on any peer."""
        found = self.sizes.get((first, stop))
        if found is None:
            scratch = max(unit.scratch_bytes for unit in self.request.work.units[first:stop])
            found = self.sizes[first, stop] = self.weights[stop] - self.weights[first] + scratch
        return found

    def way(self, src: int, dst: int) -> tuple[int, tuple[int, ...]] | None:
        """(delay, how long each edge occupies the link) in picoseconds; None without a link."""
        found = self.ways.get((src, dst))
        if found is None:
            link = self.links.get((src, dst))
            if link is None:
                return None
            found = (
                evaluator.delay_ps(link),
                tuple(evaluator.transfer_ps(link, edge.bytes, 1) for edge in self.request.work.edges),
            )
            self.ways[src, dst] = found
        return found

    def handle(self, peers_ps: list[int], way: Way, number: int) -> None:
        """Counts what the peers at both ends of a link have to do with an edge; an origin that computes nothing is no
        peer.
        """
        times = self.way(*way)
        handled = self.handling[number] if times is None else min(self.handling[number], times[1][number])
        for end in way:
            if end < len(peers_ps):
                peers_ps[end] += handled

    def places(self, stages: Iterable[GraphStage]) -> list[Place]:
        """Raises RequestError for a peer that is not there."""
        at = {name: place for place, name in enumerate(self.names)}
        found: list[Place] = []
        for stage in stages:
            if stage.peer not in at:
                raise RequestError(f"units {stage.first}-{stage.stop}: {stage.peer} is not there")
            found.append((stage.first, stage.stop, at[stage.peer]))
        return found


@dataclass(slots=True)
class Played:
    """One run alone: when each stage begins and ends, and how long everybody is busy with it. Picoseconds."""

    latency_ps: int
    spans: list[tuple[int, int]]  # by stage
    peers_ps: list[int]
    links_ps: dict[Way, int]
    missing: set[Way]  # links that are needed and not there; their transfers are counted as nothing

    @property
    def period_ps(self) -> int:
        """What the busiest peer or link is busy for each run of a stream."""
        return max(max(self.peers_ps), max(self.links_ps.values(), default=0))


@dataclass(frozen=True, slots=True)
class Sent:
    """That an edge went over a link in a run: when it was made, was sent from and until, and was there. Picoseconds."""

    edge: int
    way: Way
    made_ps: int
    begins_ps: int
    sent_ps: int
    there_ps: int


@dataclass(frozen=True, slots=True)
class Computed:
    """That the stage at a place of the placement was computed. Picoseconds."""

    stage: int
    begins_ps: int
    ends_ps: int


def play(board: Board, places: Sequence[Place], events: list[Sent | Computed] | None = None) -> Played:
    """Plays one run. `places` cover all units in order. `events` gets what happens, causes before what they cause."""
    origin, ways, edges = board.origin, board.ways, board.edges
    stage_of: list[int] = []
    for at, (first, stop, _) in enumerate(places):
        stage_of += [at] * (stop - first)
    ready, awaited = [0] * len(places), [0] * len(places)
    found = Played(0, [(0, 0)] * len(places), [0] * len(board.names), {}, set())
    linked, missing = found.links_ps, found.missing
    gone: dict[Way, int] = {}  # when a link has sent what it was given

    def send(way: Way, number: int, made: int) -> int:
        """When a value is there that was made on another peer."""
        times = ways.get(way) or board.way(*way)
        if times is None:
            missing.add(way)
            return made
        busy = times[1][number]
        before = gone.get(way, 0)
        sent = gone[way] = (before if before > made else made) + busy
        linked[way] = linked.get(way, 0) + busy
        board.handle(found.peers_ps, way, number)
        if events is not None:
            events.append(Sent(number, way, made, sent - busy, sent, sent + times[0]))
        return sent + times[0]

    takers: list[Iterable[int]] = []
    for number, (source, users, _) in enumerate(edges):
        if source is None:
            there = {} if origin is None else {origin: 0}
            for stage in dict.fromkeys([stage_of[unit] for unit in users]):
                peer = places[stage][2]
                if peer not in there:
                    there[peer] = 0 if origin is None else send((origin, peer), number, 0)
                ready[stage] = max(ready[stage], there[peer])
            takers.append(())
            continue
        own = stage_of[source]
        if not users or places[own][1] > users[-1]:  # nobody else uses it
            takers.append(())
            continue
        stages = dict.fromkeys([stage_of[unit] for unit in users])
        stages.pop(own, None)
        takers.append(stages)
        for stage in stages:
            awaited[stage] += 1
    free, peers_ps, latency = [0] * len(board.names), found.peers_ps, 0
    queue = [(ready[at], ready[at], at) for at, count in enumerate(awaited) if not count]
    heapify(queue)
    while queue:
        start, since, at = queue[0]
        first, stop, peer = places[at]
        if free[peer] > start:
            heapreplace(queue, (free[peer], since, at))
            continue
        heappop(queue)
        busy = board.steps[peer] + board.busy[peer][stop] - board.busy[peer][first]
        end = free[peer] = start + busy
        peers_ps[peer] += busy
        found.spans[at] = (start, end)
        if events is not None:
            events.append(Computed(at, start, end))
        if end > latency:
            latency = end
        for makes in board.makes[first:stop]:
            for number in makes:
                returned = edges[number][2] and origin is not None
                if not returned and not takers[number]:
                    continue
                there = {peer: end}
                for stage in takers[number]:
                    to = places[stage][2]
                    arrives = there.get(to)
                    if arrives is None:
                        arrives = there[to] = send((peer, to), number, end)
                    if arrives > ready[stage]:
                        ready[stage] = arrives
                    awaited[stage] -= 1
                    if not awaited[stage]:
                        heappush(queue, (ready[stage], ready[stage], stage))
                if returned and origin is not None:
                    if origin not in there:
                        there[origin] = send((peer, origin), number, end)
                    if there[origin] > latency:
                        latency = there[origin]
    found.latency_ps = latency
    return found


def held_bytes(board: Board, places: Iterable[Place]) -> list[int]:
    """Bytes on each peer."""
    held = [0] * len(board.names)
    for first, stop, peer in places:
        held[peer] += board.stage_bytes(first, stop)
    return held


def refuse(board: Board, stages: Sequence[GraphStage]) -> str | None:
    """Why these stages, with their standbys, cannot run; None when they can."""
    there = set(board.names)
    at = 0
    for stage in stages:
        if stage.first != at or stage.stop <= stage.first:
            return f"expected a stage from unit {at} on, got {stage.first}-{stage.stop}"
        at = stage.stop
        names = (stage.peer, *stage.standbys)
        if len(set(names)) < len(names):
            return f"units {stage.first}-{stage.stop}: a peer has the same units twice"
        for name in names:
            if name not in there:
                return f"{name} is not there"
            lacks = unable(board.request, name, stage.first, stage.stop)
            if lacks is not None:
                return lacks
    if at != len(board.needs):
        return f"expected stages that cover {len(board.needs)} units, got {at}"
    copies = [GraphStage(s.first, s.stop, name) for s in stages for name in (s.peer, *s.standbys)]
    for peer, held in enumerate(held_bytes(board, board.places(copies))):
        if held > board.free[peer]:
            return f"{board.names[peer]} has {board.free[peer]} bytes free, its stages need {held}"
    missing = play(board, board.places(stages)).missing
    return next((f"no link from {board.name(a)} to {board.name(b)}" for a, b in sorted(missing)), None)


def unable(request: GraphRequest, name: str, first: int, stop: int) -> str | None:
    """Which operator of these units, or type of their values, a peer lacks; None when it has them all."""
    peer = next(peer for peer in request.peers if peer.peer == name)
    known, engine, opset = peer.facts.ops, peer.engine, request.work.opset
    if engine.newest_opset is not None and opset > engine.newest_opset:
        return f"{name} has operators up to opset {engine.newest_opset}, and opset {opset} is needed"
    for unit in request.work.units[first:stop]:
        lacks = [op for op in unit.ops if known is not None and op not in known]
        if engine.types is not None:
            lacks += [f"values of {each}" for each in unit.types if each not in engine.types]
        if lacks:
            return f"{name} has no {lacks[0]}, which {unit.name} needs"
    return None


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """Predicted figures of one placement."""

    latency_s: float
    rate_per_s: float
    period_s: float  # of each run of a stream
    limit: str  # what is busiest: "a" or "link a -> b"


@dataclass(frozen=True, slots=True)
class Span:
    """One bar of a picture: units [first, stop) on `peer` in a run alone."""

    peer: str
    first: int
    stop: int
    begins_s: float
    ends_s: float


def evaluate(request: GraphRequest, stages: Sequence[GraphStage]) -> GraphFigures:
    """Figures of a placement. Raises RequestError, saying why, when the stages cannot run."""
    board, played = _played(request, stages)
    period = played.period_ps
    busiest = next((board.names[at] for at, busy in enumerate(played.peers_ps) if busy == period), None)
    ways = sorted(way for way, busy in played.links_ps.items() if busy == period)
    limit = busiest if busiest is not None else f"link {board.name(ways[0][0])} -> {board.name(ways[0][1])}"
    rate = PICO / max(1, period)
    return GraphFigures(played.latency_ps / PICO, rate, period / PICO, limit)


def timeline(request: GraphRequest, stages: Sequence[GraphStage]) -> tuple[Span, ...]:
    """Who runs what, in time, for one run alone; by peer, then by time. Raises RequestError as `evaluate` does."""
    _, played = _played(request, stages)
    spans = [
        Span(stage.peer, stage.first, stage.stop, begins / PICO, ends / PICO)
        for stage, (begins, ends) in zip(stages, played.spans, strict=True)
    ]
    return tuple(sorted(spans, key=lambda span: (span.peer, span.begins_s, span.first)))


def _played(request: GraphRequest, stages: Sequence[GraphStage]) -> tuple[Board, Played]:
    board = Board.of(request)
    refusal = refuse(board, stages)
    if refusal is not None:
        raise RequestError(refusal)
    return board, play(board, board.places(stages))


def _sums(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(accumulate(numbers, initial=0))
