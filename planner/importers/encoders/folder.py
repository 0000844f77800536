"""How a folder of an encoder (config.json, tokenizer.json, *.safetensors) reads: as vectors of texts, or as scores of
pairs of them.

A sentence-transformers folder makes vectors, its modules say how; a folder of a model for classification with one label
scores pairs, one with several sorts texts into them. Everything else in the folder is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture
from planner.importers.encoders.ending import MODULES, VectorEnding, most_tokens, vector_ending
from planner.importers.encoders.family import EncoderFamily, Names
from planner.importers.encoders.shape import (
    Activation,
    EncoderShape,
    Floats,
    RowsEnding,
    ScoreHead,
    check_shape,
    tensor_shapes,
)
from planner.importers.encoders.table import encoder_family, is_known
from planner.importers.hf_config import Json, Numbers, read_json, tokenizer_of
from planner.importers.layout import check_tensors
from planner.importers.safetensors import FolderTensor, read_files
from planner.model.graph_manifest import MAX_LABEL_CHARS, MAX_LABELS

CLASSIFIES: Final = "ForSequenceClassification"  # how the architecture of a cross-encoder ends
IDENTITY: Final = "Identity"
SINGLE: Final = "single_label_classification"
MULTIPLE: Final = "multi_label_classification"

_ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swiglu": "silu",
}


class StoredNumbers(Protocol):
    """A tensor of a file that was opened."""

    def float32(self) -> Floats:
        """Its numbers, dequantized."""


@dataclass(frozen=True, slots=True)
class OpenedEncoder:
    """An encoder of a folder or a GGUF file, before import. `longest`: most tokens of a text, or of a pair. `ending`:
    how rows become a vector, or a score, or that they are wanted themselves. `tokenizer`: a tokenizer.json, or its
    bytes; None where texts become tokens elsewhere. `files`: by our name of a tensor, those of the source whose rows it
    has.
    """

    name: str
    shape: EncoderShape
    longest: int
    ending: VectorEnding | ScoreHead | RowsEnding
    tokenizer: Path | bytes | None
    files: Mapping[str, Sequence[StoredNumbers]]

    @property
    def scores(self) -> bool:
        """Whether it scores pairs of texts; else it makes vectors, or sorts texts into classes."""
        return isinstance(self.ending, ScoreHead) and not self.ending.labels

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes into which it sorts texts; none where it does not."""
        return self.ending.labels if isinstance(self.ending, ScoreHead) else ()

    def tensor(self, ours: str) -> Floats:
        """The tensor of that name. Raises CorruptModel for numbers that are none."""
        parts = [tensor.float32() for tensor in self.files[ours]]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if not np.isfinite(found).all():
            raise CorruptModel(f"{self.name}: {ours}: finite numbers expected, found NaN or infinity")
        return found


def is_encoder(folder: Path) -> bool:
    """Whether the folder says that it holds an encoder of texts."""
    if (folder / MODULES).is_file():
        return True
    config = read_json(folder, "config.json")
    return config is not None and is_known(config.get("model_type"))


def open_encoder(folder: Path, name: str | None = None) -> OpenedEncoder:
    """Raises a ModelError that says what was expected."""
    where = folder.name
    config = read_json(folder, "config.json")
    if config is None:
        raise NoSuchModel(f"{folder} has no config.json: expected a folder of an encoder")
    family = encoder_family(config.get("model_type"), where)
    shape = _shape(config, family, where)
    head = _head(config, family, where)
    expected = tensor_shapes(shape, head)
    read = read_files(folder, _left_out(family, expected))
    found = {file.removeprefix(family.prefix): tensor for file, tensor in read.items()}
    if len(found) != len(read):
        raise CorruptModel(
            f"{where}: a tensor is there twice, with {family.prefix} before its name and without"
        )
    names = family.other if family.other is not None and family.other_mark in found else family.names
    files = _files(family, names, expected, found, where)
    _, tokenizer = tokenizer_of(folder, shape.vocab)
    ending = head if head is not None else vector_ending(folder, shape.hidden)
    marks = tokenizer.num_special_tokens_to_add(True) - tokenizer.num_special_tokens_to_add(False)
    if head is not None and not head.labels and marks <= 0:
        raise UnknownArchitecture(
            f"{where}: its tokenizer puts no mark between the two texts of a pair: save it anew with transformers"
        )
    return OpenedEncoder(
        name or folder.resolve().name,
        shape,
        most_tokens(folder, shape.positions),
        ending,
        folder / "tokenizer.json",
        files,
    )


