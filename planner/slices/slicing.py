"""How a unit of a decoder is cut into slices that several peers compute side by side.

Nothing but the unit's graph says where: a Linear whose input can be computed a part of its columns at a time (the heads
of an Attention, the rows of the Linear before it) is cut by columns, and what each peer makes of its part adds up to
the whole; of Experts each peer has some. As Megatron-LM cuts a block (Shoeybi et al., 2019), found instead of declared.

    in.0 ─▶ replicated ─▶ Linear by rows ─▶ heads, activations ─▶ Linear by columns ─▶ partial sums ─▶ join ─▶ out.0
            (norms)       or Experts, each peer its own                                (out.N, added)   (norms after)

What is added to a partial sum, such as the residual and biases, is in the slice of the first peer alone, so that all
slices add up to the value that the whole unit has there. Where something that is no sum follows, such as a norm, it is
the graph of the join: in.0 is what the unit takes, in.1, … are the sums. A head is cut by rows of the vocabulary; its
slices stand behind one another.

Graphs in, graphs out; reads no weights. `Cut` says which rows and columns of a stored tensor a slice has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

from planner.errors import CorruptStore
from planner.model.checked_fields import StoredTensor
from planner.model.graph_manifest import KvState
from planner.model.lowering import EXPERT_PARTS, SHOAL, VERSIONS, kernel_head_size
from planner.model.onnx_graph import IR_VERSION, MICROSOFT
from planner.model.units import BLOCK

Channels = tuple[
    tuple[int, int], ...
]  # ranges [first, stop) of the last axis, ascending, apart from one another

SINGLE: Final = frozenset(  # of one input, each value by itself
    (
        (MICROSOFT, "QuickGelu"),
        *(("", name) for name in ("Gelu", "Relu", "Sigmoid", "Tanh", "Neg", "Identity")),
    )
)
PAIRS: Final = frozenset(("Add", "Sub", "Mul", "Div", "Min", "Max"))  # of values that stand at the same place
NORMS: Final = frozenset(("SimplifiedLayerNormalization", "LayerNormalization"))
HEADS_APART: Final = (0, 0, -1)  # and the size of a head: what Reshape is given before a norm of each head
JOINED: Final = "out.0"
BIAS: Final = 4  # the input of an Attention that is added to scores, of all its heads


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of the stored tensor `source` that a slice has as its tensor `name`: those rows (the first axis), and
    those columns, in values of the matrix; None: all.
    """

    name: str
    source: str
    rows: Channels | None = None
    columns: Channels | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """What one peer computes of a unit. `graph`: as that of a unit, from in.0 to out.0, … `kv`: what it keeps."""

    graph: bytes
    cuts: tuple[Cut, ...]
    kv: tuple[KvState, ...]
    outputs: tuple[int, ...]  # by output: which of the unit's partial sums it is a part of


@dataclass(frozen=True, slots=True)
class Join:
    """What becomes of sums. `graph`: from in.0, what the unit takes, and in.1, …, the sums, to out.0. `tensors`: of the
    unit, those that it names.
    """

    graph: bytes
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sliced:
    """A unit in slices, by peer; None for a peer that has nothing of it. `sums`: how many values the slices make parts
    of. `combine`: parts are added in the order of peers, or stand behind one another along the last axis. `join`: what
    the sums become, None where the only one is what the unit makes. `widths`: of parts that stand behind one another,
    by peer.
    """

    slices: tuple[Slice | None, ...]
    combine: Literal["add", "concat"]
    sums: int
    join: Join | None
    widths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Grains:
    """One place where a unit can be cut. `count`: into how many pieces at most, each `width` values of the input of a
    Linear, or one expert (`kind`).
    """

    kind: Literal["heads", "features", "experts", "vocabulary"]
    node: int
    count: int
    width: int
    columns: int  # of all pieces together; the last may be narrower

    def piece(self, first: int, stop: int) -> Channels:
        """The columns of pieces [first, stop); () for none."""
        return ((first * self.width, min(stop * self.width, self.columns)),) if first < stop else ()


@dataclass(frozen=True, slots=True)
class UnitParts:
    """What slicing reads of a unit: its graph, its tensors, what it keeps for a session."""

    name: str
    model: ModelProto
    tensors: Mapping[str, StoredTensor]
    kv: tuple[KvState, ...]


