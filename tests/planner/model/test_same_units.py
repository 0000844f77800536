"""Which runs of units are the same, and what several models save together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.model.graph_manifest import GraphManifest, GraphUnit, Value, Weight
from planner.model.same_units import HeldUnits, Saved, same_units, saved
from planner.model.store import BlobRef


def blob(name: str, size: int = 64) -> BlobRef:
    return BlobRef(name * 64, size, (name * 64,))


def unit(name: str, takes: str, gives: str, weights: BlobRef) -> GraphUnit:
    tensor = Weight("w", "float32", (4,), 0, 0, 16)
    return GraphUnit(name, "c", blob("0"), (weights,), (tensor,), (takes,), (gives,), 4, 16, (), ("Add",))


MODEL = GraphManifest(
    "model", ("x",), ("z",), {}, tuple(Value(name, "float32", ("n",), ()) for name in "xyz"),
    (unit("a", "x", "y", blob("a")), unit("b", "y", "z", blob("b"))),
)  # fmt: skip


def changed(place: int, **changes: object) -> GraphManifest:
    units = list(MODEL.units)
    units[place] = replace(units[place], **changes)  # type: ignore[arg-type]
    return replace(MODEL, units=tuple(units))


@pytest.mark.parametrize(
    ("other", "runs"),
    [
        (replace(MODEL, name="again", sizes={"n": 7}), {(0, 1), (1, 2), (0, 2)}),
        (changed(1, name="c", component="d", ops=("Sub",)), {(0, 1), (1, 2), (0, 2)}),
        (changed(1, weights=(blob("c"),)), {(0, 1)}),
        (changed(1, graph=blob("d")), {(0, 1)}),
        (changed(1, tensors=(Weight("w", "float32", (4,), 0, 16, 16),)), {(0, 1)}),
        (changed(1, tensors=(Weight("w", "float32", (2, 2), 0, 0, 16),)), {(0, 1)}),
        (replace(MODEL, values=(*MODEL.values[:2], replace(MODEL.values[2], shape=("m",)))), {(0, 1)}),
        (replace(MODEL, outputs=("y", "z")), {(0, 1), (1, 2)}),
        (replace(MODEL, fused=False), set()),
    ],
)
def test_what_counts(other: GraphManifest, runs: set[tuple[int, int]]) -> None:
    every = [(0, 1), (1, 2), (0, 2)]
    assert {run for run in every if same_units(MODEL, *run) == same_units(other, *run)} == runs


def test_what_models_save_together() -> None:
    a, b, c = blob("a", 100), blob("b", 20), blob("c", 3)
    x, again = HeldUnits("x", (a, b), "key", 90), HeldUnits("again", (a, b), "key", 90)
    other = HeldUnits("other", (a, c), "else", 70)
    models = {"x": (a, b), "again": (a, b), "other": (a, c)}
    assert saved(models, []) == Saved(120 + 100, 0, 0)
    assert saved(models, [[x, again, other], [x]]) == Saved(220, 220, 90)
    assert saved({"x": (a, b)}, [[x, replace(x, key="part"), x]]) == Saved(0, 0, 0), "one model saves nothing"
    assert saved({}, [[replace(x, key=""), replace(again, key="")]]).loaded_bytes == 0
