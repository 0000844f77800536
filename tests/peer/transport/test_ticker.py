"""What looks now and then wakes with the ticks, and with no other."""

from __future__ import annotations

import asyncio

from peer.transport.ticker import SLACK_S, Ticks
from tests.patience import WITHIN_S


async def test_all_that_is_due_wakes_at_one_tick() -> None:
    ticks, now = Ticks(), asyncio.get_running_loop().time()
    soon, late = (asyncio.ensure_future(ticks.after(seconds)) for seconds in (10.0, 20.0))
    gone = asyncio.ensure_future(ticks.after(10.0))
    await asyncio.sleep(0)
    gone.cancel()
    ticks.tick(now + 9.0)
    await asyncio.sleep(0)
    assert not soon.done()
    ticks.tick(asyncio.get_running_loop().time() + 10.0 - SLACK_S / 2)
    await asyncio.wait_for(soon, WITHIN_S)
    assert not late.done()
    ticks.tick(now + 30.0)
    await asyncio.wait_for(late, WITHIN_S)
    assert gone.cancelled()
