"""A tab in runs: it computes units of graph models beside a process, and asks runs, with the same results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from peer.api import Mesh
from peer.coordination.placement_answers import answered
from peer.dataflow.value_codec import NUMPY, Array
from peer.errors import RunFailed
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.runtime.graph_runtime import GraphRuntime
from peer.state.generated.commands import ModelOffered, RunStage
from peer.state.mesh_state import MeshState
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import import_graph
from planner.importers.registry import GRAPH_NAMES
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.store import Store
from signaling.server import ServerOptions, serve
from tests.browsers.harness import Driver, Models, TabInBrowser, founded, lending_tabs, visit
from tests.browsers.voter_processes import Watch, processes
from tests.e2e.graph_model import inputs, place, put_towers
from tests.patience import WITHIN_S
from tests.planner.slices.picture_nets import residual

ITEMS = 6
RELATIVE = 1e-4  # of the largest value, between onnxruntime of a process and that of a tab
ROUNDED = 2.0**-22  # of a probability near 0: a float32 near 1 is taken from 1
BANDS = "bands"
REAL = "silero-vad"  # a recurrent layer, If, and an int64 among its inputs


async def offer(founder: MeshMember, model: str, name: str, *stages: RunStage) -> None:
    """Offers a model; its units run there, in place of where the leader put them."""
    await founder.propose(ModelOffered(model, name))
    await founder.view.until(lambda state: name in state.offers, WITHIN_S)
    await place(founder, name, *stages)


def whole(models: Models, manifest: GraphManifest) -> GraphRuntime:
    """In one piece, in this process."""
    return whole_of(models.store, manifest)


def whole_of(store: Store, manifest: GraphManifest) -> GraphRuntime:
    """The same of a store."""
    blobs = store.blob_path(manifest.units[0].graph.sha256).parent
    composed = compose(manifest, store, 0, len(manifest.units))
    return GraphRuntime(composed, blobs, 1, fused=manifest.fused)


def drawn(manifest: GraphManifest, seed: int) -> dict[str, Array]:
    """Inputs of the sizes that the model was tried with at its import."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in map(manifest.value, manifest.inputs):
        shape = [size if isinstance(size, int) else manifest.sizes[size] for size in value.shape]
        found[value.name] = np.asarray(
            rng.standard_normal(shape) if value.dtype == "float32" else 16000, value.dtype
        )
    return found


