"""Memory that nobody needs goes back: mapped weights once they are repacked, rows of sessions that ended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from peer.runtime.arithmetic import proven
from peer.runtime.execution import _KvArrays
from peer.runtime.kv_slots import Shape
from peer.runtime.peak_memory import forget_peak, peak_bytes, resident_bytes
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from planner.model.lowering import make_shard

MIB = 1 << 20
CONTEXT = 512

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def anonymous() -> int:
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def mapped(inside: str) -> int:
    """Resident bytes of mapped files under this folder."""
    total, counts = 0, False
    with open("/proc/self/smaps", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024 if counts else 0
            elif "-" in line.split(maxsplit=1)[0]:
                counts = inside in line
    return total


class Stage:
    """A runtime with sessions that are filled and end."""

    def __init__(self, manifest: Any, store: Any, sessions: int) -> None:
        self.answers: SimpleQueue[Done | Refused] = SimpleQueue()
        self.runtime = StageRuntime(
            make_shard(manifest, store, 0, len(manifest.units)),
            threads=1,
            slots=2 * sessions,
            context=CONTEXT,
            form=proven(store, manifest, "cpu", 1).form,
            deliver=self.answers.put,
        )

    def fill(self, session: int, stop: int = CONTEXT) -> Any:
        tokens = np.arange(stop) % 100
        found: list[float] = []

        def finish(logits: Any) -> None:
            found.extend(logits.tolist())

        self.runtime.submit(Step(bytes([session]), 0, tokens, None, True, finish, prompt=True))
        answer = self.answers.get()
        assert isinstance(answer, Done), answer
        return np.array(found)


@pytest.mark.parametrize("weights", ["8bit", "4bit", "f32", "f16"])
def test_repacked_weights_do_not_stay_mapped(made_up: Callable[..., Any], weights: str) -> None:
    _, manifest, store = made_up(weights, hidden=512, ffn=4096, vocab=4096)
    scales = (
        12 * 4096 * 512 // 32 * 4
    )  # of these two blocks: an eighth of 4-bit weights, an eleventh of 8-bit ones
    stage = Stage(manifest, store, 1)
    try:
        loaded = mapped(str(store.root))
        stage.fill(0)
        assert max(loaded, mapped(str(store.root))) < scales / 2
    finally:
        stage.runtime.close()


def test_rows_of_sessions_that_ended_go_back_and_the_others_keep_theirs(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up("f32", blocks=8, kv_heads=4, head_size=64, rope_dims=64)
    stage = Stage(manifest, store, 4)
    try:
        expected = stage.fill(0)
        row_bytes = stage.runtime.memory_bytes().kv
        one = anonymous()
        for session in range(1, 8):
            stage.fill(session)
        full = anonymous()
        assert stage.runtime.memory_bytes().kv == 8 * row_bytes
        assert full - one > 5 * row_bytes  # what other tests freed may be used again
        for session in (3, 1, 2, 7, 6, 5, 4):
            stage.runtime.release(bytes([session]))
        stage.runtime.truncate(bytes([0]), CONTEXT - 64)
        again: list[Any] = []
        last = np.arange(CONTEXT - 64, CONTEXT) % 100
        step = Step(
            bytes([0]), CONTEXT - 64, last, None, True, lambda found: again.append(found.copy()), prompt=True
        )
        stage.runtime.submit(step)
        assert isinstance(stage.answers.get(), Done)
        assert stage.runtime.memory_bytes().kv == row_bytes
        assert anonymous() - one < row_bytes
        assert np.array_equal(again[0], expected)  # nothing of what session 0 caches was lost
        assert np.array_equal(stage.fill(9), expected)  # a row that was given back is as good as a new one
    finally:
        stage.runtime.close()


def test_a_cache_that_grows_needs_no_room_for_both_sizes(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up("f32", blocks=2, heads=8, kv_heads=8, head_size=64, rope_dims=64)
    arrays = _KvArrays(make_shard(manifest, store, 0, len(manifest.units)))
    arrays.grow(Shape(1, 16384), [])  # 32 MiB each
    rng = np.random.default_rng(0)
    rows = {name: rng.random(shape, np.float32) for name, shape in arrays.shapes(16384).items()}
    arrays.put(0, 16384, rows)
    forget_peak()
    arrays.grow(Shape(1, 32768), [16384])
    peak = peak_bytes()
    assert peak - resident_bytes() < 16 * MIB
    kept = arrays.copied(0, 16384, None)
    assert kept is not None
    assert all(np.array_equal(kept[name], rows[name]) for name in rows)
