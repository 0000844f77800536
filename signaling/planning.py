"""Decides how the planning service runs: in processes of its own, within a time limit, and no longer than who asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from aiohttp import web

from planner.errors import JobBroken, JobsBusy, JobTooLarge, JobTooLong, PlannerError
from signaling.limits import Limits
from signaling.metrics import Metrics

Planning = Callable[
    [bytes], Awaitable[bytes]
]  # JSON PlanRequest in, JSON plan or infeasible out; PlannerError: a bad request; JobError: not now, or not here

LOOK_S: Final = 0.5  # for whoever asked and left
RETRY_AFTER_S: Final = 1


def add_planning_route(
    app: web.Application, path: str, planning: Planning, limits: Limits, metrics: Metrics
) -> None:
    """POST `path`. What `planning` makes is cancelled at the time limit, and when the one who asked is gone."""

    async def answer_plan(request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="a plan request is application/json\n")
        if (request.content_length or 0) > limits.plan_bytes:
            raise _too_large(limits.plan_bytes)
        try:
            with metrics.planning.time():
                async with asyncio.timeout(limits.plan_within_s):
                    body = await _body(request, limits.plan_bytes)
                    answer = await _unless_gone(request, planning, body)
        except (TimeoutError, JobTooLong, JobTooLarge) as error:
            metrics.rejected.labels("PlannerTooSlow").inc()
            raise web.HTTPServiceUnavailable(
                text=f"no plan within {limits.plan_within_s:g} s: ask with fewer peers\n"
            ) from error
        except (JobsBusy, JobBroken) as error:
            metrics.rejected.labels("PlannerBusy").inc()
            raise web.HTTPServiceUnavailable(
                text=f"no plan can be made now: {error}\n", headers={"Retry-After": str(RETRY_AFTER_S)}
            ) from error
        except PlannerError as error:
            metrics.rejected.labels("BadPlanRequest").inc()
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        return web.Response(body=answer, content_type="application/json")

    app.router.add_post(path, answer_plan)


async def _body(request: web.Request, most: int) -> bytes:
    body = bytearray()
    async for chunk in request.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


async def _unless_gone(request: web.Request, planning: Planning, body: bytes) -> bytes:
    """The answer. Raises HTTPException, which nobody reads, once the one who asked is gone."""
    making = asyncio.ensure_future(planning(body))
    try:
        while not making.done():
            await asyncio.wait([making], timeout=LOOK_S)
            if request.transport is None or request.transport.is_closing():
                raise web.HTTPServiceUnavailable
        return await making
    finally:
        making.cancel()
        with suppress(asyncio.CancelledError, PlannerError):
            await making


def _too_large(most: int) -> web.HTTPRequestEntityTooLarge:
    return web.HTTPRequestEntityTooLarge(
        max_size=most, actual_size=most + 1, text=f"a plan request has at most {most} bytes\n"
    )
