"""Where a coordinator at work makes its plans: in its own process what is soon done or urgent, all else in another."""

from __future__ import annotations

import os

import pytest

from peer.coordination import coordinator_service
from peer.coordination.coordinator import Coordinator, Wanted
from peer.coordination.coordinator_service import IN_THREAD_PEERS, Coordinating
from planner.cost.objectives import Wish
from planner.errors import JobBroken
from planner.service.planning_jobs import PlanningJobs
from planner.types import Infeasible, PeerProfile, PlanRequest, Stage, Unit
from tests.peer.coordination.no_log import NoLog

UNITS = (Unit("embed", "embed", 10, 0, 0, 64), Unit("head", "head", 10, 0, 0, 4))
LOST = (Stage(0, 2, "p9"),)


def where(_: object) -> Infeasible:
    return Infeasible(str(os.getpid()))


def wanted(peers: int, before: tuple[Stage, ...] = ()) -> Wanted:
    profiles = tuple(PeerProfile(f"p{place}", 100, 1, {}, {}) for place in range(peers))
    return Wanted(PlanRequest(UNITS, profiles, (), 16, 1), "key", {}, Wish(), before)


async def test_what_takes_long_is_planned_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_service, "solve", where)
    made = Coordinating(Coordinator("p0", UNITS), NoLog(), lambda _: True)

    async def here(peers: int, before: tuple[Stage, ...] = ()) -> bool:
        found = await made._solved(wanted(peers, before))
        assert isinstance(found, Infeasible)
        return int(found.reason) == os.getpid()

    try:
        assert await here(IN_THREAD_PEERS)
        assert await here(IN_THREAD_PEERS + 1, LOST), "nobody waits for a process to be loaded"
        assert not await here(IN_THREAD_PEERS + 1, LOST)
        assert not await here(IN_THREAD_PEERS + 1)
    finally:
        await made.close()


async def test_a_mesh_is_planned_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> Infeasible:
        raise JobBroken("a process for this could not be started")

    monkeypatch.setattr(coordinator_service, "solve", where)
    monkeypatch.setattr(PlanningJobs, "solved", broken)
    made = Coordinating(Coordinator("p0", UNITS), NoLog(), lambda _: True)
    try:
        found = await made._solved(wanted(IN_THREAD_PEERS + 1))
        assert found == where(None)
    finally:
        await made.close()
