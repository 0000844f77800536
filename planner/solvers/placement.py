"""Decides which peer serves which units: the plan of a request, or what is missing for one.

The best by the stated key (`cost.preference`), exactly, over all subsets and orders of the peers while
exact.work is within EXACT_WORK (9 peers and 62 units are); above that, the beam search of `beam`. In a new
plan a peer serves at most one stage; after a loss it may serve several. `redundancy` decides who stands by. The
order of peers and links in a request never matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.cost import evaluator, independent_copies, shared_runs, standbys, wording
from planner.solvers import beam_search, held_paths, network, partition
from planner.solvers import held_karp as exact
from planner.solvers.network import INF, Bools, Network, Path
from planner.types import Infeasible, Plan, PlanRequest, Stage

BEAM_ROWS = 4  # batch sizes and caps on the slowest part that a throughput plan by beam search tries: some
BEAM_CAPS = 32  # tens of searches in all
EXACT_WORK = 2 * 10**8  # exact.work of one solution; a throughput plan takes some tens of them


@dataclass(frozen=True, slots=True)
class _Choice:
    stages: tuple[Stage, ...]
    exact: bool
    considered: int  # peers with room for a unit at all
    rival: tuple[Stage, ...] | None  # best single peer if the choice is split, best split if it is not


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The least extra memory that makes a plan exist, and where: `extra` (peer, bytes), sorted by peer."""

    extra: tuple[tuple[str, int], ...]
    exact: bool  # False: an upper bound, found among the roomiest peers only

    @property
    def bytes(self) -> int:
        """How many bytes are missing in all."""
        return sum(size for _, size in self.extra)


def plan(request: PlanRequest) -> Plan | Infeasible:
    """The best plan, or Infeasible. Raises RequestError for a request that breaks its rules."""
    evaluator.check_request(request)
    choice = _choose(request, sorted(peer.peer for peer in request.peers), None)
    return missing(request) if choice is None else _finish(request, choice, ())


def replan_held(
    request: PlanRequest, held: Mapping[str, tuple[tuple[int, int], ...]], before: Sequence[Stage] = ()
) -> Plan | None:
    """The best plan in which every peer serves only units it holds already, so that nothing is fetched; or
    None.

    `held`: runs [first, stop) of units per peer, stage and standby runs alike. First comes the plan `before` with
    standbys in the places of peers that are gone: surviving stages keep their caches. Then a plan of whole runs,
    whatever its figures: they keep their graph. Then one in which a peer
    serves several of its runs, one after another or apart. Else runs may be served in part. Whoever holds the
    run of a stage and does not serve it stands by.
    """
    evaluator.check_request(request)
    names = sorted(peer.peer for peer in request.peers if held.get(peer.peer))
    kept = standbys.promoted(request, before, held)
    if kept is not None:
        why = "Who stood by took over; nobody else moves."
        return _finish(request, _Choice(kept, False, len(names), None), (why,), held)
    for how in ("as they are", "as they are, several on one peer", "in part"):
        if how.endswith("peer"):
            few = held_paths.steps(names, held) <= held_paths.MOST_STEPS
            found = held_paths.least(request, names, held) if few else None
            choice = None if found is None else _Choice(found, False, len(names), None)
        else:
            allowed = network.held_runs(request, names, held, whole=how == "as they are")
            choice = _choose(request, names, allowed)
        if choice is not None:
            why = f"Only units that peers hold already are used, runs {how}."
            return _finish(request, choice, (why,), held)
    return None


