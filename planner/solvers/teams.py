"""Decides which peers compute units together, each a slice: placements in which one stage, or more, is a team's.

A team is looked at as one peer more, with the lead's links, that takes each unit as long as the team does. So whatever
finds chains finds chains with a team, in which members may have units of their own besides, and the evaluator has the
last word on memory. Units that are not cut stay whole with the lead. All teams of MOST_PEERS peers are valued by
themselves; the best TRIED of them, those first that could hold everything, are placed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, permutations
from typing import Final

from planner.cost import evaluator
from planner.cost.team_cost import whole_shares
from planner.solvers import held_karp as exact
from planner.solvers import lattice
from planner.solvers.lattice import Lattice
from planner.solvers.network import INF, Path
from planner.types import Link, PeerFacts, PeerProfile, PlanRequest, Stage, Unit

MOST_PEERS: Final = 6  # the fastest and the roomiest, among which teams are looked for
MOST_TEAM: Final = 4
TRIED: Final = 36  # teams that are placed, of up to FEW peers; of more
TRIED_OF_MANY: Final = 4
FEW: Final = 4
FAR_S: Final = 0.010  # one way between members from which a team is never taken for its speed
POLISHED: Final = 2  # placements of each team whose borders are moved; where peers are many, one
ROUNDS: Final = 40  # in which each takes the best move
# Thousandths of its members' memory that a team may have, and that they have for units of their own. The first is more
# than there is: most plans leave room anyway, and the evaluator refuses the others.
ROOMS: Final = ((1000, 1000), *((room, 1000 - room) for room in (850, 500)))


@dataclass(frozen=True, slots=True)
class Team:
    """Peers, the lead first, with the share of each, and what all units take together in picoseconds."""

    peers: tuple[PeerProfile, ...]
    shares: tuple[int, ...]
    taken_ps: int
    room_bytes: int  # of whole units that its slices could be of, roughly
    way_s: float  # the longest one way between two members

    @property
    def key(self) -> tuple[int, int, tuple[str, ...], tuple[int, ...]]:
        """Of two teams the one with the smaller key is looked at first."""
        return self.taken_ps, len(self.peers), tuple(peer.peer for peer in self.peers), self.shares


def placements(
    request: PlanRequest, min_bytes: int = 0, below_ps: int | None = None
) -> Iterator[tuple[Stage, ...]]:
    """Placements with a team that the evaluator accepts, of teams that are looked at first first.

    `min_bytes`: units with fewer of weights stay whole. `below_ps`: only near teams that might take less than that for
    a token; where there is none, the one of least time, so that it can be told what that costs.
    """
    cut = cuttable(request, min_bytes)
    if not any(cut) or len(request.peers) < 2:
        return
    teams = sorted(_teams(request, cut), key=lambda team: team.key)
    if below_ps is not None:
        near = [team for team in teams if team.taken_ps < below_ps and team.way_s < FAR_S]
        teams = near or teams[:1]
    size = sum(sum(evaluator.unit_bytes(request, unit)) for unit in request.units)
    teams.sort(key=lambda team: team.room_bytes < size)  # stable
    table = _Table.of(request)
    for team in teams[: TRIED if len(request.peers) <= FEW else TRIED_OF_MANY]:
        starts = dict.fromkeys(_placed(request, team, cut))
        for stages in sorted(starts, key=table.value)[: POLISHED if len(request.peers) <= FEW else 1]:
            polished = _polished(table, stages, team, cut)
            if any(stage.helpers for stage in polished) and evaluator.refuse(request, polished) is None:
                yield polished


@dataclass(frozen=True, slots=True)
class _Table:
    """What placements are valued by while their borders move."""

    request: PlanRequest
    peers: Mapping[str, PeerProfile]
    links: Mapping[tuple[str, str], Link]

    @classmethod
    def of(cls, request: PlanRequest) -> _Table:
        return cls(request, evaluator.profiles(request), evaluator.link_table(request))

    def value(self, stages: Sequence[Stage]) -> tuple[int, int, tuple[object, ...]]:
        """Bytes beyond what peers pledge, then the time of a token; smaller is better. Worst are those with a missing
        link, and those without a team, to which only units fell that are not cut.
        """
        if not any(stage.helpers for stage in stages):
            return 2 * INF, 0, _order(stages)
        lacks = sum(
            max(
                0,
                evaluator.places_bytes(self.request, self.peers[name], runs) - self.peers[name].memory_bytes,
            )
            for name, runs in evaluator.runs_by_peer(stages).items()
        )
        try:
            taken = sum(evaluator.place_ps(self.request, each, 1, self.peers, self.links) for each in stages)
            between = evaluator.hops(self.request, stages, dict(self.links))
        except KeyError:
            return INF, 0, _order(stages)
        return lacks, taken + sum(evaluator.hop_ps(link, size, 1) for link, size in between), _order(stages)


def _order(stages: Sequence[Stage]) -> tuple[object, ...]:
    return tuple((stage.peer, stage.stop, stage.helpers, stage.shares) for stage in stages)


Owner = tuple[str, ...]  # of a unit: a peer, or a team


def _polished(table: _Table, stages: Sequence[Stage], team: Team, cut: Sequence[bool]) -> tuple[Stage, ...]:
    """Borders moved while that makes slices fit, or a token quicker; the lead may take units of its team for itself."""
    owners: Sequence[Owner] = [stage.team for stage in stages for _ in range(stage.first, stage.stop)]
    best, least = tuple(stages), table.value(stages)
    for _ in range(ROUNDS):
        made = [
            (table.value(found := _of_owners(table.request, moved, team, cut)), at, found, moved)
            for at, moved in enumerate(dict.fromkeys(_moves(owners, team)))
        ]
        if not made or min(each[0] for each in made) >= least:
            return best
        least, _, best, owners = min(made, key=lambda each: each[:2])
    return best


def _moves(owners: Sequence[Owner], team: Team) -> Iterator[tuple[Owner, ...]]:
    """Owners of all units after one border moved, a run slid, or the lead took units at an end of its team's. The team
    keeps some.
    """
    lead: Owner = (team.peers[0].peer,)
    everybody: Owner = tuple(peer.peer for peer in team.peers)
    made: list[tuple[Owner, ...]] = []
    first = 0
    for owner, group in groupby(owners):
        count = len(list(group))
        stop = first + count
        beside = [owners[at] for at in (first - 1, stop) if 0 <= at < len(owners)]
        takers = [*beside, lead] if len(owner) > 1 else [*beside, everybody]
        for length in sorted({1, 2, 3, 4, 8, 16, 32, count}):
            for taker in takers:
                if length <= count:
                    made.append((*owners[:first], *[taker] * length, *owners[first + length :]))
                    made.append((*owners[: stop - length], *[taker] * length, *owners[stop:]))
                before, after = owners[max(0, first - length) : first], owners[stop : stop + length]
                if len(owner) > 1 and len(after) == length:
                    made.append(
                        (*owners[:first], *[taker] * length, *[owner] * count, *owners[stop + length :])
                    )
                if len(owner) > 1 and len(before) == length:
                    made.append(
                        (*owners[: first - length], *[owner] * count, *[taker] * length, *owners[stop:])
                    )
        first = stop
    yield from (each for each in made if everybody in each)


def _of_owners(
    request: PlanRequest, owners: Sequence[Owner], team: Team, cut: Sequence[bool]
) -> tuple[Stage, ...]:
    """Stages of the units' owners; what is not cut stays with the lead."""
    known, first, made = evaluator.profiles(request), 0, list[Stage]()
    kept = [owner if able or len(owner) == 1 else owner[:1] for owner, able in zip(owners, cut, strict=True)]
    for owner, group in groupby(kept):
        stop = first + len(list(group))
        made.append(
            evaluator.make_team(request, team.peers, team.shares, first, stop)
            if len(owner) > 1
            else evaluator.make_stage(request, known[owner[0]], first, stop)
        )
        first = stop
    return tuple(made)


