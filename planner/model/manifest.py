"""What a model that answers in words is: a chain of units (format shoal-2 with a `decoder`), and its checked JSON form.

The JSON is that of every graph of units (planner.model.graph_manifest); `decoder` says the rest: tokens, templates,
rotary tables, how large rows are. Units stand in a chain: the first looks tokens up, the last makes logits, and float32
rows of `hidden` values cross every border. A manifest comes from a disk or a stranger, so decoding checks every type,
limit, offset and name before anything uses it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from planner.errors import CorruptStore
from planner.model.blob_ref import BlobRef
from planner.model.checked_fields import (
    DTYPE_BYTES,
    MAX_TEMPLATE_CHARS,
    DType,
    Fields,
    StoredTensor,
    blob_document,
    blob_of,
    canonical,
    opened,
    sampling_document,
    sampling_of,
)
from planner.model.graph_manifest import (
    FORMAT,
    MAX_POSITIONS,
    GraphManifest,
    GraphUnit,
    KvState,
    Term,
    Value,
    ValueType,
    Weight,
    amount,
    graph_document,
    graph_manifest_of,
)
from planner.model.kv_window import KvWindow, window_of
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.source_text import SourceText, source_text_document, source_text_of
from planner.model.speech import Speech, speech_document, speech_of
from planner.types import Unit, UnitKind, WeightFormat

MAX_HIDDEN: Final = 1 << 17
MAX_VOCAB: Final = 1 << 24
MAX_CONTEXT: Final = 1 << 24
MAX_SCRATCH: Final = 1 << 22
MAX_TABLES: Final = 16
MAX_FREQUENCIES: Final = 512
MAX_GRAPHS_BYTES: Final = 16 << 20  # of all different graphs: every peer fetches them, whatever it holds
MAX_UNIT_NAME_CHARS: Final = 64
AGAIN: Final = "import the model again with this version"
MAX_AROUND: Final = 64  # tokens before and behind the rows of a picture
HASH_DIGITS: Final = 64
MOST_AXES: Final = 3  # of a token's place: the picture of a film, its row, its column
SHIFT_COLUMNS: Final = 4  # at the end of rows whose places have axes: one for each, and a 0 that fills up
SHIFT_STEP: Final = 2.0**-14  # what one place is in these columns, so that they weigh nothing beside the rows
MAX_SQUARE: Final = 1 << 10
TOKENS: Final = "tokens"
LOGITS: Final = "logits"

_VALUE_TYPES: Final[Mapping[DType, ValueType]] = {"f32": "float32", "f16": "float16", "u8": "uint8"}
_DTYPES: Final[Mapping[ValueType, DType]] = {value: dtype for dtype, value in _VALUE_TYPES.items()}


@dataclass(frozen=True, slots=True)
class KvPair:
    """A pair of key and value arrays that a unit keeps for each session: `heads` rows of `head_size` values for each
    token. `number` counts the pairs of a model. `window`: only so many last tokens are looked at; None: all. `shared`:
    values are the keys, and there is one array.
    """

    number: int
    heads: int
    head_size: int
    window: int | None = None
    shared: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """How the graph and the wire call the arrays."""
        key = f"key.{self.number}"
        return (key,) if self.shared else (key, f"value.{self.number}")

    @property
    def outputs(self) -> tuple[str, str]:
        """How the graph calls keys and values behind a step; shared ones lie in one array."""
        key = f"key.{self.number}"
        return f"{key}.out", f"{key}.value" if self.shared else f"value.{self.number}.out"

    @property
    def bytes_per_token(self) -> int:
        """What a token takes in its arrays, float32."""
        return len(self.names) * self.heads * self.head_size * DTYPE_BYTES["f32"]


@dataclass(frozen=True, slots=True)
class ManifestUnit:
    """One unit of a chain: its graph, and weights in one blob. `resident_bytes`: what its weights occupy once loaded on
    a CPU.
    """

    name: str
    kind: UnitKind
    graph: BlobRef
    blob: BlobRef
    tensors: tuple[StoredTensor, ...]
    kv: tuple[KvPair, ...]
    params: int
    flops_per_token: int
    out_bytes_per_token: int
    resident_bytes: int

    @property
    def state(self) -> tuple[str, ...]:
        """Names of the key and value arrays that it keeps."""
        return tuple(name for pair in self.kv for name in pair.names)

    @property
    def kv_bytes_per_token(self) -> int:
        """What a token of a session takes in its key and value arrays."""
        return sum(pair.bytes_per_token for pair in self.kv)

    def kv_positions(self, window: KvWindow | None) -> int:
        """How many positions of a session its arrays have at most, in a model with this window; 0: all of them."""
        return window.capacity if window and self.kv and all(pair.window for pair in self.kv) else 0

    def tensor(self, name: str) -> StoredTensor | None:
        """Returns the tensor of that name, or None."""
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


@dataclass(frozen=True, slots=True)
class Sight:
    """How a decoder is given pictures: by rows that the model `model` (an id) makes of each, `positions` of them in
    place of the token `token`, between the tokens `before` and `behind`. `square`: pixels along a side of what one
    position shows, where pictures keep their form: `positions` is the most then; 0: all pictures have as many. `axes`:
    of the place of a token; with more than one the last SHIFT_COLUMNS numbers of a row shift it.
    """

    model: str
    token: int
    positions: int
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    square: int = 0
    axes: int = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """One model. Its id is the SHA-256 of `encode_manifest`.

    `hidden`: values of a row that crosses borders. `context`: the longest it was trained for, tokens. `scratch`: of the
    widest row of activations that a token has, values. `rotary`: by how much a position turns each pair of a head, for
    each table that units name. `sampling`: of the model's own files; None where they say nothing. `speech`: how it
    writes what is said; None where it answers questions. `sight`: how it is given pictures; None where it sees none.
    `source`: how it is given the text that it writes another one of; None where it goes on with a text.
    """

    name: str
    weights: WeightFormat
    vocab: int
    hidden: int
    context: int
    scratch: int
    rotary: tuple[tuple[float, ...], ...]
    tokenizer: BlobRef
    chat_template: str | None
    bos_token: int | None
    end_tokens: tuple[int, ...]
    add_bos: bool
    units: tuple[ManifestUnit, ...]
    sampling: SamplingDefaults | None = None
    speech: Speech | None = None
    sight: Sight | None = None
    source: SourceText | None = None

    def planner_units(self) -> tuple[Unit, ...]:
        """Returns the units as the planner counts them: bytes, floating-point operations, bytes of cache."""
        window = self.window
        return tuple(
            Unit(
                unit.name,
                unit.kind,
                unit.resident_bytes,
                unit.flops_per_token,
                unit.kv_bytes_per_token,
                unit.out_bytes_per_token,
                packed_bytes(unit),
                wide_bytes(unit),
                kv_positions=unit.kv_positions(window),
            )
            for unit in self.units
        )

    @property
    def window(self) -> KvWindow | None:
        """What sessions keep in states with a window; None where no unit has one."""
        return window_of((pair.head_size, pair.window) for unit in self.units for pair in unit.kv)

    def graphs(self) -> tuple[BlobRef, ...]:
        """The blobs of all graphs, each once, in order; a few kilobytes."""
        return _once(unit.graph for unit in self.units)

    def blobs(self, first: int, stop: int) -> tuple[BlobRef, ...]:
        """The blobs that units [first, stop) need, graphs before weights, each once, in order."""
        units = self.units[first:stop]
        return _once((*(unit.graph for unit in units), *(unit.blob for unit in units)))


def packed_bytes(unit: ManifestUnit) -> int:
    """What the unit's weights occupy in a tab with a GPU, which multiplies packed ones; an embedding lies in memory."""
    return sum(
        4 * math.prod(tensor.shape) if tensor.dtype == "f16" and unit.kind != "embed" else tensor.bytes
        for tensor in unit.tensors
    )


