"""What a stored model is: the manifest's dataclasses and their checked JSON form.

A manifest comes from a disk or a stranger, so decoding checks every type, limit, offset and name before
anything uses it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard, TypeVar, get_args

from planner.errors import CorruptStore
from planner.model.architecture import Architecture, RopeScaling
from planner.model.blob_ref import PIECE_BYTES, BlobRef
from planner.model.sampling_defaults import BOUNDS, MILLION, WHOLE, SamplingDefaults
from planner.types import Unit, UnitKind, WeightFormat

FORMAT: Final = "shoal-1"
MAX_MANIFEST_BYTES: Final = 32 << 20  # 2000 units with a few hundred pieces each stay under this
MAX_BLOB_BYTES: Final = 64 << 30
MAX_UNITS: Final = 4096
MAX_TENSORS: Final = 64  # per unit
MAX_NAME_CHARS: Final = 256
MAX_TEMPLATE_CHARS: Final = 1 << 20
MAX_COUNT: Final = 2**53 - 1
MOST_COUNTS: Final = {  # of an architecture, each at least 1
    "blocks": 2000,
    "hidden": 1 << 17,
    "heads": 1024,
    "kv_heads": 1024,
    "head_size": 1024,
    "ffn": 1 << 20,
    "vocab": 1 << 24,
    "context": 1 << 24,
    "rope_dims": 1024,
}
SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
SURROGATE: Final = re.compile("[\ud800-\udfff]")  # what JSON can say and UTF-8 cannot

DType = Literal["f32", "f16", "u8"]
DTYPE_BYTES: Final[dict[DType, int]] = {"f32": 4, "f16": 2, "u8": 1}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`shape` values of `dtype`, little-endian and C-ordered, at `offset` of the unit's blob."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ManifestUnit:
    """One unit. `state`: names of the KV pairs it keeps. `resident_bytes`: what its weights occupy once
    loaded on a CPU.
    """

    name: str
    kind: UnitKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    state: tuple[str, ...]
    params: int
    flops_per_token: int
    out_bytes_per_token: int
    kv_bytes_per_token: int
    blob: BlobRef
    tensors: tuple[StoredTensor, ...]
    resident_bytes: int

    def tensor(self, name: str) -> StoredTensor | None:
        """Returns the tensor of that name, or None."""
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One model. Its id is the SHA-256 of `encode_manifest`."""

    format: str
    name: str
    weights: WeightFormat
    architecture: Architecture
    tokenizer: BlobRef
    chat_template: str | None
    bos_token: int | None
    end_tokens: tuple[int, ...]
    add_bos: bool
    units: tuple[ManifestUnit, ...]
    sampling: SamplingDefaults | None = (
        None  # of the model's own files; a field only where they say something
    )

    def planner_units(self) -> tuple[Unit, ...]:
        """Returns the units as the planner counts them: bytes, floating-point operations, bytes of cache."""
        return tuple(
            Unit(
                unit.name,
                unit.kind,
                unit.resident_bytes,
                unit.flops_per_token,
                unit.kv_bytes_per_token,
                unit.out_bytes_per_token,
                packed_bytes(unit),
                wide_bytes(unit, self.architecture),
            )
            for unit in self.units
        )

    def blobs(self, first: int, stop: int) -> tuple[BlobRef, ...]:
        """The blobs that units [first, stop) need, each once, in order."""
        return tuple({unit.blob.sha256: unit.blob for unit in self.units[first:stop]}.values())


def packed_bytes(unit: ManifestUnit) -> int:
    """What the unit's weights occupy in a tab with a GPU, which multiplies packed ones; an embedding lies in memory."""
    return sum(
        4 * math.prod(tensor.shape) if tensor.dtype == "f16" and unit.kind != "embed" else tensor.bytes
        for tensor in unit.tensors
    )


