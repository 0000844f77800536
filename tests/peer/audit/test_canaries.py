"""Whom a coordinator tries with an answer that is known beforehand, and when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from peer.audit.canaries import Canaries, Due, Times, computing, route_over
from peer.model.chat_template import Message
from peer.model.prompts import Prompt
from peer.state.generated.commands import MemberJoined, ModelChosen, PlanRecord, PlanStage, UnitsHeld
from peer.state.mesh_state import MeshState, apply

TIMES = Times((60.0, 180.0), (1800.0, 5400.0), (30.0, 90.0))


def due(seed: int = 0) -> Due:
    return Due(TIMES, random.Random(seed))


def first_at(tried: Due, now_s: int, peers: list[str], peer: str, within_s: int = 20_000) -> int:
    """When `peer` is due, looked at every second."""
    return next(at for at in range(now_s, now_s + within_s) if peer in tried.look(at, True, peers))


def test_who_comes_is_tried_soon_and_then_about_every_hour() -> None:
    tried = due()
    assert tried.look(0, True, []) == []
    at = first_at(tried, 1, ["a"], "a")
    assert 60 <= at <= 182
    for _ in range(20):
        tried.tried(at, "a")
        again = first_at(tried, at, ["a"], "a")
        assert 1800 <= again - at <= 5401
        at = again


def test_where_there_was_no_room_it_is_tried_again_soon() -> None:
    tried = due()
    tried.look(0, True, [])
    at = first_at(tried, 1, ["a"], "a")
    tried.busy(at, "a")
    assert 30 <= first_at(tried, at, ["a"], "a") - at <= 91


def test_who_leaves_and_comes_back_has_come() -> None:
    tried = due()
    tried.look(0, True, [])
    first = first_at(tried, 1, ["a", "b"], "a")
    tried.tried(first, "a")
    tried.look(first + 1, True, ["b"])
    assert first_at(tried, first + 2, ["a", "b"], "a") <= first + 184


def test_a_new_coordinator_spreads_those_that_were_tried_by_the_one_before() -> None:
    peers = [f"p{number}" for number in range(40)]
    tried = due()
    assert tried.look(0, False, peers) == []
    times = dict.fromkeys(peers, 0)
    left = set(peers)
    for at in range(6000):
        for peer in set(tried.look(at, True, peers)) & left:
            times[peer] = at
            left.discard(peer)
            tried.tried(at, peer)
    assert not left
    assert sum(at > 300 for at in times.values()) > 30
    assert tried.look(6001, False, peers) == [], "it leads no more"


def state(held: dict[str, tuple[tuple[int, int], ...]]) -> MeshState:
    made = apply(MeshState(term=1), ModelChosen("a" * 64, "toy", 6, 128, 2, "latency"))
    for peer, runs in held.items():
        made = apply(apply(made, MemberJoined(peer, peer, True)), UnitsHeld(peer, runs))
    stages = (PlanStage(0, 3, "a", ("b", "c")), PlanStage(3, 6, "b", ("c",)))
    return replace(made, plan=PlanRecord(2, stages, 0, 0))


def test_a_standby_is_tried_where_it_stands_by() -> None:
    held = {"a": ((0, 3),), "b": ((0, 3), (3, 6)), "c": ((0, 3), (3, 6)), "idle": (), "me": ((0, 3),)}
    made = state(held)
    assert made.plan is not None
    assert computing(made, "b") == ["a", "c"]
    for place, peer in ((0, "c"), (0, "b"), (1, "c"), (1, "b")):
        route = route_over(made, made.plan, place, peer)
        assert route is not None
        assert route.peers[place] == peer


async def test_what_a_peer_is_tried_with_is_read_within_the_bounds_of_all_prompts() -> None:
    read: list[tuple[Sequence[Message], int]] = []

    class Prompts:
        async def chat(self, messages: Sequence[Message], context: int) -> Prompt:
            read.append((messages, context))
            return Prompt((1, 2, 3))

    class Text:
        end_tokens = (9,)

        def encode_chat(self, *_: object) -> list[int]:
            raise AssertionError("a template could take any time here")

    parts = cast(Any, SimpleNamespace(prompts=Prompts(), text=Text()))
    none = cast(Any, None)
    of: Any = SimpleNamespace(view=none, sessions=none, model=parts)
    asked = await Canaries(none, of, none, TIMES)._asked(64)
    assert (asked.prompt, asked.end_tokens) == ((1, 2, 3), (9,))
    assert [(len(messages), context) for messages, context in read] == [(1, 64)]
