"""The requests that this peer answers: one handler for each, who may send it, and how its body is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from peer.errors import BadCommand
from peer.wire.json_codec import Body

MAX_SHOWN: Final = 40  # characters of a method that nobody knows

T = TypeVar("T")


class Who(Enum):
    """Who may send a request."""

    ANYONE = "a connected peer"
    MEMBERS = "a member"
    LEADER = "it of who coordinates"


@dataclass(frozen=True, slots=True)
class _Registered:
    handler: Callable[[str, Any], Awaitable[Body]]
    who: Who
    read: Callable[[Body], Any]


def as_it_is(body: Body) -> Body:
    """Returns the body unread, for handlers that read it with what they know."""
    return body


class Requests:
    """A table from the method of a request to its handler. Nobody is a member, and nobody leads, before `know`."""

    def __init__(self) -> None:
        self._registered: dict[str, _Registered] = {}
        self._members: Collection[str] = ()
        self._leader = ""

    def know(self, members: Collection[str], leader: str) -> None:
        """Takes who is a member and who leads ("": nobody) from now on."""
        self._members, self._leader = members, leader

    def on(
        self,
        method: str,
        handler: Callable[[str, T], Awaitable[Body]],
        who: Who,
        read: Callable[[Body], T] = as_it_is,  # type: ignore[assignment]
    ) -> Callable[[], None]:
        """Registers `handler(peer, read(body))`; returns what unregisters it. Raises ValueError for a method that has
        a handler. `read` raises BadCommand for a body that is no such request.
        """
        if method in self._registered:
            raise ValueError(f"request {method!r} has a handler")
        made = self._registered[method] = _Registered(handler, who, read)

        def off() -> None:
            if self._registered.get(method) is made:
                del self._registered[method]

        return off

    async def answer(self, peer: str, method: str, body: Body) -> Body:
        """Returns the answer to a request of `peer`. Raises BadCommand for an unknown method, for a peer without the
        right and for a wrong body, and what the handler raises.
        """
        registered = self._registered.get(method)
        if registered is None:
            raise BadCommand(f"unknown request {method[:MAX_SHOWN]!r}")
        if not self._may(peer, registered.who):
            raise BadCommand(f"{method}: expected {registered.who.value}")
        return await registered.handler(peer, registered.read(body))

    def _may(self, peer: str, who: Who) -> bool:
        match who:
            case Who.ANYONE:
                return True
            case Who.MEMBERS:
                return peer in self._members
            case Who.LEADER:
                return bool(peer) and peer == self._leader
