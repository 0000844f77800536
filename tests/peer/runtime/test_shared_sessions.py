"""Stages of several models on one peer: equal graphs with equal weights are loaded once, and compute as if alone."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil

from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from peer.runtime.shared_sessions import SharedSessions
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.lowering import make_shard
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.planner.tiny_models import TinyModel


class Peer:
    """A peer that loads units of stored models."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = Store(home / "store")
        self.shared = SharedSessions()

    def put(self, name: str, tiny: TinyModel) -> str:
        gguf = tiny.write_gguf(self.home / f"{name}.gguf")
        return build_model(open_gguf(gguf, name), "f32", self.store)

    def load(self, model: str, first: int = 0, stop: int | None = None) -> Execution:
        manifest = decode_manifest(self.store.manifest_bytes(model))
        form = proven(self.store, manifest, "cpu", 1).form
        shard = make_shard(manifest, self.store, first, stop or len(manifest.units), exact=form.plain)
        return Execution(shard, threads=1, context=32, form=form, shared=self.shared)


def test_equal_parts_are_loaded_once_and_go_with_who_uses_them_last(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    one, other = peer.put("one", TinyModel()), peer.put("other", TinyModel(seed=1))
    first, again = peer.load(one), peer.load(one)
    assert again._body is first._body
    assert again._heads == first._heads
    alone = len(peer.shared)
    rest = peer.load(one, 2)  # cut otherwise: the head alone is equal
    assert rest._heads == first._heads
    assert rest._body is not first._body
    assert len(peer.shared) == alone + 1
    different = peer.load(other)
    assert different._body is not first._body
    assert not {*map(id, different._heads)} & {*map(id, first._heads)}
    first.close()
    rest.close()
    different.close()
    gc.collect()
    assert len(peer.shared) == alone, "what one stage still uses stays"
    again.close()
    gc.collect()
    assert len(peer.shared) == 0


TOKENS = (1, 7, 3, 11, 5, 2, 9, 4)


def answer(execution: Execution) -> list[bytes]:
    """The logits of each of TOKENS, one after the other."""
    slots = KvSlots(1, 32, execution.form)
    slots.admit(b"a")
    execution.ensure(slots, slots.rows, len(TOKENS) + execution.form.spare_tokens)
    hidden = execution.embed(np.array(TOKENS))
    steps = [execution.alone(hidden[at : at + 1], Row(0, at)) for at in range(len(TOKENS))]
    return [execution.head(step).tobytes() for step in steps]


def test_two_stages_of_one_session_answer_at_once_as_each_does_alone(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    one = peer.put("one", TinyModel())
    alone = answer(peer.load(one))
    stages = [peer.load(one) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(20):
            assert list(threads.map(answer, stages)) == [alone, alone]
    for stage in stages:
        stage.close()


def test_what_is_loaded_again_takes_no_memory_for_weights(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    model = peer.put("large", TinyModel(hidden=1024, heads=16, ffn=4096, blocks=2))
    weights = sum(unit.resident_bytes for unit in decode_manifest(peer.store.manifest_bytes(model)).units)
    assert weights > 64 << 20
    process = psutil.Process()
    before = process.memory_info().rss
    first = peer.load(model)
    taken = process.memory_info().rss - before
    again = peer.load(model)
    more = process.memory_info().rss - before - taken
    assert taken > weights // 2
    assert more < weights // 10
    for stage in (first, again):
        stage.close()
