"""Hostile ONNX files: one line that says what is wrong, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from planner.errors import CorruptModel, ModelError, NoSuchModel, UnknownArchitecture
from planner.importers.onnx.reading import captured, external_files, known_operators, read_model
from planner.model.compose import MAX_DEPTH, MAX_NODES
from tests.planner.importers.onnx import made_up
from tests.planner.importers.onnx.made_up import FLOAT, node

Change = Callable[[ModelProto], None]


def cycle(model: ModelProto) -> None:
    model.graph.node[0].input[0] = "b"


def cycle_through_a_body(model: ModelProto) -> None:
    body = made_up.body([node("Identity", ["late"], ["t"])], [], [("t", FLOAT, [])])
    model.graph.node.append(node("If", ["flag"], ["early"], then_branch=body, else_branch=body))
    model.graph.node.append(node("Identity", ["early"], ["late"]))


def overflow(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def negative(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [-1, 16]


def short(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [16, 1 << 20]


def fields_are_short(model: ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.append(1)


def strange_type(model: ModelProto) -> None:
    model.graph.initializer[0].data_type = 99


def sparse(model: ModelProto) -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "three gigabytes")
    made = model.graph.sparse_initializer.add(dims=[3, 1 << 28])
    made.values.CopyFrom(values)
    made.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "places"))


def sparse_attribute(model: ModelProto) -> None:
    sparse(model)
    made = model.graph.sparse_initializer.pop()
    model.graph.node[0].attribute.add(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR)
    model.graph.node[0].attribute[0].sparse_tensor.CopyFrom(made)


def nested(model: ModelProto) -> None:
    inner = [node("Identity", ["x"], ["t"])]
    for _ in range(MAX_DEPTH + 1):
        body = made_up.body(inner, [], [("t", FLOAT, [])])
        inner = [node("If", ["flag"], ["t"], then_branch=body, else_branch=body)]
    model.graph.node.extend(inner)


def wide(model: ModelProto) -> None:
    model.graph.node.extend([node("Relu", ["x"], [""])] * MAX_NODES)


def recursion(model: ModelProto) -> None:
    model.functions.append(
        helper.make_function("here", "F", ["a"], ["b"], [node("F", ["a"], ["b"], domain="here")], [])
    )
    model.graph.node.append(node("F", ["x"], ["f"], domain="here"))


def bomb(model: ModelProto) -> None:
    for level in range(40):
        calls = [node(f"F{level + 1}", ["a"], [each], domain="here") for each in "bc"]
        body = calls if level < 39 else [node("Relu", ["a"], ["b"])]
        model.functions.append(helper.make_function("here", f"F{level}", ["a"], ["b"], body, []))
    model.graph.node.append(node("F0", ["x"], ["f"], domain="here"))


def unknown_operator(model: ModelProto) -> None:
    model.graph.node[0].op_type = "Levitate"


def unknown_domain(model: ModelProto) -> None:
    model.graph.node[0].domain = "org.somewhere"


def unknown_in_a_body(model: ModelProto) -> None:
    body = made_up.body([node("Levitate", ["x"], ["t"])], [], [("t", FLOAT, [])])
    model.graph.node.append(node("If", ["flag"], ["c"], then_branch=body, else_branch=body))


def old(model: ModelProto) -> None:
    model.opset_import[0].version = 10


def no_type(model: ModelProto) -> None:
    model.graph.input[0].ClearField("type")


def a_sequence(model: ModelProto) -> None:
    model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1])))


def no_rank(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.ClearField("shape")


def huge_input(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1 << 50


def brain_float(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16


def twice(model: ModelProto) -> None:
    model.graph.output.append(model.graph.output[0])


def empty(model: ModelProto) -> None:
    del model.graph.node[:]


HOSTILE: list[tuple[Change, type[ModelError], str]] = [
    (cycle, CorruptModel, "the graph has a cycle"),
    (cycle_through_a_body, CorruptModel, "the graph has a cycle"),
    (overflow, CorruptModel, "of 4835703278458516698824704 bytes: at most"),
    (negative, CorruptModel, "has the impossible shape"),
    (short, CorruptModel, "of 67108864 bytes has 1024"),
    (fields_are_short, CorruptModel, "of 1024 bytes has fewer"),
    (strange_type, CorruptModel, "has the unknown type 99"),
    (sparse, CorruptModel, "sparse tensor 'three gigabytes' of 3221225472 bytes once it is dense"),
    (sparse_attribute, CorruptModel, "sparse tensor 'three gigabytes' of 3221225472 bytes once it is dense"),
    (nested, CorruptModel, "at most 8 deep expected"),
    (wide, CorruptModel, "at most 65536 nodes expected"),
    (recursion, CorruptModel, "function 'F' calls itself"),
    (bomb, CorruptModel, "at most 65536 nodes expected once functions"),
    (unknown_operator, UnknownArchitecture, "the operator 'Levitate' of ONNX is not one that this onnxruntime has"),
    (unknown_domain, UnknownArchitecture, "the operator 'MatMul' of domain org.somewhere is not one"),
    (unknown_in_a_body, UnknownArchitecture, "the operator 'Levitate' of ONNX is not one"),
    (old, UnknownArchitecture, "version 11 or newer expected, got 10"),
    (no_type, UnknownArchitecture, "input 'x': a tensor with a known type"),
    (a_sequence, UnknownArchitecture, "input 'x': a tensor with a known type"),
    (no_rank, UnknownArchitecture, "input 'x': a tensor with a known type"),
    (huge_input, CorruptModel, "has the impossible size"),
    (brain_float, UnknownArchitecture, "input 'x': bfloat16 cannot be given to onnxruntime"),
    (twice, CorruptModel, "outputs with names that differ expected"),
    (empty, CorruptModel, "an ONNX model with nodes"),
]  # fmt: skip


def saved(model: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(("change", "error", "says"), HOSTILE, ids=[each[0].__name__ for each in HOSTILE])
def test_a_hostile_file_is_one_line(
    tmp_path: Path, change: Change, error: type[ModelError], says: str
) -> None:
    model = made_up.chain().model
    change(model)
    with pytest.raises(error) as caught:
        read_model(saved(model, tmp_path), "theirs")
    assert says in str(caught.value)
    assert str(caught.value).startswith("theirs: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"\xff" * 1000, b"\x08\x07", b"PK\x03\x04"])
def test_what_is_no_model_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(CorruptModel, match=r"theirs(:| is) "):
        read_model(path, "theirs")


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoSuchModel, match="cannot be read"):
        read_model(tmp_path, "theirs")


def outside(folder: Path, **facts: str) -> Path:
    model = made_up.chain().model
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in facts.items():
        tensor.external_data.add(key=key, value=value)
    return saved(model, folder)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"location": "../secret"}, "leaves the folder of the file"),
        ({"location": "sub/../../secret"}, "leaves the folder of the file"),
        ({"location": "..\\secret"}, "leaves the folder of the file"),
        ({"location": "/etc/passwd"}, "leaves the folder of the file"),
        ({"location": "C:\\secret"}, "leaves the folder of the file"),
        ({"location": ""}, "leaves the folder of the file"),
        ({}, "leaves the folder of the file"),
        ({"location": "link"}, "leaves the folder of the file by a link"),
        ({"location": "door/secret"}, "leaves the folder of the file by a link"),
        ({"location": "nowhere"}, "needs the file 'nowhere' beside it"),
        ({"location": "near", "offset": "1"}, "1024 bytes at 1 of 'near' expected, which has 1024"),
        ({"location": "near", "offset": "-1"}, "1024 bytes at -1 of"),
        ({"location": "near", "length": "1000"}, "1024 bytes at 0 of"),
        ({"location": "near", "offset": "many"}, "at no place of a file"),
    ],
)
def test_external_data_stays_in_the_folder(tmp_path: Path, facts: dict[str, str], says: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(1024))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "near").write_bytes(bytes(1024))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "door").symlink_to(tmp_path)
    with pytest.raises(ModelError) as caught:
        read_model(outside(folder, **facts), "theirs")
    assert says in str(caught.value)
    assert external_files(outside(folder, location="near"), "theirs") == ("near",)


def test_a_model_is_read_as_it_is_given(tmp_path: Path) -> None:
    made = made_up.odd_ports().model
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "?"
    made.metadata_props.add(key="who", value="me")
    read = read_model(saved(made, tmp_path), "ours")
    assert [(each.name, each.dtype, each.shape) for each in read.inputs] == [("x", "float32", ("x.0", 16))]
    assert [value.name for value in read.model.graph.input] == ["x"], "weights are not given"
    assert read.outputs == ("y", "fixed", "x")
    assert not read.model.metadata_props


def test_a_node_takes_what_its_bodies_take() -> None:
    inner = made_up.body([node("Add", ["c", "t"], ["u"])], [], [("u", FLOAT, [])])
    outer = made_up.body(
        [node("Identity", ["b"], ["t"]), node("If", ["d"], ["v"], then_branch=inner)], [], [("v", FLOAT, [])]
    )
    assert captured(node("If", ["a"], ["y"], then_branch=outer)) == ("a", "b", "d", "c")


def test_operators_are_those_of_the_installed_onnxruntime() -> None:
    assert {("", "Conv"), ("com.microsoft", "FusedMatMul"), ("ai.onnx.ml", "Scaler")} <= known_operators()
