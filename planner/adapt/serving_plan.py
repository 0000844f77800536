"""Decides the plan of a mesh that serves: by its wish, with who stands by; after a loss with the least that moves.

Pure. A strategy that leaves no plan is told in the reasons, and the best plan of any is taken: a mesh that answers
otherwise than wished is better than one that does not. Bounded work, the same plan for the same members in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planner.adapt import k_failures, pareto_front, repair
from planner.cost import evaluator, independent_copies, objectives, standbys
from planner.cost.objectives import Wish
from planner.cost.wording import ms
from planner.errors import RequestError
from planner.solvers import held_paths, placement, strategies
from planner.solvers.portfolio import Effort, Outcome, solve
from planner.types import Held, Infeasible, Plan, PlanRequest, Stage

MESH: Final = Effort(  # well under a second for most meshes
    search=100_000, exact=2_000_000, front=False, caps=3, width=60, sides=12
)
FRONT_PEERS: Final = (
    6  # to so many, plans beyond the one of the goal are looked for: 0.2 s of a slow core at most
)
WORTH_MOVING: Final = 0.95  # a new plan replaces a working one only below this share of its figure
DOUBLED: Final = 2000  # thousandths of copies from which any one peer's loss is to be survived
SURVIVE_PEERS: Final = 9  # more take too long to look for a chain that leaves room for every copy
REFUSED: Final = 2  # plans not taken whose reason is told


def choose(request: PlanRequest, wish: Wish | None = None) -> Plan | Infeasible:
    """The best plan by the wish, or of any strategy where its own leaves none. Raises RequestError."""
    wished = default_wish(request) if wish is None else wish
    try:
        outcome = solve(request, wished, _effort(request, wished))
        why = "" if not isinstance(outcome.answer, Infeasible) else outcome.answer.reason
    except RequestError as error:
        if wished.strategy != "component":
            raise
        outcome, why = None, str(error)
    if outcome is not None and (outcome.chosen is not None or _widest(wished)):
        return _finished(request, wished, outcome)
    open_wish = Wish(wished.goal)
    fallen = _finished(request, open_wish, solve(request, open_wish, _effort(request, open_wish)))
    if isinstance(fallen, Infeasible):
        return fallen
    return replace(fallen, why=(f"Not by the strategy {wished.strategy}: {why}.", *fallen.why))


def choose_after_loss(
    request: PlanRequest,
    wish: Wish,
    held: Held,
    before: Sequence[Stage],
    first: Sequence[int] = (),
) -> Plan | Infeasible:
    """The plan for which the fewest bytes of weights move, whatever the strategy; of equals the fastest.

    `before`: the stages of the plan that can serve no more; `first`: lost places whose peers are chosen first.
    """
    made: list[Plan] = []
    least = placement.replan_moving(request, held, before, first)
    if isinstance(least, Plan):
        made.append(least)
    found = repair.fewest_moved(request, before, held)
    if found is not None:
        stages, units = found
        made.append(
            _planned(request, stages, held, (f"{units} units are loaded anew, no plan loads fewer.",))
        )
    if not made:
        return choose(request, wish)

    def moved(plan: Plan) -> tuple[object, ...]:
        bare = tuple(replace(stage, standbys=()) for stage in plan.stages)
        return held_paths.moved(request, bare, held), evaluator.preference(request, bare)

    return min(made, key=moved)


def covered(request: PlanRequest, plan: Plan) -> Plan:
    """The plan with who stands by for its stages, as `choose` decides it."""
    bare = tuple(replace(stage, standbys=()) for stage in plan.stages)
    made = _as_plan(request, standbys.with_standbys(request, bare), plan.why)
    return replace(made, objective=plan.objective)


def default_wish(request: PlanRequest) -> Wish:
    """What a request wishes for that says nothing else than its objective."""
    return Wish("throughput" if request.objective == "throughput" else "latency")


def better(request: PlanRequest, wish: Wish, serving: Sequence[Stage], fresh: Sequence[Stage]) -> bool:
    """Whether `fresh` is worth to replace the stages that serve: by the strategy first, then by the goal's figure."""
    now = tuple(replace(stage, standbys=()) for stage in serving)
    if [(s.first, s.stop, s.team, s.shares) for s in fresh] == [
        (s.first, s.stop, s.team, s.shares) for s in now
    ]:
        return False
    try:
        present = objectives.figures(request, now)
    except (RequestError, KeyError):
        return True
    kept, keeps = strategies.keeps(request, wish, now), strategies.keeps(request, wish, fresh)
    if kept != keeps:
        return keeps
    new = objectives.figures(request, tuple(replace(stage, standbys=()) for stage in fresh))
    return objectives.figure(wish, new) < objectives.figure(wish, present) * WORTH_MOVING


