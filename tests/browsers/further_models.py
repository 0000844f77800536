"""Further models of random weights that answer in words, as an owner offers them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from peer.state.generated.commands import DecoderOffered
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.planner.tiny_models import TinyModel

CONTEXT: Final = 256


def put_further(home: Path, store: Store, name: str, seed: int = 5) -> DecoderOffered:
    """One of four blocks in the store; `home` gets its file."""
    gguf = TinyModel(seed=seed, blocks=4).write_gguf(home / f"{name}.gguf")
    model = build_model(open_gguf(gguf, name), "f32", store)
    units = len(decode_manifest(store.manifest_bytes(model)).units)
    return DecoderOffered(name, model, units, CONTEXT, 2, "latency")
