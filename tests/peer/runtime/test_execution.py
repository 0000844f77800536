"""Shards compute what the architecture says: against float64 numpy, for every family, and on the real model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from peer.errors import CannotServe
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import FASTEST
from peer.runtime.kv_slots import KvSlots
from peer.runtime.processor import instruction_set
from planner.importers.architecture import Architecture, RopeScaling
from planner.importers.rotary import rotary_tables_of
from planner.model.lowering import make_shard, rotary_tables
from planner.model.manifest import Manifest
from planner.model.store import Store

Doubles = npt.NDArray[np.float64]
LLAMA3 = RopeScaling("llama3", 8.0, 1.0, 4.0, 64)


def reference_logits(source: Any, tokens: list[int]) -> Doubles:
    """Logits of every position, straight from the definition."""
    a: Architecture = source.architecture

    def w(name: str) -> Doubles:
        values: Doubles = source.tensor(name).float32().astype(np.float64)
        return values

    def norm(x: Doubles, name: str) -> Doubles:
        scaled: Doubles = x / np.sqrt((x**2).mean(-1, keepdims=True) + a.norm_epsilon) * w(name)
        return scaled

    half = a.head_size // 2
    cos, sin = (
        table.astype(np.float64)[:, None, :half]
        for table in rotary_tables(rotary_tables_of(a)[0], len(tokens))
    )

    def rotate(x: Doubles) -> Doubles:
        one, other = np.split(x, 2, axis=-1)
        return np.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)

    hidden = w("embed.weight")[tokens]
    mask = np.triu(np.full((len(tokens),) * 2, -np.inf), 1)
    for block in range(a.blocks):
        attn, ffn = f"attn.{block}", f"ffn.{block}"
        x = norm(hidden, f"{attn}.norm")
        q, k, v = (
            (x @ w(f"{attn}.{part}").T + (w(f"{attn}.{part}_bias") if a.qkv_bias else 0)).reshape(
                len(tokens), -1, a.head_size
            )
            for part in "qkv"
        )
        if a.qk_norm:
            q, k = norm(q, f"{attn}.q_norm"), norm(k, f"{attn}.k_norm")
        q, k = rotate(q), rotate(k)
        k, v = (np.repeat(each, a.heads // a.kv_heads, axis=1) for each in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(a.head_size) + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        hidden = hidden + np.einsum("hqk,khd->qhd", weights, v).reshape(len(tokens), -1) @ w(f"{attn}.o").T
        x = norm(hidden, f"{ffn}.norm")
        gate = x @ w(f"{ffn}.gate").T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * (x @ w(f"{ffn}.up").T)) @ w(f"{ffn}.down").T
    head = w("embed.weight") if a.tied_embedding else w("head.weight")
    logits: Doubles = norm(hidden, "head.norm") @ head.T
    return logits


def shard_logits(
    manifest: Manifest, store: Store, tokens: list[int], prompt: int, threads: int = 1
) -> npt.NDArray[np.float32]:
    """Logits of every position: `prompt` tokens at once, the others one by one, in the second of two rows."""
    form = proven(store, manifest, "cpu", threads).form
    execution = Execution(
        make_shard(manifest, store, 0, len(manifest.units), exact=form.plain),
        threads=threads,
        context=manifest.context,
        form=form,
    )
    slots = KvSlots(2, manifest.context, form)
    for session in (b"a", b"b"):
        slots.admit(session)
    execution.ensure(slots, slots.rows, len(tokens) + form.spare_tokens)
    hidden = execution.embed(np.array(tokens))
    found = [execution.head(execution.prompt(hidden[:prompt], Row(1, 0)))]
    for position in range(prompt, len(tokens)):
        found.append(execution.head(execution.alone(hidden[position : position + 1], Row(1, position))))
    execution.close()
    return np.concatenate(found)


@pytest.mark.any_processor
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tied_embedding": False, "family": "mistral"},
        {"family": "qwen2", "qkv_bias": True},
        {"family": "qwen3", "qk_norm": True, "head_size": 32, "rope_dims": 32},
        {"rope_scaling": LLAMA3},
        {"rope_scaling": RopeScaling("linear", 4.0)},
        {"rope_factors": tuple(float(1 + n) for n in range(8))},
        {"kv_heads": 4, "rope_base": 1e6},
        {"rope_dims": 8},
        {"head_size": 20, "rope_dims": 6},
        {"head_size": 10, "rope_dims": 10, "qkv_bias": True},
        {"head_size": 24, "rope_dims": 24, "qk_norm": True},
        {"head_size": 100, "rope_dims": 100},
    ],
    ids=lambda changes: ",".join(map(str, (*changes, changes.get("head_size", "")))) or "llama",
)
@pytest.mark.parametrize("weights", ["f32", "f16"])
def test_every_family_equals_its_definition(
    made_up: Callable[..., Any], weights: str, changes: dict[str, Any]
) -> None:
    source, manifest, store = made_up(weights, **changes)
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, 100, 90)]
    expected = reference_logits(source, tokens)
    tolerance = {"f32": 2e-4, "f16": 2e-2}[weights] * float(np.abs(expected).max())
    np.testing.assert_allclose(shard_logits(manifest, store, tokens, 70), expected, rtol=0, atol=tolerance)


@pytest.mark.any_processor
@pytest.mark.parametrize("weights", ["8bit", "4bit"])
@pytest.mark.parametrize("changes", [{}, {"qkv_bias": True, "tied_embedding": False}, {"qk_norm": True}])
def test_quantized_forms_come_close(
    made_up: Callable[..., Any], weights: str, changes: dict[str, Any]
) -> None:
    source, manifest, store = made_up(weights, **changes)
    tokens = [int(t) for t in np.random.default_rng(2).integers(0, 100, 40)]
    expected = reference_logits(source, tokens)
    found = shard_logits(manifest, store, tokens, 20)
    least = {"8bit": 0.999, "4bit": 0.94}[weights]
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > least


def test_llama3_scaling_keeps_high_and_stretches_low_frequencies(made_up: Callable[..., Any]) -> None:
    source, _, _ = made_up("f32", rope_scaling=LLAMA3)
    plain, _, _ = made_up("f32")
    scaled, kept = (
        np.arcsin(rotary_tables(rotary_tables_of(each.architecture)[0], 2)[1][1].astype(np.float64))
        for each in (source, plain)
    )
    ratio = kept / scaled
    assert ratio[0] == pytest.approx(1, rel=1e-3)
    assert (np.diff(ratio) > -1e-2).all()
    assert ratio[-3] == pytest.approx(8, rel=0.05)


@pytest.mark.parametrize("weights", ["f32", "8bit", pytest.param("4bit", marks=pytest.mark.any_processor)])
def test_the_number_of_threads_changes_nothing_within_a_class(
    made_up: Callable[..., Any], weights: str
) -> None:
    """Peers with other settings serve the same stream, or say that they are of another class."""
    _, manifest, store = made_up(
        weights, hidden=576, heads=9, kv_heads=3, head_size=64, rope_dims=64, ffn=1536
    )
    tokens = [int(t) for t in np.random.default_rng(3).integers(0, 100, 110)]
    by_class: dict[str, Any] = {}
    for threads in (1, 2, 3):
        found = shard_logits(manifest, store, tokens, 100, threads)
        known = by_class.setdefault(proven(store, manifest, "cpu", threads).class_of("cpu"), found)
        np.testing.assert_array_equal(found, known)
    if instruction_set() not in ("sse4", "neon"):
        assert len(by_class) == 1


def test_a_missing_provider_is_named(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()
    for provider, words in (("cuda", "CUDAExecutionProvider"), ("abacus", "not known")):
        with pytest.raises(CannotServe, match=words):
            Execution(make_shard(manifest, store, 0, 2, provider), threads=1, context=16, form=FASTEST)
