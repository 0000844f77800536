"""Texts as inputs of a model: as the vectors say, which tabs replay too, and as the library that it stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.errors import BadCommand, CannotServe
from peer.model.text_inputs import TextReader
from planner.errors import CorruptStore
from planner.model.graph_manifest import decode_graph_manifest, encode_graph_manifest

FILE = Path(__file__).parents[2] / "vectors" / "text_inputs.json"
VECTORS: Any = json.loads(FILE.read_text(encoding="utf-8"))
TOKENIZER = VECTORS["tokenizer"][0].encode()


def test_manifests_as_the_vectors_have_them() -> None:
    for case in VECTORS["manifests"]:
        encoded = case["manifest"].encode()
        if not case["why"]:
            manifest = decode_graph_manifest(encoded)
            assert decode_graph_manifest(encode_graph_manifest(manifest)) == manifest
            continue
        with pytest.raises(CorruptStore) as refused:
            decode_graph_manifest(encoded)
        assert str(refused.value) == case["why"]


def test_texts_as_the_vectors_have_them() -> None:
    for case in VECTORS["texts"]:
        manifest = decode_graph_manifest(case["manifest"].encode())
        reader = TextReader(manifest, TOKENIZER)
        if case["why"]:
            with pytest.raises(BadCommand) as refused:
                reader.arrays(case["texts"])
            assert str(refused.value) == case["why"]
            continue
        found = reader.arrays(case["texts"])
        assert {name: array.tolist() for name, array in found.items()} == case["arrays"]
        for name, array in found.items():
            assert array.dtype == np.dtype(manifest.value(name).dtype)


def test_a_model_or_a_tokenizer_that_says_nothing_is_refused() -> None:
    document = json.loads(VECTORS["manifests"][0]["manifest"])
    manifest = decode_graph_manifest(json.dumps(document).encode())
    with pytest.raises(CannotServe, match="the tokenizer of encoder cannot be read"):
        TextReader(manifest, b"{}")
    del document["text"]
    with pytest.raises(CannotServe, match="does not say how texts become its inputs"):
        TextReader(decode_graph_manifest(json.dumps(document).encode()), TOKENIZER)
