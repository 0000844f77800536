"""What members tell each other beside the log: how a running answer goes on (`live`), who writes (`typing`).

Edge. Hints may be lost, late or wrong: nothing depends on them but how soon something is shown, and how much an answer
that is adopted has to be computed again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from peer.conversation.answer_in_progress import Making
from peer.conversation.live_answer import Piece
from peer.errors import PeerError
from peer.session.origin import Heard
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.requests import LIVE, MAX_LIVE_IDS, TYPING, LiveRequest, TypingRequest
from peer.wire.request_kind import RequestKind

TYPING_S: Final = 6.0  # a mark lasts so long
TYPING_AGAIN_S: Final = 2.5
LIVE_S: Final = 0.1  # between two hints about one answer
MAX_UNDER_WAY: Final = 2  # hints to one peer about one answer that it has not confirmed


T = TypeVar("T")


@dataclass(slots=True)
class _Telling:
    """One answer as it is told to others."""

    sent: dict[str, int] = field(default_factory=dict)  # tokens, by peer
    under_way: dict[str, int] = field(default_factory=dict)  # hints, by peer
    timer: asyncio.TimerHandle | None = None


class Hints:
    """`start(step)` runs a task of the owner's."""

    def __init__(self, links: PeerLinks, start: Callable[[Any], object]) -> None:
        self._links = links
        self._start = start
        self._tellings: dict[str, _Telling] = {}  # by message
        self._wrote: dict[str, float] = {}  # by conversation: when this was said last

    def live(self, message: str, peers: Callable[[], Sequence[str]], making: Making) -> None:
        """The answer that `making` makes has grown."""
        telling = self._tellings.setdefault(message, _Telling())
        if telling.timer is None:

            def due() -> None:
                telling.timer = None
                self._tell(telling, message, peers(), making)

            telling.timer = asyncio.get_running_loop().call_later(LIVE_S, due)

    def over(self, message: str, peers: Sequence[str], making: Making) -> None:
        """It is at its end here."""
        telling = self._tellings.pop(message, None)
        if telling is not None:
            if telling.timer is not None:
                telling.timer.cancel()
            self._tell(telling, message, peers, making)

    def typing(self, conversation: str, peers: Sequence[str], *, typing: bool) -> None:
        """This person writes, or has stopped writing."""
        now = time.monotonic()
        since = now - self._wrote.get(conversation, -TYPING_S)
        if since < TYPING_AGAIN_S if typing else since > TYPING_S:
            return  # others know, or have forgotten
        self._wrote[conversation] = now if typing else -TYPING_S
        for peer in peers:
            self._start(self._call(peer, TYPING, TypingRequest(conversation, typing)))

    def close(self) -> None:
        """Nothing more is told."""
        for telling in self._tellings.values():
            if telling.timer is not None:
                telling.timer.cancel()
        self._tellings.clear()

    def _tell(self, telling: _Telling, message: str, peers: Sequence[str], making: Making) -> None:
        standing = making.standing
        for peer in peers:
            after = telling.sent.get(peer, 0)
            under = telling.under_way.get(peer, 0)
            if under >= MAX_UNDER_WAY:
                continue
            ids, text = making.since(after, MAX_LIVE_IDS)
            if not ids and not text:
                continue
            telling.sent[peer] = after + len(ids)
            telling.under_way[peer] = under + 1
            said = LiveRequest(
                making.conversation,
                message,
                after,
                tuple(ids),
                text,
                standing.answer,
                standing.turn,
                tuple(standing.spans),
            )
            self._start(self._live(telling, peer, said))

    async def _live(self, telling: _Telling, peer: str, said: LiveRequest) -> None:
        try:
            await self._call(peer, LIVE, said)
        finally:
            telling.under_way[peer] -= 1

    async def _call(self, peer: str, kind: RequestKind[T, None], said: T) -> None:
        if not self._links.is_connected(peer):
            self._links.dialer.prepare(peer)
            return
        try:
            await self._links.call(peer, kind, said)
        except (PeerError, TimeoutError):
            return  # lost: it is a hint


# --- what comes


def piece_of(said: LiveRequest) -> Piece:
    """Returns the part of an answer that a hint brings."""
    return Piece(said.after, said.ids, said.text, Heard(said.answer, said.turn, said.spans))
