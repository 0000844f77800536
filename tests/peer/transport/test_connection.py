"""Connections over an engine that is only a notebook: every transition, every first word, every fault."""

import asyncio

import pytest

from peer.errors import BackpressureExceeded, ConnectionLost, PeerError, SignalingFault, WrongField
from peer.limits import LOWEST_VERSION, MAX_PROBE_BYTES, MAX_QUEUED_BYTES, WINDOW_BYTES
from peer.transport.connection import (
    ENDED,
    TRANSITIONS,
    Connection,
    ConnectionState,
    EngineEvents,
    Event,
    Times,
)
from peer.transport.heartbeat import HeartbeatTimes
from peer.wire.frame_codec import decode, encode
from peer.wire.generated.frames import Bye, ByeAck, Channel, Frame, Hello, Ping, Probe, Request, Token

S = ConnectionState
SESSION = bytes(16)
QUICK = Times(HeartbeatTimes(interval_s=0.05, suspect_s=0.15, lost_s=0.5), connect_s=10.0, close_s=5.0)


class PaperEngine:
    """Keeps what a connection sends; the test plays the other side."""

    name = "paper"

    def __init__(self) -> None:
        self.sent: list[tuple[Channel, bytes]] = []
        self.closed = asyncio.Event()
        self.events: EngineEvents | None = None
        self.fault: PeerError | None = None

    def attach(self, events: EngineEvents) -> None:
        self.events = events

    async def offer(self) -> str:
        return "offer"

    async def accept(self, offer: str) -> str:
        return "answer"

    async def set_answer(self, answer: str) -> None:
        raise SignalingFault("expected an SDP answer, got none")

    async def add_candidate(self, candidate: str) -> None:
        pass

    def send(self, channel: Channel, data: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.sent.append((channel, data))

    def buffered_bytes(self, channel: Channel) -> int:
        return 0

    async def close(self) -> None:
        self.closed.set()

    def frames(self) -> list[Frame]:
        return [decode(data[1:], channel) for channel, data in self.sent]


class Paper:
    """A connection over paper, and its other side."""

    def __init__(self, times: Times = QUICK) -> None:
        self.engine = PaperEngine()
        self.states: list[ConnectionState] = []
        self.taken: list[Frame] = []
        self.connection = Connection(
            self.engine,
            Hello(LOWEST_VERSION, "a", "A", "test"),
            lambda _, frame: self.taken.append(frame),
            lambda _, state: self.states.append(state),
            times=times,
        )

    def come(self, frame: Frame, channel: Channel = Channel.CONTROL) -> None:
        assert self.engine.events is not None
        self.engine.events.engine_message(channel, b"\x13" + encode(frame))

    async def to(self, state: ConnectionState) -> None:
        if state is S.NEW:
            return
        await self.connection.offer()
        if state is S.CONNECTING:
            return
        self.connection.engine_open()
        self.come(Hello(LOWEST_VERSION, "b", "B", "test"))
        match state:
            case S.CLOSING | S.CLOSED:
                self.connection._close("enough")
            case S.FAILED:
                self.connection.engine_closed("cut")
            case _:
                pass
        if state is S.CLOSED:
            await asyncio.sleep(0)
            self.come(ByeAck())
            await self.connection.wait_closed()

    async def event(self, event: Event) -> None:
        match event:
            case Event.START:
                await self.connection.offer()
            case Event.HELLO:
                self.connection.engine_open()
                self.come(Hello(LOWEST_VERSION, "b", "B", "test"))
            case Event.CLOSE:
                self.connection._close("enough")
            case Event.BYE:
                self.come(Bye("enough", 0))
            case Event.DONE:
                await asyncio.sleep(0)
                self.come(ByeAck())
                await self.connection.wait_closed()
            case Event.FAULT:
                self.connection._fail(WrongField("expected better"))
                if self.states[-1] not in ENDED:
                    await self.connection.wait_closed()


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [pytest.param(*row, TRANSITIONS[row], id=f"{row[0].value}-{row[1].name.lower()}") for row in TRANSITIONS],
)
async def test_every_transition(state: ConnectionState, event: Event, after: ConnectionState) -> None:
    paper = Paper()
    await paper.to(state)
    assert paper.connection.state is state
    await paper.event(event)
    assert paper.connection.state is after
    assert paper.states[-1] is after
    paper.connection._close("test over")
    if after is S.CLOSING:
        paper.connection.engine_closed("test over")
    await clean_up(paper)


async def clean_up(paper: Paper) -> None:
    if paper.connection.state not in ENDED or paper.connection._ending is None:
        paper.connection._close("test over")
        paper.connection.engine_closed("test over")
    paper.connection.engine_closed("test over")
    await paper.connection.wait_closed()
    assert paper.engine.closed.is_set()


def test_every_state_is_reached_and_the_ends_are_final() -> None:
    assert {*TRANSITIONS.values(), S.NEW} == set(S)
    assert not {state for state, _ in TRANSITIONS} & ENDED


