"""A history steers the plans of its mesh: a real file, a real planner, never the loop, never longer than it may."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peer.consensus.events import Change, Config, Server, Status
from peer.coordination import plan_forecast
from peer.coordination.coordinator import Coordinator, plan_request, solve
from peer.coordination.coordinator_service import Coordinating, Order
from peer.coordination.plan_forecast import Foresight
from peer.coordination.rebalance import LOOK_S
from peer.coordination.remeasure_requests import Freshening
from peer.state.generated.commands import (
    LinkFacts,
    MemberJoined,
    MemberMeasured,
    ModelChosen,
    PlanProposed,
    Profile,
    UnitsHeld,
)
from peer.state.mesh_state import MeshState
from peer.state.plan_record import holders_of, route_of
from peer.wire.generated.requests import MeasureAnswer
from planner.cost.wording import AGAIN
from planner.history.facts import UnitTime, bucket_of, class_of
from planner.history.writing import HistoryWriter
from planner.predict.unit_times import MIN_RUNS, REVISIT_ANSWERS
from planner.service.planning_jobs import PlanningJobs
from planner.service.request_codec import encode_request
from planner.types import Infeasible, PlanRequest, Unit
from tests.patience import WITHIN_S

MIB = 2**20
KINDS = ("embed", "attn", "ffn", "head")
UNITS = (
    Unit("embed", "embed", 4 * MIB, 1, 0, 2048),
    *(
        unit
        for block in range(6)
        for unit in (
            Unit(f"attn.{block}", "attn", 2 * MIB, 10**6, 1024, 2048),
            Unit(f"ffn.{block}", "ffn", 3 * MIB, 10**6, 0, 2048),
        )
    ),
    Unit("head", "head", 4 * MIB, 10**6, 0, 4),
)
NANO = 400_000
PEERS = ("p0", "p1", "p2")
AGENT = "shoal/0.1.0 (aiortc)"


def profile(times: float = 1.0, memory: int = 40 * MIB) -> Profile:
    table = dict.fromkeys(KINDS, round(NANO * times))
    return Profile(memory, 2 * MIB, table, table, table, 1000, "cpu", 1)


def began(memory: int = 40 * MIB) -> Coordinator:
    """Three peers; with the least memory any two of them hold everything."""
    made = Coordinator("p0", UNITS)
    made.submit(ModelChosen("m", "toy", len(UNITS), 64, 1, "latency"))
    for peer in PEERS:
        made.submit(MemberJoined(peer, peer, True))
    for peer in PEERS:
        links = tuple(
            LinkFacts(*pair, 500, 10**8, 0) for other in PEERS if other != peer for pair in ((peer, other),)
        )
        made.submit(MemberMeasured(peer, profile(memory=memory), links))
    return made


def noted(writer: HistoryWriter, times: float, count: int = MIN_RUNS, threads: int = 1) -> None:
    """So many runs of peers like these, which took so many times as long."""
    draw = random.Random(7)
    name = class_of(AGENT, "cpu", threads).name
    for _ in range(count):
        off = times * draw.uniform(0.95, 1.05)
        writer.record(
            UnitTime(
                "m", "toy", "x", name, "Python", "cpu", unit.kind, bucket_of(unit.weight_bytes), "decode",
                unit.flops_per_token, unit.weight_bytes, off * NANO / 1e9,
            )
            for unit in {unit.kind: unit for unit in UNITS}.values()
        )  # fmt: skip


@contextmanager
def history(folder: Path) -> Iterator[tuple[HistoryWriter, Foresight]]:
    writer, foresight = HistoryWriter(folder / "h.duckdb"), Foresight()
    foresight.opened(writer.view)
    try:
        yield writer, foresight
    finally:
        foresight.closed()
        writer.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the library takes its time to be loaded."""
    monkeypatch.setattr(plan_forecast, "WITHIN_S", WITHIN_S)


