"""Decides how long an answer may be, and names what is asked and in which phase an answer is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from peer.errors import ContextOverflow
from peer.frame_kinds import Here
from peer.sampling import Sampling, needs_history
from peer.spans import cut_spans, extended
from peer.steering import STRAIGHT, Steering, to_wire


class Phase(Enum):
    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"
    REROUTING = "rerouting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn: the whole prompt as token ids, and how to answer it.

    The last `sampled` of `prompt` were sampled before, and count as such: an answer that is made a token at a time.
    `max_tokens` counts them.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    end_tokens: tuple[int, ...]
    steering: Steering = STRAIGHT
    sampled: int = 0

    def spans_after(self, before: tuple[int, ...], keep: int) -> tuple[int, ...]:
        """Spans of what was given, when the first `keep` positions stay of a session with spans `before`."""
        given = len(self.prompt) - self.sampled
        kept = min(keep, given)
        return extended(cut_spans(before, kept), given - kept, given=True)

    def wire(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """OPEN's `sampling` and `history` when `tokens` are known."""
        return to_wire(self.sampling, self.steering, tokens if needs_history(self.sampling) else ())


@dataclass(frozen=True, slots=True)
class Heard:
    """Where an answer stands on its stages: what another peer needs to go on with what they hold.

    `spans` are those of its prompt.
    """

    answer: int
    turn: int
    spans: tuple[int, ...]


def room_for(prompt_tokens: int, max_tokens: int | None, context: int) -> int:
    """How many tokens the answer may have. Raises ContextOverflow when the promise cannot be kept."""
    room = context - prompt_tokens
    if room < 1:
        raise ContextOverflow(
            f"the prompt has {prompt_tokens} tokens, this mesh serves a context of {context}; shorten the prompt by "
            f"{prompt_tokens - context + 1} tokens or start the mesh with --context {prompt_tokens * 2}"
        )
    if max_tokens is None:
        return room
    if max_tokens < 1:
        raise ContextOverflow(f"max_tokens must be at least 1, got {max_tokens}")
    if max_tokens > room:
        raise ContextOverflow(
            f"{prompt_tokens} prompt tokens and {max_tokens} answer tokens exceed the context of {context}; "
            f"ask for at most {room}"
        )
    return max_tokens


def is_done(here: dict[int, Here], stage: int) -> bool:
    """Whether `stage` has nothing to do: it computed what came, and what came is what the one before it computed."""
    mine = here[stage]
    if mine.computed < mine.received:
        return False
    return stage == 0 or mine.received >= here[stage - 1].computed
