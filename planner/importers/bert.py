"""How a sentence-transformers folder with a BERT encoder reads as planner.model.encoder.SourceEncoder.

Its modules say what follows the encoder: how rows become one vector, and whether that gets length one. What is not
known here is refused, because a vector that was made another way looks just like a right one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture
from planner.importers.hf_config import Json, Numbers, read_file, read_json, tokenizer_of
from planner.importers.layout import check_tensors
from planner.importers.safetensors import FolderTensor, read_files
from planner.model.encoder import Activation, EncoderNumbers, Pooling, numbers_problem, tensor_shapes

MODULES: Final = "modules.json"
LENGTHS: Final = "sentence_bert_config.json"
PROMPTS: Final = "config_sentence_transformers.json"
FOLDER_FILES: Final = (MODULES, LENGTHS, PROMPTS, "*_Pooling/config.json")
KNOWN: Final = ("bert",)

_ACTIVATIONS: Final[Mapping[object, Activation]] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_MODES: Final[Mapping[str, Pooling]] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_HARMLESS: Final = re.compile(r"(bert\.)?(embeddings\.(position_ids|token_type_ids)|pooler\..*|cls\..*)")
_EMBEDDING: Final = {
    "words": "embeddings.word_embeddings.weight",
    "positions": "embeddings.position_embeddings.weight",
    "type": "embeddings.token_type_embeddings.weight",
    "norm.weight": "embeddings.LayerNorm.weight",
    "norm.bias": "embeddings.LayerNorm.bias",
}
_LAYER: Final = {
    "o": "attention.output.dense",
    "o.norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "down.norm": "output.LayerNorm",
}


def is_encoder(folder: Path) -> bool:
    """Whether the folder says that it holds an embedding model."""
    if (folder / MODULES).is_file():
        return True
    config = read_json(folder, "config.json")
    return config is not None and config.get("model_type") in KNOWN


def open_encoder(folder: Path, name: str | None = None) -> BertModel:
    """Raises a ModelError that says what was expected."""
    where = folder.name
    config = read_json(folder, "config.json")
    if config is None:
        raise NoSuchModel(f"{folder} has no config.json: expected a sentence-transformers folder")
    files = read_files(folder, _HARMLESS)
    prefix = "bert." if "bert.embeddings.word_embeddings.weight" in files else ""
    found = {file.removeprefix(prefix): tensor for file, tensor in files.items()}
    numbers = _numbers(folder, config, found)
    shapes = _file_shapes(numbers, found)

    def shape(file: str) -> tuple[int, ...] | None:
        tensor = found.get(file)
        return None if tensor is None else tensor.shape

    check_tensors(shapes, shape, lambda file: file, where)
    for stranger in sorted(found.keys() - shapes.keys()):
        raise UnknownArchitecture(
            f"{where}: tensor {stranger} has no place in bert as known here; this variant is not supported"
        )
    content, _ = tokenizer_of(folder, numbers.vocab)
    return BertModel(name or folder.resolve().name, numbers, content, found)


@dataclass(frozen=True, slots=True)
class BertModel:
    """The folder, as planner.model.encoder.SourceEncoder."""

    name: str
    numbers: EncoderNumbers
    tokenizer_json: bytes
    tensors: Mapping[str, FolderTensor]

    def weights(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor with our name `name`."""
        stored = [self.tensors[file].float32() for file in _file_names(name)]
        if name == "embed.type":  # the first kind of sentence: there is no second one in a text
            return np.ascontiguousarray(stored[0][0])
        return stored[0] if len(stored) == 1 else np.concatenate(stored)


def _file_names(ours: str) -> tuple[str, ...]:
    part, _, tensor = ours.partition(".")
    if part == "embed":
        return (_EMBEDDING[tensor],)
    block, _, tensor = tensor.partition(".")
    linear, _, kind = tensor.rpartition(".")
    kind = "weight" if kind == "w" else kind
    before = f"encoder.layer.{block}"
    if linear == "qkv":
        return tuple(f"{before}.attention.self.{one}.{kind}" for one in ("query", "key", "value"))
    return (f"{before}.{_LAYER[linear]}.{kind}",)


