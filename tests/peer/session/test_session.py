"""Sessions and stages in virtual time: a toy model whose tokens depend on all earlier ones, over a random network."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from peer.errors import ContextOverflow
from peer.session.effects import (
    Broken,
    Emit,
    Ended,
    FreeSlot,
    Reason,
    RunStep,
    Send,
    StageEffect,
)
from peer.session.origin import HOPE_S, MAX_REROUTES, REROUTE_S, STALL_S, Ask, OriginSession, Phase, room_for
from peer.session.position_spans import common_prefix
from peer.session.sampling import Sampling
from peer.session.seat import LEFT_S
from peer.session.stage import (
    MAX_PENDING_STEPS,
    MAX_STEP_POSITIONS,
    ORPHAN_S,
)
from peer.state.plan_record import route_of
from peer.wire.generated.frames import (
    Cancel,
    Finish,
    Frame,
    Open,
    Refuse,
    Release,
    Step,
    Token,
)
from peer.wire.tensors import tensor_of
from tests.peer.session.toy_mesh import GREEDY, UNITS, World, as_route, asks, expected, opening, plan_of


@pytest.mark.parametrize("seed", range(60))
def test_split_equals_unsplit_whatever_the_network_does(seed: int) -> None:
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(1, UNITS), rng.randint(0, 3)))
    plan = plan_of(1, cuts, [f"p{i}" for i in range(len(cuts) + 1)])
    world = World(seed, [plan])
    jobs = {bytes([i]) * 16: ask for i, ask in enumerate(asks(rng, 6))}
    for i, (session, ask) in enumerate(jobs.items()):
        world.ask(session, rng.choice(["asker", "p0", route_of(plan)[-1]]) if i else "asker", plan, ask)
    world.run()
    for session, ask in jobs.items():
        assert world.emitted[session] == expected(list(ask.prompt), ask.max_tokens, ask.end_tokens)
        ended = "end" if world.emitted[session][-1] == 13 else "length"
        assert world.outcome[session] == ended
    assert all(core.active() == 0 for core in world.cores.values())


def test_a_continued_session_sends_only_what_is_new() -> None:
    plan = plan_of(1, [3], ["p0", "p1"])
    world = World(1, [plan])
    session = b"s" * 16
    prompt = list(range(50))
    world.ask(session, "asker", plan, Ask(tuple(prompt), 10, GREEDY, ()))
    world.run()
    answer = world.emitted[session]
    longer = [*prompt, *answer, 7, 8, 9]
    steps: list[Step] = []
    original = world.send

    def spy(src: str, dst: str, frame: Frame) -> None:
        if isinstance(frame, Step) and src == "asker":
            steps.append(frame)
        original(src, dst, frame)

    world.send = spy  # type: ignore[method-assign]
    world.ask(session, "asker", plan, Ask(tuple(longer), 10, GREEDY, ()))
    world.run()
    assert world.emitted[session] == expected(longer, 10)
    assert [(step.position, step.count) for step in steps] == [(len(prompt) + len(answer) - 1, 4)]


def test_a_session_whose_cache_was_evicted_is_fed_again() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    world = World(2, [plan], slots=1)
    first, second = b"a" * 16, b"b" * 16
    world.ask(first, "asker", plan, Ask((1, 2, 3), 4, GREEDY, ()))
    world.run()
    world.ask(second, "other", plan, Ask((4, 5), 4, GREEDY, ()))
    world.run()
    longer = (1, 2, 3, *world.emitted[first], 9)
    world.ask(first, "asker", plan, Ask(longer, 4, GREEDY, ()))
    world.run()
    assert world.emitted[first] == expected(list(longer), 4)
    assert world.outcome[first] == "length"


def test_a_full_mesh_says_so() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    world = World(3, [plan], slots=1)
    world.ask(b"a" * 16, "asker", plan, Ask((1, 2, 3), 500, GREEDY, ()))
    world.run(until=0.3)
    world.ask(b"b" * 16, "other", plan, Ask((4,), 5, GREEDY, ()))
    world.run(until=0.6)
    core = world.origins[b"b" * 16]
    assert core.phase is Phase.REROUTING, "another peer may have a slot"
    world.from_origin(core, core.reroute(world.now, as_route(plan)))
    world.run(until=0.9)
    assert "in use" in world.outcome[b"b" * 16]


def test_cancel_stops_every_stage_and_release_frees_the_slot() -> None:
    plan = plan_of(1, [2, 5], ["p0", "p1", "p2"])
    world = World(4, [plan])
    session = b"c" * 16
    world.ask(session, "asker", plan, Ask(tuple(range(40)), 10_000, GREEDY, ()))
    world.run(until=2.0)
    assert len(world.emitted[session]) > 3
    core = world.origins[session]
    world.from_origin(core, core.cancel())
    world.run()
    assert world.outcome[session] == "cancelled"
    assert all(stage.active() == 0 and stage.sessions() == 1 for stage in world.cores.values())
    world.from_origin(core, core.release())
    world.run()
    assert all(stage.sessions() == 0 for stage in world.cores.values())
    assert all(not runtime.cache for runtime in world.runtimes.values())


@pytest.mark.parametrize("seed", range(20))
def test_a_polite_leave_moves_the_answer_to_peers_that_hold_the_units(seed: int) -> None:
    first, second = plan_of(1, [3], ["p0", "p1"]), plan_of(2, [3], ["p0", "spare"])
    world = World(seed, [first, second])
    session = b"m" * 16
    prompt = list(range(seed + 1))
    world.ask(session, "asker", first, Ask(tuple(prompt), 40, GREEDY, ()))
    world.run(stop_after=20 + seed * 7)
    done = len(world.emitted[session])
    world.leave("p1")
    world.run()
    if session in world.searching:
        core = world.origins[session]
        world.from_origin(core, core.peer_gone(world.now, "p1", "peer p1 left"))
        world.from_origin(
            core, core.reroute(world.now, as_route(first))
        )  # a plan with the leaver is not taken
        assert core.phase is Phase.REROUTING
        world.from_origin(core, core.reroute(world.now, as_route(second)))
        world.run()
        assert core.route == ("p0", "spare")
    else:
        assert done == 40
    assert world.emitted[session] == expected(prompt, 40)
    assert world.outcome[session] == "length"


def test_without_another_holder_the_asker_hears_within_two_seconds() -> None:
    plan = plan_of(1, [3], ["p0", "p1"])
    world = World(9, [plan])
    session = b"n" * 16
    world.ask(session, "asker", plan, Ask((1, 2), 400, GREEDY, ()))
    world.run(until=1.0)
    world.leave("p1")
    world.run(until=1.2)
    core = world.origins[session]
    assert core.phase is Phase.REROUTING
    world.from_origin(core, core.tick(1.0 + REROUTE_S))
    world.from_origin(core, core.tick(1.2 + REROUTE_S))
    assert "leaving" in world.outcome[session]
    assert core.phase is Phase.FAILED


def test_a_stage_takes_steps_only_from_its_neighbour() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    world = World(5, [plan])
    core = world.cores["p1"]
    first = opening(b"x" * 16, route_of(plan), 1)
    assert isinstance(core.open(0.0, "stranger", first)[0], Send)
    assert core.sessions() == 0
    assert core.open(0.0, "p0", first) == []
    hidden = tensor_of(np.array([[3.0, 4.0]], dtype=np.float32))
    step = Step(b"x" * 16, 1, 1, 0, 1, 1, hidden)
    assert core.step(0.0, "stranger", step) == []
    assert core.cancel("stranger", Cancel(b"x" * 16, 1, 0, "")) == []
    assert core.release("stranger", Release(b"x" * 16)) == []
    assert len(core.step(0.0, "p0", step)) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"plan": 7}, Reason.UNKNOWN_PLAN),
        ({"route": ("p0", "p1", "p2")}, Reason.UNKNOWN_PLAN),
        ({"stage": 0}, Reason.BAD_STEP),
        ({"sampling": (1, 2)}, Reason.BAD_STEP),
    ],
)
def test_an_open_that_does_not_fit_is_refused_to_the_asker(change: dict[str, object], reason: Reason) -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    core = World(6, [plan]).cores["p1"]
    effects = core.open(0.0, "p0", replace(opening(b"x" * 16, route_of(plan), 1), **change))  # type: ignore[arg-type]
    assert len(effects) == 1
    effect = effects[0]
    assert isinstance(effect, Send)
    assert isinstance(effect.frame, Refuse)
    assert effect.peer == "asker"
    assert effect.frame.reason == reason
    assert core.sessions() == 0


def test_prompt_chunks_wait_while_the_way_on_is_full() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    core = World(7, [plan]).cores["p0"]
    first = opening(b"x" * 16, route_of(plan), 0, prompt=64)
    core.open(0.0, "asker", first)
    assert core.congestion("p1", True) == []
    tokens = tensor_of(np.arange(32, dtype=np.int32))
    assert core.step(0.0, "asker", Step(b"x" * 16, 1, 0, 0, 32, 0, tokens)) == []
    assert core.step(0.0, "asker", Step(b"x" * 16, 1, 0, 32, 32, 1, tokens)) == []
    released = core.congestion("p1", False)
    assert [effect.position for effect in released if isinstance(effect, RunStep)] == [0, 32]


def test_a_lost_asker_frees_its_slots_when_nobody_goes_on() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    world = World(8, [plan])
    world.ask(b"y" * 16, "asker", plan, Ask((1, 2), 300, GREEDY, ()))
    world.run(until=0.5)
    for peer, core in world.cores.items():
        world.from_stage(peer, core.peer_gone(world.now, "asker"))
        assert (core.active(), core.sessions()) == (0, 1)
        world.from_stage(peer, core.tick(world.now + ORPHAN_S + 1))
        assert core.sessions() == 0


def test_a_step_that_is_too_long_and_a_flood_of_tokens_end_that_turn_only() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    core = World(12, [plan]).cores["p0"]
    for number in (1, 2, 3):
        session = bytes([number]) * 16
        core.open(0.0, "asker", opening(session, route_of(plan), 0, prompt=4))
    long = tensor_of(np.zeros(MAX_STEP_POSITIONS + 1, dtype=np.int32))
    (refused,) = core.step(0.0, "asker", Step(bytes([1]) * 16, 1, 0, 0, MAX_STEP_POSITIONS + 1, 1, long))
    assert isinstance(refused, Send)
    assert isinstance(refused.frame, Refuse)
    assert refused.frame.reason == Reason.BAD_STEP
    effects: list[StageEffect] = []
    for position in range(MAX_PENDING_STEPS + 10):
        effects += core.token(0.0, "p1", Token(bytes([2]) * 16, 1, position, 5, int(Finish.MORE)))
    assert [type(effect) for effect in effects] == [RunStep, RunStep, Send]
    assert core.active() == 1


def test_a_slot_whose_asker_gave_up_goes_to_another() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    core = World(13, [plan], slots=1).cores["p0"]

    def opened(origin: str, now: float) -> list[StageEffect]:
        session = origin.encode().ljust(16)
        return core.open(now, origin, opening(session, route_of(plan), 0, origin))

    opened("hog", 0.0)
    assert isinstance(opened("good", STALL_S)[0], Send), "the hog may still be waiting"
    freed, passed_on = opened("good", LEFT_S + 1)
    assert isinstance(freed, FreeSlot)
    assert isinstance(passed_on, Send)
    assert isinstance(passed_on.frame, Open)


@pytest.mark.parametrize(("me", "gone"), [("p0", "p2"), ("p2", "p0"), ("p1", "p0"), ("p1", "p2")])
def test_an_asker_hears_when_the_way_back_of_tokens_breaks(me: str, gone: str) -> None:
    plan = plan_of(1, [2, 5], ["p0", "p1", "p2"])
    core, stage = World(14, [plan]).cores[me], route_of(plan).index(me)
    sender = route_of(plan)[stage - 1] if stage else "asker"
    core.open(0.0, sender, opening(b"x" * 16, route_of(plan), stage))
    (effect,) = core.peer_gone(0.0, gone)
    assert isinstance(effect, Send)
    assert isinstance(effect.frame, Refuse)
    assert effect.frame.reason == Reason.LOST_NEIGHBOUR


def test_a_tail_that_does_not_count_is_stopped_at_the_length_asked_for() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    core = OriginSession(b"x" * 16, "asker")
    core.begin(0.0, as_route(plan), Ask((1, 2), 3, GREEDY, ()))
    for position in (2, 3):
        assert len(core.token(0.0, "p1", Token(b"x" * 16, 1, position, 7, int(Finish.MORE)))) == 1
    effects = core.token(0.0, "p1", Token(b"x" * 16, 1, 4, 7, int(Finish.MORE)))
    assert [effect.peer for effect in effects if isinstance(effect, Send)] == ["p0", "p1"]
    assert effects[-1] == Ended("length")
    assert core.phase is Phase.DONE


@pytest.mark.parametrize("ready_s", [20.0, 40.0])
def test_a_stage_that_loads_is_asked_until_it_serves_or_too_long(ready_s: float) -> None:
    """It refuses at once what comes before: more routes than an answer may have, and yet not many."""
    route = as_route(plan_of(1, [4], ["p0", "p1"]))
    core, tries, now = OriginSession(b"x" * 16, "asker"), 0, 0.0
    core.begin(0.0, route, Ask((1, 2), 3, GREEDY, ()))
    while now < ready_s and core.phase is not Phase.FAILED:
        tries += 1
        core.refused(now, "p1", Refuse(core.session, core.turn, 1, 0, 0, int(Reason.UNKNOWN_PLAN), "loads"))
        now = max(now, core.deadline) if core.phase is Phase.REROUTING else now
        core.tick(now)
        core.reroute(now, route)
    assert MAX_REROUTES < tries < 2 * HOPE_S
    if ready_s > HOPE_S:
        assert core.phase is Phase.FAILED
        assert now >= HOPE_S
    else:
        (emit, *_) = core.token(now, "p1", Token(core.session, core.turn, 2, 7, int(Finish.MORE)))
        assert isinstance(emit, Emit)
        assert core.reroutes == 1


def test_a_long_prompt_is_waited_for() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    core = OriginSession(b"x" * 16, "asker")
    core.begin(0.0, as_route(plan), Ask((1,) * 5000, 3, GREEDY, ()))
    assert not any(isinstance(effect, Broken) for effect in core.tick(STALL_S + 499))
    (*_, broken) = core.tick(STALL_S + 500)
    assert isinstance(broken, Broken)
    assert "560 s" in broken.text


def test_a_long_answer_is_replayed_whole() -> None:
    """One token to a step: thousands of steps wait at the first stage, which takes them all."""
    plan = plan_of(1, [4], ["p0", "p1"])
    core = World(15, [plan]).cores["p0"]
    count = 6000
    core.open(0.0, "asker", opening(b"x" * 16, route_of(plan), 0, prompt=count, generated=count))
    one = tensor_of(np.zeros(1, dtype=np.int32))
    for position in range(count):
        effects = core.step(0.0, "asker", Step(b"x" * 16, 1, 0, position, 1, int(position == count - 1), one))
        assert not any(isinstance(effect, Send) for effect in effects)


def test_penalties_travel_with_an_answer_that_moves() -> None:
    """Frequency penalties count the answer's own tokens, also after it went on elsewhere."""
    first, second = plan_of(1, [3], ["p0", "p1"]), plan_of(2, [3], ["p0", "spare"])
    sampling = Sampling(frequency_penalty=2.0, repetition_penalty=1.3, temperature=0.7, seed=5)

    def answer(move_after: int | None) -> list[int]:
        world = World(11, [first, second])
        session = b"q" * 16
        world.ask(session, "asker", first, Ask((5, 6, 7), 60, sampling, ()))
        if move_after is not None:
            while len(world.emitted[session]) < move_after:
                world.run(stop_after=1)
            core = world.origins[session]
            world.from_origin(core, core.peer_gone(world.now, "p1", "left"))
            world.from_origin(core, core.reroute(world.now, as_route(second)))
        world.run()
        return world.emitted[session]

    assert answer(move_after=17) == answer(move_after=None)
    assert len(answer(None)) == 60


@pytest.mark.parametrize(
    ("prompt", "wanted", "context", "granted"), [(5, None, 8, 3), (5, 3, 8, 3), (7, 1, 8, 1), (1, None, 2, 1)]
)
def test_room_in_the_context(prompt: int, wanted: int | None, context: int, granted: int) -> None:
    assert room_for(prompt, wanted, context) == granted


@pytest.mark.parametrize(("prompt", "wanted", "context"), [(8, None, 8), (9, 1, 8), (5, 4, 8), (5, 0, 8)])
def test_no_room_in_the_context_is_an_error_before_anything_runs(
    prompt: int, wanted: int | None, context: int
) -> None:
    with pytest.raises(ContextOverflow):
        room_for(prompt, wanted, context)


def test_common_prefix() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == 2


def test_finish_numbers_are_those_of_the_wire() -> None:
    assert [int(f) for f in (Finish.MORE, Finish.END_TOKEN, Finish.LENGTH)] == [0, 1, 2]
