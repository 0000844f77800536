"""A tower that sees: patches of a picture as rows, blocks of attention and feed-forward, as nodes of an ONNX file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.errors import CorruptModel
from planner.importers.vision.blocks import (
    BlockNumbers,
    Blocks,
    Weights,
    activated,
    attention,
    heads_of,
    linear,
    norm,
)
from planner.importers.vision.graph_file import Floats, GraphFile

PART = "vision"
COLOURS = 3


@dataclass(frozen=True, slots=True)
class TowerNumbers:
    """One tower. `image`, `patch`: sides in pixels. `class_row`, `positions`, `patches`, `first_norm`, `last_norm`: how
    the checkpoint calls the row before those of patches, the table of positions, the convolution, and the norms before
    and behind the blocks; None for what a tower has not. `grid`: patches along a side of the table of positions, which
    is resized where pictures have others.
    """

    blocks: BlockNumbers
    image: int
    patch: int
    patches: str
    positions: str
    class_row: str | None
    first_norm: str | None
    last_norm: str | None
    grid: int
    patch_bias: bool = True
    positions_shape: tuple[int, ...] = ()  # before the two axes of the table

    @property
    def side(self) -> int:
        """Patches along a side of a picture."""
        return self.image // self.patch

    @property
    def rows(self) -> int:
        """Rows that a picture becomes."""
        return self.side**2 + (self.class_row is not None)

    def shapes(self, blocks: int) -> dict[str, tuple[int, ...]]:
        """The tensors of the tower with its first `blocks` blocks, by their names behind its prefix."""
        h = self.blocks.hidden
        first = self.class_row is not None
        found: dict[str, tuple[int, ...]] = {
            f"{self.patches}.weight": (h, COLOURS, self.patch, self.patch),
            self.positions: (*self.positions_shape, self.grid**2 + first, h),
        }
        if self.patch_bias:
            found[f"{self.patches}.bias"] = (h,)
        if self.class_row is not None:
            found[self.class_row] = (1, 1, h) if self.positions_shape else (h,)
        for name in (self.first_norm, self.last_norm):
            if name is not None:
                found |= {f"{name}.weight": (h,), f"{name}.bias": (h,)}
        return found | self.blocks.shapes(blocks)


def check_tower(numbers: TowerNumbers, where: str) -> None:
    """Raises CorruptModel for numbers that no tower can have."""
    b = numbers.blocks
    fits = (
        0 < b.blocks <= 256
        and 0 < b.hidden <= 1 << 14
        and 0 < b.heads <= b.hidden
        and b.hidden % b.heads == 0
        and 0 < b.ffn <= 1 << 17
        and 0 < numbers.patch <= numbers.image <= 4096
        and numbers.image % numbers.patch == 0
        and 0 < numbers.side <= 256
    )
    if not fits:
        raise CorruptModel(
            f"{where}: a tower of {b.blocks} blocks of {b.heads} heads, {b.hidden} and {b.ffn} wide, for squares of "
            f"{numbers.image} pixels in patches of {numbers.patch} makes no sense"
        )


def tower(
    graph: GraphFile, numbers: TowerNumbers, weights: Weights, pixels: str, blocks: int, *, last_norm: bool
) -> str:
    """What the first `blocks` blocks make of `pixels`, float32 (pictures, 3, image, image): rows (pictures, rows,
    hidden), normed where `last_norm`.
    """
    n, made = numbers, Blocks(graph, PART, numbers.blocks, weights)
    at, hidden = f"/{PART}/patches", numbers.blocks.hidden
    kernel = [graph.weight(f"{at}.weight", weights(f"{n.patches}.weight"))]
    if n.patch_bias:
        kernel.append(graph.weight(f"{at}.bias", weights(f"{n.patches}.bias")))
    seen = graph.add(
        "Conv", [pixels, *kernel], at, kernel_shape=[n.patch] * 2, strides=[n.patch] * 2, pads=[0] * 4
    )
    flat = graph.add("Reshape", [seen, graph.numbers("/shape/patches", [0, hidden, n.side**2])], f"{at}.flat")
    rows = graph.add("Transpose", [flat], f"{at}.rows", perm=(0, 2, 1))
    places = _places(n, weights(n.positions).reshape(-1, hidden))
    if n.class_row is not None:
        # The row before the patches: of every picture the same, so a row of zeros is put there and positions add it.
        places[0] += weights(n.class_row).reshape(hidden)
        pads = graph.numbers("/shape/row.before", [0, 1, 0, 0, 0, 0])
        rows = graph.add("Pad", [rows, pads], f"{at}.first")
    table = graph.weight(f"/{PART}/positions", places)
    rows = graph.add("Add", [rows, table], f"/{PART}/placed")
    if n.first_norm is not None:
        rows = made.norm(rows, "first_norm", n.first_norm)
    rows = made.all(rows, blocks)
    return made.norm(rows, "last_norm", n.last_norm) if last_norm and n.last_norm is not None else rows


def _places(n: TowerNumbers, table: Floats) -> Floats:
    """The table of positions for the picture's patches, resized where it was made for others."""
    if n.grid == n.side:
        return table.copy()
    first = int(n.class_row is not None)
    grid = table[first:].reshape(n.grid, n.grid, -1)
    steps = _bicubic(n.grid, n.side)
    wide = np.einsum("ia,jb,abh->ijh", steps, steps, grid.astype(np.float64)).astype(np.float32)
    return np.concatenate([table[:first], wide.reshape(n.side**2, -1)])


