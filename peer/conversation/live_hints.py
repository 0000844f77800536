"""What members tell each other beside the log: how a running answer goes on (`live`), who writes (`typing`).

Edge. Hints may be lost, late or wrong: nothing depends on them but how soon something is shown, and how much an answer
that is adopted has to be computed again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from peer.conversation.answer_in_progress import Making
from peer.conversation.live_answer import Piece
from peer.errors import BadCommand, PeerError
from peer.limits import MAX_INT
from peer.session.origin import Heard
from peer.transport.peer_links import PeerLinks
from peer.wire.json_codec import Body

TYPING_S: Final = 6.0  # a mark lasts so long
TYPING_AGAIN_S: Final = 2.5
LIVE_S: Final = 0.1  # between two hints about one answer
MAX_UNDER_WAY: Final = 2  # hints to one peer about one answer that it has not confirmed
MAX_IDS: Final = 4096
MAX_SPANS: Final = 512
MAX_TEXT: Final = 65536  # bytes of UTF-8
MAX_ID: Final = 64  # characters


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
            self._start(self._call(peer, "typing", {"conversation": conversation, "typing": typing}))

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
            ids, text = making.since(after, MAX_IDS)
            if not ids and not text:
                continue
            telling.sent[peer] = after + len(ids)
            telling.under_way[peer] = under + 1
            body: Body = {
                "conversation": making.conversation,
                "message": message,
                "after": after,
                "ids": list(ids),
                "text": text,
                "answer": standing.answer,
                "turn": standing.turn,
                "spans": list(standing.spans),
            }
            self._start(self._live(telling, peer, body))

    async def _live(self, telling: _Telling, peer: str, body: Body) -> None:
        try:
            await self._call(peer, "live", body)
        finally:
            telling.under_way[peer] -= 1

    async def _call(self, peer: str, method: str, body: Body) -> None:
        if not self._links.is_connected(peer):
            self._links.dialer.prepare(peer)
            return
        try:
            await self._links.call(peer, method, body)
        except (PeerError, TimeoutError):
            return  # lost: it is a hint


# --- what comes


def live_of(body: Body) -> tuple[str, str, Piece]:
    """Conversation, message and piece. Raises BadCommand."""
    text = body.get("text")
    if not isinstance(text, str) or len(text.encode(errors="replace")) > MAX_TEXT:
        raise BadCommand(f"live: expected text of at most {MAX_TEXT} bytes")
    standing = Heard(
        _whole(body.get("answer")), _whole(body.get("turn")), _wholes(body.get("spans"), MAX_SPANS)
    )
    piece = Piece(_whole(body.get("after")), _wholes(body.get("ids"), MAX_IDS), text, standing)
    return _id(body.get("conversation")), _id(body.get("message")), piece


def typing_of(body: Body) -> tuple[str, bool]:
    """Conversation, and whether the sender writes there. Raises BadCommand."""
    typing = body.get("typing")
    if not isinstance(typing, bool):
        raise BadCommand("typing: expected true or false")
    return _id(body.get("conversation")), typing


def _id(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID:
        raise BadCommand("expected the id of a conversation or message")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_INT:
        raise BadCommand("live: expected whole numbers")
    return value


def _wholes(value: object, most: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > most:
        raise BadCommand(f"live: expected at most {most} numbers")
    return tuple(map(_whole, value))
