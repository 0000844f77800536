"""`shoal bench planner`: what the planner's solvers reach, against proven optima, CP-SAT's minutes and known values.

Reference solvers (CP-SAT with the clock, on both cores) run beside; where OR-tools is missing, or nothing was proven,
those figures are None.
Every figure names how many instances it is over.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np

from planner import (
    baselines,
    blocks,
    chain_exact,
    cost,
    cpsat,
    instances,
    lattice,
    objectives,
    portfolio,
    reentry,
    repairs,
    robust,
    simulate,
    strategies,
    survive,
    threshold,
)
from planner.network import INF
from planner.objectives import Wish
from planner.types import Infeasible, PlanRequest

LAYER: Final = Wish("latency", "layer")
SMALL: Final = 200  # seeded instances of at most 14 peers
SAT_50_S: Final = 60.0  # by the clock, for the optimum of 50 peers
SAT_100_S: Final = 60.0
REPLAN_PEERS: Final = 60
Figures = dict[str, Any]
Result = TypeVar("Result")


def bench_planner(args: argparse.Namespace) -> Figures:
    """All parts. They need no model; `--rounds` below 3 makes fewer instances of each."""
    scale = min(3, args.rounds) / 3
    made: Figures = {"ortools": cpsat.available()}
    parts: tuple[Callable[[float], Figures], ...] = (
        known,
        small,
        middle,
        large,
        thousand,
        agreement,
        losses,
        errors,
    )
    for part in parts:
        began = time.perf_counter()
        made |= part(scale)
        made[f"{part.__name__}_s"] = round(time.perf_counter() - began, 1)
    return made


def timed(call: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """The result, and the seconds of one processor that it took."""
    began = time.process_time()
    result = call(*arguments)
    return result, time.process_time() - began


def known(_: float) -> Figures:
    """Published instances."""
    made: Figures = {}
    for name, tables in (("c10", instances.HELIX_C10), ("c24s", instances.HELIX_C24S)):
        found, seconds = timed(threshold.best_bottleneck, tables, instances.HELIX_LAYERS)
        assert found is not None
        made[f"helix_{name}"] = round(found.rate, 3)
        made[f"helix_{name}_ms"] = round(seconds * 1000, 3)
    for memory, best in instances.EDGESHARD_MS.items():
        request = instances.edgeshard(memory)
        chain, seconds = timed(reentry.least, request, instances.edgeshard_allowed())
        assert chain is not None
        made[f"edgeshard_{'_'.join(map(str, memory))}"] = {
            "ms": round(chain.decode_ps / 1e9, 2),
            "published": best,
            "proven": chain.exact,
            "s": round(seconds, 3),
        }
    return made


def small(scale: float) -> Figures:
    """At most 14 peers: the portfolio's plan against an exact solver of another kind."""
    count, equal, feasible, seconds = int(SMALL * scale), 0, 0, list[float]()
    by_sat = 0
    for seed in range(count):
        request = instances.mesh(seed, 3 + seed % 12, tight=(0.6, 1.0, 2.0)[seed % 3])
        wish = LAYER if seed % 2 else Wish()
        outcome, taken = timed(portfolio.solve, request, wish)
        seconds.append(taken)
        view = strategies.views(request, wish, 1)[0]
        parts = blocks.blocks(view)
        assert parts is not None
        if seed % 2 and cpsat.available():  # equal segments: CP-SAT proves the optimum on its own
            proof = cpsat.least_order(parts, 1e6)
            path = None if proof.order is None else parts.path(proof.order)
            value = min(view.value(path) if path else INF, int(parts.alone().min()))
            by_sat += 1
        else:  # no bounds to prune by, no start to beat
            value = chain_exact.least(view, None, 10**12).value
        feasible += outcome.chosen is not None
        found = (
            INF
            if outcome.chosen is None
            else min(o.found.decode_ps for o in (outcome.chosen, *outcome.others))
        )
        equal += abs(found - value) <= value // 10**7 and outcome.gap in (0.0, None)
    return {
        "small_instances": count,
        "small_equal_to_optimum": equal,
        "small_feasible": feasible,
        "small_checked_by_cpsat": by_sat if cpsat.available() else None,
        "small_slowest_s": round(max(seconds), 2),
    }


