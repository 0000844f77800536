"""Decides how far the planner's plans of 20 to 1,000 peers are from CP-SAT's, and how long they take.

CP-SAT starts from the plan of ours, on two processors, and stops when it has proven its own or used its time on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from peer.bench import instances
from peer.bench.planner_timing import Figures, stopped_after, timed
from peer.launch.terminal import say
from planner.cost.objectives import Wish
from planner.solvers import blocks, cp_sat, heuristics, lattice, portfolio, strategies
from planner.solvers.network import INF
from planner.types import PlanRequest

LAYER: Final = Wish("latency", "layer")
WORKERS: Final = 2
SAT_S: Final = 60.0  # on each of them
TIGHT: Final = (0.35, 0.5, 1.0)  # shares of the usual pledge: chains of very different length
# peers -> (instances, seconds our search is given)
SIZES: Final[dict[int, tuple[int, float]]] = {20: (6, 1.6), 30: (6, 1.6), 50: (6, 1.6), 100: (4, 4.0)}
THOUSAND: Final = 3
THOUSAND_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class Row:
    """One instance. `over`: the share that our plan takes longer than CP-SAT's; None: there is none to compare."""

    seconds: float
    over: float | None
    proven: bool
    sat_s: float


def sizes(scale: float) -> Figures:
    """Every size."""
    made: Figures = {}
    for peers, (count, limit_s) in SIZES.items():
        rows = list[Row]()
        for at in range(max(1, int(count * scale))):
            request = instances.mesh(at, peers, tight=TIGHT[at % len(TIGHT)])
            rows.append(against_sat(request, portfolio.Effort.seconds(limit_s)))
            say(f"planner: {peers} peers, instance {at + 1}: {rows[-1]}")
        proven = [row.over for row in rows if row.proven]
        made[f"peers_{peers}"] = {
            "instances": len(rows),
            "proven_by_cpsat": len(proven),
            "worst_percent_over_optimum": worst_percent(proven),
            "worst_percent_over_cpsat": worst_percent([row.over for row in rows]),
            "slowest_s": round(max(row.seconds for row in rows), 2),
            "cpsat_longest_s": round(max(row.sat_s for row in rows), 1),
        }
    return made | {"peers_1000": thousand(max(1, int(THOUSAND * scale)))}


def worst_percent(shares: Sequence[float | None]) -> float | None:
    """None: nothing was compared."""
    known = [share for share in shares if share is not None]
    return round(max(known) * 100, 3) if known else None


def against_sat(request: PlanRequest, effort: portfolio.Effort) -> Row:
    """Our plan, and CP-SAT's."""
    outcome, seconds = timed(portfolio.solve, request, LAYER, effort)
    assert outcome.chosen is not None
    view = strategies.views(request, LAYER, 1)[0]
    parts = blocks.blocks(view)
    assert parts is not None
    if not cp_sat.available():
        return Row(seconds, None, False, 0.0)
    ours = outcome.chosen
    names = [view.peers.index(stage.peer) for stage in ours.stages]
    with stopped_after(SAT_S * WORKERS) as watched:

        def proof_of() -> cp_sat.Proof:
            hint = names if len(names) > 1 else None
            return cp_sat.least_order(parts, 0.0, hint, workers=WORKERS, watched=watched)

        proof, sat_s = timed(proof_of)
    path = None if proof.order is None else parts.path(proof.order)
    value = min(INF if path is None else view.value(path), int(parts.alone().min()))
    over = None if value >= INF else max(0.0, ours.found.decode_ps / value - 1)
    return Row(round(seconds, 2), over, proof.optimal and over is not None, round(sat_s, 1))


def thousand(count: int) -> Figures:
    """1,000 peers with every link."""
    seconds, over, refused = list[float](), list[float](), 0
    for seed in range(count):
        request = instances.mesh(seed, 1000, tight=(1.0, 0.5, 0.35)[seed % 3])
        outcome, taken = timed(portfolio.solve, request, Wish(), portfolio.Effort.seconds(THOUSAND_S))
        seconds.append(taken)
        greedy = heuristics.furthest(lattice.build(request))
        refused += greedy is not None and outcome.chosen is None
        if outcome.chosen is not None and greedy is not None:
            over.append(lattice.build(request).value(greedy) / outcome.chosen.found.decode_ps)
        say(f"planner: 1000 peers, instance {seed + 1}: {taken:.2f} s")
    return {
        "instances": count,
        "slowest_s": round(max(seconds), 2),
        "refused_where_greedy_finds": refused,
        "times_faster_than_greedy": round(min(over), 2) if over else None,
    }
