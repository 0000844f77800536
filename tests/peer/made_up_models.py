"""Small made-up models of every family, with random weights."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from planner.importers.architecture import Architecture
from planner.importers.layout import tensor_shapes
from planner.model.manifest import Manifest
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.sources import BlockQuantized, TokenizerSource
from planner.model.store import Store

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
    sampling: SamplingDefaults | None = None

    def tensor(self, name: str) -> MadeUpTensor:
        if name not in self.tensors:
            self.tensors[name] = self._values(name)
        return MadeUpTensor(self.tensors[name])

    def _values(self, name: str) -> npt.NDArray[np.float32]:
        a = self.architecture
        part = name.rpartition(".")[2]
        rng = np.random.default_rng([len(self.tensors), *name.encode()])
        noise = rng.standard_normal(tensor_shapes(a)[name], np.float32)
        made: npt.NDArray[np.float32] = (
            1 + noise / 10 if "norm" in part else noise / np.float32(np.sqrt(a.hidden))
        )
        return made


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