def wide_bytes(unit: ManifestUnit, architecture: Architecture) -> int:
    """The same in a tab that unpacks every linear to float32; an embedding stays as it is stored."""
    if unit.kind == "embed":
        return packed_bytes(unit)
    columns = {"o": architecture.heads * architecture.head_size, "down": architecture.ffn}
    total = 0
    for tensor in unit.tensors:
        linear, _, form = tensor.name.rpartition(".")
        if linear and form in ("q4", "q8", "w"):
            total += 4 * tensor.shape[0] * columns.get(linear, architecture.hidden)
        elif form not in ("scale", "zero", "rest"):
            total += tensor.bytes
    return total


def encode_manifest(manifest: Manifest) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    architecture = manifest.architecture
    scaling = architecture.rope_scaling
    document: dict[str, object] = {
        "format": manifest.format,
        "name": manifest.name,
        "weights": manifest.weights,
        "architecture": {
            **{name: getattr(architecture, name) for name in MOST_COUNTS},
            "family": architecture.family,
            "norm_epsilon": architecture.norm_epsilon,
            "rope_base": architecture.rope_base,
            "rope_scaling": None
            if scaling is None
            else {
                "kind": scaling.kind,
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_context": scaling.original_context,
            },
            "rope_factors": None if architecture.rope_factors is None else list(architecture.rope_factors),
            "qkv_bias": architecture.qkv_bias,
            "qk_norm": architecture.qk_norm,
            "tied_embedding": architecture.tied_embedding,
        },
        "tokenizer": blob_document(manifest.tokenizer),
        "chat_template": manifest.chat_template,
        "bos_token": manifest.bos_token,
        "end_tokens": list(manifest.end_tokens),
        "add_bos": manifest.add_bos,
        "units": [
            {
                "name": unit.name,
                "kind": unit.kind,
                "inputs": list(unit.inputs),
                "outputs": list(unit.outputs),
                "state": list(unit.state),
                **{name: getattr(unit, name) for name in _UNIT_COUNTS},
                "blob": blob_document(unit.blob),
                "tensors": [tensor_document(tensor) for tensor in unit.tensors],
            }
            for unit in manifest.units
        ],
    }
    if manifest.sampling is not None:
        document["sampling"] = sampling_document(manifest.sampling)
    return canonical(document)


def sampling_document(sampling: SamplingDefaults) -> dict[str, object]:
    """As sampling_of reads it: whole numbers, of millionths where that is no count."""
    return {
        name: getattr(sampling, name) if name in WHOLE else round(getattr(sampling, name) * MILLION)
        for name in BOUNDS
    }


def canonical(document: object) -> bytes:
    """Sorted keys, no spaces, UTF-8: what is the same is written the same."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def opened(encoded: bytes, expected: str, otherwise: str) -> Fields:
    """The fields of a manifest of that format. Raises CorruptStore, which says `otherwise` of another one."""
    if len(encoded) > MAX_MANIFEST_BYTES:
        raise CorruptStore(f"manifest: at most {MAX_MANIFEST_BYTES} bytes expected, got {len(encoded)}")
    try:
        document = json.loads(encoded.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CorruptStore(f"manifest: JSON expected: {error}; import the model again") from None
    root = Fields(document, "manifest")
    if root.text("format", 64) != expected:
        raise CorruptStore(f'manifest: format "{expected}" expected; {otherwise}')
    return root


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _is_text(value: object, limit: int) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= limit and not SURROGATE.search(value)


def decode_manifest(encoded: bytes) -> Manifest:
    """Raises CorruptStore that says which field broke which rule."""
    root = opened(encoded, FORMAT, "import the model again with this version")
    architecture = _architecture(root.fields("architecture"))
    units = tuple(_unit(fields) for fields in root.list_of_fields("units", MAX_UNITS))
    _check_units(units, architecture)
    return Manifest(
        format=FORMAT,
        name=root.text("name", MAX_NAME_CHARS),
        weights=root.choice("weights", get_args(WeightFormat)),
        architecture=architecture,
        tokenizer=blob_of(root.fields("tokenizer")),
        chat_template=None
        if root.is_null("chat_template")
        else root.text("chat_template", MAX_TEMPLATE_CHARS),
        bos_token=None if root.is_null("bos_token") else root.count("bos_token", architecture.vocab - 1),
        end_tokens=root.counts("end_tokens", 64, architecture.vocab - 1),
        add_bos=root.boolean("add_bos"),
        units=units,
        sampling=sampling_of(root.fields("sampling")) if root.has("sampling") else None,
    )


_UNIT_COUNTS: Final = (
    "params",
    "flops_per_token",
    "out_bytes_per_token",
    "kv_bytes_per_token",
    "resident_bytes",
)


def blob_document(blob: BlobRef) -> dict[str, object]:
    """Returns a blob as the manifest's JSON has it."""
    return {"sha256": blob.sha256, "bytes": blob.bytes, "pieces": list(blob.pieces)}


