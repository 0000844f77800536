"""Chains of runs of units that other models have loaded, where a stage takes less memory than anywhere else.

Pure. The solvers add the weights of units up, border by border, and know no room for a stage that fits only as a whole
beside the same of another model. So the cuts of the other model are tried as they are, on the peers that have them
loaded and on others with room; work is bounded, and of many chains those that share most come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from planner.cost import evaluator
from planner.cost.evaluator import make_stage
from planner.types import PlanRequest, SharedRun, Stage

NAME: Final = "places where other models have the same weights loaded"
CHAINS: Final = 64  # that are valued
STEPS: Final = 4096  # stages that are tried on the way to them


def chains(request: PlanRequest) -> list[tuple[Stage, ...]]:
    """The chains over such runs that can be served, at most CHAINS, no peer twice in one."""
    if not any(each.bytes for each in request.shared):
        return []
    known = evaluator.profiles(request)
    found: list[tuple[Stage, ...]] = []
    for path in _paths(request, sorted(known), fitting=True):
        stages = tuple(make_stage(request, known[peer], first, stop) for peer, first, stop in path)
        if evaluator.refuse(request, stages) is None:
            found.append(stages)
        if len(found) == CHAINS:
            break
    return found


def shortfall(request: PlanRequest) -> tuple[tuple[str, int], ...]:
    """What the chain of such runs lacks that lacks least, by peer; () where there is none, or where it lacks nothing
    but links.
    """
    if not any(each.bytes for each in request.shared):
        return ()
    known = evaluator.profiles(request)
    best: tuple[tuple[str, int], ...] = ()
    for at, path in enumerate(_paths(request, sorted(known), fitting=False)):
        lacks = [
            (peer, evaluator.places_bytes(request, known[peer], [(first, stop)]) - known[peer].memory_bytes)
            for peer, first, stop in path
        ]
        extra = tuple(sorted((peer, size) for peer, size in lacks if size > 0))
        if extra and (not best or sum(size for _, size in extra) < sum(size for _, size in best)):
            best = extra
        if at == CHAINS:
            break
    return best


Path = tuple[tuple[str, int, int], ...]  # peer, first, stop of each stage


def _paths(request: PlanRequest, names: Sequence[str], *, fitting: bool) -> Iterator[Path]:
    """Chains over all units, those first that share most; `fitting`: of stages that their peers have room for."""
    known = evaluator.profiles(request)
    loaded = {(each.first, each.stop, each.peer): each.bytes for each in request.shared}
    runs = sorted({(each.first, each.stop) for each in request.shared})
    options: dict[int, list[tuple[int, int, str]]] = {}  # by first unit: what is not shared, stop, peer
    for first, stop in runs:
        most = max((each.bytes for each in _of(request, first, stop)), default=0)
        for name in names:
            if not fitting or evaluator.refuse_runs(request, known[name], [(first, stop)]) is None:
                options.setdefault(first, []).append((most - loaded.get((first, stop, name), 0), stop, name))
    for each in options.values():
        each.sort()
    steps = 0

    def onwards(at: int, path: Path) -> Iterator[Path]:
        nonlocal steps
        if at == len(request.units):
            yield path
            return
        taken = {peer for peer, *_ in path}
        for _, stop, name in options.get(at, ()):
            if name in taken or steps >= STEPS:
                continue
            steps += 1
            yield from onwards(stop, (*path, (name, at, stop)))

    yield from onwards(0, ())


def _of(request: PlanRequest, first: int, stop: int) -> list[SharedRun]:
    return [each for each in request.shared if (each.first, each.stop) == (first, stop)]
