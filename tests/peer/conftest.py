"""The real model in every weight format, and small made-up models of every family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from planner.types import WeightFormat
from tests.peer.made_up_models import MadeUpModel, Model, small_architecture


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[MadeUpModel, Manifest, Store]]:
    """made_up(weights, **architecture changes) -> source, manifest, store."""

    def build(weights: WeightFormat = "f32", **changes: object) -> tuple[MadeUpModel, Manifest, Store]:
        source = MadeUpModel(small_architecture(**changes), {})
        store = Store(tmp_path_factory.mktemp("store"))
        return source, decode_manifest(store.manifest_bytes(build_model(source, weights, store))), store

    return build


@pytest.fixture(scope="session")
def real_model(
    smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[WeightFormat], Model]:
    """real_model(weights) -> manifest, store: SmolLM2-135M-Instruct, imported once per format."""
    store = Store(tmp_path_factory.mktemp("smollm2"))
    built: dict[WeightFormat, Manifest] = {}

    def build(weights: WeightFormat) -> Model:
        if weights not in built:
            model_id = build_model(open_gguf(smollm2_gguf), weights, store)
            built[weights] = decode_manifest(store.manifest_bytes(model_id))
        return built[weights], store

    return build