def wide_bytes(unit: ManifestUnit) -> int:
    """The same in a tab that unpacks every linear to float32, columns in whole blocks; an embedding stays as stored."""
    if unit.kind == "embed":
        return packed_bytes(unit)
    total = 0
    for tensor in unit.tensors:
        linear, _, form = tensor.name.rpartition(".")
        if linear and form in ("q4", "q8", "w"):
            total += 4 * math.prod(tensor.shape) * (2 if form == "q4" else 1)
        elif form not in ("scale", "zero", "rest"):
            total += tensor.bytes
    return total


def encode_manifest(manifest: Manifest) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    return canonical(
        {
            **graph_document(_graph_manifest(manifest)),
            "decoder": {
                "weights": manifest.weights,
                "vocab": manifest.vocab,
                "hidden": manifest.hidden,
                "context": manifest.context,
                "scratch": manifest.scratch,
                "rotary": [{"frequencies": list(frequencies)} for frequencies in manifest.rotary],
                "tokenizer": blob_document(manifest.tokenizer),
                "chat_template": manifest.chat_template,
                "bos_token": manifest.bos_token,
                "end_tokens": list(manifest.end_tokens),
                "add_bos": manifest.add_bos,
                **({} if manifest.sampling is None else {"sampling": sampling_document(manifest.sampling)}),
                **({} if manifest.speech is None else {"speech": speech_document(manifest.speech)}),
                **({} if manifest.sight is None else {"sight": _sight_document(manifest.sight)}),
                **({} if manifest.source is None else {"source": source_text_document(manifest.source)}),
            },
        }
    )


