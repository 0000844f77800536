"""What peers of validation hand on instead of their results, and what a check makes of it."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from peer.runtime.forms import FASTEST
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from peer.session.evidence import SAME, distance
from peer.validation.world.wrong_results import Lie, LyingRuntime
from planner.model.lowering import make_shard
from tests.patience import WITHIN_S

PROMPT, TOKENS = 40, 6


def results(runtime: type[StageRuntime], shard: Any, rows: Any, *, together: bool = False) -> Any:
    """What a stage of that kind hands on for positions [0, PROMPT + TOKENS)."""
    answers: SimpleQueue[Done | Refused] = SimpleQueue()
    made = runtime(shard, threads=1, slots=2, context=64, form=FASTEST, deliver=answers.put)
    try:
        found = []
        steps = [(0, PROMPT), *((at, at + 1) for at in range(PROMPT, PROMPT + TOKENS))]
        for first, stop in [(0, PROMPT + TOKENS)] if together else steps:
            logits = np.copy if shard.heads else None
            last = bool(shard.heads)
            made.submit(Step(b"s", first, None, rows[first:stop], last, logits, prompt=first == 0))
            done = answers.get(timeout=WITHIN_S)
            assert isinstance(done, Done), done
            found.append(done.hidden if done.hidden is not None else done.finished[None])  # type: ignore[index]
        return np.concatenate(found)
    finally:
        made.close()


def liar(lie: Lie, begun: list[int]) -> type[StageRuntime]:
    """Lies once something is in `begun`."""
    return type("Liar", (LyingRuntime,), {"lie": lie, "lies": lambda _: bool(begun)})


@pytest.mark.parametrize("lie", Lie)
@pytest.mark.parametrize("where", ["inside", "last"])
def test_each_lie_is_far_from_the_truth_and_begins_when_it_is_told(
    made_up: Callable[..., Any], lie: Lie, where: str
) -> None:
    _, manifest, store = made_up("8bit")
    units = len(manifest.units)
    run = (1, 3) if where == "inside" else (units - 3, units)
    shard = make_shard(manifest, store, *run)
    rows = np.random.default_rng(2).normal(0, 1, (PROMPT + TOKENS, manifest.hidden)).astype(np.float32)
    true = results(StageRuntime, shard, rows)
    assert np.array_equal(results(liar(lie, []), shard, rows), true)
    false = results(liar(lie, [1]), shard, rows)
    gaps = [distance(a, b) for a, b in zip(false[-TOKENS:], true[-TOKENS:], strict=True)]
    if lie is Lie.REPLAY:
        gaps = gaps[1:]  # the first result has no earlier one
    assert min(gaps) > SAME


@pytest.mark.parametrize("weights", ["8bit", "4bit"])
def test_packed_weights_without_rounding_give_what_tabs_give_in_whatever_steps(
    made_up: Callable[..., Any], weights: str
) -> None:
    _, manifest, store = made_up(weights)
    rows = np.random.default_rng(3).normal(0, 1, (PROMPT + TOKENS, manifest.hidden)).astype(np.float32)
    exact = results(StageRuntime, make_shard(manifest, store, 1, 5, exact=True), rows)
    together = results(StageRuntime, make_shard(manifest, store, 1, 5, exact=True), rows, together=True)
    rounded = results(StageRuntime, make_shard(manifest, store, 1, 5), rows)
    alike = max(distance(a, b) for a, b in zip(together, exact, strict=True))
    unlike = max(distance(a, b) for a, b in zip(rounded, exact, strict=True))
    assert alike < SAME / 10
    assert SAME < unlike < 0.25
