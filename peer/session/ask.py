"""Decides how long an answer may be, and names what is asked and in which phase an answer is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from peer.errors import ContextOverflow
from peer.session.given_rows import GivenRows
from peer.session.position_spans import cut_spans, extended
from peer.session.sampling import Sampling, needs_history
from peer.session.steering import STRAIGHT, Steering, to_wire
from peer.wire.generated.frames import Here

STUCK_S: Final = 1.0  # no progress anywhere for this long, at least, before a stage counts as stuck
STUCK_GAPS: Final = 10  # and for as many usual gaps
STARVED_S: Final = 0.5  # the same for a stage that does not get what the one before it made
STARVED_GAPS: Final = 4
MAX_DOUBLED: Final = 6  # times
Progress = tuple[tuple[int, int, int], ...]  # by stage: received, computed, steps of its peer


class Phase(Enum):
    """Where a question is on the origin's side."""

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
    front: int = 0  # tokens that prompts of other sessions share with it (peer.session.prefix_cache)
    front_kept: bool = False  # and the stages of its route have, as far as is known
    rows: tuple[GivenRows, ...] = ()  # what stands in the place of some token ids, behind the front

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


def compared(here: Mapping[int, Here], before: Progress) -> tuple[Progress, int | None, bool]:
    """How far all stages are, the first that has something to do, and whether anything moved since `before`."""
    seen = tuple((h.received, h.computed, h.steps) for _, h in sorted(here.items()))
    moved = tuple(pair[:2] for pair in seen) != tuple(pair[:2] for pair in before)
    stage = next((s for s in range(len(seen)) if not is_done(here, s)), None)
    if stage is not None and not moved and len(before) == len(seen):
        moved = seen[stage][2] != before[stage][2]  # busy with others
    return seen, stage, moved


def stuck_after_s(usual_s: float, tries: int, *, starved: bool) -> float:
    """How long a stage may not come on, when tokens usually come every `usual_s`; each of `tries` doubles it."""
    least_s, gaps = (STARVED_S, STARVED_GAPS) if starved else (STUCK_S, STUCK_GAPS)
    return float(max(least_s, gaps * usual_s) * 2 ** min(tries, MAX_DOUBLED))


def is_done(here: Mapping[int, Here], stage: int) -> bool:
    """Whether `stage` has nothing to do: it computed what came, and what came is what the one before it computed."""
    mine = here[stage]
    if mine.computed < mine.received:
        return False
    return stage == 0 or mine.received >= here[stage - 1].computed