def tensor_document(tensor: StoredTensor) -> dict[str, object]:
    """As tensor_of reads it."""
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "offset": tensor.offset,
        "bytes": tensor.bytes,
    }


class Fields:
    """A JSON object whose fields are read with their type and limit, so that errors name the place."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise CorruptStore(f"{place}: an object expected, got {type(value).__name__}")
        self._value: dict[str, object] = value
        self.place = place

    def _get(self, name: str) -> object:
        if name not in self._value:
            raise CorruptStore(f"{self.place}: field {name!r} is missing")
        return self._value[name]

    def _wrong(self, name: str, expected: str) -> CorruptStore:
        return CorruptStore(f"{self.place}.{name}: {expected} expected")

    def has(self, name: str) -> bool:
        """Returns whether the field is there, as those are that came later."""
        return name in self._value

    def is_null(self, name: str) -> bool:
        """Returns whether the field is null. Raises CorruptStore where it is missing."""
        return self._get(name) is None

    def text(self, name: str, limit: int) -> str:
        """Returns a string of at most `limit` characters. Raises CorruptStore."""
        value = self._get(name)
        if not _is_text(value, limit):
            raise self._wrong(name, f"a string of at most {limit} characters")
        return value

    def boolean(self, name: str) -> bool:
        """Returns true or false. Raises CorruptStore."""
        value = self._get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def count(self, name: str, limit: int = MAX_COUNT, least: int = 0) -> int:
        """Returns a whole number from `least` to `limit`. Raises CorruptStore."""
        value = self._get(name)
        if type(value) is not int or not least <= value <= limit:
            raise self._wrong(name, f"a whole number from {least} to {limit}")
        return value

    def positive(self, name: str) -> float:
        """Returns a finite number above 0. Raises CorruptStore."""
        value = self._get(name)
        try:
            number = float(value) if type(value) in (int, float) else 0.0  # type: ignore[arg-type]
        except OverflowError:  # a whole number of hundreds of digits
            number = math.inf
        if not 0 < number < math.inf:
            raise self._wrong(name, "a positive finite number")
        return number

    def positives(self, name: str, limit: int) -> tuple[float, ...]:
        """Returns a list of at most `limit` finite numbers above 0. Raises CorruptStore."""
        items = self._list(name, limit)
        return tuple(
            Fields({name: item}, f"{self.place}.{name}[{place}]").positive(name)
            for place, item in enumerate(items)
        )

    def numbers(self, name: str, limit: int) -> tuple[float, ...]:
        """Returns a list of 1 to `limit` finite numbers from 0 on. Raises CorruptStore."""
        items = self._list(name, limit)
        if not items:
            raise self._wrong(name, "at least one number")
        return tuple(
            0.0
            if item == 0 and not isinstance(item, bool)
            else Fields({name: item}, f"{self.place}.{name}[{place}]").positive(name)
            for place, item in enumerate(items)
        )

    def choice(self, name: str, allowed: tuple[T, ...]) -> T:
        """Returns the one of `allowed` that the field equals. Raises CorruptStore."""
        value = self._get(name)
        for option in allowed:
            if value == option:
                return option
        raise self._wrong(name, f"one of {', '.join(map(str, allowed))}")

    def _list(self, name: str, limit: int) -> list[object]:
        value = self._get(name)
        if not isinstance(value, list) or len(value) > limit:
            raise self._wrong(name, f"a list of at most {limit} items")
        return value

    def counts(self, name: str, length: int, limit: int, least: int = 0) -> tuple[int, ...]:
        """Returns a list of at most `length` whole numbers from `least` to `limit`. Raises CorruptStore."""
        items = self._list(name, length)
        for item in items:
            if type(item) is not int or not least <= item <= limit:
                raise self._wrong(name, f"whole numbers from {least} to {limit}")
        return tuple(items)  # type: ignore[arg-type]

    def texts(self, name: str, length: int, limit: int) -> tuple[str, ...]:
        """Returns a list of at most `length` strings of at most `limit` characters. Raises CorruptStore."""
        items = self._list(name, length)
        for item in items:
            if not _is_text(item, limit):
                raise self._wrong(name, f"strings of at most {limit} characters")
        return tuple(items)  # type: ignore[arg-type]

    def sizes(self, name: str, length: int, limit: int, chars: int) -> tuple[int | str, ...]:
        """Returns a list of at most `length` whole numbers up to `limit` or names of sizes. Raises CorruptStore."""
        items = self._list(name, length)
        for item in items:
            number = type(item) is int and 0 <= item <= limit
            if not number and not (_is_text(item, chars) and item):
                raise self._wrong(name, f"whole numbers up to {limit} or names")
        return tuple(items)  # type: ignore[arg-type]

    def names(self, length: int, chars: int) -> tuple[str, ...]:
        """Returns the names of all fields, sorted. Raises CorruptStore where there are too many or too long ones."""
        if len(self._value) > length or not all(_is_text(name, chars) for name in self._value):
            raise CorruptStore(f"{self.place}: at most {length} fields with names of up to {chars} expected")
        return tuple(sorted(self._value))

    def fields(self, name: str) -> Fields:
        """Returns the fields of an object. Raises CorruptStore."""
        return Fields(self._get(name), f"{self.place}.{name}")

    def list_of_fields(self, name: str, limit: int) -> list[Fields]:
        """Returns the fields of each object in a list of at most `limit`. Raises CorruptStore."""
        return [
            Fields(item, f"{self.place}.{name}[{place}]")
            for place, item in enumerate(self._list(name, limit))
        ]


def blob_of(fields: Fields) -> BlobRef:
    """Returns a blob with as many hashes as it has pieces. Raises CorruptStore."""
    sha256 = fields.text("sha256", 64)
    size = fields.count("bytes", MAX_BLOB_BYTES)
    pieces = fields.texts("pieces", MAX_BLOB_BYTES // PIECE_BYTES, 64)
    if not SHA256.match(sha256) or not all(SHA256.match(piece) for piece in pieces):
        raise CorruptStore(f"{fields.place}: hashes of 64 lower-case hex digits expected")
    if len(pieces) != -(-size // PIECE_BYTES):
        raise CorruptStore(
            f"{fields.place}: {-(-size // PIECE_BYTES)} pieces expected for {size} bytes, got {len(pieces)}"
        )
    return BlobRef(sha256, size, pieces)


def sampling_of(fields: Fields) -> SamplingDefaults:
    """Returns how answers are drawn by the model's own settings. Raises CorruptStore."""

    def number(name: str) -> float:
        low, high = (round(bound * MILLION) for bound in BOUNDS[name])
        return fields.count(name, high, low) / MILLION

    return SamplingDefaults(
        temperature=number("temperature"),
        top_k=fields.count("top_k", int(BOUNDS["top_k"][1])),
        top_p=number("top_p"),
        min_p=number("min_p"),
        repetition_penalty=number("repetition_penalty"),
    )


