"""Stages that teams compute: equal to those of one peer within rounding, to themselves to the bit."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from peer.errors import TeamBroken
from peer.runtime.arithmetic import proven
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from peer.runtime.teams.team import Team
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest
from planner.model.store import Store
from tests.peer.runtime.teams.in_process import Members

CONTEXT = 256
ROUNDED = 0.05  # where kernels round activations to 8 bits, a last bit decides which way
RUNS = 20
WAIT_S = 60
Answers = SimpleQueue[Done | Refused]
Logits = npt.NDArray[np.float32]


def team_of(manifest: Manifest, *shares: int) -> Team:
    return Team(0, len(manifest.units), shares)


def run(
    runtime: StageRuntime, answers: Answers, session: bytes, tokens: list[int], prompt: int
) -> list[Logits]:
    """Logits after the prompt and after each token."""
    found = []
    for start, stop in [(0, prompt), *((at, at + 1) for at in range(prompt, len(tokens)))]:
        ids = np.array(tokens[start:stop], np.int64)
        runtime.submit(Step(session, start, ids, None, True, np.copy))
        answer = answers.get(timeout=WAIT_S)
        assert isinstance(answer, Done), answer
        assert isinstance(answer.finished, np.ndarray)
        found.append(answer.finished)
    return found


def random_tokens(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 100, count)]


def alone(manifest: Manifest, store: Store, tokens: list[int], prompt: int) -> list[Logits]:
    """As one peer computes it."""
    answers: Answers = SimpleQueue()
    form = proven(store, manifest, "cpu", 1).form
    shard = make_shard(manifest, store, 0, len(manifest.units), exact=form.plain)
    runtime = StageRuntime(shard, threads=1, slots=8, context=CONTEXT, form=form, deliver=answers.put)
    try:
        return run(runtime, answers, b"alone", tokens, prompt)
    finally:
        runtime.close()


@pytest.mark.parametrize(
    ("weights", "shares", "most"),
    [
        ("f32", (1, 1), 1e-5),
        ("f32", (2, 1, 1), 1e-5),
        ("f32", (1, 1, 1, 1), 1e-5),
        ("8bit", (1, 1), 1e-5),
        ("4bit", (1, 2), ROUNDED),
        ("8bit", (1, 1, 1), ROUNDED),
    ],
)
def test_a_team_computes_what_one_peer_does(
    made_up: Callable[..., Any], weights: str, shares: tuple[int, ...], most: float
) -> None:
    _, manifest, store = made_up(weights)
    tokens = random_tokens(3, 40)
    expected = alone(manifest, store, tokens, 30)
    answers: Answers = SimpleQueue()
    with Members(manifest, store, team_of(manifest, *shares), CONTEXT).opened(answers.put) as runtime:
        found = run(runtime, answers, b"team", tokens, 30)
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one - other).max() <= most * np.abs(other).max()


def test_a_team_makes_the_same_bits_whoever_is_faster(made_up: Callable[..., Any]) -> None:
    """Twenty runs in which each message is late by a time of its own."""
    _, manifest, store = made_up("8bit")
    tokens = random_tokens(5, 24)
    answers: Answers = SimpleQueue()
    chance, turn = random.Random(7), threading.Lock()

    def late(_: int) -> None:
        with turn:
            wait_s = chance.random() ** 4 * 0.004
        time.sleep(wait_s)

    members = Members(manifest, store, team_of(manifest, 3, 2, 2), CONTEXT)
    with members.opened(answers.put, delay=late) as runtime:
        first = run(runtime, answers, b"run", tokens, 20)
        for _ in range(1, RUNS):
            runtime.release(b"run")
            again = run(runtime, answers, b"run", tokens, 20)
            assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("weights", ["f32", "8bit", "4bit"])
def test_a_crowd_changes_nothing_in_a_team(made_up: Callable[..., Any], weights: str) -> None:
    """Sessions side by side, some of them ended in between, have the bits that each has alone."""
    _, manifest, store = made_up(weights)
    streams = {bytes([at]) * 4: random_tokens(at, 12 + at) for at in range(6)}
    answers: Answers = SimpleQueue()
    members = Members(manifest, store, team_of(manifest, 1, 1), CONTEXT)
    with members.opened(answers.put) as runtime:
        expected = {session: run(runtime, answers, session, tokens, 8) for session, tokens in streams.items()}
        for session in streams:
            runtime.release(session)
        found: dict[bytes, list[Logits]] = {session: [] for session in streams}
        for session, tokens in streams.items():
            runtime.submit(Step(session, 0, np.array(tokens[:8], np.int64), None, True, np.copy))
        left = {session: len(tokens) - 8 for session, tokens in streams.items()}
        while left:
            answer = answers.get(timeout=WAIT_S)
            assert isinstance(answer, Done), answer
            assert isinstance(answer.finished, np.ndarray)
            found[answer.session].append(answer.finished)
            session, tokens = answer.session, streams[answer.session]
            position = answer.position + answer.count
            if not left[session]:
                del left[session]
                runtime.release(session)  # another row moves to its place
                continue
            left[session] -= 1
            ids = np.array(tokens[position : position + 1], np.int64)
            runtime.submit(Step(session, position, ids, None, True, np.copy))
    for session, rows in expected.items():
        assert all(np.array_equal(one, other) for one, other in zip(rows, found[session], strict=True))


def test_a_session_goes_back_and_a_lost_member_ends_the_team(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up("f32")
    tokens = random_tokens(9, 20)
    answers: Answers = SimpleQueue()
    lost = threading.Event()

    def send(member: int) -> None:
        if lost.is_set() and member == 1:
            raise TeamBroken("member 1 was lost")

    members = Members(manifest, store, team_of(manifest, 1, 1), CONTEXT)
    with members.opened(answers.put, delay=send) as runtime:
        whole = run(runtime, answers, b"s", tokens, 15)
        ids = np.array(tokens[17:18], np.int64)
        runtime.submit(Step(b"s", 17, ids, None, True, np.copy))
        answer = answers.get(timeout=WAIT_S)
        assert isinstance(answer, Done)
        assert np.array_equal(answer.finished, whole[3])
        lost.set()
        for _ in range(2):  # what comes later is refused at once
            runtime.submit(Step(b"s", 18, np.array(tokens[18:19], np.int64), None, True, np.copy))
            refused = answers.get(timeout=WAIT_S)
            assert isinstance(refused, Refused)
            assert "member 1 was lost" in refused.text
