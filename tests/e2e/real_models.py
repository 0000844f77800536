"""Real models of short names, and made-up ones of known shapes: imported into a store, placed over peers, compared."""

from __future__ import annotations

import runpy
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from peer.coordination.offer_promotion import next_version
from peer.dataflow.value_codec import Array
from peer.member.mesh_member import MeshMember
from peer.runtime.graph_runtime import GraphRuntime
from peer.state.generated.commands import ModelOffered, ModelPlaced, RunStage
from planner.importers.encoders.file import encoder_file
from planner.importers.encoders.folder import open_encoder
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.steps import Steps
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.store import Store
from tests.e2e.command import ROOT
from tests.patience import WITHIN_S
from tests.planner.importers.onnx.made_up import Made, choice, recurrent
from tests.planner.importers.onnx.whisper_shape import whisper

SMALL: Mapping[str, Mapping[str, int]] = {
    "ppocr-v4-det": {"p2o.DynamicDimension.1": 64, "p2o.DynamicDimension.2": 96},
    "ppocr-v4-cls": {"x.2": 48, "x.3": 192},
    "ppocr-v4-rec": {"x.2": 48, "p2o.DynamicDimension.1": 80},
    "silero-vad": {"batch": 1, "sequence": 576},
    "openwakeword": {},
}  # short names, and the sizes of what they are given in tests
MINILM = "all-minilm-l6-v2"
MADE: Mapping[str, Callable[[], Made]] = {
    "whisper-shape": lambda: whisper(width=48, layers=2, vocab=131, frames=60, length=7),
    "if": choice,
    "recurrent": recurrent,
}
NAMES = (*SMALL, MINILM, *MADE)
WHISPER_TINY = "whisper-tiny"  # of NAMES' whisper-shape the real size: importing it takes a minute
IN_THE_PICTURE = ("Shoal reads this sign", "one model in three parts", "open 9 to 17")
Cuts = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Real:
    """A model in a store."""

    name: str
    model: str
    manifest: GraphManifest
    store: Store

    def whole(self) -> GraphRuntime:
        """In one piece, in this process."""
        composed = compose(self.manifest, self.store, 0, len(self.manifest.units))
        blobs = self.store.blob_path(self.manifest.units[0].graph.sha256).parent
        return GraphRuntime(composed, blobs, 1, fused=self.manifest.fused)

    def cuts(self) -> tuple[Cuts, Cuts]:
        """Two ways to cut it into three."""
        count = len(self.manifest.units)
        third = max(1, count // 3)
        return (third, max(third + 1, 2 * count // 3)), (1, count - 1)

    def inputs(self, seed: int) -> dict[str, Array]:
        """Drawn inputs, of the sizes that the model was tried with at its import."""
        rng = np.random.default_rng(seed)
        found: dict[str, Array] = {}
        for value in map(self.manifest.value, self.manifest.inputs):
            shape = [size if isinstance(size, int) else self.manifest.sizes[size] for size in value.shape]
            match value.dtype, value.name:
                case "float32", "mask":
                    array = np.ones(shape)
                case "float32", "sound":
                    array = 1000 * rng.standard_normal(shape)
                case "float32", _:
                    array = rng.standard_normal(shape)
                case "bool", _:
                    array = np.full(shape, seed % 2)
                case _, "sr":
                    array = np.full(shape, 16000)
                case _:
                    array = rng.integers(0, 100, shape)
            found[value.name] = np.asarray(array, value.dtype)
        return found


def put(name: str, store: Store, graph_file: Callable[[str], Path], minilm: Path) -> Real:
    """Imports one of NAMES, or WHISPER_TINY. Takes seconds."""
    if name == MINILM:
        with encoder_file(open_encoder(minilm, name), store) as source:
            return _put(source, name, store)
    if name in SMALL:
        return _put(SourceGraph(graph_file(name), name, sizes=tuple(SMALL[name].items())), name, store)
    made = whisper(width=384, vocab=51865, frames=3000, length=16) if name == WHISPER_TINY else MADE[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(made.model.SerializeToString())
        return _put(SourceGraph(path, name, sizes=tuple(made.sizes.items())), name, store)


def _put(source: SourceGraph, name: str, store: Store) -> Real:
    """By the steps of an import in this process: one of its own gives way to all others on the machine."""
    with tempfile.TemporaryDirectory() as folder:
        steps = Steps(source, Path(folder))
        steps.read()
        done, total = 0, steps.cut()
        while done < total:
            done, total, _ = steps.prove()
        encoded = steps.finish()
        manifest = decode_graph_manifest(encoded)
        made = Store(Path(folder) / "store")
        for blob in manifest.blobs(0, len(manifest.units)):
            store.put_blob([made.blob_path(blob.sha256).read_bytes()])
    return Real(name, store.put_manifest(encoded), manifest, store)


def read_by_the_example(
    run: Callable[[str, Mapping[str, Array]], Mapping[str, Array]], graph_file: Callable[[str], Path]
) -> list[str]:
    """The text that examples/ocr.py finds in the picture that it draws, with its three models by `run`."""
    example = runpy.run_path(str(ROOT / "examples" / "ocr.py"))
    example["known_characters"].__globals__["fetch_short_graph"] = lambda name, _: graph_file(name)
    return list(example["read"](example["drawn"](), run, example["known_characters"]()))


async def offer(founder: MeshMember, real: Real) -> None:
    """Until the leader has placed it somewhere."""
    await founder.propose(ModelOffered(real.model, real.name))
    await founder.view.until(
        lambda state: real.name in state.offers and bool(state.offers[real.name].stages), WITHIN_S
    )


async def place(founder: MeshMember, real: Real, cuts: Cuts, peers: Sequence[str]) -> None:
    """Its three parts on these peers, in place of where the leader put them."""
    borders = (0, *cuts, len(real.manifest.units))
    stages = tuple(
        RunStage(first, stop, peer, ())
        for first, stop, peer in zip(borders, borders[1:], peers, strict=False)
    )
    assert founder.leadership.current is not None
    state = founder.leadership.current.state
    version = next_version(state, state.offers[real.name])
    founder.leadership.current.submit(ModelPlaced(real.name, version, stages, 0, 0, ()))
    await founder.view.until(lambda state: state.offers[real.name].version == version, WITHIN_S)
