"""Reading the JSON of manifests: every type, limit, offset and name is checked before anything uses it. Pure.

A manifest comes from a disk or a stranger. What all kinds of manifests have in common is here: blobs, tensors in blobs,
how answers are drawn.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard, TypeVar, get_args

from planner.errors import CorruptStore, OldFormat
from planner.model.blob_ref import PIECE_BYTES, BlobRef
from planner.model.sampling_defaults import BOUNDS, MILLION, WHOLE, SamplingDefaults

OLD_DECODERS: Final = "shoal-1"  # of models that answered in words, when peers knew their families
MAX_MANIFEST_BYTES: Final = 32 << 20  # 2000 units with a few hundred pieces each stay under this
MAX_BLOB_BYTES: Final = 64 << 30
MAX_UNITS: Final = 4096
MAX_NAME_CHARS: Final = 256
MAX_TEMPLATE_CHARS: Final = 1 << 20
MAX_COUNT: Final = 2**53 - 1
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
    """The fields of a manifest of that format. Raises OldFormat, or CorruptStore that says `otherwise`."""
    if len(encoded) > MAX_MANIFEST_BYTES:
        raise CorruptStore(f"manifest: at most {MAX_MANIFEST_BYTES} bytes expected, got {len(encoded)}")
    try:
        document = json.loads(encoded.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CorruptStore(f"manifest: JSON expected: {error}; import the model again") from None
    root = Fields(document, "manifest")
    if (found := root.text("format", 64)) != expected:
        if found == OLD_DECODERS:
            raise OldFormat(
                f'this model is stored in the format "{found}" of an older version: import the model again'
            )
        raise CorruptStore(f'manifest: format "{expected}" expected; {otherwise}')
    return root


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _is_text(value: object, limit: int) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= limit and not SURROGATE.search(value)


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
