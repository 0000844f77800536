"""The requests that this peer answers: one handler for each, by the kind of request that the schema has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from peer.errors import BadCommand
from peer.wire.json_codec import Body
from peer.wire.request_kind import RequestKind, Sender

MAX_SHOWN: Final = 40  # characters of a method that nobody knows

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class _Registered:
    handler: Callable[[str, Any], Awaitable[Any]]
    kind: RequestKind[Any, Any]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that its sender may send: how long its body and its answer may be, and what answers it."""

    max_body_bytes: int
    max_answer_bytes: int
    answer: Callable[[Body], Awaitable[Body]]


class Requests:
    """A table from the method of a request to its handler. Nobody is a member, and nobody leads, before `know`."""

    def __init__(self) -> None:
        self._registered: dict[str, _Registered] = {}
        self._members: Collection[str] = ()
        self._leader = ""

    def know(self, members: Collection[str], leader: str) -> None:
        """Takes who is a member and who leads ("": nobody) from now on."""
        self._members, self._leader = members, leader

    def on(self, kind: RequestKind[T, A], handler: Callable[[str, T], Awaitable[A]]) -> Callable[[], None]:
        """Registers `handler(peer, said)`; returns what unregisters it. Raises ValueError for a method that has a
        handler.
        """
        if kind.method in self._registered:
            raise ValueError(f"request {kind.method!r} has a handler")
        made = self._registered[kind.method] = _Registered(handler, kind)

        def off() -> None:
            if self._registered.get(kind.method) is made:
                del self._registered[kind.method]

        return off

    def admit(self, peer: str, method: str) -> Admitted:
        """Returns what a request of `peer` may hold and what answers it, which raises BadCommand for a wrong body, and
        what the handler raises. Raises BadCommand for an unknown method and for a peer without the right.
        """
        registered = self._registered.get(method)
        if registered is None:
            raise BadCommand(f"unknown request {method[:MAX_SHOWN]!r}")
        if not self._may(peer, registered.kind.sender):
            who = "a member" if registered.kind.sender is Sender.MEMBERS else "it of who coordinates"
            raise BadCommand(f"{method}: expected {who}")
        kind, handler = registered.kind, registered.handler

        async def answer(body: Body) -> Body:
            return kind.answer_body(await handler(peer, kind.read(body)))

        return Admitted(kind.max_body_bytes, kind.max_answer_bytes, answer)

    async def answer(self, peer: str, method: str, body: Body) -> Body:
        """Returns the answer to a request whose body is read already; raises as `admit` and what it returns do."""
        return await self.admit(peer, method).answer(body)

    def _may(self, peer: str, sender: Sender) -> bool:
        match sender:
            case Sender.ANYONE:
                return True
            case Sender.MEMBERS:
                return peer in self._members
            case Sender.LEADER:
                return bool(peer) and peer == self._leader
