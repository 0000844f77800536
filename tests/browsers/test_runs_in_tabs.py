"""A tab as a stage of runs: units of graph models, computed beside a process with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peer.api import Mesh
from peer.coordination.offer_placement import next_version
from peer.errors import RunFailed
from peer.member.mesh_member import MeshMember
from peer.runtime.graph_runtime import GraphRuntime
from peer.state.generated.commands import ModelOffered, ModelPlaced, RunStage
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest
from tests.browsers.harness import Driver, Models, founded, visit
from tests.e2e.graph_model import inputs, put_towers
from tests.patience import WITHIN_S

ITEMS = 12
NAME = "towers"
RELATIVE = 1e-4  # of the largest value, between onnxruntime of a process and that of a tab


async def place(founder: MeshMember, name: str, *stages: RunStage) -> None:
    """In place of where the leader put them."""
    await founder.view.until(lambda state: bool(state.offers[name].stages), WITHIN_S)
    assert founder.leadership.current is not None
    state = founder.leadership.current.state
    version = next_version(state, state.offers[name])
    founder.leadership.current.submit(ModelPlaced(name, version, stages, 0, 0, ()))
    await founder.view.until(lambda state: state.offers[name].version == version, WITHIN_S)


def whole(models: Models, manifest: GraphManifest) -> GraphRuntime:
    """In one piece, in this process."""
    blobs = models.store.blob_path(manifest.units[0].graph.sha256).parent
    return GraphRuntime(compose(manifest, models.store, 0, len(manifest.units)), blobs, 1)


@pytest.mark.parametrize("browser", ["chromium"])
async def test_a_tab_and_a_process_compute_a_graph(
    driver: Driver, harness: Path, models: Models, browser: str
) -> None:
    """The tab has a tower and the join; an item that it cannot compute ends alone."""
    model, manifest = put_towers(models.store)
    runtime = whole(models, manifest)
    async with founded(models, harness) as founder:
        assert founder.link is not None
        await founder.until_serving(WITHIN_S)
        made = await visit(driver, browser)
        tab = await made.tab(founder.link.server)
        status = await tab.join(founder.link.url(), lends=True)
        assert status["state"] == "in", status
        (there,) = founder.view.state.members.keys() - {founder.me}
        await founder.propose(ModelOffered(model, NAME))
        await founder.view.until(lambda state: NAME in state.offers, WITHIN_S)
        await place(
            founder,
            NAME,
            RunStage(0, 2, there, ()),
            RunStage(2, 4, founder.me, ()),
            RunStage(4, 5, there, ()),
        )
        mesh = Mesh(founder)
        for item in range(ITEMS):
            rows = 1 + 300 * (item % 3)  # values of one part and of several
            expected = runtime.run(inputs(item, rows))["sum"]
            found = (await mesh.run(NAME, inputs(item, rows)))["sum"]
            np.testing.assert_allclose(found, expected, rtol=0, atol=RELATIVE * np.abs(expected).max())
        with pytest.raises(RunFailed, match="onnxruntime could not compute it"):
            await mesh.run(NAME, {"left": inputs(0)["left"], "right": inputs(0, 3)["right"]})
        outputs = mesh.map(NAME, (inputs(item) for item in range(ITEMS)))
        found_all = [each["sum"] async for each in outputs]
        for item, each in enumerate(found_all):
            np.testing.assert_allclose(each, runtime.run(inputs(item))["sum"], rtol=0, atol=1e-4)
        await made.close()