def _file_shapes(numbers: EncoderNumbers, found: Mapping[str, FolderTensor]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for part, tensors in tensor_shapes(numbers).items():
        for tensor, shape in tensors.items():
            names = _file_names(f"{part}.{tensor}")
            for file in names:
                shapes[file] = (shape[0] // len(names), *shape[1:])
    kinds = found.get(_EMBEDDING["type"])
    if kinds is not None and len(kinds.shape) == 2 and kinds.shape[0] >= 1:
        shapes[_EMBEDDING["type"]] = (kinds.shape[0], numbers.hidden)
    return shapes


def _numbers(folder: Path, config: Json, found: Mapping[str, FolderTensor]) -> EncoderNumbers:
    where = folder.name
    family = config.get("model_type")
    if family not in KNOWN:
        raise UnknownArchitecture(
            f"{where}: an embedding model of type {family!r} is not supported; known are {', '.join(KNOWN)}"
        )
    for key, usual in (("position_embedding_type", "absolute"), ("is_decoder", False)):
        if config.get(key, usual) != usual:
            raise UnknownArchitecture(f"{where}: expected {key} {usual!r}, got {config[key]!r:.40}")
    activation = _ACTIVATIONS.get(config.get("hidden_act", "gelu"))
    if activation is None:
        raise UnknownArchitecture(
            f"{where}: hidden_act {config['hidden_act']!r:.40} is not supported; known are "
            f"{', '.join(map(str, _ACTIVATIONS))}"
        )
    pooling, normalize = _modules(folder)
    source = Numbers(config, where)
    positions = source.whole("max_position_embeddings")
    numbers = EncoderNumbers(
        blocks=source.whole("num_hidden_layers"),
        hidden=source.whole("hidden_size"),
        heads=source.whole("num_attention_heads"),
        ffn=source.whole("intermediate_size"),
        vocab=source.whole("vocab_size"),
        positions=positions,
        max_tokens=_max_tokens(folder, positions),
        norm_epsilon=source.real("layer_norm_eps", 1e-12),
        activation=activation,
        pooling=pooling,
        normalize=normalize,
    )
    if problem := numbers_problem(numbers):
        raise CorruptModel(f"{where}: {problem}")
    return numbers


def _max_tokens(folder: Path, positions: int) -> int:
    settings = read_json(folder, LENGTHS) or {}
    if settings.get("do_lower_case"):
        raise UnknownArchitecture(f"{folder.name}: do_lower_case of {LENGTHS} is not supported")
    if settings.get("max_seq_length") is None:
        return positions
    return min(positions, Numbers(settings, folder.name).whole("max_seq_length"))


def _modules(folder: Path) -> tuple[Pooling, bool]:
    """How rows become a vector, and whether it gets length one."""
    where = folder.name
    content = read_file(folder, MODULES)
    if content is None:
        raise NoSuchModel(
            f"{folder} has no {MODULES}, which says how the rows of a text become one vector: expected a "
            "sentence-transformers folder"
        )
    try:
        modules = json.loads(content)
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        paths = [str(module["path"]) for module in modules]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise CorruptModel(f"{where}: {MODULES} should list modules with type and path") from error
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or paths[0]:
        raise UnknownArchitecture(
            f"{where}: expected the modules Transformer, Pooling and at most Normalize, got {', '.join(kinds):.200}"
        )
    if not re.fullmatch(r"[\w-]+", paths[1]):
        raise CorruptModel(f"{where}: {MODULES} names the folder {paths[1]!r:.80}, expected one beside it")
    prompts = read_json(folder, PROMPTS) or {}
    if prompts.get("default_prompt_name") is not None:
        raise UnknownArchitecture(f"{where}: a default prompt before every text is not supported")
    return _pooling(folder / paths[1], where), len(kinds) == 3


def _pooling(folder: Path, where: str) -> Pooling:
    settings = read_json(folder, "config.json")
    if settings is None:
        raise NoSuchModel(f"{where}: {folder.name} has no config.json: download the folder again")
    modes = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise UnknownArchitecture(
            f"{where}: expected one of {', '.join(_MODES)}, got {', '.join(modes) or 'none'}"
        )
    return _MODES[modes[0]]
