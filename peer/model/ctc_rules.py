"""What is said when, by the likeliest token of each frame of sound; and which samples are computed together. Pure.

Greedy decoding of connectionist temporal classification (Graves et al., 2006): what stands in several frames in a row
is one token, and blanks part two that are alike. So each token has a time, and words have the times of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from peer.model.speech_asked import Segment, Word
from planner.model.speech import RATE, CtcText

WINDOW_S: Final = 30  # of sound that is computed at a time, as for Whisper
MARGIN_S: Final = (
    5  # at both ends of a window that serve as surroundings alone, where there is sound before or behind
)
PAUSE_MS: Final = 700  # in which nothing is said: a part of a text ends
MOST_MS: Final = 10_000  # of a part of a text, at whose next word another begins

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Window:
    """Samples [first, stop) are computed together; of their frames [kept_first, kept_stop) count."""

    first: int
    stop: int
    kept_first: int
    kept_stop: int


def windows_of(samples: int, text: CtcText) -> list[Window]:
    """The windows of a recording, in order: their frames that count are all frames, each once."""
    if samples <= WINDOW_S * RATE:
        return [Window(0, samples, 0, text.frames(max(samples, text.seen)))]
    margin = MARGIN_S * RATE // text.hop
    step = (WINDOW_S - 2 * MARGIN_S) * RATE // text.hop
    found: list[Window] = []
    first = 0
    while True:
        stop = first + WINDOW_S * RATE
        begin = margin if first else 0
        if stop >= samples:
            return [*found, Window(first, samples, begin, text.frames(samples - first))]
        found.append(Window(first, stop, begin, margin + step))
        first += step * text.hop


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames in a row, the first of which is number `first` of the recording: the likeliest token of each, (frames,),
    and the logarithm of its probability.
    """

    first: int
    ids: Ids
    log_shares: Floats

    def behind(self, more: Frames) -> Frames:
        """These and those that follow."""
        ids = np.concatenate([self.ids, more.ids])
        return Frames(self.first, ids, np.concatenate([self.log_shares, more.log_shares]))

    def since(self, frame: int) -> Frames:
        """Those from number `frame` of the recording on."""
        skipped = frame - self.first
        return Frames(frame, self.ids[skipped:], self.log_shares[skipped:])


def likeliest(logits: Floats, first: int) -> Frames:
    """Of logits (frames, tokens), of which the first is frame `first` of the recording."""
    ids = logits.argmax(-1)
    best = np.take_along_axis(logits, ids[:, None], -1)
    total = np.log(np.exp((logits - best).astype(np.float64)).sum(-1))
    return Frames(first, ids, (-total).astype(np.float32))


@dataclass(frozen=True, slots=True)
class _Spoken:
    first: int
    stop: int  # frames of the recording
    token: int
    log_share: float  # of its first frame


def parts_of(frames: Frames, text: CtcText, *, over: bool) -> tuple[list[Segment], Frames]:
    """The parts of what is said in these frames, and the frames that are not written yet: those of the last part, which
    may go on, unless the recording is `over`.
    """
    groups: list[list[list[_Spoken]]] = []  # words of parts
    for word in _words(frames, text):
        before = groups[-1] if groups else None
        apart = before is None or (
            _ms(word[0].first - before[-1][-1].stop, text) >= PAUSE_MS
            or _ms(word[0].first - before[0][0].first, text) >= MOST_MS
        )
        groups.append([word]) if apart else groups[-1].append(word)
    left = frames.since(frames.first + len(frames.ids))
    if groups and not over:
        left = frames.since(groups.pop()[0][0].first)
    return [_segment(group, text) for group in groups], left


def _words(frames: Frames, text: CtcText) -> list[list[_Spoken]]:
    """The tokens of each word; without a token between words each token is one."""
    found: list[list[_Spoken]] = []
    is_open = False
    for token in _tokens(frames):
        if token.token == text.space:
            is_open = False
        elif token.token != text.blank and text.tokens[token.token]:
            if not is_open or text.space is None:
                found.append([])
            found[-1].append(token)
            is_open = True
    return found


def _tokens(frames: Frames) -> list[_Spoken]:
    """Frames in a row that have the same token are one."""
    ids = frames.ids
    if not len(ids):
        return []
    starts = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist()]
    stops = [*starts[1:], len(ids)]
    return [
        _Spoken(frames.first + start, frames.first + stop, int(ids[start]), float(frames.log_shares[start]))
        for start, stop in zip(starts, stops, strict=True)
    ]


def _segment(group: Sequence[Sequence[_Spoken]], text: CtcText) -> Segment:
    words = tuple(
        Word(
            _ms(word[0].first, text),
            _ms(word[-1].stop, text),
            "".join(text.tokens[each.token] for each in word),
        )
        for word in group
    )
    space = " " if text.space is not None else ""
    every = [each for word in group for each in word]
    return Segment(
        words[0].start_ms,
        words[-1].end_ms,
        space + space.join(word.text for word in words),
        tuple(each.token for each in every),
        sum(each.log_share for each in every) / len(every),
        words,
    )


def _ms(frames: int, text: CtcText) -> int:
    return frames * text.hop * 1000 // RATE
