"""A model that is a graph of units runs beside the mesh's own over real peers, and survives the loss of one."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import numpy as np
import pytest

from peer.api import Mesh
from peer.dataflow.value_codec import Array
from peer.errors import NoPlan, RunFailed, WrongTensor
from peer.member.joining import Founding, found
from peer.member.peer_options import MeshOptions
from peer.runtime.graph_runtime import GraphRuntime
from peer.state.generated.commands import ModelOffered, ModelWithdrawn, RunStage
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.command import running
from tests.e2e.graph_model import inputs, place, put_towers
from tests.e2e.real_mesh import CONTEXT, Models, Start, options, until
from tests.patience import WITHIN_S

NAME = "towers"
MOST_ITEMS = 20_000  # until a second lane is open, which takes a moment


def whole(models: Models, manifest: GraphManifest, item: int) -> Array:
    """In one piece, in this process."""
    blobs = models.store.blob_path(manifest.blobs(0, 5)[0].sha256).parent
    runtime = GraphRuntime(compose(manifest, models.store, 0, 5), blobs, 1, fused=manifest.fused)
    return runtime.run(inputs(item))["sum"]


def assert_equal(found: Sequence[Mapping[str, Array]], expected: Sequence[Array]) -> None:
    assert len(found) == len(expected)
    for outputs, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(outputs["sum"], wanted)


async def test_a_graph_of_units_runs_over_peers_and_survives_the_loss_of_one(
    start: Start, models: Models
) -> None:
    model, manifest = put_towers(models.store)
    expected = [whole(models, manifest, item) for item in range(40)]
    async with start(None, 3) as (founder, second, third):
        await founder.propose(ModelOffered(model, NAME))
        await founder.view.until(lambda state: NAME in state.offers, WITHIN_S)
        await place(
            founder,
            NAME,
            RunStage(0, 2, second.me, (founder.me,)),
            RunStage(2, 4, third.me, (founder.me,)),
            RunStage(4, 5, second.me, (founder.me,)),
        )
        mesh = Mesh(founder)
        assert_equal([await mesh.run(NAME, inputs(0))], expected[:1])
        with pytest.raises(WrongTensor, match="float32"):
            await mesh.run(NAME, {**inputs(0), "left": np.zeros((4, 64))})
        with pytest.raises(RunFailed, match="left, right"):
            await mesh.run(NAME, {"left": inputs(0)["left"]})
        with pytest.raises(RunFailed, match="onnxruntime could not"):
            await mesh.run(NAME, {"left": inputs(0)["left"], "right": inputs(0, 3)["right"]})
        found: list[dict[str, Array]] = []
        outputs = mesh.map(NAME, (inputs(item) for item in range(40)))
        async for each in outputs:
            found.append(each)
            if len(found) == 7:
                await third.close("lost")
        assert_equal(found, expected)
        await until(lambda: second.parts.flow.core.kept_bytes == 0)
        alone = RunStage(0, 5, second.me, (founder.me,))
        lanes: tuple[tuple[str, ...], ...] = ()
        stayed = False
        while not stayed:  # a placement of the leader may come between
            await place(founder, NAME, alone)
            run = await founder.open_run(NAME)
            found = []
            async with aclosing(run.map(inputs(item % 40) for item in range(MOST_ITEMS))) as outputs:
                async for each in outputs:
                    found.append(each)
                    if len(found) >= 40 and len(run.lanes) > 1:
                        break
            assert_equal(found, [expected[item % 40] for item in range(len(found))])
            lanes = run.lanes
            await run.close()
            stayed = founder.view.state.offers[NAME].stages == (alone,)
        assert lanes == ((second.me,), (founder.me,))  # a stream goes over those that stand by, too
        await founder.propose(ModelWithdrawn(NAME))
        await founder.view.until(lambda state: NAME not in state.offers, WITHIN_S)
        with pytest.raises(NoPlan, match="offers no model towers"):
            await mesh.run(NAME, inputs(0))


async def test_all_of_200_items_come_once_and_in_order_when_a_process_is_killed(
    models: Models, tmp_path: Path
) -> None:
    model, manifest = put_towers(models.store)
    expected = [whole(models, manifest, item) for item in range(200)]
    promise = Founding(models.ids["8bit"], MeshOptions(CONTEXT, 1, "latency", None), ServerOptions())
    key = identity_from_seed(os.urandom(32))
    async with AsyncExitStack() as stack:
        founder = await stack.enter_async_context(found(promise, options("founder", 0), models.store, key))
        assert founder.link is not None
        processes: dict[str, int] = {}
        for name in ("first", "second", "third"):
            words = [
                "join",
                founder.link.url(),
                "--name",
                name,
                "--state",
                tmp_path / name,
                "--memory",
                "2GiB",
            ]
            words += ["--store", models.store.root, "--bind", "127.0.0.1", "--threads", "1"]
            processes[name] = stack.enter_context(running(tmp_path, *words)).process.pid
        await founder.view.until(
            lambda state: sum(member.profile is not None for member in state.members.values()) == 3, WITHIN_S
        )
        await founder.propose(ModelOffered(model, NAME))
        assert await founder.view.until(lambda state: bool(state.offers[NAME].stages), WITHIN_S)
        run = await founder.open_run(NAME)
        stack.push_async_callback(run.close)
        found_arrays: list[dict[str, Array]] = []
        async for outputs in run.map(inputs(item) for item in range(200)):
            found_arrays.append(outputs)
            if len(found_arrays) == 60:
                os.kill(processes[founder.view.state.members[run.lanes[0][0]].name], signal.SIGKILL)
        assert_equal(found_arrays, expected)
        assert run.reroutes > 0
