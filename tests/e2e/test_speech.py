"""A random model of Whisper's kind over several peers writes the tokens that transformers writes of a spoken file."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from peer.gateway.server import GatewayOptions, gateway
from peer.member.transcription import open_transcriber
from peer.model.speech_asked import Segment, SpeechAsked
from tests.e2e.command import run
from tests.e2e.speech_mesh import MOST_TOKENS, NAME, ONE_OF_BOTH, Town, samples, started, written
from tests.patience import WITHIN_S
from tests.planner.importers.speech.sounds import long_sound, spoken
from tests.planner.importers.speech.whisper_folders import END, REFERENCE, SPOKEN


def tokens_of(parts: list[Segment]) -> list[int]:
    return [token for part in parts for token in part.tokens]


CASES: dict[str, SpeechAsked] = {
    "en": SpeechAsked("en", times=False, max_tokens=MOST_TOKENS),
    "en, times": SpeechAsked("en", max_tokens=MOST_TOKENS),
    "de, translated, times": SpeechAsked("de", translated=True, max_tokens=MOST_TOKENS),
    "detected": SpeechAsked(times=False, max_tokens=MOST_TOKENS),
    "detected, times": SpeechAsked(max_tokens=MOST_TOKENS),
}


async def check_cases(town: Town, reference: dict[str, Any], *cases: str) -> None:
    """The spoken file, as each case asks for it."""
    model = await open_transcriber(town.asker)
    for case in cases:
        expected = reference["cases"][case]["tokens"]
        assert tokens_of(await written(model, samples(spoken()), CASES[case])) == expected, case
    await model.close()


async def check_long(town: Town, reference: dict[str, Any]) -> None:
    """Three minutes, with times."""
    model = await open_transcriber(town.asker)
    parts = await written(model, samples(long_sound()), SpeechAsked("en", max_tokens=MOST_TOKENS))
    assert [[part.start_ms, part.end_ms, list(part.tokens)] for part in parts] == [
        [round(1000 * start), round(1000 * end), tokens]
        for start, end, tokens in reference["long"]["segments"]
    ]
    await model.close()


async def by_program(town: Town, reference: dict[str, Any]) -> str:
    """What the official client gets from a gateway, as text."""
    tokens = reference["cases"]["en, times, whole"]["tokens"]
    words = "".join(f"w{token} " for token in tokens if token < END)
    async with (
        gateway(town.asker, GatewayOptions(port=0)) as url,
        AsyncOpenAI(base_url=url, api_key="-") as client,
    ):
        asked: Any = client.audio.transcriptions

        async def answer(form: str, **more: Any) -> Any:
            return await asked.create(
                model=NAME, file=SPOKEN, language="en", response_format=form, timeout=WITHIN_S, **more
            )

        assert (await answer("json")).text == words.strip()
        lines = (await answer("srt")).splitlines()
        assert lines[0] == "1"
        assert lines[1].startswith("00:00:00,660 --> ")
        told = await answer("verbose_json", timestamp_granularities=["segment"])
        assert told.language == "en"
        assert [token for part in told.segments for token in part.tokens] == tokens
        events = [event async for event in await answer("json", stream=True)]
        assert [event.type for event in events[-2:]] == ["transcript.text.delta", "transcript.text.done"]
        assert events[-1].text == words.strip()
        with pytest.warns(DeprecationWarning, match="deprecated"):  # of the client, in favour of other names
            assert (await client.audio.translations.create(model=NAME, file=SPOKEN, timeout=WITHIN_S)).text
        with pytest.raises(BadRequestError, match="times of segments, not of words"):
            await answer("verbose_json", timestamp_granularities=["word"])
        with pytest.raises(BadRequestError, match="does not know the language 'xx'"):
            await asked.create(model=NAME, file=SPOKEN, language="xx")
        with pytest.raises(BadRequestError, match="sound expected"):
            await asked.create(model=NAME, file=("a.wav", b"no sound"))
        with pytest.raises(NotFoundError, match="no model nobody"):
            await asked.create(model="nobody", file=SPOKEN)
        with pytest.raises(BadRequestError, match="writes what is said"):
            await client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "hello"}])
        return words.strip() + "\n"


def by_command(town: Town) -> str:
    """What `shoal transcribe` prints; subtitles lie beside the recording."""
    recording = town.home / "talk.flac"
    shutil.copyfile(SPOKEN, recording)
    where = ("--store", town.store, "--state", town.home / "one", "--bind", "127.0.0.1")
    made = run(town.home, "transcribe", town.link, recording, "--language", "en", *where)
    assert made.status == 0, made.err
    assert "real-time factor" in made.err
    assert (town.home / "talk.srt").read_text().startswith("1\n00:00:00,660 --> ")
    return made.out


async def test_two_peers_write_what_transformers_writes(tmp_path: Path) -> None:
    async with started(tmp_path, "small", "a") as town:
        reference = json.loads((REFERENCE / "small.json").read_text())
        await check_cases(town, reference, "en, times", "de, translated, times", "detected")
        await by_program(town, reference)


@pytest.mark.soak
async def test_a_model_of_the_size_of_whisper_tiny_writes_three_minutes_too(tmp_path: Path) -> None:
    async with started(tmp_path, "tiny", "a", memory=ONE_OF_BOTH) as town:
        assert town.holders("encoder").isdisjoint(town.holders("decoder"))
        reference = json.loads((REFERENCE / "tiny.json").read_text())
        await check_cases(town, reference, *CASES)
        await check_long(town, reference)


@pytest.mark.soak
async def test_a_command_writes_subtitles_beside_a_recording(tmp_path: Path) -> None:
    async with started(tmp_path, "small", "a") as town:
        reference = json.loads((REFERENCE / "small.json").read_text())
        await check_long(town, reference)
        assert await by_program(town, reference) == await asyncio.to_thread(by_command, town)
