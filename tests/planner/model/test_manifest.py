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
from planner.model.architecture import Architecture, RopeScaling
from planner.model.manifest import (
    FORMAT,
    Manifest,
    ManifestUnit,
    StoredTensor,
    decode_manifest,
    encode_manifest,
    unit_names,
)
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.store import BlobRef

HASH = hashlib.sha256(b"blob").hexdigest()
BLOB = BlobRef(HASH, 4096, (HASH,))
ARCHITECTURE = Architecture(
    family="llama",
    blocks=2,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_size=16,
    ffn=96,
    vocab=100,
    context=512,
    norm_epsilon=1e-5,
    rope_base=1e4,
    rope_dims=16,
    rope_scaling=RopeScaling("llama3", 8.0),
    rope_factors=tuple(1.5 + n for n in range(8)),
    qkv_bias=False,
    qk_norm=False,
    tied_embedding=True,
)
MANIFEST = Manifest(
    format=FORMAT,
    name="små",
    weights="8bit",
    architecture=ARCHITECTURE,
    tokenizer=BLOB,
    chat_template="{{ messages }}",
    bos_token=None,
    end_tokens=(2, 7),
    add_bos=False,
    units=tuple(
        ManifestUnit(
            name=name,
            kind=kind,
            inputs=("hidden",),
            outputs=("hidden",),
            state=("key.0", "value.0") if kind == "attn" else (),
            params=16,
            flops_per_token=32,
            out_bytes_per_token=256,
            kv_bytes_per_token=256 if kind == "attn" else 0,
            blob=BLOB,
            tensors=(
                StoredTensor("norm", "f32", (64,), 0, 256),
                StoredTensor("w.q8", "u8", (2, 3, 32), 256, 192),
            ),
            resident_bytes=448 + place,
        )
        for place, (name, kind) in enumerate(unit_names(2))
    ),
)


def test_round_trip_and_canonical_bytes() -> None:
    encoded = encode_manifest(MANIFEST)
    assert decode_manifest(encoded) == MANIFEST
    assert encode_manifest(decode_manifest(encoded)) == encoded
    assert b": " not in encoded
    assert "små".encode() in encoded


def test_settings_of_sampling_are_a_field_only_where_the_model_has_some() -> None:
    """Ids of models that say nothing are those they had before there was such a field."""
    assert b"sampling" not in encode_manifest(MANIFEST)
    says = replace(MANIFEST, sampling=SamplingDefaults(0.6, 20, 0.95, 0.05, 1.05))
    encoded = encode_manifest(says)
    assert decode_manifest(encoded) == says
    assert json.loads(encoded)["sampling"] == {
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
    assert MANIFEST.blobs(0, 6) == (BLOB,)


DELETE = object()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", "shoal-0", "format"),
        ("name", 5, "name"),
        ("name", "x" * 300, "name"),
        ("weights", "3bit", "weights"),
        ("bos_token", 100, "bos_token"),
        ("end_tokens", [1, -1], "end_tokens"),
        ("end_tokens", "no", "end_tokens"),
        ("add_bos", 1, "add_bos"),
        ("chat_template", DELETE, "missing"),
        ("architecture", [], "object"),
        ("architecture.heads", True, "heads"),
        ("architecture.heads", 3, "fit together"),
        ("architecture.hidden", 0, "hidden"),
        ("architecture.hidden", 10**9, "hidden"),
        ("architecture.rope_base", float("inf"), "Infinity is no number"),
        ("architecture.rope_base", 10**400, "rope_base"),
        ("name", "\ud800", "name: a string"),
        ("architecture.norm_epsilon", -1, "norm_epsilon"),
        ("architecture.rope_factors", [1.0], "rope_factors"),
        ("architecture.rope_factors", [1.0] * 7 + [float("nan")], "NaN is no number"),
        ("architecture.rope_scaling.kind", "yarn", "kind"),
        ("tokenizer.sha256", "../../etc/passwd", "hash"),
        ("tokenizer.sha256", HASH.upper(), "hash"),
        ("tokenizer.pieces", [], "pieces"),
        ("tokenizer.bytes", 5 << 20, "pieces"),
        ("units", {}, "units"),
        ("units.1.name", "attn.7", "another order"),
        ("units.1.kind", "moe", "kind"),
        ("units.0.resident_bytes", -1, "resident_bytes"),
        ("units.0.params", 2**60, "params"),
        ("units.2.tensors.0.dtype", "f64", "dtype"),
        ("units.2.tensors.0.offset", 32, "aligned"),
        ("units.2.tensors.0.offset", 4096, "inside"),
        ("units.2.tensors.0.offset", -64, "offset"),
        ("units.2.tensors.0.bytes", 255, "do not hold"),
        ("units.2.tensors.0.shape", [1 << 31, 1 << 31], "do not hold"),
        ("units.2.tensors.0.shape", [0], "shape"),
        ("units.2.tensors.1.name", "norm", "differ"),
        ("sampling", None, "object"),
        ("sampling.temperature", -1, "temperature"),
        ("sampling.temperature", 0.7, "temperature"),
        ("sampling.temperature", 100_000_001, "temperature"),
        ("sampling.top_k", 2**31, "top_k"),
        ("sampling.top_p", 0, "top_p"),
        ("sampling.top_p", 1_000_001, "top_p"),
        ("sampling.min_p", DELETE, "missing"),
        ("sampling.repetition_penalty", 9_999, "repetition_penalty"),
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
