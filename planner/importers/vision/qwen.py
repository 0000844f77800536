"""The towers of Qwen2-VL and Qwen2.5-VL, as nodes of an ONNX file: pictures keep their form.

A picture of any height and width (multiples of `square` pixels) is patches that turn by their row and column. They
stand in squares of `merge` times `merge`, each of which becomes one row. In 2.5 most blocks look at windows alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.errors import CorruptModel, UnknownArchitecture
from planner.importers.hf_config import Numbers
from planner.importers.vision.blocks import ACTIVATIONS, Weights, activated, attention, heads_of, linear
from planner.importers.vision.graph_file import GraphFile

PART: Final = "vision"
COLOURS: Final = 3
FILM: Final = 2  # pictures that a patch of a film spans: a single picture stands for both
EPSILON: Final = 1e-6
ROPE_BASE: Final = 10_000.0
FAR: Final = -1e9  # added to the score of a patch in another window
MOST_POSITIONS: Final = 576  # of a picture: scores of every patch to every other take 0.3 GB for 16 heads
_GATED: Final = {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
_PLAIN: Final = {"up": "mlp.fc1", "down": "mlp.fc2"}


@dataclass(frozen=True, slots=True)
class QwenNumbers:
    """One tower. `patch`: pixels along its side. `merge`: patches along the side of what becomes a row. `window`: such
    squares along the side of a window, 0 where all blocks see all; `whole`: blocks that do all the same. `width`: of
    the rows that it makes.
    """

    blocks: int
    hidden: int
    heads: int
    ffn: int
    activation: str
    patch: int
    merge: int
    width: int
    newer: bool  # 2.5: root mean square norms and a gate
    window: int = 0
    whole: tuple[int, ...] = ()

    @property
    def square(self) -> int:
        """Pixels along the side of what becomes one row."""
        return self.patch * self.merge

    @property
    def ffn_names(self) -> dict[str, str]:
        """How the checkpoint calls the linears of feed-forward."""
        return _GATED if self.newer else _PLAIN

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of the tower, by their names behind its prefix."""
        h, f, merged = self.hidden, self.ffn, self.hidden * self.merge**2

        def norm(name: str) -> dict[str, tuple[int, ...]]:
            kinds = ("weight",) if self.newer else ("weight", "bias")
            return {f"{name}.{kind}": (h,) for kind in kinds}

        linears: dict[str, tuple[int, ...]] = {
            "merger.mlp.0": (merged, merged),
            "merger.mlp.2": (self.width, merged),
        }
        found: dict[str, tuple[int, ...]] = {
            "patch_embed.proj.weight": (h, COLOURS, FILM, self.patch, self.patch),
            **norm("merger.ln_q"),
        }
        for block in range(self.blocks):
            at = f"blocks.{block}."
            found |= norm(f"{at}norm1") | norm(f"{at}norm2")
            linears |= {f"{at}attn.qkv": (3 * h, h), f"{at}attn.proj": (h, h)}
            for part, name in self.ffn_names.items():
                linears[at + name] = (h, f) if part == "down" else (f, h)
        for name, shape in linears.items():
            found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        return found


