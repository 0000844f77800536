"""A decoder family that nobody has, added by an importer alone: this file is all that the mesh learns of it.

Rows of the embedding are scaled. A block is one unit, attention and feed-forward side by side, each with a norm before
and another after it; the feed-forward has a GELU and no gate. Every second block looks at a window. Logits have a soft
cap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.importers.unit_graphs import INPUT, UnitGraph
from planner.model.decoder_building import DecoderSource, UnitSource, build_decoder
from planner.model.graph_manifest import KvState
from planner.model.sources import TokenizerSource
from planner.model.store import Store
from planner.model.units import StoredParts
from planner.types import WeightFormat
from tests.peer.made_up_models import MadeUpTensor

BLOCKS, HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, FFN, VOCAB = 3, 64, 4, 2, 16, 96, 288
EPSILON, CAP, BASE, CONTEXT, WINDOW = 1e-6, 12.0, 10_000.0, 512, 8
QUERIES, KEYS = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
NORMS: Final = ("before", "after_attention", "after_ffn")


@dataclass(frozen=True)
class TowerModel:
    """Random weights of the family, as a file of it would have them."""

    tokenizer: TokenizerSource
    seed: int = 0

    def tensor(self, name: str) -> MadeUpTensor:
        """The weight of that name."""
        part = name.rpartition(".")[2]
        shapes: dict[str, tuple[int, ...]] = {
            "weight": (VOCAB, HIDDEN),
            "qkv": (QUERIES + 2 * KEYS, HIDDEN),
            "o": (HIDDEN, QUERIES),
            "up": (FFN, HIDDEN),
            "down": (HIDDEN, FFN),
            "up_bias": (FFN,),
        }
        rng = np.random.default_rng([self.seed, *name.encode()])
        values = rng.standard_normal(shapes.get(part, (HIDDEN,)), np.float32)
        small: npt.NDArray[np.float32] = values * np.float32(0.1)
        return MadeUpTensor(1 + small if part in NORMS else small)


def import_tower(model: TowerModel, weights: WeightFormat, store: Store) -> str:
    """Puts the model into the store; returns its id."""
    blobs = {"embed": StoredParts(model, weights), "head": StoredParts(model, weights)}
    blobs["embed"].table("embed", VOCAB, HIDDEN)
    blobs["head"].vector("before", [("head.before", HIDDEN)])
    blobs["head"].table("head", VOCAB, HIDDEN)
    units = [UnitSource("embed", _embed(), "embed")]
    for block in range(BLOCKS):
        name = f"block.{block}"
        blobs[name] = parts = StoredParts(model, weights)
        for norm in NORMS:
            parts.vector(norm, [(f"{name}.{norm}", HIDDEN)])
        parts.linear("qkv", [(f"{name}.qkv", QUERIES + 2 * KEYS)], HIDDEN)
        parts.linear("o", [(f"{name}.o", HIDDEN)], QUERIES)
        parts.linear("up", [(f"{name}.up", FFN)], HIDDEN)
        parts.vector("up_bias", [(f"{name}.up_bias", FFN)])
        parts.linear("down", [(f"{name}.down", HIDDEN)], FFN)
        window = WINDOW if block % 2 else None
        units.append(UnitSource(name, _block(), name, (KvState(KV_HEADS, HEAD_SIZE, window),)))
    units.append(UnitSource("head", _head(), "head"))
    frequencies = tuple(BASE ** (-pair / (HEAD_SIZE // 2)) for pair in range(HEAD_SIZE // 2))
    source = DecoderSource(
        name="tower",
        weights=weights,
        vocab=VOCAB,
        hidden=HIDDEN,
        context=CONTEXT,
        scratch=2 * FFN,
        rotary=(frequencies,),
        tokenizer=model.tokenizer,
        sampling=None,
        blobs={name: parts.plan() for name, parts in blobs.items()},
        units=units,
    )
    return build_decoder(source, store)


def _embed() -> bytes:
    graph = UnitGraph()
    scale = graph.constant(np.array(math.sqrt(HIDDEN), np.float32))
    return graph.finish(graph.one("Mul", graph.embedding("embed", VOCAB, HIDDEN), scale))


def _block() -> bytes:
    graph = UnitGraph()
    normed = graph.norm(INPUT, "before", EPSILON)
    qkv = graph.linear(normed, "qkv", QUERIES + 2 * KEYS, HIDDEN)
    attended = graph.attention(qkv, heads=HEADS, kv_heads=KV_HEADS, head_size=HEAD_SIZE)
    one = graph.norm(graph.linear(attended, "o", HIDDEN, QUERIES), "after_attention", EPSILON)
    inner = graph.one("Gelu", graph.linear(normed, "up", FFN, HIDDEN, bias="up_bias"), approximate="tanh")
    other = graph.norm(graph.linear(inner, "down", HIDDEN, FFN), "after_ffn", EPSILON)
    return graph.finish(graph.one("Add", INPUT, graph.one("Add", one, other)))


def _head() -> bytes:
    graph = UnitGraph()
    logits = graph.linear(graph.norm(INPUT, "before", EPSILON), "head", VOCAB, HIDDEN)
    cap = graph.constant(np.array(CAP, np.float32))
    return graph.finish(graph.one("Mul", graph.one("Tanh", graph.one("Div", logits, cap)), cap))


def reference_tokens(model: TowerModel, prompt: list[int], count: int) -> list[int]:
    """The likeliest tokens that follow, by the definition of the family in plain numpy, in one piece."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(reference_logits(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def reference_logits(model: TowerModel, tokens: list[int]) -> npt.NDArray[np.float64]:
    """(tokens, vocabulary), in float64."""

    def w(name: str) -> npt.NDArray[np.float64]:
        return model.tensor(name).values.astype(np.float64)

    def norm(x: npt.NDArray[np.float64], name: str) -> npt.NDArray[np.float64]:
        scaled: npt.NDArray[np.float64] = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)
        return scaled * w(name)

    count = len(tokens)
    angles = np.arange(count)[:, None] * BASE ** (-np.arange(HEAD_SIZE // 2) / (HEAD_SIZE // 2))
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    past = np.arange(count)[:, None] - np.arange(count)
    hidden = w("embed.weight")[tokens] * math.sqrt(HIDDEN)
    for block in range(BLOCKS):
        name = f"block.{block}"
        seen = (past >= 0) & (past < (WINDOW if block % 2 else count))
        normed = norm(hidden, f"{name}.before")
        packed = (normed @ w(f"{name}.qkv").T).reshape(count, -1, HEAD_SIZE)
        halves = np.split(packed[:, : HEADS + KV_HEADS], 2, axis=-1)
        turned = np.concatenate(
            [halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin], axis=-1
        )
        keys, values = turned[:, HEADS:], packed[:, HEADS + KV_HEADS :]
        keys, values = (np.repeat(each, HEADS // KV_HEADS, axis=1) for each in (keys, values))
        scores = np.einsum("qhd,khd->hqk", turned[:, :HEADS], keys) / math.sqrt(HEAD_SIZE)
        shares = np.exp(
            np.where(seen, scores, -np.inf) - np.where(seen, scores, -np.inf).max(-1, keepdims=True)
        )
        shares /= shares.sum(-1, keepdims=True)
        attended = np.einsum("hqk,khd->qhd", shares, values).reshape(count, -1)
        up = normed @ w(f"{name}.up").T + w(f"{name}.up_bias")
        inner = up / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        hidden = (
            hidden
            + norm(attended @ w(f"{name}.o").T, f"{name}.after_attention")
            + norm(inner @ w(f"{name}.down").T, f"{name}.after_ffn")
        )
    logits = norm(hidden, "head.before") @ w("head.weight").T
    capped: npt.NDArray[np.float64] = CAP * np.tanh(logits / CAP)
    return capped
