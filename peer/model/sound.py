"""Recordings as numbers: one channel of 16 kHz, and the frames of a model's own spectrogram. Edge.

A recording is foreign: it is decoded in a process of its own, within bounds of time and memory.
"""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from peer.errors import BadCommand
from planner.errors import JobError, JobTooLarge, JobTooLong
from planner.jobs.jobs import Budget, Jobs
from planner.model.onnxruntime_import import ort
from planner.model.speech import HOP, RATE, Speech

MAX_SOUND_S: Final = 2 * 3600
CPU_S: Final = 120.0  # to decode two hours takes some 20 s
MEMORY_BYTES: Final = 1 << 30
WINDOW: Final = 400  # samples of a frame
CHUNK: Final = 3000  # frames that are made at a time
BELOW: Final = 8.0  # decimal logarithms under the loudest that count

Samples = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float32]


async def decoded(path: Path) -> Samples:
    """The sound of a file, by its absolute path: (samples,), 16 kHz. Raises BadCommand for none, or one too long."""
    jobs = Jobs(_load, budget=Budget(CPU_S, MEMORY_BYTES), quick_cpu_s=CPU_S)
    with tempfile.TemporaryDirectory(prefix="sound-") as folder:
        out = Path(folder) / "samples"
        try:
            why = await jobs.run(_decode, path, out)
        except (JobTooLong, JobTooLarge):
            raise BadCommand(
                f"{path.name}: a recording that is read within bounds of time and memory expected"
            ) from None
        except JobError as error:
            raise BadCommand(f"{path.name} cannot be read: {error}") from None
        finally:
            await jobs.close()
        if why:
            raise BadCommand(f"{path.name}: {why}")
        return np.fromfile(out, np.int16)


def _load() -> None:
    import av  # noqa: F401


def _decode(_: None, path: Path, out: Path) -> str:
    """Writes the samples of `path` to `out`; why not, in words, or ""."""
    import av

    count = 0
    try:
        with av.open(str(path), metadata_errors="ignore") as opened, out.open("wb") as made:
            if not opened.streams.audio:
                return "a file with sound expected"
            resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
            frames = opened.decode(opened.streams.audio[0])
            for frame in chain(frames, (None,)):
                for part in resampler.resample(frame):
                    samples = part.to_ndarray().reshape(-1)
                    count += len(samples)
                    if count > MAX_SOUND_S * RATE:
                        return f"at most {MAX_SOUND_S // 3600} hours of sound expected"
                    made.write(samples.tobytes())
    except (av.FFmpegError, OSError, ValueError) as error:
        return f"sound expected: {error}"
    return "" if count else "a file with sound expected, found none"


class Spectrogram:
    """A model's own, run here. One call at a time."""

    def __init__(self, file: Path, speech: Speech, threads: int) -> None:
        """Raises RuntimeError or ValueError for a file that onnxruntime refuses."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._speech = speech
        self._session = ort.InferenceSession(str(file), options, ["CPUExecutionProvider"])

    def frames(self, samples: Samples) -> Floats:
        """float32 (mels, frames), one frame for each 160 samples, relative to the loudest of the recording. One that is
        shorter than a window is filled up with silence.
        """
        short = self._speech.frames * HOP - len(samples)
        if short > 0:
            samples = np.concatenate([samples, np.zeros(short, np.int16)])
        count = len(samples) // HOP
        found = np.empty((self._speech.mels, count), np.float32)
        around = np.pad(samples, WINDOW // 2, mode="reflect")
        for first in range(0, count, CHUNK):
            stop = min(first + CHUNK, count)
            part = around[first * HOP : (stop - 1) * HOP + WINDOW].astype(np.float32) / np.float32(32768)
            made = self._session.run(["frames"], {"sound": part[None]})[0]
            if made.shape != (1, self._speech.mels, stop - first):
                raise ValueError(f"a spectrogram of {self._speech.mels} bands expected, got {made.shape}")
            found[:, first:stop] = made[0]
        np.maximum(found, found.max() - np.float32(BELOW), out=found)
        found += 4
        found /= 4
        return found


def window_of(frames: Floats, seek: int, length: int) -> Floats:
    """float32 (1, mels, length): the frames from `seek` on, filled up with 0."""
    part = frames[:, seek : seek + length]
    return np.pad(part, ((0, 0), (0, length - part.shape[1])))[None]
