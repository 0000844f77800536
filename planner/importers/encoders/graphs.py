"""The ONNX file of an encoder: token ids in; one vector for each text, one score for each pair, or all rows, out.

tokens int64 (texts, tokens), mask float32 (texts, tokens): 1 for a token, 0 for what only fills up, and of pairs whose
encoder tells them apart types int64 (texts, tokens) -> embedding float32 (texts, dimensions), scores float32
(texts, 1), or encoded float32 (texts, tokens, hidden + 1), rows with their mask behind them. Attention sees no
filled-up place, and no such place counts in a mean. All is float32.

Values are called by the part of the model that makes them, "/encoder/layer.0/attention/o": the import cuts the file
into these parts. What all blocks need is computed in each from its own input, so that it crosses no border.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from planner.importers.distance_buckets import buckets_around
from planner.importers.encoders.ending import Dense, VectorEnding
from planner.importers.encoders.folder import OpenedEncoder
from planner.importers.encoders.shape import (
    EncoderShape,
    RowsEnding,
    ScoreHead,
    rotary_tables,
)
from planner.model.onnx_graph import Graph

TOKENS: Final = "tokens"
MASK: Final = "mask"
TYPES: Final = "types"
VECTORS: Final = "embedding"
SCORES: Final = "scores"
ROWS: Final = "encoded"
CLASSES: Final = "classes"
TEXTS_AXIS: Final = "batch"
TOKENS_AXIS: Final = "length"
HIDDEN_SCORE: Final = 1e9  # taken from the score of a place that is not seen: its share is then exactly 0
LEAST_LENGTH: Final = 1e-12  # of a vector that is divided by its length, as torch's normalize has it
ALIGNED: Final = 64
_POOLED: Final = "/pooling/text"
_SCORED: Final = "/classifier/pair"
_ENCODED: Final = "/encoder/rows"
_UNSEEN: Final = "/embeddings/unseen"  # (texts, 1, 1, tokens): 0 for tokens, much below 0 for the rest
_OPERATORS: Final = {"relu": "Relu", "tanh": "Tanh"}


def write_graph(source: OpenedEncoder, weights: BinaryIO, location: str) -> bytes:
    """The file, whose weights are written to `weights`, called `location` beside it. Raises CorruptModel."""
    return _Writer(source, weights, location).graph()


class _Writer:
    def __init__(self, source: OpenedEncoder, weights: BinaryIO, location: str) -> None:
        self._source = source
        self._shape: EncoderShape = source.shape
        self._file = weights
        self._location = location
        self._at = 0
        self._graph = Graph("blobs")
        self._written: set[str] = set()

    def graph(self) -> bytes:
        ending = self._source.ending
        inputs = [(TOKENS, TensorProto.INT64), (MASK, TensorProto.FLOAT)]
        if self._source.scores and self._shape.kinds > 1:
            inputs.append((TYPES, TensorProto.INT64))
        rows = self._embedded(typed=len(inputs) == 3)
        for block in range(self._shape.blocks):
            rows = self._block(block, rows)
        at = _POOLED
        if isinstance(ending, ScoreHead | RowsEnding):
            at = _SCORED if isinstance(ending, ScoreHead) else _ENCODED
        if self._shape.norm_first:
            rows = self._norm(f"{at}/norm", "final.norm", rows)
        axes: list[str | int] = [TEXTS_AXIS, TOKENS_AXIS]
        made: list[str | int]
        if isinstance(ending, ScoreHead):
            output, width = (CLASSES, len(ending.labels)) if ending.labels else (SCORES, 1)
            made = [TEXTS_AXIS, width]
            self._score(ending, rows, output)
        elif isinstance(ending, RowsEnding):
            output, made = ROWS, [*axes, self._shape.hidden + 1]
            self._marked(rows)
        else:
            output, made = VECTORS, [TEXTS_AXIS, self._vector(ending, rows)]
        return self._graph.finish(
            [helper.make_tensor_value_info(name, kind, axes) for name, kind in inputs],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, made)],
            "encoder",
        )

    # --- weights ---------------------------------------------------------------------------------------------

    def _weight(self, ours: str) -> str:
        """A tensor of the model, written when it is first used."""
        return ours if ours in self._written else self._kept(ours, self._source.tensor(ours))

    def _kept(self, name: str, array: npt.NDArray[Any]) -> str:
        self._written.add(name)
        self._file.write(bytes(-self._at % ALIGNED))
        self._at += -self._at % ALIGNED
        content = np.ascontiguousarray(array)
        self._file.write(content.data)
        self._graph.outside(name, "f32", content.shape, self._location, self._at, content.nbytes)
        self._at += content.nbytes
        return name

    def _has(self, ours: str) -> bool:
        return ours in self._source.files

    def _constant(self, name: str, value: object, dtype: type = np.int64) -> str:
        if name in self._written:
            return name
        self._written.add(name)
        return self._graph.constant(name, np.array(value, dtype))

    # --- parts -----------------------------------------------------------------------------------------------

    def _linear(self, at: str, ours: str, source: str) -> str:
        made = self._graph.times(source, self._weight(f"{ours}.weight"), f"{at}.product")
        if self._has(f"{ours}.bias"):
            made = self._graph.add("Add", [made, self._weight(f"{ours}.bias")], at)
        return made

    def _norm(self, at: str, ours: str, source: str) -> str:
        weights = [self._weight(f"{ours}.weight")]
        if self._shape.rms:
            return self._over_root(at, weights[0], source)
        if self._shape.norm_bias:
            weights.append(self._weight(f"{ours}.bias"))
        return self._graph.add(
            "LayerNormalization",
            [source, *weights],
            at,
            axis=-1,
            epsilon=self._shape.norm_epsilon,
            stash_type=1,
        )

    def _over_root(self, at: str, weight: str, source: str) -> str:
        """`source` over the root of the mean of its squares, times `weight`."""
        graph = self._graph
        squares = graph.add("Mul", [source, source], f"{at}.squares")
        mean = graph.add("ReduceMean", [squares, self._constant("last.axis", [-1])], f"{at}.mean", keepdims=1)
        least = self._constant("norm.epsilon", self._shape.norm_epsilon, np.float32)
        root = graph.add("Sqrt", [graph.add("Add", [mean, least], f"{at}.held")], f"{at}.root")
        return graph.add("Mul", [graph.add("Div", [source, root], f"{at}.divided"), weight], at)

    def _activated(self, at: str, kind: str, source: str) -> str:
        if kind == "silu":
            return self._graph.add("Mul", [source, self._graph.add("Sigmoid", [source], f"{at}.open")], at)
        if kind in _OPERATORS:
            return self._graph.add(_OPERATORS[kind], [source], at)
        return self._graph.add("Gelu", [source], at, approximate="tanh" if kind == "gelu_tanh" else "none")

    def _length(self, at: str, source: str) -> str:
        """How many tokens a row has, as a vector of one number."""
        return self._graph.add("Shape", [source], f"{at}/length", start=1, end=2)

    def _first_rows(self, at: str, table: str, length: str) -> str:
        return self._graph.add(
            "Slice", [table, self._constant("zero", [0]), length, self._constant("zero", [0])], at
        )

    def _embedded(self, *, typed: bool) -> str:
        """Rows of words, with those of their kind of text and of their position, normalized."""
        graph, at = self._graph, "/embeddings"
        rows = graph.add("Gather", [self._weight("embed.words.weight"), TOKENS], f"{at}/words")
        if self._shape.embed_scale != 1:
            scale = self._constant("words.scale", self._shape.embed_scale, np.float32)
            rows = graph.add("Mul", [rows, scale], f"{at}/scaled")
        if typed:
            kinds = graph.add("Gather", [self._weight("embed.kinds.weight"), TYPES], f"{at}/kinds")
            rows = graph.add("Add", [rows, kinds], f"{at}/typed")
        elif self._shape.kinds:  # all of the first kind
            first = self._kept("embed.kinds.first", self._source.tensor("embed.kinds.weight")[0])
            rows = graph.add("Add", [rows, first], f"{at}/typed")
        if self._shape.table:
            table = self._source.tensor("embed.positions.weight")[self._shape.first_row :]
            placed = self._first_rows(
                f"{at}/positions", self._kept("embed.positions", table), self._length(at, TOKENS)
            )
            rows = graph.add("Add", [rows, placed], f"{at}/placed")
        one, far = self._constant("one", 1, np.float32), self._constant("far", HIDDEN_SCORE, np.float32)
        below = graph.add("Mul", [graph.add("Sub", [MASK, one], f"{at}/below"), far], f"{at}/far")
        graph.add("Unsqueeze", [below, self._constant("mask.axes", [1, 2])], _UNSEEN)
        return self._norm(f"{at}/norm", "embed.norm", rows) if self._shape.embed_norm else rows

    def _block(self, block: int, rows: str) -> str:
        """Attention, then feed-forward; each is added to its input, with a norm before it or after the sum."""
        shape, at = self._shape, f"/encoder/layer.{block}"
        for half, name in (("attention", "attention_norm"), ("ffn", "ffn_norm")):
            ours, place = f"layer.{block}", f"{at}/{half}"
            taken = rows
            if shape.norm_first and (block or half == "ffn" or not shape.embed_norm):
                taken = self._norm(f"{place}/norm", f"{ours}.{name}", rows)
            if half == "attention":
                made = self._linear(f"{place}/o", f"{ours}.o", self._attended(block, place, taken, rows))
            else:
                made = self._linear(f"{place}/down", f"{ours}.down", self._widened(block, place, taken))
            rows = self._graph.add("Add", [made, rows], f"{place}/sum")
            if not shape.norm_first:
                rows = self._norm(f"{place}/norm", f"{ours}.{name}", rows)
        return rows

    def _widened(self, block: int, at: str, rows: str) -> str:
        up = self._linear(f"{at}/up", f"layer.{block}.up", rows)
        if not self._shape.gated:
            return self._activated(f"{at}/active", self._shape.activation, up)
        sizes = self._constant("gate.sizes", [self._shape.ffn] * 2)
        active, other = f"{at}/gate", f"{at}/other"
        self._graph.add("Split", [up, sizes], active, other, axis=-1)
        opened = self._activated(f"{at}/active", self._shape.activation, active)
        return self._graph.add("Mul", [opened, other], f"{at}/gated")

    def _attended(self, block: int, at: str, rows: str, source: str) -> str:
        """`source`: what the block is given, which tells how long rows are."""
        graph, n = self._graph, self._shape
        qkv = self._linear(f"{at}/qkv", f"layer.{block}.qkv", rows)
        parts = [f"{at}/{part}" for part in "qkv"]
        graph.add("Split", [qkv, self._constant("qkv.sizes", [n.width] * 3)], *parts, axis=-1)
        split = self._constant("heads.split", [0, 0, n.heads, n.head_size])
        query, key, value = (
            graph.add(
                "Transpose",
                [graph.add("Reshape", [part, split], f"{part}.split")],
                f"{part}.heads",
                perm=(0, 2, 1, 3),
            )
            for part in parts
        )
        length = ""
        if n.rotary or n.buckets or (n.windows and n.windows[block]):
            length = self._length(at, source)
        if n.rotary:
            query, key = self._turned(block, at, length, query, key)
        turned = graph.add("Transpose", [key], f"{at}/k.turned", perm=(0, 1, 3, 2))
        scores = graph.add("MatMul", [query, turned], f"{at}/scores")
        if n.scaled:
            scale = self._constant("scale", n.head_size**-0.5, np.float32)
            scores = graph.add("Mul", [scores, scale], f"{at}/scores.scaled")
        bias = self._bias(block, at, length)
        if bias:
            scores = graph.add("Add", [scores, bias], f"{at}/scores.placed")
        scores = graph.add("Add", [scores, _UNSEEN], f"{at}/scores.seen")
        shares = graph.add("Softmax", [scores], f"{at}/shares", axis=-1)
        mixed = graph.add("MatMul", [shares, value], f"{at}/mixed")
        mixed = graph.add("Transpose", [mixed], f"{at}/mixed.turned", perm=(0, 2, 1, 3))
        return graph.add(
            "Reshape", [mixed, self._constant("heads.joined", [0, 0, n.width])], f"{at}/attended"
        )

    def _turned(self, block: int, at: str, length: str, query: str, key: str) -> tuple[str, str]:
        """Both, each position turned by its angles: halves of a head are the pairs."""
        graph, n, base = self._graph, self._shape, self._shape.rotary[block]
        names = [f"rotary.{which}.{base:g}" for which in ("cos", "sin")]
        if names[0] not in self._written:
            for name, table in zip(names, rotary_tables(base, n.head_size, n.positions), strict=True):
                self._kept(name, table)
        cos, sin = (
            self._first_rows(f"{at}/{which}", name, length)
            for which, name in zip(("cos", "sin"), names, strict=True)
        )
        sizes = self._constant("rotary.sizes", [n.head_size // 2] * 2)
        found = []
        for source, called in ((query, f"{at}/q"), (key, f"{at}/k")):
            first, second = f"{called}.first", f"{called}.second"
            graph.add("Split", [source, sizes], first, second, axis=-1)
            products = {
                f"{which}{angle}": graph.add("Mul", [half, table], f"{called}.{which}{angle}")
                for which, half in (("first", first), ("second", second))
                for angle, table in ((".cos", cos), (".sin", sin))
            }
            left = graph.add("Sub", [products["first.cos"], products["second.sin"]], f"{called}.left")
            right = graph.add("Add", [products["second.cos"], products["first.sin"]], f"{called}.right")
            found.append(graph.add("Concat", [left, right], f"{called}.rotated", axis=-1))
        return found[0], found[1]

    def _bias(self, block: int, at: str, length: str) -> str:
        """What is added to scores by the distance of two tokens, (1, heads or 1, tokens, tokens); "" for nothing."""
        graph, n = self._graph, self._shape
        window = n.windows[block] if n.windows else 0
        if not n.buckets and not window:
            return ""
        count = graph.add("Squeeze", [length, self._constant("zero", [0])], f"{at}/count")
        places = graph.add(
            "Range",
            [self._constant("range.first", 0), count, self._constant("range.step", 1)],
            f"{at}/places",
        )
        here = graph.add("Unsqueeze", [places, self._constant("here.axis", [1])], f"{at}/here")
        ahead = graph.add("Sub", [places, here], f"{at}/ahead")
        if window:
            outside = graph.add(
                "Greater",
                [graph.add("Abs", [ahead], f"{at}/away"), self._constant("window", window)],
                f"{at}/outside",
            )
            far = self._constant("far.below", -HIDDEN_SCORE, np.float32)
            none = self._constant("none", 0, np.float32)
            return graph.add("Where", [outside, far, none], f"{at}/window")
        if "relative" not in self._written:
            rows = self._source.tensor("relative.weight")[buckets_around(n.buckets, n.far, n.positions)]
            self._kept("relative", rows)
        place = graph.add(
            "Add", [ahead, self._constant("relative.middle", n.positions - 1)], f"{at}/distance"
        )
        found = graph.add("Gather", ["relative", place], f"{at}/relative")
        turned = graph.add("Transpose", [found], f"{at}/relative.turned", perm=(2, 0, 1))
        return graph.add("Unsqueeze", [turned, self._constant("zero", [0])], f"{at}/relative.bias")

    # --- endings ---------------------------------------------------------------------------------------------

    def _marked(self, rows: str) -> None:
        """Rows, each with its mask behind it."""
        marks = self._graph.add("Unsqueeze", [MASK, self._constant("marks.axis", [2])], f"{_ENCODED}/marks")
        self._graph.add("Concat", [rows, marks], ROWS, axis=-1)

    def _first_row(self, at: str, rows: str) -> str:
        return self._graph.add("Gather", [rows, self._constant("row", 0)], at, axis=1)

    def _mean(self, at: str, rows: str) -> str:
        """Over the tokens of each text."""
        graph = self._graph
        marks = graph.add("Unsqueeze", [MASK, self._constant("marks.axis", [2])], f"{at}/marks")
        over = self._constant("mean.axis", [1])
        total = graph.add(
            "ReduceSum", [graph.add("Mul", [rows, marks], f"{at}/kept"), over], f"{at}/total", keepdims=0
        )
        count = graph.add("ReduceSum", [marks, over], f"{at}/counted", keepdims=0)
        return graph.add("Div", [total, count], f"{at}/mean")

    def _most(self, at: str, rows: str) -> str:
        """The largest number of each column over the tokens of a text."""
        graph = self._graph
        below = graph.add("Squeeze", [_UNSEEN, self._constant("mean.axis", [1])], f"{at}/below")
        marks = graph.add("Transpose", [below], f"{at}/marks", perm=(0, 2, 1))
        kept = graph.add("Add", [rows, marks], f"{at}/kept")
        return graph.add("ReduceMax", [kept, self._constant("mean.axis", [1])], f"{at}/most", keepdims=0)

    def _vector(self, ending: VectorEnding, rows: str) -> int:
        """Adds the output; returns how many numbers a vector has."""
        graph, at, width = self._graph, _POOLED, self._shape.hidden
        pool = {
            "mean": self._mean,
            "cls": lambda at, rows: self._first_row(f"{at}/first", rows),
            "max": self._most,
        }
        made = pool[ending.pooling](at, rows)
        for place, step in enumerate(ending.after):
            here = f"{at}/{place}"
            if isinstance(step, Dense):
                made, width = self._dense(here, step, made), step.weight.shape[0]
                continue
            found = graph.add(
                "ReduceL2", [made, self._constant("mean.axis", [1])], f"{here}.length", keepdims=1
            )
            least = self._constant("length.least", LEAST_LENGTH, np.float32)
            made = graph.add(
                "Div", [made, graph.add("Max", [found, least], f"{here}.held")], f"{here}.normalized"
            )
        graph.add("Identity", [made], VECTORS)
        return width

    def _dense(self, at: str, step: Dense, source: str) -> str:
        made = self._graph.times(source, self._kept(f"{at}.weight", step.weight), f"{at}.product")
        if step.bias is not None:
            made = self._graph.add("Add", [made, self._kept(f"{at}.bias", step.bias)], f"{at}.sum")
        return made if step.operator is None else self._graph.add(step.operator, [made], f"{at}.active")

    def _score(self, head: ScoreHead, rows: str, output: str) -> None:
        at = _SCORED
        made = self._mean(at, rows) if head.mean else self._first_row(f"{at}/first", rows)
        made = self._activated(
            f"{at}/active", head.activation, self._linear(f"{at}/dense", "head.dense", made)
        )
        if head.norm:
            made = self._norm(f"{at}/dense.norm", "head.norm", made)
        made = self._linear(f"{at}/score", "head.out", made)
        if head.labels and not head.sigmoid:
            self._graph.add("Softmax", [made], output, axis=-1)
        else:
            self._graph.add("Sigmoid" if head.sigmoid else "Identity", [made], output)
