"""What a model of units that form a graph is (format shoal-2): units, the values between them, their checked JSON form.

A unit is an ONNX graph without weights and named tensors in blobs: one of its own, and those of tensors that it shares
with other units. Values cross borders between units by name, each made by one unit or given by who asks. Units stand in
topological order, so that units [first, stop) can be one stage; two units that need nothing of each other can run at
the same time. A manifest comes from a disk or a stranger, so decoding checks every type, limit, name and order before
anything uses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from planner.errors import CorruptStore
from planner.model.blob_ref import BlobRef
from planner.model.checked_fields import (
    MAX_BLOB_BYTES,
    MAX_COUNT,
    MAX_NAME_CHARS,
    MAX_UNITS,
    Fields,
    blob_document,
    blob_of,
    canonical,
    opened,
)
from planner.model.speech import CtcText, ctc_document, ctc_of

FORMAT: Final = "shoal-2"
MAX_RANK: Final = 16
MAX_OPSET: Final = 1 << 20
MAX_SIZE: Final = 1 << 40  # of one axis
MAX_VALUES: Final = 4 * MAX_UNITS
MAX_PORTS: Final = 256  # inputs, outputs of a model or of a unit
MAX_UNIT_TENSORS: Final = 8192
MAX_UNIT_BLOBS: Final = 64
MAX_TERMS: Final = 16
MAX_FACTORS: Final = 8
MAX_VALUE_CHARS: Final = 512  # exporters name values by their path in the source
MAX_STATES: Final = 16  # of a unit
MAX_HEADS: Final = 1024
MAX_HEAD_SIZE: Final = 1024
MAX_WINDOW: Final = 1 << 24  # tokens
ALIGNED: Final = 64
MAX_TOKENIZER_BYTES: Final = 64 << 20
MAX_TEXT_TOKENS: Final = 1 << 20  # of one text
MAX_TOKEN: Final = (1 << 31) - 1
MAX_LABELS: Final = 4096  # into which a model sorts texts
MAX_LABEL_CHARS: Final = 200
MAX_SIDE: Final = 4096  # pixels of the square that a model takes
MAX_POSITIONS: Final = 1 << 16  # of one picture in a prompt
MAX_PICTURE_GRAPH_BYTES: Final = 1 << 20
PIXEL_AXES: Final = 4  # (pictures, 3, height, width)
COLOURS: Final = 3
MAX_DIMENSIONS: Final = 1 << 16  # of an embedding
TEXT_TYPES: Final = ("int64", "int32", "float32")  # of the inputs that are made of texts

ValueType = Literal[
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "bool", "string", "complex64", "complex128", "int4", "uint4",
]  # fmt: skip
HALF_BYTES: Final[Mapping[ValueType, int]] = {
    "int4": 1, "uint4": 1, "float32": 8, "float64": 16, "float16": 4, "bfloat16": 4, "int8": 2, "uint8": 2, "int16": 4,
    "uint16": 4, "int32": 8, "uint32": 8, "int64": 16, "uint64": 16, "bool": 2, "string": 64, "complex64": 16,
    "complex128": 32,
}  # fmt: skip  # of an element, halves of a byte; a string counts as 32 bytes

Size = int | str  # of an axis: a number, or the name of a symbolic size such as "height"


@dataclass(frozen=True, slots=True)
class Term:
    """`factor` times the product of symbolic sizes; a name that stands twice is squared."""

    factor: float
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that is given, returned, or crosses a border. `bytes`: about how many, by symbolic sizes."""

    name: str
    dtype: ValueType
    shape: tuple[Size, ...]
    bytes: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of a unit at `offset` of the blob that stands at place `blob` of the unit's `weights`, little-endian and
    C-ordered; `name` is that in the unit's graph.
    """

    name: str
    dtype: ValueType
    shape: tuple[int, ...]
    blob: int
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class KvState:
    """Keys and values that a unit keeps for a session: `heads` rows of `head_size` values for each token, twice, or
    once where they are `shared`: values are the keys. `window`: only so many last tokens are looked at; None: all.
    """

    heads: int
    head_size: int
    window: int | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class GraphUnit:
    """One unit. Inputs and outputs of its graph are called in.0, in.1, … and out.0, out.1, …, in the order of
    `inputs` and `outputs`, which name values of the model; so equal graphs are equal bytes, stored once.

    `weights` are the blobs of its tensors, none where it has none. `resident_bytes`: what its weights occupy once
    loaded on a CPU. `flops`: about how many operations of a large product of matrices take as long as one run. `ops`:
    operators, as "domain:name" beyond ONNX's own domain. `state`: what it keeps for a session.
    """

    name: str
    component: str
    graph: BlobRef
    weights: tuple[BlobRef, ...]
    tensors: tuple[Weight, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: int
    resident_bytes: int
    flops: tuple[Term, ...]
    ops: tuple[str, ...]
    state: tuple[KvState, ...] = ()


@dataclass(frozen=True, slots=True)
class TextInputs:
    """How texts become all inputs of a model, each with axes (texts, tokens). `tokenizer`: a tokenizer.json; `tokens`
    is the input of token ids, `mask` that of 1 for a token and 0 for what fills up a shorter text, `types` that of 1
    for a token of the second text of a pair and 0 for all others. `longest`: tokens of a text or a pair, the marks at
    its ends included; `pad`: the token id that fills up. `vectors`: the output that is the embedding of each text,
    (texts, dimensions), where one is; `scores`: the one that says of each pair how well its second text answers the
    first, (texts, 1); `classes`: the one that says how well each of `labels` fits a text, (texts, labels).
    """

    tokenizer: BlobRef
    tokens: str
    mask: str | None
    types: str | None
    longest: int
    pad: int = 0
    vectors: str | None = None
    scores: str | None = None
    classes: str | None = None
    labels: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that texts become."""
        return tuple(name for name in (self.tokens, self.mask, self.types) if name is not None)