def _effort(request: PlanRequest, wish: Wish) -> Effort:
    few = len(request.peers) <= FRONT_PEERS and wish.strategy == "optimal"
    return replace(MESH, front=True) if few else MESH


def _widest(wish: Wish) -> bool:
    """Whether no other wish of this goal allows more plans."""
    return wish.strategy == "optimal" and not (wish.rate_floor or wish.decode_cap_s or wish.most_stages)


def _finished(request: PlanRequest, wish: Wish, outcome: Outcome) -> Plan | Infeasible:
    if outcome.chosen is None or isinstance(outcome.answer, Infeasible):
        return outcome.answer
    said = list(outcome.answer.why)
    stages = outcome.chosen.stages
    covered = standbys.with_standbys(request, stages)
    if request.redundancy >= DOUBLED and len(request.peers) > 1:
        covered, line = _surviving(request, wish, stages, covered)
        said += [line] if line else []
    for each in outcome.refused[:REFUSED]:
        whole = each.reason.startswith(each.plan)
        said.append(f"Refused: {each.reason}." if whole else f"Refused: {each.plan}, {each.reason}.")
    made = _as_plan(request, covered, tuple(said))
    among = pareto_front.choices(request, wish, outcome, covered)
    return replace(made, objective=outcome.answer.objective, choices=among)


def _surviving(
    request: PlanRequest, wish: Wish, fastest: Sequence[Stage], covered: tuple[Stage, ...]
) -> tuple[tuple[Stage, ...], str]:
    """Stages that survive the loss of any one domain; where none do, of any one peer; and what is said of that."""
    each = independent_copies.alone(request)
    for looked in (request,) if each == request else (request, each):
        if k_failures.survives(looked, _held(covered)):
            return covered, ""
        safe = _survivor(looked, wish, fastest)
        if safe is not None:
            return safe
    return covered, "No copies fit that would let any one peer go."


def _survivor(
    request: PlanRequest, wish: Wish, fastest: Sequence[Stage]
) -> tuple[tuple[Stage, ...], str] | None:
    """A slower chain that leaves room for a copy of every stage, with those who hold them; None: there is none."""
    if len(request.peers) > SURVIVE_PEERS or wish.strategy != "optimal":
        return None
    found = k_failures.survivable(request, effort=MESH)
    if isinstance(found, Infeasible):
        return None
    bare = tuple(replace(stage, standbys=()) for stage in found.stages)
    named = found.stages if all(stage.standbys for stage in found.stages) else None
    for stages in (standbys.with_standbys(request, bare), named):
        if stages is not None and k_failures.survives(request, _held(stages)):
            longer = (
                evaluator.evaluate(request, bare).decode_s - evaluator.evaluate(request, fastest).decode_s
            )
            return (
                stages,
                f"Any one peer may be lost: that takes {ms(longer)} a token more than the fastest plan.",
            )
    return None


def _held(stages: Sequence[Stage]) -> dict[str, tuple[tuple[int, int], ...]]:
    runs: dict[str, set[tuple[int, int]]] = {}
    for stage in stages:
        for peer in stage.standbys if stage.helpers else (stage.peer, *stage.standbys):
            runs.setdefault(peer, set()).add((stage.first, stage.stop))
    return {peer: tuple(sorted(found)) for peer, found in sorted(runs.items())}


def _planned(request: PlanRequest, stages: Sequence[Stage], held: Held, why: tuple[str, ...]) -> Plan:
    return _as_plan(request, standbys.with_standbys(request, stages, prefer=held), why)


def _as_plan(request: PlanRequest, stages: tuple[Stage, ...], why: tuple[str, ...]) -> Plan:
    found = evaluator.evaluate(request, stages)
    said = (*why, *independent_copies.doubts(request, stages))
    return Plan(stages, request.objective, found.decode_s, found.tokens_per_s, found.bottleneck_s, said)
