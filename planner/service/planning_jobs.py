"""Plans made in processes of their own: what one takes grows with the mesh, and whoever reaches a server may ask.

Edge around planner.service.planning_service and planner.jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from planner.jobs.jobs import QUICK_CPU_S, Budget, Jobs
from planner.predict.forecast import Foreseen, explained
from planner.service.planning_service import Asked, answer, decode_asked, plan_bytes
from planner.types import Infeasible, Plan

BUDGET: Final = Budget(cpu_s=60.0, memory_bytes=1 << 30)
OWN_BUDGET: Final = replace(BUDGET, nice=0)  # of a mesh's own plans

T = TypeVar("T")


class PlanningJobs:
    """For one event loop. Close it at the end."""

    def __init__(self, budget: Budget = BUDGET, quick_cpu_s: float = QUICK_CPU_S) -> None:
        """As those of planner.jobs."""
        self._jobs = Jobs(_nothing, budget=budget, quick_cpu_s=quick_cpu_s)

    def start(self) -> None:
        """Begins to load what plans take, so that the first need not wait for that."""
        self._jobs.start()

    async def close(self) -> None:
        """Ends the process that jobs come from."""
        await self._jobs.close()

    async def plan_bytes(self, body: bytes) -> bytes:
        """JSON request in, JSON answer out. Raises RequestError, JobError."""
        return await self._jobs.run(_plan_bytes, body)

    async def decoded(self, body: bytes) -> Asked:
        """What a JSON request asks. Raises RequestError, JobError."""
        return await self._jobs.run(_decoded, body)

    async def answered(self, asked: Asked, found: Foreseen | None) -> bytes:
        """The JSON answer; `found`: where its times come from, where that is more than what peers measured.

        Raises RequestError, JobError.
        """
        return await self._jobs.run(_answered, asked, found)

    async def made(self, make: Callable[[bytes, Path], bytes], body: bytes, folder: Path) -> bytes:
        """What `make(body, folder)` returns, a function of a module. Raises PlannerError."""
        return await self._jobs.run(_made, make, body, folder)

    async def solved(self, solve: Callable[[T], Plan | Infeasible], wanted: T) -> Plan | Infeasible:
        """What `solve(wanted)` finds, a function of a module. Raises PlannerError."""
        return await self._jobs.run(_solved, solve, wanted)


def _nothing() -> None:
    return None


def _plan_bytes(_: None, body: bytes) -> bytes:
    return plan_bytes(body)


def _decoded(_: None, body: bytes) -> Asked:
    return decode_asked(body)


def _answered(_: None, asked: Asked, found: Foreseen | None) -> bytes:
    return answer(asked) if found is None else answer(asked, partial(explained, found=found))


def _made(_: None, make: Callable[[bytes, Path], bytes], body: bytes, folder: Path) -> bytes:
    return make(body, folder)


def _solved(_: None, solve: Callable[[T], Plan | Infeasible], wanted: T) -> Plan | Infeasible:
    return solve(wanted)
