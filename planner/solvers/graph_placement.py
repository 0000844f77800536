"""Decides which peers run which units of a graph, who stands by, and whether the plan that serves stays.

Small graphs are placed exactly, others by search (`planner.solvers.graph_search`). A placement that runs on fewer peers
wins where splitting does not pay: keys put peers right behind the figure of the objective.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from planner.cost import graph_evaluator, graph_wording
from planner.cost.graph_cost import GraphPlan, GraphRequest, GraphStage, check_graph_request
from planner.cost.graph_evaluator import Board, Place, held_bytes, play
from planner.cost.graph_standbys import with_standbys
from planner.cost.wording import mib
from planner.errors import RequestError
from planner.solvers.graph_candidates import Atoms, Placement, valued
from planner.solvers.graph_exact import Exact, is_small
from planner.solvers.graph_search import EFFORT, Search
from planner.types import Infeasible

FIRST_EFFORT: Final = 90_000  # of the search that precedes an exact one
WORTH: Final = 0.9  # of the figure of the plan that serves: another must be at most so much


def place(request: GraphRequest, effort: int = EFFORT) -> GraphPlan | Infeasible:
    """The best placement by the request's objective. Raises RequestError for a request that breaks its rules.

    Where none keeps to preferred peers, or keeps components whole, the best that does not is taken, and says so.
    """
    check_graph_request(request)
    unknown = sorted(request.prefer.keys() - {unit.component for unit in request.work.units})
    if unknown:
        raise RequestError(f"prefer: expected components of the model, got {unknown[0][:80]!r}")
    if not request.peers:
        return Infeasible(graph_wording.no_peers(request), _whole_bytes(request))
    answer = _placed(request, effort)
    if isinstance(answer, Infeasible):
        for other, left_out in _loosened(request):
            found = _placed(other, effort)
            if isinstance(found, GraphPlan):
                return replace(
                    found, why=(*found.why, f"{left_out}: no plan keeps to them ({answer.reason}).")
                )
    return answer


def _loosened(request: GraphRequest) -> Iterable[tuple[GraphRequest, str]]:
    """The request without what may leave it no placement, the least first."""
    if request.prefer:
        yield replace(request, prefer={}), "Preferred peers are left out"
    if request.strategy == "component":
        yield replace(request, prefer={}, strategy="optimal"), "Components are cut"


def _placed(request: GraphRequest, effort: int) -> GraphPlan | Infeasible:
    board = Board.of(request)
    made = _atoms(board)
    if isinstance(made, Infeasible):
        return made
    atoms, said = made
    kept = _kept(board, atoms)
    search = Search(board, atoms, min(effort, FIRST_EFFORT) if is_small(board) else effort)
    found = search.best([] if kept is None else [_where(kept.places)])
    exact = False
    if is_small(board):
        solver = Exact(board, atoms, found)
        exact, found = solver.solve(), solver.best
        search.met(found)
        if not exact:
            search.more(effort)
            found = min(found, search.best([_where(found.places)]), key=lambda each: (each.key, each.places))
    if kept is not None and kept.key < found.key:  # its cuts are not among those that search tries
        found = kept
    if not found.fits:
        return _infeasible(board, found, exact=exact)
    stays: tuple[str, ...] = ()
    if kept is not None and kept.fits and found.key[2] > WORTH * kept.key[2]:
        gain = 1 - found.key[2] / max(1, kept.key[2])
        if found.places != kept.places and gain > 0:
            stays = (f"The plan stays: another would be {gain:.0%} better, less than {1 - WORTH:.0%}.",)
        found = kept
    stages = with_standbys(board, _stages(board, found.places))
    figures = graph_evaluator.evaluate(request, stages)
    rival = search.rival(split=len({peer for *_, peer in found.places}) > 1)
    why = (
        *graph_wording.reasons(request, stages, None if rival is None else _stages(board, rival.places)),
        *stays,
        *said,
        *graph_wording.copies(request, stages),
        *(() if stays else (graph_wording.method(request, exact=exact),)),
    )
    return GraphPlan(stages, figures.latency_s, figures.rate_per_s, why)


def _whole_bytes(request: GraphRequest) -> int:
    return Board.of(request).stage_bytes(0, len(request.work.units))


def _stages(board: Board, places: Iterable[Place]) -> tuple[GraphStage, ...]:
    return tuple(GraphStage(first, stop, board.names[peer]) for first, stop, peer in places)


def _where(places: Iterable[Place]) -> list[int]:
    return [peer for first, stop, peer in places for _ in range(first, stop)]


def _infeasible(board: Board, found: Placement, *, exact: bool) -> Infeasible:
    """What the nearest placement lacks."""
    held = held_bytes(board, found.places)
    extra = [
        (name, need - free)
        for name, need, free in zip(board.names, held, board.free, strict=True)
        if need > free
    ]
    if extra:
        return Infeasible(graph_wording.lacking(extra, exact=exact), sum(size for _, size in extra))
    missing = sorted(play(board, found.places).missing)
    if not missing:
        return Infeasible(graph_wording.too_many(len(found.places), board.request.most_stages))
    return Infeasible(graph_wording.unlinked([(board.name(a), board.name(b)) for a, b in missing]))


def _atoms(board: Board) -> tuple[Atoms, tuple[str, ...]] | Infeasible:
    """What moves as one and where it may go, with what is said of preferences."""
    request, units = board.request, board.request.work.units
    able: list[list[int]] = []
    for at in range(len(units)):
        refusals = [graph_evaluator.unable(request, name, at, at + 1) for name in board.names]
        able.append([peer for peer, refusal in enumerate(refusals) if refusal is None])
        if not able[-1]:
            return Infeasible(f"no memory would help: {refusals[0]}, and no other peer has it")
    groups: dict[str, list[int]] = {}
    for at, unit in enumerate(units):
        groups.setdefault(unit.component, []).append(at)
    said: list[str] = []
    load = dict.fromkeys(range(len(board.names)), 0)
    for component in sorted(request.prefer):
        name, here = request.prefer[component], groups[component]
        if name not in board.names:
            said.append(f"Component {component} prefers {name}, which is not there.")
            continue
        peer = board.names.index(name)
        need = _alone_bytes(board, here)
        if any(peer not in able[at] for at in here):
            said.append(f"Component {component} prefers {name}, which lacks an operator of it.")
        elif load[peer] + need > board.free[peer]:
            short = load[peer] + need - board.free[peer]
            said.append(f"Component {component} prefers {name}, which is {mib(short)} short of room for it.")
        else:
            load[peer] += need
            for at in here:
                able[at] = [peer]
    if request.strategy == "optimal":
        sets: list[tuple[int, ...]] = [(at,) for at in range(len(units))]
    else:
        sets = [tuple(here) for here in groups.values()]
    allowed: list[tuple[int, ...]] = []
    for members in sets:
        peers = set.intersection(*(set(able[at]) for at in members))
        if not peers:
            component = units[members[0]].component
            return Infeasible(f"no memory would help: no peer has all operators of component {component}")
        allowed.append(tuple(sorted(peers)))
    atom_of = {at: number for number, members in enumerate(sets) for at in members}
    return Atoms(tuple(atom_of[at] for at in range(len(units))), tuple(sets), tuple(allowed)), tuple(said)


def _alone_bytes(board: Board, units: Sequence[int]) -> int:
    """What these units occupy on one peer, a stage for each run of them."""
    total, first = 0, units[0]
    for before, after in zip(units, [*units[1:], -1], strict=True):
        if after != before + 1:
            total += board.stage_bytes(first, before + 1)
            first = after
    return total


def _kept(board: Board, atoms: Atoms) -> Placement | None:
    """The plan that serves, its lost primaries replaced by their standbys; None where that is no plan any more."""
    at = {name: place for place, name in enumerate(board.names)}
    places: list[Place] = []
    for stage in board.request.keep:
        there = [at[name] for name in (stage.peer, *stage.standbys) if name in at]
        if not there:
            return None
        places.append((stage.first, stage.stop, there[0]))
    where = _where(places)
    if not where:
        return None
    alike = all(len({where[unit] for unit in units}) == 1 for units in atoms.units)
    may = all(where[unit] in atoms.allowed[atom] for unit, atom in enumerate(atoms.atoms))
    return valued(board, places) if alike and may else None
