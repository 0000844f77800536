"""What an embedding model is: the numbers of its encoder, its manifest and the checked JSON form of that.

A BERT-style encoder reads a whole text at once and gives one vector for it. Its manifest has a format of its own, so
that nothing that expects a model of units (planner.model.manifest) can take it for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from planner.errors import CorruptStore
from planner.model.checked_fields import (
    Fields,
    StoredTensor,
    blob_document,
    blob_of,
    canonical,
    opened,
    tensor_document,
    tensor_of,
)
from planner.model.store import BlobRef

FORMAT: Final = "shoal-encoder-1"
MAX_PARTS: Final = 129  # embedding and layers; large encoders have 24
MAX_TENSORS: Final = 16  # of a part

Activation = Literal["gelu", "gelu_tanh"]
Pooling = Literal["mean", "cls"]

_COUNTS: Final = {
    "blocks": 128,
    "hidden": 1 << 14,
    "heads": 256,
    "ffn": 1 << 16,
    "vocab": 1 << 22,
    "positions": 1 << 16,
    "max_tokens": 1 << 16,
}


@dataclass(frozen=True, slots=True)
class EncoderNumbers:
    """What decides the graph. `max_tokens`: of one text, the marks at its ends included; at most `positions`."""

    blocks: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    positions: int
    max_tokens: int
    norm_epsilon: float
    activation: Activation
    pooling: Pooling
    normalize: bool


@runtime_checkable
class SourceEncoder(Protocol):
    """An opened foreign model, before import."""

    @property
    def name(self) -> str:
        """What the model is called, for people."""

    @property
    def numbers(self) -> EncoderNumbers:
        """The numbers of the encoder."""

    @property
    def tokenizer_json(self) -> bytes:
        """The bytes of tokenizer.json."""

    def weights(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor with our name `name`, in the shape that tensor_shapes says."""


@dataclass(frozen=True, slots=True)
class EncoderPart:
    """The embedding or one layer: float32 tensors in one blob."""

    name: str
    blob: BlobRef
    tensors: tuple[StoredTensor, ...]


@dataclass(frozen=True, slots=True)
class EncoderManifest:
    """One embedding model. Its id is the SHA-256 of `encode_encoder`."""

    name: str
    numbers: EncoderNumbers
    tokenizer: BlobRef
    parts: tuple[EncoderPart, ...]


def tensor_shapes(numbers: EncoderNumbers) -> dict[str, dict[str, tuple[int, ...]]]:
    """Part -> tensor -> shape, in order. Matrices are (outputs, inputs); `qkv` has q, k and v below one another."""
    n = numbers
    width = (n.hidden,)
    norm = {"norm.weight": width, "norm.bias": width}
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "embed": {"words": (n.vocab, n.hidden), "positions": (n.positions, n.hidden), "type": width} | norm
    }
    for block in range(n.blocks):
        shapes[f"layer.{block}"] = {
            "qkv.w": (3 * n.hidden, n.hidden),
            "qkv.bias": (3 * n.hidden,),
            "o.w": (n.hidden, n.hidden),
            "o.bias": width,
            "o.norm.weight": width,
            "o.norm.bias": width,
            "up.w": (n.ffn, n.hidden),
            "up.bias": (n.ffn,),
            "down.w": (n.hidden, n.ffn),
            "down.bias": width,
            "down.norm.weight": width,
            "down.norm.bias": width,
        }
    return shapes


def numbers_problem(numbers: EncoderNumbers) -> str | None:
    """What no encoder can have, in words; None when all is well."""
    for name, limit in _COUNTS.items():
        if not 1 <= getattr(numbers, name) <= limit:
            return f"{name} from 1 to {limit} expected, got {getattr(numbers, name)}"
    if numbers.hidden % numbers.heads:
        return f"{numbers.hidden} values cannot be shared evenly by {numbers.heads} heads"
    if numbers.max_tokens > numbers.positions:
        return f"texts of {numbers.max_tokens} tokens do not fit {numbers.positions} positions"
    if not 0 < numbers.norm_epsilon < 1:
        return f"a norm epsilon between 0 and 1 expected, got {numbers.norm_epsilon}"
    return None


def encode_encoder(manifest: EncoderManifest) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    n = manifest.numbers
    document = {
        "format": FORMAT,
        "name": manifest.name,
        "encoder": {
            **{name: getattr(n, name) for name in _COUNTS},
            "norm_epsilon": n.norm_epsilon,
            "activation": n.activation,
            "pooling": n.pooling,
            "normalize": n.normalize,
        },
        "tokenizer": blob_document(manifest.tokenizer),
        "parts": [
            {
                "name": part.name,
                "blob": blob_document(part.blob),
                "tensors": [tensor_document(tensor) for tensor in part.tensors],
            }
            for part in manifest.parts
        ],
    }
    return canonical(document)


def decode_encoder(encoded: bytes) -> EncoderManifest:
    """Raises CorruptStore that says which field broke which rule."""
    root = opened(encoded, FORMAT, "this is no embedding model")
    numbers = _numbers(root.fields("encoder"))
    parts = tuple(_part(fields) for fields in root.list_of_fields("parts", MAX_PARTS))
    _check_parts(parts, tensor_shapes(numbers))
    return EncoderManifest(root.text("name", 256), numbers, blob_of(root.fields("tokenizer")), parts)


def _numbers(fields: Fields) -> EncoderNumbers:
    numbers = EncoderNumbers(
        **{name: fields.count(name, limit, least=1) for name, limit in _COUNTS.items()},
        norm_epsilon=fields.positive("norm_epsilon"),
        activation=fields.choice("activation", get_args(Activation)),
        pooling=fields.choice("pooling", get_args(Pooling)),
        normalize=fields.boolean("normalize"),
    )
    if problem := numbers_problem(numbers):
        raise CorruptStore(f"{fields.place}: {problem}")
    return numbers


def _part(fields: Fields) -> EncoderPart:
    blob = blob_of(fields.fields("blob"))
    tensors = tuple(tensor_of(item, blob) for item in fields.list_of_fields("tensors", MAX_TENSORS))
    return EncoderPart(fields.text("name", 64), blob, tensors)


def _check_parts(
    parts: tuple[EncoderPart, ...], expected: Mapping[str, Mapping[str, tuple[int, ...]]]
) -> None:
    if [part.name for part in parts] != list(expected):
        raise CorruptStore(f"manifest.parts: embed and {len(expected) - 1} layers expected, in order")
    for part in parts:
        shapes = expected[part.name]
        found = {tensor.name: (tensor.dtype, tensor.shape) for tensor in part.tensors}
        if len(part.tensors) != len(shapes) or found != {
            name: ("f32", shape) for name, shape in shapes.items()
        }:
            raise CorruptStore(
                f"manifest.parts: {part.name} should hold other tensors; import the model again"
            )
