"""Decides which solvers a request gets, keeps the best by the goal, and says what ran and what is proven.

By size: all sets and orders where that is affordable (9 peers), sets with bounds to EXACT_PEERS; descent with kicks
above, CP-SAT where it is installed and the effort allows, clusters by round trip above REGION_PEERS; the rules of
others always, so that nothing they can place is refused. Everything is counted in work, nothing in seconds: the same
input, in any order, gives the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from planner.cost import evaluator, objectives, shared_runs
from planner.cost.objectives import Option, Wish
from planner.cost.wording import chain, mib, ms, units_text
from planner.solvers import (
    blocks,
    chain_labels,
    clusters,
    cp_sat,
    heuristics,
    lattice,
    local_search,
    placement,
    strategies,
    teams,
)
from planner.solvers import held_karp as exact
from planner.solvers.lattice import Lattice
from planner.solvers.network import INF, Path
from planner.types import Infeasible, Plan, PlanRequest, Stage

EXACT_PEERS = 14
SAT_PEERS = 50
SAT_FEW_PEERS = (
    24  # of these it proves the least order in a second, so that it is worth its time in a short effort
)
SAT_SHORT = 1.0  # deterministic seconds under which it is given only few peers
REGION_PEERS = 120
RUNS = 3  # descents from other draws, where each has RUN_LEAST numbers to value
RUN_LEAST = 1_000_000
TRIED = 12  # orders of the descent whose exact cut is made
CAPS = 10  # bounds on the slowest part that a search for the rate tries at most, for each batch size
RATE_ROWS = 4  # batch sizes it tries
TOLD_GAP = 1.0  # a bound further away says nothing
REFUSED = 6  # plans whose refusal is told
PROVEN_SEARCH = 200_000  # numbers valued where the exact search follows anyway
CORE_PEERS = 12  # of a large mesh: those of the best chains, solved exactly once more


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a request is worth."""

    search: int = 3_000_000  # numbers valued by one descent
    exact: int = chain_labels.WORK
    sat: float = 0.0  # deterministic seconds of CP-SAT; 0: none
    front: bool = True  # whether plans beyond the one of the goal are looked for
    caps: int = CAPS
    width: int = strategies.WIDTH  # where peers come back
    sides: int = strategies.SIDES

    @classmethod
    def seconds(cls, limit_s: float) -> Effort:
        """About so many seconds of a slow core. The work is the same on every machine, the time is not."""
        return cls(
            int(limit_s * 0.6 * local_search.NUMBERS_PER_S),
            int(min(limit_s, 20) * chain_labels.WORK / 4),
            0.0 if limit_s < 1 else 0.5 * limit_s if limit_s < 5 else limit_s / 4,
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A plan that was looked at and not taken, with the reason in numbers."""

    plan: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The plan of the goal; the front of D and T with its knee; what was refused; what ran."""

    answer: Plan | Infeasible
    chosen: Option | None
    others: tuple[Option, ...]  # that keep every bound, the next best first
    front: tuple[Option, ...]
    knee: Option | None
    refused: tuple[Refused, ...]
    ran: tuple[str, ...]
    bound_ps: int  # no plan of this strategy decodes a token in less
    gap: float | None  # of the least decode latency found over what is proven; None: no plan

    @property
    def split(self) -> bool:
        """Whether the chosen plan has more than one stage."""
        return self.chosen is not None and len(self.chosen.stages) > 1


@dataclass(slots=True)
class _Search:
    request: PlanRequest
    wish: Wish
    effort: Effort
    options: dict[tuple[tuple[object, ...], ...], Option] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)
    untaken: Option | None = None  # with a team that is too far apart to be taken, whatever it would cost

    def add(self, stages: Sequence[Stage], by: str) -> None:
        """Raises RequestError where the evaluator refuses what a solver found: the two must not disagree."""
        name = tuple((stage.peer, stage.stop, stage.helpers, stage.shares) for stage in stages)
        if name in self.options:
            return
        kept = _among(self.request, {peer for stage in stages for peer in stage.team})
        self.options[name] = Option(tuple(stages), objectives.figures(kept, stages), by)

    def add_paths(self, view: Lattice, paths: Iterable[Path], by: str) -> None:
        for path in paths:
            if view.value(path) < INF:
                self.add(view.stages(self.request, path), by)