def way_s(request: PlanRequest, stages: Sequence[Stage]) -> float:
    """The longest one way between two members of a team, in seconds; 0 where there is no team."""
    links = evaluator.link_table(request)
    ways = [links[pair] for stage in stages if stage.helpers for pair in permutations(stage.team, 2)]
    return max((evaluator.delay_ps(way) for way in ways), default=0) / evaluator.PICO


def far(request: PlanRequest, stages: Sequence[Stage]) -> bool:
    """Whether a team's members are too far apart for it to be taken for its speed."""
    return way_s(request, stages) >= FAR_S


def cuttable(request: PlanRequest, min_bytes: int = 0) -> tuple[bool, ...]:
    """Which units a team may compute: those of which it is known how they are cut, with enough weights."""
    return tuple(
        unit.cut is not None
        and unit.cut.pieces > 1
        and unit.weight_bytes >= min_bytes
        and unit.kind != "embed"
        for unit in request.units
    )


def _teams(request: PlanRequest, cut: Sequence[bool]) -> Iterator[Team]:
    units = [unit for unit, able in zip(request.units, cut, strict=True) if able]
    pieces = min(unit.cut.pieces for unit in units if unit.cut is not None)
    links = evaluator.link_table(request)

    def time(peer: PeerProfile) -> int:
        return evaluator.stage_ps(peer, units, 1)

    looked = [peer for peer in _looked(request, cut) if evaluator.computes_slices(peer, units)]
    for count in range(2, min(MOST_TEAM, pieces, len(looked)) + 1):
        for members in combinations(sorted(looked, key=lambda peer: peer.peer), count):
            if any((a.peer, b.peer) not in links for a, b in permutations(members, 2)):
                continue
            for lead in members:
                team = (lead, *(peer for peer in members if peer is not lead))
                for shares in _shares(request, team, time):
                    yield _team(request, team, shares, cut, links)


