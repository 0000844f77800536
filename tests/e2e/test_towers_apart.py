"""CLIP over two peers neither of which can hold it: each computes one of its towers and waits for no other."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from peer.api import Mesh
from peer.dataflow.flow_stage import Compute
from peer.dataflow.value_codec import Array
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.model.pictures import prepared
from peer.runtime.graph_runtime import GraphRuntime
from peer.stage.flow_host import FlowHost
from peer.state.generated.commands import ModelOffered, RunStage
from planner.importers.onnx.importing import import_graph
from planner.importers.vision.folder import open_vision
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.graph_work import work_of
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.pictures import PICTURE
from tests.e2e.real_mesh import options
from tests.patience import WITHIN_S
from tests.planner.importers.vision.checkpoints import load

LABELS = ["w5 w6 w3", "w7 w3", "w8 w9 w10 w3"]
TOWERS = {"vision", "text"}


def imported(root: Path) -> tuple[Store, str, GraphManifest]:
    store = Store(root / "store")
    with open_vision(load("clip").write(root / "clip"), "clip").graph(root) as file:
        model = import_graph(file, store)
    return store, model, decode_graph_manifest(store.manifest_bytes(model))


def in_one_process(store: Store, graph: GraphManifest, texts: dict[str, Array]) -> list[float]:
    """How well each label fits, by the whole model."""
    assert graph.picture is not None
    assert graph.picture.scores is not None
    pixels = prepared(None, PICTURE, store.blob_path(graph.picture.graph.sha256).read_bytes())
    composed = compose(graph, store, 0, len(graph.units))
    whole = GraphRuntime(composed, store.root / "blobs", 1, fused=graph.fused)
    made = whole.run({graph.picture.input: pixels, **texts})[graph.picture.scores]
    return [float(each) for each in made[0]]


def towers_in(graph: GraphManifest, stages: Collection[RunStage], peer: str) -> set[str]:
    """The towers that begin on a peer: what compares their vectors is a unit behind both, of one's component."""
    begins = {
        tower: next(at for at, unit in enumerate(graph.units) if unit.component == tower) for tower in TOWERS
    }
    own = [each for each in stages if each.primary == peer]
    return {tower for tower, at in begins.items() if any(each.first <= at < each.stop for each in own)}


async def test_both_peers_compute_a_tower_and_make_the_bits_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model, graph = await asyncio.to_thread(imported, tmp_path)
    units = work_of(graph).units
    most = sum(unit.weight_bytes for unit in units) - 1  # so much of it fits nowhere

    def lent(name: str) -> PeerOptions:
        return replace(options(name, most), beside_program=True)  # all of it is for models

    computed: set[tuple[FlowHost, tuple[int, int]]] = set()
    compute = FlowHost._computed

    async def noted(host: FlowHost, step: Compute) -> None:
        computed.add((host, (step.first, step.stop)))
        await compute(host, step)

    monkeypatch.setattr(FlowHost, "_computed", noted)
    promise = Founding(None, MeshOptions(0, 1, "latency", None), ServerOptions())
    async with AsyncExitStack() as stack:
        founding = found(promise, lent("founder"), store, identity_from_seed(bytes(32)))
        founder: MeshMember = await stack.enter_async_context(founding)
        assert founder.link is not None
        joining = join(founder.link.url(), lent("other"), Store(tmp_path / "other"), compute=True)
        other = await stack.enter_async_context(joining)
        await founder.propose(ModelOffered(model, "clip"))
        assert await founder.view.until(lambda state: bool(state.offers["clip"].stages), WITHIN_S)
        stages = founder.view.state.offers["clip"].stages
        apart = [towers_in(graph, stages, peer.me) for peer in (founder, other)]
        assert sorted(apart, key=sorted) == [{"text"}, {"vision"}]

        first = [each for each in stages if towers_in(graph, [each], each.primary)]
        assert all(set(graph.needed(each.first, each.stop)) <= set(graph.inputs) for each in first)

        texts = (await founder.text_reader(graph)).arrays(LABELS)
        expected = in_one_process(store, graph, texts)
        scores = await Mesh(founder).classify(PICTURE, LABELS, "clip")
        assert [scores[label] for label in LABELS] == expected, "to the bit"
        assert len({host for host, _ in computed}) == 2
        assert {units for _, units in computed} == {(each.first, each.stop) for each in stages}
        np.testing.assert_allclose(sum(scores.values()), 1, rtol=1e-5)