class NoLog:
    """Takes every proposal."""

    epoch = 1

    def status(self) -> Status:
        return Status("leader", 1, "p0", 1, 1, 1, Config((Server("p0", 1, True),)), {"p0": 1})

    def propose(self, data: bytes) -> asyncio.Future[Order]:
        future: asyncio.Future[Order] = asyncio.get_running_loop().create_future()
        future.set_result((1, 1))
        return future

    def change(self, change: Change) -> asyncio.Future[Order]:
        return self.propose(b"")

    def transfer(self, to: str) -> asyncio.Future[Order]:
        return self.propose(b"")

    def incarnation_of(self, peer: str) -> int:
        return 0


async def planned(
    core: Coordinator, foresight: Foresight | None, freshening: Freshening | None = None
) -> Any:
    """The plan that a coordinator at work proposes."""
    made = Coordinating(core, NoLog(), lambda _: True, foresight=foresight, freshening=freshening)
    try:
        made.reconsider()
        async with asyncio.timeout(WITHIN_S):
            while made.state.proposed is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return made.state.proposed
    finally:
        await made.close()


def told(why: tuple[str, ...]) -> list[str]:
    return [line for line in why if line.startswith("Times of ")]


async def test_a_mesh_with_a_history_plans_by_what_runs_say_and_says_so(tmp_path: Path) -> None:
    plain = await planned(began(), None)
    assert told(plain.why) == []
    with history(tmp_path) as (writer, foresight):
        core = began()
        foresight.knows(lambda: core.state, lambda _: AGENT)
        few = await planned(core, foresight)
        assert few.predicted_token_us == plain.predicted_token_us
        assert told(few.why)[0].endswith("measured by itself (0 runs of its kind, 10 are needed).")
        noted(writer, 0.97)
        core = began()
        by_runs = await planned(core, foresight)
        assert "predicted" in told(by_runs.why)[0]
        assert len(told(by_runs.why)) == len(set(route_of(by_runs)))
        assert 0.9 * plain.predicted_token_us < by_runs.predicted_token_us < 0.99 * plain.predicted_token_us


async def test_a_coordinator_learns_whom_to_ask_and_its_plan_says_who_measured_again(tmp_path: Path) -> None:
    async def ask(peer: str, model: str) -> MeasureAnswer:
        raise AssertionError("nobody is asked while a plan is made")

    with history(tmp_path) as (writer, foresight):
        noted(writer, 1.0)
        noted(writer, 40.0)  # such runs say nothing of the next one
        core = began()
        foresight.knows(lambda: core.state, lambda _: AGENT)
        freshening = Freshening(ask)
        for peer in ("p0", "p1"):
            freshening.due.begun(peer)
            freshening.due.heard(peer, profile())
        plan = await planned(core, foresight, freshening)
        lines = told(plan.why)
        assert all("runs of its kind differ: " in line for line in lines)
        again = {line.split(":")[0].removeprefix("Times of ") for line in lines if line.endswith(f"{AGAIN}.")}
        assert again == set(route_of(plan)) & {"p0", "p1"} != set()
        assert freshening.due._doubted == set(PEERS)


@pytest.fixture
async def jobs() -> AsyncIterator[PlanningJobs]:
    made = PlanningJobs()
    yield made
    await made.close()


async def test_the_planning_service_plans_by_the_same_times(tmp_path: Path, jobs: PlanningJobs) -> None:
    core = began()
    request = plan_request(core.state, UNITS)
    with history(tmp_path) as (writer, foresight):
        noted(writer, 0.97)
        foresight.knows(lambda: core.state, lambda _: AGENT)
        answer = json.loads(await foresight.plan_bytes(jobs, encode_request(request)))
    assert "predicted" in told(answer["plan"]["why"])[0]
    after = json.loads(await foresight.plan_bytes(jobs, encode_request(request)))
    assert told(after["plan"]["why"]) == []


