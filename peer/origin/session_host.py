"""The sessions that this peer asks: their timers, their routes, and what they find out about other peers.

Edge around `peer.session.origin`, which decides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from peer.errors import PeerError
from peer.origin.pinned_ends import OwnEnds
from peer.replication.decoder_view import ModelView
from peer.session.effects import Broken, Emit, Ended, FindRoute, OriginEffect, Reason, Send, Spare, Suspect
from peer.session.origin import PATIENCE_S, OriginSession, Phase
from peer.session.pinned_ends import not_usable, state_in
from peer.session.prefix_cache import KnownFronts, split
from peer.session.routes import Route, choose, placed, standby_expected, unserved
from peer.state.display_names import name_of, names
from peer.state.generated.commands import PlanRecord
from peer.state.mesh_state import AWAY
from peer.state.version_negotiation import OPENS
from peer.transport.circuit_breakers import Breakers
from peer.transport.listeners import Listeners
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.frames import Feed, Frame, Here, Open, Refuse, Step, Token
from peer.wire.generated.requests import SUSPECT, SuspectRequest
from peer.wire.tensors import Tensor

APART_S: Final = 0.15  # between answers that begin to move: what each costs is felt by all
SOONEST_S: Final = 0.005  # between two looks at one session
REMEMBERED_PLANS: Final = (
    4  # as stages do: while a new plan comes about, an older one may still have all holders
)
# Without a route for so long, who is to hold what was lost is asked whether it does: a leader that lost its quorum can
# write no more into the log who holds what.
STRANDED_S: Final = 5.0
MILLI: Final = 1000
ONE_INCIDENT_S: Final = 1.0  # what several sessions find out about one peer within this is one failure
PATIENCE_TIMES: Final = 3  # of the time that an answer takes at most, as the heartbeat knows it
PATIENCE_FLOOR_S: Final = 0.08  # a process that competes for its processor answers no sooner
PATIENCE_CEILING_S: Final = 1.0

log = logging.getLogger(__name__)

RUNNING: Final = (Phase.PREFILL, Phase.DECODE, Phase.REROUTING)

Outcome = Emit | Ended | Broken


class SessionListener(Protocol):
    """Who follows the sessions of this peer."""

    def opened(self, frame: Open) -> None:
        """A turn of an answer begins."""

    def emitted(self, session: bytes, position: int) -> None:
        """A token came, for that position."""

    def ended(self, session: bytes) -> None:
        """An answer is over, however it ended."""

    def returned(self, session: bytes, position: int, state: Tensor) -> None:
        """A state came back from which an answer goes on here."""


@dataclass(slots=True)
class Asking:
    """A session of this peer and who listens to it."""

    core: OriginSession
    listener: Callable[[Outcome], None]
    timer: asyncio.TimerHandle | None = None
    followed: int = 0  # the newest plan that was looked at: whether the answer moves to it
    drawn: tuple[int, int] = (-1, -1)  # turn and position from whose state a token was drawn here last


class SessionHost:
    """All sessions that this peer asks. Routes keep to the mesh's protection settings."""

    def __init__(self, links: PeerLinks, view: ModelView) -> None:
        self.links = links
        self.view = view
        self.breakers = Breakers()
        self.fronts = KnownFronts()
        self.own_ends: OwnEnds | None = None  # None: the stages have embedding and head
        self._all: dict[bytes, Asking] = {}
        self._plans: dict[int, PlanRecord] = {}
        self._known: frozenset[str] = frozenset()  # members when the state was looked at last
        self._listeners = Listeners[SessionListener]()
        self._suspected: dict[str, float] = {}  # when, by peer
        self._reports: set[asyncio.Task[None]] = set()
        view.subscribe(self._state_changed)

    def __len__(self) -> int:
        return len(self._all)

    def subscribe(self, listener: SessionListener) -> Callable[[], None]:
        """Tells `listener` of all sessions from now on, until what is returned is called."""
        return self._listeners.add(listener)

    def keep_ends(self, ends: OwnEnds) -> None:
        """Keeps embedding and head here from now on: no other peer handles token ids of conversations that begin."""
        self.own_ends = ends

    def attach(self, core: OriginSession, listener: Callable[[Outcome], None]) -> None:
        """Takes a session in."""
        self._all[core.session] = Asking(core, listener)

    def detach(self, session: bytes) -> None:
        """Lets a session go; its slots are freed on every stage, and its listener hears of the end."""
        asking = self._all.get(session)
        if asking is not None:
            self.perform(session, asking.core.release())
            self._disarm(asking)
            del self._all[session]

    def tokens(self, session: bytes) -> Sequence[int]:
        """All tokens of a session so far; none of one that is not asked here."""
        asking = self._all.get(session)
        return asking.core.tokens if asking is not None else ()

    def attached(self, session: bytes) -> bool:
        """Whether `session` was taken in and not let go."""
        return session in self._all

    def route(
        self,
        gone: frozenset[str] = frozenset(),
        avoid: frozenset[str] = frozenset(),
        *,
        loading: bool = False,
    ) -> Route | None:
        """The best route now, if there is one: over the newest plan, else over one that it replaced. `loading`: also
        over peers that are to hold a stage which nobody holds by the log.
        """
        state = self.view.state
        if state.plan is None or state.model is None:
            return None
        now = _now_ms()
        for plan in (state.plan, *(self._plans[version] for version in sorted(self._plans, reverse=True))):
            route = choose(
                state,
                plan,
                gone,
                avoid=avoid,
                order=lambda candidates: self.breakers.order(candidates, now),
                standbys=self._standbys,
                shadows=self._shadows,
                loading=loading,
            )
            if route is not None:
                return route
        return None

    @property
    def can_answer(self) -> bool:
        """Whether an answer could begin now: the plan that serves has a holder of each stage that is not lost."""
        state = self.view.state
        plan = state.serving()
        return plan is not None and not unserved(state, plan, self.links.unreached)

    def plan(self, version: int) -> PlanRecord | None:
        """The plan of that number, if answers of this peer may go over it."""
        plan = self.view.state.plan
        return plan if plan is not None and plan.version == version else self._plans.get(version)

    def perform(self, session: bytes, effects: list[OriginEffect]) -> None:
        """Does what a session decided."""
        asking = self._all.get(session)
        for effect in effects:
            match effect:
                case Send(peer, frame):
                    if isinstance(frame, Open):
                        self._opened(split(frame)[0])
                    self.links.send_or_lose(peer, self._understood(frame))
                case Spare(peer, frame):
                    self.links.spare(peer, self._understood(frame))
                case Emit() | Ended() | Broken():
                    if asking is not None:
                        self._told(asking, effect)
                case FindRoute(soon=soon):
                    if asking is not None and not soon:
                        self._find(asking)
                case Suspect(peer, why):
                    self.suspect(peer, why)
        if asking is not None:
            self._arm(asking)

    def frame(self, now: float, peer: str, frame: Token | Refuse | Here | Feed) -> None:
        """A frame that concerns a session of this peer."""
        asking = self._all.get(frame.session)
        if asking is None:
            self._second_frame(now, peer, frame)
            return
        core = asking.core
        match frame:
            case Token():
                effects = core.token(now, peer, frame)
            case Refuse():
                effects = core.refused(now, peer, frame)
            case Here():
                effects = core.here(now, peer, frame)
            case Feed():
                if frame.position < core.start:
                    self.fronts.clear()  # a stage lacks one
                effects = core.feed(now, peer, frame)
        self.perform(frame.session, effects)

    def fed(self, now: float, peer: str, frame: Feed) -> None:
        """Takes a FEED, which is for the asker where it names no stage."""
        if not frame.stage:
            self.frame(now, peer, frame)

    def older(self, peers: Iterable[str], version: int = OPENS) -> list[str]:
        """Those of `peers` that do not speak `version`, by default that of OPENs which name a front or no settings."""
        return [peer for peer in peers if self.links.dialer.speaks(peer) < version]

    def has_rows(self, session: bytes) -> bool:
        """Whether rows stand in the place of some tokens of a session."""
        asking = self._all.get(session)
        return asking is not None and bool(asking.core.rows)

    def _understood(self, frame: Frame) -> Frame:
        """An OPEN as everybody on its way understands it: where somebody is older it names no front."""
        if isinstance(frame, Open) and self.older(frame.route):
            return split(frame)[0]
        return frame

    def handed_back(self, now: float, peer: str, frame: Step) -> None:
        """A last stage hands back the state from which an asker that keeps its ends draws the next token."""
        asking = self._all.get(frame.session) or self._moving_to(frame.session)
        if asking is None or (ends := asking.core.ends) is None:
            return
        drawing = asking.core.drawing(peer, frame)
        if drawing is None or isinstance(drawing, Token):
            if drawing is not None:
                self.frame(now, peer, drawing)
            return
        unusable = not_usable(frame)
        if (at := (frame.turn, frame.position)) == asking.drawn:
            return  # a stage that says it again gains nothing by that
        asking.drawn = at
        state = state_in(frame, ends.width)
        if state is None:
            self.frame(now, peer, unusable)
            return
        for listener in self._listeners:
            listener.returned(frame.session, frame.position, frame.tensor)
        ends.draw(drawing, state, lambda token: self.frame(time.monotonic(), peer, token or unusable))

    def gone(self, peer: str, reason: str, *, polite: bool) -> None:
        """Takes that the connection to `peer` ended. Where an answer needs it, it may be the connection alone that is
        lost: this peer dials again.
        """
        members = self.view.state.members
        name = name_of(peer, names(members))
        needed = self._gone(peer, f"{name} {'left' if polite else 'was lost'} ({reason})")
        if needed and not polite and peer in members:
            self.links.dialer.prepare(peer)

    def _gone(self, peer: str, why: str) -> bool:
        """Whether an answer needs `peer`, which is gone."""
        now = time.monotonic()
        running = [asking.core for asking in self._all.values() if asking.core.phase in RUNNING]
        needed = any(peer in core.route for core in running)
        if needed:
            self.breakers.failed(peer, _now_ms())
        for asking in list(self._all.values()):
            self.perform(asking.core.session, asking.core.peer_gone(now, peer, why))
        return needed

    def hint(self, peer: str) -> None:
        """`peer` may be lost: answers that need it ask at once."""
        now = time.monotonic()
        for asking in list(self._all.values()):
            asking.core.patience_s.update({other: self._patience_s(other) for other in asking.core.route})
            self.perform(asking.core.session, asking.core.hint(now, peer))

    def back(self, peer: str) -> None:
        """There is a connection to `peer` again."""
        for asking in list(self._all.values()):
            asking.core.peer_back(peer)
            if asking.core.phase is Phase.REROUTING:
                self._find(asking)
                self._arm(asking)

    def suspect(self, peer: str, why: str) -> None:
        """A session of this peer found `peer` unresponsive or stuck: other sessions ask, and the leader hears of it."""
        now = time.monotonic()
        if now - self._suspected.get(peer, -ONE_INCIDENT_S) < ONE_INCIDENT_S:
            return
        self._suspected[peer] = now
        log.info("peer %s %s", peer[:8], why)
        self.breakers.failed(peer, int(now * MILLI))
        asyncio.get_running_loop().call_soon(self.hint, peer)
        report = asyncio.ensure_future(self._report_suspect(peer))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report_suspect(self, peer: str) -> None:
        """Kept while nobody leads. A leader that is suspected itself cannot be told."""
        try:
            await self.view.ask_leader(SUSPECT, SuspectRequest(peer))
        except (PeerError, TimeoutError) as error:
            log.debug("the leader did not hear of it: %s", error)

    def _state_changed(self) -> None:
        """The mesh changed: peers may have left, and there may be another route."""
        now = time.monotonic()
        state = self.view.state
        members = state.members
        if state.plan is None:
            self._plans.clear()
        else:
            self._plans[state.plan.version] = state.plan
            for version in sorted(self._plans)[:-REMEMBERED_PLANS]:
                del self._plans[version]
        fresh = members.keys() - self._known  # some were lost, and started anew
        self._known = frozenset(members)
        later = 0.0
        for asking in list(self._all.values()):
            core = asking.core
            lacked = any(core.without)
            for peer in fresh:
                core.peer_back(peer)
            if core.phase in RUNNING:
                later += APART_S * self._follow(asking, now + later)
                for peer in core.route:
                    member = members.get(peer)
                    if member is None or member.status in AWAY:
                        why = f"{name_of(peer, names(members))} left the mesh"
                        self.perform(core.session, core.peer_gone(now, peer, why))
            if lacked or any(core.without):
                self._find(asking)
                self._arm(asking)

    def close(self, why: str) -> None:
        """Ends every session, so that stages free its slots at once; whoever waits for an answer hears why."""
        for asking in list(self._all.values()):
            for effect in asking.core.release():
                if isinstance(effect, Send):
                    self.links.send_or_lose(effect.peer, effect.frame)
                elif isinstance(effect, Ended):
                    asking.listener(Broken(why, Reason.LEAVING))
            self._disarm(asking)

    async def stop_reporting(self) -> None:
        """Ends the reports under way."""
        for report in list(self._reports):
            report.cancel()
        await asyncio.gather(*self._reports, return_exceptions=True)

    # --- inner moves

    @property
    def _standbys(self) -> bool:
        """Whether routes may go over standbys."""
        return self.view.state.protection.strategy not in ("simple", "coordinated")

    @property
    def _shadows(self) -> bool:
        """Whether routes have shadows."""
        return self.view.state.protection.shadow != "off"

    def _opened(self, frame: Open) -> None:
        for listener in self._listeners:
            listener.opened(frame)

    def _patience_s(self, peer: str) -> float:
        """How long `peer` may take to say where it is."""
        connection = self.links.dialer.connection(peer)
        if peer == self.links.me or connection is None or connection.timeout_s is None:
            return PATIENCE_S
        patience = max(connection.timeout_s * PATIENCE_TIMES, PATIENCE_FLOOR_S)
        return min(patience, PATIENCE_CEILING_S)

    def _plan_expected(self) -> bool:
        """Whether another plan may come that covers what was lost, or a standby that still loads it."""
        state = self.view.state
        loads = state.plan is not None and standby_expected(state, state.plan)
        return self.view.replica is not None and (not state.refused or loads)

    def _follow(self, asking: Asking, now: float) -> bool:
        """Has an answer move to the plan that serves now, unless it goes over the same units of the same peers; whether
        it does.
        """
        core, plan = asking.core, self.view.state.serving()
        if plan is None or core.current is None or plan.version <= max(asking.followed, core.current.plan):
            return False
        route = choose(
            self.view.state,
            plan,
            core.without[0],
            avoid=core.without[1],
            order=lambda candidates: self.breakers.order(candidates, _now_ms()),
            standbys=self._standbys,
            shadows=self._shadows,
        )
        if route is None:
            return False  # looked at again with the next change
        asking.followed = plan.version
        same = placed(self._plans.get(core.current.plan), core.route) == placed(plan, route.peers)
        self.perform(core.session, core.move(now, None if same else route))
        return not same

    def _second_frame(self, now: float, peer: str, frame: Token | Refuse | Here | Feed) -> None:
        """A frame of a session that an answer here moves to."""
        asking = self._moving_to(frame.session)
        if asking is not None:
            before = asking.core.session
            self._perform_as(before, asking, asking.core.second_frame(now, peer, frame))

    def _moving_to(self, session: bytes) -> Asking | None:
        return next((asking for asking in self._all.values() if asking.core.second == session), None)

    def _perform_as(self, before: bytes, asking: Asking, effects: list[OriginEffect]) -> None:
        """Does what a session decided that may have another id since: its answer has moved."""
        session = asking.core.session
        if session != before and self._all.get(before) is asking:
            self._all = {session if key == before else key: each for key, each in self._all.items()}
        self.perform(session, effects)

    def _told(self, asking: Asking, outcome: Outcome) -> None:
        if isinstance(outcome, Emit):
            for listener in self._listeners:
                listener.emitted(asking.core.session, outcome.position)
        else:
            for listener in self._listeners:
                listener.ended(asking.core.session)
        if isinstance(outcome, Ended):
            for peer in asking.core.route:
                self.breakers.succeeded(peer, _now_ms())
        asking.listener(outcome)

    def _find(self, asking: Asking) -> None:
        core = asking.core
        if core.phase not in RUNNING:
            return
        route = self.route(*core.without)
        if route is None and core.stranded_s(time.monotonic()) >= STRANDED_S:
            route = self.route(*core.without, loading=True)
        if route is None:
            core.hope(self._plan_expected())
            return
        for peer in route.peers:
            self.breakers.chosen(peer, _now_ms())
        self._perform_as(core.session, asking, core.reroute(time.monotonic(), route))

    def _arm(self, asking: Asking) -> None:
        due = asking.core.deadline
        if due == float("inf"):
            self._disarm(asking)
            return
        if asking.timer is not None:
            if asking.timer.when() <= due:
                return  # it looks again when it fires
            asking.timer.cancel()
        loop = asyncio.get_running_loop()
        asking.timer = loop.call_at(max(due, loop.time() + SOONEST_S), self._fire, asking)

    def _fire(self, asking: Asking) -> None:
        asking.timer = None
        core = asking.core
        now = time.monotonic()
        if now >= core.deadline:
            core.patience_s.update({peer: self._patience_s(peer) for peer in core.route})
            self.perform(core.session, core.tick(now))
        if self._all.get(core.session) is asking:
            self._arm(asking)

    @staticmethod
    def _disarm(asking: Asking) -> None:
        if asking.timer is not None:
            asking.timer.cancel()
            asking.timer = None


def _now_ms() -> int:
    return int(time.monotonic() * MILLI)
