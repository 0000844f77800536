"""Carries out a schedule: waits for the token a fault hangs on, hits the victim, and undoes what lasts only a while.

Edge. Every timer belongs to one `Faults`, which cancels what is left of them.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import Final, assert_never

from peer.validation.conditions import Conditions
from peer.validation.rig import ASKER, Rig
from peer.validation.scenarios import Does, Fault

PREFILL_AFTER_S: Final = 0.02  # a fault "when it is asked" comes while the prompt travels


class Faults:
    """One run's. `hit_s` are the times at which faults came, on the clock of the streams."""

    def __init__(self, rig: Rig, schedule: Sequence[Fault]) -> None:
        self._rig = rig
        self._waiting = list(schedule)
        # Whom the schedule means is settled now: the first fault changes the plan.
        self._names = {id(fault): rig.victim(fault.victim) for fault in schedule}
        self._others = {
            id(fault): rig.neighbour(fault.victim) for fault in schedule if fault.does is Does.CUT
        }
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: list[asyncio.Task[object]] = []
        self.primary_hit = any(rig.is_primary(name) for name in self._names.values())
        self.hit_s: list[float] = []
        self.notes: list[str] = []
        self.last_until_s = 0.0  # when the last fault that lasts is over

    def on_token(self, session: int, count: int) -> None:
        """An answer has so many tokens now."""
        for fault in [f for f in self._waiting if f.session == session and f.after_token <= count]:
            self._waiting.remove(fault)
            delay_s = fault.delay_s + (0.0 if fault.after_token else PREFILL_AFTER_S)
            if delay_s:
                self._later(delay_s, fault)
            else:
                self._hit(fault)

    async def over(self) -> None:
        """Waits until nothing of the faults goes on, then forgets what never came."""
        await asyncio.sleep(max(0.0, self.last_until_s - time.perf_counter()))
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._tasks)

    def _later(self, delay_s: float, fault: Fault) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay_s, self._hit, fault))

    def _hit(self, fault: Fault) -> None:
        name = self._names[id(fault)]
        child = self._rig.children[name]
        now = time.perf_counter()
        match fault.does:
            case Does.KILL:
                self._rig.ended(name)
                child.send(signal.SIGKILL)
            case Does.RESTART:
                self._rig.ended(name)
                child.send(signal.SIGINT)
            case Does.FREEZE:
                child.send(signal.SIGSTOP)
                loop = asyncio.get_running_loop()
                self._timers.append(loop.call_later(fault.for_s, child.send, signal.SIGCONT))
                self.last_until_s = max(self.last_until_s, now + fault.for_s + 0.1)
            case Does.STALL:
                child.order(f"stall {fault.for_s}")
                self.last_until_s = max(self.last_until_s, now + fault.for_s)
            case Does.FAIL:
                child.order("fail")
            case Does.CUT:
                other = self._others[id(fault)]
                self._shake(Conditions(cuts=((0.0, fault.for_s),)), [(name, other)])
                self.notes.append(f"between {name} and {other}")
                self.last_until_s = max(self.last_until_s, now + fault.for_s)
            case Does.SHAKE:
                self._shake(fault.conditions or Conditions(), None)
            case _:
                assert_never(fault.does)
        self.hit_s.append(now)
        self.notes.append(f"{fault.does.value} {name if fault.does is not Does.SHAKE else 'every link'}")

    def _shake(self, conditions: Conditions, links: list[tuple[str, str]] | None) -> None:
        relay = self._rig.relay
        assert relay is not None, f"links of {ASKER} and peers go through a relay in these scenarios"
        self._tasks.append(asyncio.ensure_future(relay.set_links(conditions, links)))
