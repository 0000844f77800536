"""One simulated peer: hands frames to the cores and performs what they decide, as the node of a real peer does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from peer.session.effects import (
    Broken,
    Emit,
    Ended,
    FindRoute,
    FreeSlot,
    NotRan,
    OriginEffect,
    Ran,
    RunStep,
    Send,
    Spare,
    StageEffect,
    Suspect,
)
from peer.session.origin import OriginSession, Phase
from peer.session.routes import Route, choose
from peer.session.seat import Run_
from peer.session.stage import StageCore
from peer.state.generated.commands import PlanRecord
from peer.state.mesh_state import AWAY, MeshState
from peer.wire.generated.frames import Cancel, Feed, Frame, Here, Open, Refuse, Release, Step, Token, Where
from tests.sim.network import Network
from tests.sim.worker import Worker

REMEMBERED_PLANS = 4
SOONEST_S = 0.005  # between two looks at one session
TOGETHER = 4  # frames to a shadow that go at once
TOGETHER_S = 0.03  # and no frame waits longer than this
ASKING = (Phase.PREFILL, Phase.DECODE, Phase.REROUTING)
Outcome = Emit | Ended | Broken


@dataclass(frozen=True, slots=True)
class Habits:
    """What all peers of a run have in common. Times in seconds."""

    slots: int
    log_session_bytes: int
    log_total_bytes: int
    shadows: bool
    keep_only: bool
    token_s: float
    patience_s: float  # for an answer to WHERE
    spare_loss: float  # chance that frames to a shadow are dropped
    hopeful: bool  # whether askers think that the coordinator will find somebody


class Member:
    """A peer of the simulated mesh. `listener` hears what comes of this peer's questions."""

    def __init__(
        self, network: Network, name: str, habits: Habits, trace: Callable[[str, str], None] | None
    ) -> None:
        self.network = network
        self.name = name
        self.trace = trace
        self.listener: Callable[[OriginSession, Outcome], None] = lambda core, outcome: None
        self.suspected: Callable[[str], None] = lambda peer: None
        self.alive = True
        self.frozen = False
        self._habits = habits
        self._backlog: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._incarnation = 0
        self.born()
        network.ends[name] = self

    def born(self) -> None:
        """A process that knows nothing."""
        habits = self._habits
        self._incarnation += 1
        self.alive, self.frozen = True, False
        self._backlog.clear()
        self.most_log_bytes = 0
        self.core = StageCore(self.name, habits.log_session_bytes, habits.log_total_bytes)
        self.core.keep_logs(habits.log_session_bytes, habits.log_total_bytes, only=habits.keep_only)
        self.worker = Worker(self.later, self._result, habits.token_s)
        self.askings: dict[bytes, OriginSession] = {}
        self.state = MeshState()
        self._armed: dict[bytes, float] = {}
        self._spares: dict[str, list[Frame]] = {}
        self._full: set[str] = set()
        self._plans: dict[int, PlanRecord] = {}

    # --- time

    def later(self, after_s: float, call: Callable[..., None], *args: Any) -> None:
        """`call` after so long, unless this process is gone by then; a frozen one does it when it thaws."""
        self.network.at(self.network.now + after_s, self._due, self._incarnation, call, args)

    def _due(self, incarnation: int, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.alive or incarnation != self._incarnation:
            return
        if self.frozen:
            self._backlog.append((call, args))
        else:
            call(*args)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        while self._backlog and not self.frozen:
            call, args = self._backlog.popleft()
            call(*args)

    # --- what comes

    def take(self, sender: str, frame: Frame) -> None:
        if self.frozen:
            self._backlog.append((self._frame, (sender, frame)))
        else:
            self._frame(sender, frame)

    def lost(self, peer: str) -> None:
        if self.frozen:
            self._backlog.append((self._lost, (peer,)))
        else:
            self._lost(peer)

    def connected(self, peer: str) -> None:
        if self.frozen:
            self._backlog.append((self._connected, (peer,)))
        else:
            self._connected(peer)

    def _lost(self, peer: str) -> None:
        if self.trace:
            self.trace(self.name, f"lost the connection to {peer}")
        self._spares.pop(peer, None)
        self.perform(self.core.peer_gone(self.network.now, peer))
        for core in list(self.askings.values()):
            self.perform_origin(core, core.peer_gone(self.network.now, peer, f"peer {peer} was lost"))

    def _connected(self, peer: str) -> None:
        if self.trace:
            self.trace(self.name, f"is connected to {peer} again")
        for core in list(self.askings.values()):
            core.peer_back(peer)
            if core.phase is Phase.REROUTING:
                self._find(core)
                self._arm(core)

    def _frame(self, sender: str, frame: Frame) -> None:
        now = self.network.now
        if self.trace:
            self.trace(self.name, f"<- {sender}: {frame}")
        core = self.core
        match frame:
            case Step():
                self.perform(core.step(now, sender, frame))
            case Token():
                effects = core.token(now, sender, frame)
                if (asking := self.askings.get(frame.session)) is not None:
                    self.perform_origin(asking, asking.token(now, sender, frame))
                self.perform(effects)
            case Open():
                self.perform(core.open(now, sender, frame))
            case Feed():
                effects = core.feed(now, sender, frame)
                if not frame.stage and (asking := self.askings.get(frame.session)) is not None:
                    self.perform_origin(asking, asking.feed(now, sender, frame))
                self.perform(effects)
            case Where():
                self.perform(core.where(sender, frame))
            case Cancel():
                self.perform(core.cancel(sender, frame))
            case Release():
                self.perform(core.release(sender, frame))
            case Refuse():
                if (asking := self.askings.get(frame.session)) is not None:
                    self.perform_origin(asking, asking.refused(now, sender, frame))
            case Here():
                if (asking := self.askings.get(frame.session)) is not None:
                    self.perform_origin(asking, asking.here(now, sender, frame))
            case _:
                raise AssertionError(f"{type(frame).__name__} is no frame of a session")

    def _result(self, result: Ran | NotRan) -> None:
        if self.trace:
            self.trace(self.name, f"ran: {result}")
        match result:
            case Ran():
                self.perform(self.core.ran(self.network.now, result))
            case NotRan():
                self.perform(self.core.not_ran(self.network.now, result))
        self.most_log_bytes = max(self.most_log_bytes, self.core.log_bytes)

    # --- what is done

    def perform(self, effects: list[StageEffect]) -> None:
        spare: list[Spare] = []
        for effect in effects:
            match effect:
                case Send(peer, frame):
                    self.network.send(self.name, peer, frame)
                case Spare():
                    spare.append(effect)
                case RunStep():
                    self.worker.submit(effect)
                case FreeSlot(run, session):
                    self.worker.free(run, session)
                case _:
                    assert_never(effect)
        for one in spare:
            self._spare(one.peer, one.frame)

    def perform_origin(self, core: OriginSession, effects: list[OriginEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, frame):
                    self.network.send(self.name, peer, frame)
                case Spare(peer, frame):
                    self._spare(peer, frame)
                case Emit() | Ended() | Broken():
                    self.listener(core, effect)
                case FindRoute(soon=soon):
                    if not soon:
                        self._find(core)
                case Suspect(peer, _):
                    self.suspected(peer)
                    self.later(0.0, self.hint, peer)
                case _:
                    assert_never(effect)
        self._arm(core)

    def route(self, gone: frozenset[str] = frozenset(), avoid: frozenset[str] = frozenset()) -> Route | None:
        """The best route now, if there is one."""
        if self.state.plan is None:
            return None
        return choose(self.state, self.state.plan, gone, avoid=avoid, shadows=self._habits.shadows)

    def hint(self, peer: str) -> None:
        """Somebody thinks that `peer` is lost."""
        for core in list(self.askings.values()):
            self.perform_origin(core, core.hint(self.network.now, peer))

    def congestion(self, peer: str, full: bool) -> None:
        (self._full.add if full else self._full.discard)(peer)
        self.perform(self.core.congestion(peer, full))

    def _find(self, core: OriginSession) -> None:
        if core.phase not in ASKING:
            return
        route = self.route(*core.without)
        if route is None:
            core.hope(self._habits.hopeful)
        else:
            self.perform_origin(core, core.reroute(self.network.now, route))

    def _arm(self, core: OriginSession) -> None:
        due = core.deadline
        armed = self._armed.get(core.session)
        if due == float("inf") or (armed is not None and armed <= due):
            return
        when = max(due, self.network.now + SOONEST_S)
        self._armed[core.session] = when
        self.later(when - self.network.now, self._fire, core, when)

    def _fire(self, core: OriginSession, when: float) -> None:
        if self._armed.get(core.session) != when:
            return
        del self._armed[core.session]
        if self.askings.get(core.session) is not core:
            return
        if self.network.now >= core.deadline:
            core.patience_s.update(dict.fromkeys(core.route, self._habits.patience_s))
            self.perform_origin(core, core.tick(self.network.now))
        self._arm(core)

    def _spare(self, peer: str, frame: Frame) -> None:
        waiting = self._spares.setdefault(peer, [])
        waiting.append(frame)
        if len(waiting) >= TOGETHER:
            self._flush(peer, waiting)
        elif len(waiting) == 1:
            self.later(TOGETHER_S, self._flush, peer, waiting)

    def _flush(self, peer: str, waiting: list[Frame]) -> None:
        if self._spares.get(peer) is not waiting:
            return
        del self._spares[peer]
        if peer in self._full or self.network.chance() < self._habits.spare_loss:
            return
        for frame in waiting:
            self.network.send(self.name, peer, frame)

    # --- what the mesh knows

    def know(self, state: MeshState) -> None:
        """The log went on."""
        if state.index <= self.state.index:
            return
        fresh = state.members.keys() - self.state.members.keys()
        self.state = state
        for plan in (state.plan, state.proposed):
            if plan is not None:
                self._plans[plan.version] = plan
        for version in sorted(self._plans)[:-REMEMBERED_PLANS]:
            del self._plans[version]
        self._hold()
        for core in list(self.askings.values()):
            lacked = any(core.without)
            for peer in fresh:
                core.peer_back(peer)
            if core.phase in ASKING:
                for peer in core.route:
                    member = state.members.get(peer)
                    if member is None or member.status in AWAY:
                        why = f"peer {peer} left the mesh"
                        self.perform_origin(core, core.peer_gone(self.network.now, peer, why))
            if lacked or any(core.without):
                self._find(core)
                self._arm(core)

    def load(self, run: Run_) -> None:
        self.worker.caches.setdefault(run, {})
        self._hold()

    def unload(self, run: Run_) -> None:
        self.perform(self.core.drop(run))
        self.worker.caches.pop(run, None)
        self._hold()

    def tick(self) -> None:
        self.perform(self.core.tick(self.network.now))

    def _hold(self) -> None:
        plans = {
            version: tuple(
                (frozenset((stage.primary, *stage.standbys)), (stage.first, stage.stop))
                for stage in plan.stages
            )
            for version, plan in self._plans.items()
        }
        self.core.serve(plans, dict.fromkeys(self.worker.caches, self._habits.slots))
