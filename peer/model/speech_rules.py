"""Which tokens may come when speech is written, and what is said when, by the tokens that came. Pure.

The rules are those of Whisper (Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022):
times come in pairs and never fall, and a time comes wherever all times together are likelier than any word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.model.speech import HOP, RATE, Speech

Floats = npt.NDArray[np.float32]
FRAMES_OF_S: Final = RATE // HOP


@dataclass(frozen=True, slots=True)
class Writing:
    """How speech is to be written. `language`: a token, None where the model knows one; `translated`: into English;
    `times`: with times; `end`: the token that ends a window.
    """

    speech: Speech
    end: int
    language: int | None = None
    translated: bool = False
    times: bool = True

    @property
    def prompt(self) -> tuple[int, ...]:
        """What stands before the tokens of each window."""
        task = self.speech.translate if self.translated else self.speech.transcribe
        begin = (self.speech.start, self.language, task if self.language is not None else None)
        no_times = () if self.times else (self.speech.no_timestamps,)
        return (*(token for token in begin if token is not None), *no_times)


def allowed(logits: Floats, writing: Writing, before: Sequence[int]) -> Floats:
    """The logits (vocab,) with -Inf for what may not follow `before`, the tokens of a window so far."""
    speech, found = writing.speech, logits.copy()
    if not before:
        found[list(speech.begin_suppressed)] = -np.inf
    found[list(speech.suppressed)] = -np.inf
    if writing.times:
        return _with_times(found, writing, before)
    found[speech.no_timestamps :] = -np.inf
    return found


def language_of(logits: Floats, speech: Speech) -> int:
    """The token of the likeliest language, by the logits (vocab,) behind the token that begins a prompt."""
    tokens = sorted(set(speech.languages.values()))
    return tokens[int(np.argmax(logits[tokens]))]


def _with_times(found: Floats, writing: Writing, before: Sequence[int]) -> Floats:
    speech, begin = writing.speech, writing.speech.timestamp_begin
    found[speech.no_timestamps] = -np.inf
    last = len(before) >= 1 and before[-1] >= begin
    last_but_one = len(before) < 2 or before[-2] >= begin
    if last and last_but_one:  # a pair: words follow
        found[begin:] = -np.inf
    elif last:  # words have ended: the time at which the next ones begin, or the end
        found[: writing.end] = -np.inf
    times = [token for token in before if token >= begin]
    if times:
        found[begin : times[-1] + (0 if last and not last_but_one else 1)] = -np.inf
    if not before:
        found[:begin] = -np.inf
        if speech.max_initial is not None:
            found[begin + speech.max_initial + 1 :] = -np.inf
    together = _log_of_sum(found[begin:])
    if together > found[:begin].max(initial=-np.inf):
        found[:begin] = -np.inf
    return found


def _log_of_sum(logits: Floats) -> float:
    most = float(logits.max(initial=-np.inf))
    if not np.isfinite(most):
        return -np.inf
    return most + float(np.log(np.exp(logits.astype(np.float64) - most).sum()))


def log_share(logits: Floats, token: int) -> float:
    """The logarithm of the probability of `token` by `logits` (vocab,)."""
    return float(logits[token]) - _log_of_sum(logits)


@dataclass(frozen=True, slots=True)
class Said:
    """A part of what was said. `start_ms`, `end_ms`: from the beginning of the sound; `tokens`: those of times are
    among them.
    """

    start_ms: int
    end_ms: int
    tokens: tuple[int, ...]


def parts_of(tokens: Sequence[int], speech: Speech, seek: int, frames: int) -> tuple[list[Said], int]:
    """What was said in a window that begins at frame `seek` and has `frames` of them, by its tokens without the end;
    and by how many frames the next window begins later, at least one.

    Words between two times are a part. What follows the last pair of times is written again in the next window, unless
    the last time stands alone: nothing is said after it.
    """
    begin, tick = speech.timestamp_begin, speech.tick_ms
    offset_ms = seek * 1000 // FRAMES_OF_S
    stride = tick * FRAMES_OF_S // 1000  # frames of a tick
    times = [token >= begin for token in tokens]
    borders = [place + 1 for place in range(len(times) - 1) if times[place] and times[place + 1]]
    if not borders:
        marked = [token for token in tokens if token >= begin]
        last = marked[-1] - begin if marked and marked[-1] != begin else frames // stride
        return [Said(offset_ms, offset_ms + last * tick, tuple(tokens))], frames
    alone = times[-2:] == [False, True]
    if alone:
        borders.append(len(tokens))
    else:
        borders[-1] += 1
    found: list[Said] = []
    first = 0
    for border in borders:
        part = tokens[first:border]
        ends = part[-1] if alone or border != borders[-1] else part[-2]
        found.append(
            Said(offset_ms + (part[0] - begin) * tick, offset_ms + (ends - begin) * tick, tuple(part))
        )
        first = border
    return found, frames if alone else max((tokens[first - 2] - begin) * stride, 1)