class NotSliced(Exception):
    """A unit that cannot be cut as asked; the message says why."""


def grains_of(unit: UnitParts) -> tuple[Grains, ...]:
    """Where `unit` can be cut, in the order of its nodes; () where it cannot."""
    return tuple(_Reading(unit).grains)


def sliced(unit: UnitParts, shares: Sequence[float]) -> Sliced:
    """`unit` in as many slices as there are `shares`, each about that large in relation to the others. The first has a
    part of everything that is cut. Raises NotSliced where nothing can be cut, ValueError for shares of nothing.
    """
    if not shares or any(not 0 <= share < math.inf for share in shares) or shares[0] <= 0:
        raise ValueError(f"shares of at least 0, the first above it, expected, got {list(shares)}")
    reading = _Reading(unit)
    if not reading.grains:
        raise NotSliced(f"unit {unit.name}: no product whose input comes in parts")
    pieces = {each.node: _divided(each.count, shares) for each in reading.grains}
    if reading.grains[0].kind == "vocabulary":
        (only,) = reading.grains
        slices = tuple(
            _Writing(reading, peer, {}, {JOINED: only.piece(*found)}).finish()
            if found[0] < found[1]
            else None
            for peer, found in enumerate(pieces[only.node])
        )
        widths = tuple(stop - first for first, stop in pieces[only.node])
        return Sliced(slices, "concat", 1, None, widths)
    made = []
    for peer in range(len(shares)):
        own = {each.node: (each, pieces[each.node][peer]) for each in reading.grains}
        made.append(_Writing(reading, peer, own, {}).finish())
    join = None if reading.frontier == (JOINED,) else _join(reading)
    return Sliced(tuple(made), "add", len(reading.frontier), join)


def _divided(count: int, shares: Sequence[float]) -> list[tuple[int, int]]:
    """[first, stop) of `count` pieces for each share, by largest remainders; the first gets at least one."""
    total = sum(shares)
    exact = [count * share / total for share in shares]
    found = [int(each) for each in exact]
    order = sorted(range(len(shares)), key=lambda peer: (found[peer] - exact[peer], peer))
    for peer in order[: count - sum(found)]:
        found[peer] += 1
    if not found[0]:
        found[max(range(len(found)), key=lambda peer: found[peer])] -= 1
        found[0] = 1
    ends = [sum(found[: peer + 1]) for peer in range(len(found))]
    return [(stop - own, stop) for own, stop in zip(found, ends, strict=True)]


# --- reading a unit ----------------------------------------------------------------------------------------


