"""Decides what an asker that keeps its ends shows to those who check them: what it sent, and what came back. Pure.

A judge of a first stage gets the rows of the embedding that this stage got, a judge of a last stage the states from
which tokens were drawn. Neither hears a token id, a setting or a logit.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from peer.errors import BadCommand
from peer.session.activation_log import ActivationLog
from peer.session.evidence import Floats, span_of
from peer.session.pinned_ends import Ends
from peer.wire.generated.requests import WitnessAnswer
from peer.wire.tensors import Tensor

MOST_BYTES: Final = 768 * 1024  # of activations in one answer: bodies are at most 1032192 bytes of JSON
KEPT_BYTES: Final = 1024 * 1024  # of the newest states that came back, of one session
ALL_BYTES: Final = 8 * KEPT_BYTES  # of all: an answer can be checked for a while when it is over


@dataclass(slots=True)
class Returned:
    """States that last stages handed back, by session; of the one that got none for longest they go first."""

    _logs: dict[bytes, ActivationLog] = field(default_factory=dict)

    def note(self, session: bytes, position: int, state: Tensor) -> None:
        """`state`, float32 (1, hidden), came back for `position`."""
        log = self._logs.pop(session, None) or ActivationLog(KEPT_BYTES)
        self._logs[session] = log
        log.append(position, state)
        while sum(each.bytes for each in self._logs.values()) > ALL_BYTES:
            del self._logs[next(iter(self._logs))]

    def of(self, session: bytes) -> ActivationLog:
        """Those of one session."""
        return self._logs.get(session) or ActivationLog(KEPT_BYTES)


@dataclass(slots=True)
class KeptEnds:
    """What is shown of one session while it is checked. `judges`: by peer, which stages it was asked to check."""

    ends: Ends
    tokens: tuple[int, ...]
    returned: ActivationLog
    stages: int  # of its route
    judges: dict[str, set[int]] = field(default_factory=dict)

    def shown(self, peer: str, side: str, first: int, stop: int) -> WitnessAnswer:
        """Rows [first, stop) that were "sent" to the first stage, or came "back" of the last one; null for what is
        there no more. Raises BadCommand for anything else, and for who was not asked to check that stage.
        """
        stage = {"sent": 0, "back": self.stages - 1}.get(side)
        if stage is None:
            raise BadCommand("witness: expected no question for the tokens of an answer that keeps them")
        if stage not in self.judges.get(peer, ()):
            raise BadCommand("witness: expected a peer that was asked to check this stage")
        if side == "back":
            return rows_answer(span_of(self.returned, first, stop))
        tokens = self.tokens[first:stop]
        is_whole = len(tokens) == stop - first and 4 * self.ends.width * len(tokens) <= MOST_BYTES
        return rows_answer(self.ends.embed(tokens).array() if is_whole else None)

    def before(self, position: int) -> range:
        """Positions before that one of which a state came back."""
        return range(min(self.returned.start, position), position)


def rows_answer(found: Floats | None) -> WitnessAnswer:
    """Rows as a witness tells them; null where they are too many for one answer."""
    if found is None or found.nbytes > MOST_BYTES:
        return WitnessAnswer()
    return WitnessAnswer(rows=base64.b64encode(found.tobytes()).decode())


def digest_of(marks: list[bytes]) -> str:
    """What stands for all inputs of a first stage: that two are the same shows, nothing else does."""
    return sha256(b"".join(marks)).hexdigest()
