"""`shoal bench planner`: what the planner's solvers reach, against proven optima, CP-SAT's minutes and known values.

Where OR-tools is missing, or nothing was proven, the figures against CP-SAT are None. Every figure names how many
instances it is over; seconds are of one processor, so that they hold beside other work.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from peer.bench import instances
from peer.bench.planner_errors import errors
from peer.bench.planner_losses import losses, replans
from peer.bench.planner_placements import placements
from peer.bench.planner_sizes import sizes
from peer.bench.planner_timing import Figures, timed
from peer.launch.terminal import say
from planner.cost import objectives, simulator
from planner.cost.objectives import Wish
from planner.solvers import blocks, chain_labels, cp_sat, lattice, portfolio, reentry, strategies, threshold
from planner.solvers.network import INF
from planner.types import PlanRequest

LAYER: Final = Wish("latency", "layer")
SMALL: Final = 200  # seeded instances of at most 14 peers


def bench_planner(args: argparse.Namespace) -> Figures:
    """The parts asked for, else all. They need no model; `--rounds` below 3 makes fewer instances of each."""
    scale = min(3, args.rounds) / 3
    made: Figures = {"ortools": cp_sat.available()}
    for name in args.part or PARTS:
        say(f"planner: {name}")
        began = time.process_time()
        made |= PARTS[name](scale)
        made[f"{name}_cpu_s"] = round(time.process_time() - began, 1)
    return made


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
        if seed % 2 and cp_sat.available():  # equal segments: CP-SAT proves the optimum on its own
            proof = cp_sat.least_order(parts, 1e6)
            path = None if proof.order is None else parts.path(proof.order)
            value = min(view.value(path) if path else INF, int(parts.alone().min()))
            by_sat += 1
        else:  # no bounds to prune by, no start to beat
            value = chain_labels.least(view, None, 10**12).value
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
        "small_checked_by_cpsat": by_sat if cp_sat.available() else None,
        "small_slowest_s": round(max(seconds), 2),
    }


def agreement(scale: float) -> Figures:
    """The solver's objective, the evaluator and the simulator, and the order of the input."""
    checked = unequal = turned = 0
    for request, options, view in suite(int(40 * scale)):
        for option in options:
            checked += 1
            stages = option.stages
            decode = simulator.decode_round_ps(request, stages)
            rate = simulator.token_ps(request, stages, option.found.rows)
            prompt = simulator.prefill_ps(request, stages, objectives.PROMPT_TOKENS, objectives.CHUNK_TOKENS)
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


PARTS: Final[dict[str, Callable[[float], Figures]]] = {
    "known": known,
    "small": small,
    "sizes": sizes,
    "agreement": agreement,
    "losses": losses,
    "replans": replans,
    "errors": errors,
    "placements": placements,
}
