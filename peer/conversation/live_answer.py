"""Decides how far a running answer has come, by what its author sends meanwhile (`live`) and by the log. Pure.

Pieces may come before the log knows the answer, and may leave holes that the log fills. The same in
web_peer/src/conversation/live_answer.ts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from peer.session.origin import Heard
from peer.state.generated.commands import MAX_MESSAGE_BYTES, Message

MAX_STREAMS: Final = 64  # answers that run at once, or are not known yet
MAX_WAITING: Final = 64  # pieces of one answer that do not fit yet
YOUNGEST: Final = 8  # kept though the log does not know them


@dataclass(frozen=True, slots=True)
class Piece:
    """`ids`, `text`: what follows the first `after` tokens."""

    after: int
    ids: tuple[int, ...]
    text: str
    standing: Heard


@dataclass(frozen=True, slots=True)
class Stream:
    """`ids` are whole unless the log was ahead of what came; then they are those before the hole."""

    author: str
    sure: bool = False  # the log names the same author
    tokens: int = 0
    text: str = ""
    ids: tuple[int, ...] = ()
    standing: Heard | None = None
    waiting: tuple[Piece, ...] = ()

    def grown(self, piece: Piece) -> Stream:
        """With one piece more."""
        if piece.after > self.tokens:
            waiting = (*self.waiting, piece)[-MAX_WAITING:]
            return replace(self, standing=piece.standing, waiting=waiting)
        if piece.after < self.tokens:
            return replace(self, standing=piece.standing)
        if max(len(self.text) + len(piece.text), self.tokens + len(piece.ids)) > MAX_MESSAGE_BYTES:
            return self  # no message is so long
        whole = len(self.ids) == self.tokens
        made = replace(
            self,
            standing=piece.standing,
            tokens=self.tokens + len(piece.ids),
            text=self.text + piece.text,
            ids=(*self.ids, *piece.ids) if whole else self.ids,
            waiting=(),
        )
        return made._with(self.waiting)

    def caught_up(self, tokens: int, text: str) -> Stream:
        """The log has `tokens`, which is more."""
        return replace(self, tokens=tokens, text=text, waiting=())._with(self.waiting)

    def _with(self, pieces: tuple[Piece, ...]) -> Stream:
        made = self
        for piece in pieces:
            made = made.grown(piece)
        return made


class Listening:
    """What was heard of running answers."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}  # by message

    def came(self, sender: str, message: str, piece: Piece) -> None:
        """A piece from `sender`, who may or may not be the author."""
        known = self._streams.get(message)
        if (known is None and len(self._streams) >= MAX_STREAMS) or (
            known is not None and known.author != sender
        ):
            return
        self._streams[message] = (known or Stream(sender)).grown(piece)

    def follow(self, message: Message) -> None:
        """What the log says of an answer."""
        known = self._streams.get(message.id)
        if known is None:
            return
        if message.state == "done":
            del self._streams[message.id]
        if message.state != "running":
            return  # it may go on from what came
        stream = replace(known, author=message.author, sure=True)
        if known.author != message.author:  # adopted, or whoever sent it never was its author
            kept = stream if known.sure else Stream(message.author)
            stream = replace(kept, sure=True, waiting=())
        if stream.tokens < message.tokens:
            stream = stream.caught_up(message.tokens, message.text)
        self._streams[message.id] = stream

    def of(self, message: str) -> Stream | None:
        """Returns the answer to that message as it streams, or None."""
        return self._streams.get(message)

    def text(self, message: Message) -> tuple[str, int]:
        """The text so far and its tokens, of the log or of what came since."""
        stream = self._streams.get(message.id)
        newer = stream is not None and stream.sure and stream.author == message.author
        if stream is not None and newer and stream.tokens > message.tokens:
            return stream.text, stream.tokens
        return message.text, message.tokens

    def keep_only(self, running: Collection[str]) -> None:
        """Forgets what is not among `running`, but for the youngest: their answers may not be in the log yet."""
        unknown = [each for each in self._streams if each not in running]
        for each in unknown[:-YOUNGEST]:
            del self._streams[each]
