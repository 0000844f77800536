"""Decides which peer serves which units: the plan of a request, or what is missing for one.

The best by the stated key (`cost.preference`), exactly, over all subsets and orders of the peers while
exact.work is within EXACT_WORK (9 peers and 62 units are); above that, the beam search of `beam`. A peer
serves at most one stage. The order of peers and links in a request never matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner import beam, cost, exact, network, partition, wording
from planner.network import INF, Bools, Network, Path
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
        return sum(size for _, size in self.extra)


def plan(request: PlanRequest) -> Plan | Infeasible:
    """The best plan, or Infeasible. Raises RequestError for a request that breaks its rules."""
    cost.check_request(request)
    choice = _choose(request, sorted(peer.peer for peer in request.peers), None)
    return _infeasible(request) if choice is None else _finish(request, choice, ())


def replan_held(request: PlanRequest, held: Mapping[str, tuple[tuple[int, int], ...]]) -> Plan | None:
    """The best plan in which every peer serves only units it holds already, so that nothing is fetched; or
    None.

    `held`: runs [first, stop) of units per peer, stage and standby runs alike. A plan of whole runs comes
    first, whatever its figures: surviving stages keep their graph and their caches. Else runs may be served
    in part.
    """
    cost.check_request(request)
    names = sorted(peer.peer for peer in request.peers if held.get(peer.peer))
    for whole in (True, False):
        allowed = network.held_runs(request, names, held, whole=whole)
        choice = _choose(request, names, allowed)
        if choice is not None:
            how = "as they are" if whole else "in part"
            return _finish(
                request, choice, (f"Only units that peers hold already are used, runs {how}.",), held
            )
    return None


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


def _affordable(peers: int, units: int) -> bool:
    return exact.work(peers, units) <= EXACT_WORK


def _roomiest(request: PlanRequest, names: Sequence[str]) -> list[str]:
    """As many peers as the exact solver takes, those with most room beyond their overhead; sorted by name."""
    most = max(n for n in range(1, len(names) + 1) if n == 1 or _affordable(n, len(request.units)))
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
    is_exact = _affordable(len(usable), len(request.units))
    paths = _exact_paths(alone) if is_exact else _searched(request, alone)
    whole: list[Path] = [((peer, alone.unit_count),) for peer in range(len(usable))]
    paths += [path for path in whole if alone.value(path) < INF]
    if paths and request.objective == "throughput":
        paths += (_fastest if is_exact else _fast)(request, build, paths)
    ranked = [
        (cost.preference(request, stages), stages) for stages in (alone.stages(request, p) for p in paths)
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
    found = beam.search(net)
    if found is None:
        places = [net.peers.index(name) for name in _roomiest(request, net.peers)]
        inner = exact.solve(network.only(net, places)).path()
        found = None if inner is None else tuple((places[peer], stop) for peer, stop in inner)
    return [] if found is None else [found]


def _fastest(request: PlanRequest, build: Callable[[int], Network], known: Sequence[Path]) -> list[Path]:
    """The path of the best rate of all."""
    networks = map(build, cost.row_choices(request.sessions))
    solver = partition.Solver(exact.least, exact.coverable)
    rate = partition.best_rate(request.sessions, networks, solver, _best_known(request, build(1), known))
    path = exact.solve(partition.at_rate(build(rate.rows), rate)).path()
    return [] if path is None else [path]


def _fast(request: PlanRequest, build: Callable[[int], Network], known: Sequence[Path]) -> list[Path]:
    """Paths of good rates: what the beam finds under a few caps, at a few batch sizes."""
    start, seen = _best_known(request, build(1), known), list[Path]()

    def least(net: Network) -> int:
        path = beam.search(net)
        seen.extend([] if path is None else [path])
        return INF if path is None else net.value(path)

    choices = cost.row_choices(request.sessions)
    rows = sorted({start.rows, *choices[:: -max(1, len(choices) // (BEAM_ROWS - 1))]})
    partition.best_rate(request.sessions, map(build, rows), partition.Solver(least, caps=BEAM_CAPS), start)
    return list(dict.fromkeys(seen))


def _best_known(request: PlanRequest, alone: Network, paths: Sequence[Path]) -> partition.Rate:
    found = [cost.evaluate(request, alone.stages(request, path)) for path in paths]
    return min((partition.Rate(one.token_ps, one.rows) for one in found), key=partition.rate_key)


def _finish(
    request: PlanRequest,
    choice: _Choice,
    why: tuple[str, ...],
    held: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
) -> Plan:
    stages = _with_standbys(request, choice.stages, held)
    found = cost.evaluate(request, stages)
    return Plan(
        stages,
        request.objective,
        found.decode_s,
        found.tokens_per_s,
        found.bottleneck_s,
        (
            *wording.reasons(request, stages, choice.rival, exact=choice.exact),
            *why,
            wording.method(choice.considered, len(request.peers), exact=choice.exact),
        ),
    )


def _with_standbys(
    request: PlanRequest, stages: tuple[Stage, ...], held: Mapping[str, tuple[tuple[int, int], ...]] | None
) -> tuple[Stage, ...]:
    """Each unused peer with room and links stands by for one stage.

    Rounds over the stages, the costliest loss first (weights + KV bytes, which somebody would have to load or
    recompute; ties: the earlier stage): each takes the peer that would serve it fastest (ties: the name).
    """
    idle = {peer.peer for peer in request.peers} - {stage.peer for stage in stages}
    standbys: list[list[str]] = [[] for _ in stages]
    order = sorted(range(len(stages)), key=lambda at: (-stages[at].weight_bytes - stages[at].kv_bytes, at))
    known = cost.profiles(request)
    while True:
        taken = False
        for at in order:
            stage = stages[at]
            units = request.units[stage.first : stage.stop]
            able = [
                name
                for name in sorted(idle)
                if cost.refuse(request, _replaced(request, stages, at, name)) is None
                and (held is None or _holds(held.get(name, ()), stage))
            ]
            if able:
                pick = min(able, key=lambda name: (cost.stage_ps(known[name], units, 1), name))
                standbys[at].append(pick)
                idle.remove(pick)
                taken = True
        if not taken:
            return tuple(
                replace(stage, standbys=tuple(names)) for stage, names in zip(stages, standbys, strict=True)
            )


def _replaced(request: PlanRequest, stages: tuple[Stage, ...], at: int, name: str) -> tuple[Stage, ...]:
    return tuple(replace(stage, peer=name) if place == at else stage for place, stage in enumerate(stages))


def _holds(runs: Sequence[tuple[int, int]], stage: Stage) -> bool:
    return any(first <= stage.first and stage.stop <= stop for first, stop in runs)


def _infeasible(request: PlanRequest) -> Infeasible:
    if not request.peers:
        return Infeasible(wording.no_peers(request))
    lacking = shortfall(request)
    if lacking is None:
        return Infeasible(wording.unreachable(request))
    loose = shortfall(request, linked=False)
    together = loose is not None and loose.bytes == 0
    return Infeasible(
        wording.lacking(request, lacking.extra, exact=lacking.exact, together=together), lacking.bytes
    )