def assert_close(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        most = RELATIVE * float(np.abs(array).max())
        np.testing.assert_allclose(found[name], array, rtol=0, atol=max(most, ROUNDED))


async def asked_by(
    tab: TabInBrowser, name: str, manifest: GraphManifest, given: dict[str, Array]
) -> dict[str, Array]:
    """What a run that the tab asks gives."""
    told = {key: {"shape": array.shape, "data": array.tobytes().hex()} for key, array in given.items()}
    found = await tab.run(f"shoal.run({json.dumps(name)}, {json.dumps(told)})")
    return {
        key: np.frombuffer(bytes.fromhex(said["data"]), NUMPY[manifest.value(key).dtype]).reshape(
            said["shape"]
        )
        for key, said in found.items()
    }


@pytest.mark.parametrize("browser", ["chromium"])
async def test_a_tab_and_a_process_compute_a_graph(
    driver: Driver,
    harness: Path,
    models: Models,
    graph_file: Callable[[str], Path],
    tmp_path: Path,
    browser: str,
) -> None:
    """The tab has a tower and the join, the middle of a real model, and a band of rows of another, whose neighbour the
    process has; an item that it cannot compute ends alone.
    """
    towers_id, towers = put_towers(models.store)
    asked = SourceGraph(graph_file(REAL), REAL, sizes=GRAPH_NAMES[REAL].sizes)
    real_id = await asyncio.to_thread(import_graph, asked, models.store)
    real = decode_graph_manifest(models.store.manifest_bytes(real_id))
    file = tmp_path / f"{BANDS}.onnx"
    file.write_bytes(residual().model().SerializeToString())
    cut = SourceGraph(file, BANDS, sizes=(("height", 64), ("width", 20)), bands=2)
    bands_id = await asyncio.to_thread(import_graph, cut, models.store)
    bands = decode_graph_manifest(models.store.manifest_bytes(bands_id))
    async with founded(models, harness) as founder:
        assert founder.link is not None
        await founder.until_serving(WITHIN_S)
        made = await visit(driver, browser)
        tab = await made.tab(founder.link.server)
        status = await tab.join(founder.link.url(), lends=True)
        assert status["state"] == "in", status
        me, (there,) = founder.me, founder.view.state.members.keys() - {founder.me}
        where = [there if unit.component == "band1" else me for unit in bands.units]
        await offer(
            founder, bands_id, BANDS, *(RunStage(at, at + 1, peer, ()) for at, peer in enumerate(where))
        )
        await offer(
            founder, towers_id, "towers", RunStage(0, 2, there, ()), RunStage(2, 4, me, ()), RunStage(4, 5, there, ())
        )  # fmt: skip
        count = len(real.units)
        await offer(
            founder, real_id, REAL, RunStage(0, 1, me, ()), RunStage(1, count - 1, there, ()),
            RunStage(count - 1, count, me, ()),
        )  # fmt: skip
        mesh = Mesh(founder)
        runtime = whole(models, towers)
        for item in range(3):
            given = inputs(item, 1 + 1000 * item)  # values of one part and of several
            assert_close(await mesh.run("towers", given), runtime.run(given))
        with pytest.raises(RunFailed, match="onnxruntime could not compute it"):
            await mesh.run("towers", {"left": inputs(0)["left"], "right": inputs(0, 3)["right"]})
        for name, manifest in (("towers", towers), (REAL, real), (BANDS, bands)):
            items = [inputs(item) if name == "towers" else drawn(manifest, item) for item in range(ITEMS)]
            runtime = whole(models, manifest)
            found = [each async for each in mesh.map(name, items)]
            assert len(found) == ITEMS
            for outputs, given in zip(found, items, strict=True):
                assert_close(outputs, runtime.run(given))
            assert_close(await asked_by(tab, name, manifest, items[0]), runtime.run(items[0]))
        with pytest.raises(RuntimeError, match="offers no model other; it offers bands, towers"):
            await tab.run('shoal.run("other", {})')
        with pytest.raises(RuntimeError, match="onnxruntime could not compute it"):
            await asked_by(tab, "towers", towers, {"left": inputs(0)["left"], "right": inputs(0, 3)["right"]})
        await made.close()


def on(state: MeshState, peers: set[str]) -> bool:
    """Each of `peers` has a part in every stage of the real model, and nobody else has."""
    offer = state.offers.get(REAL)
    return (
        offer is not None
        and bool(offer.stages)
        and all(peers == {stage.primary, *stage.standbys} for stage in offer.stages)
    )


@pytest.mark.soak
async def test_a_tab_that_coordinates_places_a_graph(
    driver: Driver,
    harness: Path,
    tiny: tuple[Store, str],
    graph_file: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """The founder introduces and is killed; what is offered then is placed, and placed anew as a tab goes and comes."""
    store, model = tiny
    asked = SourceGraph(graph_file(REAL), REAL, sizes=GRAPH_NAMES[REAL].sizes)
    real_id = await asyncio.to_thread(import_graph, asked, store)
    real = decode_graph_manifest(store.manifest_bytes(real_id))
    async with (
        serve(ServerOptions(web_app=harness), store, placing=partial(answered, store)) as meeting,
        processes(store.root, tmp_path) as others,
    ):
        link = await others.start("founder", "found", model, meeting.url, "0")
        opened = await lending_tabs(driver, meeting.url, link, tmp_path)
        asks = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
        async with join(link, asks, store) as member:
            tabs = set(opened)
            watch = Watch(member)
            await watch.until(lambda: watch.whole(3), "three voters")
            assert await member.view.until(
                lambda state: state.people.roles.get(member.me) == "owner", WITHIN_S
            )
            lost = member.view.leader
            assert lost is not None
            await others.kill("founder")
            await watch.until(lambda: watch.led_without(lost), "a leader without the founder")
            leader = member.view.leader
            assert leader in opened
            await member.propose(ModelOffered(real_id, REAL))
            assert await member.view.until(lambda state: on(state, tabs), WITHIN_S), member.view.state.offers
            mesh, given = Mesh(member), drawn(real, 0)
            expected = whole_of(store, real).run(given)
            assert_close(await mesh.run(REAL, given), expected)
            (paused,) = tabs - {leader}
            await opened[paused][1].run("shoal.pause()")
            assert await member.view.until(lambda state: on(state, {leader}), WITHIN_S)
            before = member.view.state.offers[REAL].version
            assert_close(await mesh.run(REAL, given), expected)
            assert member.view.leader == leader
            await opened[paused][1].run("shoal.resume()")
            assert await member.view.until(lambda state: on(state, tabs), WITHIN_S)
            assert member.view.state.offers[REAL].version > before
            assert_close(await mesh.run(REAL, given), expected)
        for made, _ in opened.values():
            await made.close()
