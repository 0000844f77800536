"""Decides what a strategy allows: where stages may end, who may serve what, whether a peer may come back.

Each is a constraint on the one model:
  optimal        ends anywhere; a peer serves one run
  layer          ends between blocks only
  pipeline       stages of equally many blocks, within one (a view for each number of stages)
  component      ends between the named groups; a group's own peer serves it where it can
  attention-ffn  attention and feed-forward of a block on different peers, which take turns: two stages a block
  hybrid         ends anywhere, and peers may come back
  tensor         peers compute some units together, each a slice (planner.solvers.teams)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from planner.cost import evaluator
from planner.cost.objectives import MOST_STAGES, Component, Wish
from planner.errors import RequestError
from planner.solvers import lattice, reentry, teams
from planner.solvers.lattice import Lattice
from planner.solvers.network import Bools
from planner.types import PlanRequest, Stage

WIDTH = 2_000  # labels at a border where peers come back
SIDES = 64  # ways to say who serves attention and who feed-forward that are tried


def layer_borders(request: PlanRequest) -> Bools:
    """(L+1,) true except inside a block."""
    found = np.ones(len(request.units) + 1, dtype=np.bool_)
    for at, unit in enumerate(request.units[1:], start=1):
        if unit.kind == "ffn" and request.units[at - 1].kind == "attn":
            found[at] = False
    return found


def views(request: PlanRequest, wish: Wish, rows: int) -> list[Lattice]:
    """The chain problems of a strategy; none for those in which peers come back."""
    match wish.strategy:
        case "optimal":
            return [lattice.build(request, rows)]
        case "layer":
            return [lattice.build(request, rows, layer_borders(request))]
        case "pipeline":
            most = min(
                len(request.peers),
                int(layer_borders(request)[1:-1].sum()) + 1,
                wish.most_stages or MOST_STAGES,
            )
            return [
                lattice.build(request, rows, _equal(request, stages)).forced()
                for stages in range(1, most + 1)
            ]
        case "component":
            borders, allowed = _groups(request, wish.components)
            return [lattice.build(request, rows, borders, allowed)]
        case "attention-ffn" | "hybrid" | "tensor":
            return []
        case "expert" | "tiles":
            raise RequestError(
                f"strategy {wish.strategy}: not offered yet; optimal, layer, pipeline and others are"
            )


def refuse(request: PlanRequest, wish: Wish) -> str | None:
    """Why no plan of the strategy can be short enough, in numbers; None where one may be."""
    if wish.strategy == "tensor":
        return refuse_tensor(request, wish)
    if wish.strategy != "attention-ffn":
        return None
    kinds = [unit.kind for unit in request.units if unit.kind in ("attn", "ffn")]
    least = 1 + sum(one != other for one, other in pairwise(kinds))
    most = MOST_STAGES if wish.most_stages is None else min(wish.most_stages, MOST_STAGES)
    if least <= most:
        return None
    blocks = kinds.count("attn")
    limit = f"a mesh carries at most {most}" if most == MOST_STAGES else f"at most {most} were wished for"
    return f"attention-ffn has another peer after each half of {blocks} blocks, {least} stages; {limit}"


def refuse_tensor(request: PlanRequest, wish: Wish) -> str | None:
    """Why no team can be: of no unit it is known how it is cut, or all are too small; None where one may be."""
    if any(teams.cuttable(request, wish.min_tensor_bytes)):
        return None
    if any(teams.cuttable(request)):
        return f"tensor has nothing to cut: no unit that can be has {wish.min_tensor_bytes} bytes of weights"
    return "tensor has nothing to cut: of no unit it is known how it comes in slices"


def returning(
    request: PlanRequest, wish: Wish, width: int = WIDTH, most_sides: int = SIDES
) -> list[tuple[Stage, ...]]:
    """Placements of the strategies in which peers come back."""
    names = sorted(peer.peer for peer in request.peers)
    units = request.units
    if wish.strategy == "hybrid":
        found = reentry.least(request, None, width)
        return [] if found is None else [found.stages]
    if wish.strategy != "attention-ffn":
        return []
    made: list[tuple[Stage, ...]] = []
    for side in _sides(len(names), most_sides):
        allowed = np.ones((len(names), len(units)), dtype=np.bool_)
        for at, unit in enumerate(units):
            if unit.kind == "attn":
                allowed[:, at] = side
            elif unit.kind == "ffn":
                allowed[:, at] = ~side
        found = reentry.least(request, allowed, width)
        if found is not None:
            made.append(found.stages)
    return made


def keeps(request: PlanRequest, wish: Wish, stages: Sequence[Stage]) -> bool:
    """Whether stages are what the strategy of `wish` allows."""
    stops = [stage.stop for stage in stages]
    match wish.strategy:
        case "optimal" | "hybrid":
            return True
        case "layer":
            return bool(layer_borders(request)[stops].all())
        case "pipeline":
            return stops == [int(stop) for stop in np.flatnonzero(_equal(request, len(stages)))] + [stops[-1]]
        case "component":
            try:
                borders, allowed = _groups(request, wish.components)
            except RequestError:
                return False
            names = sorted(peer.peer for peer in request.peers)
            borders[-1] = True
            return bool(borders[stops].all()) and all(
                stage.peer in names and bool(allowed[names.index(stage.peer), stage.first : stage.stop].all())
                for stage in stages
            )
        case "attention-ffn":
            by_kind: dict[str, set[str]] = {"attn": set(), "ffn": set()}
            for stage in stages:
                for unit in request.units[stage.first : stage.stop]:
                    by_kind.setdefault(unit.kind, set()).add(stage.peer)
            return not by_kind["attn"] & by_kind["ffn"]
        case "tensor":
            return any(stage.helpers for stage in stages)
        case "expert" | "tiles":
            return False


def _sides(peers: int, most: int) -> list[Bools]:
    """Who serves attention: few of them first, at most so many ways."""
    made: list[Bools] = []
    for count in range(1, peers):
        for chosen in combinations(range(peers), count):
            side = np.zeros(peers, dtype=np.bool_)
            side[list(chosen)] = True
            made.append(side)
            if len(made) == most:
                return made
    return made


def _equal(request: PlanRequest, stages: int) -> Bools:
    """Borders of so many stages with equally many blocks, the longer ones first; ends go with their neighbours."""
    starts = [at for at, unit in enumerate(request.units) if unit.kind in ("attn", "ffn")]
    open_borders = layer_borders(request)
    blocks = [at for at in starts if at == starts[0] or open_borders[at]]
    found = np.zeros(len(request.units) + 1, dtype=np.bool_)
    if len(blocks) < stages:
        blocks = list(range(len(request.units)))
    whole, longer = divmod(len(blocks), stages)
    at = 0
    for stage in range(stages - 1):
        at += whole + (stage < longer)
        found[blocks[at]] = True
    return found


def _groups(request: PlanRequest, components: Sequence[Component]) -> tuple[Bools, Bools]:
    names = sorted(peer.peer for peer in request.peers)
    known, count = evaluator.profiles(request), len(request.units)
    borders, at = np.zeros(count + 1, dtype=np.bool_), 0
    allowed = np.ones((len(names), count), dtype=np.bool_)
    for group in sorted(components, key=lambda group: group.first):
        if group.first != at or not group.first < group.stop <= count:
            raise RequestError(
                f"component {group.name}: expected units from {at} on, got {group.first}-{group.stop}"
            )
        at = group.stop
        borders[at] = True
        peer = None if group.prefers is None else known.get(group.prefers)
        if peer is not None and evaluator.refuse_runs(request, peer, [(group.first, group.stop)]) is None:
            allowed[:, group.first : group.stop] = False
            allowed[names.index(peer.peer), group.first : group.stop] = True
    if at != count:
        raise RequestError(f"components: expected groups that hold all {count} units, got {at}")
    return borders, allowed
