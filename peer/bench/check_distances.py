"""`shoal bench checks`: how far honest results are from what a check computes, and how far wrong ones.

Stages of a model run as they serve, several sessions in a batch, with one number of threads; each position is then
computed again as a check does, alone and with another number of threads. A false alarm is a distance beyond the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from typing import Any, Final

import numpy as np

from peer.bench.wrong_results import wrongs
from peer.launch.model_import import find_or_import
from peer.runtime.arithmetic import proven
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from peer.session.evidence import Computes, Floats, distance, limit, rounding, steps_of_spans
from peer.validation.world.wrong_results import Lie
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store

SESSIONS: Final = 4  # at once, so that decode batches have several rows
PROMPT: Final = 48
TOKENS: Final = 80  # sampled ones of a session
CONTEXT: Final = 256
TOGETHER: Final = 32  # given positions of a step, as askers send them
JUDGES_TOGETHER: Final = 64


class _Stage:
    """Units in a runtime of their own, asked from a loop."""

    def __init__(self, manifest: Manifest, store: Store, run: tuple[int, int], threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[bytes, int], asyncio.Future[Done | Refused]] = {}
        form = proven(store, manifest, "cpu", threads).form
        self.runtime = StageRuntime(
            make_shard(manifest, store, *run, "cpu", exact=form.plain),
            threads=threads,
            slots=2 * SESSIONS,
            context=CONTEXT,
            form=form,
            deliver=self._deliver,
        )

    def _deliver(self, result: Done | Refused) -> None:
        self._loop.call_soon_threadsafe(self._tell, result)

    def _tell(self, result: Done | Refused) -> None:
        self._waiting.pop((result.session, result.position)).set_result(result)

    async def run(self, session: bytes, first: int, part: Any, given: bool) -> Floats:
        """What these units make of tokens (int) or rows at positions from `first` on."""
        found: asyncio.Future[Done | Refused] = self._loop.create_future()
        self._waiting[session, first] = found
        tokens = part.astype(np.int64) if part.ndim == 1 else None
        hidden = None if tokens is not None else np.ascontiguousarray(part)
        self.runtime.submit(Step(session, first, tokens, hidden, False, prompt=given))
        done = await found
        if isinstance(done, Refused) or done.hidden is None:
            raise RuntimeError(f"a step was refused: {done}")
        return done.hidden


def bench_checks(args: argparse.Namespace) -> dict[str, Any]:
    """The figures. Raises NotInStore for a model that is not here."""
    store = Store(args.store)
    manifest = decode_manifest(
        store.manifest_bytes(find_or_import(store, args.model, (args.weights or ["8bit"])[0]))
    )
    return asyncio.run(_measure(manifest, store, args.checks))


async def _measure(manifest: Manifest, store: Store, checks: int) -> dict[str, Any]:
    units = len(manifest.units) - 1  # the head hands on a token, which is compared as such
    runs = [(0, units // 3), (units // 3, 2 * units // 3), (2 * units // 3, units)]
    kind = rounding(manifest.weights, Computes("cpu"))
    most = limit(kind, kind)
    begun = time.perf_counter()
    made, alarms, worst = 0, 0, 0.0
    least: dict[Lie, float] = {}
    rng = np.random.default_rng(1)
    while made < checks:
        for run in runs:
            if made >= checks:
                break
            served, judge = _Stage(manifest, store, run, 1), _Stage(manifest, store, run, 2)
            try:
                width = manifest.hidden
                vocab = manifest.vocab
                sessions = [os.urandom(16) for _ in range(SESSIONS)]
                inputs: list[Any] = [
                    rng.integers(0, vocab, PROMPT + TOKENS) if run[0] == 0 else _like(rng, width)
                    for _ in sessions
                ]
                seen = await asyncio.gather(
                    *(_through(served, s, x, TOGETHER) for s, x in zip(sessions, inputs, strict=True))
                )
                for session, rows, result in zip(sessions, inputs, seen, strict=True):
                    again = await _through(judge, session, rows, JUDGES_TOGETHER)
                    gaps = [distance(a, b) for a, b in zip(result, again, strict=True)]
                    made += len(gaps)
                    alarms += sum(gap > most for gap in gaps)
                    worst = max(worst, *gaps)
                    if run[0]:
                        wrongs(least, rng, rows, result, again)
            finally:
                served.runtime.close()
                judge.runtime.close()
    return {
        "model": manifest.name,
        "weights": manifest.weights,
        "checks": made,
        "false_alarms": alarms,
        "worst_honest": worst,
        "limit": most,
        "least_wrong": {lie.value: gap for lie, gap in sorted(least.items(), key=lambda item: item[0].value)},
        "threads": [1, 2],
        "seconds": round(time.perf_counter() - begun, 1),
    }


def _like(rng: np.random.Generator, width: int) -> Floats:
    """Rows with a few large numbers among small ones, as activations are."""
    rows = rng.normal(0, 1, (PROMPT + TOKENS, width))
    rows[:, rng.integers(0, width, 4)] *= 30
    return rows.astype(np.float32)


async def _through(stage: _Stage, session: bytes, inputs: Any, together: int) -> Floats:
    parts = []
    for first, stop, given in steps_of_spans((PROMPT, TOKENS), 0, PROMPT + TOKENS, together):
        parts.append(await stage.run(session, first, inputs[first:stop], given))
    return np.concatenate(parts)
