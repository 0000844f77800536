"""How a model writes what is said: which encoder reads sound, its spectrogram, and the tokens that steer it. Pure.

A decoder of that kind begins each conversation with `rows` rows that the encoder made of `frames` frames; its tokens
stand behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import CorruptStore
from planner.model.blob_ref import BlobRef
from planner.model.checked_fields import SHA256, Fields, blob_document, blob_of

RATE: Final = 16_000  # samples of sound a second
HOP: Final = 160  # samples from one frame to the next
MAX_LANGUAGES: Final = 1024
MAX_CODE_CHARS: Final = 32
MAX_SUPPRESSED: Final = 4096
MAX_FRAMES: Final = 1 << 16
MAX_MELS: Final = 1024
MAX_SPECTROGRAM_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Speech:
    """`encoder`: id of the model that makes float32 `encoded` (1, rows, hidden) of float32 `mel` (1, mels, frames).
    `spectrogram`: an ONNX file that makes `frames` of `sound`: float32 (1, mels, n) of (1, 400 + 160 (n - 1)), the
    decimal logarithms of power. Numbers of tokens: `start` begins a prompt; `languages` by code; `transcribe`,
    `translate` None where the model knows one language; `no_timestamps`: the next token is time 0, each one after it
    `tick_ms` more. `suppressed` never come, `begin_suppressed` not first; `max_initial`: the latest first time.
    """

    encoder: str
    spectrogram: BlobRef
    rows: int
    mels: int
    frames: int
    start: int
    languages: Mapping[str, int]
    transcribe: int | None
    translate: int | None
    no_timestamps: int
    suppressed: tuple[int, ...]
    begin_suppressed: tuple[int, ...]
    max_initial: int | None
    tick_ms: int = 20

    @property
    def timestamp_begin(self) -> int:
        """The token of time 0."""
        return self.no_timestamps + 1


def speech_document(speech: Speech) -> dict[str, object]:
    """Returns the JSON form; speech_of reads it."""
    return {
        "encoder": speech.encoder,
        "spectrogram": blob_document(speech.spectrogram),
        "rows": speech.rows,
        "mels": speech.mels,
        "frames": speech.frames,
        "start": speech.start,
        "languages": dict(speech.languages),
        "transcribe": speech.transcribe,
        "translate": speech.translate,
        "no_timestamps": speech.no_timestamps,
        "suppressed": list(speech.suppressed),
        "begin_suppressed": list(speech.begin_suppressed),
        "max_initial": speech.max_initial,
        "tick_ms": speech.tick_ms,
    }


def speech_of(fields: Fields, vocab: int, context: int) -> Speech:
    """Reads the JSON form in a manifest of that vocabulary and context. Raises CorruptStore."""
    encoder = fields.text("encoder", 64)
    if not SHA256.match(encoder):
        raise CorruptStore(f"{fields.place}.encoder: 64 lower-case hex digits expected")
    spectrogram = blob_of(fields.fields("spectrogram"))
    if spectrogram.bytes > MAX_SPECTROGRAM_BYTES:
        raise CorruptStore(f"{fields.place}.spectrogram: at most {MAX_SPECTROGRAM_BYTES} bytes expected")
    codes = fields.fields("languages")
    names = codes.names(MAX_LANGUAGES, MAX_CODE_CHARS)

    def token(name: str) -> int | None:
        return None if fields.is_null(name) else fields.count(name, vocab - 1)

    return Speech(
        encoder=encoder,
        spectrogram=spectrogram,
        rows=fields.count("rows", context - 1, least=1),
        mels=fields.count("mels", MAX_MELS, least=1),
        frames=fields.count("frames", MAX_FRAMES, least=1),
        start=fields.count("start", vocab - 1),
        languages={name: codes.count(name, vocab - 1) for name in names},
        transcribe=token("transcribe"),
        translate=token("translate"),
        no_timestamps=fields.count("no_timestamps", vocab - 2),
        suppressed=fields.counts("suppressed", MAX_SUPPRESSED, vocab - 1),
        begin_suppressed=fields.counts("begin_suppressed", MAX_SUPPRESSED, vocab - 1),
        max_initial=None if fields.is_null("max_initial") else fields.count("max_initial", vocab - 1),
        tick_ms=fields.count("tick_ms", 1000, least=1),
    )


def languages_line(codes: Collection[str]) -> str:
    """Codes of languages, for people."""
    return ", ".join(sorted(codes)) or "none"
