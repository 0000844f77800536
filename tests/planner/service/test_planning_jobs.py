"""Plans in processes of their own: the same answers, the same refusals, and none of it in this process."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from planner.errors import JobTooLong, RequestError
from planner.service.planning_jobs import BUDGET, PlanningJobs
from planner.service.planning_service import decode_asked, plan_bytes
from planner.service.request_codec import encode_request
from planner.types import Infeasible, Link, PeerProfile, Plan, PlanRequest, Unit, UnitKind

KINDS: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "head")
UNITS = tuple(Unit(kind, kind, 10 << 20, 10, 16, 64) for kind in KINDS)
TIMES = dict.fromkeys(KINDS, 0.01)
REQUEST = PlanRequest(
    UNITS,
    tuple(PeerProfile(peer, 25 << 20, 1, TIMES, TIMES) for peer in "abc"),
    tuple(Link(src, dst, 0.001, 1e8) for src in "abc" for dst in "abc" if src != dst),
    64,
    1,
)


@pytest.fixture
async def jobs() -> AsyncIterator[PlanningJobs]:
    made = PlanningJobs()
    yield made
    await made.close()


def where(_: object) -> Infeasible:
    return Infeasible(str(os.getpid()))


def endless(_: object) -> Plan | Infeasible:
    while True:
        pass


async def test_answers_and_refusals_are_those_of_the_service(jobs: PlanningJobs) -> None:
    body = encode_request(REQUEST)
    answer = await jobs.plan_bytes(body)
    assert json.loads(answer)["plan"]["stages"]
    asked = await jobs.decoded(body)
    assert asked == decode_asked(body)
    assert answer == await jobs.answered(asked, None) == plan_bytes(body)
    for wrong in (b"[" * 100_000, b'{"units":7}'):
        with pytest.raises(RequestError, match="expected"):
            await jobs.plan_bytes(wrong)


async def test_a_plan_is_made_in_another_process_within_its_time(jobs: PlanningJobs) -> None:
    found = await jobs.solved(where, None)
    assert isinstance(found, Infeasible)
    assert int(found.reason) != os.getpid()
    short = PlanningJobs(replace(BUDGET, cpu_s=0.2))
    try:
        with pytest.raises(JobTooLong, match=r"0\.2 s"):
            await short.solved(endless, None)
    finally:
        await short.close()
