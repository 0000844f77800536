"""Fronts of prompts that sessions share: computed once on each stage, and never taken for another."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from peer.session.effects import PrefixWork, Ran, RunStep, Send
from peer.session.origin import Ask
from peer.session.pinned_ends import is_pinned, pinned
from peer.session.prefix import HASH_BYTES, Prefix
from peer.session.prefix_cache import (
    ENTRY_BYTES,
    LEAST_TOKENS,
    MARK_BYTES,
    KnownFronts,
    Prefixes,
    named,
    prefix_of,
    shared_front,
    split,
)
from peer.state.plan_record import route_of
from peer.wire.generated.frames import Open, Step
from peer.wire.tensors import tensor_of
from tests.peer.session.toy_mesh import (
    GREEDY,
    UNITS,
    VOCAB,
    WIRE,
    World,
    as_route,
    expected,
    opening,
    plan_of,
)

FRONT = tuple(range(80))


def asking(*rest: int, count: int = 6, kept: bool = False, front: tuple[int, ...] = FRONT) -> Ask:
    return Ask((*front, *rest), count, GREEDY, (), front=len(front), front_kept=kept)


def run(world: World, session: bytes, origin: str, ask: Ask) -> int:
    """Positions that all stages computed for it."""
    before = sum(runtime.positions for runtime in world.runtimes.values())
    world.ask(session, origin, world.plans[0], ask)
    world.run()
    assert world.emitted[session] == expected(list(ask.prompt), ask.max_tokens)
    return sum(runtime.positions for runtime in world.runtimes.values()) - before


@pytest.mark.parametrize("cuts", [[], [4], [2, 5]])
@pytest.mark.parametrize("kept", [False, True], ids=["sent again", "not sent"])
def test_a_second_session_computes_only_what_follows_the_front(cuts: list[int], kept: bool) -> None:
    world = World(1, [plan_of(1, cuts, [f"p{at}" for at in range(len(cuts) + 1)])])
    stages = len(cuts) + 1
    assert run(world, b"a" * 16, "asker", asking(90, 91, 92)) == stages * (len(FRONT) + 3 + 5)
    assert run(world, b"b" * 16, "other", asking(93, kept=kept)) == stages * (1 + 5)
    assert all(core.prefixes.reused == len(FRONT) for core in world.cores.values())
    assert run(world, b"c" * 16, "asker", Ask((*FRONT, 1), 6, GREEDY, ())) == stages * (len(FRONT) + 1 + 5)


def test_a_session_that_goes_on_alone_leaves_the_front_as_it_was() -> None:
    world = World(2, [plan_of(1, [4], ["p0", "p1"])])
    run(world, b"a" * 16, "asker", asking(90))
    run(world, b"b" * 16, "asker", asking(91, count=40))
    changed = tuple((token + 1) % VOCAB for token in FRONT)
    assert run(world, b"b" * 16, "asker", asking(5, front=changed)) == 2 * (len(FRONT) + 1 + 5)
    assert run(world, b"d" * 16, "asker", asking(92)) == 2 * (1 + 5)
    assert run(world, b"e" * 16, "asker", asking(93, front=changed)) == 2 * (1 + 5)


@pytest.mark.parametrize("lacks", ["p0", "p1", "p2"])
@pytest.mark.parametrize("kept", [False, True], ids=["sent again", "not sent"])
def test_a_stage_that_lacks_the_front_is_fed_it(lacks: str, kept: bool) -> None:
    world = World(3, [plan_of(1, [2, 5], ["p0", "p1", "p2"])])
    run(world, b"a" * 16, "asker", asking(90))
    world.cores[lacks].prefixes = Prefixes()
    computed = run(world, b"b" * 16, "asker", asking(91, kept=kept))
    behind = 3 - int(lacks[1])
    assert computed == 3 * (1 + 5) + behind * len(FRONT), "those before it hand on what they kept"
    assert run(world, b"c" * 16, "asker", asking(92, kept=kept)) == 3 * (1 + 5)


def test_a_runtime_that_lost_it_has_it_computed_again() -> None:
    world = World(4, [plan_of(1, [4], ["p0", "p1"])])
    run(world, b"a" * 16, "asker", asking(90))
    for runtime in world.runtimes.values():
        runtime.fronts = {digest: [] for digest in runtime.fronts}
    run(world, b"b" * 16, "asker", asking(91, kept=True))


def test_what_was_used_least_goes_first_and_no_more_than_the_bound_is_kept() -> None:
    world = World(5, [plan_of(1, [], ["p0"])])
    core = world.cores["p0"]
    each = len(FRONT) * (1 + MARK_BYTES) + ENTRY_BYTES
    core.prefixes = Prefixes(most_bytes=2 * each)
    core.prefixes.resize(lambda _: 1, 2 * each)
    fronts = [tuple((token + by) % VOCAB for token in FRONT) for by in range(3)]
    for at, front in enumerate([fronts[0], fronts[1], fronts[0], fronts[2]]):
        run(world, bytes([at]) * 16, "asker", asking(1, front=front))
    assert core.prefixes.kept_bytes == 2 * each
    assert len(world.runtimes["p0", (0, UNITS)].fronts) == 2
    assert run(world, b"x" * 16, "asker", asking(2, front=fronts[0])) == 1 + 5
    assert run(world, b"y" * 16, "asker", asking(2, front=fronts[1])) == len(FRONT) + 1 + 5
    big = tuple(at % VOCAB for at in range(3 * len(FRONT)))
    run(world, b"z" * 16, "asker", asking(2, front=big))
    assert len(core.prefixes) == 2, "too large to be kept: nothing goes for it"
    core.drop((0, UNITS))
    assert len(core.prefixes) == 0


@pytest.mark.parametrize("seed", range(12))
def test_losses_in_between_change_no_token(seed: int) -> None:
    rng = random.Random(seed)
    plans = [plan_of(1, [3], ["p0", "p1"]), plan_of(2, [3], ["p0", "spare"])]
    world = World(seed, plans)
    run(world, b"a" * 16, "asker", asking(90))
    ask = asking(*range(rng.randint(1, 9)), count=30, kept=rng.random() < 0.5)
    world.ask(b"b" * 16, "asker", plans[0], ask)
    world.run(stop_after=rng.randint(1, 60))
    if rng.random() < 0.3:
        world.cores["p0"].prefixes = Prefixes()
    core = world.origins[b"b" * 16]
    world.gone.add("p1")
    world.from_stage("p0", world.cores["p0"].peer_gone(world.now, "p1"))
    world.from_origin(core, core.peer_gone(world.now, "p1", "lost"))
    world.from_origin(core, core.reroute(world.now, as_route(plans[1])))
    world.run()
    assert world.emitted[b"b" * 16] == expected(list(ask.prompt), 30)


def test_a_hash_that_somebody_claims_is_not_what_a_front_is_kept_under() -> None:
    plan = plan_of(1, [4], ["p0", "p1"])
    core = World(6, [plan]).cores["p1"]
    rows = np.array([(token, 4) for token in FRONT], dtype=np.float32)
    wanted = prefix_of(tensor_of(rows))
    lie = named(opening(b"x" * 16, route_of(plan), 1, prompt=81), wanted)
    assert core.open(0.0, "p0", lie) == []
    wrong = tensor_of(rows + np.float32(1))
    (step,) = core.step(0.0, "p0", Step(b"x" * 16, 1, 1, 0, 80, 0, wrong))
    assert isinstance(step, RunStep)
    (kept,) = core.ran(0.0, Ran((4, 8), b"x" * 16, step.epoch, 0, 80, rows, None))
    assert isinstance(kept, PrefixWork)
    assert kept.digest == prefix_of(wrong).digest != wanted.digest
    honest = named(opening(b"y" * 16, route_of(plan), 1, prompt=81), wanted)
    assert not any(isinstance(effect, PrefixWork) for effect in core.open(0.0, "p0", honest))


@pytest.mark.parametrize("settings", [(), WIRE, (*WIRE, 0, 0, 0)])
def test_open_names_a_front_behind_its_settings(settings: tuple[int, ...]) -> None:
    frame = replace(opening(b"x" * 16, ("p0",), 0, prompt=99), sampling=settings)
    prefix = Prefix(80, bytes(range(HASH_BYTES)))
    assert split(named(frame, prefix)) == (frame, prefix)
    assert split(frame) == (frame, None)
    assert named(frame, None) == frame
    assert named(replace(frame, spans=(70, 9, 20)), prefix).sampling == settings, "some of it was sampled"
    assert named(replace(frame, prompt_tokens=80, spans=(80,)), prefix).sampling == settings, (
        "nothing follows"
    )
    assert is_pinned(named(frame, prefix)) == (settings == ())
    for bad in ((0, 1, 2, 3), (99, 1, 2, 3), (-1, 1, 2, 3), (80, 1, 2, 1 << 48), (80, -1, 2, 3)):
        wrong = replace(frame, sampling=(*settings, *bad))
        assert split(wrong) == (wrong, None)


def test_a_front_that_is_none_is_refused() -> None:
    plan = plan_of(1, [], ["p0"])
    core = World(7, [plan]).cores["p0"]
    for frame in (pinned(opening(b"x" * 16, route_of(plan), 0)), opening(b"x" * 16, route_of(plan), 0)):
        (refused,) = core.open(0.0, "asker", replace(frame, sampling=(*frame.sampling, 5, 1, 2, 3)))
        assert isinstance(refused, Send)
        assert not isinstance(refused.frame, Open)


def test_the_front_ends_where_questions_begin_to_differ() -> None:
    front = list(range(LEAST_TOKENS))
    assert shared_front([*front, 7, 8], lambda words: [*front, ord(words), 8]) == LEAST_TOKENS
    assert shared_front([*front[1:], 7, 8], lambda words: [*front[1:], ord(words), 8]) == 0, "too short"
    assert shared_front([*front, ord("a")], lambda words: [*front, ord(words), 8]) == LEAST_TOKENS


def test_an_asker_remembers_some_fronts() -> None:
    known, route = KnownFronts(), ("p0",)
    for at in range(100):
        known.add((route, (at,)))
    assert (route, (99,)) in known
    assert (route, (0,)) not in known
    known.clear()
    assert (route, (99,)) not in known