def solve(request: PlanRequest, wish: Wish | None = None, effort: Effort | None = None) -> Outcome:
    """The best plan by the wish. Raises RequestError for a request that breaks its rules."""
    evaluator.check_request(request)
    search = _Search(request, Wish() if wish is None else wish, Effort() if effort is None else effort)
    if strategies.refuse(request, search.wish) is None and request.peers:
        if search.wish.strategy in ("attention-ffn", "hybrid"):
            for stages in strategies.returning(
                request, search.wish, search.effort.width, search.effort.sides
            ):
                search.add(stages, "labels with memory")
            search.ran.append("labels with memory, peers may come back")
            if search.wish.strategy == "hybrid":
                _chains(search, replace(search.wish, strategy="optimal"))
                search.bounds.clear()  # they hold for chains in which nobody comes back
        elif search.wish.strategy != "tensor":
            _chains(search, search.wish)
        _beside_others(search)
        if search.wish.strategy in ("optimal", "tensor"):
            _teams(search)
    return _outcome(search)


def _beside_others(search: _Search) -> None:
    """Adds chains of runs that other models have loaded, for which the solvers know no room."""
    found = [
        stages
        for stages in shared_runs.chains(search.request)
        if strategies.keeps(search.request, search.wish, stages)
    ]
    for stages in found:
        search.add(stages, shared_runs.NAME)
    if found:
        search.ran.append(shared_runs.NAME)
        search.bounds.clear()  # they hold where nothing is loaded yet


def _teams(search: _Search) -> None:
    """Adds options in which peers compute units together: where nothing else can, where they may be faster, and one
    that says what it would cost.
    """
    request, wish = search.request, search.wish
    if len(request.peers) > REGION_PEERS:
        return
    found = [option.found.decode_ps for option in search.options.values()]
    made = list(teams.placements(request, wish.min_tensor_bytes, min(found) if found else None))
    for stages in made:
        if found and teams.far(request, stages):  # told, never taken
            other = Option(stages, objectives.figures(request, stages), "teams as peers")
            if search.untaken is None or other.found.decode_ps < search.untaken.found.decode_ps:
                search.untaken = other
        else:
            search.add(stages, "teams as peers")
    if made:
        search.ran.append("teams as peers")


def _chains(search: _Search, wish: Wish) -> None:
    views = strategies.views(search.request, wish, 1)
    for view in views:
        search.bounds.append(_latency(search, view))
    asked = wish.goal in ("throughput", "balanced") or wish.rate_floor > 0
    if asked or (search.effort.front and search.request.sessions > 1):
        _rates(search, wish)
    if wish.goal == "memory":
        _roomy(search, views)


def _latency(search: _Search, view: Lattice) -> int:
    """Adds options of low decode latency; returns a bound that holds for this view."""
    paths, bound, ran = least_paths(view, search.effort, search.wish.most_stages)
    search.ran += ran
    search.add_paths(view, paths, ran[0] if ran else "rules")
    whole = [
        ((peer, view.unit_count),)
        for peer in range(len(view.peers))
        if view.reach[peer, 0] == view.unit_count
    ]
    whole.sort(key=view.key)
    search.add_paths(view, whole[:4], "one peer")
    for name, path in heuristics.all_rules(view).items():
        search.add_paths(view, [path], name)
    return bound


