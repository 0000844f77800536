"""One member of the mesh: takes frames and results to the part they concern, and performs what the cores decide.

Edge. Everything here runs on one event loop; models run on the workers of `peer.stage.unit_host`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, assert_never

from peer.consensus.message_codec import encode as encode_message
from peer.consensus.messages import Message
from peer.consensus.records import Entry
from peer.coordination.coordinator_service import Coordinating, body_of
from peer.errors import BadCommand, ConnectionLost, FrameError, NotLeader, PeerError, WrongChannel
from peer.model.piece_exchange import ABSENT, Pieces
from peer.origin.session_host import Askings, Outcome
from peer.replication.leader_client import LeaderLine
from peer.replication.replica import Replica, who_leads
from peer.session.effects import FreeSlot, NotRan, PrefixWork, Ran, Reason, RunStep, Send, Spare, StageEffect
from peer.session.origin import PATIENCE_S, OriginSession
from peer.session.stage import StageCore
from peer.stage.seat_waiting import Queue
from peer.stage.unit_host import Serving
from peer.state.conversations import asker_of
from peer.state.mesh_state import Command, MeshState
from peer.state.version_negotiation import told
from peer.storage.journal import Journal
from peer.transport.circuit_breakers import Breakers
from peer.transport.connection import Engine
from peer.transport.dialer import Dialer
from peer.transport.link_probe import Prober, link_words
from peer.transport.redial import Redial, wanted
from peer.transport.rpc import Calls
from peer.transport.shadow_sender import Spares
from peer.transport.ticker import Ticks
from peer.wire.bundles import bundled, frames_of
from peer.wire.frame_codec import (
    Bundle,
    Bye,
    ByeAck,
    Cancel,
    Consensus,
    Credit,
    Feed,
    Frame,
    Hello,
    Here,
    Open,
    Piece,
    PieceRequest,
    Ping,
    Pong,
    Probe,
    ProbeAck,
    Refuse,
    Release,
    Request,
    Response,
    Step,
    Token,
    Where,
)
from peer.wire.json_codec import Body
from signaling.presence import SignalKind

MAX_WHY: Final = 500  # characters of a refusal
TICK_S: Final = 0.25  # leases of stages are looked at this often
IDLE_TICK_S: Final = 0.5  # the same where no session is computed
SPARE_BYTES: Final = 64 * 1024  # waiting towards a peer: beyond that nothing is sent to shadows there
ONE_INCIDENT_S: Final = 1.0  # what several sessions find out about one peer within this is one failure
PATIENCE_TIMES: Final = 3  # of the time that an answer takes at most, as the heartbeat knows it
PATIENCE_FLOOR_S: Final = 0.08  # a process that competes for its processor answers no sooner
PATIENCE_CEILING_S: Final = 1.0

ASKED_OF_LEADER: Final = frozenset(
    ("join", "measured", "held", "drain", "paused", "leaving", "left", "suspect", "propose", "work")
)
PATIENT_S: Final = 2.0  # most questions are over by then

log = logging.getLogger(__name__)


class Node:
    """Holds the peer's view of the mesh. `signal` sends an offer, answer or candidate through the signaling server."""

    def __init__(
        self,
        hello: Hello,
        engine: Callable[[], Engine],
        signal: Callable[[SignalKind, str, bytes, str], Awaitable[None]],
        new_id: Callable[[], bytes],
    ) -> None:
        self.me = hello.peer
        self.agent = told(hello)[1].agent
        self.state = MeshState()
        self.core = StageCore(hello.peer)
        self.core.author_of = lambda session: asker_of(self.state.conversations, session.hex())
        self.serving: Serving | None = None  # None: this peer only asks
        self.coordinating: Coordinating | None = None
        self.pieces: Pieces | None = None  # None: the model is not known yet
        self.replica: Replica | None = None  # None: this peer is in no mesh yet
        self.coordinate: Callable[[MeshState], Coordinating] | None = None  # None: it cannot, yet
        self.patient = False  # a peer that only asks connects to voters when it has been here for a while
        self.answer_more: Callable[[str, str, Body], Awaitable[Body]] | None = None
        self.queue = Queue(self.core)  # those who wait for a seat here
        self.dialer = Dialer(hello, engine, signal, self, new_id)
        self.calls = Calls(self.send, self._answer)
        self.prober = Prober(self.send, time.perf_counter)
        self.line = LeaderLine(lambda: self.coordinator or "", self.ask)
        self.on_state: list[Callable[[], None]] = []
        self.on_role: list[Callable[[], None]] = []
        self.on_log_lost: list[Callable[[str], None]] = []
        self.on_gone: list[Callable[[str, str, bool], None]] = []
        self.on_ran: list[Callable[[Ran], None]] = []  # a step was computed here
        self.breakers = Breakers()
        self.askings = Askings(self, self.breakers)
        self.askings.speaks = lambda other: self.dialer.speaks(other)
        self.spares = Spares(self.send_or_lose, self._has_room)
        self._reports: set[asyncio.Task[None]] = set()
        self.journal: Journal | None = None  # None: nothing is computed here
        self._noted_tokens = 0
        self._suspected: dict[str, float] = {}  # when, by peer
        self._measuring: set[str] = set()  # peers whose link is measured for them now
        self._state_event = asyncio.Event()
        self.touched = asyncio.Event()  # set whenever a session's frame or result was dealt with
        self.ticks = Ticks()
        self._ticker: asyncio.Task[None] | None = None
        self._redial = Redial()
        self._since = time.monotonic()
        self._settling: Replica | None = None  # proposals of a coordinator that ended are under way
        self._led_before = ""  # who led before whoever leads now
        self._closing: set[asyncio.Task[None]] = set()  # coordinators that ended

    def start(self) -> None:
        """Begins to watch deadlines."""
        self._ticker = asyncio.ensure_future(self._tick())

    async def close(self, reason: str) -> None:
        """Says goodbye to everyone and stops; answers under way end with an error."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        self.askings.close(reason)
        self.spares.close()
        for report in list(self._reports):
            report.cancel()
        await asyncio.gather(*self._reports, return_exceptions=True)
        await self.calls.close()
        self._step_down()
        await asyncio.gather(*self._closing)
        if self.replica is not None:
            await self.replica.close()
        await self.dialer.close(reason)

    # --- sending

    def send(self, peer: str, frame: Frame) -> None:
        """Hands a frame to a peer, which may be this one. Raises ConnectionLost, and a FrameError for a wrong frame.

        Only members are dialled: frames of others name askers and stages, and may name anybody.
        """
        if peer == self.me:
            asyncio.get_running_loop().call_soon(self.frame, peer, frame)
        elif peer in self.state.members or self.dialer.connection(peer) is not None:
            self.dialer.send(peer, frame)
        else:
            raise ConnectionLost(f"peer {peer[:8]} is no member")

    def perform(self, effects: list[StageEffect]) -> None:
        """Does what a stage decided."""
        sends: dict[str, list[Frame]] = {}
        spare: list[Spare] = []
        for effect in effects:
            if isinstance(effect, Send):
                sends.setdefault(effect.peer, []).append(effect.frame)
            elif isinstance(effect, Spare):
                spare.append(effect)
        for peer, frames in sends.items():
            for frame in frames if peer == self.me or len(frames) == 1 else bundled(frames):
                self.send_or_lose(peer, frame)
        for effect in effects:  # after the sends: the worker, once woken, competes with this thread
            match effect:
                case Send() | Spare():
                    continue
                case RunStep() | FreeSlot() | PrefixWork() if self.serving is not None:
                    self.serving.do(effect)
                case RunStep() | FreeSlot() | PrefixWork():
                    raise BadCommand("this peer runs no units")
                case _:
                    assert_never(effect)
        for extra in spare:
            self.spare(extra.peer, extra.frame)
        self._note()

    def _note(self) -> None:
        """Tells the transaction log what happened to sessions here."""
        notes = self.core.notes()
        journal = self.journal
        if journal is None:
            return
        for note in notes:
            match note.what:
                case "opened":
                    journal.opened(note.session, note.stage)
                case "taken over":
                    journal.took_over(note.session, note.stage)
                case "closed":
                    journal.closed(note.session, note.stage)
                case _:
                    assert_never(note.what)
        if self.core.tokens_sampled > self._noted_tokens:
            journal.tokens(self.core.tokens_sampled - self._noted_tokens)
            self._noted_tokens = self.core.tokens_sampled

    def results(self, results: list[Ran | NotRan]) -> None:
        """Workers finished or refused steps."""
        self.touched.set()
        effects: list[StageEffect] = []
        for result in results:
            match result:
                case Ran():
                    for listener in self.on_ran:
                        listener(result)
                    try:
                        effects += self.core.ran(time.monotonic(), result)
                    except PeerError as error:  # it ends this session, and no other whose result came along
                        effects += self.core.not_ran(time.monotonic(), _failed(result, error))
                case NotRan():
                    effects += self.core.not_ran(time.monotonic(), result)
        self.perform(effects)

    # --- asking

    def attach(self, core: OriginSession, listener: Callable[[Outcome], None]) -> None:
        """Takes a session of this peer in."""
        self.askings.attach(core, listener)

    def detach(self, session: bytes) -> None:
        """Lets a session go; its slots are freed on every stage, and its listener hears of the end."""
        self.askings.detach(session)

    def spare(self, peer: str, frame: Frame) -> None:
        """Hands a frame to a peer that shadows a stage, when there is room."""
        self.spares.put(peer, frame)

    def patience_s(self, peer: str) -> float:
        """How long `peer` may take to say where it is."""
        connection = self.dialer.connection(peer)
        if peer == self.me or connection is None or connection.timeout_s is None:
            return PATIENCE_S
        patience = max(connection.timeout_s * PATIENCE_TIMES, PATIENCE_FLOOR_S)
        return min(patience, PATIENCE_CEILING_S)

    def hopeful(self) -> bool:
        """Whether a plan may come that holds what was lost."""
        return self.replica is not None and not self.state.refused

    def hinted(self, peer: str) -> None:
        """Signaling says that `peer` went away: that is no proof, and a reason to ask it."""
        self.askings.hint(peer)

    def suspected(self, peer: str, why: str) -> None:
        """A session of this peer found `peer` silent or stuck: other sessions ask, and the coordinator hears of it."""
        now = time.monotonic()
        if now - self._suspected.get(peer, -ONE_INCIDENT_S) < ONE_INCIDENT_S:
            return
        self._suspected[peer] = now
        log.info("peer %s %s", peer[:8], why)
        self.breakers.failed(peer, int(now * 1000))
        asyncio.get_running_loop().call_soon(self.askings.hint, peer)
        report = asyncio.ensure_future(self._report_suspect(peer))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report_suspect(self, peer: str) -> None:
        """Kept while nobody leads. A leader that is suspected itself cannot be told."""
        try:
            await self.line.ask("suspect", {"peer": peer})
        except (PeerError, TimeoutError) as error:
            log.debug("the coordinator did not hear of it: %s", error)

    async def idle(self) -> None:
        """Waits until no session is being answered on this peer's stages."""
        while self.core.active():
            self.touched.clear()
            await self.touched.wait()

    # --- what the mesh knows

    async def until(self, holds: Callable[[MeshState], bool], timeout_s: float | None) -> bool:
        """Waits until the state satisfies `holds`; False when the time is over first."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds(self.state):
                    self._state_event.clear()
                    await self._state_event.wait()
        except TimeoutError:
            return False
        return True

    def state_changed(self) -> None:
        """Something was applied: lets everyone look again."""
        self._protect()
        self._state_event.set()
        for listener in self.on_state:
            listener()
        self.askings.state_changed()

    def _protect(self) -> None:
        """Keeps to the mesh's protection settings."""
        protection = self.state.protection
        self.askings.standbys = protection.strategy not in ("simple", "coordinated")
        self.askings.shadows = protection.shadow != "off"
        self.core.keep_only = protection.shadow == "log"
        self.core.log_session_bytes = protection.log_session_bytes
        self.core.log_total_bytes = protection.log_total_bytes

    async def tell_coordinator(self, method: str, command: Command | None) -> None:
        """Reports to whoever leads, which may be this peer; it is committed then. Raises MeshError."""
        await self.line.ask(method, body_of(command) if command is not None else {})

    # --- the log

    @property
    def coordinator(self) -> str | None:
        """Who leads, as far as this peer knows."""
        return (self.replica.leader or None) if self.replica is not None else None

    def keep_log(self, replica: Replica) -> None:
        """Takes part in a mesh from here on."""
        self.replica = replica
        replica.start()

    async def leave_log(self) -> None:
        """What this peer knows of the mesh is void: it is to begin anew."""
        self._step_down()
        replica, self.replica = self.replica, None
        if replica is not None:
            await replica.close()
        self.state = MeshState()

    def send_message(self, peer: str, message: Message) -> None:
        """Hands a message of the core over. One that cannot go now is lost; the core sends again."""
        if self.dialer.connection(peer) is not None:
            self.send_or_lose(peer, Consensus(encode_message(message)))

    def log_changed(self, entries: tuple[Entry, ...]) -> None:
        assert self.replica is not None
        self.state = self.replica.state
        if self.coordinating is None:
            self.take_lead()
        self.state_changed()

    def role_changed(self) -> None:
        replica = self.replica
        assert replica is not None
        if not replica.leads:
            self._step_down()
        if replica.leader and replica.leader != self.me:
            self._led_before = replica.leader
        self.take_lead()
        self.line.changed()
        self._state_event.set()
        for listener in list(self.on_role):
            listener()

    def log_lost(self, why: str) -> None:
        self._step_down()
        for listener in self.on_log_lost:
            listener(why)

    def take_lead(self) -> None:
        """Coordinates once it leads, has committed in its own term, and can."""
        replica = self.replica
        if replica is None or not replica.ready or replica is self._settling:
            return
        if self.coordinating is not None or self.coordinate is None:
            return
        self.coordinating = self.coordinate(replica.state)
        log.info("this peer coordinates now, term %d", replica.term)
        self.coordinating.begin(self._led_before)

    def _step_down(self) -> None:
        made, self.coordinating = self.coordinating, None
        if made is not None:
            task = asyncio.ensure_future(made.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def coordinate_again(self) -> None:
        """A proposal was refused: a new coordinator begins with what is committed, once no proposal is under way."""
        self._step_down()
        replica = self.replica
        if replica is not None and replica.leads:
            self._settling = replica
            reading = asyncio.ensure_future(self._after_proposals(replica))
            self._reports.add(reading)
            reading.add_done_callback(self._reports.discard)

    async def _after_proposals(self, replica: Replica) -> None:
        await replica.settled()
        if self._settling is replica:
            self._settling = None
        self.take_lead()

    async def until_leads(self, timeout_s: float) -> bool:
        """Waits until this peer coordinates."""
        return await self.until(lambda _: self.coordinating is not None, timeout_s)

    async def ask(self, peer: str, method: str, body: Body) -> Body:
        """Asks a member, which may be this peer. Raises MeshError, ConnectFailed, ConnectionLost or TimeoutError."""
        if peer == self.me:
            return await self._answer(self.me, method, body)
        await self.dialer.dial(peer)
        return await self.calls.call(peer, method, body)

    # --- DialerEvents

    def frame(self, peer: str, frame: Frame) -> None:
        """A frame came from `peer`, or from this peer itself."""
        now = time.monotonic()
        self.touched.set()
        match frame:
            case Bundle():
                self._session_frames(peer, frames_of(frame), now)
            case Step() | Token() | Open() | Cancel() | Release() | Refuse() | Feed() | Where() | Here():
                self._session_frames(peer, [frame], now)
            case Request():
                self.calls.requested(peer, frame)
            case Response():
                self.calls.responded(peer, frame)
            case Consensus():
                if self.replica is not None:
                    self.replica.received(peer, frame.body)
            case Probe():
                self.prober.probed(peer, frame)
            case ProbeAck():
                self.prober.acknowledged(peer, frame)
            case PieceRequest():
                if self.pieces is not None:
                    self.pieces.requested(peer, frame)
                else:
                    self.send(peer, Piece(frame.id, ABSENT, b""))
            case Piece():
                if self.pieces is not None:
                    self.pieces.came(peer, frame)
            case Hello() | Ping() | Pong() | Bye() | ByeAck() | Credit():
                return  # the connection's own
            case _:
                assert_never(frame)

    def connected(self, peer: str) -> None:
        log.debug("connected to %s", peer[:8])
        self.askings.back(peer)

    def disconnected(self, peer: str, reason: str, polite: bool) -> None:
        """The connection to `peer` ended; whatever needed it is told."""
        log.info("connection to %s ended: %s", peer[:8], reason)
        self.calls.gone(peer, reason)
        if self.pieces is not None:
            self.pieces.gone(peer)
        self.spares.forget(peer)
        self.perform(self.core.peer_gone(time.monotonic(), peer))
        why = f"peer {_name(self.state, peer)} left" if polite else f"peer {_name(self.state, peer)} was lost"
        needed = self.askings.gone(peer, f"{why} ({reason})")
        if needed and not polite and peer in self.state.members:
            self.dialer.prepare(peer)  # only the connection may be lost
        if self.replica is not None:
            self.replica.unreachable(peer)
        if self.coordinating is not None:
            self.coordinating.gone(peer, reason)
        for listener in self.on_gone:
            listener(peer, reason, polite)

    def congestion(self, peer: str, full: bool) -> None:
        self.perform(self.core.congestion(peer, full))

    # --- inner moves

    def _session_frames(self, peer: str, frames: list[Frame], now: float) -> None:
        """Hands frames that came together to the stage and to askers; what the stage decides is done at once."""
        effects: list[StageEffect] = []
        for frame in frames:
            match frame:
                case Step():
                    effects += self.core.step(now, peer, frame)
                    self.askings.handed_back(now, peer, frame)
                case Token():
                    effects += self.core.token(now, peer, frame)
                    self.askings.frame(now, peer, frame)
                case Open():
                    effects += self.core.open(now, peer, frame)
                case Feed():
                    effects += self.core.feed(now, peer, frame)
                    if not frame.stage:
                        self.askings.frame(now, peer, frame)
                case Where():
                    effects += self.core.where(peer, frame)
                case Cancel():
                    effects += self.core.cancel(peer, frame)
                case Release():
                    effects += self.core.release(peer, frame)
                case Refuse() | Here():
                    self.askings.frame(now, peer, frame)
                case Probe():
                    self.prober.probed(peer, frame)
                case ProbeAck():
                    self.prober.acknowledged(peer, frame)
                case _:
                    raise WrongChannel(f"BUNDLE: {type(frame).__name__} does not travel in bundles")
        self.perform(effects)
        self.queue.look()

    def send_or_lose(self, peer: str, frame: Frame) -> None:
        try:
            self.send(peer, frame)
        except FrameError as error:  # this side's fault, which says nothing about the other peer
            log.error("a frame for %s was not sent: %s", peer[:8], error)
        except PeerError as error:
            log.debug("not sent to %s: %s", peer[:8], error)
            asyncio.get_running_loop().call_soon(self.disconnected, peer, str(error), False)

    def _has_room(self, peer: str) -> bool:
        connection = self.dialer.connection(peer)
        return connection is None or connection.queued_bytes < SPARE_BYTES

    async def _answer(self, peer: str, method: str, body: Body) -> Body:
        if method in ASKED_OF_LEADER:
            return await self._coordinated(peer, method, body)
        if method == "leader":
            return who_leads(self.replica, self.me)
        if method == "measure_link":
            return await self._measure_link(peer)
        if method == "wait":
            return await self.queue.answer(peer, body)
        if self.answer_more is None:
            raise BadCommand(f"unknown request {method[:40]!r}")
        return await self.answer_more(peer, method, body)

    async def _coordinated(self, peer: str, method: str, body: Body) -> Body:
        """The answer when what was asked for is committed. Raises NotLeader where this peer cannot say so."""
        coordinating = self.coordinating
        if coordinating is None:
            leader = self.coordinator or ""
            why = "another peer coordinates" if leader else "nobody coordinates now"
            raise NotLeader(why, leader if leader != self.me else "")
        answer = coordinating.answer(peer, method, body)
        _, index = await coordinating.settled()
        if method == "join" and self.replica is not None:  # who joins may know the log up to here, and must
            return {**answer, "index": max(index, self.replica.order[1])}
        return answer

    async def _measure_link(self, peer: str) -> Body:
        if peer in self._measuring:
            raise BadCommand("expected one measurement of a link at a time")
        self._measuring.add(peer)
        try:
            measured = await self.prober.measure(peer)
        finally:
            self._measuring.discard(peer)
        return {**link_words(measured, self.dialer.relayed(peer))}

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S if self.core.active() else IDLE_TICK_S)
            self.ticks.tick(asyncio.get_running_loop().time())
            try:
                self._look(time.monotonic())
            except Exception:  # a defect in one session must not end the deadlines of all others
                log.exception("looking at deadlines failed")

    def _look(self, now: float) -> None:
        self.perform(self.core.tick(now))
        self.queue.look()
        if self.replica is not None and (not self.patient or now - self._since > PATIENT_S):
            peers = wanted(self.replica.config, self.me, leads=self.replica.leads)
            for peer in self._redial.due(now, peers, self.is_connected):
                self.dialer.prepare(peer)
        if self.coordinating is not None:
            self.coordinating.look(now)

    def is_connected(self, peer: str) -> bool:
        return self.dialer.connection(peer) is not None


def _failed(result: Ran, error: PeerError) -> NotRan:
    return NotRan(
        result.run, result.session, result.epoch, result.position, 0, Reason.FAILED, str(error)[:MAX_WHY]
    )


def _name(state: MeshState, peer: str) -> str:
    """What people call a peer."""
    member = state.members.get(peer)
    return f"{member.name} ({peer[:8]})" if member is not None else peer[:8]