def _looked(
    request: PlanRequest, cut: Sequence[bool], first: Sequence[PeerProfile] = ()
) -> tuple[PeerProfile, ...]:
    """The peers that are looked at: `first`, then the fastest and the roomiest."""
    units = [unit for unit, able in zip(request.units, cut, strict=True) if able]
    fastest = sorted(request.peers, key=lambda peer: (evaluator.stage_ps(peer, units, 1), peer.peer))
    roomiest = sorted(request.peers, key=lambda peer: (peer.overhead_bytes - peer.memory_bytes, peer.peer))
    taken = [*first, *fastest[: MOST_PEERS // 2], *roomiest]
    return tuple({peer.peer: peer for peer in taken}.values())[:MOST_PEERS]


def _shares(
    request: PlanRequest, team: Sequence[PeerProfile], time: Callable[[PeerProfile], int]
) -> list[tuple[int, ...]]:
    """By speed, alike, by memory; each once."""
    room = [max(1, peer.memory_bytes - peer.overhead_bytes) for peer in team]
    ways = ([1 / max(1, time(peer)) for peer in team], [1.0] * len(team), [float(each) for each in room])
    return list(dict.fromkeys(whole_shares(way) for way in ways))


def _team(
    request: PlanRequest,
    team: tuple[PeerProfile, ...],
    shares: tuple[int, ...],
    cut: Sequence[bool],
    links: dict[tuple[str, str], Link],
) -> Team:
    units = [unit for unit, able in zip(request.units, cut, strict=True) if able]
    rest = [unit for unit, able in zip(request.units, cut, strict=True) if not able]
    room = min(
        (peer.memory_bytes - peer.overhead_bytes) * sum(shares) // share
        for peer, share in zip(team, shares, strict=True)
    )
    taken = _taken(team, shares, units, links) + sum(evaluator.unit_ps(team[0], unit, 1) for unit in rest)
    ways = [links[a.peer, b.peer] for a, b in permutations(team, 2)]
    return Team(team, shares, taken, max(0, room), max(map(evaluator.delay_ps, ways)) / evaluator.PICO)


def _taken(
    team: Sequence[PeerProfile],
    shares: Sequence[int],
    units: Sequence[Unit],
    links: dict[tuple[str, str], Link],
) -> int:
    ways = [links[a.peer, b.peer] for a, b in permutations(team, 2)]
    taken = [[evaluator.unit_ps(peer, unit, 1) for unit in units] for peer in team]
    return evaluator.team_ps(team, shares, ways, units, taken, 1)


def _placed(request: PlanRequest, team: Team, cut: Sequence[bool]) -> Iterator[tuple[Stage, ...]]:
    """Chains over the team and all peers, those of the team among them, which may have units of their own as well."""
    name, lead, members = _name(team), team.peers[0].peer, {peer.peer for peer in team.peers}
    own = [Link(a, b, 0.0, math.inf) for a, b in ((name, lead), (lead, name))]
    as_lead = [replace(link, src=name) for link in request.links if link.src == lead]
    as_lead += [replace(link, dst=name) for link in request.links if link.dst == lead]
    links = (*request.links, *own, *as_lead)
    for room, rest in ROOMS:
        joined = _joined(request, team, cut, team.room_bytes * room // 1000)
        others = (
            _pledging(peer, rest) if peer.peer in members else peer
            for peer in _looked(request, cut, team.peers)
        )
        view = lattice.build(replace(request, peers=(joined, *others), links=links))
        at = view.peers.index(name)
        solved = exact.solve(view.network())
        total = solved.total.copy()
        total[[used for used in range(len(total)) if not used >> at & 1]] = (
            INF  # only what goes over the team
        )
        solved = replace(solved, total=total)
        paths = [path for count in solved.by_stage_count() if (path := solved.path(count)) is not None]
        paths.sort(key=view.key)
        for path in paths:
            yield _stages(request, view, path, team, cut)


def _name(team: Team) -> str:
    """Of a team as one peer: no peer is called so, since names are printable."""
    return "\0".join(peer.peer for peer in team.peers)


def _pledging(peer: PeerProfile, thousandths: int) -> PeerProfile:
    """The peer with so much of its memory beyond its overhead."""
    spare = max(0, peer.memory_bytes - peer.overhead_bytes)
    return replace(peer, memory_bytes=peer.overhead_bytes + spare * thousandths // 1000)


def _joined(request: PlanRequest, team: Team, cut: Sequence[bool], room: int) -> PeerProfile:
    """The team as one peer, whose links are the lead's."""
    lead, links = team.peers[0], evaluator.link_table(request)
    ways = [links[a.peer, b.peer] for a, b in permutations(team.peers, 2)]
    step = max(peer.step_s for peer in team.peers)
    entries = [
        max(evaluator.hop_ps(way, unit.out_bytes_per_token, 1) for way in ways) for unit in request.units
    ]
    times: dict[str, float] = {}
    for unit, entry, able in zip(request.units, entries, cut, strict=True):
        if able:
            alone = _taken(team.peers, team.shares, (unit,), links) - entry
            times[unit.name] = alone / evaluator.PICO - step
        else:
            times[unit.name] = evaluator.unit_ps(lead, unit, 1) / evaluator.PICO
    step += min(entry for entry, able in zip(entries, cut, strict=True) if able) / evaluator.PICO
    times = {name: max(0.0, taken) for name, taken in times.items()}
    return replace(
        lead,
        peer=_name(team),
        memory_bytes=room,
        overhead_bytes=0,
        step_s=step,
        facts=PeerFacts(unit_decode_s=times),
    )


def _stages(
    request: PlanRequest, view: Lattice, path: Path, team: Team, cut: Sequence[bool]
) -> tuple[Stage, ...]:
    """The path with the team's stages divided where units are not cut: these stay with the lead."""
    known, lead = evaluator.profiles(request), team.peers[0]
    made: list[Stage] = []
    first = 0
    for place, stop in path:
        name = view.peers[place]
        if name != _name(team):
            made.append(evaluator.make_stage(request, known[name], first, stop))
        else:
            for able, group in groupby(range(first, stop), key=lambda at: cut[at]):
                run = list(group)
                ends = run[0], run[-1] + 1
                made.append(
                    evaluator.make_team(request, team.peers, team.shares, *ends)
                    if able
                    else evaluator.make_stage(request, lead, *ends)
                )
        first = stop
    return tuple(made)