def least_paths(
    view: Lattice, effort: Effort, most_stages: int | None = None
) -> tuple[list[Path], int, list[str]]:
    """Paths of low latency, the best first; a bound that no path beats; what ran."""
    peers = len(view.peers)
    if placement.is_affordable(peers, view.unit_count):
        return _all_orders(view, most_stages)
    parts = blocks.blocks(view)
    paths: list[Path] = []
    ran: list[str] = []
    spaces = [list(range(peers))]
    if parts is not None and peers > REGION_PEERS:
        spaces = clusters.regions(parts)
        ran.append(
            f"{len(spaces)} regions of at most {max(map(len, spaces))} of {peers} peers, by round trip"
        )
    few = SAT_PEERS if effort.sat >= SAT_SHORT else SAT_FEW_PEERS
    by_sat = parts is not None and parts.exact and peers <= few and effort.sat > 0 and cp_sat.available()
    if parts is not None and peers > 1:
        share = min(effort.search, PROVEN_SEARCH) if peers <= EXACT_PEERS else effort.search
        if by_sat and peers <= SAT_FEW_PEERS:
            share //= 4  # a start for what proves it
        found = _descents(view, spaces, share, most_stages)
        paths += found
        ran.append("descent with kicks")
    paths += list(heuristics.all_rules(view).values())
    paths += [((peer, view.unit_count),) for peer in range(peers) if view.reach[peer, 0] == view.unit_count]
    paths = _ranked(view, paths, most_stages)
    if most_stages is None and peers <= REGION_PEERS:
        known = paths[0] if paths else None
        work = effort.exact if peers <= EXACT_PEERS else effort.exact // 20
        least = chain_labels.least(view, known, work)
        ran.insert(0, "exact: sets with bounds" if least.proven else "sets with bounds, not finished")
        paths = _ranked(view, [*paths, *([] if least.path is None else [least.path])], None)
        bound = least.bound
        if not least.proven:
            paths = _core(view, paths, effort)
            if parts is not None and by_sat:
                hint = [peer for peer, _ in paths[0]] if paths and len(paths[0]) > 1 else None
                proof = cp_sat.least_order(parts, effort.sat, hint)
                ran.append("CP-SAT, proven" if proof.optimal else "CP-SAT, a bound")
                path = None if proof.order is None else parts.path(proof.order)
                paths = _ranked(view, [*paths, *([] if path is None else [path])], None)
                alone = min(map(int, parts.alone().tolist()))
                rounding = len(view.peers) * 4 * cp_sat.NANO
                bound = max(bound, min(alone, proof.bound - rounding))
            elif effort.sat and not cp_sat.available():
                ran.append("no CP-SAT: the extra `planner` is not installed")
        return paths, bound, ran
    paths = _core(view, paths, effort) if most_stages is None else paths
    return paths, _least_bound(view), ran


def _all_orders(view: Lattice, most_stages: int | None) -> tuple[list[Path], int, list[str]]:
    """The least path of each number of stages, and the rules of others."""
    solved = exact.solve(view.network())
    counts = solved.by_stage_count()
    paths = [path for count in counts if (path := solved.path(count)) is not None]
    paths += heuristics.all_rules(view).values()
    bound = min((counts[count] for count in counts if count <= (most_stages or count)), default=INF)
    return _ranked(view, paths, most_stages), bound, ["exact: all sets and orders"]