def replan_moving(
    request: PlanRequest,
    held: Mapping[str, tuple[tuple[int, int], ...]],
    before: Sequence[Stage] = (),
    first: Sequence[int] = (),
) -> Plan | Infeasible:
    """The plan for which the fewest bytes of weights move (held_paths.moved), of equals the fastest.

    `before`: the stages of the plan that can no longer serve; those whose peers are there may stay as they are, and of
    the places that were lost those of `first` choose their peers first.
    """
    evaluator.check_request(request)
    names = sorted(peer.peer for peer in request.peers)
    options: list[tuple[Stage, ...]] = []
    if names and is_affordable(len(names), len(request.units)):
        path = exact.solve(held_paths.moving(request, network.build(request, names, 1), held)).path()
        if path is not None:
            options.append(network.build(request, names, 1).stages(request, path))
    here = set(names)
    lost = [at for at, stage in enumerate(before) if not here.issuperset(stage.team)]
    lost.sort(key=lambda at: (first.index(at) if at in first else len(first), at))
    known = evaluator.profiles(request)
    kept = [
        stage
        if not here.issuperset(stage.team)
        else evaluator.make_team(
            request, [known[name] for name in stage.team], stage.shares, stage.first, stage.stop
        )
        if stage.helpers
        else evaluator.make_stage(request, known[stage.peer], stage.first, stage.stop)
        for stage in before
    ]
    taken = standbys.takeovers(request, kept, lost) if before else None
    options += [] if taken is None else [taken]
    if not options:
        return plan(request)
    best = min(
        options,
        key=lambda stages: (held_paths.moved(request, stages, held), evaluator.preference(request, stages)),
    )
    why = "The plan for which the fewest bytes move: a stage was lost that nobody else held."
    return _finish(request, _Choice(best, False, len(names), None), (why,))


def shortfall(request: PlanRequest, *, linked: bool = True) -> Shortfall | None:
    """The least total of bytes that, added to the pledges of the peers named, makes a plan exist.

    Least over every way to add bytes to the peers of the request (a new peer would need its own overhead
    too); of equals, the one whose plan has fewer stages and the smaller (peer, stop) list. No bytes when a
    plan exists; None when no memory helps. `linked` False answers as if every link were there.
    """
    names = sorted(peer.peer for peer in request.peers)
    if not names:
        return None
    roomiest = _roomiest(request, names)
    net = network.shortfalls(request, roomiest, linked=linked)
    path = exact.solve(net).path()
    if path is None:
        return None
    firsts = (0, *(stop for _, stop in path))
    lacks = (
        (net.peers[peer], int(net.stage[peer, first, stop]))
        for (peer, stop), first in zip(path, firsts, strict=False)
    )
    return Shortfall(tuple(sorted(pair for pair in lacks if pair[1])), len(roomiest) == len(names))


def is_affordable(peers: int, units: int) -> bool:
    """Returns whether an exact search of that size ends within the bounded work."""
    return exact.work(peers, units) <= EXACT_WORK


def _roomiest(request: PlanRequest, names: Sequence[str]) -> list[str]:
    """As many peers as the exact solver takes, those with most room beyond their overhead; sorted by name."""
    most = max(n for n in range(1, len(names) + 1) if n == 1 or is_affordable(n, len(request.units)))
    spare = {peer.peer: peer.memory_bytes - peer.overhead_bytes for peer in request.peers}
    return sorted(sorted(names, key=lambda name: (-spare[name], name))[:most])


def _choose(request: PlanRequest, names: Sequence[str], allowed: Bools | None) -> _Choice | None:
    """The best stages; `allowed` (len(names), L+1, L+1) limits who may serve what."""
    if not names:
        return None
    everyone = network.build(request, names, 1, allowed)
    usable = [at for at in range(len(names)) if (everyone.stage[at] < INF).any()]
    if not usable:
        return None

    def build(rows: int) -> Network:
        return network.only(network.build(request, names, rows, allowed), usable)

    alone = network.only(everyone, usable)
    is_exact = is_affordable(len(usable), len(request.units))
    paths = _exact_paths(alone) if is_exact else _searched(request, alone)
    whole: list[Path] = [((peer, alone.unit_count),) for peer in range(len(usable))]
    paths += [path for path in whole if alone.value(path) < INF]
    if paths and request.objective == "throughput":
        paths += (_fastest if is_exact else _fast)(request, build, paths)
    ranked = [
        (evaluator.preference(request, stages), stages)
        for stages in (alone.stages(request, p) for p in paths)
    ]
    if not ranked:
        return None
    best = min(ranked)[1]
    rival = min((pair for pair in ranked if (len(pair[1]) == 1) != (len(best) == 1)), default=None)
    return _Choice(best, is_exact, len(usable), None if rival is None else rival[1])


