"""Leads a peer's connections through the relay of validation, and tells the relay what its links are like.

Edge. Only host candidates on loopback are led there: nothing else is offered by a peer under validation.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from peer.errors import SignalingFault
from peer.transport.connection import Engine, EngineEvents
from peer.validation.scenarios.link_conditions import Conditions
from peer.wire.generated.frames import Channel

READY_WITHIN_S: Final = 20.0
_CANDIDATE: Final = re.compile(r"(?m)^(a=candidate:\S+ 1 udp \d+ )(\S+) (\d+)( typ host.*)$", re.IGNORECASE)


async def order(relay: str, what: dict[str, Any]) -> dict[str, Any]:
    """One order, and the relay's answer. Raises OSError when there is no relay."""
    reader, writer = await asyncio.open_unix_connection(relay)
    try:
        writer.write(json.dumps(what).encode() + b"\n")
        found: dict[str, Any] = json.loads(await reader.readline())
        return found
    finally:
        writer.close()
        await writer.wait_closed()


class Relayed:
    """An engine whose candidates are ports of the relay. Everything else is the engine's own."""

    def __init__(self, engine: Engine, relay: str, owner: str) -> None:
        self.name = engine.name
        self._engine = engine
        self._relay = relay
        self._owner = owner

    def attach(self, events: EngineEvents) -> None:
        """Takes whom to tell what happens."""
        self._engine.attach(events)

    async def offer(self) -> str:
        """The offer (SDP), with addresses that lead through the relay."""
        return await self._led(await self._engine.offer())

    async def accept(self, offer: str) -> str:
        """Takes an offer (SDP); the answer leads through the relay."""
        return await self._led(await self._engine.accept(offer))

    async def set_answer(self, answer: str) -> None:
        """Takes the answer (SDP) of the other side."""
        await self._engine.set_answer(answer)

    async def add_candidate(self, candidate: str) -> None:
        """Takes one more address of the other side, as an ICE candidate line."""
        await self._engine.add_candidate(candidate)

    def send(self, channel: Channel, data: bytes) -> None:
        """Puts one message into a channel."""
        self._engine.send(channel, data)

    def buffered_bytes(self, channel: Channel) -> int:
        """How much waits in a channel to be sent."""
        return self._engine.buffered_bytes(channel)

    async def close(self) -> None:
        """Ends the transport."""
        await self._engine.close()

    async def _led(self, sdp: str) -> str:
        try:
            for found in list(_CANDIDATE.finditer(sdp)):
                asked = {"do": "register", "name": self._owner, "host": found[2], "port": int(found[3])}
                answer = await order(self._relay, asked)
                sdp = sdp.replace(found[0], f"{found[1]}127.0.0.1 {answer['port']}{found[4]}")
        except (OSError, ValueError) as error:
            raise SignalingFault(f"the relay of validation does not answer: {error}") from error
        return sdp


class RelayProcess:
    """The relay, as its owner speaks to it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    async def set_links(
        self, conditions: Conditions, links: Iterable[tuple[str, str]] | None = None, *, one_way: bool = False
    ) -> dict[str, int]:
        """Sets these links, or with None all of them; returns how many datagrams passed and were lost.

        With `one_way` only the way from the first of each pair to the second.
        """
        return await order(
            self.path,
            {
                "do": "conditions",
                "links": None if links is None else [list(link) for link in links],
                "conditions": asdict(conditions),
                "one_way": one_way,
            },
        )

    async def sent_bytes(self) -> dict[tuple[str, str], int]:
        """Bytes of datagrams so far, by the names of who sent and who gets them."""
        found = await order(self.path, {"do": "bytes"})
        return {(link.partition(">")[0], link.partition(">")[2]): count for link, count in found.items()}


@asynccontextmanager
async def relay(folder: Path, seed: int) -> AsyncIterator[RelayProcess]:
    """A relay of its own process until the block ends. Raises TimeoutError when it does not start."""
    path = folder / f"relay-{random.randrange(1 << 32):08x}"
    command = [sys.executable, "-m", "peer.validation.world.udp_relay", str(path), str(seed)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
    made = RelayProcess(path)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(READY_WITHIN_S):
            await process.stdout.readline()
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        path.unlink(missing_ok=True)