async def test_a_history_that_takes_too_long_or_fails_holds_no_plan_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_forecast, "WITHIN_S", 0.05)
    request, waits, goes = plan_request(began().state, UNITS), threading.Event(), threading.Event()

    @contextmanager
    def slow() -> Iterator[Any]:
        assert threading.current_thread() is not threading.main_thread()
        waits.set()
        assert goes.wait(WITHIN_S)
        raise OSError("the disk is gone")
        yield

    foresight = Foresight()
    foresight.opened(slow)
    assert await foresight.look(request, MeshState()) is None
    assert await asyncio.to_thread(waits.wait, WITHIN_S)
    assert await foresight.look(request, MeshState()) is None  # one question at a time
    goes.set()
    await asyncio.to_thread(foresight.closed)
    assert await foresight.look(request, MeshState()) is None


async def test_what_is_known_too_late_for_one_plan_is_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, late, goes = began(), asyncio.Event(), threading.Event()
    request = plan_request(core.state, UNITS)
    with history(tmp_path) as (writer, _):
        noted(writer, 0.97)

        @contextmanager
        def slow() -> Iterator[Any]:
            assert goes.wait(WITHIN_S)
            with writer.view() as connection:
                yield connection

        foresight = Foresight()
        foresight.knows(lambda: core.state, lambda _: AGENT)
        foresight.opened(slow)
        monkeypatch.setattr(plan_forecast, "WITHIN_S", 0.05)
        assert await foresight.look(request, core.state, late.set) is None
        assert not late.is_set()
        goes.set()
        async with asyncio.timeout(WITHIN_S):
            await late.wait()
        monkeypatch.setattr(plan_forecast, "WITHIN_S", WITHIN_S)
        found = await foresight.look(request, core.state)
        assert found is not None
        assert found.steers()
        await asyncio.to_thread(foresight.closed)


def test_what_steers_is_looked_at_again_after_so_many_answers() -> None:
    foresight = Foresight()
    due = [foresight.answered(1) for _ in range(2 * REVISIT_ANSWERS)]
    assert [at + 1 for at, again in enumerate(due) if again] == [REVISIT_ANSWERS, 2 * REVISIT_ANSWERS]


def test_a_plan_that_is_looked_at_again_changes_only_when_its_gain_holds() -> None:
    made = began(24 * MIB)  # two of three are needed
    made.reconsider()
    plan(made)  # nothing serves yet: at once
    held(made)
    serving = made.state.serving()
    assert serving is not None
    assert made.wanted() is None
    (idle,) = set(PEERS) - set(route_of(serving))
    slower = route_of(serving)[0]
    made.reconsider()
    assert proposals(made, 100.0, {}) == []
    made.reconsider()
    assert proposals(made, 200.0, {slower: 1.02}) == []  # hardly slower
    made.reconsider()
    (at,) = proposals(made, 300.0, {slower: 4.0})
    assert at >= 300.0 + 2 * LOOK_S  # at the third look
    after = made.state.serving()
    assert after is not None
    assert idle in route_of(after)


def plan(made: Coordinator, slower: dict[str, float] | None = None) -> None:
    wanted = made.wanted()
    assert wanted is not None
    wanted = replace(wanted, request=believed(wanted.request, slower or {}))
    answer = solve(wanted)
    assert not isinstance(answer, Infeasible), answer
    made.planned(wanted, answer)


def believed(request: PlanRequest, slower: dict[str, float]) -> PlanRequest:
    """The request with other times, as a history may say them."""
    peers = tuple(
        replace(peer, decode_s={kind: s * slower.get(peer.peer, 1.0) for kind, s in peer.decode_s.items()})
        for peer in request.peers
    )
    return replace(request, peers=peers)


def held(made: Coordinator) -> None:
    for record in (made.state.proposed, made.state.plan):
        for peer, runs in (holders_of(record) if record is not None else {}).items():
            before = made.state.members[peer].held
            made.submit(UnitsHeld(peer, tuple(sorted({*before, *runs}))))


def proposals(made: Coordinator, now: float, slower: dict[str, float]) -> list[float]:
    """When plans were proposed, once the mesh was planned with those times."""
    plan(made, slower)
    assert made.state.proposed is None
    found = []
    for tick in range(40):
        if any(isinstance(command, PlanProposed) for command in made.relieve(now + tick / 4)):
            found.append(now + tick / 4)
            held(made)
    return found