class _Reading:
    """What follows from the graph of a unit: widths, where it can be cut, which values are partial sums then."""

    def __init__(self, unit: UnitParts) -> None:
        self.unit = unit
        self.nodes: Sequence[NodeProto] = unit.model.graph.node
        self.constants: dict[str, npt.NDArray[Any]] = {
            each.name: onnx.numpy_helper.to_array(each) for each in unit.model.graph.initializer
        }
        self.makers = {name: place for place, node in enumerate(self.nodes) for name in node.output if name}
        self.widths: dict[str, int] = {}
        self.inner: dict[str, int] = {}  # of values with an axis of heads: how wide a head is
        self.partial: set[str] = set()
        self.grains: list[Grains] = []
        self._after: set[str] = set()  # made of whole sums: not a slice's business
        for node in self.nodes:
            self._measure(node)
        if (head := self._vocabulary()) is not None:
            self.grains = [head]
            self.frontier: tuple[str, ...] = (JOINED,)
            return
        for place, node in enumerate(self.nodes):
            self._look(place, node)
        used = {name for node in self.nodes if self._after & set(node.output) for name in node.input}
        self.frontier = tuple(
            name
            for node in self.nodes
            for name in node.output
            if name in self.partial and (name in used or name == JOINED)
        )

    def facts(self, node: NodeProto) -> dict[str, Any]:
        """The attributes of a node."""
        return {each.name: helper.get_attribute_value(each) for each in node.attribute}

    def weight(self, node: NodeProto) -> str:
        """The name of the matrix of a Linear, or of the Experts."""
        name: bytes = self.facts(node)["weight"]
        return name.decode()

    def is_fixed(self, name: str) -> bool:
        """Whether a value is a constant or a stored tensor."""
        return name in self.constants or name in self.unit.tensors

    def fixed_width(self, name: str) -> int:
        """The last axis of a constant or a stored tensor; 1 for a single number."""
        shape = self.constants[name].shape if name in self.constants else self.unit.tensors[name].shape
        return shape[-1] if shape else 1

    def sizes(self, node: NodeProto) -> list[int] | None:
        """How wide the outputs of a Split along the last axis are; None where that is not what it is."""
        if self.facts(node).get("axis") != -1 or len(node.input) != 2 or node.input[1] not in self.constants:
            return None
        return [int(size) for size in self.constants[node.input[1]]]

    def form(self, node: NodeProto) -> str:
        """How the matrix of a Linear is stored: w, q8 or q4."""
        weight = self.weight(node)
        return next((form for form in ("w", "q8", "q4") if f"{weight}.{form}" in self.unit.tensors), "w")

    def width(self, name: str) -> int:
        """The last axis of a value, all heads of it together; 0 where it is not known."""
        return self.fixed_width(name) if self.is_fixed(name) else self.widths.get(name, 0)

    def _measure(self, node: NodeProto) -> None:
        facts, first = self.facts(node), node.input[0] if node.input else ""
        kind = (node.domain, node.op_type)
        if kind == (SHOAL, "Linear"):
            self.widths[node.output[0]] = facts["rows"]
        elif kind == (SHOAL, "Attention"):
            self.widths[node.output[0]] = facts["heads"] * facts["head_size"]
        elif kind == (SHOAL, "Experts"):
            self.widths[node.output[0]] = facts["columns"]
        elif kind == ("", "Split") and (sizes := self.sizes(node)) is not None:
            self.widths.update(zip(node.output, sizes, strict=True))
        elif kind in SINGLE or node.op_type in NORMS:
            self.widths[node.output[0]] = self.width(first)
            if first in self.inner:
                self.inner[node.output[0]] = self.inner[first]
        elif not node.domain and node.op_type in PAIRS:
            self.widths[node.output[0]] = max(map(self.width, node.input))
        elif kind == ("", "Reshape") and node.input[1] in self.constants:
            shape = tuple(int(size) for size in self.constants[node.input[1]])
            if shape[:-1] == HEADS_APART and shape[-1] > 0:
                self.inner[node.output[0]] = shape[-1]
                self.widths[node.output[0]] = self.width(first)
            elif shape == HEADS_APART:
                self.widths[node.output[0]] = self.width(first)

    def grain(self, name: str) -> int | None:
        """In pieces how wide a value can be computed apart; None where it is not made by a Linear that is cut."""
        place = self.makers.get(name)
        if place is None or name in self.partial or name in self._after:
            return None
        node = self.nodes[place]
        kind, facts = (node.domain, node.op_type), self.facts(node)
        if kind == (SHOAL, "Linear"):
            return 1
        if kind == (SHOAL, "Attention"):
            if len(node.input) > BIAS and node.input[BIAS]:
                return None
            alone = facts["kv_heads"] == 1  # its keys and values are made at every peer
            apart = len(node.input) > 2 and node.input[2] and not alone
            heads = 1 if alone else facts["heads"] // facts["kv_heads"]
            return None if self.grain(node.input[2 if apart else 0]) is None else heads * facts["head_size"]
        if kind == ("", "Split"):
            return None if self.sizes(node) is None else self.grain(node.input[0])
        if kind in SINGLE:
            return self.grain(node.input[0])
        if not node.domain and node.op_type in PAIRS:
            whole = [each for each in node.input if not self.is_fixed(each) and self.width(each) > 1]
            found = [self.grain(each) for each in whole]
            known = [each for each in found if each is not None]
            return math.lcm(*known) if known and len(known) == len(found) else None
        if kind == ("", "Reshape") and name in self.widths:
            found_inside = self.grain(node.input[0])
            return None if found_inside is None else math.lcm(found_inside, self.inner.get(name, 1))
        if node.op_type in NORMS and node.input[0] in self.inner:
            return self.grain(node.input[0])
        return None

    def _look(self, place: int, node: NodeProto) -> None:
        """Whether a node is cut, or what it makes of partial sums is one, too."""
        made, facts = node.output[0], self.facts(node)
        sums = [name for name in node.input if name in self.partial]
        if self._after & set(node.input):
            self._after.update(node.output)
        elif (node.domain, node.op_type) == (SHOAL, "Experts"):
            if {*node.input[:2], *node.input[3:]} & self.partial:
                self._after.add(made)
            elif facts["count"] > 1:
                self.grains.append(Grains("experts", place, facts["count"], 1, facts["count"]))
                self.partial.add(made)
            elif sums:
                self._after.add(made)
        elif (node.domain, node.op_type) == (SHOAL, "Linear") and not sums:
            grain = self.grain(node.input[0])
            if grain is not None:
                width = BLOCK if grain == 1 and self.form(node) != "w" else grain
                columns = facts["columns"]
                kind: Literal["heads", "features"] = "features" if grain == 1 else "heads"
                if grain == 1 or not columns % width:
                    self.grains.append(Grains(kind, place, -(-columns // width), width, columns))
                    self.partial.add(made)
        elif sums:
            adds = not node.domain and node.op_type in ("Add", "Sub")
            scales = not node.domain and (
                (node.op_type == "Mul" and len(sums) == 1)
                or (node.op_type == "Div" and sums == [node.input[0]])
            )
            (self.partial if adds or scales else self._after).update(node.output)

    def _vocabulary(self) -> Grains | None:
        """The Linear behind which nothing but single logits are looked at, where a unit ends with one."""
        name = JOINED
        while (place := self.makers.get(name)) is not None:
            node = self.nodes[place]
            if (node.domain, node.op_type) == (SHOAL, "Linear"):
                last = self.grain(node.input[0]) is None and not self.unit.kv
                rows = self.facts(node)["rows"]
                return Grains("vocabulary", place, rows, 1, rows) if last else None
            varying = [each for each in node.input if not self.is_fixed(each)]
            if node.domain or node.op_type not in (*PAIRS, "Tanh", "Neg", "Identity") or len(varying) != 1:
                return None
            (name,) = varying
        return None


# --- writing a slice ---------------------------------------------------------------------------------------


def _union(one: Channels, other: Channels) -> Channels:
    found: list[tuple[int, int]] = []
    for first, stop in sorted({*one, *other}):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((first, stop))
    return tuple(found)


def _within(channels: Channels, first: int, stop: int) -> Channels:
    """Those in [first, stop), counted from `first`."""
    cut = ((max(a, first) - first, min(b, stop) - first) for a, b in channels)
    return tuple((a, b) for a, b in cut if a < b)


def _count(channels: Channels) -> int:
    return sum(stop - first for first, stop in channels)


def _moved(channels: Channels, by: int) -> Channels:
    return tuple((first + by, stop + by) for first, stop in channels)


def _local(channels: Channels, layout: Channels) -> Channels:
    """Where `channels` stand among the values of `layout`, which has them all."""
    found, before = [], 0
    for first, stop in layout:
        found += [(a + before, b + before) for a, b in _within(channels, first, stop)]
        before += stop - first
    return _union(tuple(found), ())


@dataclass(frozen=True, slots=True)
class _Heads:
    """Heads [first, stop) of an Attention: the channels of their queries, and of the keys and of the values that they
    look at, each counted from the first of its kind.
    """

    range: tuple[int, int]
    rows: Channels
    cached: Channels
    facts: dict[str, Any]

    @property
    def packed(self) -> Channels:
        """All of these where queries, keys and values stand in one value."""
        size = self.facts["head_size"]
        queries, keys = self.facts["heads"] * size, self.facts["kv_heads"] * size
        return _union(self.rows, _union(_moved(self.cached, queries), _moved(self.cached, queries + keys)))


@dataclass(slots=True)
class _Made:
    """The graph of a slice under construction."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    cuts: dict[str, Cut] = field(default_factory=dict)
    kv: list[KvState] = field(default_factory=list)
    count: int = 0

    def new(self) -> str:
        self.count += 1
        return f"t.{self.count - 1}"

    def add(
        self, operator: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **more: Any
    ) -> list[str]:
        names = [self.new() for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **more))
        return names

    def constant(self, array: npt.NDArray[Any]) -> str:
        name = f"c.{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def cut(self, cut: Cut) -> str:
        if self.cuts.setdefault(cut.name, cut) != cut:
            raise NotSliced(f"tensor {cut.name[:80]} is cut in two ways")
        return cut.name


class _Writing:
    """One peer's slice: what its outputs need is found from behind, then written from the front.

    `pieces`: by node that is cut, this peer's pieces of it. `wanted`: channels of values that are made, beside sums.
    """

    def __init__(
        self,
        reading: _Reading,
        peer: int,
        pieces: Mapping[int, tuple[Grains, tuple[int, int]]],
        wanted: Mapping[str, Channels],
    ) -> None:
        self._r = reading
        self._leads = peer == 0
        self._pieces = pieces
        self._given = wanted
        self._layout: dict[str, Channels | None] = dict(wanted)  # None: whole, or a width that is not known
        self._empty: set[str] = set()  # sums that this peer has no part of
        self._made = _Made()
        self._names = {"in.0": "in.0", "": ""}

    def finish(self) -> Slice | None:
        """None where the peer has nothing of the unit."""
        self._note_empty()
        roots = [*self._given] or [name for name in self._r.frontier if name not in self._empty]
        if not roots:
            return None
        for name in roots:
            self._layout.setdefault(name, None)
        for place in reversed(range(len(self._r.nodes))):
            node = self._r.nodes[place]
            if any(name in self._layout for name in node.output):
                self._want(place, node)
        for place, node in enumerate(self._r.nodes):
            if any(name in self._layout for name in node.output):
                self._write(place, node)
        return self._packed(roots)

    # what values are needed of which channels

    def _note_empty(self) -> None:
        """Sums to which this peer adds nothing."""
        for place, node in enumerate(self._r.nodes):
            made = node.output[0]
            if made not in self._r.partial:
                continue
            if place in self._pieces:
                _, (first, stop) = self._pieces[place]
                if first == stop:
                    self._empty.add(made)
            else:
                own = [name for name in node.input if self._adds(node, name)]
                if not own:
                    self._empty.add(made)

    def _adds(self, node: NodeProto, name: str) -> bool:
        """Whether an input of an operator on sums counts at this peer."""
        if name in self._empty:
            return False
        if name in self._r.partial:
            return True
        return node.op_type in ("Add", "Sub") and self._leads

    def _need(self, name: str, channels: Channels | None) -> None:
        if not name or self._r.is_fixed(name) or name == "in.0":
            return
        width = self._r.width(name)
        whole: Channels | None = ((0, width),) if width else None
        channels = channels or whole
        if name in self._layout and name not in self._given:
            before = self._layout[name]
            channels = None if before is None or channels is None else _union(before, channels)
        self._layout[name] = channels

    def _want(self, place: int, node: NodeProto) -> None:
        """Notes what the inputs of a node must be, now that all uses of its outputs are known."""
        r, made = self._r, node.output[0]
        if made in r.partial and place not in self._pieces:
            own = [name for name in node.input if self._adds(node, name)]
            scaling = node.op_type in ("Mul", "Div")
            for name in node.input if scaling else own:
                self._need(name, None)
            return
        kind, channels = (node.domain, node.op_type), self._layout.get(made)
        if place in self._pieces:
            grains, (first, stop) = self._pieces[place]
            self._need(node.input[0], grains.piece(first, stop) if grains.kind != "experts" else None)
            if grains.kind == "experts":
                self._need(node.input[1], None)
                base = node.input[2]
                if base in r.partial or self._leads:
                    self._need(base, None)
            return
        if kind == ("", "Split") and (sizes := r.sizes(node)) is not None and r.width(node.input[0]):
            union: Channels = ()
            for at, name in enumerate(node.output):
                start = sum(sizes[:at])
                union = _union(union, _moved(self._layout.get(name) or (), start))
            self._need(node.input[0], union)
        elif kind == (SHOAL, "Attention"):
            self._want_heads(node, channels)
        elif kind in SINGLE or (kind == ("", "Reshape") and made in r.widths):
            self._need(node.input[0], channels)
        elif not node.domain and node.op_type in PAIRS:
            for name in node.input:
                self._need(name, channels if r.width(name) == r.width(made) else None)
        elif node.op_type in NORMS and node.input[0] in r.inner:
            self._need(node.input[0], channels)
        else:
            if node.op_type in NORMS or kind not in ((SHOAL, "Linear"),):
                self._layout.update((name, self._whole(name)) for name in node.output if name in self._layout)
            for name in node.input:
                self._need(name, None)

    def _whole(self, name: str) -> Channels | None:
        width = self._r.width(name)
        return ((0, width),) if width else None

    def _heads(self, node: NodeProto, channels: Channels | None) -> _Heads:
        """Of an Attention of which `channels` are wanted."""
        facts = self._r.facts(node)
        size, alone = facts["head_size"], facts["kv_heads"] == 1
        group = 1 if alone else facts["heads"] // facts["kv_heads"]
        (first, stop), *more = channels or ((0, facts["heads"] * size),)
        if more or first % (group * size) or stop % (group * size):
            raise NotSliced(f"unit {self._r.unit.name}: whole groups of heads expected")
        cached = ((0, size),) if alone else ((first // group, stop // group),)
        return _Heads((first // size, stop // size), ((first, stop),), cached, facts)

    def _want_heads(self, node: NodeProto, channels: Channels | None) -> None:
        heads = self._heads(node, channels)
        if len(node.input) > 2 and node.input[2]:
            for name, part in zip(node.input[:3], (heads.rows, heads.cached, heads.cached), strict=True):
                self._need(name, part)
        else:
            self._need(node.input[0], heads.packed)

    # writing

    def _take(self, name: str, channels: Channels | None) -> str:
        """A value with those channels; None: as a whole."""
        r = self._r
        if name in r.constants:
            array = r.constants[name]
            if channels and array.ndim and array.shape[-1] > 1:
                array = np.concatenate([array[..., first:stop] for first, stop in channels], axis=-1)
            return self._made.constant(array)
        if name in r.unit.tensors:
            tensor = r.unit.tensors[name]
            rows = channels if channels and tensor.shape[-1] > 1 and len(tensor.shape) == 1 else None
            if rows == ((0, tensor.shape[0]),):
                rows = None
            return self._made.cut(Cut(name, name, rows))
        held = self._layout.get(name)
        width = r.width(name)
        wanted = channels or (((0, width),) if width else None)
        held = held or (((0, width),) if width else None)
        if name == "in.0" or wanted is None or held == wanted:
            return self._names[name]
        if held is None:
            raise NotSliced(f"unit {r.unit.name}: a value whose width is not known")
        parts = []
        for first, stop in _local(wanted, held):
            bounds = [self._made.constant(np.array([each], np.int64)) for each in (first, stop, -1)]
            parts += self._made.add("Slice", [self._names[name], *bounds])
        return parts[0] if len(parts) == 1 else self._made.add("Concat", parts, axis=-1)[0]

    def _write(self, place: int, node: NodeProto) -> None:
        r, made, kind = self._r, node.output[0], (node.domain, node.op_type)
        channels = self._layout.get(made)
        if made in r.partial:
            if made in self._empty:
                return
            self._names[made] = self._sum(place, node)
        elif kind == ("", "Split") and (sizes := r.sizes(node)) is not None and r.width(node.input[0]):
            self._split(node, sizes)
        elif kind == (SHOAL, "Linear"):
            self._names[made] = self._linear(node, channels)
        elif kind == (SHOAL, "Attention"):
            self._names[made] = self._attention(node, channels)
        elif kind == ("", "Reshape") and made in r.widths:
            shape = self._take(node.input[1], None)
            (self._names[made],) = self._made.add("Reshape", [self._take(node.input[0], channels), shape])
        elif not node.domain and node.op_type in PAIRS:
            inputs = [
                self._take(name, channels if r.width(name) == r.width(made) else None) for name in node.input
            ]
            (self._names[made],) = self._made.add(node.op_type, inputs)
        elif kind in SINGLE or (node.op_type in NORMS and node.input[0] in r.inner):
            inputs = [
                self._take(node.input[0], channels),
                *(self._take(name, None) for name in node.input[1:]),
            ]
            self._plain(node, inputs)
        else:
            self._plain(node, [self._take(name, None) if name else "" for name in node.input])

    def _plain(self, node: NodeProto, inputs: Sequence[str]) -> None:
        names = self._made.add(node.op_type, inputs, len(node.output), node.domain)
        self._made.nodes[-1].attribute.extend(node.attribute)
        self._names.update(zip(node.output, names, strict=True))

    def _split(self, node: NodeProto, sizes: Sequence[int]) -> None:
        union = self._layout.get(node.input[0]) or ((0, sum(sizes)),)
        held = self._take(node.input[0], union)
        kept = []
        for at, name in enumerate(node.output):
            start = sum(sizes[:at])
            part = _within(union, start, start + sizes[at])
            if part:
                self._layout[name] = part
                kept.append((name, _count(part)))
        if len(kept) == 1:
            self._names[kept[0][0]] = held
            return
        count = self._made.constant(np.array([size for _, size in kept], np.int64))
        names = self._made.add("Split", [held, count], len(kept), axis=-1)
        self._names.update(zip((name for name, _ in kept), names, strict=True))

    def _linear(self, node: NodeProto, rows: Channels | None) -> str:
        """A Linear of which only some rows are computed."""
        facts, weight = self._r.facts(node), self._r.weight(node)
        if rows == ((0, facts["rows"]),):
            rows = None
        inputs = [self._take(node.input[0], None)]
        if len(node.input) > 1 and node.input[1]:
            inputs.append(self._made.cut(Cut(node.input[1], node.input[1], rows)))
        self._matrix(weight, weight, rows, None)
        height = facts["rows"] if rows is None else _count(rows)
        (made,) = self._made.add(
            "Linear", inputs, domain=SHOAL, weight=weight, rows=height, columns=facts["columns"]
        )
        return made

    def _matrix(self, name: str, source: str, rows: Channels | None, columns: Channels | None) -> None:
        for tensor in self._r.unit.tensors:
            if tensor.rpartition(".")[0] == source and tensor.rpartition(".")[2] != "bias":
                form = tensor.rpartition(".")[2]
                self._made.cut(Cut(f"{name}.{form}", tensor, rows, columns))

    def _attention(self, node: NodeProto, channels: Channels | None) -> str:
        heads = self._heads(node, channels)
        if len(node.input) > 2 and node.input[2]:
            parts = (heads.rows, heads.cached, heads.cached)
            inputs = [self._take(name, part) for name, part in zip(node.input[:3], parts, strict=True)]
        else:
            inputs = [self._take(node.input[0], heads.packed)]
        if len(node.input) > 3:
            inputs += [*[""] * (3 - len(inputs)), self._take(node.input[3], (heads.range,))]
        state, size = self._r.unit.kv[heads.facts["state"]], heads.facts["head_size"]
        kept = _count(heads.cached) // size
        own = {"heads": heads.range[1] - heads.range[0], "kv_heads": kept, "state": len(self._made.kv)}
        self._made.kv.append(KvState(kept, kernel_head_size(size), state.window))
        return self._made.add("Attention", inputs, domain=SHOAL, **{**heads.facts, **own})[0]

    def _sum(self, place: int, node: NodeProto) -> str:
        """A partial sum, of which this peer has a part."""
        r = self._r
        if place in self._pieces:
            grains, (first, stop) = self._pieces[place]
            return (
                self._experts(node, first, stop)
                if grains.kind == "experts"
                else self._columns(node, grains, first, stop)
            )
        own = [name for name in node.input if self._adds(node, name)]
        if node.op_type in ("Mul", "Div"):
            return self._made.add(node.op_type, [self._take(name, None) for name in node.input])[0]
        taken = [self._take(name, None) for name in own]
        if len(taken) == 1:
            negative = node.op_type == "Sub" and own[0] == node.input[1]
            return self._made.add("Neg", taken)[0] if negative else taken[0]
        if len(node.input) == 2 and node.input[0] == node.input[1]:
            raise NotSliced(f"unit {r.unit.name}: a sum of a value with itself")
        return self._made.add(node.op_type, taken)[0]

    def _columns(self, node: NodeProto, grains: Grains, first: int, stop: int) -> str:
        """A Linear of which only some columns are computed. Its bias is added once."""
        facts, weight = self._r.facts(node), self._r.weight(node)
        ((begins, ends),) = grains.piece(first, stop)
        inputs = [self._take(node.input[0], ((begins, ends),))]
        if self._r.form(node) != "w":  # whole blocks are stored: what another peer computes of them is 0 here
            start, end = begins // BLOCK * BLOCK, min(-(-ends // BLOCK) * BLOCK, facts["columns"])
            if (start, end) != (begins, ends):
                pads = self._made.constant(np.array([begins - start, end - ends], np.int64))
                axes = self._made.constant(np.array([-1], np.int64))
                inputs = self._made.add("Pad", [inputs[0], pads, "", axes])
            begins, ends = start, end
        if len(node.input) > 1 and node.input[1] and self._leads:
            inputs.append(self._made.cut(Cut(node.input[1], node.input[1])))
        width = ends - begins
        columns = None if width == facts["columns"] else ((begins, ends),)
        self._matrix(weight, weight, None, columns)
        (made,) = self._made.add(
            "Linear", inputs, domain=SHOAL, weight=weight, rows=facts["rows"], columns=width
        )
        return made

    def _experts(self, node: NodeProto, first: int, stop: int) -> str:
        """Some of the experts; what they add to is added once."""
        facts, weight = self._r.facts(node), self._r.weight(node)
        base = node.input[2]
        source = self._take(node.input[0], None)
        shares = self._take(node.input[1], None)
        if (first, stop) != (0, facts["count"]):
            bounds = [self._made.constant(np.array([each], np.int64)) for each in (first, stop, -1)]
            (shares,) = self._made.add("Slice", [shares, *bounds])
        counts = base not in self._empty if base in self._r.partial else self._leads
        if counts:
            held = self._take(base, None)
        else:
            (shape,) = self._made.add("Shape", [source])
            (held,) = self._made.add("ConstantOfShape", [shape])
        for expert in range(first, stop):
            for part in EXPERT_PARTS:
                self._matrix(f"{weight}.{expert - first}.{part}", f"{weight}.{expert}.{part}", None, None)
                bias = f"{weight}.{expert}.{part}.bias"
                if bias in self._r.unit.tensors:
                    self._made.cut(Cut(f"{weight}.{expert - first}.{part}.bias", bias))
        limits = [self._take(name, None) for name in node.input[3:]]
        facts["count"] = stop - first
        return self._made.add("Experts", [source, shares, held, *limits], domain=SHOAL, **facts)[0]

    def _packed(self, roots: Sequence[str]) -> Slice:
        names = [self._names[name] for name in roots]
        made = self._made
        if len(set(names)) != len(names) or "in.0" in names:
            raise NotSliced(f"unit {self._r.unit.name}: sums that are the same value")
        graph = _encoded(made.nodes, made.constants, ["in.0"], names)
        outputs = tuple(self._r.frontier.index(name) for name in roots)
        return Slice(graph, tuple(made.cuts.values()), tuple(made.kv), outputs)


def _encoded(
    nodes: Sequence[NodeProto],
    constants: Sequence[TensorProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> bytes:
    """A graph as that of a unit; `outputs` become out.0, …"""
    names = {name: f"out.{at}" for at, name in enumerate(outputs)}
    model = ModelProto(ir_version=IR_VERSION)
    model.graph.name = "unit"
    for name in inputs:
        model.graph.input.add(name=name)
    for name in names.values():
        model.graph.output.add(name=name)
    model.graph.initializer.extend(constants)
    for node in nodes:
        kept = model.graph.node.add()
        kept.CopyFrom(node)
        kept.input[:] = [names.get(name, name) for name in node.input]
        kept.output[:] = [names.get(name, name) for name in node.output]
    for domain in sorted({node.domain for node in nodes} | {""}):
        if domain not in VERSIONS:
            raise CorruptStore(f"operators of {domain[:80]!r} are not known")
        model.opset_import.add(domain=domain, version=VERSIONS[domain])
    encoded: bytes = model.SerializeToString(deterministic=True)
    return encoded


def _join(reading: _Reading) -> Join:
    """What becomes of the sums: all nodes behind them, and those in front that these need."""
    names = {name: f"in.{at + 1}" for at, name in enumerate(reading.frontier)}
    needed, kept = {JOINED}, []
    for node in reversed(reading.nodes):
        if needed & set(node.output) and not names.keys() & set(node.output):
            kept.append(node)
            needed.update(name for name in node.input if name not in names)
    nodes = []
    for node in reversed(kept):
        copied = NodeProto()
        copied.CopyFrom(node)
        copied.input[:] = [names.get(name, name) for name in node.input]
        nodes.append(copied)
    constants = [each for each in reading.unit.model.graph.initializer if each.name in needed]
    graph = _encoded(nodes, constants, ["in.0", *names.values()], [JOINED])
    return Join(graph, tuple(name for name in reading.unit.tensors if name in needed))
