"""Reads the text in a photograph on the machines of a mesh, with three models that it offers:

shoal serve smollm2-135m ppocr-v4-det ppocr-v4-cls ppocr-v4-rec
python examples/ocr.py 'http://127.0.0.1:8765/#...' [PICTURE]     (without a picture: one that it draws)

A detector finds lines of text, a classifier tells which are upside down, a recogniser reads them. Boxes are upright.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

from peer import Mesh
from peer.errors import PeerError
from peer.launch.defaults import cache_folder
from peer.launch.streams import take_any_text
from planner.errors import ModelError
from planner.importers.registry import fetch_short_graph
from signaling.errors import SignalingError

LINES = ("Shoal reads this sign", "one model in three parts", "open 9 to 17")
SHORT_SIDE, LONG_SIDE = 736, 2000  # pixels of what the detector sees
TEXT = 0.3  # probability from which a pixel belongs to text
LINE = 0.5  # mean probability from which a box is a line
GROWN = 1.6  # the detector's boxes are smaller than the text, by its training
UPSIDE_DOWN = 0.9
SURE = 0.5  # mean probability of a line's characters
Array = np.ndarray[Any, Any]
Run = Callable[[str, Mapping[str, Array]], Mapping[str, Array]]  # a model's outputs of its inputs


def drawn() -> Image.Image:
    """A sign with LINES on a grey wall."""
    picture = Image.new("RGB", (900, 420), (176, 172, 160))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((40, 40, 860, 380), fill=(250, 250, 244), outline=(40, 60, 90), width=6)
    for place, line in enumerate(LINES):
        draw.text((90, 80 + 100 * place), line, fill=(20, 30, 50), font=ImageFont.load_default(52))
    return picture


def read(picture: Image.Image, run: Run, characters: list[str]) -> Iterator[str]:
    """The lines of text, from top to bottom."""
    for box in lines(picture, run):
        cut = picture.crop(box)
        upright, turned = only(run("ppocr-v4-cls", {"x": batch(at_height(cut, 48, 192), 192)}))[0]
        if turned > max(upright, UPSIDE_DOWN):
            cut = cut.rotate(180)
        text, sure = decoded(only(run("ppocr-v4-rec", {"x": batch(at_height(cut, 48), 320)}))[0], characters)
        if text and sure >= SURE:
            yield text


def lines(picture: Image.Image, run: Run) -> list[tuple[int, int, int, int]]:
    """Boxes of lines of text in pixels of the picture, from top to bottom."""
    scale = min(max(1.0, SHORT_SIDE / min(picture.size)), LONG_SIDE / max(picture.size))
    width, height = (max(32, round(side * scale / 32) * 32) for side in picture.size)
    likely = only(run("ppocr-v4-det", {"x": batch(picture.resize((width, height)), width)}))[0, 0]
    found = []
    for left, top, right, bottom in islands(likely > TEXT):
        wide, high = right - left, bottom - top
        if min(wide, high) < 3 or likely[top:bottom, left:right].mean() < LINE:
            continue
        grow = wide * high * GROWN / (2 * (wide + high))
        edges = (left - grow, top - grow, right + grow, bottom + grow)
        ratios = (picture.width / width, picture.height / height)
        x1, y1, x2, y2 = (edge * ratios[place % 2] for place, edge in enumerate(edges))
        box = (max(0, x1), max(0, y1), min(picture.width, x2), min(picture.height, y2))
        found.append(tuple(round(edge) for edge in box))
    return sorted(found, key=lambda box: (box[1], box[0]))


def islands(mask: Array) -> list[tuple[int, int, int, int]]:
    """Boxes around what touches in the mask (rows, columns): runs of a row join runs that they overlap above."""
    boxes: list[list[int]] = []
    above: list[tuple[int, int, list[int]]] = []
    for row, line in enumerate(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8)):
        edges = np.flatnonzero(np.diff(line))
        here = []
        for left, right in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            box = [left, row, right, row + 1]
            for other in {id(b): b for start, stop, b in above if start <= right and left <= stop}.values():
                boxes[:] = [each for each in boxes if each is not other]
                box[:] = [min(box[0], other[0]), min(box[1], other[1]), max(box[2], other[2]), row + 1]
                above = [(start, stop, box if b is other else b) for start, stop, b in above]
                here = [(start, stop, box if b is other else b) for start, stop, b in here]
            boxes.append(box)
            here.append((left, right, box))
        above = here
    return [(left, top, right, bottom) for left, top, right, bottom in boxes]


def at_height(picture: Image.Image, height: int, most: int = 4096) -> Image.Image:
    """The picture at that height, `most` pixels wide at most."""
    return picture.resize((min(most, max(1, round(picture.width * height / picture.height))), height))


def batch(picture: Image.Image, width: int) -> Array:
    """float32 (1, 3, height, width or more), blue first, from -1 to 1; what is missing in width is 0."""
    pixels = np.asarray(picture.convert("RGB"), np.float32)[..., ::-1].transpose(2, 0, 1) / 127.5 - 1
    return np.pad(pixels, ((0, 0), (0, 0), (0, max(0, width - picture.width))))[None]


def only(outputs: Mapping[str, Array]) -> Array:
    """The output of a model that has one."""
    (array,) = outputs.values()
    return array


def decoded(likely: Array, characters: list[str]) -> tuple[str, float]:
    """The text and the mean probability of its characters, of probabilities (places, 1 + characters): the likeliest of
    each place, once where it repeats, without blanks, which are 0 (CTC).
    """
    best = likely.argmax(1)
    kept = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
    sure = likely.max(1)[kept]
    return "".join(characters[each - 1] for each in best[kept]), float(sure.mean()) if sure.size else 0.0


def known_characters() -> list[str]:
    """Those that the recogniser tells apart, in its order: its file says so, beside its weights."""
    model = onnx.load(fetch_short_graph("ppocr-v4-rec", cache_folder()))
    return [*{each.key: each.value for each in model.metadata_props}["character"].split("\n"), " "]


def main() -> int:
    """Exit status 1 and one line when the mesh cannot run it."""
    take_any_text()
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        picture = Image.open(Path(sys.argv[2])).convert("RGB") if len(sys.argv) == 3 else drawn()
        characters = known_characters()
        with Mesh.join_blocking(sys.argv[1]) as mesh:
            for line in read(picture, mesh.run, characters):
                print(line)
    except (PeerError, SignalingError, ModelError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
