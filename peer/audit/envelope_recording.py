"""Records the envelopes of a model that was imported, and finds them again beside its manifest.

Edge around `peer.audit.norm_envelopes`. A unit or two are loaded at a time; a model without them works, and odd rows
pass unseen.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import numpy as np

from peer.audit.norm_envelopes import FILE, MOST_BYTES, Envelopes, decode_envelopes, encode_envelopes, widened
from peer.errors import PeerError
from peer.model.tokenizer import text_of
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import FASTEST
from peer.runtime.kv_slots import KvSlots
from peer.session.evidence import Floats
from planner.errors import PlannerError
from planner.model.durable_files import free_name
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store

TOKENS: Final = 64  # of each text, at most
LOADED_BYTES: Final = 384 << 20  # of two units at once
_TEXTS: Final = (
    "The harbour was built when ships still had sails, and every winter its walls are repaired with the same stone.",
    "def area(width, height):\n    return width * height  # 3 * 4 = 12\n\nprint(area(3, 4))\n",
    "Q: Wie spät ist es? R: Il est 14 h 35. 今日は天気がいいですね。 ¿Qué hay de nuevo?",
    '1, 1, 2, 3, 5, 8, 13, 21, 34, 55 {"name": "salt", "price": 0.45, "tags": ["white", "fine"]}',
)

log = logging.getLogger(__name__)


def envelopes_path(store: Store, model_id: str) -> Path:
    """Where they lie, whether they are there or not."""
    return store.beside_manifest(model_id, FILE)


def recorded(store: Store, model_id: str) -> Envelopes | None:
    """The envelopes of a model in the store; None where nobody recorded them."""
    path = envelopes_path(store, model_id)
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        units = len(decode_manifest(store.manifest_bytes(model_id)).units)
        return decode_envelopes(path.read_bytes(), units)
    except (OSError, PlannerError):
        return None


def record_again(store: Store, model_id: str, tell: Callable[[str], None]) -> None:
    """Sets envelopes that are damaged aside, and records them anew. Those that are missing stay so."""
    path = envelopes_path(store, model_id)
    if not path.exists() or recorded(store, model_id) is not None:
        return
    aside = free_name(path)
    try:
        path.replace(aside)
    except OSError as error:
        tell(f"{path} is damaged and cannot be moved away ({error.strerror}): remove it")
        return
    tell(f"{path} is damaged: it is {aside.name} now, and recorded again")
    record(store, model_id)


def record(store: Store, model_id: str, progress: Callable[[int, int], None] = lambda *_: None) -> None:
    """Computes some texts unit by unit, and keeps how long rows are. What cannot be recorded is left out."""
    manifest = decode_manifest(store.manifest_bytes(model_id))
    try:
        encoded = encode_envelopes(widened(_lengths(store, manifest, progress)))
    except (PeerError, PlannerError, RuntimeError, ValueError) as error:
        log.warning("no envelopes were recorded: %s", error)
        return
    path = envelopes_path(store, model_id)
    beside = path.with_suffix(".new")
    try:
        beside.write_bytes(encoded)
        beside.replace(path)
    except OSError as error:
        log.warning("no envelopes were kept: %s", error)


def _lengths(store: Store, manifest: Manifest, progress: Callable[[int, int], None]) -> list[Floats]:
    """Lengths of all rows behind each unit but the head."""
    text = text_of(store, manifest)
    prompts = [np.asarray(text.encode(each)[:TOKENS], np.int64) for each in _TEXTS]
    prompts = [each for each in prompts if len(each)]
    if not prompts:
        raise ValueError("its tokenizer makes nothing of the texts")
    sizes = [unit.blob.bytes for unit in manifest.units[:-1]]
    found: list[Floats] = []
    rows: list[Floats] = []
    with closing(_executions(store, manifest)) as executions:
        for unit, execution in enumerate(executions):
            if unit == 0:
                rows = [execution.embed(tokens) for tokens in prompts]
            else:
                slots = KvSlots(1, TOKENS + 1)
                slots.admit(b"")
                execution.ensure(slots, 1, TOKENS + 1)
                rows = [execution.prompt(each, Row(0, 0)).copy() for each in rows]
            found.append(np.concatenate([np.linalg.norm(each, axis=1) for each in rows]))
            progress(sum(sizes[: unit + 1]), sum(sizes))
    return found


def _executions(store: Store, manifest: Manifest) -> Generator[Execution, None, None]:
    """Each unit but the head, loaded; the next one loads on another thread where both are small. Plain weights stay in
    their files: a 8B shape's half of a block is 700 MB of them.
    """
    mapped = manifest.weights in ("f32", "f16")
    count, cores = len(manifest.units) - 1, os.cpu_count() or 1

    def load(unit: int) -> Execution:
        shard = make_shard(manifest, store, unit, unit + 1)
        # lengths need no equal bits
        return Execution(shard, threads=cores, context=TOKENS, form=FASTEST, mapped=mapped)

    with ThreadPoolExecutor(1, "shoal-recording") as pool:
        ahead: Future[Execution] | None = None
        try:
            for unit in range(count):
                execution = ahead.result() if ahead is not None else load(unit)
                ahead = None
                try:
                    two = sum(each.resident_bytes for each in manifest.units[unit : unit + 2])
                    if unit + 1 < count and (mapped or two <= LOADED_BYTES):
                        ahead = pool.submit(load, unit + 1)
                    yield execution
                finally:
                    execution.close()
        finally:
            if ahead is not None and not ahead.cancel():
                with suppress(PeerError, PlannerError):
                    ahead.result().close()
