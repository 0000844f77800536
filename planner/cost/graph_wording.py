"""Decides the sentences by which the plan of a graph says why it was chosen, or what is missing for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.cost import graph_evaluator
from planner.cost.evaluator import PICO
from planner.cost.graph_cost import GraphRequest, GraphStage
from planner.cost.graph_evaluator import Board
from planner.cost.independent_copies import COPIES, shared
from planner.cost.wording import NAMED, mib, ms
from planner.model.arithmetic_class import other_bits

NAMED_STAGES = 6  # of a split, that a sentence lists


def order(stages: Sequence[GraphStage]) -> str:
    """The peers of the stages in the order of units, for people."""
    names = [stage.peer for at, stage in enumerate(stages) if not at or stages[at - 1].peer != stage.peer]
    return " > ".join(names) if len(names) <= NAMED_STAGES else f"{len(stages)} stages"


def reasons(
    request: GraphRequest, stages: Sequence[GraphStage], rival: Sequence[GraphStage] | None
) -> tuple[str, ...]:
    """Why these stages: against the best of the other sort (one peer, or a split), and what limits them."""
    found = graph_evaluator.evaluate(request, stages)
    latency = request.objective == "latency"

    def figure(of: graph_evaluator.GraphFigures) -> str:
        return f"{ms(of.latency_s)} a run" if latency else f"{of.rate_per_s:.1f} runs/s"

    names = sorted({stage.peer for stage in stages})
    other = None if rival is None else graph_evaluator.evaluate(request, rival)
    lines: list[str] = []
    if len(names) == 1:
        line = f"Not split: {names[0]} alone {'needs' if latency else 'gives'} {figure(found)}"
        if rival is not None and other is not None:
            line += f"; the best split ({order(rival)}) {'needs' if latency else 'gives'} {figure(other)}"
        lines.append(f"{line}.")
    elif rival is not None and other is not None:
        lines.append(
            f"Split over {len(names)} peers: {figure(found)}, against {figure(other)} on {rival[0].peer} alone."
        )
    else:
        board = Board.of(request)
        need = board.stage_bytes(0, len(board.needs))
        short, name = min((need - free, name) for name, free in zip(board.names, board.free, strict=True))
        lines.append(
            f"Split over {len(names)} peers: none has room for all units; {name} comes closest, {mib(short)} short."
            if short > 0
            else f"Split over {len(names)} peers: no peer with room for all units may run them alone."
        )
    beside = side_by_side(request, stages)
    if beside > 0:
        lines.append(f"Peers work side by side for {ms(beside)} of a run.")
    lines.append(
        f"A stream gets {found.rate_per_s:.1f} runs/s; limit: {found.limit} at {ms(found.period_s)} a run."
    )
    return tuple(lines)


def side_by_side(request: GraphRequest, stages: Sequence[GraphStage]) -> float:
    """For how long of a run alone two or more peers compute, in seconds."""
    spans = graph_evaluator.timeline(request, stages)
    moments = sorted([(span.begins_s, 1) for span in spans] + [(span.ends_s, -1) for span in spans])
    busy, since, total = 0, 0.0, 0.0
    for at, change in moments:
        if busy >= 2:
            total += at - since
        busy, since = busy + change, at
    return total if total > 1 / PICO else 0.0


def copies(request: GraphRequest, stages: Sequence[GraphStage]) -> tuple[str, ...]:
    """Sentences on stages that are held as they should not be, where standbys are wanted."""
    if not request.standbys:
        return ()
    known = {peer.peer: peer for peer in request.peers}
    lone, together, unlike = list[str](), list[str](), list[str]()
    for number, stage in enumerate(stages, start=1):
        primary = known[stage.peer]
        if not stage.standbys:
            lone.append(str(number))
        elif all(shared(known[name], [primary]) for name in stage.standbys):
            together.append(str(number))
        first = stage.standbys[:1]
        if first and other_bits(primary.facts.arithmetic, known[first[0]].facts.arithmetic):
            unlike.append(str(number))
    said = [
        (lone, "no standby: nobody else has the room or the links"),
        (together, "standbys only on peers that fail together with the primary"),
        (unlike, "a standby with other arithmetic: after a takeover the last digits may differ"),
    ]
    return tuple(f"{COPIES}{_stages(numbers)} {what}." for numbers, what in said if numbers)


def _stages(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return f"stage {numbers[0]} has"
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return f"stages {', '.join(numbers[:NAMED])}{more} have"


def method(request: GraphRequest, *, exact: bool) -> str:
    """How sure the plan is."""
    peers, units = len(request.peers), len(request.work.units)
    of = f"{units} unit{'s' * (units != 1)} on {peers} peer{'s' * (peers != 1)}"
    return (
        f"The best of all placements of {of}." if exact else f"Found by search, {of}: good, not proven best."
    )


def no_peers(request: GraphRequest) -> str:
    """What is missing where no peer is there."""
    board = Board.of(request)
    return f"no peer is there; the model needs {mib(board.stage_bytes(0, len(board.needs)))}"


def lacking(extra: Iterable[tuple[str, int]], *, exact: bool) -> str:
    """Which memory a plan lacks."""
    pairs = tuple(extra)
    total = sum(size for _, size in pairs)
    more = f" and {len(pairs) - NAMED} more" if len(pairs) > NAMED else ""
    where = ", ".join(f"{mib(size)} on {peer}" for peer, size in pairs[:NAMED])
    on = f"on {pairs[0][0]}" if len(pairs) == 1 else f"in total ({where}{more})"
    return f"needs {'' if exact else 'at most '}{mib(total)} more {on}; or another peer"


def too_many(stages: int, most: int) -> str:
    """That a plan has more stages than are possible, where memory and links would do."""
    return f"no memory would help: it needs at most {stages} stages, and {most} are the most"


def unlinked(names: Sequence[tuple[str, str]]) -> str:
    """Which links a plan lacks, where the memory would do."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    ways = ", ".join(f"{a} to {b}" for a, b in names[:NAMED])
    return f"no memory would help: peers have the room, but links are missing ({ways}{more})"