def _exact_paths(net: Network) -> list[Path]:
    """The least path of each number of stages."""
    solved = exact.solve(net)
    return [path for count in solved.by_stage_count() if (path := solved.path(count)) is not None]


def _searched(request: PlanRequest, net: Network) -> list[Path]:
    """The beam's path; where it has none, the exact one among the roomiest peers."""
    found = beam_search.search(net)
    if found is None:
        places = [net.peers.index(name) for name in _roomiest(request, net.peers)]
        inner = exact.solve(network.only(net, places)).path()
        found = None if inner is None else tuple((places[peer], stop) for peer, stop in inner)
    return [] if found is None else [found]


def _fastest(request: PlanRequest, build: Callable[[int], Network], known: Sequence[Path]) -> list[Path]:
    """The path of the best rate of all."""
    networks = map(build, evaluator.row_choices(request.sessions))
    solver = partition.Solver(exact.least, exact.coverable)
    rate = partition.best_rate(request.sessions, networks, solver, _best_known(request, build(1), known))
    path = exact.solve(partition.at_rate(build(rate.rows), rate, request.sessions)).path()
    return [] if path is None else [path]


def _fast(request: PlanRequest, build: Callable[[int], Network], known: Sequence[Path]) -> list[Path]:
    """Paths of good rates: what the beam finds under a few caps, at a few batch sizes."""
    start, seen = _best_known(request, build(1), known), list[Path]()

    def least(net: Network) -> int:
        path = beam_search.search(net)
        seen.extend([] if path is None else [path])
        return INF if path is None else net.value(path)

    choices = evaluator.row_choices(request.sessions)
    rows = sorted({start.rows, *choices[:: -max(1, len(choices) // (BEAM_ROWS - 1))]})
    partition.best_rate(request.sessions, map(build, rows), partition.Solver(least, caps=BEAM_CAPS), start)
    return list(dict.fromkeys(seen))


def _best_known(request: PlanRequest, alone: Network, paths: Sequence[Path]) -> partition.Rate:
    found = [evaluator.evaluate(request, alone.stages(request, path)) for path in paths]
    return min((partition.Rate(one.token_ps, one.rows) for one in found), key=partition.rate_key)


def _finish(
    request: PlanRequest,
    choice: _Choice,
    why: tuple[str, ...],
    held: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
) -> Plan:
    stages = standbys.with_standbys(request, choice.stages, held)
    found = evaluator.evaluate(request, stages)
    return Plan(
        stages,
        request.objective,
        found.decode_s,
        found.tokens_per_s,
        found.bottleneck_s,
        (
            *wording.reasons(request, stages, choice.rival, exact=choice.exact),
            *why,
            *independent_copies.doubts(request, stages),
            wording.method(choice.considered, len(request.peers), exact=choice.exact),
        ),
    )


def missing(request: PlanRequest) -> Infeasible:
    """What is missing for a plan, when there is none."""
    if not request.peers:
        return Infeasible(wording.no_peers(request))
    lacking, loose = shortfall(request), shortfall(request, linked=False)
    beside = shared_runs.shortfall(request)
    if lacking is not None and beside and sum(size for _, size in beside) < lacking.bytes:
        lacking = Shortfall(beside, exact=False)
    if lacking is None:
        apart = loose is not None and shortfall(replace(request, origin=None)) is not None
        limits = () if apart else _limits(request)
        return Infeasible(
            wording.barred(request, limits, linked=loose is None) if limits else wording.unreachable(request)
        )
    together = loose is not None and loose.bytes == 0
    return Infeasible(
        wording.lacking(request, lacking.extra, exact=lacking.exact, together=together), lacking.bytes
    )


def _limits(request: PlanRequest) -> tuple[str, ...]:
    """Why each peer, by name, could not serve everything whatever it pledged."""
    peers = [
        replace(peer, memory_bytes=2 * evaluator.MAX_SUM * evaluator.MAX_LOAD_PEAK)
        for peer in sorted(request.peers, key=lambda peer: peer.peer)
    ]
    found = (evaluator.refuse_runs(request, peer, [(0, len(request.units))]) for peer in peers)
    return tuple(reason for reason in found if reason is not None)
