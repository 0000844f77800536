"""Answers move between plans in virtual time: tokens stay, old seats are freed, and what fails is taken back."""

from __future__ import annotations

import random

import pytest

from peer.session.migration import MAX_TRIES, next_id
from peer.session.origin import Ask, Phase
from peer.session.routes import placed
from peer.session.seat import ID_BYTES, furthest
from peer.state.generated.commands import (
    MemberJoined,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanStage,
    UnitsHeld,
)
from peer.state.member_commands import encode_command
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from peer.validation.scenarios.figures import Stream, pause
from peer.validation.scenarios.unit_coverage import Coverage, Way, other_cuts
from tests.peer.session.moving_world import WAYS, Moving, answers
from tests.peer.session.toy_mesh import GREEDY, as_route, expected


@pytest.mark.parametrize("copies", [False, True], ids=["computed again", "copied"])
@pytest.mark.parametrize("way", WAYS)
def test_answers_move_and_their_tokens_stay(way: str, copies: bool) -> None:
    for seed in range(2):
        old, new = WAYS[way]
        world = Moving(seed, [old, new], copies=copies)
        prompts = answers(world, old, 4, 120)
        for core in list(world.origins.values()):
            world.go(world.now + world.random.uniform(0.1, 0.6))
            world.from_origin(core, core.move(world.now, as_route(new)))
        world.go(1e3)
        assert len(world.first) == 4, (way, seed, "all of them moved")
        for session, core in world.origins.items():
            prompt = prompts[world.first[session]]
            assert world.outcome[session] == "length"
            assert world.emitted[session] == expected(prompt, 120), (way, seed)
            assert placed(new, core.route) == placed(new, route_of(new))
            world.from_origin(core, core.release())
        world.run()
        assert all(not runtime.cache for runtime in world.runtimes.values()), (
            "no seat of either session is left"
        )


def test_an_answer_moves_back_and_forth_and_its_next_question_finds_the_cache() -> None:
    old, new = WAYS["one border moves"]
    world = Moving(3, [old, new], copies=True)
    (prompt,) = answers(world, old, 1, 300).values()
    (core,) = world.origins.values()
    for turn in range(6):
        world.go(world.now + 1.0)
        world.from_origin(core, core.move(world.now, as_route(old if turn % 2 else new)))
    world.go(1e3)
    assert core.session[-1] == 6
    assert world.emitted[core.session] == expected(prompt, 300)
    again = [*core.tokens, 5, 6]
    world.ask(core.session, "asker", old, Ask(tuple(again), 8, GREEDY, ()))
    assert core.start == len(again) - 3
    world.go(2e3)
    assert world.emitted[core.session] == expected(again, 8)


@pytest.mark.parametrize("copies", [False, True])
def test_a_new_stage_that_fails_first_is_given_up_and_the_answer_stays(copies: bool) -> None:
    old, new = WAYS["other peers"]
    world = Moving(5, [old, new], copies=copies)
    (prompt,) = answers(world, old, 1, 200).values()
    (core,) = world.origins.values()
    world.leave("p3")
    world.go(0.5)
    for _ in range(MAX_TRIES):
        world.from_origin(core, core.move(world.now, as_route(new)))
        world.go(world.now + 1.0)
        assert core.second is None
    world.go(1e3)
    assert core.session[-ID_BYTES:] == bytes(ID_BYTES)
    assert world.emitted[core.session] == expected(prompt, 200)
    assert not world.cores["p2"].sessions()


def test_a_loss_on_the_old_route_is_met_by_what_the_new_one_has_computed() -> None:
    old, new = WAYS["other peers"]
    world = Moving(8, [old, new])
    (prompt,) = answers(world, old, 1, 100).values()
    (core,) = world.origins.values()
    world.go(1.0)
    world.from_origin(core, core.move(world.now, as_route(new)))
    while core.second is None:
        world.go(world.now + 0.01)
    world.gone.add("p1")
    world.perform(core, core.session, core.peer_gone(world.now, "p1", "lost"))
    assert core.phase is Phase.REROUTING
    world.perform(core, core.session, core.reroute(world.now, as_route(new)))
    assert core.session[-1] == 1
    world.go(1e3)
    assert world.emitted[core.session] == expected(prompt, 100)


def test_a_cancelled_answer_leaves_nothing_on_either_route() -> None:
    old, new = WAYS["a stage splits"]
    for seed in range(8):
        world = Moving(seed, [old, new])
        answers(world, old, 2, 200)
        world.go(0.4)
        for core in list(world.origins.values()):
            world.from_origin(core, core.move(world.now, as_route(new)))
        world.go(world.now + random.Random(seed).uniform(0.05, 1.0))
        for core in list(world.origins.values()):
            world.from_origin(core, core.release())
        world.go(1e3)
        assert all(not core.sessions() for core in world.cores.values()), seed


def test_ids_count_moves_and_seats_of_one_answer_are_found() -> None:
    session = bytes(12) + b"\xff" * ID_BYTES
    assert next_id(session) == bytes(16)
    assert next_id(next_id(session)) == bytes(15) + b"\x01"
    assert furthest([], session, "") is None


def test_units_that_an_answer_counts_on_are_looked_for_at_every_entry() -> None:
    plan = PlanRecord(1, (PlanStage(0, 2, "a"), PlanStage(2, 4, "b")), 0, 0)
    state = MeshState()
    ways: list[Way] = []
    covered = Coverage(state, lambda: ways)
    for command in (
        MemberJoined("a", "a", True),
        MemberJoined("b", "b", True),
        PlanProposed(plan),
        UnitsHeld("a", ((0, 2),)),
        UnitsHeld("b", ((2, 4),)),
        PlanActivated(1),
    ):
        covered.entry(encode_command(command))
    assert covered.gaps == []
    fresh = PlanRecord(2, (PlanStage(0, 4, "a"),), 0, 0)
    for command in (PlanProposed(fresh), UnitsHeld("a", ((0, 2), (0, 4))), PlanActivated(2)):
        covered.entry(encode_command(command))
    covered.entry(encode_command(UnitsHeld("b", ())))
    assert covered.gaps == []  # no answer goes over the old plan
    ways.append((1, ("a", "b")))
    covered.entry(encode_command(UnitsHeld("a", ((0, 4),))))
    assert len(covered.gaps) == 2
    assert covered.entries == 11


def test_other_cuts_move_one_border_or_all_and_merge_and_split() -> None:
    assert other_cuts((21, 41), 62) == ((21, 35), (15, 35), (41,), (10, 21, 41))


def test_a_pause_is_the_longest_gap_after_the_change() -> None:
    at = [0.1 * place for place in range(1, 11)] + [1.35, 1.45]
    seen = Stream((1,) * 12, 0.0, tuple(at))
    longest, most = pause(seen, seen, 0.95)
    assert longest == pytest.approx(0.35)
    assert most == pytest.approx(0.35)
    assert pause(seen, seen, 9.0) == (0.0, 0.0)
