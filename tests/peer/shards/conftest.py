"""The real model in every weight format, and small made-up models of every family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from planner.importers.gguf import open_gguf
from planner.model.architecture import Architecture, BlockQuantized, TokenizerSource
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from planner.model.units import build_model
from planner.types import WeightFormat

Model = tuple[Manifest, Store]


@dataclass(frozen=True)
class MadeUpTensor:
    values: npt.NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def kind(self) -> str:
        return "F32"

    def float32(self) -> npt.NDArray[np.float32]:
        return self.values

    def blocks(self) -> BlockQuantized | None:
        return None

    def rows(self, first: int, stop: int) -> MadeUpTensor:
        return MadeUpTensor(self.values[first:stop])


@dataclass(frozen=True)
class MadeUpModel:
    """A SourceModel of random weights; `tensors` is filled on first use and stays."""

    architecture: Architecture
    tensors: dict[str, npt.NDArray[np.float32]]
    name: str = "made up"
    tokenizer: TokenizerSource = field(
        default_factory=lambda: TokenizerSource(b"{}", None, None, (0,), False)
    )

    def tensor(self, name: str) -> MadeUpTensor:
        if name not in self.tensors:
            self.tensors[name] = self._values(name)
        return MadeUpTensor(self.tensors[name])

    def _values(self, name: str) -> npt.NDArray[np.float32]:
        a = self.architecture
        queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight": (a.vocab, a.hidden),
            "norm": (a.hidden,),
            "q": (queries, a.hidden),
            "k": (keys, a.hidden),
            "v": (keys, a.hidden),
            "o": (a.hidden, queries),
            "q_bias": (queries,),
            "k_bias": (keys,),
            "v_bias": (keys,),
            "q_norm": (a.head_size,),
            "k_norm": (a.head_size,),
            "gate": (a.ffn, a.hidden),
            "up": (a.ffn, a.hidden),
            "down": (a.hidden, a.ffn),
        }
        part = name.rpartition(".")[2]
        rng = np.random.default_rng([len(self.tensors), *name.encode()])
        noise = rng.standard_normal(shapes[part], np.float32)
        return 1 + noise / 10 if "norm" in part else noise / np.float32(np.sqrt(a.hidden))


def small_architecture(**changes: object) -> Architecture:
    numbers: dict[str, object] = {
        "family": "llama",
        "blocks": 2,
        "hidden": 64,
        "heads": 4,
        "kv_heads": 2,
        "head_size": 16,
        "ffn": 96,
        "vocab": 100,
        "context": 512,
        "norm_epsilon": 1e-5,
        "rope_base": 10000.0,
        "rope_dims": 16,
        "rope_scaling": None,
        "rope_factors": None,
        "qkv_bias": False,
        "qk_norm": False,
        "tied_embedding": True,
    }
    return Architecture(**(numbers | changes))  # type: ignore[arg-type]


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
