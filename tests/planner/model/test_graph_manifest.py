"""Manifests of units that form a graph: their canonical form, what a run of units needs and gives, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.errors import CorruptStore
from planner.model.graph_manifest import (
    GraphManifest,
    GraphUnit,
    Term,
    Value,
    Weight,
    amount,
    decode_graph_manifest,
    encode_graph_manifest,
)
from planner.model.store import BlobRef

OWN, COMMON = BlobRef("a" * 64, 4096, ("b" * 64,)), BlobRef("c" * 64, 64, ("d" * 64,))
GRAPH = BlobRef("e" * 64, 100, ("f" * 64,))


def unit(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> GraphUnit:
    tensors = (Weight("w.0", "float32", (4, 8), 0, 64, 128), Weight("w.1", "int4", (3,), 1, 0, 2))
    return GraphUnit(
        name, "model", GRAPH, (OWN, COMMON), tensors, inputs, outputs, 35, 130, (Term(2.0, ("rows",)),), ("MatMul",)
    )  # fmt: skip


def value(name: str) -> Value:
    return Value(name, "float32", ("rows", 8), (Term(32.0, ("rows",)),))


MANIFEST = GraphManifest(
    "towers",
    ("x", "z"),
    ("y", "l", "x"),
    {"rows": 3},
    tuple(map(value, ("x", "z", "l", "r", "y"))),
    (unit("left", ("x",), ("l",)), unit("right", ("z",), ("r",)), unit("join", ("l", "r"), ("y",))),
)


def test_it_comes_back_and_is_written_one_way() -> None:
    encoded = encode_graph_manifest(MANIFEST)
    assert decode_graph_manifest(encoded) == MANIFEST
    assert encoded == json.dumps(json.loads(encoded), sort_keys=True, separators=(",", ":")).encode()
    assert decode_graph_manifest(encode_graph_manifest(replace(MANIFEST, fused=False))).fused is False
    assert decode_graph_manifest(encode_graph_manifest(replace(MANIFEST, opset=21))).opset == 21


@pytest.mark.parametrize(
    ("first", "stop", "needed", "given"),
    [
        (0, 3, ("x", "z"), ("l", "y")),
        (0, 1, ("x",), ("l",)),
        (1, 2, ("z",), ("r",)),
        (0, 2, ("x", "z"), ("l", "r")),
        (2, 3, ("l", "r"), ("y",)),
        (1, 3, ("z", "l"), ("y",)),
    ],
)
def test_what_units_take_and_give(
    first: int, stop: int, needed: tuple[str, ...], given: tuple[str, ...]
) -> None:
    assert MANIFEST.needed(first, stop) == needed
    assert MANIFEST.given(first, stop) == given


def test_blobs_are_named_once() -> None:
    assert MANIFEST.blobs(0, 3) == (GRAPH, OWN, COMMON)


def test_a_cost_is_a_sum_of_products() -> None:
    terms = (Term(2.0, ("rows", "rows")), Term(3.0, ("rows", "width")), Term(5.0))
    assert amount(terms, {"rows": 10, "width": 2}) == 200 + 60 + 5
    assert amount(terms, {"rows": 10}) == 200 + 30 + 5, "a size that is not known counts as 1"


def at(*path: str | int) -> Callable[[Any, Any], None]:
    def change(document: Any, found: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = found

    return change


@pytest.mark.parametrize(
    ("change", "found", "says"),
    [
        (at("format"), "shoal-0", 'format "shoal-2" expected'),
        (at("format"), "shoal-1", "of an older version: import the model again"),
        (at("decoder"), {}, "this one answers in words"),
        (at("inputs"), ["x", "x"], "names of inputs and of outputs must differ"),
        (at("outputs"), [], "names of values that units make expected"),
        (at("outputs"), ["nobody"], "names of values that units make expected"),
        (at("sizes", "rows"), 0, "a whole number from 1"),
        (at("opset"), 0, "a whole number from 1"),
        (at("opset"), "17", "a whole number from 1"),
        (at("values", 0, "name"), "z", "names must differ"),
        (at("values", 0, "name"), "", "names must differ and have a letter"),
        (at("values", 0, "name"), "n" * 513, "at most 512 characters"),
        (at("values", 0, "dtype"), "float8", "one of float32"),
        (at("values", 0, "shape"), [-1], "whole numbers up to"),
        (at("values", 0, "shape"), [1] * 17, "at most 16"),
        (at("values", 0, "bytes", 0, "factor"), 0, "a positive finite number"),
        (at("units"), [], "at least one unit"),
        (at("units", 1, "name"), "left", "names must differ"),
        (at("units", 0, "inputs"), ["r"], "input 'r' is not made before it"),
        (at("units", 2, "inputs"), ["l", "l"], "different inputs"),
        (at("units", 1, "outputs"), ["l"], "output 'l' is made twice"),
        (at("units", 1, "outputs"), ["x"], "output 'x' is made twice"),
        (at("units", 2, "outputs"), ["y", "new"], "'new' is not declared"),
        (at("units", 0, "graph", "sha256"), "A" * 64, "hashes of 64 lower-case hex digits"),
        (at("units", 0, "weights"), [], "a place among 0 blobs expected"),
        (at("units", 0, "tensors", 0, "blob"), 2, "a place among 2 blobs expected, got 2"),
        (at("units", 0, "tensors", 0, "offset"), 63, "must be 64-aligned"),
        (at("units", 0, "tensors", 0, "offset"), 4032, "inside 4096 bytes"),
        (at("units", 0, "tensors", 0, "bytes"), 127, "do not hold float32"),
        (at("units", 0, "tensors", 0, "dtype"), "string", "weights of numbers expected"),
        (at("units", 0, "tensors", 1, "name"), "w.0", "tensor names must differ"),
        (at("units", 0, "tensors", 0, "shape"), [1 << 41], "whole numbers from 0"),
    ],
)
def test_what_breaks_a_rule_is_refused(change: Callable[[Any, Any], None], found: Any, says: str) -> None:
    document = json.loads(encode_graph_manifest(MANIFEST))
    change(document, found)
    with pytest.raises(CorruptStore) as caught:
        decode_graph_manifest(json.dumps(document).encode())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
