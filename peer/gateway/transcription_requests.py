"""What a program asks of a recording in OpenAI's form: its fields, checked before anything is decoded. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from peer.errors import ApiError
from peer.model.speech_asked import Segment, SpeechAsked
from peer.model.subtitles import plain, srt, vtt
from peer.session.sampling import GREEDY, Sampling

Form = Literal["json", "text", "srt", "vtt", "verbose_json"]
MOST_TEMPERATURE: Final = 1.0
SEGMENT: Final = "segment"
WORD: Final = "word"
GRANULARITIES: Final = (SEGMENT, WORD)
FIELDS: Final = frozenset(
    (
        "model",
        "language",
        "prompt",
        "response_format",
        "temperature",
        "timestamp_granularities[]",
        "stream",
        "chunking_strategy",
        "include[]",
    )
)


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A request whose fields are checked. `form`: of what comes back; `stream`: as events; `segments`, `words`: these
    have times in verbose_json.
    """

    model: str
    asked: SpeechAsked
    form: Form
    stream: bool
    segments: bool = True
    words: bool = False


def speech_request(fields: Mapping[str, Sequence[str]], seed: int, *, translated: bool) -> SpeechRequest:
    """Reads the fields of a form, each with all its values. `seed`: of what is drawn by chance. Raises ApiError."""
    for name, values in fields.items():
        if name not in FIELDS:
            raise _refused(f"the field {name!r:.80} is not supported", name)
        if len(values) > 1 and not name.endswith("[]"):
            raise ApiError(f"the field {name} is given {len(values)} times, expected once", param=name)
    said = {name: values[0] for name, values in fields.items() if not name.endswith("[]")}
    if not said.get("model"):
        raise ApiError("expected the field model", param="model")
    if said.get("prompt"):
        raise _refused("a text before the recording is not supported: leave prompt out", "prompt")
    if said.get("chunking_strategy", "auto") != "auto":
        raise _refused("chunking_strategy other than auto is not supported", "chunking_strategy")
    if fields.get("include[]"):
        raise _refused("include is not supported: probabilities of tokens are not told", "include")
    times = fields.get("timestamp_granularities[]", ())
    for each in times:
        if each not in GRANULARITIES:
            raise ApiError(
                f"expected timestamp_granularities {' or '.join(GRANULARITIES)}, got {each!r:.40}",
                param="timestamp_granularities",
            )
    if translated and said.get("language"):
        raise _refused("a translation is into English always: leave language out", "language")
    form = said.get("response_format", "json")
    if form not in get_args(Form):
        raise ApiError(
            f"expected response_format {', '.join(get_args(Form))}, got {form!r:.40}", param="response_format"
        )
    stream = _flag(said.get("stream", "false"))
    if stream and form != "json":
        raise ApiError("a stream has response_format json", param="response_format")
    if WORD in times and form != "verbose_json":
        raise ApiError("times of words need response_format verbose_json", param="timestamp_granularities")
    asked = SpeechAsked(
        said.get("language") or None,
        translated,
        words=WORD in times,
        sampling=_sampling(said.get("temperature", "0"), seed),
    )
    return SpeechRequest(
        said["model"],
        asked,
        form,  # type: ignore[arg-type]  # one of its forms
        stream,
        not times or SEGMENT in times,
        WORD in times,
    )


def _refused(text: str, param: str) -> ApiError:
    return ApiError(text, param=param, code="unsupported_parameter")


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ApiError(f"expected stream true or false, got {value!r:.40}", param="stream")
    return value.lower() == "true"


def _sampling(value: str, seed: int) -> Sampling:
    try:
        temperature = float(value)
    except ValueError:
        temperature = -1.0
    if not 0 <= temperature <= MOST_TEMPERATURE:
        raise ApiError(
            f"expected temperature from 0 to {MOST_TEMPERATURE:g}, got {value!r:.40}", param="temperature"
        )
    return Sampling(temperature, seed=seed) if temperature else GREEDY


# --- what comes back ---------------------------------------------------------------------------------------


def answer(
    request: SpeechRequest, parts: Sequence[Segment], language: str, seconds: float
) -> tuple[str, str]:
    """The body and its content type. `language`: a code, "" where the model knows one; `seconds`: of the recording."""
    match request.form:
        case "text":
            return plain(parts) + "\n", "text/plain"
        case "srt":
            return srt(parts), "text/plain"
        case "vtt":
            return vtt(parts), "text/vtt"
        case "json":
            return _json({"text": plain(parts), "usage": usage(seconds)}), "application/json"
        case "verbose_json":
            shown: dict[str, Any] = {
                "task": "translate" if request.asked.translated else "transcribe",
                "language": language or "en",
                "duration": round(seconds, 3),
                "text": plain(parts),
                "usage": usage(seconds),
            }
            if request.segments:
                shown["segments"] = [
                    _segment(number, part, request.asked.sampling.temperature)
                    for number, part in enumerate(parts)
                ]
            if request.words:
                shown["words"] = [
                    {"word": word.text, "start": word.start_ms / 1000, "end": word.end_ms / 1000}
                    for part in parts
                    for word in part.words
                ]
            return _json(shown), "application/json"


def usage(seconds: float) -> dict[str, Any]:
    """What a recording counts as."""
    return {"type": "duration", "seconds": -int(-seconds // 1)}


def delta(text: str) -> bytes:
    """An event with words that are new."""
    return _event({"type": "transcript.text.delta", "delta": text})


def done(text: str, seconds: float) -> bytes:
    """The last event, with all words."""
    return _event({"type": "transcript.text.done", "text": text, "usage": usage(seconds)})


def failed(text: str) -> bytes:
    """The last event of a stream that breaks off."""
    return _event(
        {"error": {"message": text, "type": "server_error", "param": None, "code": "answer_failed"}}
    )


def _event(part: Mapping[str, Any]) -> bytes:
    return f"data: {_json(part)}\n\n".encode()


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _segment(number: int, part: Segment, temperature: float) -> dict[str, Any]:
    encoded = part.text.encode()
    return {
        "id": number,
        "seek": part.start_ms // 10,
        "start": part.start_ms / 1000,
        "end": part.end_ms / 1000,
        "text": part.text,
        "tokens": list(part.tokens),
        "temperature": temperature,
        "avg_logprob": part.mean_log_share,
        "compression_ratio": len(encoded) / len(zlib.compress(encoded)),
    }
