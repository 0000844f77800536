"""How fast this machine runs each kind of unit, and what it occupies without weights: the model's own graphs
on zeros.

Nothing is fetched first: sparse files stand in for the blobs of one unit of each kind. That unit is loaded
several times over, as often as fits WORKING_BYTES, because weights that stay in the processor's cache would
flatter it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from peer.errors import MeasuringEnded
from peer.runtime.arithmetic import Proof, proven
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import Form
from peer.runtime.huge_pages import give_back_memory
from peer.runtime.kv_slots import KvSlots
from peer.runtime.peak_memory import LONGEST, forget_peak, longer_bytes, peak_bytes
from peer.runtime.piece_sizes import PIECE_TOKENS
from peer.runtime.step_benchmark import steps_s
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, ManifestUnit
from planner.model.store import Store
from planner.types import UnitKind

WORKING_BYTES: Final = 96 << 20  # weights under the clock: above the last-level cache of most machines
HEAD_BYTES: Final = 40 << 20
EVICT_BYTES: Final = 48 << 20
CONTEXT: Final = 256
FILLED: Final = 128  # positions in the cache while decoding: a question and half an answer
ROWS: Final = 4  # of the batch that batch_s comes from
MEETING_BYTES: Final = 20 << 20  # connections, plans and answers come to occupy 9 to 35 MiB more
GROWING_BYTES: Final = 20 << 20  # graphs of many units, logits, what arrays leave behind as they grow
RUNS: Final = 15
FASTEST: Final = 10  # one call in so many is faster than what counts
LIMIT_S: Final = 0.6  # for the runs of one kind
_BODIES: Final[tuple[UnitKind, ...]] = ("attn", "ffn")
SCRATCH_BYTES: Final = (
    80 << 20
)  # of the units under the clock, beside their weights and KV: up to 72 MiB were seen


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """As in planner.types.PeerProfile: seconds per unit and token; `overhead_bytes` of this process without
    weights.
    """

    decode_s: dict[UnitKind, float]
    prefill_s: dict[UnitKind, float]
    step_s: float
    batch_s: dict[UnitKind, float]
    overhead_bytes: int
    arithmetic: str = ""  # the class of what this peer computes (planner.model.arithmetic_class); "": unknown

    @property
    def lasting_bytes(self) -> int:
        """What the process occupies without weights once it is in a mesh: what plans count."""
        return self.overhead_bytes + MEETING_BYTES


@dataclass(frozen=True, slots=True)
class _Times:
    decode_s: float
    prefill_s: float
    batch_s: float
    overhead_bytes: int = 0  # what the process occupied meanwhile beyond weights and KV: code, scratch, holes


@dataclass(frozen=True, slots=True)
class _Trial:
    """What is measured, and by what. `stop()`: whether that is to end at once."""

    manifest: Manifest
    blobs: _SparseBlobs
    form: Form
    provider: str
    threads: int
    stop: Callable[[], bool]


def measure_here(
    store: Store,
    manifest: Manifest,
    provider: str,
    threads: int,
    stop: Callable[[], bool] = lambda: False,
    *,
    context: int = CONTEXT,
) -> UnitTimes:
    """Proves which form of calls holds here, where the store has no such proof, and measures units in that form. As
    `measure_units`.
    """
    proof = proven(store, manifest, provider, threads)
    return measure_units(store, manifest, proof, provider, threads, stop, context=context)


def measure_units(
    store: Store,
    manifest: Manifest,
    proof: Proof,
    provider: str,
    threads: int,
    stop: Callable[[], bool] = lambda: False,
    *,
    context: int = CONTEXT,
) -> UnitTimes:
    """Takes a second or two; `store` has the graphs. `overhead_bytes` holds where no weights are loaded, for
    conversations of `context` positions. Times are those of kinds that the model has. Raises CannotServe when the
    provider is missing, MeasuringEnded soon after `stop()`.
    """
    if manifest.context < CONTEXT:  # times are per unit and token, whatever the model was trained for
        manifest = replace(manifest, context=CONTEXT)
    with tempfile.TemporaryDirectory(prefix="shoal-measure-") as folder:
        trial = _Trial(
            manifest, _SparseBlobs(Path(folder), store, manifest), proof.form, provider, threads, stop
        )
        found: dict[UnitKind, _Times] = {kind: _time_body(trial, kind) for kind in _bodies(manifest)}
        found["head"] = _time_head(trial)
        found["embed"], step_s = _time_step(trial)
        longer = _longer_bytes(trial, context)
    overhead = max(times.overhead_bytes for times in found.values()) + longer + GROWING_BYTES
    give_back_memory()
    return UnitTimes(
        decode_s={kind: times.decode_s for kind, times in found.items()},
        prefill_s={kind: times.prefill_s for kind, times in found.items()},
        step_s=step_s,
        batch_s={kind: times.batch_s for kind, times in found.items()},
        overhead_bytes=overhead,
        arithmetic=proof.class_of(provider),
    )


def _longer_bytes(trial: _Trial, context: int) -> int:
    """What a longer context than the measured one adds beside the KV: scratch of attention, rotary tables."""
    if context <= CONTEXT:
        return 0
    if "attn" not in _bodies(trial.manifest):
        return 0
    one = replace(trial.manifest, units=(_copy(_first(trial.manifest, "attn"), 0),))
    shard = make_shard(one, trial.blobs, 0, 1, trial.provider, exact=trial.form.plain)
    _go_on(trial.stop)
    execution = Execution(shard, threads=trial.threads, context=min(context, LONGEST), form=trial.form)
    try:
        _go_on(trial.stop)
        scratch = longer_bytes(execution, trial.manifest.hidden, context, CONTEXT)
    finally:
        execution.close()
    angles = sum(len(frequencies) for frequencies in trial.manifest.rotary)
    return scratch + 2 * 4 * angles * (context - CONTEXT)


def measuring_bytes(manifest: Manifest) -> int:
    """What this process occupies at most while it measures, beyond what it did before."""
    bodies = [_first(manifest, kind) for kind in _bodies(manifest)]
    kv_bytes = ROWS * CONTEXT
    weights = [
        _copies(manifest, one) * (one.resident_bytes + kv_bytes * one.kv_bytes_per_token) for one in bodies
    ]
    head = min(_first(manifest, "head").resident_bytes, HEAD_BYTES) + EVICT_BYTES
    return max(*weights, head) + SCRATCH_BYTES


class _SparseBlobs:
    """Stands in for the store: files that hold as many copies of a unit's blob as the model has blocks and
    take no disk.

    They are zeros but for the start of each tensor, because onnxruntime keeps weights of equal content only
    once. Graphs are those of the store.
    """

    def __init__(self, folder: Path, store: Store, manifest: Manifest) -> None:
        self._folder = folder
        self._store = store
        self._graphs = {blob.sha256 for blob in manifest.graphs()}
        self._copies = {unit.blob.sha256: _copies(manifest, unit) for unit in manifest.units}
        self._blobs = {unit.blob.sha256: unit for unit in manifest.units}

    def blob_path(self, sha256: str) -> Path:
        if sha256 in self._graphs:
            return self._store.blob_path(sha256)
        path = self._folder / sha256
        if not path.exists():
            with path.open("wb") as file:
                unit, copies = self._blobs[sha256], self._copies[sha256]
                file.truncate(unit.blob.bytes * copies)
                for copy in range(copies):
                    for tensor in unit.tensors:
                        file.seek(copy * unit.blob.bytes + tensor.offset)
                        file.write(np.float32(copy + 1).tobytes()[-tensor.bytes :])
        return path


def _bodies(manifest: Manifest) -> list[UnitKind]:
    """The kinds of units between the first and the last that the model has."""
    return [kind for kind in _BODIES if any(unit.kind == kind for unit in manifest.units)]


def _first(manifest: Manifest, kind: UnitKind) -> ManifestUnit:
    return next(unit for unit in manifest.units if unit.kind == kind)


def _copies(manifest: Manifest, one: ManifestUnit) -> int:
    like = sum(unit.kind == one.kind for unit in manifest.units)
    return max(1, min(like, WORKING_BYTES // max(one.resident_bytes, 1)))


def _time_body(trial: _Trial, kind: UnitKind) -> _Times:
    """One unit among as many copies of it as fit."""
    manifest = trial.manifest
    one = _first(manifest, kind)
    count = _copies(manifest, one)
    copies = tuple(_copy(one, block) for block in range(count))
    plain, shape = trial.form.plain, trial.form.body
    shard = make_shard(replace(manifest, units=copies), trial.blobs, 0, count, trial.provider, exact=plain)
    _go_on(trial.stop)
    execution = Execution(shard, threads=trial.threads, context=CONTEXT, form=trial.form)
    try:
        slots = KvSlots(ROWS, CONTEXT, trial.form)
        for row in range(ROWS):
            slots.admit(bytes([row]))
        execution.ensure(slots, slots.rows, CONTEXT)
        hidden = np.random.default_rng(0).standard_normal((PIECE_TOKENS, manifest.hidden), np.float32)

        def decode_rows(count: int) -> None:
            for _, rows in shape.spans(range(count), slots.rows):
                execution.decode(hidden[: len(rows)], rows, [FILLED] * len(rows))

        def prompt_piece() -> None:
            if trial.form.ends:
                execution.prompt(hidden, Row(0, 0))
                return
            for _ in range(PIECE_TOKENS):
                decode_rows(1)

        forget_peak()
        decode, batch, prompt = _seconds(
            trial.stop,
            lambda: decode_rows(1),
            lambda: decode_rows(ROWS),
            prompt_piece,
        )
        overhead = peak_bytes() - shard.weight_bytes - execution.kv_bytes
    finally:
        execution.close()
    return _Times(
        decode / count,
        prompt / count / PIECE_TOKENS,
        max(batch - decode, 0.0) / count / (ROWS - 1),
        overhead,
    )


def _copy(unit: ManifestUnit, block: int) -> ManifestUnit:
    """Block `block`, with weights at a place of their own."""
    offset = block * unit.blob.bytes
    tensors = tuple(replace(tensor, offset=tensor.offset + offset) for tensor in unit.tensors)
    kv = tuple(replace(pair, number=block * len(unit.kv) + number) for number, pair in enumerate(unit.kv))
    return replace(unit, name=f"{unit.kind}.{block}", kv=kv, tensors=tensors)


def _time_head(trial: _Trial) -> _Times:
    """A head above HEAD_BYTES is measured on its first rows only."""
    manifest = trial.manifest
    head = _first(manifest, "head")
    vocab = manifest.vocab
    rows = max(1, min(vocab, vocab * HEAD_BYTES // max(head.resident_bytes, 1)))
    part = replace(manifest, units=(head,))
    shard = make_shard(part, trial.blobs, 0, 1, trial.provider, exact=trial.form.plain, vocabulary=rows)
    _go_on(trial.stop)
    execution = Execution(shard, threads=trial.threads, context=CONTEXT, form=trial.form)
    try:
        hidden = np.ones((ROWS, manifest.hidden), np.float32)
        rows = execution.head(hidden[:1]).shape[1]
        others = np.zeros(EVICT_BYTES, np.uint8)  # in a step the blocks' weights pass through the cache first
        decode, batch = _seconds(
            trial.stop,
            lambda: execution.head(hidden[:1]),
            lambda: execution.head(hidden),
            before=lambda: others.sum(),
        )
    finally:
        execution.close()
    share = vocab / rows
    # A prompt's last token only meets the head.
    return _Times(decode * share, 0.0, max(batch - decode, 0.0) * share / (ROWS - 1))


def _time_step(trial: _Trial) -> tuple[_Times, float]:
    """The embedding, and what a step costs around its units."""
    embed = replace(trial.manifest, units=(_first(trial.manifest, "embed"),))
    shard = make_shard(embed, trial.blobs, 0, 1, trial.provider)
    tokens = np.zeros(PIECE_TOKENS, np.int64)
    execution = Execution(shard, threads=trial.threads, context=CONTEXT, form=trial.form)
    try:
        decode, prompt = _seconds(
            trial.stop, lambda: execution.embed(tokens[:1]), lambda: execution.embed(tokens)
        )
    finally:
        execution.close()
    _go_on(trial.stop)
    steps = asyncio.run(steps_s(shard, trial.threads, CONTEXT, trial.form, RUNS, LIMIT_S))
    _go_on(trial.stop)  # an answer that began makes these longer, too
    return _Times(decode, prompt / PIECE_TOKENS, decode), max(_usual(steps) - decode, 0.0)


def _go_on(stop: Callable[[], bool]) -> None:
    if stop():
        raise MeasuringEnded("this peer has something else to do than to measure itself")


def _seconds(
    stop: Callable[[], bool], *runs: Callable[[], object], before: Callable[[], object] = lambda: None
) -> list[float]:
    """Time of a call of each, taken in turns so that a busy moment meets all, after one that warms up.

    Of all calls one of the fastest counts: others that compute at the same time, as peers that start together do, only
    ever make a call longer, on a busy machine threefold, and of two machines alike one would be planned as the slower.
    What stays busy shows in the pace of real steps (peer.runtime.slowdown).
    """
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        _go_on(stop)
        run()
    end = time.perf_counter() + LIMIT_S
    while len(times[0]) < RUNS and (len(times[0]) < 3 or time.perf_counter() < end):
        for run, taken in zip(runs, times, strict=True):
            _go_on(stop)
            before()
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return [_usual(taken) for taken in times]


def _usual(taken: list[float]) -> float:
    return sorted(taken)[len(taken) // FASTEST]
