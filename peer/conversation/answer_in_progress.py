"""One answer while this peer makes it: its tokens and words so far, what others and the log are to get, how it ended.

Edge around peer.origin.answer_stream. The prompt is the same for whoever asks it: the day is that of the question.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from peer.errors import PeerError
from peer.model.tokenizer import Text
from peer.origin.answer_stream import Begun, Conversation, Delta, Finished, Settings
from peer.session.origin import Heard
from peer.stage.seat_waiting import Waits
from peer.state.generated.commands import Message

LOG_S: Final = 2.0  # the log gets what came at the latest after that,
LOG_TOKENS: Final = 64  # or so many tokens
MAX_EXTENSION: Final = 16384  # characters in one command


class Making:
    """Made once for each answer that this peer makes or makes go on; `known` are its tokens so far."""

    def __init__(self, conversation: str, asking: Conversation, text: Text, known: tuple[int, ...]) -> None:
        self.conversation = conversation
        self.asking = asking
        self.ids = list(known)
        self.stopped = False
        self.finished: Finished | None = None
        self.waits: Waits | None = None  # where it stands while the mesh is full
        words = text.stream()
        self.text = ""
        self._ends = [0]  # characters of the text after each number of tokens
        for token in known:
            self.text += "" if token in text.end_tokens else words.push(token)
            self._ends.append(len(self.text))
        self._logged_s, self._logged_tokens = time.monotonic(), len(known)

    @property
    def standing(self) -> Heard:
        """How far the answer is."""
        return self.asking.under_way

    async def run(self, pieces: AsyncGenerator[Delta | Finished], grown: Callable[[], None]) -> str:
        """Goes through `pieces`, calling `grown` after each; why it failed, or ""."""

        def stands(waits: Waits | None) -> None:
            self.waits = waits
            grown()

        end = self.asking.on_wait(stands)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, Finished):
                        self.finished = piece
                        break
                    if self.stopped:
                        break
                    self.text += piece.text
                    if piece.token >= 0:
                        self.ids.append(piece.token)
                        self._ends.append(len(self.text))
                    else:
                        self._ends[-1] = len(self.text)
                    grown()
        except PeerError as error:
            return "" if self.stopped else str(error)
        finally:
            end()
        return ""

    def stop(self) -> None:
        """Ends it on every stage; what came so far stays."""
        self.stopped = True
        self.asking.stop()

    def since(self, after: int, most: int) -> tuple[tuple[int, ...], str]:
        """What follows the first `after` tokens."""
        if after > len(self.ids):
            return (), ""
        stop = min(len(self.ids), after + most)
        end = self._ends[stop] if stop < len(self.ids) else len(self.text)
        return tuple(self.ids[after:stop]), self.text[self._ends[after] : end]

    def due(self, logged: Message, now: float) -> tuple[int, str] | None:
        """Tokens and text that the log is to get, which knows `logged`; None: nothing yet."""
        if len(self.ids) - self._logged_tokens < LOG_TOKENS and now - self._logged_s < LOG_S:
            return None
        if len(self.ids) <= logged.tokens or not self.text.startswith(logged.text):
            return None  # it is made again up to there
        stop = len(self.ids)
        while stop > logged.tokens + 1 and self._ends[stop] - len(logged.text) > MAX_EXTENSION:
            stop -= 1
        self._logged_s, self._logged_tokens = now, stop
        return stop, self.text[len(logged.text) : self._ends[stop]]


__all__ = ["Begun", "Making", "Settings"]
