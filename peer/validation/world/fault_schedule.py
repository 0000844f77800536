"""Carries out a schedule: waits for the token a fault hangs on, hits the victim, and undoes what lasts only a while.

Edge. Every timer belongs to one `Faults`, which cancels what is left of them.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import Final, assert_never

from peer.state.plan_record import route_of
from peer.validation.scenarios.faults import Does, Fault
from peer.validation.scenarios.link_conditions import Conditions
from peer.validation.world.answer_streams import Talks
from peer.validation.world.mesh import ASKER, Rig

PREFILL_AFTER_S: Final = 0.02  # a fault "when it is asked" comes while the prompt travels


class Faults:
    """One run's. `hit_s` are the times at which faults came, on the clock of the streams."""

    def __init__(self, rig: Rig, schedule: Sequence[Fault]) -> None:
        self._rig = rig
        self._schedule = schedule
        self._waiting = list(schedule)
        self.talks: Talks = ()
        self._names: dict[Fault, str] = {}
        self._others: dict[Fault, str] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: list[asyncio.Task[object]] = []
        self.primary_hit = False  # whether an answer needed a peer that was hit
        self.hit_s: list[float] = []
        self.notes: list[str] = []
        self.last_until_s = 0.0  # when the last fault that lasts is over

    def follow(self, talks: Talks) -> None:
        """The answers of this run; faults hit those who make them."""
        self.talks = talks

    def _settle(self, first: Fault) -> None:
        """Whom the schedule means is settled when the first fault comes, which changes who serves what."""
        route = self.talks[first.session].route or route_of(self._rig.plan())
        for fault in self._schedule:
            self._names[fault] = self._rig.victim(fault.victim, route)
            if fault.does is Does.CUT:
                self._others[fault] = self._rig.neighbour(fault.victim, route)
        serving = {self._rig.name(peer) for peer in route}
        tabs = [name for name in self._rig.tabs() if name in serving]
        for fault in self._schedule if tabs else ():
            if fault.does in (Does.KILL, Does.FREEZE) and not fault.victim.standby:
                self._names[fault] = tabs[0]  # what a mesh with tabs is asked for
        shaken = any(fault.does is Does.SHAKE for fault in self._schedule)
        self.primary_hit = shaken or bool(serving & set(self._names.values()))

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
        if not self._names:
            self._settle(fault)
        name = self._names[fault]
        child = self._rig.children[name]
        if fault.does is Does.MOVE:
            self.notes.append(f"cut at {list(self._rig.cut_elsewhere(self.talks))}")
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
            case Does.MOVE:
                self.primary_hit = True
            case Does.FAIL:
                child.order("fail")
            case Does.CUT:
                other = self._others[fault]
                self._shake(Conditions(cuts=((0.0, fault.for_s),)), [(name, other)])
                self.notes.append(f"between {name} and {other}")
                self.last_until_s = max(self.last_until_s, now + fault.for_s)
            case Does.SHAKE:
                self._shake(fault.conditions or Conditions(), None)
            case _:
                assert_never(fault.does)
        self.hit_s.append(now)
        if fault.does is not Does.MOVE:
            self.notes.append(f"{fault.does.value} {name if fault.does is not Does.SHAKE else 'every link'}")

    def _shake(self, conditions: Conditions, links: list[tuple[str, str]] | None) -> None:
        relay = self._rig.relay
        assert relay is not None, f"links of {ASKER} and peers go through a relay in these scenarios"
        self._tasks.append(asyncio.ensure_future(relay.set_links(conditions, links)))
