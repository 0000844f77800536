"""Digests of what a stage cached: equal where two runs cached the same, whatever else ran; and injected errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from peer.runtime.arithmetic import proven
from peer.runtime.stage_runtime import Digest, Done, RefusalReason, Refused, StageRuntime, Step
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest
from planner.model.store import Store
from tests.patience import WITHIN_S


class Stage:
    """A runtime of all units but the head, what it delivered, and what it does before each call."""

    def __init__(self, manifest: Manifest, store: Store) -> None:
        self.answers: SimpleQueue[Done | Refused] = SimpleQueue()
        self.before: Callable[[], None] = lambda: None
        self.runtime = StageRuntime(
            make_shard(manifest, store, 0, len(manifest.units) - 1),
            threads=1,
            slots=8,
            context=512,
            form=proven(store, manifest, "cpu", 1).form,
            deliver=self.answers.put,
            before_call=lambda: self.before(),
        )

    def run(self, session: bytes, position: int, tokens: list[int]) -> Done | Refused:
        ids = np.asarray(tokens, dtype=np.int64)
        self.runtime.submit(Step(session, position, ids, None, last=False, prompt=len(tokens) > 1))
        return self.answers.get(timeout=WITHIN_S)

    def digest(self, session: bytes, first: int, stop: int) -> Digest:
        found: SimpleQueue[Digest] = SimpleQueue()
        self.runtime.digest(session, first, stop, found.put)
        return found.get(timeout=WITHIN_S)


@pytest.fixture
def stages(made_up: Callable[..., Any]) -> Iterator[tuple[Stage, Stage]]:
    _, manifest, store = made_up("8bit")
    made = Stage(manifest, store), Stage(manifest, store)
    yield made
    for stage in made:
        stage.runtime.close()


@pytest.mark.any_processor
def test_the_same_tokens_give_the_same_digests_in_any_company(stages: tuple[Stage, Stage]) -> None:
    one, other = stages
    other.run(b"x", 0, [9, 8, 7])
    other.run(b"y", 0, [1])
    for stage in (one, other):
        stage.run(b"s", 0, [1, 2, 3, 4, 5])
        stage.run(b"s", 5, [6])
        other.run(b"y", 1, [2])
    assert one.digest(b"s", 0, 6) == other.digest(b"s", 0, 6)
    assert one.digest(b"s", 2, 4) == other.digest(b"s", 2, 4) != one.digest(b"s", 0, 2)
    names = dict(one.digest(b"s", 0, 6).arrays)
    assert {"key.0", "value.0"} <= names.keys()


def test_another_token_changes_the_digest_from_its_position_on(stages: tuple[Stage, Stage]) -> None:
    one, other = stages
    one.run(b"s", 0, [1, 2, 3, 4, 5])
    other.run(b"s", 0, [1, 2, 3, 9, 5])
    assert one.digest(b"s", 0, 3) == other.digest(b"s", 0, 3)
    assert one.digest(b"s", 3, 5) != other.digest(b"s", 3, 5)


def test_what_is_not_cached_has_no_digest(stages: tuple[Stage, Stage]) -> None:
    one, _ = stages
    assert one.digest(b"nobody", 0, 10) == Digest(0, ())
    one.run(b"s", 0, [1, 2, 3])
    assert one.digest(b"s", 0, 99) == one.digest(b"s", 0, 3)
    assert one.digest(b"s", 0, 3).have == 3


def test_an_injected_error_fails_one_step_and_no_more(stages: tuple[Stage, Stage]) -> None:
    one, other = stages
    calls: list[str] = []

    def before() -> None:
        calls.append("call")
        if len(calls) == 2:
            raise RuntimeError("injected")

    one.before = before
    one.run(b"s", 0, [1, 2, 3])
    refused = one.run(b"s", 3, [4])
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.have) == (RefusalReason.FAILED, 3)
    assert isinstance(one.run(b"s", 3, [4]), Done)
    other.run(b"s", 0, [1, 2, 3])
    other.run(b"s", 3, [4])
    assert one.digest(b"s", 0, 4) == other.digest(b"s", 0, 4)
