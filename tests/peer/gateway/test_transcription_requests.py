"""Fields of a form that asks for what is said, and what comes back."""

from __future__ import annotations

import json

import pytest

from peer.errors import ApiError
from peer.gateway.transcription_requests import answer, speech_request
from peer.model.speech_asked import Segment, SpeechAsked, Word
from peer.session.sampling import Sampling

PART = Segment(500, 2000, " Hello.", (1, 2), -0.25)


def test_fields_say_how_a_recording_is_written() -> None:
    fields = {"model": ["m"], "language": ["en"], "response_format": ["vtt"], "temperature": ["0.5"]}
    found = speech_request(fields, 7, translated=False)
    assert (found.model, found.form, found.stream) == ("m", "vtt", False)
    assert found.asked == SpeechAsked("en", sampling=Sampling(0.5, seed=7))
    assert speech_request({"model": ["m"]}, 7, translated=True).asked == SpeechAsked(translated=True)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "expected the field model"),
        ({"best_of": ["5"]}, "'best_of' is not supported"),
        ({"language": ["en", "de"]}, "is given 2 times"),
        ({"prompt": ["Dr. Who"]}, "leave prompt out"),
        ({"include[]": ["logprobs"]}, "include is not supported"),
        ({"chunking_strategy": ["server_vad"]}, "other than auto"),
        ({"timestamp_granularities[]": ["segment", "word"]}, "times of words need response_format"),
        ({"timestamp_granularities[]": ["letter"]}, "expected timestamp_granularities segment or word"),
        ({"response_format": ["xml"]}, "expected response_format json, text"),
        ({"stream": ["yes"]}, "expected stream true or false"),
        ({"stream": ["true"], "response_format": ["srt"]}, "a stream has response_format json"),
        ({"temperature": ["hot"]}, "expected temperature from 0 to 1"),
        ({"temperature": ["nan"]}, "expected temperature from 0 to 1"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, list[str]], says: str) -> None:
    with pytest.raises(ApiError, match=says):
        speech_request({**({"model": ["m"]} if fields else {}), **fields}, 0, translated=False)


def test_a_translation_takes_no_language() -> None:
    with pytest.raises(ApiError, match="leave language out"):
        speech_request({"model": ["m"], "language": ["de"]}, 0, translated=True)


def test_segments_have_what_clients_read() -> None:
    asked = speech_request({"model": ["m"], "response_format": ["verbose_json"]}, 0, translated=False)
    body, kind = answer(asked, [PART], "de", 2.5)
    assert kind == "application/json"
    told = json.loads(body)
    assert (told["language"], told["duration"], told["text"]) == ("de", 2.5, "Hello.")
    (segment,) = told["segments"]
    assert (segment["start"], segment["end"], segment["tokens"]) == (0.5, 2.0, [1, 2])
    assert told["usage"] == {"type": "duration", "seconds": 3}


@pytest.mark.parametrize(
    ("granularities", "told"),
    [((), {"segments"}), (("word",), {"words"}), (("segment", "word"), {"segments", "words"})],
)
def test_words_have_times_where_they_are_asked_for(granularities: tuple[str, ...], told: set[str]) -> None:
    fields = {
        "model": ["m"],
        "response_format": ["verbose_json"],
        "timestamp_granularities[]": list(granularities),
    }
    asked = speech_request(fields, 0, translated=False)
    assert asked.asked.words == ("word" in granularities)
    part = Segment(500, 900, " Hello", (1,), -0.25, (Word(500, 900, "Hello"),))
    shown = json.loads(answer(asked, [part], "", 2.5)[0])
    assert shown.keys() & {"segments", "words"} == told
    if "words" in told:
        assert shown["words"] == [{"word": "Hello", "start": 0.5, "end": 0.9}]
