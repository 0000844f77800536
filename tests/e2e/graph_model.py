"""A small model of two towers that join: two branches of matrix products, cut into five units, in a store; and where
units of an offered model are placed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from peer.coordination.offer_promotion import next_version
from peer.dataflow.value_codec import Array
from peer.member.mesh_member import MeshMember
from peer.state.generated.commands import ModelPlaced, RunStage
from planner.model.graph_manifest import GraphManifest, GraphUnit, Value, Weight, encode_graph_manifest
from planner.model.store import BlobRef, Store
from tests.patience import WITHIN_S

WIDTH = 64


def put_towers(store: Store) -> tuple[str, GraphManifest]:
    """Its id and manifest: left, right (rows, 64) -> left.1, right.1 -> left.2, right.2 -> sum (rows, 64)."""
    random = np.random.default_rng(7)
    sides = [
        _unit(
            store,
            f"{side}.{place}",
            name,
            f"{side}.{place}",
            random.standard_normal((WIDTH, WIDTH)).astype("f4"),
        )
        for side in ("left", "right")
        for place, name in ((1, side), (2, f"{side}.1"))
    ]
    joined = GraphUnit(
        "join", "graph", _graph(store, [helper.make_node("Add", ["in.0", "in.1"], ["out.0"])], 2), (), (),
        ("left.2", "right.2"), ("sum",), 0, 0, (), (),
    )  # fmt: skip
    names = ("left", "right", "left.1", "left.2", "right.1", "right.2", "sum")
    manifest = GraphManifest(
        "towers",
        ("left", "right"),
        ("sum",),
        {"rows": 4},
        tuple(Value(name, "float32", ("rows", WIDTH), ()) for name in names),
        (*sides, joined),
    )
    return store.put_manifest(encode_graph_manifest(manifest)), manifest


def inputs(item: int, rows: int = 4) -> dict[str, Array]:
    """Those of one item."""
    random = np.random.default_rng(item)
    return {side: random.standard_normal((rows, WIDTH)).astype("f4") for side in ("left", "right")}


def _unit(store: Store, name: str, takes: str, makes: str, matrix: Array) -> GraphUnit:
    nodes = [
        helper.make_node("MatMul", ["in.0", "w"], ["product"]),
        helper.make_node("Tanh", ["product"], ["out.0"]),
    ]
    blob = store.put_blob([matrix.tobytes()])
    return GraphUnit(
        name, "graph", _graph(store, nodes, 1), (blob,),
        (Weight("w", "float32", matrix.shape, 0, 0, matrix.nbytes),), (takes,), (makes,),
        matrix.size, matrix.nbytes, (), (),
    )  # fmt: skip


def _graph(store: Store, nodes: list[onnx.NodeProto], takes: int) -> BlobRef:
    model = onnx.ModelProto(ir_version=10)
    model.opset_import.add(domain="", version=17)
    model.graph.node.extend(nodes)
    for place in range(takes):
        model.graph.input.add(name=f"in.{place}")
    model.graph.output.add(name="out.0")
    return store.put_blob([model.SerializeToString()])


async def place(founder: MeshMember, name: str, *stages: RunStage) -> None:
    """In place of where the leader put the units of an offered model; again where the leader places them anew
    meanwhile, as it does when it learns of another link.
    """
    assert await founder.view.until(lambda state: bool(state.offers[name].stages), WITHIN_S)
    async with asyncio.timeout(WITHIN_S):
        while founder.view.state.offers[name].stages != stages:
            assert founder.leadership.current is not None
            state = founder.leadership.current.state
            version = next_version(state, state.offers[name])
            founder.leadership.current.submit(ModelPlaced(name, version, stages, 0, 0, ()))
            assert await founder.view.until(
                lambda state, version=version: state.offers[name].version >= version, WITHIN_S
            )


def double_file(folder: Path) -> Path:
    """`y`: twice `x`, of any number of rows."""
    two = helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0])
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4])],
        [two],
    )
    file = folder / "double.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file