def qwen_numbers(said: Numbers, *, newer: bool) -> QwenNumbers:
    """The tower of a vision config. Raises UnknownArchitecture, CorruptModel."""
    hidden = said.whole("hidden_size", 3584) if newer else said.whole("embed_dim", 1280)
    patch, merge = said.whole("patch_size", 14), said.whole("spatial_merge_size", 2)
    window = said.whole("window_size", 112) // max(1, merge * patch) if newer else 0
    whole = said.reals("fullatt_block_indexes") if newer else ()
    called = said.word("hidden_act", "silu" if newer else "quick_gelu")
    known = ("silu",) if newer else tuple(ACTIVATIONS)
    if called not in known:
        raise UnknownArchitecture(
            f"{said.where}: hidden_act {called[:80]!r} is not supported; known are {', '.join(known)}"
        )
    colours = said.whole("in_channels", said.whole("in_chans", COLOURS))
    if colours != COLOURS or said.whole("temporal_patch_size", FILM) != FILM:
        raise UnknownArchitecture(f"{said.where}: patches of three colours and {FILM} pictures expected")
    found = QwenNumbers(
        blocks=said.whole("depth", 32),
        hidden=hidden,
        heads=said.whole("num_heads", 16),
        ffn=said.whole("intermediate_size", 3420) if newer else hidden * said.whole("mlp_ratio", 4),
        activation="silu" if newer else ACTIVATIONS[called],
        patch=patch,
        merge=merge,
        width=said.whole("out_hidden_size", 3584) if newer else said.whole("hidden_size", 3584),
        newer=newer,
        window=window,
        whole=tuple(int(each) for each in ((7, 15, 23, 31) if whole is None else whole)),
    )
    fits = (
        0 < found.blocks <= 256
        and 0 < found.hidden <= 1 << 14
        and 0 < found.heads <= found.hidden
        and found.hidden % (4 * found.heads) == 0
        and 0 < found.ffn <= 1 << 17
        and 0 < found.patch <= 256
        and 0 < found.merge <= 4
        and 0 < found.width <= 1 << 17
        and (not newer or window > 0)
    )
    if not fits:
        raise CorruptModel(
            f"{said.where}: a tower of {found.blocks} blocks of {found.heads} heads, {found.hidden} and {found.ffn} "
            f"wide, for patches of {found.patch} pixels, {found.merge} to a side, makes no sense"
        )
    return found


def qwen_rows(graph: GraphFile, n: QwenNumbers, weights: Weights, pixels: str) -> str:
    """What becomes of `pixels`, float32 (pictures, 3, height, width): rows (pictures, positions, width)."""
    return _Tower(graph, n, weights).rows(pixels)


