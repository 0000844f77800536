"""What an encoder of texts computes, in numbers, and which tensors that takes. Pure.

Tensors have names of ours: `embed.` for what makes rows of tokens, `layer.N.` for blocks, `final.` and `relative.` for
what all blocks share, `head.` for what makes a score. Matrices are (outputs, inputs); `qkv` has q, k and v below one
another, a gated `up` what is activated above what that is multiplied with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from planner.errors import CorruptModel

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]

MOST_WEIGHT_ROWS: Final = 1 << 22  # of a vocabulary
_MOST: Final = {
    "blocks": 128,
    "hidden": 1 << 14,
    "heads": 256,
    "ffn": 1 << 16,
    "vocab": MOST_WEIGHT_ROWS,
    "positions": 1 << 16,
}
MOST_KINDS: Final = 64
MOST_BUCKETS: Final = 1 << 8  # so that the exact ones end before FAR
FAR: Final = 128  # tokens from which on all distances are one bucket, as MPNet has it
MOST_FAR: Final = 1 << 16
MOST_HEAD: Final = 1 << 12
MOST_SCALE: Final = 1e6


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """The numbers of an encoder. `positions`: tokens of a text at most, the marks at its ends included.

    `table`: there is a learned row for each position, the first one's being row `first_row` of the tensor. `kinds`:
    rows of the table of the first and the second text of a pair; 0: there is none. `rotary`: by block, the base of its
    rotary embedding; empty: there is none. `windows`: by block, how many tokens it looks ahead and back; 0, or empty:
    at all. `buckets`: of distances that have a bias of their own; 0: none has. `norm_first`: norms stand before the
    halves of a block, else behind the sum. `gated`: the activated half of a feed-forward layer is multiplied with
    another one. `head`: numbers of a head; 0: as many as the heads have of a row. `far`: from which distance on all are
    one bucket. `embed_norm`: of rows before the first block; `embed_scale`: of rows of words. `rms`: norms divide by
    the root of the mean of squares. `scaled`: scores are divided by the root of the head's size.
    """

    blocks: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    positions: int
    norm_epsilon: float
    activation: Activation
    table: bool = True
    first_row: int = 0
    kinds: int = 0
    rotary: tuple[float, ...] = ()
    windows: tuple[int, ...] = ()
    buckets: int = 0
    norm_first: bool = False
    gated: bool = False
    attention_bias: bool = True
    ffn_bias: bool = True
    norm_bias: bool = True
    head: int = 0
    far: int = FAR
    embed_norm: bool = True
    embed_scale: float = 1.0
    rms: bool = False
    scaled: bool = True

    @property
    def head_size(self) -> int:
        """Numbers of a head."""
        return self.head or self.hidden // self.heads

    @property
    def width(self) -> int:
        """Numbers of all heads."""
        return self.heads * self.head_size


@dataclass(frozen=True, slots=True)
class RowsEnding:
    """The rows themselves are what is wanted, each with its mask behind it: a decoder reads them."""


@dataclass(frozen=True, slots=True)
class ScoreHead:
    """How the rows of a pair of texts become its score: of the first row, or of the mean, a dense layer, its activation
    and a norm where there is one, then one number. `sigmoid`: which lies between 0 and 1 at last. `labels`: or how well
    each of these fits a text: shares of 1, or with `sigmoid` each by itself.
    """

    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
    dense_bias: bool = True
    norm: bool = False
    mean: bool = False
    sigmoid: bool = True
    labels: tuple[str, ...] = ()


def check_shape(shape: EncoderShape, where: str) -> None:
    """Raises CorruptModel for numbers that contradict each other, or are out of all proportion."""
    for name, most in _MOST.items():
        if not 1 <= getattr(shape, name) <= most:
            raise CorruptModel(f"{where}: {name} from 1 to {most} expected, got {getattr(shape, name)}")
    if not 0 <= shape.head <= MOST_HEAD or not 0 < shape.embed_scale <= MOST_SCALE:
        raise CorruptModel(
            f"{where}: heads of at most {MOST_HEAD} numbers, and a scale of embeddings up to {MOST_SCALE:g} expected"
        )
    if not shape.head and shape.hidden % shape.heads:
        raise CorruptModel(f"{where}: {shape.hidden} values cannot be shared evenly by {shape.heads} heads")
    if shape.rotary and shape.head_size % 2:
        raise CorruptModel(f"{where}: rotary embedding needs an even head size, got {shape.head_size}")
    if not all(math.isfinite(base) and base >= 1 for base in shape.rotary):
        raise CorruptModel(f"{where}: bases of rotary embedding of at least 1 expected")
    if not 0 < shape.norm_epsilon < 1:
        raise CorruptModel(f"{where}: a norm epsilon between 0 and 1 expected, got {shape.norm_epsilon}")
    if not 0 <= shape.kinds <= MOST_KINDS:
        raise CorruptModel(f"{where}: at most {MOST_KINDS} kinds of texts expected, got {shape.kinds}")
    if shape.buckets and not (
        4 <= shape.buckets <= MOST_BUCKETS
        and shape.buckets % 4 == 0
        and shape.buckets // 4 < shape.far <= MOST_FAR
    ):
        raise CorruptModel(
            f"{where}: 4 to {MOST_BUCKETS} buckets of distances expected, a multiple of 4, got {shape.buckets}, the "
            f"last one from {shape.far} on (at most {MOST_FAR})"
        )
    for what, counts in (("bases of rotary embedding", shape.rotary), ("windows", shape.windows)):
        if counts and len(counts) != shape.blocks:
            raise CorruptModel(f"{where}: {shape.blocks} {what} expected, got {len(counts)}")


def tensor_shapes(shape: EncoderShape, head: ScoreHead | None = None) -> dict[str, tuple[int, ...]]:
    """Every tensor, in the order in which it is used."""
    n, width = shape, (shape.hidden,)
    found: dict[str, tuple[int, ...]] = {"embed.words.weight": (n.vocab, n.hidden)}

    def linear(name: str, rows: int, columns: int, bias: bool) -> None:
        found[f"{name}.weight"] = (rows, columns)
        if bias:
            found[f"{name}.bias"] = (rows,)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = width
        if n.norm_bias:
            found[f"{name}.bias"] = width

    if n.kinds:
        found["embed.kinds.weight"] = (n.kinds, n.hidden)
    if n.table:
        found["embed.positions.weight"] = (n.first_row + n.positions, n.hidden)
    if n.embed_norm:
        norm("embed.norm")
    if n.buckets:
        found["relative.weight"] = (n.buckets, n.heads)
    for block in range(n.blocks):
        layer = f"layer.{block}"
        if (
            not (n.norm_first and n.embed_norm) or block
        ):  # the rows of the first one may be normalized already
            norm(f"{layer}.attention_norm")
        linear(f"{layer}.qkv", 3 * n.width, n.hidden, n.attention_bias)
        linear(f"{layer}.o", n.hidden, n.width, n.attention_bias)
        norm(f"{layer}.ffn_norm")
        linear(f"{layer}.up", 2 * n.ffn if n.gated else n.ffn, n.hidden, n.ffn_bias)
        linear(f"{layer}.down", n.hidden, n.ffn, n.ffn_bias)
    if n.norm_first:
        norm("final.norm")
    if head is not None:
        linear("head.dense", n.hidden, n.hidden, head.dense_bias)
        if head.norm:
            norm("head.norm")
        linear("head.out", len(head.labels) or 1, n.hidden, True)
    return found


def rotary_tables(base: float, head_size: int, positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines of the angles by which each position turns, (positions, head_size / 2)."""
    share = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    frequencies = (np.float32(1) / np.power(np.float32(base), share)).astype(np.float32)
    angles = (np.arange(positions, dtype=np.float32)[:, None] * frequencies).astype(np.float32)
    return np.cos(angles), np.sin(angles)
