"""Decides how many tokens of a prompt run between two decode batches: so many that answers under way keep their pace.

Pure. While nobody decodes, a piece is as large as pieces get. While somebody does, it takes no longer than the decode
batches of that time come apart when no prompt is computed, nor than two of those batches: so a gap between two tokens
at most doubles, whichever part of it is spent at this stage. What a piece takes is estimated by the last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from statistics import median
from typing import Final

PIECE_TOKENS: Final = 64  # the largest piece, and what the scratch of attention has room for
LEAST_TOKENS: Final = 4  # below it a call costs nearly as much, so that prompts would stand still
WIDE_HEAD: Final = (
    128  # values; kernels add up scores of wider heads otherwise while few positions are left over
)
KEPT: Final = 8  # measurements of a kind, the last ones
AWAY_S: Final = 0.25  # without a step of a session: it waits for its next question
AWAY_INTERVALS: Final = 4  # of the decode batches, where they come more slowly
BATCHES: Final = 2.0  # decode batches that a piece may take at most


def piece_stop(start: int, stop: int, head_size: int) -> int:
    """Where a piece of a prompt ends that begins at `start` and has tokens up to `stop`, with heads of `head_size`.

    Scores of wide heads depend on whether a call ends within the first PIECE_TOKENS positions of two such pieces. So a
    piece ends before the last one of these, for which a single token, which gets company, is in the next piece.
    """
    if head_size <= WIDE_HEAD:
        return stop
    return min(stop, (start + 1) // PIECE_TOKENS * PIECE_TOKENS + PIECE_TOKENS - 1)


class PieceSizes:
    """Is told what ran, in seconds of one clock. `least`: tokens of the smallest piece, a power of two."""

    def __init__(self, least: int = LEAST_TOKENS) -> None:
        self._least = least
        self._decoding: dict[bytes, float] = {}  # when each session's last decode batch ended
        self._begun_s: float | None = None  # when the last decode batch began, where no prompt ran since
        self._intervals: deque[float] = deque(
            maxlen=KEPT
        )  # from one decode batch to the next, with no prompt between
        self._batches: deque[float] = deque(maxlen=KEPT)
        self._token_s: deque[float] = deque(maxlen=KEPT)

    def decoded(self, begun_s: float, ended_s: float, sessions: Collection[bytes]) -> None:
        """One decode batch ran, for these sessions."""
        if self._begun_s is not None and any(session in self._decoding for session in sessions):
            self._intervals.append(begun_s - self._begun_s)
        self._begun_s = begun_s
        self._batches.append(ended_s - begun_s)
        for session in sessions:
            self._decoding[session] = ended_s

    def ran(self, session: bytes, tokens: int, took_s: float) -> None:
        """A piece of the prompt of `session` ran."""
        self._decoding.pop(session, None)
        self._begun_s = None
        self._token_s.append(took_s / tokens)

    def released(self, session: bytes) -> None:
        """A session is over."""
        self._decoding.pop(session, None)

    def next(self, now_s: float) -> int:
        """The tokens of the next piece, at most."""
        self._forget(now_s)
        if not self._decoding:
            return PIECE_TOKENS
        size = self._least
        if self._token_s:
            budget_s, token_s = self._budget_s(), median(self._token_s)
            while 2 * size <= PIECE_TOKENS and 2 * size * token_s <= budget_s:
                size *= 2
        return size

    def _budget_s(self) -> float:
        batch_s = median(self._batches)
        return min(BATCHES * batch_s, median(self._intervals)) if self._intervals else batch_s

    def _forget(self, now_s: float) -> None:
        away_s = max(AWAY_S, AWAY_INTERVALS * median(self._intervals)) if self._intervals else AWAY_S
        for session in [each for each, ended_s in self._decoding.items() if now_s - ended_s > away_s]:
            del self._decoding[session]