class _Tower:
    def __init__(self, graph: GraphFile, n: QwenNumbers, weights: Weights) -> None:
        self._graph, self._n, self._weights = graph, n, weights

    def rows(self, pixels: str) -> str:
        graph, n, at = self._graph, self._n, f"/{PART}/patches"
        both = self._weights("patch_embed.proj.weight")  # a picture stands still: both of a film are the same
        kernel = graph.weight(f"{at}.weight", np.ascontiguousarray(both.sum(axis=2, dtype=np.float32)))
        seen = graph.add(
            "Conv", [pixels, kernel], at, kernel_shape=[n.patch] * 2, strides=[n.patch] * 2, pads=[0] * 4
        )
        merge = graph.numbers("/shape/merge", [n.merge])
        sides = []
        for axis, side in ((2, "high"), (3, "wide")):
            count = graph.add("Shape", [seen], f"{at}.{side}", start=axis, end=axis + 1)
            sides.append(graph.add("Div", [count, merge], f"{at}.{side}.squares"))
        front = graph.numbers("/shape/patches.front", [0, n.hidden])
        shape = graph.add("Concat", [front, sides[0], merge, sides[1], merge], f"{at}.shape", axis=0)
        split = graph.add("Reshape", [seen, shape], f"{at}.split")
        turned = graph.add("Transpose", [split], f"{at}.turned", perm=(0, 2, 4, 3, 5, 1))
        rows = graph.add("Reshape", [turned, graph.numbers("/shape/rows", [0, -1, n.hidden])], f"{at}.rows")
        places = [self._places(sides, axis) for axis in range(2)]
        cos, sin = self._turns(places)
        unseen = self._windows(sides, places) if n.window else ""
        for block in range(n.blocks):
            rows = self._block(rows, block, cos, sin, "" if block in n.whole else unseen)
        return self._merged(rows)

    def _places(self, sides: list[str], axis: int) -> str:
        """The row (axis 0) or column (axis 1) of each patch, int64 (patches), in the order of the squares."""
        graph, n, at = self._graph, self._n, f"/{PART}/places.{axis}"
        zero, one = (graph.constant(f"/place/{each}", np.array(each, np.int64)) for each in (0, 1))
        merge = graph.numbers("/shape/merge", [n.merge])
        count = graph.add("Mul", [sides[axis], merge], f"{at}.count")
        flat = graph.add("Squeeze", [count, graph.numbers("/place/axis.0", [0])], f"{at}.scalar")
        steps = graph.add("Range", [zero, flat, one], f"{at}.steps")
        ones = graph.numbers("/shape/ones", [1])
        own = [sides[0], merge, ones, ones] if axis == 0 else [ones, ones, sides[1], merge]
        cut = graph.add("Concat", own, f"{at}.own", axis=0)
        split = graph.add("Reshape", [steps, cut], f"{at}.split")
        whole = graph.add("Concat", [sides[0], merge, sides[1], merge], f"{at}.whole", axis=0)
        wide = graph.add("Expand", [split, whole], f"{at}.wide")
        turned = graph.add("Transpose", [wide], f"{at}.turned", perm=(0, 2, 1, 3))
        return graph.add("Reshape", [turned, graph.numbers("/shape/flat", [-1])], at)

    def _turns(self, places: list[str]) -> tuple[str, str]:
        """Cosines and sines (patches, half a head): rows turn its first half, columns the other one."""
        graph, n = self._graph, self._n
        quarter = n.hidden // n.heads // 4
        frequencies = 1.0 / ROPE_BASE ** (np.arange(quarter, dtype=np.float64) / quarter)
        angles = np.arange(n.merge * MOST_POSITIONS)[:, None] * frequencies
        found = []
        for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            held = graph.weight(f"/{PART}/{name}", table.astype(np.float32))
            parts = [
                graph.add("Gather", [held, place], f"/{PART}/{name}.{axis}", axis=0)
                for axis, place in enumerate(places)
            ]
            found.append(graph.add("Concat", parts, f"/{PART}/{name}.both", axis=-1))
        return found[0], found[1]

    def _windows(self, sides: list[str], places: list[str]) -> str:
        """What is added to scores, float32 (patches, patches), so that each patch looks at its own window alone."""
        graph, n, at = self._graph, self._n, f"/{PART}/windows"
        side = graph.numbers("/shape/window", [n.window * n.merge])
        rows, columns = (graph.add("Div", [place, side], f"{at}.{axis}") for axis, place in enumerate(places))
        squares = graph.add("Add", [sides[1], graph.numbers("/shape/ones", [1])], f"{at}.most")
        number = graph.add("Add", [graph.add("Mul", [rows, squares], f"{at}.row"), columns], f"{at}.number")
        one, two = (
            graph.add("Unsqueeze", [number, graph.numbers(f"/place/axis.{axis}", [axis])], f"{at}.by.{axis}")
            for axis in (0, 1)
        )
        same = graph.add("Equal", [one, two], f"{at}.same")
        near, far = (
            graph.constant(f"/scale/{name}", np.array(value, np.float32))
            for name, value in (("near", 0), ("far", FAR))
        )
        return graph.add("Where", [same, near, far], f"{at}.unseen")

    def _block(self, rows: str, block: int, cos: str, sin: str, unseen: str) -> str:
        graph, n, at, source = self._graph, self._n, f"/{PART}/layers.{block}", f"blocks.{block}."
        h = n.hidden
        read = self._norm(rows, f"{at}/norm1", f"{source}norm1")
        weight = self._weights(f"{source}attn.qkv.weight").reshape(3, h, h)
        bias = self._weights(f"{source}attn.qkv.bias").reshape(3, h)
        parts = []
        for which, part in enumerate("qkv"):
            made = linear(graph, read, f"{at}/{part}", weight[which], bias[which])
            parts.append(heads_of(graph, made, f"{at}/{part}", n.heads, h, (0, 2, 1, 3)))
        q, k = (self._turned(each, f"{at}/{part}", cos, sin) for part, each in zip("qk", parts, strict=False))
        k = graph.add("Transpose", [k], f"{at}/k.across", perm=(0, 1, 3, 2))
        mixed = attention(graph, at, q, k, parts[2], n.heads, h, unseen or None)
        middle = graph.add(
            "Add", [rows, self._linear(mixed, f"{at}/o", f"{source}attn.proj")], f"{at}/middle"
        )
        read = self._norm(middle, f"{at}/norm2", f"{source}norm2")
        names = {part: source + name for part, name in n.ffn_names.items()}
        wide = self._linear(read, f"{at}/up", names["up"])
        if n.newer:
            gate = self._linear(read, f"{at}/gate", names["gate"])
            share = graph.add("Sigmoid", [gate], f"{at}/gate.share")
            wide = graph.add(
                "Mul", [graph.add("Mul", [gate, share], f"{at}/gate.active"), wide], f"{at}/wide"
            )
        else:
            wide = activated(graph, wide, f"{at}/wide", n.activation)
        return graph.add("Add", [middle, self._linear(wide, f"{at}/down", names["down"])], f"{at}/end")

    def _turned(self, rows: str, at: str, cos: str, sin: str) -> str:
        """(pictures, heads, patches, size), halves of a head turned against each other."""
        graph, half = self._graph, self._n.hidden // self._n.heads // 2
        bounds = [graph.numbers(f"/place/{each}.on", [each]) for each in (0, half, 2 * half)]
        axis = graph.numbers("/place/axis.3", [3])
        one, two = (
            graph.add("Slice", [rows, bounds[part], bounds[part + 1], axis], f"{at}.half.{part}")
            for part in range(2)
        )
        made = []
        for name, operator, (first, second) in (("a", "Sub", (one, two)), ("b", "Add", (two, one))):
            factors = (
                graph.add("Mul", [first, cos], f"{at}.{name}.cos"),
                graph.add("Mul", [second, sin], f"{at}.{name}.sin"),
            )
            made.append(graph.add(operator, list(factors), f"{at}.{name}"))
        return graph.add("Concat", made, f"{at}.placed", axis=-1)

    def _merged(self, rows: str) -> str:
        """Each square of patches as one row of the decoder."""
        graph, n, at = self._graph, self._n, "/projector"
        read = self._norm(rows, f"{at}/norm", "merger.ln_q")
        shape = graph.numbers("/shape/merged", [0, -1, n.hidden * n.merge**2])
        merged = graph.add("Reshape", [read, shape], f"{at}/merged")
        wide = activated(graph, self._linear(merged, f"{at}/first", "merger.mlp.0"), f"{at}/wide", "gelu")
        return self._linear(wide, f"{at}/second", "merger.mlp.2")

    def _linear(self, rows: str, name: str, tensor: str) -> str:
        weight, bias = (self._weights(f"{tensor}.{kind}") for kind in ("weight", "bias"))
        return linear(self._graph, rows, name, weight, bias)

    def _norm(self, rows: str, at: str, tensor: str) -> str:
        graph = self._graph
        weight = graph.weight(f"{at}.weight", self._weights(f"{tensor}.weight"))
        if not self._n.newer:
            bias = graph.weight(f"{at}.bias", self._weights(f"{tensor}.bias"))
            return graph.add("LayerNormalization", [rows, weight, bias], at, axis=-1, epsilon=EPSILON)
        over = graph.numbers("/place/last.on", [-1])
        squares = graph.add("Mul", [rows, rows], f"{at}.squares")
        mean = graph.add("ReduceMean", [squares, over], f"{at}.mean", keepdims=1)
        least = graph.constant("/scale/epsilon", np.array(EPSILON, np.float32))
        root = graph.add("Sqrt", [graph.add("Add", [mean, least], f"{at}.above")], f"{at}.root")
        return graph.add("Mul", [graph.add("Div", [rows, root], f"{at}.normed"), weight], at)
