"""Attention over a window in a tab: what is dropped changes nothing, and all agree with a process."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from peer.bench.browser import browser_path, build_page, drive
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import FASTEST
from peer.runtime.kv_slots import KvSlots
from peer.session.evidence import Floats
from planner.model.decoder_building import build_decoder
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from tests.browsers.harness import binary
from tests.peer.windowed_decoder import VOCAB, windowed_decoder

WINDOW, PROMPT, TOKENS = 100, 760, 776
CLOSE = 1e-3


@pytest.fixture(scope="module")
def page(harness: Path) -> Path:
    binary("chromium")
    assert harness.is_dir()
    return build_page()


def on_cpu(manifest: Manifest, store: Store, tokens: list[int]) -> Floats:
    """Logits after the last token."""
    shard = make_shard(manifest, store, 0, len(manifest.units))
    execution = Execution(shard, threads=1, context=TOKENS + 64, form=FASTEST)
    slots = KvSlots(1, TOKENS + 64, FASTEST)
    slots.admit(b"")
    execution.ensure(slots, 1, TOKENS + 64)
    try:
        for start in range(0, TOKENS, 64):
            hidden = execution.prompt(execution.embed(np.array(tokens[start : start + 64])), Row(0, start))
        return execution.head(hidden[-1:].copy())[0]
    finally:
        execution.close()


async def test_a_tab_keeps_little_more_than_a_window(page: Path, tmp_path: Path) -> None:
    """By WebAssembly: lowering refuses windows and soft caps on a GPU, which tabs that have one do without then."""
    store = Store(tmp_path)
    model = build_decoder(windowed_decoder(WINDOW, softcap=30.0), store)
    manifest = decode_manifest(store.manifest_bytes(model))
    tokens = [int(token) for token in np.random.default_rng(5).integers(0, VOCAB, TOKENS)]
    order = {
        "executable": browser_path(),
        "evaluate": {"call": "windowed", "args": [model, "wasm", tokens, PROMPT]},
    }
    found = (await drive(store, page, order))["value"]
    assert (found["apart"], found["moved"]) == (0, 0)
    kept, whole = found["kvBytes"]
    assert kept < whole
    logits = np.frombuffer(base64.b64decode(found["logits"]), np.float32)
    assert np.abs(logits - on_cpu(manifest, store, tokens)).max() < CLOSE
