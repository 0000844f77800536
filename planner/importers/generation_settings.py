"""What a model file says of how its answers are drawn: generation_config.json, and general.sampling of GGUF files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from planner.errors import CorruptModel
from planner.importers.gguf_file import GgufFile
from planner.importers.hf_config import Numbers, read_json
from planner.model.sampling_defaults import BOUNDS, LIKELIEST, USUAL, WHOLE, SamplingDefaults

GENERATION_CONFIG: Final = "generation_config.json"
_DRAWN: Final = ("temperature", "top_k", "top_p", "min_p")
_GGUF_KEYS: Final[Mapping[str, str]] = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


def of_folder(folder: Path) -> SamplingDefaults | None:
    """What a folder's generation_config.json says; None where there is none, or it says nothing of sampling.

    `do_sample` false is the likeliest token always, whatever stands beside it. Without it, as many files are, settings
    of sampling mean that tokens are drawn with them. Raises CorruptModel.
    """
    config = read_json(folder, GENERATION_CONFIG)
    if config is None:
        return None
    where = f"{folder.name}: {GENERATION_CONFIG}"
    draws = config.get("do_sample")
    if draws is not None and not isinstance(draws, bool):
        raise CorruptModel(f"{where}: do_sample should be true or false, is {str(draws)[:40]!r}")
    numbers = Numbers(config, where)

    def stated(name: str) -> float | None:
        return None if config.get(name) is None else numbers.real(name)

    return _defaults(stated, lambda name: f"{where}: {name}", draws)


def of_gguf(file: GgufFile) -> SamplingDefaults | None:
    """What a GGUF file says; None where it says nothing of sampling. Raises CorruptModel."""

    def stated(name: str) -> float | None:
        return file.number(_GGUF_KEYS[name])

    return _defaults(stated, lambda name: f"{file.path.name}: {_GGUF_KEYS[name]}", None)


def _defaults(
    stated: Callable[[str], float | None], place: Callable[[str], str], draws: bool | None
) -> SamplingDefaults | None:
    """`draws` None: not said. What is stated of drawing replaces the usual choice as a whole; what is not is off."""
    found = {name: _within(name, value, place) for name in BOUNDS if (value := stated(name)) is not None}
    penalty = found.get("repetition_penalty", 1.0)
    if draws is False:
        return replace(LIKELIEST, repetition_penalty=penalty)
    if draws is None and not any(name in found for name in _DRAWN):
        return None if "repetition_penalty" not in found else replace(USUAL, repetition_penalty=penalty)
    return SamplingDefaults(
        temperature=found.get("temperature", 1.0),
        top_k=int(found.get("top_k", 0)),
        top_p=found.get("top_p", 1.0),
        min_p=found.get("min_p", 0.0),
        repetition_penalty=penalty,
    )


def _within(name: str, value: float, place: Callable[[str], str]) -> float:
    low, high = BOUNDS[name]
    if name == "top_k":
        value = max(value, 0)  # below 0 is off as well, as programs write it
    if not low <= value <= high or (name in WHOLE and value != int(value)):
        kind = "a whole number" if name in WHOLE else "a number"
        raise CorruptModel(f"{place(name)} should be {kind} from {low:g} to {high:g}, is {value:g}")
    return value
