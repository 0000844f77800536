"""ONNX files cut into units: equal to the bit at every border, equal parts stored once, branches apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from planner.errors import CorruptModel, ModelError, NoSuchModel, UnknownArchitecture
from planner.importers.onnx import proof
from planner.importers.onnx.costs import FLOPS_A_BYTE, FLOPS_A_STEP
from planner.model.compose import compose
from planner.model.graph_manifest import (
    GraphManifest,
    amount,
    decode_graph_manifest,
    encode_graph_manifest,
)
from planner.model.store import Store
from tests.planner.importers.onnx import made_up
from tests.planner.importers.onnx.cut_models import assert_equal, cut_run, feed_of, imported, run
from tests.planner.importers.onnx.made_up import MADE, Made

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("name", MADE)
def test_every_border_gives_the_bits_of_the_whole_file(tmp_path: Path, name: str) -> None:
    made = MADE[name]()
    found = imported(tmp_path, made)
    said = [line for line in found.said if not line.endswith("so they are not joined")]  # by the processor
    assert said == []
    assert found.manifest.fused == (not found.said)
    count = len(found.manifest.units)
    assert count >= made.units
    for changed in ({}, {size: 2 * number for size, number in made.sizes.items()}):
        feed = feed_of(found, **changed)
        expected = run(str(found.source), feed, fused=found.manifest.fused)
        for cuts in ([], *([border] for border in range(1, count)), list(range(1, count))):
            assert_equal(cut_run(found, cuts, feed), expected)


def test_equal_blocks_have_one_graph(tmp_path: Path) -> None:
    units = imported(tmp_path, made_up.residual()).manifest.units
    graphs = [unit.graph.sha256 for unit in units]
    counts = sorted(map(graphs.count, set(graphs)), reverse=True)
    assert counts[:2] == [5, 4], "both halves of the inner blocks; what is at either end has other neighbours"
    assert len({blob.sha256 for unit in units for blob in unit.weights}) == sum(
        bool(u.weights) for u in units
    )


def test_towers_never_wait_for_each_other(tmp_path: Path) -> None:
    manifest = imported(tmp_path, made_up.towers()).manifest
    needs: dict[str, set[str]] = {name: {name} for name in manifest.inputs}
    sides: list[set[str]] = []
    for unit in manifest.units:
        side = set().union(*(needs[name] for name in unit.inputs))
        needs |= dict.fromkeys(unit.outputs, side)
        sides.append(side)
    assert sides.count({"x"}) >= 2
    assert sides.count({"z"}) >= 2
    assert sides.count({"x", "z"}) == 1, "the join alone needs both"
    flops = [amount(unit.flops, manifest.sizes) for unit in manifest.units]
    work = {frozenset(side): sum(f for f, s in zip(flops, sides, strict=True) if s == side) for side in sides}
    assert work[frozenset("x")] == pytest.approx(work[frozenset("z")], rel=0.1, abs=1.1 * FLOPS_A_STEP)


def test_weights_that_units_share_are_stored_once(tmp_path: Path) -> None:
    found = imported(tmp_path, made_up.shared())
    places: dict[tuple[str, int], list[str]] = {}
    for unit in found.manifest.units:
        for tensor in unit.tensors:
            places.setdefault((unit.weights[tensor.blob].sha256, tensor.offset), []).append(unit.name)
    users = sorted(len(set(names)) for names in places.values() if len(names) > 1)
    assert users == [2, 2], "m, and the matrix that is there under two names"
    blobs = {blob.sha256: blob.bytes for unit in found.manifest.units for blob in unit.weights}
    assert sum(blobs.values()) < 3 * 16 * 16 * 4, "two matrices and some vectors"
    whole = compose(found.manifest, found.store, 0, len(found.manifest.units))
    assert whole.weight_bytes == 2 * 16 * 16 * 4 + 2 * 16 * 4


def test_costs_are_functions_of_the_sizes(tmp_path: Path) -> None:
    manifest = imported(tmp_path, made_up.attention()).manifest
    total = {
        rows: sum(amount(unit.flops, {"rows": rows}) for unit in manifest.units) for rows in (8, 80, 800)
    }
    steps = total[8] // FLOPS_A_STEP
    for rows, found in total.items():
        products = 2 * 2 * rows * 16 * 16 + 2 * 2 * rows * rows * 16
        values = 4 * (rows * rows + rows * 16)  # bytes, of one of each
        found -= steps * FLOPS_A_STEP
        assert products + 4 * FLOPS_A_BYTE * values < found < products + 16 * FLOPS_A_BYTE * values
    assert manifest.value("y").bytes[0].sizes == ("rows",)
    assert amount(manifest.value("y").bytes, {"rows": 100}) == 6400
    assert manifest.value("x").shape == ("rows", 16)


def test_sizes_that_nobody_named_get_names(tmp_path: Path) -> None:
    manifest = imported(tmp_path, made_up.picture()).manifest
    assert manifest.value("x").shape == ("x.0", 3, "x.2", "x.3")
    assert manifest.sizes == {"x.0": 1, "x.2": 32, "x.3": 48}
    terms = manifest.value("x").bytes
    assert amount(terms, {"x.0": 2, "x.2": 10, "x.3": 10}) == 2 * 3 * 100 * 4
    assert "BatchNormalization" not in {op for unit in manifest.units for op in unit.ops}, "it is folded"


def test_external_data_gives_the_same_model(tmp_path: Path) -> None:
    made = made_up.residual()
    inside = imported(tmp_path / "in", made).manifest
    (tmp_path / "out").mkdir()
    path = made_up.saved_outside(made.model, tmp_path / "out")
    assert (tmp_path / "out" / "model.bin").stat().st_size > 12 * 16 * 16 * 4
    assert imported(tmp_path / "out", made, path).manifest == inside


def test_an_import_gives_the_same_bytes_again(tmp_path: Path) -> None:
    made = made_up.loop()
    assert imported(tmp_path / "a", made).manifest == imported(tmp_path / "b", made).manifest


def test_a_border_that_differs_is_told_and_its_units_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = imported(tmp_path / "before", made_up.residual()).manifest
    border = before.given(0, 3)
    part = proof.part

    def wrong(manifest: GraphManifest, store: Store, first: int, stop: int, feed: Any) -> Any:
        """Rounds what crosses the third border."""
        made = part(manifest, store, first, stop, feed)
        last = manifest.given(0, stop) == border
        return {
            name: array + np.float32(0.25) if last and name in border else array
            for name, array in made.items()
        }

    monkeypatch.setattr(proof, "part", wrong)
    found = imported(tmp_path / "after", made_up.residual())
    assert len(found.manifest.units) == len(before.units) - 1
    assert len(found.said) == 1
    assert "cut at border 3 of 5 differs by 0.25" in found.said[0] or "differs by" in found.said[0]
    assert "'h.6'" in found.said[0]
    assert border[0] not in {value.name for value in found.manifest.values}


def test_where_joined_operators_make_other_bits_they_are_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = imported(tmp_path / "before", made_up.residual()).manifest
    part = proof.part

    def wrong(manifest: GraphManifest, store: Store, first: int, stop: int, feed: Any) -> Any:
        made = part(manifest, store, first, stop, feed)
        off = manifest.fused and stop < len(manifest.units)
        return {name: array + np.float32(off) for name, array in made.items()}

    monkeypatch.setattr(proof, "part", wrong)
    found = imported(tmp_path / "after", made_up.residual())
    assert before.fused
    assert not found.manifest.fused
    assert len(found.manifest.units) == len(before.units)
    assert decode_graph_manifest(encode_graph_manifest(found.manifest)) == found.manifest
    (said,) = found.said
    assert said.endswith(f"other bits at {len(before.units) - 1} borders, so they are not joined")


def test_a_model_without_a_border_that_holds_becomes_one_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = proof.part

    def wrong(manifest: GraphManifest, store: Store, first: int, stop: int, feed: Any) -> Any:
        made = part(manifest, store, first, stop, feed)
        return {name: array + np.float32(stop < len(manifest.units)) for name, array in made.items()}

    monkeypatch.setattr(proof, "part", wrong)
    found = imported(tmp_path, made_up.chain())
    assert len(found.manifest.units) == 1
    assert_equal(cut_run(found, [], feed_of(found)), run(str(found.source), feed_of(found)))


def test_at_most_so_many_units(tmp_path: Path) -> None:
    assert len(imported(tmp_path, made_up.residual(), most_units=2).manifest.units) == 2


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_a_sample_of_a_file_is_used(tmp_path: Path) -> None:
    sample = npz(tmp_path / "sample.npz", x=np.ones((5, 16), np.float32))
    assert imported(tmp_path, made_up.chain(), sample=sample, sizes=()).manifest.sizes == {"rows": 5}


@pytest.mark.parametrize(
    ("arrays", "error", "says"),
    [
        ({"y": np.ones(3)}, CorruptModel, "has no array 'x'"),
        ({"x": np.ones((5, 16))}, CorruptModel, r"float32 of shape \(rows, 16\) expected, got float64"),
        ({"x": np.ones((5, 15), np.float32)}, CorruptModel, r"got \(5, 15\)"),
        ({"x": np.ones((5,), np.float32)}, CorruptModel, r"got float32 of \(5,\)"),
        ({"x": np.array([{}])}, CorruptModel, "an .npz file of arrays expected"),
    ],
)
def test_a_sample_that_does_not_fit_is_refused(
    tmp_path: Path, arrays: dict[str, Any], error: type[ModelError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        imported(tmp_path, made_up.chain(), sample=npz(tmp_path / "sample.npz", **arrays), sizes=())
    assert "\n" not in str(caught.value)


def test_what_is_no_sample_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sample.npz").write_bytes(b"no archive")
    with pytest.raises(CorruptModel, match=r"an \.npz file of arrays expected"):
        imported(tmp_path, made_up.chain(), sample=tmp_path / "sample.npz", sizes=())
    with pytest.raises(NoSuchModel, match="cannot be read"):
        imported(tmp_path, made_up.chain(), sample=tmp_path / "nowhere.npz", sizes=())


def test_sizes_are_found_or_asked_for(tmp_path: Path) -> None:
    made = made_up.chain()
    assert imported(tmp_path / "a", made, sizes=()).manifest.sizes == {"rows": 1}
    with pytest.raises(NoSuchModel, match="made up has no size called 'row': rows"):
        imported(tmp_path / "b", made, sizes=(("row", 3),))
    fixed = made_up.built(
        [made_up.node("Reshape", ["x", "shape"], ["y"])],
        [("x", made_up.FLOAT, ["a", "b"])],
        [("y", made_up.FLOAT, [7, 13])],
        {"shape": np.array([7, 13])},
    )
    with pytest.raises(
        CorruptModel, match=r"runs with none of the made-up inputs .* give its sizes with --size"
    ):
        imported(tmp_path / "c", Made(fixed))
    assert imported(tmp_path / "d", Made(fixed), sizes=(("a", 91), ("b", 1))).manifest.sizes == {
        "a": 91,
        "b": 1,
    }


def test_random_numbers_are_refused(tmp_path: Path) -> None:
    model = made_up.built(
        [made_up.node("RandomNormalLike", ["x"], ["y"])],
        [("x", made_up.FLOAT, [4])],
        [("y", made_up.FLOAT, [4])],
    )
    with pytest.raises(UnknownArchitecture, match="something else each time"):
        imported(tmp_path, Made(model))


def test_outputs_that_never_change_are_no_model(tmp_path: Path) -> None:
    model = made_up.built(
        [made_up.node("Identity", ["x"], ["z"])],
        [("x", made_up.FLOAT, [4])],
        [("x", made_up.FLOAT, [4])],
    )
    with pytest.raises(CorruptModel, match="a model that computes something expected"):
        imported(tmp_path, Made(model))


def test_sequences_stay_inside_a_unit(tmp_path: Path) -> None:
    nodes = [
        *made_up.linear("x", "a", "one"),
        made_up.node("SplitToSequence", ["a"], ["parts"], axis=1),
        made_up.node("ConcatFromSequence", ["parts"], ["b"], axis=0),
        *made_up.linear("x", "c", "two"),
        made_up.node("MatMul", ["b", "turned"], ["d"]),
        made_up.node("Add", ["c", "sum"], ["y"]),
    ]
    nodes.insert(-1, made_up.node("ReduceSum", ["d"], ["sum"], keepdims=0))
    arrays = made_up.linear_weights("one", "two") | {"turned": made_up.weights(1, 16)}
    model = made_up.built(
        nodes, [("x", made_up.FLOAT, ["rows", 16])], [("y", made_up.FLOAT, ["rows", 16])], arrays
    )
    found = imported(tmp_path, Made(model, {"rows": 3}))
    assert "parts" not in {value.name for value in found.manifest.values}
    feed = feed_of(found)
    for border in range(1, len(found.manifest.units)):
        assert_equal(cut_run(found, [border], feed), run(str(found.source), feed))


def test_an_output_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    model = made_up.built(
        [made_up.node("SplitToSequence", ["x"], ["y"], axis=0)],
        [("x", made_up.FLOAT, [4])],
        [("y", made_up.FLOAT, [4])],
    )
    model.graph.output[0].CopyFrom(
        onnx.helper.make_value_info(
            "y", helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [4]))
        )
    )
    with pytest.raises(UnknownArchitecture, match=r"output 'y' is a seq\(tensor\(float\)\): a tensor"):
        imported(tmp_path, Made(model))
