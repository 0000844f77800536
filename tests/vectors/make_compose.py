"""Writes compose.json, which the TypeScript suite replays: manifests of graphs of units, and what composing makes.

Run it after a change of planner/model/graph_manifest.py or planner/model/compose.py. Graphs are made up; some are then
spoiled at random from a fixed seed, and both languages must compose or refuse them alike.
"""

import base64
import copy
import hashlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tracing import written

from planner.errors import CorruptStore
from planner.model.compose import ELEMENT_TYPES, MAX_DEPTH, compose
from planner.model.graph_manifest import (
    HALF_BYTES,
    GraphManifest,
    decode_graph_manifest,
    encode_graph_manifest,
)
from planner.model.store import Store
from tests.planner.model import test_compose as made_up

PATH: Final = Path(__file__).with_name("compose.json")
SPOILED: Final = 250  # graphs
MANIFESTS: Final = 160
HOSTILE: Final = (
    None, True, -1, 0, 1, 7, 1.5, 2**40, 2**40 + 1, 2**53, 10**30, 10**400, "", "x", "x" * 65, "x" * 300, "x" * 600,
    "\U0001f41f" * 256, "\U0001f41f" * 600, "\ud800", [], {}, [1], ["x"], ["x", "x"], [[]], {"x": 1}, "float32", "int4",
    "string", "0" * 64,
)  # fmt: skip
KINDS: Final = {1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 9: "bytes", 12: "bytes"}


def text() -> str:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        chain, _, _ = made_up.chain(store)
        everything = _everything(store)
        return written(
            "written by make_compose.py",
            {
                "tables": [
                    {"messages": _messages(), "element_types": ELEMENT_TYPES, "half_bytes": HALF_BYTES}
                ],
                "cases": [_case("chain", chain, store), _case("everything", everything, store)],
                "graphs": [_graph(encoded, everything, store) for encoded in _graphs(everything, store)],
                "manifests": [_manifest(encoded) for encoded in _manifests(everything)],
            },
        )


def _case(name: str, manifest: GraphManifest, store: Store) -> dict[str, Any]:
    count = len(manifest.units)
    graphs = {unit.graph.sha256: store.blob_path(unit.graph.sha256).read_bytes() for unit in manifest.units}
    runs = []
    for first, stop in [(a, b) for a in range(count) for b in range(a + 1, count + 1)]:
        composed = compose(manifest, store, first, stop)
        runs.append(
            {
                "first": first,
                "stop": stop,
                "model": hashlib.sha256(composed.model).hexdigest(),
                "inputs": [value.name for value in composed.inputs],
                "outputs": [value.name for value in composed.outputs],
                "weight_bytes": composed.weight_bytes,
                "blobs": [blob.sha256 for blob in manifest.blobs(first, stop)],
            }
        )
    return {
        "name": name,
        "manifest": encode_graph_manifest(manifest).decode(),
        "graphs": {name: base64.b64encode(graph).decode() for name, graph in graphs.items()},
        "runs": runs,
    }


