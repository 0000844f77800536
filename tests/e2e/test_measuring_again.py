"""A mesh whose history says too little of its peers asks them to measure themselves again; answers are as before."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from peer import VERSION, fresh_times, measuring_again
from peer.asking import Settings
from peer.commands.watching import snapshot
from peer.errors import BadCommand, MeasuringEnded
from peer.foreseeing import Foresight
from peer.history_writer import follow_mesh, open_history
from peer.joining import Founding, found, join
from peer.measure import UnitTimes, measure_units
from peer.measuring_again import MeasuringAgain
from peer.mesh import Mesh
from peer.mesh_state import MeshState
from peer.options import MeshOptions
from peer.sampling import Sampling
from planner.history.facts import UnitTime, bucket_of, class_of
from planner.history.files import NAME
from planner.history.reading import ask
from planner.history.writing import HistoryWriter
from planner.importers.gguf import open_gguf
from planner.manifest import Manifest, decode_manifest
from planner.prediction import MIN_RUNS
from planner.store import Store
from planner.types import Unit
from planner.units import build_model
from planner.wording import AGAIN
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions

from ..planner.conftest import TinyModel  # noqa: TID252
from .conftest import options, tokens_of

WITHIN_S = 120.0
CUTS = (3,)  # of the tiny model's six units: two stages
PROMPT = [5, 17, 40, 3]
GREEDY = Settings(Sampling(), 24, ignore_end=True)
BUSY = {"measured": False, "busy": True}
APART = (1e-5, 1e-2)  # seconds, in turn: such runs say nothing of the next one


def told_apart(file: Path, units: tuple[Unit, ...]) -> None:
    """Runs of peers like ours, of which some took a thousand times as long as the others."""
    writer = HistoryWriter(file)
    name = class_of(f"shoal/{VERSION} (aiortc)", "cpu", 1).name
    kinds = {unit.kind: unit for unit in units}.values()
    for run in range(MIN_RUNS):
        writer.record(
            UnitTime(
                "m", "tiny", "x", name, "Python", "cpu", unit.kind, bucket_of(unit.weight_bytes), "decode",
                unit.flops_per_token, unit.weight_bytes, APART[run % 2],
            )
            for unit in kinds
        )  # fmt: skip
    writer.close()


@asynccontextmanager
async def mesh_of_two(folder: Path) -> AsyncIterator[tuple[Mesh, Mesh]]:
    """A founder with such a history, and one who joined: each holds a stage."""
    store = Store(folder / "store")
    model = build_model(open_gguf(TinyModel().write_gguf(folder / "tiny.gguf"), "tiny"), "f32", store)
    told_apart(folder / NAME, decode_manifest(store.manifest_bytes(model)).planner_units())
    promise = Founding(model, MeshOptions(256, 4, "latency", CUTS), ServerOptions())
    foresight = Foresight()
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(open_history(folder / NAME, print, foresight))
        assert writer is not None
        key = identity_from_seed(os.urandom(32))
        entering = found(promise, options("founder"), store, key, foresight=foresight)
        founder = await stack.enter_async_context(entering)
        stack.enter_context(follow_mesh(founder, writer, foresight))
        assert founder.link is not None
        entering = join(founder.link.url(), options("joined"), store, compute=True)
        joined = await stack.enter_async_context(entering)
        await founder.until_serving(WITHIN_S)
        yield founder, joined


async def test_peers_whose_predictions_abstain_measure_themselves_again_and_answer_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("QUIET_S", "NEXT_S", "BUSY_S"):
        monkeypatch.setattr(fresh_times, name, 0.1)
    monkeypatch.setattr(measuring_again, "ENDED_S", 0.1)
    async with mesh_of_two(tmp_path) as (founder, joined):
        before = founder.node.state
        first = {peer: member.profile for peer, member in before.members.items()}
        tokens = await tokens_of(founder, PROMPT, GREEDY)

        def fresh(state: MeshState) -> bool:
            return all(
                member.profile is not None and member.profile.decode_ns != profile.decode_ns
                for peer, profile in first.items()
                if profile is not None and (member := state.members.get(peer)) is not None
            )

        assert await joined.node.until(fresh, WITHIN_S), (
            "nobody measured again"
        )  # as its copy of the log says
        for peer, profile in first.items():
            now = joined.node.state.members[peer].profile
            assert now is not None
            assert profile is not None
            assert (now.memory_bytes, now.overhead_bytes) == (profile.memory_bytes, profile.overhead_bytes)
        assert joined.node.state.links == before.links
        assert await tokens_of(founder, PROMPT, GREEDY) == tokens
        shown = await snapshot(joined)
        told = {peer for member in shown["members"] for peer in member["report"]["fresh"]}
        assert told == set(first)
    assert ask(tmp_path / NAME, "select count(*), count(distinct peer) from peers where again").rows == (
        (2, 2),
    )


async def test_a_measurement_makes_room_for_an_answer_and_nobody_is_made_to_measure_for_ever(
    tmp_path: Path,
) -> None:
    async with mesh_of_two(tmp_path) as (founder, joined):
        tokens = await tokens_of(founder, PROMPT, GREEDY)
        begun, go_on = threading.Event(), threading.Event()

        def without_end(
            manifest: Manifest, provider: str, threads: int, stop: Callable[[], bool]
        ) -> UnitTimes:
            if go_on.is_set():
                return measure_units(manifest, provider, threads, stop)
            begun.set()
            while not stop():
                threading.Event().wait(0.005)
            raise MeasuringEnded("an answer began")

        assert joined.manifest is not None
        times = await asyncio.to_thread(measure_units, joined.manifest, "cpu", 1)
        again = MeasuringAgain(joined, options("joined"), times, without_end)
        boss, body = founder.node.me, {"model": founder.node.state.model.model}  # type: ignore[union-attr]
        asked = asyncio.ensure_future(again.answer(boss, body))
        assert await asyncio.to_thread(begun.wait, WITHIN_S)
        assert await again.answer(boss, body) == BUSY  # one at a time
        assert await tokens_of(founder, PROMPT, GREEDY) == tokens
        assert await asked == BUSY
        assert await again.answer(boss, body) == BUSY  # too soon
        with pytest.raises(BadCommand, match="who coordinates"):
            await again.answer(joined.node.me, body)
        with pytest.raises(BadCommand, match="the model"):
            await again.answer(boss, {"model": "another"})
        go_on.set()
        little = MeasuringAgain(joined, options("joined", memory=1 << 20), times, without_end)
        assert await little.answer(boss, body) == {"measured": False, "busy": False}  # no room
        last = MeasuringAgain(joined, options("joined"), times, without_end)
        assert await last.answer(boss, body) == {"measured": True, "busy": False}
        assert await last.answer(boss, body) == BUSY
        member = joined.node.state.members[joined.node.me]
        assert last.times != times
        assert member.status == "measured"
        assert AGAIN not in " ".join(founder.node.state.plan.why)  # type: ignore[union-attr]
