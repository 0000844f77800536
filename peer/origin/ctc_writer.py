"""What is said in a recording, written by a model of sound alone: a run for each window, several under way. Edge."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import numpy as np

from peer.errors import BadCommand, RunFailed
from peer.model.ctc_rules import Frames, Window, likeliest, parts_of, windows_of
from peer.model.sound import Samples
from peer.model.speech_asked import SpeechAsked, Written
from peer.origin.run_client import RunClient
from peer.session.evidence import Floats
from peer.session.sampling import GREEDY
from planner.model.speech import RATE, CtcText

OpenRun = Callable[[str], Awaitable[RunClient]]  # by the name of an offer
SCALE = 32768  # of samples


class CtcWriter:
    """A model of the mesh that writes sound without a decoder. Several recordings may be written at once."""

    def __init__(self, name: str, model_id: str, text: CtcText, open_run: OpenRun) -> None:
        self._name = name
        self._model_id = model_id
        self._text = text
        self._open_run = open_run

    @property
    def name(self) -> str:
        """Under which the mesh offers it."""
        return self._name

    @property
    def model_id(self) -> str:
        """Its id."""
        return self._model_id

    @property
    def languages(self) -> tuple[str, ...]:
        """None: the model knows one and does not say which."""
        return ()

    def check(self, asked: SpeechAsked) -> None:
        """Raises BadCommand for what this model cannot do."""
        if asked.translated:
            raise BadCommand(f"{self.name} does not translate: it writes what it hears")
        if asked.sampling != GREEDY:
            raise BadCommand(f"{self.name} draws nothing by chance: leave temperature out")
        if asked.max_tokens is not None:
            raise BadCommand(f"{self.name} has a token for each moment: leave max_tokens out")

    async def written(self, samples: Samples, asked: SpeechAsked) -> AsyncGenerator[Written]:
        """What is said, a window at a time. `samples`: int16 (samples,), 16 kHz. Leaving the loop ends the work.

        Raises BadCommand for what the model cannot do, NoPlan, RunFailed, CannotServe.
        """
        self.check(asked)
        text, windows = self._text, windows_of(len(samples), self._text)
        total_ms = len(samples) * 1000 // RATE
        run = await self._open_run(self.name)
        left = Frames(0, np.empty(0, np.int64), np.empty(0, np.float32))
        try:
            given = ({text.input: _sound(samples, window, text)} for window in windows)
            async with aclosing(run.map(given)) as made:
                at = 0
                async for outputs in made:
                    window, over = windows[at], at + 1 == len(windows)
                    left = left.behind(self._frames(outputs[text.logits], window))
                    parts, left = parts_of(left, text, over=over)
                    done = len(samples) if over else window.first + window.kept_stop * text.hop
                    at += 1
                    yield Written(tuple(parts), done * 1000 // RATE, total_ms, "")
        finally:
            await run.close()

    async def close(self) -> None:
        """Nothing is held between recordings."""

    def _frames(self, logits: object, window: Window) -> Frames:
        """Raises RunFailed."""
        text = self._text
        expected = (1, text.frames(max(window.stop - window.first, text.seen)), len(text.tokens))
        if not isinstance(logits, np.ndarray) or logits.shape != expected or not np.isfinite(logits).all():
            raise RunFailed(f"{self.name} made no finite numbers of shape {expected}")
        kept: Floats = logits[0, window.kept_first : window.kept_stop].astype(np.float32, copy=False)
        return likeliest(kept, window.first // text.hop + window.kept_first)


def _sound(samples: Samples, window: Window, text: CtcText) -> Floats:
    """float32 (1, samples) of a window; silence behind a sound that is shorter than a frame."""
    part = samples[window.first : window.stop].astype(np.float32) / np.float32(SCALE)
    return np.pad(part, (0, max(0, text.seen - len(part))))[None]
