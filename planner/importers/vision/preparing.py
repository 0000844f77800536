"""What a model wants done to a picture, as preprocessor_config.json says it, and the ONNX graph that does it.

The graph takes `picture`, uint8 (height, width, 3), and makes `pixels`, float32 (1, 3, size, size): resized as Pillow
does (to the whole, or its shorter side with the middle cut out), scaled, and normalized. Of models for which pictures
keep their form it makes (1, 3, height, width), both multiples of a square. Whoever asks runs it, tab or process, so
that both make the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture
from planner.importers.hf_config import Json, Numbers
from planner.model.graph_manifest import MAX_SIDE
from planner.model.onnx_graph import IR_VERSION, OPSET

FILE: Final = "preprocessor_config.json"
_MODES: Final[Mapping[int, str]] = {2: "linear", 3: "cubic"}  # of Pillow's numbers
_BITS: Final = 1 / 255


@dataclass(frozen=True, slots=True)
class Preparing:
    """`size`: of the square that the model takes, in pixels. `shorter`: to which the shorter side is resized before the
    middle is cut out; None: the whole picture becomes the square. `area`: least and most pixels where pictures keep
    their form, sides being multiples of `size`. `mean`, `std`: of red, green and blue.
    """

    size: int
    shorter: int | None
    mode: str  # "linear" or "cubic"
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    area: tuple[int, int] | None = None

    @property
    def sides(self) -> tuple[int | str, int | str]:
        """Height and width of what the graph makes, by a name where they differ."""
        return (self.size, self.size) if self.area is None else ("height", "width")


def preparing_of(config: Json | None, size: int, where: str, most: int = 0) -> Preparing:
    """What `preprocessor_config.json` says for a model that takes squares of `size` pixels; or pictures made of at most
    `most` such squares, where that is not 0. Raises ModelError.
    """
    if config is None:
        raise NoSuchModel(f"{where} has no {FILE}, which says how pictures become numbers: download it, too")
    said = Numbers(config, f"{where}: {FILE}")
    if said.flag("do_pad", False) and not said.flag("do_image_splitting", False):
        raise UnknownArchitecture(f"{where}: {FILE} pads pictures (do_pad), which is not supported")
    mode = _MODES.get(said.whole("resample", 3))
    if mode is None or not said.flag("do_resize", True):
        raise UnknownArchitecture(
            f"{where}: {FILE}: pictures resized with bilinear or bicubic steps expected"
        )
    shorter = None if most else _resized(config, said, size, where)
    scale = said.real("rescale_factor", _BITS) if said.flag("do_rescale", True) else 1.0
    mean, std = (said.reals(key) for key in ("image_mean", "image_std"))
    if not said.flag("do_normalize", True):
        mean, std = (0.0,) * 3, (1.0,) * 3
    if mean is None or std is None or len(mean) != 3 or len(std) != 3 or not all(each > 0 for each in std):
        raise CorruptModel(f"{where}: {FILE}: image_mean and image_std of three numbers each expected")
    return Preparing(size, shorter, mode, scale, mean, std, _area(said, size, most) if most else None)


def _area(said: Numbers, side: int, most: int) -> tuple[int, int]:
    """The least and the most pixels of a picture, in both spellings; at most `most` squares. Raises CorruptModel."""
    inner = said.within("size") or said
    least = inner.whole("shortest_edge", said.whole("min_pixels", 56 * 56))
    largest = inner.whole("longest_edge", said.whole("max_pixels", 28 * 28 * 1280))
    if not 0 < least <= largest:
        raise CorruptModel(f"{said.where}: pixels from above 0 on expected, got {least} to {largest}")
    bound = max(min(largest, most * side * side), side * side)
    return min(least, bound), bound


def _free_sides(p: Preparing, area: tuple[int, int]) -> tuple[list[Any], dict[str, Any]]:
    """Nodes that make `sides` of `given` and their constants: multiples of `size` whose product lies within `area`."""
    plain = {"square": p.size, "least": area[0], "most": area[1]}
    constants = {name: np.array([value], np.float64) for name, value in plain.items()}
    steps: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
        ("Cast", ["given"], "exact", {"to": TensorProto.DOUBLE}),
        ("Div", ["exact", "square"], "exact.squares", {}),
        ("Round", ["exact.squares"], "near.squares", {}),
        ("Mul", ["near.squares", "square"], "near", {}),
        ("ReduceProd", ["near", "zero"], "near.area", {"keepdims": 1}),
        ("ReduceProd", ["exact", "zero"], "area", {"keepdims": 1}),
        ("Div", ["area", "most"], "many", {}),
        ("Sqrt", ["many"], "shrunk", {}),
        ("Div", ["exact", "shrunk"], "less", {}),
        ("Div", ["less", "square"], "less.squares", {}),
        ("Floor", ["less.squares"], "less.whole", {}),
        ("Mul", ["less.whole", "square"], "less.pixels", {}),
        ("Max", ["less.pixels", "square"], "smaller", {}),
        ("Div", ["least", "area"], "few", {}),
        ("Sqrt", ["few"], "grown", {}),
        ("Mul", ["exact", "grown"], "more", {}),
        ("Div", ["more", "square"], "more.squares", {}),
        ("Ceil", ["more.squares"], "more.whole", {}),
        ("Mul", ["more.whole", "square"], "larger", {}),
        ("Greater", ["near.area", "most"], "is.large", {}),
        ("Less", ["near.area", "least"], "is.small", {}),
        ("Where", ["is.small", "larger", "near"], "grown.sides", {}),
        ("Where", ["is.large", "smaller", "grown.sides"], "whole.sides", {}),
        ("Cast", ["whole.sides"], "sides", {"to": TensorProto.INT64}),
    )
    return [helper.make_node(kind, taken, [made], **more) for kind, taken, made, more in steps], constants


def _resized(config: Json, said: Numbers, size: int, where: str) -> int | None:
    """The length of the shorter side before the middle is cut out; None: all of it becomes the square."""
    wanted = config.get("size")
    sizes: Mapping[str, Any] = (
        {"height": wanted, "width": wanted} if isinstance(wanted, int) else wanted or {}
    )
    if config.get("max_image_size"):
        return None  # a model that takes tiles gets one, the whole picture
    crop = config.get("crop_size")
    cut = {crop} if isinstance(crop, int) else set(crop.values()) if isinstance(crop, dict) else {size}
    if not said.flag("do_center_crop", "crop_size" in config):
        cut = {size}
        if isinstance(sizes.get("shortest_edge"), int):
            raise UnknownArchitecture(f"{where}: {FILE}: pictures that stay oblong are not supported")
    shorter = sizes.get("shortest_edge")
    square = {sizes.get("height"), sizes.get("width")}
    if shorter is None and square == {size} == cut:
        return None
    if not isinstance(shorter, int) or not size <= shorter <= MAX_SIDE or cut != {size}:
        raise UnknownArchitecture(
            f"{where}: {FILE}: a square of {size} pixels expected, as the tower takes it, got size {str(wanted)[:80]} "
            f"and crop_size {str(crop)[:80]}"
        )
    return shorter


def picture_graph(p: Preparing) -> bytes:
    """The graph of these steps, as the bytes of an ONNX file."""
    nodes = [
        helper.make_node("Transpose", ["picture"], ["planes"], perm=[2, 0, 1]),
        helper.make_node("Unsqueeze", ["planes", "zero"], ["one"]),
    ]
    constants: dict[str, Any] = {
        "zero": np.array([0], np.int64),
        "front": np.array([1, 3], np.int64),
        "scale": np.array(p.scale, np.float32),
        "mean": np.array(p.mean, np.float32).reshape(1, 3, 1, 1),
        "std": np.array(p.std, np.float32).reshape(1, 3, 1, 1),
    }
    if p.area is not None or p.shorter is not None:
        nodes.append(helper.make_node("Shape", ["one"], ["given"], start=2, end=4))
    if p.area is not None:
        steps, more = _free_sides(p, p.area)
        nodes += steps
        constants |= more
    elif p.shorter is None:
        constants["sides"] = np.array([p.size, p.size], np.int64)
    else:
        constants["shorter"] = np.array([p.shorter], np.int64)
        nodes += [
            helper.make_node("ReduceMin", ["given", "zero"], ["least"], keepdims=1),
            helper.make_node("Mul", ["given", "shorter"], ["wide"]),
            helper.make_node("Div", ["wide", "least"], ["sides"]),
        ]
    nodes += [
        helper.make_node("Concat", ["front", "sides"], ["sizes"], axis=0),
        helper.make_node(
            "Resize",
            ["one", "", "", "sizes"],
            ["resized"],
            mode=p.mode,
            antialias=1,
            coordinate_transformation_mode="half_pixel",
            exclude_outside=1,
            cubic_coeff_a=-0.5,  # that linear steps do not read
        ),
    ]
    square = "resized"
    if p.shorter is not None:
        constants |= {
            "size": np.array([p.size], np.int64),
            "two": np.array([2], np.int64),
            "axes": np.array([2, 3], np.int64),
        }
        nodes += [
            helper.make_node("Sub", ["sides", "size"], ["spare"]),
            helper.make_node("Div", ["spare", "two"], ["first"]),
            helper.make_node("Add", ["first", "size"], ["stop"]),
            helper.make_node("Slice", ["resized", "first", "stop", "axes"], ["middle"]),
        ]
        square = "middle"
    nodes += [
        helper.make_node("Cast", [square], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "scale"], ["scaled"]),
        helper.make_node("Sub", ["scaled", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["pixels"]),
    ]
    graph = helper.make_graph(
        nodes,
        "picture",
        [helper.make_tensor_value_info("picture", TensorProto.UINT8, ["height", "width", 3])],
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [1, 3, *p.sides])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    encoded: bytes = model.SerializeToString()
    return encoded
