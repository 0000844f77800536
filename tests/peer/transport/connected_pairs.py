"""Pairs of connected peers in one process, over loopback and real engines."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from peer.limits import LOWEST_VERSION
from peer.transport.connection import Connection, ConnectionState, Times
from peer.transport.engines.choose import choose_engine
from peer.transport.engines.settings import EngineSettings
from peer.wire.generated.frames import Frame, Hello
from tests.patience import WITHIN_S

LOOPBACK = EngineSettings(bind=("127.0.0.1",))


@dataclass(eq=False)
class Side:
    """One end: what it received and the states it went through."""

    name: str
    frames: list[Frame] = field(default_factory=list)
    states: list[ConnectionState] = field(default_factory=list)
    on_frame: Callable[[Frame], None] | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def take_frame(self, connection: Connection, frame: Frame) -> None:
        self.frames.append(frame)
        self._news.set()
        if self.on_frame is not None:
            self.on_frame(frame)

    def take_state(self, connection: Connection, state: ConnectionState) -> None:
        self.states.append(state)
        self._news.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Waits for frames or states to make `done` true."""
        async with asyncio.timeout(WITHIN_S):
            while not done():
                self._news.clear()
                await self._news.wait()


class Mesh:
    """Makes sides and joins them; closes what is left at the end."""

    def __init__(self) -> None:
        self.sides: list[Side] = []

    def side(
        self,
        name: str,
        engine: str = "aiortc",
        *,
        protocol: int = LOWEST_VERSION,
        expects: str | None = None,
        times: Times | None = None,
        settings: EngineSettings = LOOPBACK,
    ) -> Side:
        made = Side(name)
        made._connection = Connection(
            choose_engine(engine)(settings),
            Hello(protocol, name, name.upper(), "test"),
            made.take_frame,
            made.take_state,
            expected_peer=expects,
            times=times or Times(),
        )
        self.sides.append(made)
        return made

    async def join(self, a: Side, b: Side) -> None:
        offer = await a.connection.offer()
        await a.connection.set_answer(await b.connection.accept(offer))

    async def pair(
        self, engines: tuple[str, str] = ("aiortc", "aiortc"), times: Times | None = None
    ) -> tuple[Side, Side]:
        a = self.side("a", engines[0], expects="b", times=times)
        b = self.side("b", engines[1], expects="a", times=times)
        await self.join(a, b)
        await asyncio.gather(a.connection.opened(), b.connection.opened())
        return a, b

    async def close(self) -> None:
        await asyncio.gather(*(side.connection.close("the test is over") for side in self.sides))