def decode_manifest(encoded: bytes) -> Manifest:
    """Raises CorruptStore that says which field broke which rule."""
    root = opened(encoded, FORMAT, AGAIN)
    if not root.has("decoder"):
        raise CorruptStore(f"manifest: field 'decoder' is missing: this model answers no questions; {AGAIN}")
    graph = graph_manifest_of(root)
    said = root.fields("decoder")
    vocab = said.count("vocab", MAX_VOCAB, least=1)
    hidden = said.count("hidden", MAX_HIDDEN, least=1)
    context = said.count("context", MAX_CONTEXT, least=1)
    _check_chain(graph, vocab, hidden)
    return Manifest(
        name=graph.name,
        weights=said.choice("weights", get_args(WeightFormat)),
        vocab=vocab,
        hidden=hidden,
        context=context,
        scratch=said.count("scratch", MAX_SCRATCH, least=1),
        rotary=tuple(
            table.numbers("frequencies", MAX_FREQUENCIES)
            for table in said.list_of_fields("rotary", MAX_TABLES)
        ),
        tokenizer=blob_of(said.fields("tokenizer")),
        chat_template=None
        if said.is_null("chat_template")
        else said.text("chat_template", MAX_TEMPLATE_CHARS),
        bos_token=None if said.is_null("bos_token") else said.count("bos_token", vocab - 1),
        end_tokens=said.counts("end_tokens", 64, vocab - 1),
        add_bos=said.boolean("add_bos"),
        units=_units(graph, hidden),
        sampling=sampling_of(said.fields("sampling")) if said.has("sampling") else None,
        speech=speech_of(said.fields("speech"), vocab, context) if said.has("speech") else None,
        sight=_sight_of(said.fields("sight"), vocab) if said.has("sight") else None,
        source=source_text_of(said.fields("source"), vocab, context) if said.has("source") else None,
    )


def _sight_document(sight: Sight) -> dict[str, object]:
    """As JSON has it."""
    around = {"before": list(sight.before), "behind": list(sight.behind)}
    return {
        "model": sight.model,
        "token": sight.token,
        "positions": sight.positions,
        **{name: tokens for name, tokens in around.items() if tokens},
        **({"square": sight.square} if sight.square else {}),
        **({"axes": sight.axes} if sight.axes > 1 else {}),
    }


def _sight_of(fields: Fields, vocab: int) -> Sight:
    """What `sight` of a decoder says, whose vocabulary has `vocab` tokens. Raises CorruptStore."""
    model = fields.text("model", HASH_DIGITS)
    if not re.fullmatch(rf"[0-9a-f]{{{HASH_DIGITS}}}", model):
        raise CorruptStore("manifest.decoder.sight.model: the id of a model expected")
    return Sight(
        model,
        fields.count("token", vocab - 1),
        fields.count("positions", MAX_POSITIONS, least=1),
        fields.counts("before", MAX_AROUND, vocab - 1) if fields.has("before") else (),
        fields.counts("behind", MAX_AROUND, vocab - 1) if fields.has("behind") else (),
        fields.count("square", MAX_SQUARE, least=1) if fields.has("square") else 0,
        fields.count("axes", MOST_AXES, least=MOST_AXES) if fields.has("axes") else 1,
    )


def _once(blobs: Iterable[BlobRef]) -> tuple[BlobRef, ...]:
    return tuple({blob.sha256: blob for blob in blobs}.values())


