"""The algorithms by their names, each run over the same views of a request and valued by the same energy.

Pure: how long one takes is the caller's to measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.cost import evaluator, objectives
from planner.cost.objectives import MOST_STAGES, Figures, Wish
from planner.cost.wording import chain, ms
from planner.solvers import blocks, chain_labels, cp_sat, heuristics, placement, portfolio, strategies
from planner.solvers import held_karp as exact
from planner.solvers.choices.annealing import annealed
from planner.solvers.choices.energy import BROKEN, NEVER, Energy
from planner.solvers.choices.genetic import bred
from planner.solvers.choices.hungarian import assigned
from planner.solvers.choices.settings import ITERATIONS, SLOWER, Placement, Settings
from planner.solvers.network import Path
from planner.types import Infeasible, Plan, PlanRequest, Stage

SAT_EFFORT: Final = 4.0  # deterministic seconds


@dataclass(frozen=True, slots=True)
class Placed:
    """What an algorithm found. `stages` () and `found` None where it found none, for the reason `why`; `proven`: no
    plan of the strategy is better. `bound_s`: no plan of the strategy takes less for a token; 0: nothing is known.
    `detail`: its settings, or how far it went.
    """

    by: Placement
    stages: tuple[Stage, ...]
    found: Figures | None
    proven: bool
    detail: str
    why: str = ""
    bound_s: float = 0.0


def placed_by(name: Placement, request: PlanRequest, wish: Wish, settings: Settings) -> Placed:
    """Raises RequestError for a request that breaks its rules."""
    evaluator.check_request(request)
    if name == "auto":
        return _auto(request, wish)
    if wish.strategy == "tensor":
        return _none(name, "teams, which the strategy tensor has, are placed by auto alone")
    if wish.strategy in ("attention-ffn", "hybrid"):
        return _none(name, f"with strategy {wish.strategy} peers come back, which auto alone places")
    if strategies.refuse(request, wish) is not None or not request.peers:
        return _none(name, strategies.refuse(request, wish) or "no peer is there")
    views = [Energy(view, request, wish) for view in strategies.views(request, wish, 1)]
    paths = [(energy, *_path(name, energy, settings)) for energy in views]
    able = [
        (energy.key(path), at)
        for at, (energy, path, *_) in enumerate(paths)
        if path and energy.of(path) < BROKEN
    ]
    if not able:
        whys = [why for *_, why in paths if why]
        return _none(name, whys[0] if whys else "it finds no plan that keeps all bounds")
    energy, path, proven, detail, _ = paths[min(able)[1]]
    assert path is not None
    stages = energy.view.stages(request, path)
    whole = proven and all(each[2] for each in paths)
    return Placed(name, stages, objectives.figures(request, stages), whole, detail)


def plan_of(placed: Placed, request: PlanRequest, wish: Wish) -> Plan | Infeasible:
    """As the planner answers, with the reason that names the algorithm."""
    if placed.found is None:
        return Infeasible(f"placement {placed.by}: {placed.why}")
    found = evaluator.evaluate(request, placed.stages)
    proof = "proven to be the best for it" if placed.proven else "how far from the best is not proven"
    return Plan(
        placed.stages,
        "throughput" if wish.goal == "throughput" else "latency",
        found.decode_s,
        found.tokens_per_s,
        found.bottleneck_s,
        (
            f"Placed by {placed.by}{f' ({placed.detail})' if placed.detail else ''}, for {wish.goal}: "
            f"{chain(placed.stages)}; {proof}.",
            f"{ms(placed.found.decode_s)} a token, first token after {ms(placed.found.prefill_s)}, "
            f"{placed.found.tokens_per_s:.1f} tokens/s.",
        ),
    )


def figure_of(wish: Wish, found: Figures) -> float:
    """What plans of a goal are compared by: seconds a token, seconds a token of all, or a share. Smaller is better."""
    scale = evaluator.PICO if wish.goal in ("latency", "throughput") else 1
    return objectives.figure(wish, found) / scale


def behind(wish: Wish, made: Sequence[Placed]) -> tuple[float | None, list[float | None], str]:
    """The figure that plans are held against; how far each is behind it as a share (0.05: 5 % worse, None: no plan);
    and whether that figure is the "optimum", a "bound" that nothing beats, or only the "best" found.
    """
    figures = [None if each.found is None else figure_of(wish, each.found) for each in made]
    known = [figure for figure in figures if figure is not None]
    if not known:
        return None, [None for _ in made], "best"
    proven = [
        figure for figure, each in zip(figures, made, strict=True) if figure is not None and each.proven
    ]
    bound = max((each.bound_s for each in made), default=0.0) if wish.goal == "latency" else 0.0
    if proven:
        against, kind = min(proven), "optimum"
    elif bound:
        against, kind = bound, "bound"
    else:
        against, kind = min(known), "best"
    return against, [None if figure is None else figure / against - 1 for figure in figures], kind


def _auto(request: PlanRequest, wish: Wish) -> Placed:
    outcome = portfolio.solve(request, wish)
    if outcome.chosen is None:
        assert isinstance(outcome.answer, Infeasible)
        return _none("auto", outcome.answer.reason)
    proven = wish.goal == "latency" and outcome.gap == 0
    bound_s = outcome.bound_ps / evaluator.PICO
    ran = ", ".join(outcome.ran)
    return Placed("auto", outcome.chosen.stages, outcome.chosen.found, proven, ran, bound_s=bound_s)


def _none(name: Placement, why: str) -> Placed:
    return Placed(name, (), None, False, "", why)


def _greedy(energy: Energy) -> Path | None:
    """The best of the rules that take peers one after the other."""
    return min(_rules(energy), key=energy.key, default=None)


def _rules(energy: Energy) -> list[Path]:
    return [path for path in heuristics.all_rules(energy.view).values() if energy.of(path) < NEVER]


def _path(name: Placement, energy: Energy, settings: Settings) -> tuple[Path | None, bool, str, str]:
    """The path of a view, whether it is proven, how it was found, and why there is none."""
    if name == "exact":
        return _exact(energy)
    if name == "cp-sat":
        return _by_sat(energy)
    start = _greedy(energy)
    if start is None:
        return None, False, "", "no rule finds a plan to begin with"
    if name == "greedy":
        return start, False, "", ""
    most = energy.wish.most_stages or MOST_STAGES
    whole = [((peer, energy.view.unit_count),) for peer in range(len(energy.view.peers))]
    starts = [*_rules(energy), *(path for path in whole if energy.of(path) < NEVER)]
    if name == "hungarian":
        found = assigned(energy, starts, most)
        return found, False, f"{energy.evaluations} plans valued", ""
    iterations = settings.iterations or ITERATIONS[name] // (1 if energy.is_quick else SLOWER)
    drawn = f"{iterations} iterations, seed {settings.seed}"
    if name == "annealing":
        return annealed(energy, min(starts, key=energy.key), iterations, settings.seed), False, drawn, ""
    found = bred(energy, starts, iterations, settings.population, settings.seed)
    return found, False, f"{drawn}, population {settings.population}", ""


def _exact(energy: Energy) -> tuple[Path | None, bool, str, str]:
    """All orders of all sets of peers, or sets with bounds; for the goal of latency."""
    view, wish = energy.view, energy.wish
    if wish.goal != "latency" or wish.rate_floor or wish.decode_cap_s is not None:
        return (
            None,
            False,
            "",
            f"exact search is for --goal latency without bounds; {wish.goal} was asked for",
        )
    if placement.is_affordable(len(view.peers), view.unit_count):
        solved = exact.solve(view.network())
        most = wish.most_stages or MOST_STAGES
        found = [path for count in solved.by_stage_count() if count <= most and (path := solved.path(count))]
        best = min(found, key=energy.key, default=None)
        return best, True, "all sets and orders", "" if best else "no chain of these peers holds all units"
    if wish.most_stages is not None:
        return None, False, "", "too many peers for an exact search with a bound on stages"
    least = chain_labels.least(view, _greedy(energy))
    detail = "sets with bounds" if least.proven else "sets with bounds, not finished"
    return least.path, least.proven, detail, "" if least.path else "no chain of these peers holds all units"


def _by_sat(energy: Energy) -> tuple[Path | None, bool, str, str]:
    """CP-SAT over equal segments."""
    if not cp_sat.available():
        return None, False, "", "CP-SAT is not installed: pip install 'shoal[planner]' brings it"
    if energy.wish.goal != "latency":
        return None, False, "", f"CP-SAT is asked for --goal latency only; {energy.wish.goal} was asked for"
    parts = blocks.blocks(energy.view)
    if parts is None or len(energy.view.peers) < 2:
        return None, False, "", "CP-SAT places two peers or more and models with equal blocks"
    greedy = _greedy(energy)
    hint = [peer for peer, _ in greedy] if greedy is not None and len(greedy) > 1 else None
    proof = cp_sat.least_order(parts, SAT_EFFORT, hint)
    path = None if proof.order is None else parts.path(proof.order)
    whole = [((peer, energy.view.unit_count),) for peer in range(len(energy.view.peers))]
    best: Path | None = None
    for each in (path, *whole):
        best = energy.better(best, each)
    detail = "proven" if proof.optimal else "not finished"
    return best, proof.optimal and parts.exact, detail, "" if best else "it finds no plan in its time"