def _architecture(fields: Fields) -> Architecture:
    counts = {name: fields.count(name, limit, least=1) for name, limit in MOST_COUNTS.items()}
    scaling = None
    if not fields.is_null("rope_scaling"):
        inner = fields.fields("rope_scaling")
        scaling = RopeScaling(
            kind=inner.choice("kind", ("llama3", "linear")),
            factor=inner.positive("factor"),
            low_freq_factor=inner.positive("low_freq_factor"),
            high_freq_factor=inner.positive("high_freq_factor"),
            original_context=inner.count("original_context", 1 << 24, least=1),
        )
    factors = None if fields.is_null("rope_factors") else fields.positives("rope_factors", 512)
    if factors is not None and len(factors) != counts["rope_dims"] // 2:
        raise CorruptStore(f"{fields.place}.rope_factors: {counts['rope_dims'] // 2} numbers expected")
    if counts["heads"] % counts["kv_heads"] or counts["rope_dims"] > counts["head_size"]:
        raise CorruptStore(f"{fields.place}: heads, kv_heads, head_size and rope_dims do not fit together")
    return Architecture(
        family=fields.text("family", 64),
        norm_epsilon=fields.positive("norm_epsilon"),
        rope_base=fields.positive("rope_base"),
        rope_scaling=scaling,
        rope_factors=factors,
        qkv_bias=fields.boolean("qkv_bias"),
        qk_norm=fields.boolean("qk_norm"),
        tied_embedding=fields.boolean("tied_embedding"),
        **counts,
    )