def _graph_manifest(manifest: Manifest) -> GraphManifest:
    row = Term(4.0 * manifest.hidden, ("batch", "tokens"))
    values = [Value(TOKENS, "int64", ("batch", "tokens"), (Term(8.0, ("batch", "tokens")),))]
    units: list[GraphUnit] = []
    for place, unit in enumerate(manifest.units):
        if place == len(manifest.units) - 1:
            size = Term(4.0 * manifest.vocab, ("positions",))
            made = Value(LOGITS, "float32", ("positions", manifest.vocab), (size,))
        else:
            made = Value(f"hidden.{place}", "float32", ("batch", "tokens", manifest.hidden), (row,))
        sizes = ("positions",) if unit.kind == "head" else ("batch", "tokens")
        units.append(
            GraphUnit(
                name=unit.name,
                component="decoder",
                graph=unit.graph,
                weights=(unit.blob,),
                tensors=tuple(
                    Weight(one.name, _VALUE_TYPES[one.dtype], one.shape, 0, one.offset, one.bytes)
                    for one in unit.tensors
                ),
                inputs=(values[-1].name,),
                outputs=(made.name,),
                params=unit.params,
                resident_bytes=unit.resident_bytes,
                flops=(Term(float(unit.flops_per_token), sizes),) if unit.flops_per_token else (),
                ops=(),
                state=tuple(
                    KvState(pair.heads, pair.head_size, pair.window, pair.shared) for pair in unit.kv
                ),
            )
        )
        values.append(made)
    return GraphManifest(manifest.name, (TOKENS,), (LOGITS,), {}, tuple(values), tuple(units))


def _check_chain(graph: GraphManifest, vocab: int, hidden: int) -> None:
    """Raises CorruptStore unless each unit takes what the one before it makes, from tokens to logits."""
    if len(graph.units) < 2 or graph.inputs != (TOKENS,) or graph.outputs != (LOGITS,):
        raise CorruptStore(f"manifest: two units or more, from {TOKENS} to {LOGITS}, expected")
    types = {value.name: (value.dtype, value.shape) for value in graph.values}
    if types[TOKENS] != ("int64", ("batch", "tokens")) or types[LOGITS] != ("float32", ("positions", vocab)):
        raise CorruptStore(
            f"manifest.values: {TOKENS} int64 (batch, tokens), {LOGITS} float32 (positions, {vocab}) expected"
        )
    before = TOKENS
    for place, unit in enumerate(graph.units):
        where = f"manifest.units[{place}]"
        if unit.inputs != (before,) or len(unit.outputs) != 1:
            raise CorruptStore(f"{where}: one input, {before[:80]!r}, and one output expected")
        (before,) = unit.outputs
        last = place == len(graph.units) - 1
        if not last and types[before] != ("float32", ("batch", "tokens", hidden)):
            raise CorruptStore(f"{where}: float32 (batch, tokens, {hidden}) expected of its output")
        if (before == LOGITS) != last:
            raise CorruptStore(f"{where}: {LOGITS} expected of the last unit alone")
        if unit.state and (last or not place):
            raise CorruptStore(f"{where}: no state expected of the first and the last unit")
        if not 0 < len(unit.name) <= MAX_UNIT_NAME_CHARS or "/" in unit.name:
            raise CorruptStore(f"{where}.name: up to {MAX_UNIT_NAME_CHARS} characters without / expected")
        if len(unit.weights) != 1 or not all(weight.dtype in _DTYPES for weight in unit.tensors):
            raise CorruptStore(f"{where}: one blob of weights, and tensors of {', '.join(_DTYPES)}, expected")
        if not all(weight.shape and math.prod(weight.shape) for weight in unit.tensors):
            raise CorruptStore(f"{where}: tensors with at least one value and one axis expected")
    total = sum(blob.bytes for blob in _once(unit.graph for unit in graph.units))
    if total > MAX_GRAPHS_BYTES:
        raise CorruptStore(
            f"manifest.units: graphs of at most {MAX_GRAPHS_BYTES} bytes together expected, got {total}"
        )


def _units(graph: GraphManifest, hidden: int) -> tuple[ManifestUnit, ...]:
    units: list[ManifestUnit] = []
    pairs = 0
    for place, unit in enumerate(graph.units):
        kv = tuple(
            KvPair(number, each.heads, each.head_size, each.window, each.shared)
            for number, each in enumerate(unit.state, pairs)
        )
        pairs += len(kv)
        kind = _kind(place, len(graph.units), kv)
        units.append(
            ManifestUnit(
                name=unit.name,
                kind=kind,
                graph=unit.graph,
                blob=unit.weights[0],
                tensors=tuple(
                    StoredTensor(one.name, _DTYPES[one.dtype], one.shape, one.offset, one.bytes)
                    for one in unit.tensors
                ),
                kv=kv,
                params=unit.params,
                flops_per_token=round(min(amount(unit.flops, {}), float(1 << 53))),
                out_bytes_per_token=4 if kind == "head" else 4 * hidden,
                resident_bytes=unit.resident_bytes,
            )
        )
    return tuple(units)


def _kind(place: int, units: int, kv: tuple[KvPair, ...]) -> UnitKind:
    """What the planner and measurements take a unit for."""
    if place == 0:
        return "embed"
    if place == units - 1:
        return "head"
    return "attn" if kv else "ffn"
