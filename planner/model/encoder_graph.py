"""How an embedding model is stored, and the ONNX graph that computes it: tokens in, one vector for each text out.

tokens i64 (batch, length), mask f32 (batch, length): 1 for a token, 0 for what only fills up -> embedding f32 (batch,
hidden). Attention sees no filled-up place, and no such place counts in a mean. All is float32, without graphs' weights:
every matrix is at an offset of a blob that is named by its hash, as those of planner.model.lowering.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from onnx import TensorProto, helper

from planner.errors import CorruptModel
from planner.model.encoder import (
    EncoderManifest,
    EncoderNumbers,
    EncoderPart,
    SourceEncoder,
    encode_encoder,
    tensor_shapes,
)
from planner.model.onnx_graph import Graph
from planner.model.store import Store
from planner.model.units import Progress, put_tensors

HIDDEN_SCORE: Final = 1e9  # taken from the score of a filled-up place: its share is then exactly 0
LEAST_LENGTH: Final = 1e-12  # of a vector that is divided by its length, as torch's normalize has it


def put_encoder(source: SourceEncoder, store: Store, progress: Progress | None = None) -> str:
    """Puts blobs and manifest into the store; returns the model id. `progress(done, total)` counts bytes of weights.
    Raises ModelError or StoreError.
    """
    parts: list[EncoderPart] = []
    shapes = tensor_shapes(source.numbers)
    sizes = [sum(4 * math.prod(shape) for shape in tensors.values()) for tensors in shapes.values()]
    for name, tensors in shapes.items():
        arrays = {}
        for tensor in tensors:
            arrays[tensor] = source.weights(f"{name}.{tensor}")
            if not np.isfinite(arrays[tensor]).all():
                raise CorruptModel(
                    f"{source.name}: {name}.{tensor}: finite numbers expected, found NaN or infinity"
                )
        parts.append(EncoderPart(name, *put_tensors(store, arrays)))
        if progress is not None:
            progress(sum(sizes[: len(parts)]), sum(sizes))
    tokenizer = store.put_blob([source.tokenizer_json])
    manifest = EncoderManifest(source.name, source.numbers, tokenizer, tuple(parts))
    return store.put_manifest(encode_encoder(manifest))


def encoder_graph(manifest: EncoderManifest) -> bytes:
    """The whole model as one graph; its external data lies in the folder of the blobs."""
    n = manifest.numbers
    graph = Graph("blobs")
    embed, *layers = manifest.parts
    hidden = _embedded(graph, embed, n)
    unseen = _unseen(graph)
    for layer in layers:
        hidden = _layer(graph, layer, n, hidden, unseen)
    pooled = _pooled(graph, n, hidden)
    graph.add("Identity", [_of_length_one(graph, pooled) if n.normalize else pooled], "embedding")
    return graph.finish(
        [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "length"]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "length"]),
        ],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", n.hidden])],
        "encoder",
    )


def _weight(graph: Graph, part: EncoderPart, name: str) -> str:
    tensor = next(tensor for tensor in part.tensors if tensor.name == name)
    return graph.external(f"{part.name}.{name}", part, tensor)


def _linear(graph: Graph, part: EncoderPart, name: str, source: str) -> str:
    product = graph.times(source, _weight(graph, part, f"{name}.w"), f"{part.name}.{name}.product")
    return graph.add("Add", [product, _weight(graph, part, f"{name}.bias")], f"{part.name}.{name}.out")


def _norm(graph: Graph, part: EncoderPart, name: str, n: EncoderNumbers, source: str) -> str:
    weights = [_weight(graph, part, f"{name}.{kind}") for kind in ("weight", "bias")]
    return graph.add(
        "LayerNormalization",
        [source, *weights],
        f"{part.name}.{name}.out",
        axis=-1,
        epsilon=n.norm_epsilon,
        stash_type=1,
    )


def _embedded(graph: Graph, embed: EncoderPart, n: EncoderNumbers) -> str:
    """Sum of word, kind of sentence (there is one) and position, normalized."""
    words = graph.add("Gather", [_weight(graph, embed, "words"), "tokens"], "words.found")
    typed = graph.add("Add", [words, _weight(graph, embed, "type")], "words.typed")
    length = graph.add("Shape", ["tokens"], "length", start=1, end=2)
    first = graph.constant("first", np.array([0], np.int64))
    positions = _weight(graph, embed, "positions")
    placed = graph.add("Slice", [positions, first, length, first], "positions.found")
    return _norm(graph, embed, "norm", n, graph.add("Add", [typed, placed], "embedded"))


def _unseen(graph: Graph) -> str:
    """What is added to scores (batch, heads, length, length): 0 for tokens, much below 0 for the rest."""
    one = graph.constant("one", np.array(1, np.float32))
    far = graph.constant("far", np.array(HIDDEN_SCORE, np.float32))
    below = graph.add("Mul", [graph.add("Sub", ["mask", one], "mask.below"), far], "mask.far")
    axes = graph.constant("mask.axes", np.array([1, 2], np.int64))
    return graph.add("Unsqueeze", [below, axes], "unseen")


def _layer(graph: Graph, layer: EncoderPart, n: EncoderNumbers, hidden: str, unseen: str) -> str:
    """Attention, then feed-forward; each is added to its input and normalized after that."""
    name = layer.name
    attended = _linear(graph, layer, "o", _attended(graph, layer, n, hidden, unseen))
    middle = _norm(graph, layer, "o.norm", n, graph.add("Add", [attended, hidden], f"{name}.middle"))
    up = _linear(graph, layer, "up", middle)
    approximate = "tanh" if n.activation == "gelu_tanh" else "none"
    active = graph.add("Gelu", [up], f"{name}.active", approximate=approximate)
    down = _linear(graph, layer, "down", active)
    return _norm(graph, layer, "down.norm", n, graph.add("Add", [down, middle], f"{name}.end"))


def _attended(graph: Graph, layer: EncoderPart, n: EncoderNumbers, hidden: str, unseen: str) -> str:
    name, size = layer.name, n.hidden // n.heads
    qkv = _linear(graph, layer, "qkv", hidden)
    parts = [f"{name}.{part}" for part in "qkv"]
    sizes = graph.constant(f"{name}.sizes", np.array([n.hidden] * 3, np.int64))
    graph.add("Split", [qkv, sizes], *parts, axis=-1)
    split = graph.constant(f"{name}.split", np.array([0, 0, n.heads, size], np.int64))
    heads = []
    for part, order in zip(parts, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True):
        one = graph.add("Reshape", [part, split], f"{part}.heads")
        heads.append(graph.add("Transpose", [one], f"{part}.turned", perm=order))
    query, key, value = heads
    scale = graph.constant(f"{name}.scale", np.array(size**-0.5, np.float32))
    scores = graph.add("MatMul", [query, key], f"{name}.scores")
    scaled = graph.add("Mul", [scores, scale], f"{name}.scores.scaled")
    seen = graph.add("Add", [scaled, unseen], f"{name}.scores.seen")
    shares = graph.add("Softmax", [seen], f"{name}.shares", axis=-1)
    mixed = graph.add("MatMul", [shares, value], f"{name}.mixed")
    turned = graph.add("Transpose", [mixed], f"{name}.mixed.turned", perm=(0, 2, 1, 3))
    flat = graph.constant(f"{name}.flat", np.array([0, 0, n.hidden], np.int64))
    return graph.add("Reshape", [turned, flat], f"{name}.attended")


def _pooled(graph: Graph, n: EncoderNumbers, hidden: str) -> str:
    """(batch, length, hidden) -> (batch, hidden): the mean over tokens, or the first one's row."""
    if n.pooling == "cls":
        first = graph.constant("cls", np.array(0, np.int64))
        return graph.add("Gather", [hidden, first], "pooled", axis=1)
    last = graph.constant("pool.last", np.array([2], np.int64))
    over = graph.constant("pool.over", np.array([1], np.int64))
    marks = graph.add("Unsqueeze", ["mask", last], "pool.marks")
    kept = graph.add("Mul", [hidden, marks], "pool.kept")
    total = graph.add("ReduceSum", [kept, over], "pool.sum", keepdims=0)
    count = graph.add("ReduceSum", [marks, over], "pool.count", keepdims=0)
    return graph.add("Div", [total, count], "pooled")


def _of_length_one(graph: Graph, pooled: str) -> str:
    axes = graph.constant("length.axes", np.array([1], np.int64))
    found = graph.add("ReduceL2", [pooled, axes], "length.found", keepdims=1)
    least = graph.constant("length.least", np.array(LEAST_LENGTH, np.float32))
    return graph.add("Div", [pooled, graph.add("Max", [found, least], "length.held")], "normalized")