def _files(
    family: EncoderFamily,
    names: Names,
    expected: Mapping[str, tuple[int, ...]],
    found: Mapping[str, FolderTensor],
    where: str,
) -> dict[str, Sequence[FolderTensor]]:
    """By our name, the tensors of the folder."""
    lie: dict[str, tuple[str, ...]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for ours, shape in expected.items():
        lie[ours] = family.file_names(ours, names)
        for file in lie[ours]:
            shapes[file] = (shape[0] // len(lie[ours]), *shape[1:])
    check_tensors(shapes, lambda file: found[file].shape if file in found else None, lambda file: file, where)
    for stranger in sorted(found.keys() - shapes.keys()):
        raise UnknownArchitecture(
            f"{where}: tensor {stranger} has no place in {family.models[0]} as known here; this variant is not "
            "supported"
        )
    return {ours: [found[file] for file in each] for ours, each in lie.items()}


def _left_out(family: EncoderFamily, expected: Mapping[str, object]) -> re.Pattern[str]:
    """The names of tensors that take no part, unless a head is made of them."""
    head = {
        file
        for ours in expected
        if ours.startswith("head.")
        for file in family.file_names(ours, family.names)
    }
    but = "|".join(map(re.escape, sorted(head))) or "$^"
    prefix = re.escape(family.prefix)
    return re.compile(rf"(?:{prefix})?(?!(?:{but})\Z)(?:{'|'.join(family.ignored)})")


def _shape(config: Json, family: EncoderFamily, where: str) -> EncoderShape:
    if config.get("quantization_config"):
        raise UnknownArchitecture(f"{where}: quantized exports are not supported: use the original")
    said = _numbers(config, family, where)
    usual = family.activation
    called = said.word("hidden_act", usual)
    activation = _ACTIVATIONS.get(called)
    if activation is None:
        raise UnknownArchitecture(
            f"{where}: hidden_act {called[:40]!r} is not supported; known are {', '.join(_ACTIVATIONS)}"
        )
    shape = EncoderShape(
        blocks=said.whole("num_hidden_layers"),
        hidden=said.whole("hidden_size"),
        heads=said.whole("num_attention_heads"),
        ffn=said.whole("intermediate_size"),
        vocab=said.whole("vocab_size"),
        positions=said.whole("max_position_embeddings"),
        norm_epsilon=said.real(family.epsilon_key, family.epsilon),
        activation=activation,
    )
    shape = family.features(shape, said)
    check_shape(shape, where)
    return shape


def _numbers(config: Json, family: EncoderFamily, where: str) -> Numbers:
    keys = {usual: key for usual, others in family.keys.items() for key in reversed(others) if key in config}
    return Numbers(config, where, keys)


def _labels(config: Json, where: str) -> tuple[str, ...]:
    """The classes by number, as config.json calls them; as transformers does where it does not."""
    said, count = config.get("id2label"), config.get("num_labels")
    if not isinstance(said, dict):
        said = {
            str(at): f"LABEL_{at}" for at in range(count if type(count) is int and 0 < count < 1 << 16 else 2)
        }
    labels = tuple(said.get(str(at)) for at in range(min(len(said), MAX_LABELS + 1)))
    named = [each for each in labels if isinstance(each, str) and 0 < len(each) <= MAX_LABEL_CHARS]
    if not 0 < len(labels) <= MAX_LABELS or len(set(named)) != len(labels):
        raise CorruptModel(
            f"{where}: id2label of config.json should name 1 to {MAX_LABELS} classes from 0 on, no two alike"
        )
    return tuple(named)


def _head(config: Json, family: EncoderFamily, where: str) -> ScoreHead | None:
    """None where the folder makes vectors."""
    architectures = config.get("architectures")
    called = architectures[0] if isinstance(architectures, list) and architectures else ""
    if not isinstance(called, str) or not called.endswith(CLASSIFIES):
        return None
    labels = _labels(config, where)
    head = family.head(_numbers(config, family, where))
    if head is None:
        raise UnknownArchitecture(f"{where}: {family.models[0]} that classifies is not supported")
    if len(labels) > 1:
        kind = config.get("problem_type") or SINGLE
        if kind not in (SINGLE, MULTIPLE):
            raise UnknownArchitecture(
                f"{where}: problem_type {str(kind)[:40]!r} is not supported; known are {SINGLE} and {MULTIPLE}"
            )
        return replace(head, sigmoid=kind == MULTIPLE, labels=labels)
    said = config.get("sentence_transformers")
    path = said.get("activation_fn") if isinstance(said, dict) else None
    path = path or config.get("sbert_ce_default_activation_function") or "Sigmoid"
    last = str(path).rpartition(".")[2]
    if last not in (IDENTITY, "Sigmoid"):
        raise UnknownArchitecture(
            f"{where}: scores through {last[:40]!r} are not supported; known are {IDENTITY} and Sigmoid"
        )
    return replace(head, sigmoid=last != IDENTITY)
