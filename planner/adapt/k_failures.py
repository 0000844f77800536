"""Decides who holds copies so that any loss leaves a working chain: k failure domains may go at once.

What fails together (same machine, NAT or owner) is one domain. A chain may be entered in the middle of what a peer
holds, so every unit held in k + 1 domains is enough where the links are there; that is checked by taking every domain
away and making the chain that is left. Places count with the KV of every promised session, so what is left fits it.
A peer that is only reached through relays, or not known to be, never counts as a holder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from planner.cost import evaluator, objectives
from planner.cost.independent_copies import apart, domains, doubtful, hazard
from planner.cost.wording import mib
from planner.model.arithmetic_class import unlike
from planner.solvers import held_paths, portfolio
from planner.types import Infeasible, PeerProfile, PlanRequest, Run, Stage

SHARES = (1000, 800, 650, 500, 400, 330, 250)  # thousandths of the pledges that the first chain may use


@dataclass(frozen=True, slots=True)
class Copy:
    """Units [first, stop) held by `peer` as well."""

    peer: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Survivable:
    """A chain with its copies."""

    stages: tuple[Stage, ...]
    copies: tuple[Copy, ...]

    def held(self) -> dict[str, tuple[Run, ...]]:
        """Runs of every peer."""
        runs: dict[str, set[Run]] = {}
        for stage in self.stages:
            runs.setdefault(stage.peer, set()).add((stage.first, stage.stop))
        for copy in self.copies:
            runs.setdefault(copy.peer, set()).add((copy.first, copy.stop))
        return {peer: tuple(sorted(found)) for peer, found in sorted(runs.items())}


def survivable(
    request: PlanRequest, k: int = 1, effort: portfolio.Effort | None = None
) -> Survivable | Infeasible:
    """The fastest chain found whose every unit survives the loss of any k domains, with its copies."""
    steady = replace(request, peers=tuple(p for p in request.peers if p.peer not in doubtful(request)))
    if any(len(peers) == len(steady.peers) for peers in domains(steady).values()):
        return _short(request, steady, k)  # one loss may take them all
    best: Survivable | None = None
    for share in SHARES:
        chains = _chains(steady, share, effort)
        for stages in chains:
            copies = _copies(steady, stages, k)
            if copies is None:
                continue
            made = _with_standbys(stages, copies)
            if survives(steady, made.held(), k):
                best = made
                break
        if best is not None or (share < 1000 and not chains):
            break
    if best is not None:
        return best
    return _short(request, steady, k)


def _short(request: PlanRequest, steady: PlanRequest, k: int) -> Infeasible:
    """Why there is no room: what fails together takes one copy of a unit at most."""
    once = sum(sum(evaluator.unit_bytes(request, unit)) for unit in request.units)
    need = (k + 1) * once
    room = {peer.peer: max(0, peer.memory_bytes - peer.overhead_bytes) for peer in steady.peers}
    have, where = sum(room.values()), ""
    if all(len(peer.facts.domains) <= 1 for peer in steady.peers):
        apart_bytes = sum(min(once, sum(map(room.__getitem__, peers))) for peers in domains(steady).values())
        where = " where no two fail together" if apart_bytes < have else ""
        have = apart_bytes
    short = (
        f"{mib(need - have)} short" if have < need else "enough in all, but not where links and domains allow"
    )
    left = (
        f"; {len(request.peers) - len(steady.peers)} peers behind relays do not count"
        if steady != request
        else ""
    )
    return Infeasible(
        f"no placement survives the loss of any {k}: {k + 1} copies take {mib(need)}, there are {mib(have)}{where}, "
        f"{short}{left}",
        max(0, need - have),
    )


def survives(request: PlanRequest, held: Mapping[str, tuple[Run, ...]], k: int = 1) -> bool:
    """Whether a chain over held runs is left, whichever k domains go; without those that do not count as holders."""
    unsure = doubtful(request)
    return _broken(request, {name: runs for name, runs in held.items() if name not in unsure}, k) is None


def _broken(request: PlanRequest, held: Mapping[str, tuple[Run, ...]], k: int) -> tuple[str, ...] | None:
    groups = domains(request)
    holders = {name for name, runs in held.items() if runs}
    touching = [name for name, peers in groups.items() if peers & holders]
    for lost in combinations(touching, min(k, len(touching))):
        gone = frozenset().union(*(groups[name] for name in lost))
        if after_loss(request, held, gone) is None:
            return lost
    return None


def after_loss(
    request: PlanRequest, held: Mapping[str, tuple[Run, ...]], gone: Iterable[str], most: int | None = None
) -> tuple[Stage, ...] | None:
    """The fastest chain over what the others hold; entering and leaving runs in the middle.

    None, too, where that takes more than `most` steps to find.
    """
    lost = frozenset(gone)
    peers = tuple(peer for peer in request.peers if peer.peer not in lost and held.get(peer.peer))
    ends = {peer.peer for peer in peers} | ({request.origin} if request.origin else set())
    links = tuple(link for link in request.links if link.src in ends and link.dst in ends)
    origin = None if request.origin in lost else request.origin
    rest = replace(request, peers=peers, links=links, origin=origin)
    names = sorted(peer.peer for peer in peers)
    if not names:
        return None
    borders = sorted(
        {border for name in names for run in held[name] for border in run} | {0, len(request.units)}
    )
    parts = {
        name: tuple(
            sorted(
                {
                    (first, stop)
                    for low, high in _merged(held[name])
                    for first in borders
                    for stop in borders
                    if low <= first < stop <= high
                }
            )
        )
        for name in names
    }
    if most is not None and held_paths.steps(names, parts) > most:
        return None
    return held_paths.least(rest, names, parts)


def _merged(runs: Sequence[Run]) -> list[Run]:
    joined: list[Run] = []
    for first, stop in sorted(runs):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((first, stop))
    return joined


def _chains(request: PlanRequest, share: int, effort: portfolio.Effort | None) -> list[tuple[Stage, ...]]:
    """Chains in a share of every pledge, the fastest first."""
    if not request.peers:
        return []
    peers = tuple(replace(p, memory_bytes=p.memory_bytes * share // 1000) for p in request.peers)
    small = portfolio.Effort(search=400_000, exact=20_000_000) if effort is None else effort
    found = portfolio.solve(replace(request, peers=peers), objectives.Wish(), small)
    return [] if found.chosen is None else [option.stages for option in (found.chosen, *found.others)][:6]


def _copies(request: PlanRequest, stages: Sequence[Stage], k: int) -> tuple[Copy, ...] | None:
    """k more holders of every unit, in domains of their own, with the arithmetic of its primary where there is room for
    that; None where there is no room at all.
    """
    found = _copies_of(request, stages, k, alike=True)
    known = len({peer.facts.arithmetic for peer in request.peers}) > 1
    return found if found is not None or not known else _copies_of(request, stages, k, alike=False)


def _copies_of(
    request: PlanRequest, stages: Sequence[Stage], k: int, *, alike: bool
) -> tuple[Copy, ...] | None:
    """Large pieces first. `alike`: peers of the class of a stage's primary come first."""
    known = evaluator.profiles(request)
    places: dict[str, list[Run]] = {peer.peer: [] for peer in request.peers}
    for stage in stages:
        places[stage.peer].append((stage.first, stage.stop))
    made: list[Copy] = []

    def weight(stage: Stage) -> tuple[float, int]:
        return -hazard(known[stage.peer]) * _bytes(request, stage.first, stage.stop), stage.first

    for stage in sorted(stages, key=weight):
        pieces = [((stage.first, stage.stop), [stage.peer])]
        while pieces:
            run, owners = pieces.pop()
            if len(owners) > k:
                continue
            able = [
                name
                for name in sorted(known)
                if apart(known[name], [known[owner] for owner in owners])
                and _room_for(request, known[name], places[name], run)
            ]
            if able:
                name = min(
                    able,
                    key=lambda name: (
                        unlike(known[owners[0]].facts.arithmetic, known[name].facts.arithmetic)
                        if alike
                        else 0,
                        hazard(known[name]) * (1 + len(places[name])),
                        _pace(known[name]),
                        name,
                    ),
                )
                places[name].append(run)
                made.append(Copy(name, *run))
                pieces.append((run, [*owners, name]))
            elif run[1] - run[0] > 1:
                middle = (run[0] + run[1]) // 2
                pieces += [((run[0], middle), owners), ((middle, run[1]), owners)]
            else:
                return None
    return tuple(sorted(made, key=lambda copy: (copy.first, copy.stop, copy.peer)))


def _room_for(request: PlanRequest, peer: PeerProfile, runs: Sequence[Run], run: Run) -> bool:
    return evaluator.refuse_runs(request, peer, [*runs, run]) is None


def _bytes(request: PlanRequest, first: int, stop: int) -> int:
    return sum(sum(evaluator.unit_bytes(request, unit)) for unit in request.units[first:stop])


def _pace(peer: PeerProfile) -> float:
    return sum(peer.decode_s.values())


def _with_standbys(stages: tuple[Stage, ...], copies: tuple[Copy, ...]) -> Survivable:
    by_run: dict[Run, list[str]] = {}
    for copy in copies:
        by_run.setdefault((copy.first, copy.stop), []).append(copy.peer)
    named = tuple(
        replace(stage, standbys=tuple(by_run.get((stage.first, stage.stop), ()))) for stage in stages
    )
    return Survivable(named, copies)
