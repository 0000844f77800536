"""Records the envelopes of a model that was imported, and finds them again beside its manifest.

Edge around `peer.envelopes`. One unit is loaded at a time; a model without them works, and odd rows pass unseen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from peer.envelopes import MOST_BYTES, Envelopes, decode_envelopes, encode_envelopes, widened
from peer.errors import PeerError
from peer.evidence import Floats
from peer.execution import Execution, Row
from peer.forms import FASTEST
from peer.kv_slots import KvSlots
from peer.mesh import text_of
from planner.errors import PlannerError
from planner.manifest import Manifest, decode_manifest
from planner.shards import make_shard
from planner.store import Store

FILE: Final = "envelopes.json"
TOKENS: Final = 64  # of each text, at most
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
    found: list[Floats] = []
    rows: list[Floats] = []
    count = len(manifest.units) - 1
    for unit in range(count):
        shard = make_shard(manifest, store, unit, unit + 1)
        execution = Execution(shard, threads=1, context=TOKENS, form=FASTEST)  # lengths need no equal bits
        try:
            if unit == 0:
                rows = [execution.embed(tokens) for tokens in prompts]
            else:
                slots = KvSlots(1, TOKENS + 1)
                slots.admit(b"")
                execution.ensure(slots, 1, TOKENS + 1)
                rows = [execution.prompt(each, Row(0, 0)).copy() for each in rows]
        finally:
            execution.close()
        found.append(np.concatenate([np.linalg.norm(each, axis=1) for each in rows]))
        progress(unit + 1, count)
    return found
