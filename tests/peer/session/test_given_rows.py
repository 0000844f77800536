"""Prompts in which rows stand in the place of token ids: answered as if these had been embedded, whatever is lost."""

from __future__ import annotations

import numpy as np
import pytest

from peer.session.effects import RunStep, Send
from peer.session.given_rows import GivenRows
from peer.session.origin import Ask, OriginSession
from peer.session.sampling import GREEDY
from peer.session.stage import StageCore
from peer.wire.generated.frames import Refuse, Step
from peer.wire.tensors import Tensor, tensor_of
from tests.peer.session.toy_mesh import UNITS, World, as_route, expected, opening, plan_of

PLACE = 3  # the token of a picture's place
SESSION = b"s" * 16


def rows(*tokens: int) -> Tensor:
    """Rows as the toy's embedding makes them of tokens."""
    return tensor_of(np.array([[token, 0] for token in tokens], np.float32))


def asked(prompt: list[int], first: int, seen: list[int], most: int = 30) -> tuple[Ask, list[int]]:
    """A prompt with a picture at `first`, and that with what its rows stand for."""
    whole = [*prompt[:first], *[PLACE] * len(seen), *prompt[first:]]
    ask = Ask(tuple(whole), most, GREEDY, (), rows=(GivenRows(first, rows(*seen)),))
    return ask, [*prompt[:first], *seen, *prompt[first:]]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("first", [0, 5, 31, 64])
def test_rows_are_read_as_embedded_tokens_over_any_network(seed: int, first: int) -> None:
    plan = plan_of(1, [3, 5], ["p0", "p1", "p2"])
    world = World(seed, [plan])
    ask, stands_for = asked(list(range(10, 75)), first, list(range(40, 80)))
    world.ask(SESSION, "asker", plan, ask)
    world.run()
    assert world.emitted[SESSION] == expected(stands_for, 30)


def test_what_was_seen_is_sent_again_where_a_stage_is_lost() -> None:
    """Of the first stage, which alone had the rows."""
    plans = [plan_of(1, [4], ["p0", "p1"]), plan_of(2, [4], ["p2", "p1"])]
    world = World(7, plans)
    ask, stands_for = asked([11, 12, 13], 1, [50, 51, 52, 53])
    world.ask(SESSION, "asker", plans[0], ask)
    world.run(until=0.8)
    core = world.origins[SESSION]
    assert 0 < len(world.emitted[SESSION]) < 30
    world.from_origin(core, core.peer_gone(world.now, "p0", "it was lost"))
    world.from_origin(core, core.reroute(world.now, as_route(plans[1])))
    world.run()
    assert world.emitted[SESSION] == expected(stands_for, 30)


def test_another_picture_at_the_same_place_is_another_prompt() -> None:
    """Stages keep what stands before it, and nothing behind."""
    plan = plan_of(1, [4], ["p0", "p1"])
    world = World(8, [plan])
    first, _ = asked([11, 12, 13, 14], 2, [50, 51], 4)
    world.ask(SESSION, "asker", plan, first)
    world.run()
    again, stands_for = asked([11, 12, 13, 14], 2, [60, 51], 4)
    world.ask(SESSION, "asker", plan, again)
    assert world.origins[SESSION].start == 2
    world.run()
    assert world.emitted[SESSION] == expected(stands_for, 4)
    world.ask(SESSION, "asker", plan, again)
    assert world.origins[SESSION].start == 5, "the same picture is not sent again"
    world.run()
    assert world.emitted[SESSION] == expected(stands_for, 4)


def test_steps_hold_ids_or_rows_alone() -> None:
    ask, _ = asked([11, 12, 13], 2, [50] * 40)
    core = OriginSession(SESSION, "asker")
    effects = core.begin(0.0, as_route(plan_of(1, [], ["p0"])), ask)
    sent = [each.frame for each in effects if isinstance(each, Send) and isinstance(each.frame, Step)]
    assert [(step.position, step.count, step.tensor.dtype.name) for step in sent] == [
        (0, 2, "INT32"),
        (2, 30, "FLOAT32"),
        (32, 10, "FLOAT32"),
        (42, 1, "INT32"),
    ]


@pytest.mark.parametrize(
    ("stage", "position", "tensor", "runs"),
    [
        (0, 0, rows(5, 6), True),
        (0, 0, tensor_of(np.array([5, 6], np.int32)), True),
        (1, 0, rows(5, 6), True),
        (1, 0, tensor_of(np.array([5, 6], np.int32)), False),
        (0, 2, rows(5), False),  # what is sampled has an id
    ],
)
def test_rows_are_taken_of_a_prompt_alone(stage: int, position: int, tensor: Tensor, runs: bool) -> None:
    route = ("p0", "p1")
    core = StageCore(route[stage])
    units = ((0, 4), (4, UNITS))
    core.serve(
        {1: tuple((frozenset({peer}), run) for peer, run in zip(route, units, strict=True))},
        {units[stage]: 2},
    )
    upstream = "asker" if stage == 0 else "p0"
    core.open(0.0, upstream, opening(SESSION, route, stage, prompt=3, generated=1))
    if position:
        ids = tensor_of(np.array([5, 6], np.int32))
        core.step(0.0, upstream, Step(SESSION, 1, stage, 0, 2, 0, ids))
    effects = core.step(0.0, upstream, Step(SESSION, 1, stage, position, tensor.shape[0], 0, tensor))
    refused = [
        each.frame.message for each in effects if isinstance(each, Send) and isinstance(each.frame, Refuse)
    ]
    assert [isinstance(each, RunStep) for each in effects] == ([True] if runs else [False])
    assert bool(refused) is not runs
    assert all("float32 rows of a prompt" in message for message in refused)
