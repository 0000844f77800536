"""How long a step takes around the units it runs: frames, the stage's decisions, the loop, and the worker's waking.

Edge, part of `peer.runtime.self_benchmark`. A stage of the embedding alone answers tokens as it does for a real
session; only the connections are missing, which the measurement of links has.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import numpy as np

from peer.errors import CannotServe
from peer.runtime.forms import Form
from peer.runtime.stage_runtime import Done, Refused, StageRuntime
from peer.runtime.step_requests import runtime_step
from peer.session.effects import Ran, RunStep, Send, StageEffect
from peer.session.sampling import Sampling
from peer.session.stage import StageCore
from peer.wire.frame_codec import decode, encode
from peer.wire.generated.frames import Finish, Open, Role, Step, Token
from peer.wire.tensors import tensor_of
from planner.model.lowering import Shard

SESSION: Final = bytes(16)
RUN: Final = (0, 1)
ME, NEXT, ASKER = "me", "next", "asker"


async def steps_s(
    shard: Shard, threads: int, context: int, form: Form, runs: int, limit_s: float
) -> list[float]:
    """Seconds of each step, from a token's frame to the frame of the activation. Raises CannotServe."""
    loop = asyncio.get_running_loop()
    results: asyncio.Queue[Done | Refused] = asyncio.Queue()

    def deliver(result: Done | Refused) -> None:
        loop.call_soon_threadsafe(results.put_nowait, result)

    core = StageCore(ME)
    core.serve({1: ((frozenset({ME}), RUN), (frozenset({NEXT}), (1, 2)))}, {RUN: 1})
    runtime = StageRuntime(shard, threads=threads, slots=1, context=context, form=form, deliver=deliver)

    async def through(effects: list[StageEffect]) -> bytes:
        """Runs what the stage wants run; the frame that goes to the next stage."""
        step = next(effect for effect in effects if isinstance(effect, RunStep))
        runtime.submit(runtime_step(step, ASKER))
        result = await results.get()
        if isinstance(result, Refused):
            raise CannotServe(f"a step of the measurement was refused: {result.text}")
        ran = Ran(RUN, result.session, result.turn, result.position, result.count, result.hidden, None)
        sends = [effect for effect in core.ran(time.monotonic(), ran) if isinstance(effect, Send)]
        return encode(next(send.frame for send in sends if send.peer == NEXT))

    try:
        core.open(time.monotonic(), ASKER, _opening(context))
        first = tensor_of(np.zeros(1, np.int32))
        await through(core.step(time.monotonic(), ASKER, Step(SESSION, 1, 0, 0, 1, 1, first)))
        taken: list[float] = []
        end = time.perf_counter() + limit_s
        while len(taken) < runs and (len(taken) < 3 or time.perf_counter() < end):
            data = encode(Token(SESSION, 1, len(taken) + 1, 0, int(Finish.MORE)))
            begun = time.perf_counter()
            token = decode(data)
            assert isinstance(token, Token)
            await through(core.token(time.monotonic(), NEXT, token))
            taken.append(time.perf_counter() - begun)
        return taken
    finally:
        runtime.close()


def _opening(context: int) -> Open:
    return Open(
        session=SESSION,
        turn=1,
        plan=1,
        route=(ME, NEXT),
        stage=0,
        origin=ASKER,
        start=0,
        prompt_tokens=1,
        max_tokens=context - 1,
        sampling=tuple(Sampling().to_wire()),
        end_tokens=(),
        generated=0,
        role=int(Role.SERVE),
        answer=1,
        before=0,
        keep=0,
        spans=(1,),
        shadow_stages=(),
        shadows=(),
        history=(),
    )