def _bicubic(given: int, wanted: int) -> npt.NDArray[np.float64]:
    """How much each of `given` places weighs in each of `wanted`, as torch resizes (a of -0.75, the edge repeated)."""
    found = np.zeros((wanted, given), np.float64)
    for place in range(wanted):
        at = (place + 0.5) * given / wanted - 0.5
        low = int(np.floor(at))
        for near in range(low - 1, low + 3):
            x, a = abs(at - near), -0.75
            weight = (
                ((a + 2) * x - (a + 3)) * x * x + 1 if x <= 1 else ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
            )
            found[place, min(max(near, 0), given - 1)] += weight
    return found


def first_row(graph: GraphFile, rows: str, name: str) -> str:
    """(pictures, rows, hidden) -> (pictures, hidden): the row before those of patches."""
    return graph.add("Gather", [rows, graph.constant("/place/0", np.array(0, np.int64))], name, axis=1)


def without_first(graph: GraphFile, rows: str, name: str) -> str:
    """The rows of patches alone."""
    one, end = (graph.numbers(f"/place/{at}.on", [at]) for at in (1, 1 << 40))
    return graph.add("Slice", [rows, one, end, one], name)


def probed(graph: GraphFile, numbers: TowerNumbers, weights: Weights, rows: str) -> str:
    """SigLIP's head: a probe attends to all rows, then feed-forward: (pictures, hidden)."""
    n, at = numbers.blocks, f"/{PART}/head"
    hidden, three = n.hidden, weights("head.attention.in_proj_weight").reshape(3, n.hidden, n.hidden)
    bias = weights("head.attention.in_proj_bias").reshape(3, n.hidden)
    probe = weights("head.probe").reshape(1, hidden)
    asked = (probe @ three[0].T + bias[0]).reshape(1, 1, n.heads, hidden // n.heads).transpose(0, 2, 1, 3)
    q = graph.weight(f"{at}/q", np.ascontiguousarray(asked))
    k, v = (
        linear(graph, rows, f"{at}/{part}", three[which], bias[which]) for which, part in ((1, "k"), (2, "v"))
    )
    k = heads_of(graph, k, f"{at}/k", n.heads, hidden, (0, 2, 3, 1))
    v = heads_of(graph, v, f"{at}/v", n.heads, hidden, (0, 2, 1, 3))
    mixed = attention(graph, at, q, k, v, n.heads, hidden)
    out = "head.attention.out_proj"
    found = linear(graph, mixed, f"{at}/o", weights(f"{out}.weight"), weights(f"{out}.bias"))
    read = norm(graph, PART, found, "head/norm", "head.layernorm", weights, n.epsilon)
    for part, tensor in (("up", "fc1"), ("down", "fc2")):
        name = f"head.mlp.{tensor}"
        read = linear(graph, read, f"{at}/{part}", weights(f"{name}.weight"), weights(f"{name}.bias"))
        if part == "up":
            read = activated(graph, read, f"{at}/wide", n.activation)
    return first_row(graph, graph.add("Add", [found, read], f"{at}/end"), f"{at}/row")


def probe_shapes(n: BlockNumbers) -> dict[str, tuple[int, ...]]:
    """The tensors of SigLIP's head."""
    h, f = n.hidden, n.ffn
    linears = {"head.attention.out_proj": (h, h), "head.mlp.fc1": (f, h), "head.mlp.fc2": (h, f)}
    found: dict[str, tuple[int, ...]] = {
        "head.probe": (1, 1, h),
        "head.attention.in_proj_weight": (3 * h, h),
        "head.attention.in_proj_bias": (3 * h,),
        "head.layernorm.weight": (h,),
        "head.layernorm.bias": (h,),
    }
    for name, shape in linears.items():
        found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return found
