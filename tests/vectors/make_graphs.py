"""Writes graphs.json, which the TypeScript suite replays: what a tab builds and unpacks equals what planner/ does.

Run it after a change of planner/model/shards.py or planner/model/units.py. Weights are made up, from a fixed seed.
"""

import base64
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from planner.model.manifest import (
    BlobRef,
    Manifest,
    ManifestUnit,
    decode_manifest,
    encode_manifest,
    packed_bytes,
    wide_bytes,
)
from planner.model.shards import make_graphs, rotary_tables
from planner.model.store import Store
from planner.model.units import build_model
from planner.types import WeightFormat
from tests.peer.made_up_models import MadeUpModel, small_architecture

CASES: dict[str, tuple[WeightFormat, dict[str, object]]] = {
    "8bit": ("8bit", {}),
    "8bit, blocks that are not whole, own head": (
        "8bit",
        {"hidden": 48, "head_size": 12, "rope_dims": 12, "tied_embedding": False},
    ),
    "4bit, bias": ("4bit", {"qkv_bias": True}),
    "f32, normed heads": ("f32", {"qk_norm": True}),
    "f16": ("f16", {}),
    "f32, normed heads that are filled up": ("f32", {"qk_norm": True, "head_size": 10, "rope_dims": 10}),
}
RUNS = ((0, 6), (1, 3), (2, 6), (5, 6))


def make() -> dict[str, Any]:
    cases = []
    for name, (weights, changes) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder))
            sizes = {"vocab": 20, "ffn": 64, **changes}
            model_id = build_model(MadeUpModel(small_architecture(**sizes), {}), weights, store)
            manifest = decode_manifest(store.manifest_bytes(model_id))
            cases.append({"name": name, **_case(manifest, store)})
    return {"cases": cases, "sliced": _sliced()}


def _sliced() -> dict[str, Any]:
    """A head so large that a tab's graph has it in slices."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        architecture = small_architecture(vocab=70_000, ffn=64)
        model_id = build_model(MadeUpModel(architecture, {}), "4bit", store)
        manifest = decode_manifest(store.manifest_bytes(model_id))
        _, head = make_graphs(manifest, len(manifest.units) - 1, len(manifest.units), "wasm")
        assert head is not None
        assert b"Concat" in head
        return {"manifest": encode_manifest(manifest).decode(), "head": _hash(head)}


def _case(manifest: Manifest, store: Store) -> dict[str, Any]:
    graphs = []
    for first, stop in RUNS:
        for provider in ("wasm", "webgpu"):
            body, head = make_graphs(manifest, first, stop, provider)
            graphs.append(
                {
                    "first": first,
                    "stop": stop,
                    "provider": provider,
                    "body": _hash(body),
                    "head": _hash(head),
                }
            )
    cos, sin = rotary_tables(manifest.architecture, 9)
    blobs = {unit.blob.sha256: unit.blob for unit in manifest.units}
    return {
        "manifest": encode_manifest(manifest).decode(),
        "graphs": graphs,
        "cos": _encoded(cos.tobytes()),
        "sin": _encoded(sin.tobytes()),
        "blobs": {sha256: _encoded(_read(store, ref)) for sha256, ref in blobs.items()},
        "held": [
            {
                "unit": unit.name,
                "wasm": wide_bytes(unit, manifest.architecture),
                "webgpu": packed_bytes(unit),
            }
            for unit in manifest.units
        ],
        "linears": [
            {"unit": unit.name, "name": linear, "w": hashlib.sha256(matrix.tobytes()).hexdigest()}
            for unit in manifest.units
            for linear, matrix in linears(manifest, unit, store).items()
        ],
    }


def linears(manifest: Manifest, unit: ManifestUnit, store: Store) -> dict[str, np.ndarray[Any, Any]]:
    """Every linear of the unit (the embedding included) as float32, from its stored form."""
    a = manifest.architecture
    columns = {"o": a.heads * a.head_size, "down": a.ffn}
    blob = _read(store, unit.blob)
    found = {}
    for tensor in unit.tensors:
        linear, _, form = tensor.name.rpartition(".")
        if form not in ("w", "q8", "q4"):
            continue
        parts = {
            one.name.rpartition(".")[2]: np.frombuffer(
                blob, {"f32": "<f4", "f16": "<f2", "u8": "u1"}[one.dtype], int(np.prod(one.shape)), one.offset
            ).reshape(one.shape)
            for one in unit.tensors
            if one.name.startswith(f"{linear}.")
        }
        found[linear] = np.ascontiguousarray(_wide(parts)[:, : columns.get(linear, a.hidden)])
    return found


def _wide(parts: dict[str, Any]) -> np.ndarray[Any, Any]:
    """In float64, where scale * (q - zero) is exact, then rounded once; the sum with a rest is rounded once, too."""
    if "w" in parts:
        return parts["w"].astype(np.float32)
    scale = parts["scale"].astype(np.float64)
    if "q8" in parts:
        wide = scale[:, :, None] * (parts["q8"].astype(np.float64) - 128)
    else:
        rows, blocks = scale.shape
        q = np.stack([parts["q4"] & 15, parts["q4"] >> 4], axis=-1).reshape(rows, blocks, 32)
        zero = np.stack([parts["zero"] & 15, parts["zero"] >> 4], axis=-1).reshape(rows, -1)[:, :blocks]
        wide = scale[:, :, None] * (q.astype(np.float64) - zero[:, :, None])
        if "rest" in parts:
            wide = wide + parts["rest"].astype(np.float64)[:, :, None]
    made: np.ndarray[Any, Any] = wide.reshape(len(wide), -1).astype(np.float32)
    return made


def _read(store: Store, ref: BlobRef) -> bytes:
    return store.blob_path(ref.sha256).read_bytes()


def _hash(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


if __name__ == "__main__":
    text = json.dumps(make(), indent=1, sort_keys=True) + "\n"
    Path(__file__).with_name("graphs.json").write_text(text, encoding="utf-8")
