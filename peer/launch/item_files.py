"""Files as inputs of a model's items, and outputs as files: arrays, JSON, text, pictures and sound.

What comes from a file becomes what the manifest says of the input: its data type, and for pictures and sound its axes.
Edge.
"""

from __future__ import annotations

import glob
import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from peer.dataflow.value_codec import NUMPY, Array
from peer.errors import BadCommand
from peer.model.text_inputs import TextReader
from planner.model.graph_manifest import GraphManifest, Value

PICTURES: Final = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
SOUNDS: Final = (".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac")
ARRAYS: Final = (".npy", ".npz", ".json", ".txt")
MAX_SOUND_S: Final = 4 * 3600
MAX_TEXT_BYTES: Final = 256 << 20  # of a JSON or text file


@dataclass(frozen=True, slots=True)
class Shown:
    """How pictures and sound become numbers: (pixel / 255 - mean) / std for floats, sides of pictures that the model
    leaves open rounded to multiples of `multiple`, sound as one channel of `rate_hz` samples a second.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    multiple: int = 1
    rate_hz: int = 16_000


@dataclass(frozen=True, slots=True)
class ItemFiles:
    """The files of one item, by input; "": a .npz with an array for each input, or texts where the model takes them."""

    name: str
    files: Mapping[str, Path]


def items_of(given: Sequence[str], manifest: GraphManifest) -> list[ItemFiles]:
    """The items that `--input` options name: NAME=FILE, NAME=FOLDER or NAME=PATTERN, once for each input; what is one
    file belongs to every item. Without NAME= it is the only input, .npz files with arrays of all inputs, or .txt files
    with texts for a model that says how these become its inputs.

    Raises BadCommand.
    """
    files: dict[str, list[Path]] = {}
    for text in given:
        name, separator, pattern = text.partition("=")
        if not separator:
            alone = len(manifest.inputs) == 1 and manifest.text is None
            name, pattern = manifest.inputs[0] if alone else "", text
        if name and name not in manifest.inputs:
            raise BadCommand(
                f"--input {text}: {manifest.name} takes {', '.join(manifest.inputs)}, got {name}"
            )
        if name in files:
            raise BadCommand(f"--input {text}: expected each input once")
        files[name] = _files(pattern)
    missing = [] if "" in files else [name for name in manifest.inputs if name not in files]
    if missing:
        raise BadCommand(
            f"{manifest.name} takes {', '.join(manifest.inputs)}: give --input {missing[0]}=FILE, too"
        )
    counts = {len(found) for found in files.values() if len(found) > 1}
    if len(counts) > 1:
        told = ", ".join(f"{len(found)} for {name or 'all'}" for name, found in files.items())
        raise BadCommand(f"expected as many files for each input, or one for all items; got {told}")
    count = max(counts, default=1)
    leading = next((found for found in files.values() if len(found) == count), [])
    stems = [path.stem for path in leading]
    names = stems if len(set(stems)) == len(stems) else [f"{at:05}-{stem}" for at, stem in enumerate(stems)]
    return [
        ItemFiles(names[at], {name: found[at if len(found) > 1 else 0] for name, found in files.items()})
        for at in range(count)
    ]


def has_texts(items: Iterable[ItemFiles]) -> bool:
    """Whether a file of them has texts from which all inputs are made."""
    return any(not name and _is_text(path) for item in items for name, path in item.files.items())


def read_item(
    item: ItemFiles, manifest: GraphManifest, shown: Shown, reader: TextReader | None = None
) -> dict[str, Array]:
    """The inputs of an item; `reader` of texts, where the model takes them. Raises BadCommand that names the file."""
    values = {value.name: value for value in manifest.values if value.name in manifest.inputs}
    found: dict[str, Array] = {}
    for name, path in item.files.items():
        try:
            if name:
                found[name] = _read(path, values[name], shown)
            elif reader is not None and _is_text(path):
                found |= reader.arrays(_text(path).splitlines())
            elif len(manifest.inputs) == 1 and path.suffix.lower() != ".npz":
                found[manifest.inputs[0]] = _read(path, values[manifest.inputs[0]], shown)
            else:
                found |= _all_arrays(path, manifest)
        except BadCommand as error:
            raise BadCommand(f"{path}: {error}") from None
        except (OSError, ValueError, SyntaxError, EOFError, OverflowError, RecursionError) as error:
            raise BadCommand(f"{path}: {path.suffix or 'a known kind of file'} expected: {error}") from None
    return found


def write_outputs(folder: Path, name: str, outputs: Mapping[str, Array]) -> Path:
    """Writes `name`.npz into the folder, whole or not at all; strings as UTF-8 JSON beside it."""
    path, part = folder / f"{name}.npz", folder / f".{name}.part"
    numbers = {key: array for key, array in outputs.items() if array.dtype != object}
    words = {key: array.tolist() for key, array in outputs.items() if array.dtype == object}
    if words:
        _replace(folder / f".{name}.json.part", folder / f"{name}.json", json.dumps(words).encode())
    with part.open("wb") as file:
        np.savez(file, **numbers)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return path


def is_written(folder: Path, name: str) -> bool:
    """Whether the outputs of that item are there."""
    return (folder / f"{name}.npz").exists()


def _replace(part: Path, path: Path, data: bytes) -> None:
    part.write_bytes(data)
    part.replace(path)


def _files(pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_dir():
        found = sorted(
            each for each in path.iterdir() if each.suffix.lower() in (*PICTURES, *SOUNDS, *ARRAYS)
        )
    elif path.is_file():
        return [path]
    else:
        found = sorted(Path(each) for each in glob.glob(pattern, recursive=True))
    if not found:
        raise BadCommand(
            f"{pattern}: expected a file, a folder with files, or a pattern such as '*.png' in quotes"
        )
    return found


def _is_text(path: Path) -> bool:
    return path.suffix.lower() == ".txt"


def _all_arrays(path: Path, manifest: GraphManifest | None = None) -> dict[str, Array]:
    if path.suffix.lower() != ".npz":
        texts = (
            ", or a .txt file with a text a line"
            if manifest is not None and manifest.text is not None
            else ""
        )
        raise BadCommand(f"expected NAME=FILE, or an .npz file with an array for each input{texts}")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _read(path: Path, value: Value, shown: Shown) -> Array:
    match path.suffix.lower():
        case ".npy":
            array: Array = np.load(path, allow_pickle=False)
            return array
        case ".npz":
            arrays = _all_arrays(path)
            if value.name not in arrays and len(arrays) != 1:
                raise BadCommand(f"expected an array {value.name}, got {', '.join(arrays)}")
            return arrays.get(value.name, next(iter(arrays.values())))
        case ".json":
            return _typed(json.loads(_text(path)), value)
        case ".txt" if value.dtype == "string":
            return _with_axes(np.array(_text(path).splitlines(), object), value)
        case ".txt":
            return _with_axes(np.loadtxt(path, dtype=NUMPY.get(value.dtype), ndmin=1), value)
        case suffix if suffix in PICTURES:
            return _picture(path, value, shown)
        case suffix if suffix in SOUNDS:
            return _with_axes(_sound(path, value, shown), value)
        case suffix:
            known = ", ".join((*ARRAYS, *PICTURES, *SOUNDS))
            raise BadCommand(f"expected one of {known}, got {suffix or 'a file without suffix'}")


def _text(path: Path) -> str:
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise BadCommand(f"at most {MAX_TEXT_BYTES} bytes expected: give an .npy file")
    return path.read_text()


def _typed(given: object, value: Value) -> Array:
    try:
        return np.asarray(given, NUMPY.get(value.dtype))
    except (ValueError, TypeError, OverflowError) as error:
        raise BadCommand(f"numbers of {value.dtype} expected: {error}") from None


def _with_axes(array: Array, value: Value) -> Array:
    """With axes of one in front, where the model has more."""
    lacking = len(value.shape) - array.ndim
    fits = lacking > 0 and all(isinstance(size, str) or size == 1 for size in value.shape[:lacking])
    return array.reshape((1,) * lacking + array.shape) if fits else array


def _picture(path: Path, value: Value, shown: Shown) -> Array:
    try:
        from PIL import Image
    except ImportError:
        raise BadCommand("pictures need Pillow: pip install pillow") from None
    first, channels, height, width = _picture_axes(value)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(path) as opened:
                picture = opened.convert("L" if channels == 1 else "RGB")
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise BadCommand(str(error)) from None
    sides = (_side(width, picture.width, shown.multiple), _side(height, picture.height, shown.multiple))
    if sides != picture.size:
        picture = picture.resize(sides, Image.Resampling.BILINEAR)
    array: Array = np.asarray(picture)
    if channels == 1:
        array = array[:, :, None]
    if value.dtype.startswith("float"):
        array = (array / np.float32(255) - np.asarray(shown.mean, np.float32)) / np.asarray(
            shown.std, np.float32
        )
    if first:
        array = array.transpose(2, 0, 1)
    return _with_axes(np.ascontiguousarray(array.astype(NUMPY[value.dtype])), value)


def _picture_axes(value: Value) -> tuple[bool, int, int | str, int | str]:
    """Whether channels come first, how many, height and width. Raises BadCommand."""
    shape = value.shape[-3:]
    if len(value.shape) in (3, 4) and value.dtype in NUMPY and value.dtype != "string":
        if shape[0] in (1, 3):
            return True, int(shape[0]), shape[1], shape[2]
        if shape[2] in (1, 3):
            return False, int(shape[2]), shape[0], shape[1]
    words = ", ".join(map(str, value.shape))
    raise BadCommand(f"{value.name} is {value.dtype} ({words}), which no picture has: give an .npy file")


def _side(wanted: int | str, there: int, multiple: int) -> int:
    return wanted if isinstance(wanted, int) else max(round(there / multiple), 1) * multiple


def _sound(path: Path, value: Value, shown: Shown) -> Array:
    import av

    parts: list[Array] = []
    samples = 0
    try:
        with av.open(str(path)) as opened:
            if not opened.streams.audio:
                raise BadCommand("expected a file with sound")
            resampler = av.AudioResampler(format="fltp", rate=shown.rate_hz)
            for frame in _frames(opened, resampler):
                parts.append(frame.to_ndarray().mean(axis=0))
                samples += parts[-1].size
                if samples > MAX_SOUND_S * shown.rate_hz:
                    raise BadCommand(f"at most {MAX_SOUND_S // 3600} hours of sound expected")
    except av.FFmpegError as error:
        raise BadCommand(f"sound expected: {error}") from None
    array = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    if value.dtype == "int16":
        return (array * 32767).clip(-32768, 32767).astype(np.int16)
    return array.astype(NUMPY.get(value.dtype, np.dtype("f4")))


def _frames(opened: Any, resampler: Any) -> Iterable[Any]:
    for frame in opened.decode(audio=0):
        yield from resampler.resample(frame)
    yield from resampler.resample(None)