def _core(view: Lattice, paths: list[Path], effort: Effort) -> list[Path]:
    """The exact best among the peers of the best paths."""
    core: list[int] = []
    for path in paths:
        more = [peer for peer, _ in path if peer not in core]
        if len(core) + len(more) > CORE_PEERS:
            break
        core += more
    if len(core) < 2:
        return paths
    inner = view.only(core)
    places = sorted(core)
    known = tuple((places.index(peer), stop) for peer, stop in paths[0])
    found = chain_labels.least(inner, known, effort.exact // 10)
    if found.path is None:
        return paths
    return _ranked(view, [tuple((places[peer], stop) for peer, stop in found.path), *paths], None)


def _descents(
    view: Lattice, spaces: Sequence[Sequence[int]], effort: int, most_stages: int | None
) -> list[Path]:
    """The paths of the best orders in every space."""
    made: list[Path] = []
    tries: list[tuple[int, list[int]]] = []
    for space in spaces:
        inner = view if len(space) == len(view.peers) else view.only(space)
        parts = blocks.blocks(inner)
        if parts is None:
            continue
        share = effort // len(spaces)
        runs = RUNS if share >= RUNS * RUN_LEAST else 1
        for seed in range(1, runs + 1):
            for places_of, value in local_search.search(parts, share // runs, seed=seed)[:TRIED]:
                tries.append((value, [space[peer] for peer in places_of]))
    tries.sort()
    for order in _first_distinct([order for _, order in tries], 2 * TRIED):
        if most_stages is not None and len(order) > most_stages:
            continue
        inner = view.only(order)
        places = sorted(order)
        parts = blocks.blocks(inner)
        path = None if parts is None else parts.path([places.index(peer) for peer in order])
        if path is not None:
            made.append(tuple((places[peer], stop) for peer, stop in path))
    if len(spaces) > 1 and made:
        # two regions stitched: the peers of the best chains together, searched once more
        best = _ranked(view, made, most_stages)[:6]
        together = sorted({peer for path in best for peer, _ in path} | set(spaces[0]))[: clusters.SIZE * 2]
        made += _descents(view, [together], effort // 3, most_stages)
    return made


def _first_distinct(orders: Sequence[list[int]], most: int) -> list[list[int]]:
    return [list(order) for order in list(dict.fromkeys(map(tuple, orders)))[:most]]


def _ranked(view: Lattice, paths: Iterable[Path], most_stages: int | None) -> list[Path]:
    able = {
        path for path in paths if view.value(path) < INF and (most_stages is None or len(path) <= most_stages)
    }
    return sorted(able, key=view.key)


def _least_bound(view: Lattice) -> int:
    """Nothing is faster than every unit on its fastest peer."""
    fastest = np.diff(view.times, axis=1).min(axis=0).sum()
    return int(fastest + view.step.min())


def _rates(search: _Search, wish: Wish) -> None:
    """Adds options of high rate: least latency under bounds on the slowest part, at some batch sizes."""
    request = search.request
    affordable = len(request.peers) <= 9 and placement.is_affordable(len(request.peers), len(request.units))
    if affordable and wish.strategy == "optimal":
        found = placement.plan(replace(request, objective="throughput", redundancy=1000, spare=False))
        if isinstance(found, Plan):
            search.add(found.stages, "exact search for the rate")
            search.ran.append("exact search for the rate")
            if not search.effort.front:
                return
    choices = evaluator.row_choices(request.sessions)
    small = replace(
        search.effort, search=search.effort.search // 10, exact=search.effort.exact // 20, sat=0.0
    )
    for rows in sorted({*choices[:: -max(1, len(choices) // (RATE_ROWS - 1))], choices[0]}):
        for view in strategies.views(request, wish, rows):
            paths = least_paths(view, small, wish.most_stages)[0]
            if not paths:
                continue
            search.add_paths(view, paths[:3], "bounds on the slowest part")
            high, low = _slowest(view, paths[0]), 0
            for _ in range(search.effort.caps):
                limit = (low + high) // 2
                if limit == high:
                    break
                paths = least_paths(view.capped(limit), small, wish.most_stages)[0]
                if not paths:
                    low = limit
                    continue
                search.add_paths(view, paths[:3], "bounds on the slowest part")
                high = min(limit, _slowest(view, paths[0]))
                turns = Fraction(evaluator.cohorts(request.sessions, rows))
                if view.value(paths[0]) >= turns * high:
                    break  # the round is the limit: a tighter bound only makes it longer
    search.ran.append("bounds on the slowest part")


def _slowest(view: Lattice, path: Path) -> int:
    first, worst = 0, 0
    for at, (peer, stop) in enumerate(path):
        worst = max(worst, view.stage(peer, first, stop))
        if len(path) > 1:
            follower = path[(at + 1) % len(path)][0]
            worst = max(worst, int(view.busy[int(view.classes[stop]), peer, follower]))
        first = stop
    return worst


def _roomy(search: _Search, views: Sequence[Lattice]) -> None:
    """Adds options that fill the fullest peer less: the same problem with smaller pledges."""
    small = replace(
        search.effort, search=search.effort.search // 10, exact=search.effort.exact // 20, sat=0.0
    )
    low, high = 0, 1000
    for _ in range(8):
        share = (low + high) // 2
        request = search.request
        peers = tuple(replace(p, memory_bytes=p.memory_bytes * share // 1000) for p in request.peers)
        paths: list[Path] = []
        for view in strategies.views(replace(request, peers=peers), search.wish, 1):
            found = least_paths(view, small, search.wish.most_stages)[0]
            search.add_paths(view, found[:2], "smaller pledges")
            paths += found
        low, high = (low, share) if paths else (share, high)
    search.ran.append("smaller pledges")


def _outcome(search: _Search) -> Outcome:
    request, wish = search.request, search.wish
    options = sorted(
        search.options.values(), key=lambda option: objectives.key(wish, option.found, option.stages)
    )
    ran = tuple(dict.fromkeys(search.ran))
    keeping = [option for option in options if not objectives.refusals(wish, option.found)]
    if not keeping:
        return _nothing(search, options, ran)
    chosen = keeping[0]
    front = objectives.pareto(options)
    refused = [
        Refused(option.name, objectives.compared(wish, chosen.found, option.found))
        for option in options
        if option is not chosen
    ][:REFUSED]
    names = {name for option in options[:REFUSED] for stage in option.stages for name in stage.team}
    for name in sorted(names):
        reason = objectives.whole_on(request, name)
        if reason is not None:
            refused.append(Refused(f"{name} alone", reason))
    bound = min(search.bounds) if search.bounds else _least_bound(lattice.build(request))
    if any(stage.helpers for option in options for stage in option.stages):
        bound = 0  # chains prove nothing of teams
    if search.untaken is not None:
        bound = min(bound, search.untaken.found.decode_ps)
    least = min(option.found.decode_ps for option in options)
    assert bound <= least, "a bound that a plan beats proves nothing"
    gap = (least - bound) / max(1, bound)
    among = _among(request, {name for stage in chosen.stages for name in stage.team})
    found = evaluator.evaluate(among, chosen.stages)
    plan = Plan(
        chosen.stages,
        "throughput" if wish.goal == "throughput" else "latency",
        found.decode_s,
        found.tokens_per_s,
        found.bottleneck_s,
        (
            _split_why(request, wish, chosen, options),
            *_team_why(request, wish, chosen, options, search.untaken),
            *_figures_why(chosen, gap, ran),
        ),
    )
    return Outcome(
        plan, chosen, tuple(keeping[1:]), front, objectives.knee(front), tuple(refused), ran, bound, gap
    )


def _nothing(search: _Search, options: Sequence[Option], ran: tuple[str, ...]) -> Outcome:
    refused = tuple(
        Refused(option.name, "; ".join(objectives.refusals(search.wish, option.found)))
        for option in options[:REFUSED]
    )
    if options:
        answer = Infeasible(f"every plan breaks a bound: the nearest has {refused[0].reason}")
    elif search.wish.strategy == "optimal" and len(search.request.peers) <= REGION_PEERS:
        answer = placement.missing(search.request)
    else:
        why = strategies.refuse(search.request, search.wish)
        answer = Infeasible(
            why or f"the strategy {search.wish.strategy} leaves no plan; optimal may have one"
        )
    return Outcome(
        answer, None, (), objectives.pareto(options), None, refused, ran, min(search.bounds, default=0), None
    )


def _named(stages: Sequence[Stage]) -> str:
    return chain(stages) if len(stages) <= objectives.NAMED else f"{len(stages)} stages"


def _split_why(request: PlanRequest, wish: Wish, chosen: Option, options: Sequence[Option]) -> str:
    """Why it is one peer, or several, with the best of the other sort."""
    split = len(chosen.stages) > 1
    others = [option for option in options if (len(option.stages) > 1) != split]
    told = objectives.compared(wish, chosen.found, others[0].found) if others else ""
    if not split:
        rival = f"; the best split: {told}" if others else ""
        return f"Do not split: {chosen.stages[0].peer} alone is best for {wish.goal}{rival}."
    if others:
        return f"Split ({_named(chosen.stages)}): the best single peer, {others[0].stages[0].peer}, {told}."
    able = wish.strategy in ("attention-ffn", "component") and any(
        objectives.whole_on(request, peer.peer) is None for peer in request.peers
    )
    why = (
        f"the strategy {wish.strategy} has no plan on one peer"
        if able
        else "no peer can serve everything alone"
    )
    return f"Split ({_named(chosen.stages)}): {why}."


def _team_why(
    request: PlanRequest, wish: Wish, chosen: Option, options: Sequence[Option], untaken: Option | None
) -> tuple[str, ...]:
    """Why peers compute units together, or why they do not and what that would cost."""
    teamed = [option for option in options if any(stage.helpers for stage in option.stages)]
    if not teamed and untaken is None:
        return ()
    if not teamed and untaken is not None:
        far = f"its members are {ms(teams.way_s(request, untaken.stages))} apart, each sum takes that long"
        return (
            f"No team: the best, {untaken.name}, would take {ms(untaken.found.decode_s)} a token; {far}.",
        )
    alone = [option for option in options if option not in teamed]
    if chosen not in teamed:
        return (
            f"No team: the best, {teamed[0].name}, {objectives.compared(wish, chosen.found, teamed[0].found)}.",
        )
    said = "; ".join(
        f"{' and '.join(stage.team)} compute {units_text(request, stage.first, stage.stop)} together, "
        f"in shares {':'.join(map(str, stage.shares))}"
        for stage in chosen.stages
        if stage.helpers
    )
    if alone:
        return (
            f"A team: {said}; the best plan without one, {objectives.compared(wish, chosen.found, alone[0].found)}.",
        )
    if wish.strategy == "tensor":
        return (f"A team: {said}; the strategy tensor has one.",)
    largest = max(request.units, key=lambda unit: sum(evaluator.unit_bytes(request, unit)))
    pledge = max(peer.memory_bytes - peer.overhead_bytes for peer in request.peers)
    need = sum(evaluator.unit_bytes(request, largest))
    why = (
        f"{largest.name} takes {mib(need)}, and the most that a peer pledges is {mib(pledge)}"
        if need > pledge
        else "no peers one after the other hold all units"
    )
    return (f"A team: {said}; {why}.",)


def _figures_why(chosen: Option, gap: float, ran: tuple[str, ...]) -> tuple[str, str]:
    proven = "proven least latency" if gap == 0 else "how far from the least latency is not proven"
    if 0 < gap < TOLD_GAP:
        proven = f"the least latency is within {gap:.1%} of what is proven"
    found = chosen.found
    return (
        f"{ms(found.decode_s)} a token, first token after {ms(found.prefill_s)}, "
        f"{found.tokens_per_s:.1f} tokens/s; {float(found.saturating_sessions):.1f} sessions saturate it.",
        f"Ran: {', '.join(ran)}; {proven}.",
    )


def _among(request: PlanRequest, names: set[str]) -> PlanRequest:
    """The request without the peers and links that a plan does not touch."""
    if len(request.peers) <= REGION_PEERS:
        return request
    ends = names | ({request.origin} if request.origin else set())
    return replace(
        request,
        peers=tuple(peer for peer in request.peers if peer.peer in names),
        links=tuple(link for link in request.links if link.src in ends and link.dst in ends),
    )
