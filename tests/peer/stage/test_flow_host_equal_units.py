"""Equal weights of several models: stored and sent once by their hash, loaded once where runs of units are equal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from peer.model.fetcher import Fetcher, PieceSource
from peer.stage.flow_host import FlowHost
from peer.state.generated.commands import RunStage
from planner.model.blob_ref import PIECE_BYTES, BlobRef
from planner.model.graph_manifest import GraphManifest, encode_graph_manifest
from planner.model.store import Store
from tests.e2e.graph_model import WIDTH, inputs, put_towers
from tests.patience import WITHIN_S

MATRIX_BYTES = WIDTH * WIDTH * 4


class Links:
    me = "me"

    def on(self, *_: Any) -> None:
        pass

    def on_connected(self, _: Any) -> None:
        pass


class Hosting:
    """A peer whose store is empty but for the manifests; blobs come from `source`, a piece at a time."""

    def __init__(self, source: Store, folder: Path, models: dict[str, GraphManifest]) -> None:
        self.store = Store(folder)
        self.models = {
            name: self.store.put_manifest(encode_graph_manifest(manifest))
            for name, manifest in models.items()
        }

        async def piece(ref: BlobRef, index: int) -> bytes:
            return source.blob_path(ref.sha256).read_bytes()[index * PIECE_BYTES : (index + 1) * PIECE_BYTES]

        self.fetcher = Fetcher(self.store, "http://127.0.0.1:1", lambda _: [PieceSource("source", piece)])
        self.state = SimpleNamespace(offers={})
        view = SimpleNamespace(state=self.state, subscribe=lambda _: None)
        self.host = FlowHost(Links(), view, self.store)  # type: ignore[arg-type]
        self.host.lend(self.fetcher, 1)

    async def offers(self, **stages: tuple[int, int]) -> None:
        """What placements give this peer, by model; returns when just that is loaded."""
        wanted = {
            (self.models[name], first, stop): SimpleNamespace(
                model=self.models[name], stages=(RunStage(first, stop, "me", (), 0),)
            )
            for name, (first, stop) in stages.items()
        }
        self.state.offers = {str(place): offer for place, offer in enumerate(wanted.values())}
        self.host._changed.set()
        async with asyncio.timeout(WITHIN_S):
            while self.host.units != tuple(sorted(wanted)):  # noqa: ASYNC110 - loading tells nobody
                await asyncio.sleep(0.01)
        for units in wanted:
            await self.host._load(units)


@asynccontextmanager
async def hosting(folder: Path) -> AsyncIterator[tuple[Hosting, GraphManifest]]:
    """Three models: towers, the same under another name, and one whose last unit is another one."""
    source = Store(folder / "source")
    _, towers = put_towers(source)
    joined = towers.units[4]
    assert joined.name == "join"
    other = replace(towers, units=(*towers.units[:4], replace(joined, inputs=joined.inputs[::-1])))
    models = {"towers": towers, "again": replace(towers, name="again"), "other": other}
    made = Hosting(source, folder / "peer", models)
    try:
        yield made, towers
    finally:
        await made.host.close()


async def test_a_model_that_is_there_under_another_name_takes_nothing_more(tmp_path: Path) -> None:
    async with hosting(tmp_path) as (peer, towers):
        await peer.offers(towers=(0, 5))
        stored = {path.name: path.stat().st_size for path in (peer.store.root / "blobs").iterdir()}
        assert (
            sum(stored.values()) == peer.fetcher.peer_bytes == sum(blob.bytes for blob in towers.blobs(0, 5))
        )
        assert peer.host.weight_bytes == 4 * MATRIX_BYTES
        await peer.offers(towers=(0, 5), again=(0, 5))
        assert {path.name: path.stat().st_size for path in (peer.store.root / "blobs").iterdir()} == stored
        assert peer.fetcher.peer_bytes == sum(stored.values())
        assert peer.host.weight_bytes == 4 * MATRIX_BYTES
        one, two = [await peer.host._load(units) for units in peer.host.units]
        assert one is two


async def test_a_run_of_units_that_two_models_share_is_loaded_once_and_stays_for_the_other(
    tmp_path: Path,
) -> None:
    async with hosting(tmp_path) as (peer, _):
        await peer.offers(towers=(0, 2), other=(0, 2))
        assert peer.host.weight_bytes == 2 * MATRIX_BYTES
        await peer.offers(other=(0, 2))
        assert peer.host.weight_bytes == 2 * MATRIX_BYTES
        [units] = peer.host.units
        runtime = await peer.host._load(units)
        given = inputs(1)["left"]
        assert runtime.run({"left": given})["left.2"].shape == given.shape


async def test_units_that_are_equal_in_part_are_loaded_for_each(tmp_path: Path) -> None:
    async with hosting(tmp_path) as (peer, _):
        await peer.offers(towers=(0, 5), other=(0, 5))
        assert peer.host.weight_bytes == 8 * MATRIX_BYTES
        runtimes = [await peer.host._load(units) for units in peer.host.units]
        sums = [runtime.run(inputs(2))["sum"] for runtime in runtimes]
        np.testing.assert_array_equal(*sums)


async def test_units_that_load_at_the_same_time_are_loaded_once(tmp_path: Path) -> None:
    async with hosting(tmp_path) as (peer, _):
        units = [(peer.models[name], 0, 5) for name in ("towers", "again")]
        one, two = await asyncio.gather(*map(peer.host._load, units))
        assert one is two
