"""How a model writes what is said. Pure.

Either a decoder does: which encoder reads sound, its spectrogram, and the tokens that steer it. It begins each
conversation with `rows` rows that the encoder made of `frames` frames; its tokens stand behind them. Or a model of
sound alone does, which says of each frame how likely each token is.
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
MAX_CTC_TOKENS: Final = 1 << 16
MAX_CTC_CHARS: Final = 64  # of one token
MAX_HOP: Final = RATE  # samples that one frame is made of


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


@dataclass(frozen=True, slots=True)
class CtcText:
    """What a model of sound alone writes, by connectionist temporal classification (Graves et al., 2006). `input`:
    float32 (1, samples), RATE a second, between -1 and 1; `logits`: the output float32 (1, frames, tokens). A frame is
    made of `seen` samples and begins `hop` behind the one before it. `tokens`: their texts, "" for one without;
    `blank`: the token of a frame that nothing new is said in; `space`: the one between words, None where there is none.
    """

    input: str
    logits: str
    tokens: tuple[str, ...]
    blank: int
    space: int | None
    hop: int
    seen: int

    def frames(self, samples: int) -> int:
        """How many frames so many samples make."""
        return max(0, (samples - self.seen) // self.hop + 1)


def ctc_document(text: CtcText) -> dict[str, object]:
    """Returns the JSON form; ctc_of reads it."""
    return {
        "input": text.input,
        "logits": text.logits,
        "tokens": list(text.tokens),
        "blank": text.blank,
        "space": text.space,
        "hop": text.hop,
        "seen": text.seen,
    }


def ctc_of(fields: Fields, name_chars: int) -> CtcText:
    """Reads the JSON form; names of values have up to `name_chars` characters. Raises CorruptStore."""
    tokens = fields.texts("tokens", MAX_CTC_TOKENS, MAX_CTC_CHARS)
    if not tokens:
        raise CorruptStore(f"{fields.place}.tokens: at least one text expected")
    seen = fields.count("seen", MAX_HOP, least=1)
    return CtcText(
        input=fields.text("input", name_chars),
        logits=fields.text("logits", name_chars),
        tokens=tokens,
        blank=fields.count("blank", len(tokens) - 1),
        space=None if fields.is_null("space") else fields.count("space", len(tokens) - 1),
        hop=fields.count("hop", seen, least=1),
        seen=seen,
    )


def languages_line(codes: Collection[str]) -> str:
    """Codes of languages, for people."""
    return ", ".join(sorted(codes)) or "none"
