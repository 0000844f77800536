"""Inputs to try a model with: made from the declared shapes, or of a person's file.

Sizes that nobody gave are guessed: 1 for batches, and for the others several until the model runs. Numbers are drawn
from a fixed seed.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.errors import CorruptModel, NoSuchModel
from planner.importers.onnx.reading import Input
from planner.importers.onnx.sessions import Array, NotRun, run
from planner.model.graph_manifest import ValueType

IMAGE_SIZES: Final = (64, 48, 224, 32, 320, 640)
OTHER_SIZES: Final = (16, 64, 512, 128, 8, 1)
MOST_GUESSES: Final = 32
MOST_ELEMENTS: Final = 1 << 28  # of one input
FILLS: Final = ("varied", "ones", "zeros")

NUMPY: Final[Mapping[ValueType, Any]] = {
    "float32": np.float32, "float64": np.float64, "float16": np.float16, "int8": np.int8, "uint8": np.uint8,
    "int16": np.int16, "uint16": np.uint16, "int32": np.int32, "uint32": np.uint32, "int64": np.int64,
    "uint64": np.uint64, "bool": np.bool_, "string": np.object_,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs that a model runs with. `sizes`: what its symbolic sizes are in them."""

    inputs: Mapping[str, Array]
    sizes: Mapping[str, int]


def symbols(inputs: Sequence[Input]) -> tuple[str, ...]:
    """The symbolic sizes of the inputs, in order."""
    return tuple(dict.fromkeys(size for each in inputs for size in each.shape if isinstance(size, str)))


def found_sample(session: Any, inputs: Sequence[Input], given: Mapping[str, int], name: str) -> Sample:
    """Made-up inputs that the model runs with. `given`: sizes by name. Raises CorruptModel where none of them does."""
    known = symbols(inputs)
    for size in given:
        if size not in known:
            raise NoSuchModel(
                f"{name} has no size called {size[:80]!r}: {', '.join(known)[:300] or 'it has none'}"
            )
    first: NotRun | None = None
    tried: list[str] = []
    for sizes in _guesses(inputs, given):
        tried.append(", ".join(f"{key}={value}" for key, value in sizes.items()))
        for fill in FILLS:
            sample = Sample(made_up(inputs, sizes, fill), sizes)
            try:
                run(session, sample.inputs)
            except NotRun as error:
                first = first or error
            else:
                return sample
    raise CorruptModel(
        f"{name} runs with none of the made-up inputs (sizes {'; '.join(tried)[:200] or 'all declared'}): {first}; "
        "give its sizes with --size NAME=N or inputs with --sample FILE.npz"
    )


def made_up(inputs: Sequence[Input], sizes: Mapping[str, int], fill: str = "varied") -> dict[str, Array]:
    """Inputs of these sizes. Raises CorruptModel where one would be too large."""
    return {each.name: _array(each, sizes, fill, number) for number, each in enumerate(inputs)}


def sample_of_file(path: Path, inputs: Sequence[Input], name: str) -> Sample:
    """The inputs that a .npz file has under their names. Raises NoSuchModel or CorruptModel."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {each.name: arrays[each.name] for each in inputs if each.name in arrays.files}
    except OSError as error:
        raise NoSuchModel(f"the sample {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise CorruptModel(
            f"the sample {path}: an .npz file of arrays expected: {str(error)[:200]}"
        ) from None
    sizes: dict[str, int] = {}
    for each in inputs:
        if each.name not in found:
            raise CorruptModel(f"the sample {path} has no array {each.name[:80]!r}, which {name} needs")
        array = found[each.name] = _as_declared(found[each.name], each.dtype)
        expected = ", ".join(map(str, each.shape))
        if array.dtype != NUMPY[each.dtype] or array.ndim != len(each.shape):
            raise CorruptModel(
                f"the sample {path}: {each.name[:80]!r}: {each.dtype} of shape ({expected}) expected, got "
                f"{array.dtype} of {array.shape}"
            )
        for size, count in zip(each.shape, array.shape, strict=True):
            if (sizes.setdefault(size, count) if isinstance(size, str) else size) != count:
                raise CorruptModel(
                    f"the sample {path}: {each.name[:80]!r}: shape ({expected}) expected, got {array.shape}, where "
                    f"{size} is {sizes.get(str(size), size)}"
                )
    return Sample(found, sizes)


def _as_declared(array: Array, dtype: ValueType) -> Array:
    return array.astype(object) if dtype == "string" and array.dtype.kind in "US" else array


def _guesses(inputs: Sequence[Input], given: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes to try: all at their likely ones, then with each of them 1."""
    choices = {size: (given[size],) if size in given else _choices(size, inputs) for size in symbols(inputs)}
    told: list[dict[str, int]] = []
    open_sizes = [size for size, likely in choices.items() if len(likely) > 1]
    for one in ("", *open_sizes):
        for number in range(max((len(each) for each in choices.values()), default=1)):
            sizes = {size: each[min(number, len(each) - 1)] for size, each in choices.items()}
            if one:
                sizes[one] = 1
            if sizes not in told and len(told) < MOST_GUESSES:
                told.append(sizes)
                yield sizes


def _choices(size: str, inputs: Sequence[Input]) -> tuple[int, ...]:
    """What a size may be, likely ones first."""
    places = [(each, axis) for each in inputs for axis, its in enumerate(each.shape) if its == size]
    if "batch" in size.lower() or all(axis == 0 and len(each.shape) > 1 for each, axis in places):
        return (1,)
    return IMAGE_SIZES if any(len(each.shape) >= 4 for each, _ in places) else OTHER_SIZES


def _array(each: Input, sizes: Mapping[str, int], fill: str, seed: int) -> Array:
    shape = tuple(size if isinstance(size, int) else sizes[size] for size in each.shape)
    if math.prod(shape) > MOST_ELEMENTS:
        raise CorruptModel(
            f"input {each.name[:80]!r} of shape {shape}: at most {MOST_ELEMENTS} elements expected"
        )
    dtype = NUMPY[each.dtype]
    if each.dtype == "string":
        return np.full(shape, "a" if fill != "zeros" else "", dtype)
    if fill == "zeros":
        return np.zeros(shape, dtype)
    if each.dtype == "bool" or fill == "ones" or "mask" in each.name.lower():
        return np.ones(shape, dtype)
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1, 4, shape).astype(dtype)
    return (rng.standard_normal(shape, np.float32) / 2).astype(dtype)
