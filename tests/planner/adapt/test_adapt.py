"""Copies that survive any loss, repairs with the fewest loaded units, the ladder, and orders of moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.bench import instances
from planner.adapt import k_failures, repair, resharding, serving_plan
from planner.cost import evaluator, independent_copies
from planner.cost.objectives import Wish
from planner.errors import RequestError
from planner.solvers import cp_sat, held_paths, moves, portfolio
from planner.types import Held, Infeasible, PeerFacts, PeerProfile, PlanRequest, Stage

QUICK = portfolio.Effort(search=60_000, exact=10_000_000)


def roomy(seed: int, peers: int) -> PlanRequest:
    return instances.mesh(seed, peers, blocks=8, tight=2.5, sessions=1 + seed % 2)


@pytest.mark.parametrize("tenth", range(10))
def test_any_single_loss_in_two_hundred_meshes_leaves_a_chain_that_fits_its_kv(tenth: int) -> None:
    """Twenty at a time; a loss takes one peer, or all of a failure domain."""
    for seed in range(20 * tenth, 20 * tenth + 20):
        request = instances.mesh(seed, 5 + seed % 6, blocks=8, tight=2.0 + seed % 3, sessions=1 + seed % 2)
        found = k_failures.survivable(request, 1, serving_plan.MESH)
        if isinstance(
            found, Infeasible
        ):  # what fails together takes one copy of a unit, and units are not cut
            assert _apart_bytes(request) < 2 * _whole_bytes(request) + 240 * instances.MIB, f"mesh {seed}"
            continue
        held = found.held()
        for gone in {frozenset({name}) for name in held} | set(independent_copies.domains(request).values()):
            stages = k_failures.after_loss(request, held, gone)
            assert stages is not None, f"mesh {seed} without {sorted(gone)}"
            assert not {stage.peer for stage in stages} & gone
            rest = replace(request, peers=tuple(peer for peer in request.peers if peer.peer not in gone))
            assert evaluator.refuse(rest, stages) is None
        for peer in request.peers:
            assert evaluator.overfull(request, peer, held.get(peer.peer, ())) is None


def _whole_bytes(request: PlanRequest) -> int:
    return sum(sum(evaluator.unit_bytes(request, unit)) for unit in request.units)


def _apart_bytes(request: PlanRequest) -> int:
    """The most that copies could take of which no two fail together."""
    return sum(
        min(
            _whole_bytes(request),
            sum(peer.memory_bytes - peer.overhead_bytes for peer in request.peers if peer.peer in members),
        )
        for members in independent_copies.domains(request).values()
    )


def test_missing_room_counts_what_fails_together_once() -> None:
    request = instances.mesh(1, 3, blocks=4, tight=6.0)
    one = tuple(replace(peer, facts=PeerFacts(domains=("box",))) for peer in request.peers)
    found = k_failures.survivable(replace(request, peers=one), 1, QUICK)
    assert isinstance(found, Infeasible)
    assert found.missing_bytes == _whole_bytes(request)
    assert "where no two fail together" in found.reason


def test_two_losses_need_three_domains() -> None:
    request = instances.mesh(1, 5, blocks=4, tight=6.0)
    apart = tuple(replace(peer, facts=PeerFacts()) for peer in request.peers)
    found = k_failures.survivable(replace(request, peers=apart), 2, QUICK)
    assert isinstance(found, k_failures.Survivable)
    assert k_failures.survives(replace(request, peers=apart), found.held(), 2)
    paired = tuple(
        replace(peer, facts=PeerFacts(domains=(f"owner {at % 2}",))) for at, peer in enumerate(request.peers)
    )
    assert isinstance(k_failures.survivable(replace(request, peers=paired), 1, QUICK), k_failures.Survivable)
    assert isinstance(k_failures.survivable(replace(request, peers=paired), 2, QUICK), Infeasible)


def test_nothing_held_survives_nothing() -> None:
    request = instances.mesh(1, 3, blocks=4, tight=6.0)
    nothing: tuple[Held, ...] = ({}, {peer.peer: () for peer in request.peers})
    assert [k_failures.survives(request, held) for held in nothing] == [False, False]


def test_a_likely_loss_is_stood_by_for_by_steady_peers() -> None:
    request = instances.mesh(2, 4, blocks=3, tight=8.0)
    hazards = {"p0000": 8.0, "p0001": 0.01, "p0002": 8.0, "p0003": 8.0}
    peers = tuple(replace(peer, facts=PeerFacts(hazard_per_h=hazards[peer.peer])) for peer in request.peers)
    found = k_failures.survivable(replace(request, peers=peers), 1, QUICK)
    assert isinstance(found, k_failures.Survivable)
    assert "p0001" in found.held()


def test_missing_copies_are_told_in_bytes() -> None:
    request = instances.mesh(2, 3, blocks=8, tight=1.2)
    found = k_failures.survivable(request, 1, QUICK)
    assert isinstance(found, Infeasible)
    assert "MiB" in found.reason


@pytest.mark.parametrize("seed", range(3))
def test_a_repair_loads_as_few_units_as_can_be(seed: int) -> None:
    request = instances.mesh(seed, 12, blocks=10, tight=0.9)
    chosen = portfolio.solve(request, Wish(strategy="layer"), QUICK).chosen
    assert chosen is not None
    gone = chosen.stages[seed % len(chosen.stages)]
    held = {s.peer: ((s.first, s.stop),) for s in chosen.stages if s is not gone}
    rest = replace(request, peers=tuple(peer for peer in request.peers if peer.peer != gone.peer))
    rest = replace(rest, links=tuple(link for link in request.links if gone.peer not in (link.src, link.dst)))
    found = repair.fewest_moved(rest, chosen.stages, held)
    assert found is not None
    stages, loaded = found
    assert evaluator.refuse(rest, stages) is None
    counted = sum(
        not any(first <= at < stop for first, stop in held.get(stage.peer, ()))
        for stage in stages
        for at in range(stage.first, stage.stop)
    )
    assert loaded == counted >= gone.stop - gone.first
    if cp_sat.available():
        assert cp_sat.fewest_loaded(rest, held, 5.0) == (loaded, True)


def test_a_repair_moves_borders_when_nobody_is_idle() -> None:
    request = instances.mesh(1, 4, blocks=6, tight=40.0)
    names = [peer.peer for peer in sorted(request.peers, key=lambda peer: peer.peer)]
    count = len(request.units)
    before = (Stage(0, 5, names[0]), Stage(5, 9, names[1]), Stage(9, count, names[2]))
    rest = replace(
        request, peers=tuple(peer for peer in request.peers if peer.peer not in (names[1], names[3]))
    )
    held = {names[0]: ((0, 5),), names[2]: ((9, count),)}
    found = repair.fewest_moved(rest, before, held)
    assert found is not None
    assert found[1] == 4
    assert [stage.peer for stage in found[0]] == [names[0], names[2]]


@pytest.mark.parametrize("seed", range(8))
def test_every_state_on_the_way_covers_all_units_and_fits(seed: int) -> None:
    request = roomy(seed, 4 + seed % 3)
    options = portfolio.solve(request, None, QUICK)
    assert options.chosen is not None
    others = [*options.others, options.chosen]
    start, target = options.chosen.stages, others[seed % len(others)].stages
    held = {stage.peer: ((stage.first, stage.stop),) for stage in start}
    order = moves.order(request, held, target)
    states = moves.states(held, order.moves)
    everything = set(range(len(request.units)))
    if order.gap_bytes == 0:
        assert all(set().union(*state.values()) == everything for state in states)
    known = evaluator.profiles(request)
    for state in states:
        for name, units in state.items():
            runs = [(unit, unit + 1) for unit in units]
            assert evaluator.overfull(request, known[name], runs) is None
    assert order.moved_bytes == resharding.moved_bytes(request, target, held)


def test_a_target_that_does_not_fit_is_refused() -> None:
    request = roomy(0, 4)
    count = len(request.units)
    small = tuple(replace(peer, memory_bytes=peer.overhead_bytes) for peer in request.peers)
    with pytest.raises(RequestError, match="pledged"):
        moves.order(replace(request, peers=small), {}, (Stage(0, count, "p0000"),))
    with pytest.raises(RequestError, match="expected all"):
        moves.order(request, {}, (Stage(0, 1, "p0000"),))


def test_shards_go_where_most_of_them_is() -> None:
    request = instances.mesh(3, 3, blocks=6, tight=9.0)
    count = len(request.units)
    held = {"p0000": ((8, count),), "p0001": ((0, 4),), "p0002": ((4, 8),)}
    found = moves.fewest_missing(request, [(0, 4), (4, 9), (9, count)], held)
    assert found == {(0, 4): "p0001", (4, 9): "p0002", (9, count): "p0000"}


def ladder() -> tuple[PlanRequest, tuple[Stage, ...], tuple[Stage, ...]]:
    request = instances.mesh(3, 4, blocks=6, tight=9.0)
    slow = tuple(
        replace(peer, decode_s={kind: seconds * 9 for kind, seconds in peer.decode_s.items()})
        if peer.peer == "p0001"
        else peer
        for peer in request.peers
    )
    request = replace(request, peers=slow)
    fresh = portfolio.solve(request, None, QUICK).chosen
    assert fresh is not None
    count = len(request.units)
    return request, (Stage(0, 6, "p0000"), Stage(6, count, "p0001", ("p0003",))), fresh.stages


def test_a_standby_is_activated_before_anything_moves() -> None:
    request, serving, fresh = ladder()
    count = len(request.units)
    held = {"p0000": ((0, 6),), "p0001": ((6, count),)}
    lenient = resharding.Limits(enough=50.0)
    decision = resharding.check(request, serving, held, fresh, resharding.Memory(2), lenient)
    assert decision.rung in ("re-route", "trim or extend", "activate standby")
    held["p0003"] = ((6, count),)
    decision = resharding.check(request, serving, held, fresh, resharding.Memory(2), lenient)
    assert decision.rung == "re-route"
    assert decision.moved_bytes == 0
    assert decision.stages[-1].peer == "p0003"


def test_who_holds_every_run_there_is_takes_a_planner_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    request, serving, fresh = ladder()
    count = len(request.units)
    runs = tuple((first, stop) for first in range(count) for stop in range(first + 1, count + 1))
    held = {peer.peer: runs for peer in request.peers}
    every = held_paths.steps(sorted(held), held)
    assert every == len(held) ** 3 * len(runs)
    decided = {}
    for most in (every, every - 1):
        monkeypatch.setattr(held_paths, "MOST_STEPS", most)
        decided[most] = resharding.check(request, serving, held, fresh, resharding.Memory(2)).rung
    assert decided == {every: "re-route", every - 1: "global"}
    assert every < 2_000_000, "an honest mesh of this size is looked through"


def test_a_gain_that_does_not_last_changes_nothing() -> None:
    request, serving, fresh = ladder()
    held = {"p0000": ((0, 6),), "p0001": ((6, len(request.units)),)}
    memory = resharding.Memory()
    for _ in range(2):
        decision = resharding.check(request, serving, held, fresh, memory)
        assert decision.rung == "stay"
        memory = decision.memory
    calm = resharding.check(request, fresh, {}, fresh, memory)
    assert calm.memory == resharding.Memory(0)


def test_a_move_that_takes_longer_than_it_gains_is_not_made() -> None:
    request, serving, fresh = ladder()
    held = {"p0000": ((0, 6),), "p0001": ((6, len(request.units)),)}
    serving = tuple(replace(stage, standbys=()) for stage in serving)
    slow = resharding.Limits(bytes_per_s=1.0)
    decision = resharding.check(request, serving, held, fresh, resharding.Memory(2), slow)
    assert decision.moved_bytes == 0
    fast = resharding.check(request, serving, held, fresh, resharding.Memory(2))
    assert fast.rung in ("move one boundary", "global")


@pytest.mark.parametrize(("share", "rung"), [(0.9, "global"), (1.1, "stay")])
def test_a_gain_must_be_worth_what_moves(share: float, rung: str) -> None:
    """`share`: of the time it saves over the horizon that loading takes; the loading ends before the horizon does."""
    request, _, _ = ladder()
    alike = tuple(
        replace(peer, memory_bytes=2 * peer.memory_bytes, decode_s=dict.fromkeys(peer.decode_s, 1e-3))
        for peer in request.peers
    )
    slower = replace(alike[0], decode_s=dict.fromkeys(alike[0].decode_s, 1.5e-3))
    request, count = replace(request, peers=(slower, *alike[1:])), len(request.units)
    names = [peer.peer for peer in request.peers]
    serving, fresh = (Stage(0, count, names[0]),), (Stage(0, count, names[1]),)
    now, then = (evaluator.evaluate(request, stages).decode_s for stages in (serving, fresh))
    moved = resharding.moved_bytes(request, fresh, {})
    limits = resharding.Limits(enough=1.0)
    gained_s = (now - then) / now * limits.horizon_s
    assert gained_s * share < limits.horizon_s
    limits = replace(limits, bytes_per_s=moved / (gained_s * share))
    decision = resharding.check(
        request, serving, {names[0]: ((0, count),)}, fresh, resharding.Memory(2), limits
    )
    assert decision.rung == rung


@pytest.mark.parametrize(("full_after", "rung"), [(0.5, "global"), (0.99, "stay")])
def test_a_full_peer_asks_for_a_change_where_one_leaves_it_less_full(full_after: float, rung: str) -> None:
    request, _, _ = ladder()
    names, count = [peer.peer for peer in request.peers], len(request.units)
    serving, fresh = (Stage(0, count, names[0]),), (Stage(0, count, names[1]),)

    def pledge(peer: PeerProfile, full: float) -> PeerProfile:
        return replace(peer, memory_bytes=round(evaluator.places_bytes(request, peer, ((0, count),)) / full))

    known = evaluator.profiles(request)
    seconds = {
        name: dict.fromkeys(known[name].decode_s, 1e-3 if name == names[1] else 1.1e-3) for name in names
    }
    peers = tuple(
        replace(pledge(known[name], full_after if name == names[1] else 0.99), decode_s=seconds[name])
        for name in names
    )
    request = replace(request, peers=peers)
    decision = resharding.check(
        request,
        serving,
        {names[0]: ((0, count),)},
        fresh,
        resharding.Memory(2),
        resharding.Limits(enough=1.0, bytes_per_s=1e12),
    )
    assert decision.rung == rung
    assert ("full" in decision.why) == (rung != "stay")


def test_a_plan_that_cannot_serve_is_replaced_at_once() -> None:
    request, serving, _ = ladder()
    here = tuple(peer for peer in request.peers if peer.peer != "p0001")
    rest = replace(
        request,
        peers=here,
        links=tuple(link for link in request.links if "p0001" not in (link.src, link.dst)),
    )
    fresh = portfolio.solve(rest, None, QUICK).chosen
    assert fresh is not None
    decision = resharding.check(rest, serving, {"p0000": ((0, 6),)}, fresh.stages, resharding.Memory())
    assert decision.rung != "stay"
    assert evaluator.refuse(rest, decision.stages) is None
    assert decision.downtime_s > 0