@pytest.mark.parametrize("state", [S.CLOSED, S.FAILED])
async def test_nothing_moves_an_ended_connection(state: ConnectionState) -> None:
    paper = Paper()
    await paper.to(state)
    seen = len(paper.states)
    paper.come(Bye("late", 0))
    paper.come(Request(1, "late", b""))
    paper.connection.engine_closed("late")
    paper.connection._close("late")
    paper.connection._fail(WrongField("late"))
    assert (paper.connection.state, len(paper.states), paper.taken) == (state, seen, [])
    await clean_up(paper)


@pytest.mark.parametrize("state", [S.NEW, S.CONNECTING, S.CLOSING, S.CLOSED, S.FAILED])
async def test_only_an_open_connection_sends(state: ConnectionState) -> None:
    paper = Paper()
    await paper.to(state)
    with pytest.raises(ConnectionLost, match=state.value):
        paper.connection.send(Request(1, "x", b""))
    with pytest.raises(ConnectionLost):
        await paper.connection.drained()
    paper.connection._close("test over")
    await clean_up(paper)


async def test_hello_comes_first() -> None:
    paper = Paper()
    await paper.to(S.CONNECTING)
    paper.connection.engine_open()
    paper.come(Ping(1))
    assert isinstance(paper.connection.error, WrongField)
    assert [type(frame) for frame in paper.engine.frames()] == [Hello, Bye]
    await clean_up(paper)


async def test_data_that_overtakes_hello_waits_for_it() -> None:
    paper = Paper()
    await paper.to(S.CONNECTING)
    paper.connection.engine_open()
    paper.come(Token(SESSION, 0, 0, 5, 0), Channel.DATA)
    assert paper.taken == []
    paper.come(Hello(LOWEST_VERSION, "b", "B", "test"))
    assert paper.taken == [Token(SESSION, 0, 0, 5, 0)]
    paper.connection._close("test over")
    await clean_up(paper)


async def test_bye_is_acknowledged_when_all_data_has_come() -> None:
    paper = Paper()
    await paper.to(S.OPEN)
    token = Token(SESSION, 0, 0, 5, 0)
    paper.come(Bye("enough", len(encode(token)) + 1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert ByeAck() not in paper.engine.frames()
    paper.come(token, Channel.DATA)
    for _ in range(3):
        await asyncio.sleep(0)
    assert ByeAck() in paper.engine.frames()
    assert paper.taken == [token]
    await clean_up(paper)


async def test_a_send_that_the_engine_refuses_is_a_loss() -> None:
    paper = Paper()
    await paper.to(S.OPEN)
    paper.engine.fault = ConnectionLost("expected the channel to be open")
    paper.connection.send(Request(1, "x", b""))
    assert paper.connection.state is S.FAILED
    await clean_up(paper)


async def test_a_handlers_peer_error_is_told_to_the_other_side() -> None:
    paper = Paper()
    await paper.to(S.OPEN)

    def refuse(connection: Connection, frame: Frame) -> None:
        raise WrongField("REQUEST.body: expected JSON")

    paper.connection._on_frame = refuse
    paper.come(Request(1, "x", b"{"))
    assert paper.connection.state is S.FAILED
    assert paper.engine.frames()[-1] == Bye("WrongField: REQUEST.body: expected JSON", 0)
    await clean_up(paper)


async def test_a_handlers_own_fault_ends_that_connection_and_reaches_the_loop() -> None:
    paper = Paper()
    await paper.to(S.OPEN)
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context.get("exception")))

    def crash(connection: Connection, frame: Frame) -> None:
        raise ZeroDivisionError

    paper.connection._on_frame = crash
    paper.come(Request(1, "x", b""))
    assert paper.connection.state is S.FAILED
    assert isinstance(seen[0], ZeroDivisionError)
    await clean_up(paper)


async def test_the_queue_for_a_peer_is_bounded() -> None:
    paper = Paper()
    await paper.to(S.OPEN)
    probe = Probe(1, bytes(MAX_PROBE_BYTES))
    for _ in range((MAX_QUEUED_BYTES + WINDOW_BYTES) // MAX_PROBE_BYTES - 1):
        paper.connection.send(probe)
    with pytest.raises(BackpressureExceeded):
        paper.connection.send(probe)
    assert paper.connection.state is S.OPEN
    assert sum(len(data) for _, data in paper.engine.sent) <= WINDOW_BYTES + 100
    await clean_up(paper)


async def test_silence_is_suspected_then_lost() -> None:
    paper = Paper()
    await paper.to(S.OPEN)
    paper.connection._heartbeat._heard_s -= 0.2
    paper.connection._beat()
    assert paper.connection.suspect
    paper.come(Ping(1))
    assert not paper.connection.suspect
    await clean_up(paper)


async def test_a_bad_answer_fails_the_connection() -> None:
    paper = Paper()
    await paper.to(S.CONNECTING)
    with pytest.raises(SignalingFault):
        await paper.connection.set_answer("nonsense")
    assert paper.connection.state is S.FAILED
    await clean_up(paper)