@dataclass(frozen=True, slots=True)
class PictureInputs:
    """How pictures become an input of a model. `graph`: an ONNX file without external data that makes `pixels`, float32
    (1, 3, side, side) or (1, 3, height, width), of `picture`, uint8 (height, width, 3); `input`: what of the model
    takes it. `rows`: the output that decoders read, (pictures, positions, hidden), where one is. `vectors`: outputs of
    one vector for each picture and for each text, `scores` (pictures, texts), where the model compares them.
    """

    graph: BlobRef
    input: str
    rows: str | None = None
    vectors: tuple[str, str] | None = None
    scores: str | None = None


@dataclass(frozen=True, slots=True)
class GraphManifest:
    """One model. Its id is the SHA-256 of `encode_graph_manifest`.

    `inputs` and `outputs` name values; an output that is an input, too, is made by no unit. `sizes` are what symbolic
    sizes were when its import tried it, for estimates. `fused`: units are computed with all optimizations of the
    engine; else with basic ones only, because joined operators would make other bits where a border lies between them.
    `opset`: the version of ONNX's own operators that all units are written in; 0: not said. `text`: how its inputs
    are made of texts, where they can be; `picture`: how one of them is made of pictures. `ctc`: what it writes
    of sound.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: Mapping[str, int]
    values: tuple[Value, ...]
    units: tuple[GraphUnit, ...]
    fused: bool = True
    opset: int = 0
    text: TextInputs | None = None
    picture: PictureInputs | None = None
    ctc: CtcText | None = None

    def value(self, name: str) -> Value:
        """The value of that name. Raises KeyError."""
        for value in self.values:
            if value.name == name:
                return value
        raise KeyError(name)

    def blobs(self, first: int, stop: int) -> tuple[BlobRef, ...]:
        """The blobs that units [first, stop) need, graphs and weights, each once, in order."""
        found: dict[str, BlobRef] = {}
        for unit in self.units[first:stop]:
            for blob in (unit.graph, *unit.weights):
                found[blob.sha256] = blob
        return tuple(found.values())

    def needed(self, first: int, stop: int) -> tuple[str, ...]:
        """The values that units [first, stop) take from elsewhere, each once, in order of use."""
        made = {name for unit in self.units[first:stop] for name in unit.outputs}
        used = (name for unit in self.units[first:stop] for name in unit.inputs)
        return tuple(dict.fromkeys(name for name in used if name not in made))

    def given(self, first: int, stop: int) -> tuple[str, ...]:
        """The values that units [first, stop) make and that are outputs or needed after them, in order."""
        later = {name for unit in self.units[stop:] for name in unit.inputs} | set(self.outputs)
        made = (name for unit in self.units[first:stop] for name in unit.outputs)
        return tuple(name for name in made if name in later)


def amount(terms: Sequence[Term], sizes: Mapping[str, int]) -> float:
    """What the terms come to for these sizes; a size that is not known counts as 1."""
    return sum(term.factor * math.prod(sizes.get(size, 1) for size in term.sizes) for term in terms)


def encode_graph_manifest(manifest: GraphManifest) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    return canonical(graph_document(manifest))


def graph_document(manifest: GraphManifest) -> dict[str, object]:
    """The manifest as JSON has it; graph_manifest_of reads it."""
    return {
        "format": FORMAT,
        "name": manifest.name,
        "inputs": list(manifest.inputs),
        "outputs": list(manifest.outputs),
        "sizes": dict(manifest.sizes),
        "values": [
            {
                "name": value.name,
                "dtype": value.dtype,
                "shape": list(value.shape),
                "bytes": _terms_document(value.bytes),
            }
            for value in manifest.values
        ],
        "units": [_unit_document(unit) for unit in manifest.units],
        **({} if manifest.fused else {"fused": False}),
        **({"opset": manifest.opset} if manifest.opset else {}),
        **({"text": _text_document(manifest.text)} if manifest.text is not None else {}),
        **({"picture": _picture_document(manifest.picture)} if manifest.picture is not None else {}),
        **({"ctc": ctc_document(manifest.ctc)} if manifest.ctc is not None else {}),
    }


def decode_graph_manifest(encoded: bytes) -> GraphManifest:
    """Raises CorruptStore that says which field broke which rule, also for a model that answers in words."""
    root = opened(encoded, FORMAT, "import the model again with this version")
    if root.has("decoder"):
        raise CorruptStore("manifest: a model of inputs and outputs expected, this one answers in words")
    return graph_manifest_of(root)


def graph_manifest_of(root: Fields) -> GraphManifest:
    """The graph of units of an opened manifest. Raises CorruptStore."""
    sizes = root.fields("sizes")
    manifest = GraphManifest(
        name=root.text("name", MAX_NAME_CHARS),
        inputs=root.texts("inputs", MAX_PORTS, MAX_VALUE_CHARS),
        outputs=root.texts("outputs", MAX_PORTS, MAX_VALUE_CHARS),
        sizes={
            name: sizes.count(name, MAX_SIZE, least=1) for name in sizes.names(MAX_PORTS, MAX_VALUE_CHARS)
        },
        values=tuple(_value(fields) for fields in root.list_of_fields("values", MAX_VALUES)),
        units=tuple(_unit(fields) for fields in root.list_of_fields("units", MAX_UNITS)),
        fused=not root.has("fused") or root.boolean("fused"),
        opset=root.count("opset", MAX_OPSET, least=1) if root.has("opset") else 0,
        text=_text(root.fields("text")) if root.has("text") else None,
        picture=_picture(root.fields("picture")) if root.has("picture") else None,
        ctc=ctc_of(root.fields("ctc"), MAX_VALUE_CHARS) if root.has("ctc") else None,
    )
    _check_order(manifest)
    if manifest.picture is not None:
        _check_picture(manifest, manifest.picture)
    if manifest.text is not None:
        check_text(manifest, manifest.text)
    if manifest.ctc is not None:
        check_ctc(manifest, manifest.ctc)
    return manifest


def _terms_document(terms: Sequence[Term]) -> list[object]:
    return [{"factor": term.factor, "sizes": list(term.sizes)} for term in terms]


def _unit_document(unit: GraphUnit) -> dict[str, object]:
    return {
        "name": unit.name,
        "component": unit.component,
        "graph": blob_document(unit.graph),
        "weights": [blob_document(blob) for blob in unit.weights],
        "tensors": [
            {
                "name": tensor.name,
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "blob": tensor.blob,
                "offset": tensor.offset,
                "bytes": tensor.bytes,
            }
            for tensor in unit.tensors
        ],
        "inputs": list(unit.inputs),
        "outputs": list(unit.outputs),
        "params": unit.params,
        "resident_bytes": unit.resident_bytes,
        "flops": _terms_document(unit.flops),
        "ops": list(unit.ops),
        **({"state": [_state_document(state) for state in unit.state]} if unit.state else {}),
    }


def _text_document(text: TextInputs) -> dict[str, object]:
    return {
        "tokenizer": blob_document(text.tokenizer),
        "tokens": text.tokens,
        **({} if text.mask is None else {"mask": text.mask}),
        **({} if text.types is None else {"types": text.types}),
        "longest": text.longest,
        "pad": text.pad,
        **({} if text.vectors is None else {"vectors": text.vectors}),
        **({} if text.scores is None else {"scores": text.scores}),
        **({} if text.classes is None else {"classes": text.classes, "labels": list(text.labels)}),
    }


def _text(fields: Fields) -> TextInputs:
    return TextInputs(
        tokenizer=blob_of(fields.fields("tokenizer")),
        tokens=fields.text("tokens", MAX_VALUE_CHARS),
        mask=fields.text("mask", MAX_VALUE_CHARS) if fields.has("mask") else None,
        types=fields.text("types", MAX_VALUE_CHARS) if fields.has("types") else None,
        longest=fields.count("longest", MAX_TEXT_TOKENS, least=1),
        pad=fields.count("pad", MAX_TOKEN),
        vectors=fields.text("vectors", MAX_VALUE_CHARS) if fields.has("vectors") else None,
        scores=fields.text("scores", MAX_VALUE_CHARS) if fields.has("scores") else None,
        classes=fields.text("classes", MAX_VALUE_CHARS) if fields.has("classes") else None,
        labels=fields.texts("labels", MAX_LABELS, MAX_LABEL_CHARS) if fields.has("labels") else (),
    )


def check_text(manifest: GraphManifest, text: TextInputs) -> None:
    """Raises CorruptStore unless texts become all inputs of the model as its values say."""
    if text.tokenizer.bytes > MAX_TOKENIZER_BYTES:
        raise CorruptStore(f"manifest.text: a tokenizer of at most {MAX_TOKENIZER_BYTES} bytes expected")
    others = () if manifest.picture is None else (manifest.picture.input,)
    if sorted((*text.inputs, *others)) != sorted(manifest.inputs):
        raise CorruptStore("manifest.text: tokens, mask and types expected to be all inputs, each once")
    values = {value.name: value for value in manifest.values}
    shape = values[text.tokens].shape
    if len(shape) != 2 or (isinstance(shape[1], int) and shape[1] < text.longest):
        raise CorruptStore("manifest.text: axes (texts, tokens) with room for the longest text expected")
    for name in text.inputs:
        if values[name].shape != shape or values[name].dtype not in TEXT_TYPES:
            raise CorruptStore(f"manifest.text: {name[:80]!r}: the axes of the tokens, and numbers, expected")
    if values[text.tokens].dtype == "float32":
        raise CorruptStore("manifest.text: whole numbers expected for tokens")
    for what, made, most in (("vectors", text.vectors, MAX_DIMENSIONS), ("scores", text.scores, 1)):
        if made is not None and not _is_of_texts(manifest, values, made, shape[0], most):
            width = f"1 to {most}" if most > 1 else "1"
            raise CorruptStore(
                f"manifest.text: {what}: an output of float32 and axes (texts, {width}) expected"
            )
    if (text.classes is not None) != bool(text.labels) or len(set(text.labels)) != len(text.labels):
        raise CorruptStore("manifest.text: labels beside classes, no two of them alike, expected")
    if text.classes is not None and (
        not _is_of_texts(manifest, values, text.classes, shape[0], MAX_LABELS)
        or values[text.classes].shape[1] != len(text.labels)
    ):
        raise CorruptStore("manifest.text: classes: an output of float32 and axes (texts, labels) expected")


def check_ctc(manifest: GraphManifest, ctc: CtcText) -> None:
    """Raises CorruptStore unless sound becomes the only input, and an output has numbers of each token."""
    values = {value.name: value for value in manifest.values}
    if manifest.inputs != (ctc.input,) or ctc.logits not in manifest.outputs:
        raise CorruptStore(
            "manifest.ctc: its input as the only one, and its logits among the outputs, expected"
        )
    taken, made = values[ctc.input], values[ctc.logits]
    if taken.dtype != "float32" or len(taken.shape) != 2 or not isinstance(taken.shape[1], str):
        raise CorruptStore("manifest.ctc: an input of float32 and axes (1, samples) expected")
    if made.dtype != "float32" or len(made.shape) != 3 or made.shape[2] != len(ctc.tokens):
        raise CorruptStore("manifest.ctc: logits of float32 and axes (1, frames, tokens) expected")


def _is_pixels(dtype: str, shape: Sequence[int | str]) -> bool:
    """Whether that is an input of pictures: float32 (pictures, 3, side, side), or sides of two names."""
    if dtype != "float32" or len(shape) != PIXEL_AXES or shape[1] != COLOURS:
        return False
    height, width = shape[2:]
    if isinstance(height, str):
        return isinstance(width, str) and height != width and shape[0] not in (height, width)
    return height == width and 0 < height <= MAX_SIDE


def _picture_document(picture: PictureInputs) -> dict[str, object]:
    """As JSON has it; picture_of reads it."""
    return {
        "graph": blob_document(picture.graph),
        "input": picture.input,
        **({} if picture.rows is None else {"rows": picture.rows}),
        **({} if picture.vectors is None else {"vectors": list(picture.vectors)}),
        **({} if picture.scores is None else {"scores": picture.scores}),
    }


def _picture(fields: Fields) -> PictureInputs:
    """What `picture` of a manifest says. Raises CorruptStore."""
    graph = blob_of(fields.fields("graph"))
    if graph.bytes > MAX_PICTURE_GRAPH_BYTES:
        raise CorruptStore(f"manifest.picture: a graph of at most {MAX_PICTURE_GRAPH_BYTES} bytes expected")
    vectors = fields.texts("vectors", 2, MAX_VALUE_CHARS) if fields.has("vectors") else None
    if vectors is not None and len(vectors) != 2:
        raise CorruptStore("manifest.picture.vectors: two names expected, of pictures and of texts")
    return PictureInputs(
        graph,
        fields.text("input", MAX_VALUE_CHARS),
        fields.text("rows", MAX_VALUE_CHARS) if fields.has("rows") else None,
        (vectors[0], vectors[1]) if vectors is not None else None,
        fields.text("scores", MAX_VALUE_CHARS) if fields.has("scores") else None,
    )


def _check_picture(manifest: GraphManifest, picture: PictureInputs) -> None:
    """Raises CorruptStore unless pictures become that input, and outputs are what they are said to be."""
    values = {value.name: value for value in manifest.values}
    taken = values.get(picture.input)
    if manifest.text is None and manifest.inputs != (picture.input,):
        raise CorruptStore("manifest.picture: the only input beside those of texts expected")
    if taken is None or picture.input not in manifest.inputs or not _is_pixels(taken.dtype, taken.shape):
        raise CorruptStore(
            f"manifest.picture: an input of float32 (pictures, 3, side, side), up to {MAX_SIDE}, expected"
        )
    pictures = taken.shape[0]

    def made(name: str, rank: int) -> tuple[Size, ...]:
        value = values.get(name)
        if (
            value is None
            or name not in manifest.outputs
            or value.dtype != "float32"
            or len(value.shape) != rank
        ):
            raise CorruptStore(
                f"manifest.picture: {name[:80]!r}: an output of float32 and {rank} axes expected"
            )
        return value.shape

    if picture.rows is not None:
        count, positions, width = made(picture.rows, 3)
        is_free = isinstance(
            taken.shape[2], str
        )  # pictures keep their form: they have as many rows as it makes
        if count != pictures or isinstance(positions, str) != is_free or not isinstance(width, int):
            raise CorruptStore("manifest.picture: rows (pictures, positions, hidden) expected")
        if (
            not (isinstance(positions, str) or 1 <= positions <= MAX_POSITIONS)
            or not 1 <= width <= MAX_DIMENSIONS
        ):
            raise CorruptStore(f"manifest.picture: 1 to {MAX_POSITIONS} rows of a picture expected")
    if picture.vectors is not None:
        seen, read = (made(name, 2) for name in picture.vectors)
        if seen[0] != pictures or not isinstance(seen[1], int) or seen[1:] != read[1:]:
            raise CorruptStore("manifest.picture: vectors of equal length of pictures and of texts expected")
    if picture.scores is not None and made(picture.scores, 2)[0] != pictures:
        raise CorruptStore("manifest.picture: scores (pictures, texts) expected")


def _is_of_texts(
    manifest: GraphManifest, values: Mapping[str, Value], name: str, texts: int | str, most: int
) -> bool:
    if name not in manifest.outputs or values[name].dtype != "float32":
        return False
    shape = values[name].shape
    return len(shape) == 2 and shape[0] == texts and isinstance(shape[1], int) and 1 <= shape[1] <= most


def _state_document(state: KvState) -> dict[str, object]:
    window = {} if state.window is None else {"window": state.window}
    kind = "shared_kv" if state.shared else "kv"
    return {"kind": kind, "heads": state.heads, "head_size": state.head_size, **window}


def _terms(fields: Fields, name: str) -> tuple[Term, ...]:
    return tuple(
        Term(item.positive("factor"), item.texts("sizes", MAX_FACTORS, MAX_VALUE_CHARS))
        for item in fields.list_of_fields(name, MAX_TERMS)
    )


def _value(fields: Fields) -> Value:
    return Value(
        name=fields.text("name", MAX_VALUE_CHARS),
        dtype=fields.choice("dtype", get_args(ValueType)),
        shape=fields.sizes("shape", MAX_RANK, MAX_SIZE, MAX_VALUE_CHARS),
        bytes=_terms(fields, "bytes"),
    )


def _weight(fields: Fields, blobs: Sequence[BlobRef]) -> Weight:
    dtype: ValueType = fields.choice("dtype", get_args(ValueType))
    shape = fields.counts("shape", MAX_RANK, MAX_SIZE)
    offset, size = fields.count("offset", MAX_BLOB_BYTES), fields.count("bytes", MAX_BLOB_BYTES)
    if dtype == "string":
        raise CorruptStore(f"{fields.place}: weights of numbers expected, got strings")
    if size != (math.prod(shape) * HALF_BYTES[dtype] + 1) // 2:
        raise CorruptStore(f"{fields.place}: {size} bytes do not hold {dtype} of shape {shape}")
    place = fields.count("blob", MAX_UNIT_BLOBS)
    if place >= len(blobs):
        raise CorruptStore(f"{fields.place}.blob: a place among {len(blobs)} blobs expected, got {place}")
    if offset % ALIGNED or offset + size > blobs[place].bytes:
        raise CorruptStore(
            f"{fields.place}: offset {offset} plus {size} must be {ALIGNED}-aligned and inside "
            f"{blobs[place].bytes} bytes"
        )
    return Weight(fields.text("name", MAX_VALUE_CHARS), dtype, shape, place, offset, size)


def _unit(fields: Fields) -> GraphUnit:
    weights = tuple(blob_of(item) for item in fields.list_of_fields("weights", MAX_UNIT_BLOBS))
    tensors = tuple(_weight(item, weights) for item in fields.list_of_fields("tensors", MAX_UNIT_TENSORS))
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise CorruptStore(f"{fields.place}: tensor names must differ")
    return GraphUnit(
        name=fields.text("name", MAX_VALUE_CHARS),
        component=fields.text("component", 64),
        graph=blob_of(fields.fields("graph")),
        weights=weights,
        tensors=tensors,
        inputs=fields.texts("inputs", MAX_PORTS, MAX_VALUE_CHARS),
        outputs=fields.texts("outputs", MAX_PORTS, MAX_VALUE_CHARS),
        params=fields.count("params", MAX_COUNT),
        resident_bytes=fields.count("resident_bytes", MAX_COUNT),
        flops=_terms(fields, "flops"),
        ops=fields.texts("ops", 256, 256),
        state=tuple(_state(item) for item in fields.list_of_fields("state", MAX_STATES))
        if fields.has("state")
        else (),
    )


def _state(fields: Fields) -> KvState:
    kind = fields.choice("kind", ("kv", "shared_kv"))
    return KvState(
        heads=fields.count("heads", MAX_HEADS, least=1),
        head_size=fields.count("head_size", MAX_HEAD_SIZE, least=1),
        window=fields.count("window", MAX_WINDOW, least=1) if fields.has("window") else None,
        shared=kind == "shared_kv",
    )


def _check_order(manifest: GraphManifest) -> None:
    """Raises CorruptStore unless every value is declared once, made once or given, and made before it is used."""
    declared = [value.name for value in manifest.values]
    if len(set(declared)) != len(declared) or "" in declared:
        raise CorruptStore("manifest.values: names must differ and have a letter")
    if len({unit.name for unit in manifest.units}) != len(manifest.units) or not manifest.units:
        raise CorruptStore("manifest.units: at least one unit expected, names must differ")
    known = set(declared)
    made = set(manifest.inputs)
    if len(made) != len(manifest.inputs) or len(set(manifest.outputs)) != len(manifest.outputs):
        raise CorruptStore("manifest: names of inputs and of outputs must differ")
    for place, unit in enumerate(manifest.units):
        for name in unit.inputs:
            if name not in made:
                raise CorruptStore(f"manifest.units[{place}]: input {name[:80]!r} is not made before it")
        for name in unit.outputs:
            if name in made:
                raise CorruptStore(f"manifest.units[{place}]: output {name[:80]!r} is made twice")
            made.add(name)
        if len(set(unit.inputs)) != len(unit.inputs) or not unit.outputs:
            raise CorruptStore(f"manifest.units[{place}]: different inputs, and outputs, expected")
    if not made <= known:
        raise CorruptStore(f"manifest.values: {min(made - known)[:80]!r} is not declared")
    if not set(manifest.outputs) <= made or not manifest.outputs:
        raise CorruptStore("manifest.outputs: names of values that units make expected")
