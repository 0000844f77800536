"""A mesh whose history says too little of its peers asks them to measure themselves again; answers are as before."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from peer.cli.status_plan import snapshot
from peer.coordination import plan_forecast, remeasure_policy
from peer.coordination.history_writer import open_history
from peer.coordination.plan_forecast import Foresight
from peer.errors import BadCommand, MeasuringEnded
from peer.member import remeasure
from peer.member.history import keep_history
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.member.remeasure import MeasuringAgain
from peer.origin.answer_stream import Settings
from peer.runtime.self_benchmark import UnitTimes, measure_here
from peer.session.sampling import Sampling
from peer.state.mesh_state import MeshState
from peer.version import VERSION
from peer.wire.generated.requests import MEASURE, MeasureAnswer, MeasureRequest
from planner.history.facts import UnitTime, bucket_of, class_of
from planner.history.files import NAME
from planner.history.reading import ask
from planner.history.writing import HistoryWriter
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from planner.predict.unit_times import MIN_RUNS
from planner.types import Unit
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import options, tokens_of
from tests.patience import WITHIN_S
from tests.planner.tiny_models import TinyModel

CUTS = (3,)  # of the tiny model's six units: two stages
PROMPT = [5, 17, 40, 3]
GREEDY = Settings(Sampling(), 24, ignore_end=True)
BUSY = MeasureAnswer(measured=False, busy=True)
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


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the library that learns from a history takes its time to be loaded."""
    monkeypatch.setattr(plan_forecast, "WITHIN_S", WITHIN_S)


@asynccontextmanager
async def mesh_of_two(folder: Path) -> AsyncIterator[tuple[MeshMember, MeshMember]]:
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
        stack.enter_context(keep_history(founder, writer, foresight))
        assert founder.link is not None
        entering = join(founder.link.url(), options("joined"), store, compute=True)
        joined = await stack.enter_async_context(entering)
        await founder.until_serving(WITHIN_S)
        yield founder, joined


async def test_peers_whose_predictions_abstain_measure_themselves_again_and_answer_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh_of_two(tmp_path) as (founder, joined):
        before = founder.view.state
        first = {peer: member.profile for peer, member in before.members.items()}
        tokens = await tokens_of(founder, PROMPT, GREEDY)
        for module, name in (
            (remeasure_policy, "QUIET_S"),
            (remeasure_policy, "NEXT_S"),
            (remeasure_policy, "BUSY_S"),
            (remeasure, "ENDED_S"),
        ):
            monkeypatch.setattr(module, name, 0.1)

        def fresh(state: MeshState) -> bool:
            return all(
                member.profile is not None and member.profile.decode_ns != profile.decode_ns
                for peer, profile in first.items()
                if profile is not None and (member := state.members.get(peer)) is not None
            )

        assert await joined.view.until(fresh, WITHIN_S), (
            "nobody measured again"
        )  # as its copy of the log says
        for peer, profile in first.items():
            now = joined.view.state.members[peer].profile
            assert now is not None
            assert profile is not None
            assert (now.memory_bytes, now.overhead_bytes) == (profile.memory_bytes, profile.overhead_bytes)
        assert joined.view.state.links == before.links
        assert await tokens_of(founder, PROMPT, GREEDY) == tokens
        shown = await snapshot(joined)
        told = {peer for member in shown["members"] for peer in member["report"]["fresh"]}
        assert told == set(first)
    assert ask(tmp_path / NAME, "select count(distinct peer) from peers where again").rows == ((2,),)


async def when_idle(answer: Callable[[], Awaitable[Any]]) -> Any:
    """What the peer answers once nothing of what went before is under way any more."""
    async with asyncio.timeout(WITHIN_S):
        while (said := await answer()) == BUSY:  # noqa: ASYNC110 - many things may be under way
            await asyncio.sleep(0.05)
    return said


async def test_a_measurement_makes_room_for_an_answer_and_nobody_is_made_to_measure_for_ever(
    tmp_path: Path,
) -> None:
    async with mesh_of_two(tmp_path) as (founder, joined):
        tokens = await tokens_of(founder, PROMPT, GREEDY)
        loop, begun, go_on, calls = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), 0

        def without_end(
            manifest: Manifest, provider: str, threads: int, stop: Callable[[], bool]
        ) -> UnitTimes:
            nonlocal calls
            if go_on.is_set():
                return measure_here(joined.model.store, manifest, provider, threads, stop)
            calls += 1
            loop.call_soon_threadsafe(begun.set)
            while not stop():
                time.sleep(0.005)
            raise MeasuringEnded("an answer began")

        assert joined.manifest is not None
        times = await asyncio.to_thread(measure_here, joined.model.store, joined.manifest, "cpu", 1)

        def measuring(lends: PeerOptions) -> MeasuringAgain:
            parts = (joined.view, joined.stage, joined.model)
            return MeasuringAgain(*parts, lends, times, joined.is_over, without_end)

        again = measuring(options("joined"))
        model = founder.view.state.model
        assert model is not None
        boss, body = founder.me, MeasureRequest(model.model)
        asked = asyncio.ensure_future(when_idle(lambda: until_begun(again.answer(boss, body), begun)))
        async with asyncio.timeout(WITHIN_S):
            await begun.wait()
        assert await again.answer(boss, body) == BUSY  # one at a time
        assert await tokens_of(founder, PROMPT, GREEDY) == tokens
        assert await asked == {"made room": True}
        await joined.stage.idle()
        assert await again.answer(boss, body) == BUSY  # too soon
        assert calls == 1
        with pytest.raises(BadCommand, match="who coordinates"):
            await joined.links.ask(joined.me, MEASURE, body)
        with pytest.raises(BadCommand, match="the model"):
            await again.answer(boss, MeasureRequest("another"))
        go_on.set()
        little = measuring(options("joined", memory=1 << 20))
        assert await little.answer(boss, body) == MeasureAnswer(measured=False)  # no room
        last = measuring(options("joined"))
        assert await when_idle(lambda: last.answer(boss, body)) == MeasureAnswer(measured=True, busy=False)
        assert last.times != times
        told = last.times
        assert await last.answer(boss, body) == BUSY
        assert last.times == told
        assert joined.view.state.members[joined.me].status == "measured"


async def until_begun(answer: Awaitable[MeasureAnswer], begun: asyncio.Event) -> Any:
    """The answer of a peer that had begun to measure, as one that had to make room."""
    said = await answer
    return {"made room": True} if begun.is_set() and said == BUSY else said