def _everything(store: Store) -> GraphManifest:
    """Two units: one with a body, and attributes, types and constants of every kind; the other of two domains."""
    then = made_up.body([helper.make_node("Mul", ["in.1", "w.0"], ["t.0"])], [], ["t.0"])
    then.initializer.append(numpy_helper.from_array(np.array([10], np.float32), "c.0"))
    then.node.append(helper.make_node("Add", ["t.0", "c.0"], ["t.1"], name="for people", doc_string="too"))
    then.output[0].name = "t.1"
    then.output[0].type.tensor_type.elem_type = 1
    then.output[0].type.tensor_type.shape.dim.add(dim_param="n", denotation="d")
    then.output[0].type.tensor_type.shape.dim.add(dim_value=-1)
    then.value_info.add(name="t.0")
    then.doc_string = "dropped"
    other = made_up.body(
        [
            helper.make_node("Add", ["in.1", "", "w.0"], ["t.2", ""]),
            helper.make_node(
                "Odd", [], ["t.3"], f=1.5, i=-3, s=b"\xff", ints=[1, -1, 2**62], floats=[0.5, 1e30], strings=["a", ""]
            ),
        ],
        [],
        ["t.2"],
    )  # fmt: skip
    other.initializer.add(name="w.1")
    other.node.append(helper.make_node("Identity", ["w.1"], ["t.4"]))
    odd = other.node[1].attribute
    odd.add(name="type", type=onnx.AttributeProto.TYPE_PROTO).tp.sequence_type.elem_type.map_type.key_type = 7
    odd.add(
        name="types", type=onnx.AttributeProto.TYPE_PROTOS
    ).type_protos.add().optional_type.elem_type.opaque_type.name = "o"
    tensors = odd.add(name="tensors", type=onnx.AttributeProto.TENSORS).tensors
    tensors.add(data_type=TensorProto.INT32, dims=[2], int32_data=[-1, 300])
    tensors.add(data_type=TensorProto.INT64, dims=[3], int64_data=[-(2**62), 0, 2**40])
    tensors.add(data_type=TensorProto.UINT64, dims=[1], uint64_data=[2**64 - 1])
    tensors.add(data_type=TensorProto.DOUBLE, dims=[2], double_data=[0.25, -1.0])
    tensors.add(data_type=TensorProto.FLOAT, dims=[1], float_data=[3.0], doc_string="kept")
    tensors.add(data_type=TensorProto.STRING, dims=[2], string_data=[b"x", b""]).segment.end = 2
    tensors[0].metadata_props.add(key="k", value="v")
    nodes = [
        helper.make_node("If", ["in.0"], ["m.0"], then_branch=then, else_branch=other),
        helper.make_node("Gelu", ["m.0"], ["out.0"], domain="com.microsoft"),
    ]

    def domains(model: onnx.ModelProto) -> None:
        model.opset_import.add(domain="com.microsoft", version=1)
        model.opset_import.add(domain="\U0001f41f.fish", version=3)
        model.producer_name = "dropped"

    plans = [
        made_up.Plan(
            ("flag", "x"), ("m",), nodes, {"w.0": np.full(2, 3, np.float32), "w.1": np.ones(3, "i8")}
        ),
        made_up.Plan(("flag", "m"), ("y",), made_up.nested(2), {}),
    ]
    values: made_up.Values = {
        "flag": ("bool", (1,)), "x": ("float32", ("n",)), "m": ("float32", ("n",)), "y": ("float32", ()),
    }  # fmt: skip
    manifest = made_up.stored(store, plans, values, ["flag", "x"], ["y"])
    return made_up.with_graph(manifest, store, made_up.graph_bytes(nodes, 2, 1, domains), 0)


def _graphs(manifest: GraphManifest, store: Store) -> Iterator[bytes]:
    """For unit 0 of `manifest`: hostile ones, odd ways to write the same, and spoiled ones."""
    whole = store.blob_path(manifest.units[0].graph.sha256).read_bytes()
    model = onnx.load_from_string(whole)
    for change in (
        made_up.outside, made_up.external_attribute, made_up.sparse, made_up.function, made_up.training, made_up.twice,
        made_up.shadowed, made_up.endless, made_up.stolen, made_up.ported, made_up.unmade, made_up.referring,
    ):  # fmt: skip
        spoiled = copy.deepcopy(model)
        change(spoiled)
        yield spoiled.SerializeToString()
    for depth in (1, MAX_DEPTH, MAX_DEPTH + 1, 24):
        yield made_up.graph_bytes(made_up.nested(depth), 2, 1)
    nested = onnx.TypeProto()
    for depth in range(60):
        if depth in (44, 45, 46, 47, 48, 49, 50):
            spoiled = copy.deepcopy(model)
            spoiled.graph.node[1].attribute.add(name="deep", type=onnx.AttributeProto.TYPE_PROTO).tp.CopyFrom(
                nested
            )
            yield spoiled.SerializeToString()
        outer = onnx.TypeProto()
        outer.sequence_type.elem_type.CopyFrom(nested)
        nested = outer
    yield whole + b"\x9b\x06\x08\x01\x9c\x06"  # an unknown group
    yield whole + b"\x9b\x06\x08\x01\xa4\x06"  # ended by another one
    yield whole + b"\x9b\x06" * 120
    yield whole + b"\x00\x00"
    yield whole + b"\xfa\xff\xff\xff\x1f\x00"
    yield whole + b"\x3a\x07\x0a\x05\x0a\x03\x62\x61\xff"  # a node merged in, whose input is no UTF-8
    yield whole + b"\x42\x03\x0a\x01\xff"  # a domain that is none
    yield whole.replace(b"\x08\x0a", b"\x08\x8a\x80\x00", 1)
    spoiled = copy.deepcopy(model)
    spoiled.graph.node[1].attribute.add(name="axes", ints=[1, 2, 300], floats=[1.0, 2.0])
    yield spoiled.SerializeToString()
    # integers in one piece, a type of attribute that does not exist, an int32 of ten bytes that wraps around
    extra = [
        b"\x0a\x01a\x42\x04\x01\x02\xac\x02\x3a\x08" + b"\x00\x00\x80\x3f" * 2,
        b"\x0a\x01a\xa0\x01\x63",
        b"\x0a\x01a\xa0\x01\x82\x80\x80\x80\x10",
        b"\x0a\x01a\x2a\x0d\x10\x81\x80\x80\x80\xf0\xff\xff\xff\xff\x01\x70\x05",
        b"\x0a\x01a\x2a\x02\x70\x01",
        b"\x0a\x01a\x72\x06\x0a\x02\x08\x01\x22\x00",
        b"\x0a\x01a\x15\x00\x00\x80\x3f\x10\x05\x18\x02",
    ]
    for attribute in extra:
        node = b"\x0a\x03m.0\x12\x03m.9\x22\x01A\x2a" + bytes([len(attribute)]) + attribute
        graph = b"\x0a" + bytes([len(node)]) + node
        yield whole + b"\x3a" + bytes([len(graph)]) + graph
    yield b""
    chance = random.Random(5)
    for _ in range(SPOILED):
        mutable = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(len(mutable))
            match chance.choice((0, 0, 0, 0, 1, 1, 2, 3)):
                case 0:
                    mutable[at] ^= 1 << chance.randrange(8)
                case 1:
                    mutable[at] = chance.randrange(256)
                case 2:
                    del mutable[at : at + chance.randrange(1, 5)]
                case _:
                    mutable[at:at] = chance.randbytes(chance.randrange(1, 4))
        yield bytes(mutable)


