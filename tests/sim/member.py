"""One simulated peer: hands frames to the cores and performs what they decide, as the node of a real peer does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, assert_never

from peer.frames import Cancel, Frame, Open, Refuse, Release, Step, Token
from peer.mesh_state import AWAY, MeshState, PlanRecord
from peer.pipeline import FreeSlot, NotRan, Ran, Run_, RunStep, StageCore, StageEffect
from peer.session import Broken, Emit, Ended, FindRoute, OriginEffect, OriginSession, Phase, Reason, Send
from tests.sim.network import Network
from tests.sim.toy import Cache, from_hidden, logits_of, to_hidden

REMEMBERED_PLANS = 4
Outcome = Emit | Ended | Broken


class Worker:
    """What a peer computes, one step after the other, in virtual time."""

    def __init__(self, member: Member, token_s: float) -> None:
        self._member = member
        self._token_s = token_s
        self.slow_until = 0.0
        self.caches: dict[Run_, dict[bytes, Cache]] = {}
        self._waiting: deque[RunStep] = deque()
        self._running: RunStep | None = None

    def submit(self, step: RunStep) -> None:
        self._waiting.append(step)
        self._next()

    def free(self, run: Run_, session: bytes) -> None:
        """Forgets the session; what waits of it is dropped without an answer."""
        self.caches.get(run, {}).pop(session, None)
        self._waiting = deque(s for s in self._waiting if (s.run, s.session) != (run, session))
        if self._running is not None and (self._running.run, self._running.session) == (run, session):
            self._released = True

    def _next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        step = self._running = self._waiting.popleft()
        self._released = False
        member = self._member
        count = (
            len(step.tokens)
            if step.tokens is not None
            else len(step.hidden)
            if step.hidden is not None
            else 0
        )
        took_s = self._token_s * (1 + count / 8) * (10 if member.network.now < self.slow_until else 1)
        member.later(took_s, self._finish)

    def _finish(self) -> None:
        step, self._running = self._running, None
        assert step is not None
        result = run_step(self.caches, step)
        if self._released:
            self.caches.get(step.run, {}).pop(step.session, None)
        self._member.results([result])
        self._next()


def run_step(caches: dict[Run_, dict[bytes, Cache]], step: RunStep) -> Ran | NotRan:
    """What the runtime of `step.run` answers."""
    mine = caches.get(step.run)
    if mine is None:
        return NotRan(step.session, step.turn, step.position, 0, Reason.UNKNOWN_PLAN, "not loaded")
    cache = mine.get(step.session)
    have = len(cache.rows) if cache is not None else 0
    if step.position > have:
        text = f"has {have} positions"
        return NotRan(step.session, step.turn, step.position, have, Reason.MISSING_POSITION, text)
    if cache is None:
        cache = mine[step.session] = Cache(*step.run)
    if step.tokens is not None:
        values = [int(token) + 1 for token in step.tokens.tolist()]
    else:
        assert step.hidden is not None
        values = from_hidden(step.hidden)
    numbers = cache.run(step.position, values, step.prompt or len(values) > 1)
    token = step.finish(logits_of(numbers[-1])) if step.finish is not None else None
    return Ran(step.session, step.turn, step.position, len(values), to_hidden(numbers), token)


class Member:
    """A peer of the simulated mesh. `listener` hears what comes of this peer's questions."""

    def __init__(
        self, network: Network, name: str, slots: int, token_s: float, trace: Callable[..., None] | None
    ) -> None:
        self.network = network
        self.name = name
        self.alive = True
        self.trace = trace
        self.state = MeshState()
        self.listener: Callable[[OriginSession, Outcome], None] = lambda core, outcome: None
        self.frozen = False
        self._slots = slots
        self._token_s = token_s
        self._backlog: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._incarnation = 0
        self.born()
        network.ends[name] = self

    def born(self) -> None:
        """A process that knows nothing."""
        self._incarnation += 1
        self.alive, self.frozen = True, False
        self._backlog.clear()
        self.core = StageCore(self.name)
        self.worker = Worker(self, self._token_s)
        self.askings: dict[bytes, OriginSession] = {}
        self._plans: dict[int, PlanRecord] = {}
        self.state = MeshState()

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

    def _lost(self, peer: str) -> None:
        if self.trace:
            self.trace(self.name, f"lost the connection to {peer}")
        self.perform(self.core.peer_gone(peer))
        for core in list(self.askings.values()):
            self.perform_origin(core, core.peer_gone(self.network.now, peer, f"peer {peer} was lost"))

    def _frame(self, sender: str, frame: Frame) -> None:
        now = self.network.now
        if self.trace:
            self.trace(self.name, f"<- {sender}: {frame}")
        core = self.core
        match frame:
            case Step():
                self.perform(core.step(now, sender, frame))
            case Token():
                self.perform(core.token(now, sender, frame))
                if (asking := self.askings.get(frame.session)) is not None:
                    self.perform_origin(asking, asking.token(now, sender, frame))
            case Open():
                self.perform(core.open(now, sender, frame))
            case Cancel():
                self.perform(core.cancel(sender, frame))
            case Release():
                self.perform(core.release(sender, frame))
            case Refuse():
                if (asking := self.askings.get(frame.session)) is not None:
                    self.perform_origin(asking, asking.refused(now, sender, frame))
            case _:
                raise AssertionError(f"{type(frame).__name__} is no frame of a session")

    def results(self, results: list[Ran | NotRan]) -> None:
        for result in results:
            if self.trace:
                self.trace(self.name, f"ran: {result}")
            match result:
                case Ran():
                    self.perform(self.core.ran(self.network.now, result))
                case NotRan():
                    self.perform(self.core.not_ran(result))

    # --- what is done

    def perform(self, effects: list[StageEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, frame):
                    self.network.send(self.name, peer, frame)
                case RunStep():
                    self.worker.submit(effect)
                case FreeSlot(run, session):
                    self.worker.free(run, session)
                case _:
                    assert_never(effect)

    def perform_origin(self, core: OriginSession, effects: list[OriginEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, frame):
                    self.network.send(self.name, peer, frame)
                case Emit() | Ended() | Broken():
                    self.listener(core, effect)
                case FindRoute(soon=soon):
                    if not soon:
                        self._try_route(core)
                case _:
                    assert_never(effect)

    def _try_route(self, core: OriginSession) -> None:
        plan = self.state.serving()
        if plan is not None and core.phase is Phase.REROUTING:
            self.perform_origin(core, core.reroute(self.network.now, plan))

    # --- what the mesh knows

    def know(self, state: MeshState) -> None:
        """The log went on."""
        if state.index <= self.state.index:
            return
        self.state = state
        for plan in (state.plan, state.proposed):
            if plan is not None:
                self._plans[plan.version] = plan
        for version in sorted(self._plans)[:-REMEMBERED_PLANS]:
            del self._plans[version]
        self._hold()
        for core in list(self.askings.values()):
            for peer in core.route:
                member = state.members.get(peer)
                if member is None or member.status in AWAY:
                    self.perform_origin(core, core.peer_gone(self.network.now, peer, f"peer {peer} left"))
            self._try_route(core)

    def load(self, run: Run_) -> None:
        self.worker.caches.setdefault(run, {})
        self._hold()

    def unload(self, run: Run_) -> None:
        self.perform(self.core.drop(run))
        self.worker.caches.pop(run, None)
        self._hold()

    def _hold(self) -> None:
        plans = {
            version: tuple((stage.primary, (stage.first, stage.stop)) for stage in plan.stages)
            for version, plan in self._plans.items()
        }
        self.core.serve(plans, dict.fromkeys(self.worker.caches, self._slots))

    def tick(self) -> None:
        now = self.network.now
        self.perform(self.core.tick(now))
        for core in list(self.askings.values()):
            self._try_route(core)
            self.perform_origin(core, core.tick(now))
