"""Decides how the planning service runs: one plan at a time, in a thread, within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from planner.errors import PlannerError
from signaling.limits import Limits
from signaling.metrics import Metrics

Planning = Callable[
    [bytes], bytes
]  # JSON PlanRequest in, JSON plan or infeasible out; PlannerError: a bad request


def add_planning_route(app: web.Application, planning: Planning, limits: Limits, metrics: Metrics) -> None:
    """POST /plan. A thread cannot be stopped, so others wait while one runs past its limit."""
    running: set[asyncio.Future[bytes]] = set()

    async def answer_plan(request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="a plan request is application/json\n")
        if (request.content_length or 0) > limits.plan_bytes:
            raise _too_large(limits.plan_bytes)
        body = bytearray()
        async for chunk in request.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > limits.plan_bytes:
                raise _too_large(limits.plan_bytes)
        if running:
            metrics.rejected.labels("PlannerBusy").inc()
            raise web.HTTPServiceUnavailable(
                text="another plan is being made\n", headers={"Retry-After": "1"}
            )
        with metrics.planning.time():
            task = asyncio.ensure_future(asyncio.to_thread(planning, bytes(body)))
            running.add(task)
            task.add_done_callback(running.discard)
            task.add_done_callback(_observed)
            try:
                answer = await asyncio.wait_for(asyncio.shield(task), limits.plan_within_s)
            except TimeoutError as error:
                metrics.rejected.labels("PlannerTooSlow").inc()
                raise web.HTTPServiceUnavailable(
                    text=f"no plan within {limits.plan_within_s:g} s: ask with fewer peers\n"
                ) from error
            except PlannerError as error:
                metrics.rejected.labels("BadPlanRequest").inc()
                raise web.HTTPBadRequest(text=f"{error}\n") from error
        return web.Response(body=answer, content_type="application/json")

    app.router.add_post("/plan", answer_plan)


def _observed(task: asyncio.Future[bytes]) -> None:
    """Take the outcome of a plan that nobody waits for any more, so that it is not reported as lost."""
    if not task.cancelled():
        task.exception()


def _too_large(most: int) -> web.HTTPRequestEntityTooLarge:
    return web.HTTPRequestEntityTooLarge(
        max_size=most, actual_size=most + 1, text=f"a plan request has at most {most} bytes\n"
    )
