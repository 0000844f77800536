"""Sounds of the speech tests: a sentence that espeak-ng spoke, and three minutes of it, louder and softer."""

from __future__ import annotations

from typing import Final

import av
import numpy as np
import numpy.typing as npt

from tests.planner.importers.speech.whisper_folders import SPOKEN

LONG_S: Final = 180


def spoken() -> npt.NDArray[np.float32]:
    """Six seconds at 16 kHz."""
    with av.open(str(SPOKEN)) as file:
        frames = [frame.to_ndarray().reshape(-1) for frame in file.decode(audio=0)]
    return np.concatenate(frames).astype(np.float32) / np.float32(32768)


def long_sound() -> npt.NDArray[np.float32]:
    """Three minutes."""
    once = spoken()
    times = -(-LONG_S * 16000 // len(once))
    return np.concatenate([once * np.float32(0.3 + 0.07 * (7 * i % 10)) for i in range(times)])[
        : LONG_S * 16000
    ]
