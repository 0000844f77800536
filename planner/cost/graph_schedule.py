"""One run of a placement in time: who computes which units, what goes over which link, and the critical path.

Pure. The critical path is the chain of stages and transfers, each begun in the moment in which the one before it ended,
that leads from the start to the end of the run: only who makes one of them shorter makes the run shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.cost.evaluator import PICO
from planner.cost.graph_cost import GraphRequest, GraphStage
from planner.cost.graph_evaluator import Board, Computed, Place, Sent, play


@dataclass(frozen=True, slots=True)
class StageSpan:
    """A stage at work. `component`: that of its units, or "" where they have several, or one that nobody can read."""

    peer: str
    first: int
    stop: int
    begins_s: float
    ends_s: float
    critical: bool
    bytes: int
    standbys: tuple[str, ...]
    component: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """A value on its way. `begins_s`: when its link begins to send it, which may be after it was made."""

    value: str
    src: str
    dst: str
    bytes: int
    begins_s: float
    ends_s: float
    critical: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """Stages in the order of units, transfers in the order in which they begin. `unlinked`: links that are needed and
    not there, over which values take no time here.
    """

    stages: tuple[StageSpan, ...]
    transfers: tuple[Transfer, ...]
    latency_s: float
    rate_per_s: float
    unlinked: tuple[tuple[str, str], ...] = ()

    @property
    def peers(self) -> tuple[str, ...]:
        """Who computes, in the order of the first units."""
        return tuple(dict.fromkeys(stage.peer for stage in self.stages))

    @property
    def critical(self) -> tuple[StageSpan | Transfer, ...]:
        """The critical path in time."""
        steps: list[StageSpan | Transfer] = [step for step in self.stages if step.critical]
        steps += [step for step in self.transfers if step.critical]
        return tuple(sorted(steps, key=lambda step: (step.begins_s, step.ends_s, isinstance(step, Transfer))))

    def named(self, name: Callable[[str], str]) -> Schedule:
        """The same with other names for peers."""
        stages = (
            replace(stage, peer=name(stage.peer), standbys=tuple(map(name, stage.standbys)))
            for stage in self.stages
        )
        transfers = (replace(each, src=name(each.src), dst=name(each.dst)) for each in self.transfers)
        unlinked = tuple((name(src), name(dst)) for src, dst in self.unlinked)
        return replace(self, stages=tuple(stages), transfers=tuple(transfers), unlinked=unlinked)


def schedule(request: GraphRequest, stages: Sequence[GraphStage]) -> Schedule:
    """One run alone. `stages` cover all units in order; whether they fit into memory is not asked.

    Raises RequestError for a peer that is not there.
    """
    board = Board.of(request)
    places = board.places(stages)
    events: list[Sent | Computed] = []
    played = play(board, places, events)
    critical = _critical(board, places, events, played.latency_ps)
    spans, transfers = list[StageSpan](), list[Transfer]()
    for at, event in enumerate(events):
        match event:
            case Computed(number, begins, ends):
                stage = stages[number]
                components = {unit.component for unit in request.work.units[stage.first : stage.stop]}
                spans.append(
                    StageSpan(
                        stage.peer,
                        stage.first,
                        stage.stop,
                        begins / PICO,
                        ends / PICO,
                        at in critical,
                        board.stage_bytes(stage.first, stage.stop),
                        stage.standbys,
                        components.pop()
                        if len(components) == 1 and all(map(str.isprintable, components))
                        else "",
                    )
                )
            case Sent(number, (src, dst), _, begins, _, there):
                edge = request.work.edges[number]
                transfers.append(
                    Transfer(
                        edge.value,
                        board.name(src),
                        board.name(dst),
                        edge.bytes,
                        begins / PICO,
                        there / PICO,
                        at in critical,
                    )
                )
    return Schedule(
        tuple(sorted(spans, key=lambda span: span.first)),
        tuple(sorted(transfers, key=lambda each: each.begins_s)),
        played.latency_ps / PICO,
        PICO / max(1, played.period_ps),
        tuple((board.name(src), board.name(dst)) for src, dst in sorted(played.missing)),
    )


def _critical(
    board: Board, places: Sequence[Place], events: Sequence[Sent | Computed], latency_ps: int
) -> frozenset[int]:
    """The events of the critical path, from the last one back: each by what ended when it began."""
    at = max((at for at, event in enumerate(events) if _end(event) == latency_ps), default=None)
    found: set[int] = set()
    while at is not None:
        found.add(at)
        event = events[at]
        causes = [
            before
            for before in range(at)
            if _end_for(events[before], event) == _begin(event)
            and _leads(board, places, events[before], event)
        ]
        at = causes[-1] if causes else None
    return frozenset(found)


def _begin(event: Sent | Computed) -> int:
    return event.begins_ps


def _end(event: Sent | Computed) -> int:
    return event.there_ps if isinstance(event, Sent) else event.ends_ps


def _end_for(event: Sent | Computed, after: Sent | Computed) -> int:
    """When `event` was over for `after`: a link is free once it has sent, before what it sent is there."""
    if isinstance(event, Sent) and isinstance(after, Sent):
        return event.sent_ps
    return _end(event)


def _leads(board: Board, places: Sequence[Place], event: Sent | Computed, after: Sent | Computed) -> bool:
    """Whether `after` could not begin before `event` was over."""
    match event, after:
        case Computed(), Computed():
            first, stop, peer = places[event.stage]
            own, end, other = places[after.stage]
            needed = {number for unit in board.needs[own:end] for number in unit}
            makes = {number for unit in board.makes[first:stop] for number in unit}
            return peer == other or bool(needed & makes)
        case Sent(), Computed():
            own, end, peer = places[after.stage]
            return event.way[1] == peer and any(event.edge in unit for unit in board.needs[own:end])
        case Computed(), Sent():
            first, stop, peer = places[event.stage]
            return peer == after.way[0] and any(after.edge in unit for unit in board.makes[first:stop])
        case Sent(), Sent():
            return event.way == after.way
    return False
