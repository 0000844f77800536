"""How the rows of a text become its vector, as the modules of a sentence-transformers folder say it.

What is not known here is refused, because a vector that was made another way looks just like a right one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture
from planner.importers.encoders.shape import Floats
from planner.importers.hf_config import Json, Numbers, read_file, read_json
from planner.importers.layout import check_tensors
from planner.importers.safetensors import read_files

MODULES: Final = "modules.json"
LENGTHS: Final = "sentence_bert_config.json"
PROMPTS: Final = "config_sentence_transformers.json"
FOLDER_FILES: Final = (
    MODULES,
    LENGTHS,
    PROMPTS,
    "*_Pooling/config.json",
    "*_Dense/config.json",
    "*_Dense/model.safetensors",
)
MOST_MODULES: Final = 8
MOST_WIDTH: Final = 1 << 16  # of a vector, as a manifest has it

Pooling = Literal["mean", "cls", "max"]

_MODES: Final[Mapping[str, Pooling]] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_KEYS: Final[Mapping[str, str]] = {mode: key for key, mode in _MODES.items()}
_DENSE_ACTIVATIONS: Final = {
    "Identity": None,
    "Tanh": "Tanh",
    "ReLU": "Relu",
    "GELU": "Gelu",
    "Sigmoid": "Sigmoid",
}
_NO_TENSORS: Final = re.compile(r"$^")


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer of a vector. `weight`: (outputs, inputs); `operator`: of its activation, None without one."""

    weight: Floats
    bias: Floats | None
    operator: str | None


@dataclass(frozen=True, slots=True)
class VectorEnding:
    """`after`: what follows the pooling, in order; None is a division by the length."""

    pooling: Pooling
    after: tuple[Dense | None, ...]


def vector_ending(folder: Path, hidden: int) -> VectorEnding:
    """What follows an encoder of rows of `hidden` numbers. Raises a ModelError."""
    where = folder.name
    kinds, paths = _modules(folder)
    names = ", ".join(kinds)[:200]
    if kinds[:2] != ["Transformer", "Pooling"] or paths[0] or not {*kinds[2:]} <= {"Dense", "Normalize"}:
        raise UnknownArchitecture(
            f"{where}: expected the modules Transformer, Pooling and then Dense or Normalize alone, got {names}"
        )
    for path in paths[1:]:
        if not re.fullmatch(r"[\w-]+", path):
            raise CorruptModel(f"{where}: {MODULES} names the folder {path!r:.80}, expected one beside it")
    prompts = read_json(folder, PROMPTS) or {}
    if prompts.get("default_prompt_name") is not None:
        raise UnknownArchitecture(f"{where}: a default prompt before every text is not supported")
    after: list[Dense | None] = []
    width = hidden
    for kind, path in zip(kinds[2:], paths[2:], strict=True):
        if kind == "Dense":
            after.append(dense := _dense(folder / path, where, width))
            width = dense.weight.shape[0]
        else:
            after.append(None)
    return VectorEnding(_pooling(folder / paths[1], where), tuple(after))


def most_tokens(folder: Path, positions: int) -> int:
    """How many tokens a text has at most. Raises a ModelError."""
    settings = read_json(folder, LENGTHS) or {}
    if settings.get("do_lower_case"):
        raise UnknownArchitecture(f"{folder.name}: do_lower_case of {LENGTHS} is not supported")
    said = settings.get("max_seq_length")
    if said is None:
        said = (read_json(folder, "tokenizer_config.json") or {}).get("model_max_length")
        if not isinstance(said, int) or isinstance(said, bool) or said < 1:  # a float is "no bound"
            return positions
        return min(positions, said)
    most = min(positions, Numbers(settings, folder.name).whole("max_seq_length"))
    if most < 1:
        raise CorruptModel(f"{folder.name}: max_seq_length of at least 1 expected")
    return most


def _modules(folder: Path) -> tuple[list[str], list[str]]:
    """Kinds and folders."""
    content = read_file(folder, MODULES)
    if content is None:
        raise NoSuchModel(
            f"{folder} has no {MODULES}, which says how the rows of a text become one vector: expected a "
            "sentence-transformers folder"
        )
    try:
        modules = json.loads(content)[: MOST_MODULES + 1]
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        paths = [str(module["path"]) for module in modules]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise CorruptModel(f"{folder.name}: {MODULES} should list modules with type and path") from error
    if len(kinds) > MOST_MODULES:
        raise UnknownArchitecture(f"{folder.name}: {MODULES}: at most {MOST_MODULES} modules expected")
    return kinds, paths


def _pooling(folder: Path, where: str) -> Pooling:
    settings = read_json(folder, "config.json")
    if settings is None:
        raise NoSuchModel(f"{where}: {folder.name} has no config.json: download the folder again")
    modes = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    said = settings.get("pooling_mode")  # as newer versions write it
    if said is not None:
        named = said if isinstance(said, list) else [said]
        modes = [_KEYS.get(str(each), f"pooling_mode {str(each)[:40]}") for each in named]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise UnknownArchitecture(
            f"{where}: expected one of {', '.join(_MODES)}, got {', '.join(modes)[:200] or 'none'}"
        )
    if settings.get("include_prompt", True) is not True:
        raise UnknownArchitecture(f"{where}: a pooling that leaves prompts out is not supported")
    return _MODES[modes[0]]


def _dense(folder: Path, where: str, width: int) -> Dense:
    settings = read_json(folder, "config.json")
    if settings is None:
        raise NoSuchModel(f"{where}: {folder.name} has no config.json: download the folder again")
    said = Numbers(settings, f"{where}/{folder.name}")
    operator = _dense_activation(settings, where)
    inputs, outputs = said.whole("in_features"), said.whole("out_features")
    if inputs != width or not 1 <= outputs <= MOST_WIDTH:
        raise CorruptModel(
            f"{where}: {folder.name} should make 1 to {MOST_WIDTH} numbers of {width}, makes {outputs} of {inputs}"
        )
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, inputs)}
    if said.flag("bias", True):
        shapes["linear.bias"] = (outputs,)
    found = read_files(folder, _NO_TENSORS)
    check_tensors(
        shapes,
        lambda name: found[name].shape if name in found else None,
        lambda name: name,
        f"{where}/{folder.name}",
    )
    bias = found["linear.bias"].float32() if "linear.bias" in shapes else None
    return Dense(found["linear.weight"].float32(), bias, operator)


def _dense_activation(settings: Json, where: str) -> str | None:
    called = str(settings.get("activation_function", "")).rpartition(".")[2]
    if called not in _DENSE_ACTIVATIONS:
        raise UnknownArchitecture(
            f"{where}: activation {called[:80]!r} of a Dense is not supported; known are "
            f"{', '.join(_DENSE_ACTIVATIONS)}"
        )
    return _DENSE_ACTIVATIONS[called]
