"""What a manifest of units comes to for sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import RequestError
from planner.model.graph_manifest import GraphManifest, GraphUnit, Term, Value
from planner.model.graph_work import work_of
from planner.model.same_units import same_units
from planner.model.store import BlobRef
from planner.types import Edge, GraphWork, UnitWork

BLOB = BlobRef("0" * 64, 64, ("0" * 64,))


def graph_unit(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], *flops: Term) -> GraphUnit:
    return GraphUnit(name, "vision", BLOB, None, (), inputs, outputs, 0, 1000, flops, ("com.example:Op",))


def value(name: str, *terms: Term) -> Value:
    return Value(name, "float32", ("n",), terms)


MANIFEST = GraphManifest(
    "made up",
    ("x", "unused"),
    ("y", "x"),
    {"n": 10},
    (
        value("x", Term(4, ("n",))),
        value("h", Term(4, ("n", "n")), Term(0.5)),
        replace(value("y", Term(4)), dtype="int64"),
        value("unused"),
    ),
    (
        graph_unit("first", ("x",), ("h",), Term(2, ("n",))),
        graph_unit("second", ("x", "h"), ("y",), Term(3, ("n", "n"))),
    ),
    opset=17,
)


@pytest.mark.parametrize(
    ("sizes", "x", "h", "flops"), [(None, 40, 401, (20, 300)), ({"n": 2, "other": 7}, 8, 17, (4, 12))]
)
def test_work_of_a_manifest(sizes: dict[str, int] | None, x: int, h: int, flops: tuple[int, int]) -> None:
    ops = ("com.example:Op",)
    found = work_of(MANIFEST, sizes)
    assert found.content == same_units(MANIFEST, 0, 2)
    assert replace(found, content="") == GraphWork(
        (
            UnitWork("first", "vision", 1000, x + h, flops[0], ops, ("float32",)),
            UnitWork("second", "vision", 1000, x + h + 4, flops[1], ops, ("float32", "int64")),
        ),
        (Edge("x", x, None, (0, 1)), Edge("h", h, 0, (1,)), Edge("y", 4, 1, (), True)),
        17,
    )


@pytest.mark.parametrize(
    ("manifest", "sizes", "refusal"),
    [
        (MANIFEST, {"n": 0}, "size n: expected 1 to"),
        (MANIFEST, {"n": 1 << 41}, "size n: expected 1 to"),
        (MANIFEST, {"n": 1 << 40}, "h: expected an amount of at most"),
        (
            replace(MANIFEST, units=(graph_unit("huge", ("x",), ("y",), Term(1e308, ("n",) * 8)),)),
            None,
            "huge: expected an amount of at most",
        ),
    ],
)
def test_amounts_that_no_peer_has(manifest: GraphManifest, sizes: dict[str, int], refusal: str) -> None:
    with pytest.raises(RequestError, match=refusal):
        work_of(manifest, sizes)
