"""The tower of CLIP and SigLIP that reads, as nodes of an ONNX file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.errors import CorruptModel
from planner.importers.hf_config import Numbers
from planner.importers.vision.blocks import CLIP_LAYER, BlockNumbers, Blocks, Weights, linear
from planner.importers.vision.configs import activation_of
from planner.importers.vision.graph_file import GraphFile

PART = "text"
FAR = -1e9  # added to the score of a place that is not looked at
OLD_END = 2  # of configs of CLIP that name the wrong token: then the largest id ends a text


@dataclass(frozen=True, slots=True)
class ReaderNumbers:
    """The tower that reads. `length`: rows of its table of positions, of which every text has all (`filled`) or as many
    as its batch. `end`: the token at whose place the vector of a text stands; None: at the last place.
    """

    blocks: BlockNumbers
    vocab: int
    length: int
    width: int  # of the vectors
    end: int | None
    filled: bool
    head: str  # how the checkpoint calls the last linear

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of the tower, by their names behind its prefix."""
        h = self.blocks.hidden
        return {
            "embeddings.token_embedding.weight": (self.vocab, h),
            "embeddings.position_embedding.weight": (self.length, h),
            "final_layer_norm.weight": (h,),
            "final_layer_norm.bias": (h,),
            **self.blocks.shapes(self.blocks.blocks),
        }


def reader_numbers(said: Numbers, clip: bool, width: int) -> ReaderNumbers:
    """The tower of a text config. `width`: of the vectors, where the config does not say it."""
    hidden = said.whole("hidden_size", 512 if clip else 768)
    heads = said.whole("num_attention_heads", 8 if clip else 12)
    blocks = BlockNumbers(
        blocks=said.whole("num_hidden_layers", 12),
        hidden=hidden,
        heads=heads,
        ffn=said.whole("intermediate_size", 2048 if clip else 3072),
        epsilon=said.real("layer_norm_eps", 1e-5 if clip else 1e-6),
        activation=activation_of(said, "quick_gelu" if clip else "gelu_pytorch_tanh"),
        layer=CLIP_LAYER,
        prefix="encoder.layers.",
    )
    length = said.whole("max_position_embeddings", 77 if clip else 64)
    vocab = said.whole("vocab_size", 49408 if clip else 32000)
    if not (
        0 < heads <= hidden <= 1 << 14 and not hidden % heads and 0 < length <= 4096 and 0 < vocab < 1 << 24
    ):
        raise CorruptModel(f"{said.where}: a text tower of {heads} heads and {hidden} wide makes no sense")
    if not 0 < blocks.blocks <= 256 or not 0 < blocks.ffn <= 1 << 17:
        raise CorruptModel(f"{said.where}: a text tower of {blocks.blocks} blocks makes no sense")
    return ReaderNumbers(
        blocks,
        vocab,
        length,
        width if clip else said.whole("projection_size", hidden),
        said.whole("eos_token_id", 49407) if clip else None,
        filled=not clip,
        head="text_projection" if clip else "text_model.head",
    )


def reader(graph: GraphFile, n: ReaderNumbers, weights: Weights, tokens: str) -> str:
    """The row of each text, float32 (texts, hidden), before the last linear. `tokens`: int64 (texts, tokens)."""
    made = Blocks(graph, PART, n.blocks, weights)
    words = graph.weight(f"/{PART}/words", weights("embeddings.token_embedding.weight"))
    rows = graph.add("Gather", [words, tokens], f"/{PART}/words.found")
    table = graph.weight(f"/{PART}/positions", weights("embeddings.position_embedding.weight"))
    length = graph.add("Shape", [tokens], f"/{PART}/length", start=1, end=2)
    zero = graph.numbers("/place/row.0", [0])
    places = (
        table if n.filled else graph.add("Slice", [table, zero, length, zero], f"/{PART}/positions.found")
    )
    rows = graph.add("Add", [rows, places], f"/{PART}/placed")
    unseen = None
    if n.end is not None:  # each word sees those before it
        later = np.triu(np.full((n.length, n.length), FAR, np.float32), 1)
        whole = graph.weight(f"/{PART}/later", later)
        wide = graph.add("Concat", [length, length], f"/{PART}/square", axis=0)
        both, axes = graph.numbers("/place/both.0", [0, 0]), graph.numbers("/place/both.axes", [0, 1])
        unseen = graph.add("Slice", [whole, both, wide, axes], f"/{PART}/unseen")
    rows = made.all(rows, n.blocks.blocks, unseen)
    rows = made.norm(rows, "last_norm", "final_layer_norm")
    if n.end is None:
        last = graph.constant("/place/last", np.array(-1, np.int64))
        return graph.add("Gather", [rows, last], f"/{PART}/row", axis=1)
    if n.end == OLD_END:
        marks = tokens
    else:
        end = graph.constant("/text/end", np.array(n.end, np.int64))
        marks = graph.add(
            "Cast", [graph.add("Equal", [tokens, end], f"/{PART}/ends")], f"/{PART}/marks", to=7
        )
    at = graph.add("ArgMax", [marks], f"/{PART}/end.at", axis=1, keepdims=1)
    return graph.add("GatherND", [rows, at], f"/{PART}/row", batch_dims=1)


def compared(
    graph: GraphFile, pictures: str, texts: str, scale: float, bias: float | None
) -> tuple[str, str, str]:
    """Vectors of length one of pictures and of texts, and how well each pair fits: shares that add up to 1 over texts,
    or where there is a `bias` a probability of each pair.
    """
    axes = graph.numbers("/place/1.on", [1])

    def of_length_one(rows: str, name: str) -> str:
        length = graph.add("ReduceL2", [rows, axes], f"/compare/{name}.length", keepdims=1)
        return graph.add("Div", [rows, length], f"{name}_vectors")

    seen, read = of_length_one(pictures, "picture"), of_length_one(texts, "text")
    turned = graph.add("Transpose", [read], "/compare/turned", perm=(1, 0))
    steep = graph.constant("/compare/scale", np.array(np.exp(np.float32(scale)), np.float32))
    logits = graph.add("Mul", [graph.add("MatMul", [seen, turned], "/compare/product"), steep], "logits")
    if bias is None:
        return seen, read, graph.add("Softmax", [logits], "scores", axis=1)
    shift = graph.constant("/compare/bias", np.array(bias, np.float32))
    return seen, read, graph.add("Sigmoid", [graph.add("Add", [logits, shift], "/compare/shifted")], "scores")


def projected(graph: GraphFile, rows: str, name: str, weights: Weights, tensor: str, *, bias: bool) -> str:
    """The last linear of a tower."""
    offset = weights(f"{tensor}.bias") if bias else None
    return linear(graph, rows, name, weights(f"{tensor}.weight"), offset)