def _graph(encoded: bytes, manifest: GraphManifest, store: Store) -> dict[str, Any]:
    changed = made_up.with_graph(manifest, store, encoded)
    row = {"graph": base64.b64encode(encoded).decode()}
    try:
        model = compose(changed, store, 0, 1).model
    except CorruptStore as error:
        return {**row, "says": str(error)}
    return {**row, "model": hashlib.sha256(model).hexdigest()}


def _manifests(manifest: GraphManifest) -> Iterator[str]:
    base = json.loads(encode_graph_manifest(manifest))
    for fused in (True, False, None, 1):
        yield json.dumps({**base, "fused": fused})
    yield "[]"
    yield "{"
    yield '"x"'
    yield json.dumps({**base, "format": "shoal-1"})
    yield json.dumps(base).replace(":", ":NaN,", 1)
    yield json.dumps({**base, "more": 0}).replace('"more": 0', '"more": Infinity')
    yield "\ufeff" + json.dumps(base)
    chance = random.Random(6)
    for _ in range(MANIFESTS):
        document = copy.deepcopy(base)
        for _ in range(chance.choice((1, 1, 1, 2))):
            _spoil(document, chance)
        yield json.dumps(document)


def _spoil(document: Any, chance: random.Random) -> None:
    """Changes one thing somewhere: another value, one fewer, one twice, or one from elsewhere."""
    places = [(document, key) for key in document] if isinstance(document, dict) else []
    stack = [document]
    while stack:
        found = stack.pop()
        keys = found.keys() if isinstance(found, dict) else range(len(found))
        for key in list(keys):
            places.append((found, key))
            if isinstance(found[key], dict | list):
                stack.append(found[key])
    holder, key = chance.choice(places)
    match chance.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        case 2:
            other, place = chance.choice(places)
            holder[key] = copy.deepcopy(other[place])
        case _:
            holder[key] = copy.deepcopy(chance.choice(HOSTILE))


def _manifest(encoded: str) -> dict[str, Any]:
    try:
        manifest = decode_graph_manifest(encoded.encode("utf-8", "surrogatepass"))
    except CorruptStore as error:
        return {"manifest": encoded, "says": str(error)}
    count = len(manifest.units)
    return {
        "manifest": encoded,
        "values": [[value.name, value.dtype, list(value.shape)] for value in manifest.values],
        "needed": [list(manifest.needed(place, count)) for place in range(count)],
        "given": [list(manifest.given(place, place + 1)) for place in range(count)],
        "sizes": dict(manifest.sizes),
        "fused": manifest.fused,
    }


def _messages() -> dict[str, dict[int, str]]:
    """The fields of onnx.proto, as web_peer/src/planner/onnx_messages.ts writes them."""
    found: dict[str, dict[int, str]] = {}

    def name_of(message: Any) -> str:
        name = message.name.removesuffix("Proto")
        outer = message.containing_type
        return name if outer is None else f"{name_of(outer)}.{name}"

    def look(message: Any) -> None:
        name = name_of(message)
        if name in found:
            return
        row = found[name] = {}
        for field in sorted(message.fields, key=lambda field: field.number):
            if field.message_type is not None:
                kind = name_of(field.message_type)
            elif field.enum_type is not None:
                kind = f"enum {max(value.number for value in field.enum_type.values)}"
            else:
                kind = KINDS[field.type]
            many = "+" if field.is_packed else "*" if field.is_repeated else ""
            group = "" if field.containing_oneof is None else f" | {field.containing_oneof.name}"
            row[field.number] = f"{kind}{many}{group}"
        for field in message.fields:
            if field.message_type is not None:
                look(field.message_type)

    look(onnx.ModelProto.DESCRIPTOR)
    return found


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
