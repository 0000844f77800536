"""The ends of a model that writes what is said, for one recording: rows that its encoder made, in place of embeddings.

Tokens of a prompt from the vocabulary on stand for such rows. So a window is a conversation like any other, whose
stages keep what they made of these rows and lose it with no peer; and the next token is drawn by the rules of speech.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from peer.model.speech_rules import Writing, allowed, log_share
from peer.origin.pinned_ends import OwnEnds
from peer.session.evidence import Floats
from peer.session.pinned_ends import Drawing
from peer.wire.generated.frames import Token
from peer.wire.tensors import Tensor, tensor_of


class SpeechEnds:
    """For one conversation; windows follow one another. `own`: embedding and head of the model."""

    def __init__(self, own: OwnEnds, vocab: int) -> None:
        self.width = own.width
        self._own = own
        self._vocab = vocab
        self._rows: Floats = np.empty((0, own.width), np.float32)
        self._first = vocab  # the token of the first row
        self._choose: Callable[[Floats, Sequence[int]], Floats] = lambda logits, _: logits
        self._begin = 0  # the position of the first token that is drawn
        self._drawn: dict[int, tuple[int, float]] = {}  # by position, with the logarithm of its probability

    def window(
        self, rows: Floats, prompt: Sequence[int], choose: Callable[[Floats, Sequence[int]], Floats]
    ) -> tuple[int, ...]:
        """Begins a window of float32 (rows, width); returns the tokens of its prompt. `choose`: of logits (vocab,) and
        the tokens so far, the logits of those that may follow.
        """
        self._first += len(self._rows)
        self._rows, self._choose = rows, choose
        self._begin = len(rows) + len(prompt)
        self._drawn.clear()
        return (*range(self._first, self._first + len(rows)), *prompt)

    def again(
        self, prompt: Sequence[int], choose: Callable[[Floats, Sequence[int]], Floats]
    ) -> tuple[int, ...]:
        """The same rows with another prompt."""
        self._choose, self._begin = choose, len(self._rows) + len(prompt)
        self._drawn.clear()
        return (*range(self._first, self._first + len(self._rows)), *prompt)

    def forget(self) -> None:
        """The window is written anew."""
        self._drawn.clear()

    @property
    def log_shares(self) -> tuple[float, ...]:
        """Of the tokens that were drawn, the logarithms of their probabilities."""
        return tuple(share for _, (_, share) in sorted(self._drawn.items()))

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """float32 (tokens, width)."""
        made = np.empty((len(tokens), self.width), np.float32)
        words = [place for place, token in enumerate(tokens) if token < self._vocab]
        rows = [place for place, token in enumerate(tokens) if token >= self._vocab]
        if words:
            made[words] = self._own.embed([tokens[place] for place in words]).array()
        if rows:
            made[rows] = self._rows[[tokens[place] - self._first for place in rows]]
        return tensor_of(made)

    def draw(self, drawing: Drawing, state: Floats, tell: Callable[[Token | None], None]) -> None:
        """As OwnEnds.draw, among the tokens that may follow."""
        before, position = drawing.draw, drawing.position
        known = [self._drawn[place][0] for place in range(self._begin, position)]

        def draw(logits: Floats) -> int:
            may = self._choose(logits, known)
            token = before(may)
            self._drawn[position] = token, log_share(may, token)
            return token

        self._own.draw(replace(drawing, draw=draw), state, tell)


def by_rules(writing: Writing) -> Callable[[Floats, Sequence[int]], Floats]:
    """What may follow by the rules of speech."""
    return lambda logits, before: allowed(logits, writing, before)
