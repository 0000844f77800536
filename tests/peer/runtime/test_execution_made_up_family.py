"""A decoder family that an importer adds alone: what a peer computes of it equals its definition."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from peer.runtime.self_benchmark import measure_units
from planner.importers.unit_graphs import UnitGraph
from planner.model.lowering import make_shard
from planner.model.manifest import decode_manifest
from planner.model.sources import TokenizerSource
from planner.model.store import Store
from planner.types import WeightFormat
from tests.planner.made_up_family import CONTEXT, TowerModel, import_tower, reference_logits

TOKENIZER = TokenizerSource(b"{}", None, None, (0,), False)
TOKENS = 40
PROMPT = 21


def test_its_importer_is_short() -> None:
    source = Path(import_tower.__code__.co_filename).read_text(encoding="utf-8")
    importer = source[: source.index("def reference_tokens(")]
    assert len(importer.splitlines()) < 150
    assert UnitGraph.__name__ in importer


@pytest.mark.parametrize(("weights", "cuts"), [("f32", (0, 5)), ("f32", (0, 1, 3, 5)), ("8bit", (0, 2, 5))])
def test_it_computes_what_its_definition_says(
    weights: WeightFormat, cuts: tuple[int, ...], tmp_path: Path
) -> None:
    model, store = TowerModel(TOKENIZER), Store(tmp_path)
    manifest = decode_manifest(store.manifest_bytes(import_tower(model, weights, store)))
    assert [unit.kind for unit in manifest.units] == ["embed", "attn", "attn", "attn", "head"]
    form = proven(store, manifest, "cpu", 1).form
    tokens = [int(token) for token in np.random.default_rng(1).integers(0, manifest.vocab, TOKENS)]
    rows: list[np.ndarray] = [np.zeros((0, 0), np.float32)]
    for first, stop in pairwise(cuts):
        shard = make_shard(manifest, store, first, stop, exact=form.plain)
        execution = Execution(shard, threads=1, context=CONTEXT, form=form)
        slots = KvSlots(1, CONTEXT, form)
        slots.admit(b"one")
        execution.ensure(slots, slots.rows, TOKENS + form.spare_tokens)
        hidden = execution.embed(np.array(tokens)) if execution.has_embed else np.concatenate(rows)
        rows = [execution.prompt(hidden[:PROMPT], Row(0, 0)).copy()]
        for position in range(PROMPT, TOKENS):
            rows.append(execution.alone(hidden[position : position + 1], Row(0, position)).copy())
        if execution.has_head:
            rows = [execution.head(np.concatenate(rows))]
        execution.close()
    expected = reference_logits(model, tokens)
    if weights == "f32":
        np.testing.assert_allclose(np.concatenate(rows), expected, rtol=1e-3, atol=1e-3)
    else:
        assert np.corrcoef(np.concatenate(rows).ravel(), expected.ravel())[0, 1] > 0.99


def test_a_peer_measures_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    manifest = decode_manifest(store.manifest_bytes(import_tower(TowerModel(TOKENIZER), "8bit", store)))
    times = measure_units(store, manifest, proven(store, manifest, "cpu", 1), "cpu", 1)
    assert set(times.decode_s) == {"embed", "attn", "head"}
    assert all(seconds > 0 for seconds in times.decode_s.values())