def _unit(fields: Fields) -> ManifestUnit:
    blob = blob_of(fields.fields("blob"))
    tensors = tuple(tensor_of(item, blob) for item in fields.list_of_fields("tensors", MAX_TENSORS))
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise CorruptStore(f"{fields.place}: tensor names must differ")
    return ManifestUnit(
        name=fields.text("name", 64),
        kind=fields.choice("kind", get_args(UnitKind)),
        inputs=fields.texts("inputs", 16, 64),
        outputs=fields.texts("outputs", 16, 64),
        state=fields.texts("state", 16, 64),
        blob=blob,
        tensors=tensors,
        **{name: fields.count(name) for name in _UNIT_COUNTS},
    )


def tensor_of(fields: Fields, blob: BlobRef) -> StoredTensor:
    """Returns a tensor that lies inside `blob`, aligned to 64 bytes. Raises CorruptStore."""
    dtype: DType = fields.choice("dtype", get_args(DType))
    shape = fields.counts("shape", 4, 1 << 32, least=1)
    offset, size = fields.count("offset", MAX_BLOB_BYTES), fields.count("bytes", MAX_BLOB_BYTES)
    if size != math.prod(shape) * DTYPE_BYTES[dtype]:
        raise CorruptStore(f"{fields.place}: {size} bytes do not hold {dtype} of shape {shape}")
    if offset % 64 or offset + size > blob.bytes:
        raise CorruptStore(
            f"{fields.place}: offset {offset} plus {size} must be 64-aligned and inside {blob.bytes} bytes"
        )
    return StoredTensor(fields.text("name", 64), dtype, shape, offset, size)


def _check_units(units: tuple[ManifestUnit, ...], architecture: Architecture) -> None:
    expected = unit_names(architecture.blocks)
    found = tuple((unit.name, unit.kind) for unit in units)
    if found != expected:
        raise CorruptStore(
            f"manifest.units: embed, attn.0, ffn.0, ... head for {architecture.blocks} blocks expected, "
            f"got {len(found)} units in another order"
        )


def unit_names(blocks: int) -> tuple[tuple[str, UnitKind], ...]:
    """Names and kinds of all units in order."""
    inner: list[tuple[str, UnitKind]] = []
    for block in range(blocks):
        inner += [(f"attn.{block}", "attn"), (f"ffn.{block}", "ffn")]
    return (("embed", "embed"), *inner, ("head", "head"))
