"""How a recording is to be written, and what comes of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from peer.session.sampling import GREEDY, Sampling


@dataclass(frozen=True, slots=True)
class SpeechAsked:
    """How a recording is to be written. `language`: a code such as "en"; None: the one that its first window is in.
    `translated`: into English. `times`: with times; `words`: also those of single words. `max_tokens`: of each window;
    None: as many as there is room for.
    """

    language: str | None = None
    translated: bool = False
    times: bool = True
    sampling: Sampling = GREEDY
    max_tokens: int | None = None
    words: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A word that is said. Times from the beginning."""

    start_ms: int
    end_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of what is said. Times from the beginning; `tokens` with those of times; `mean_log_share`: of the tokens
    of the window, or of the part, the mean logarithm of their probability. `words`: none where words have no times.
    """

    start_ms: int
    end_ms: int
    text: str
    tokens: tuple[int, ...]
    mean_log_share: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a window: its parts, and up to where the recording is written, of how much. `language`: its code,
    "" where the model knows one.
    """

    segments: tuple[Segment, ...]
    done_ms: int
    total_ms: int
    language: str
