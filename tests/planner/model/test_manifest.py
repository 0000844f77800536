"""A manifest survives a round trip; every broken one is named, none is believed."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from planner.errors import CorruptStore
from planner.model.checked_fields import StoredTensor
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.manifest import KvPair, Manifest, ManifestUnit, decode_manifest, encode_manifest
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.store import BlobRef
from planner.types import UnitKind

HASH = hashlib.sha256(b"blob").hexdigest()
BLOB = BlobRef(HASH, 4096, (HASH,))
GRAPHS = tuple(BlobRef(hashlib.sha256(bytes([n])).hexdigest(), 300, (HASH,)) for n in range(4))
NAMES: tuple[tuple[str, UnitKind], ...] = (
    ("embed", "embed"),
    ("attn.0", "attn"),
    ("ffn.0", "ffn"),
    ("attn.1", "attn"),
    ("ffn.1", "ffn"),
    ("head", "head"),
)
MANIFEST = Manifest(
    name="små",
    weights="8bit",
    vocab=100,
    hidden=64,
    context=512,
    scratch=192,
    rotary=((1.0, 0.5, 0.0), (0.1,)),
    tokenizer=BLOB,
    chat_template="{{ messages }}",
    bos_token=None,
    end_tokens=(2, 7),
    add_bos=False,
    units=tuple(
        ManifestUnit(
            name=name,
            kind=kind,
            graph=GRAPHS[("embed", "attn", "ffn", "head").index(kind)],
            kv=(KvPair(place // 2, 2, 16, None if place == 1 else 128),) if kind == "attn" else (),
            params=16,
            flops_per_token=0 if kind == "embed" else 32,
            out_bytes_per_token=4 if kind == "head" else 256,
            blob=BLOB,
            tensors=(
                StoredTensor("norm", "f32", (64,), 0, 256),
                StoredTensor("w.q8", "u8", (2, 3, 32), 256, 192),
            ),
            resident_bytes=448 + place,
        )
        for place, (name, kind) in enumerate(NAMES)
    ),
)


def test_round_trip_and_canonical_bytes() -> None:
    encoded = encode_manifest(MANIFEST)
    assert decode_manifest(encoded) == MANIFEST
    assert encode_manifest(decode_manifest(encoded)) == encoded
    assert b": " not in encoded
    assert "små".encode() in encoded


def test_settings_of_sampling_are_a_field_only_where_the_model_has_some() -> None:
    assert b"sampling" not in encode_manifest(MANIFEST)
    says = replace(MANIFEST, sampling=SamplingDefaults(0.6, 20, 0.95, 0.05, 1.05))
    encoded = encode_manifest(says)
    assert decode_manifest(encoded) == says
    assert json.loads(encoded)["decoder"]["sampling"] == {
        "temperature": 600_000,
        "top_k": 20,
        "top_p": 950_000,
        "min_p": 50_000,
        "repetition_penalty": 1_050_000,
    }


def test_units_as_the_planner_sees_them() -> None:
    units = MANIFEST.planner_units()
    assert [unit.name for unit in units] == ["embed", "attn.0", "ffn.0", "attn.1", "ffn.1", "head"]
    assert [unit.weight_bytes for unit in units] == [448, 449, 450, 451, 452, 453]
    assert [unit.kv_bytes_per_token for unit in units] == [0, 256, 0, 256, 0, 0]
    assert MANIFEST.blobs(0, 6) == (*GRAPHS, BLOB)
    assert MANIFEST.blobs(1, 2) == (GRAPHS[1], BLOB)
    assert MANIFEST.graphs() == GRAPHS
    assert MANIFEST.units[3].state == ("key.1", "value.1")


def test_kinds_follow_from_places_and_states() -> None:
    """Whatever units are called, and in whatever order blocks stand."""
    embed, attn, ffn, other, _, head = MANIFEST.units
    mixed = replace(MANIFEST, units=(embed, ffn, attn, replace(other, name="block"), head))
    found = decode_manifest(encode_manifest(mixed))
    assert [unit.kind for unit in found.units] == ["embed", "ffn", "attn", "attn", "head"]


def test_a_model_of_an_older_version_says_what_to_do() -> None:
    with pytest.raises(CorruptStore, match=r'format "shoal-1" of an older version: import the model again'):
        decode_manifest(b'{"format":"shoal-1"}')


def test_a_decoder_is_no_graph_of_inputs_and_outputs_and_the_other_way_round() -> None:
    encoded = encode_manifest(MANIFEST)
    with pytest.raises(CorruptStore, match="answers in words"):
        decode_graph_manifest(encoded)
    document = json.loads(encoded)
    del document["decoder"]
    plain = json.dumps(document).encode()
    assert len(decode_graph_manifest(plain).units) == 6
    with pytest.raises(CorruptStore, match="answers no questions"):
        decode_manifest(plain)


DELETE = object()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", "shoal-0", "format"),
        ("name", 5, "name"),
        ("name", "x" * 300, "name"),
        ("name", "\ud800", "name: a string"),
        ("decoder", [], "object"),
        ("decoder.weights", "3bit", "weights"),
        ("decoder.bos_token", 100, "bos_token"),
        ("decoder.end_tokens", [1, -1], "end_tokens"),
        ("decoder.end_tokens", "no", "end_tokens"),
        ("decoder.add_bos", 1, "add_bos"),
        ("decoder.chat_template", DELETE, "missing"),
        ("decoder.context", True, "context"),
        ("decoder.hidden", 0, "hidden"),
        ("decoder.hidden", 10**9, "hidden"),
        ("decoder.hidden", 65, "float32 .* 65.* expected"),
        ("decoder.vocab", 99, "logits float32"),
        ("decoder.scratch", 1 << 23, "scratch"),
        ("decoder.rotary", [{}] * 17, "rotary"),
        ("decoder.rotary.0.frequencies", [], "at least one"),
        ("decoder.rotary.0.frequencies", [1.0] * 513, "frequencies"),
        ("decoder.rotary.0.frequencies", [False], "frequencies"),
        ("decoder.rotary.0.frequencies", [-1.0], "frequencies"),
        ("decoder.rotary.0.frequencies", [float("nan")], "NaN is no number"),
        ("decoder.rotary.0.frequencies", [10**400], "frequencies"),
        ("decoder.tokenizer.sha256", "../../etc/passwd", "hash"),
        ("decoder.tokenizer.sha256", HASH.upper(), "hash"),
        ("decoder.tokenizer.pieces", [], "pieces"),
        ("decoder.tokenizer.bytes", 5 << 20, "pieces"),
        ("units", {}, "units"),
        ("units", [], "at least one unit"),
        ("units.1.name", "embed", "differ"),
        ("units.1.name", "a/b", "without /"),
        ("units.1.name", "x" * 65, "up to 64"),
        ("units.1.name", "", "up to 64"),
        ("units.1.inputs", ["tokens"], "one input"),
        ("units.1.inputs", ["hidden.4"], "not made before"),
        ("units.1.state.0.kind", "recurrent", "kind"),
        ("units.1.state.0.heads", 0, "heads"),
        ("units.1.state.0.head_size", 1 << 20, "head_size"),
        ("units.3.state.0.window", 0, "window"),
        ("units.0.state", [{"kind": "kv", "heads": 1, "head_size": 16}], "no state expected"),
        ("units.5.state", [{"kind": "kv", "heads": 1, "head_size": 16}], "no state expected"),
        ("units.1.weights", [], "a place among 0 blobs"),
        ("units.1.graph.bytes", -1, "bytes"),
        ("values.0.dtype", "int32", "tokens int64"),
        ("values.2.shape", ["tokens", 64], "float32"),
        ("outputs", ["hidden.4"], "from tokens to logits"),
        ("units.0.resident_bytes", -1, "resident_bytes"),
        ("units.0.params", 2**60, "params"),
        ("units.2.tensors.0.dtype", "float64", "do not hold"),
        ("units.2.tensors.0.offset", 32, "aligned"),
        ("units.2.tensors.0.offset", 4096, "inside"),
        ("units.2.tensors.0.offset", -64, "offset"),
        ("units.2.tensors.0.bytes", 255, "do not hold"),
        ("units.2.tensors.0.shape", [1 << 31, 1 << 31], "do not hold"),
        ("units.2.tensors.0.shape", [0], "do not hold"),
        ("units.2.tensors.1.name", "norm", "differ"),
        ("decoder.sampling", None, "object"),
        ("decoder.sampling.temperature", -1, "temperature"),
        ("decoder.sampling.temperature", 0.7, "temperature"),
        ("decoder.sampling.temperature", 100_000_001, "temperature"),
        ("decoder.sampling.top_k", 2**31, "top_k"),
        ("decoder.sampling.top_p", 0, "top_p"),
        ("decoder.sampling.top_p", 1_000_001, "top_p"),
        ("decoder.sampling.min_p", DELETE, "missing"),
        ("decoder.sampling.repetition_penalty", 9_999, "repetition_penalty"),
    ],
)
def test_each_rule(path: str, value: Any, words: str) -> None:
    document: Any = json.loads(encode_manifest(replace(MANIFEST, sampling=SamplingDefaults(0.6))))
    place = document
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        place = place[part]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    with pytest.raises(CorruptStore, match=words):
        decode_manifest(json.dumps(document).encode())


@pytest.mark.parametrize("encoded", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b" " * (33 << 20)])
def test_what_is_no_json_object(encoded: bytes) -> None:
    with pytest.raises(CorruptStore):
        decode_manifest(encoded)


def test_random_damage_is_named_or_harmless() -> None:
    """Flipped and cut bytes, swapped values: CorruptStore or a manifest that keeps the rules, nothing else."""
    rng = random.Random(7)
    encoded = encode_manifest(MANIFEST)
    document = json.loads(encoded)
    values: list[Any] = [None, -1, 2**70, 1.5, "", "x", [], {}, [[]], True]
    for _ in range(1500):
        damaged = bytearray(encoded)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        other = copy.deepcopy(document)
        place: Any = other
        while isinstance(place, dict | list) and place:
            key: Any = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
            if not isinstance(place[key], dict | list) or rng.random() < 0.2:
                place[key] = rng.choice(values)
                break
            place = place[key]
        for candidate in (bytes(damaged), encoded[: rng.randrange(len(encoded))], json.dumps(other).encode()):
            try:
                found = decode_manifest(candidate)
            except CorruptStore:
                continue
            assert all(
                tensor.offset + tensor.bytes <= unit.blob.bytes
                for unit in found.units
                for tensor in unit.tensors
            )
            assert dataclasses.is_dataclass(found)