def middle(scale: float) -> Figures:
    """Up to 50 peers: within 1 % of CP-SAT's optimum."""
    rows: list[tuple[float | None, float, bool]] = []
    for at in range(max(2, int(9 * scale))):
        request = instances.mesh(at, (20, 30, 50)[at % 3], tight=(0.35, 0.5, 1.0)[at // 3 % 3])
        rows.append(_against_sat(request, portfolio.Effort.seconds(1.6), SAT_50_S))
    proven = [gap for gap, _, optimal in rows if optimal]
    return {
        "middle_instances": len(rows),
        "middle_proven_by_cpsat": len(proven),
        "middle_worst_percent_over_optimum": _worst_percent(proven),
        "middle_worst_percent_over_cpsat": _worst_percent([gap for gap, _, _ in rows]),
        "middle_slowest_s": round(max(seconds for _, seconds, _ in rows), 2),
    }


def large(scale: float) -> Figures:
    """100 peers: within 3 % of CP-SAT after a minute."""
    rows = [
        _against_sat(
            instances.mesh(at, 100, tight=(0.35, 0.5, 1.0)[at]), portfolio.Effort.seconds(4), SAT_100_S
        )
        for at in range(max(1, int(3 * scale)))
    ]
    return {
        "large_instances": len(rows),
        "large_worst_percent_over_cpsat": _worst_percent([gap for gap, _, _ in rows]),
        "large_slowest_s": round(max(seconds for _, seconds, _ in rows), 2),
    }


def _worst_percent(gaps: Sequence[float | None]) -> float | None:
    """None: nothing was compared."""
    known = [gap for gap in gaps if gap is not None]
    return round(max(known) * 100, 3) if known else None


def _against_sat(
    request: PlanRequest, effort: portfolio.Effort, limit_s: float
) -> tuple[float | None, float, bool]:
    """(how much more than CP-SAT's best, seconds, whether that is proven). CP-SAT starts from our plan.

    None: there is no CP-SAT, or it found nothing.
    """
    outcome, seconds = timed(portfolio.solve, request, LAYER, effort)
    assert outcome.chosen is not None
    view = strategies.views(request, LAYER, 1)[0]
    parts = blocks.blocks(view)
    assert parts is not None
    if not cpsat.available():
        return None, seconds, False
    ours = outcome.chosen
    names = [view.peers.index(stage.peer) for stage in ours.stages]
    proof = cpsat.least_order(parts, 1e9, names if len(names) > 1 else None, workers=2, wall_s=limit_s)
    path = None if proof.order is None else parts.path(proof.order)
    value = min(INF if path is None else view.value(path), int(parts.alone().min()))
    if value >= INF:
        return None, seconds, False
    return max(0.0, ours.found.decode_ps / value - 1), seconds, proof.optimal


def thousand(scale: float) -> Figures:
    """1,000 peers with every link."""
    seconds, over, refused = list[float](), list[float](), 0
    for seed in range(max(1, int(2 * scale))):
        request = instances.mesh(seed, 1000, tight=(1.0, 0.5)[seed % 2])
        outcome, taken = timed(portfolio.solve, request, Wish(), portfolio.Effort.seconds(6))
        seconds.append(taken)
        greedy = baselines.furthest(lattice.build(request))
        refused += greedy is not None and outcome.chosen is None
        if outcome.chosen is not None and greedy is not None:
            over.append(lattice.build(request).value(greedy) / outcome.chosen.found.decode_ps)
    return {
        "thousand_slowest_s": round(max(seconds), 2),
        "thousand_refused_where_greedy_finds": refused,
        "thousand_times_faster_than_greedy": round(min(over), 2) if over else None,
    }


def agreement(scale: float) -> Figures:
    """The solver's objective, the evaluator and the simulator, and the order of the input."""
    checked = unequal = turned = 0
    for request, options, view in suite(int(40 * scale)):
        for option in options:
            checked += 1
            stages = option.stages
            decode = simulate.decode_round_ps(request, stages)
            rate = simulate.token_ps(request, stages, option.found.rows)
            prompt = simulate.prefill_ps(request, stages, objectives.PROMPT_TOKENS, objectives.CHUNK_TOKENS)
            same = decode == option.found.decode_ps and prompt == option.found.prefill_ps
            same &= rate == option.found.token_ps
            if view is not None:
                path = tuple((view.peers.index(stage.peer), stage.stop) for stage in stages)
                same &= view.value(path) == decode
            unequal += not same
    for seed in range(int(20 * scale)):
        request = instances.mesh(seed, 4 + seed, sessions=1 + seed % 3)
        draws = random.Random(seed)
        peers, links = list(request.peers), list(request.links)
        draws.shuffle(peers)
        draws.shuffle(links)
        small_effort = portfolio.Effort(search=200_000, exact=20_000_000)
        other = replace(request, peers=tuple(peers), links=tuple(links))
        turned += portfolio.solve(request, None, small_effort) != portfolio.solve(other, None, small_effort)
    return {"agreement_plans": checked, "agreement_unequal": unequal, "plans_that_depend_on_order": turned}


def suite(count: int) -> list[tuple[PlanRequest, list[objectives.Option], lattice.Lattice | None]]:
    """Requests with their plans; the view where every plan is a chain in which nobody comes back."""
    made: list[tuple[PlanRequest, list[objectives.Option], lattice.Lattice | None]] = []
    for seed in range(count):
        request = instances.mesh(
            seed, 3 + seed % 8, sessions=(1, 3, 5, 8)[seed % 4], tight=(1.0, 2.0)[seed % 2]
        )
        wish = Wish("throughput" if request.sessions > 1 else "latency")
        outcome = portfolio.solve(request, wish, portfolio.Effort(search=100_000, exact=10_000_000))
        options = [] if outcome.chosen is None else [outcome.chosen, *outcome.others[:5]]
        made.append((request, options, lattice.build(request)))
    for memory in instances.EDGESHARD_MS:
        request = instances.edgeshard(memory)
        chain = reentry.least(request, instances.edgeshard_allowed())
        assert chain is not None
        option = objectives.Option(
            chain.stages, objectives.figures(request, chain.stages), "labels with memory"
        )
        made.append((request, [option], None))
    return made


def losses(scale: float) -> Figures:
    """Any single loss, and the plan after it."""
    count, survived, infeasible, chains = int(200 * scale), 0, 0, 0
    for seed in range(count):
        request = instances.mesh(seed, 6 + seed % 10, tight=2.0 + seed % 3, sessions=1 + seed % 2)
        found = survive.survivable(request, 1)
        if isinstance(found, Infeasible):
            infeasible += 1
            continue
        held = found.held()
        fine = True
        for name in held:
            stages = survive.after_loss(request, held, {name})
            chains += 1
            rest = replace(request, peers=tuple(p for p in request.peers if p.peer != name))
            fine &= stages is not None and cost.refuse(rest, stages) is None
        survived += fine
    replans, equal, proven = list[float](), 0, 0
    for seed in range(max(2, int(12 * scale))):
        request, before, held = _loss(seed)
        result, seconds = timed(repairs.fewest_moved, request, before, held)
        replans.append(seconds)
        if result is None:
            continue
        if not cpsat.available():
            continue
        best, optimal = cpsat.fewest_loaded(request, held, 60.0)
        proven += optimal
        equal += optimal and best == result[1]
    return {
        "loss_meshes": count,
        "loss_survived": survived,
        "loss_infeasible": infeasible,
        "loss_chains_checked": chains,
        "replan_60_slowest_s": round(max(replans), 2),
        "replan_proven_by_cpsat": proven if cpsat.available() else None,
        "replan_equal_to_cpsat": equal if proven else None,
    }


def _loss(seed: int) -> tuple[PlanRequest, Any, dict[str, tuple[tuple[int, int], ...]]]:
    """60 peers of which one of the chain is gone; what the others hold."""
    request = instances.mesh(seed, REPLAN_PEERS + 1, blocks=40, tight=0.4)
    outcome = portfolio.solve(request, LAYER, portfolio.Effort(search=300_000, exact=1_000_000))
    assert outcome.chosen is not None
    stages = outcome.chosen.stages
    gone = stages[seed % len(stages)]
    rest = replace(
        request,
        peers=tuple(p for p in request.peers if p.peer != gone.peer),
        links=tuple(link for link in request.links if gone.peer not in (link.src, link.dst)),
    )
    held: dict[str, tuple[tuple[int, int], ...]] = {}
    held |= {stage.peer: ((stage.first, stage.stop),) for stage in stages if stage.peer != gone.peer}
    return rest, stages, held


def errors(scale: float) -> Figures:
    """How much a plan loses when the parameters it was made with were wrong by up to 1.5 times."""
    lost: list[float] = []
    steady: list[float] = []
    for seed in range(int(40 * scale)):
        truth = instances.mesh(seed, 5 + seed % 8)
        believed = robust.distorted(truth, 1.5, seed)
        outcome = portfolio.solve(believed, None, portfolio.Effort(search=200_000))
        chosen = outcome.chosen
        best = portfolio.solve(truth, None, portfolio.Effort(search=200_000)).chosen
        if chosen is not None and best is not None:
            lost.append(cost.evaluate(truth, chosen.stages).decode_ps / best.found.decode_ps - 1)
            kept = robust.steady(believed, (chosen, *outcome.others))
            steady.append(cost.evaluate(truth, kept.stages).decode_ps / best.found.decode_ps - 1)
    return {
        "error_meshes": len(lost),
        "error_median_loss_percent": round(statistics.median(lost) * 100, 2) if lost else None,
        "error_p95_loss_percent": round(float(np.quantile(lost, 0.95)) * 100, 2) if lost else None,
        "error_worst_loss_percent": _worst_percent(lost),
        "error_steady_p95_loss_percent": round(float(np.quantile(steady, 0.95)) * 100, 2) if steady else None,
        "error_steady_worst_loss_percent": _worst_percent(steady),
    }
