"""Decides which addresses of this machine aiortc offers, and where its datagrams go."""

from collections.abc import Callable

import aioice

from peer.transport.engines.settings import LOOPBACK


class BoundConnection(aioice.Connection):  # type: ignore[misc]
    """An ICE connection whose host candidates are the addresses it is told, instead of aioice's choice.

    aioice leaves out 127.0.0.1 always; here it is used when asked for, or when this machine has no other address.
    A `sink` takes the datagrams that are not STUN; without one they go into aioice's queue.
    """

    bind: tuple[str, ...] = ()
    sink: Callable[[bytes], None] | None = None

    async def get_component_candidates(
        self, component: int, addresses: list[str], timeout: int = 5
    ) -> list[aioice.Candidate]:
        """The host candidates: of `bind`, of `addresses`, or of loopback, the first that has any."""
        chosen = list(self.bind) or addresses or list(LOOPBACK)
        found: list[aioice.Candidate] = await super().get_component_candidates(component, chosen, timeout)
        if (
            self._closing
        ):  # closed while this was looking: aioice has closed the sockets it knew then, not these
            for protocol in self._protocols:
                await protocol.close()
            self._protocols.clear()
        return found

    def data_received(self, data: bytes, component: int) -> None:
        """Gives a datagram to the `sink`, or to the queue of aioice."""
        if self.sink is None or not data:
            super().data_received(data, component)
        else:
            self.sink(data)
