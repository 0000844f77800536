"""A random model of Whisper's kind over several peers writes the tokens that transformers writes of a spoken file."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from peer.gateway.server import GatewayOptions, gateway
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.member.transcription import Transcriber, open_transcriber
from peer.model.sound import Samples
from peer.model.speech_asked import Segment, SpeechAsked
from peer.state.decoder_sight import seen_as
from planner.importers.decoder_units import build_model
from planner.importers.speech.storing import put_encoded
from planner.importers.speech.whisper import open_whisper
from planner.model.store import Store
from tests.e2e.command import Running, run, running
from tests.patience import WITHIN_S
from tests.planner.importers.speech.sounds import long_sound, spoken
from tests.planner.importers.speech.whisper_folders import END, REFERENCE, SPOKEN, write

COMMON = ("--bind", "127.0.0.1")
PLENTY = "1GiB"
ONE_OF_BOTH = "540MiB"  # for the decoder of the size of Whisper-tiny or its encoder, not for both
MOST_TOKENS = 20  # of a window, as in the reference
NAME = "speaker"


def samples(sound: Any) -> Samples:
    return np.rint(sound * 32768).astype(np.int16)


@dataclass
class Town:
    """A signaling server, peers in processes of their own by name, and one that only asks, in this process."""

    home: Path
    store: Path
    memory: str
    stack: AsyncExitStack
    link: str = ""
    asker: MeshMember = field(init=False)
    processes: dict[str, Running] = field(default_factory=dict)

    def add(self, name: str) -> None:
        state = ("--state", self.home / name)
        words = [
            "join",
            self.link,
            "--name",
            name,
            *state,
            "--store",
            self.store,
            "--memory",
            self.memory,
            *COMMON,
        ]
        self.processes[name] = self.stack.enter_context(running(self.home, *words))

    def name_of(self, peer: str | None) -> str:
        member = self.asker.view.state.members.get(peer or "")
        return member.name if member is not None else ""

    def holders(self, part: str) -> set[str]:
        """Who computes the encoder, or the decoder, by name."""
        state = self.asker.view.state
        plan = seen_as(state, NAME).serving()
        assert plan is not None
        stages = plan.stages if part == "decoder" else state.offers[f"{NAME}.encoder"].stages
        return {self.name_of(stage.primary) for stage in stages}

    def members(self) -> set[str]:
        return {member.name for member in self.asker.view.state.members.values()}

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
                await asyncio.sleep(0.02)

    def runs(self, peers: int) -> bool:
        """Encoder and decoder run on members; of three peers or more, each unit has a standby."""
        state = self.asker.view.state
        plan = seen_as(state, NAME).serving() if NAME in state.decoders else None
        offer = state.offers.get(f"{NAME}.encoder")
        if plan is None or offer is None or not offer.stages:
            return False
        held = state.decoders[NAME].held
        holders = [(stage.primary, *stage.standbys) for stage in (*plan.stages, *offer.stages)]
        if not all(peer in state.members for stage in holders for peer in stage):
            return False
        ready = [
            any((stage.first, stage.stop) in held.get(peer, ()) for peer in stage.standbys)
            for stage in plan.stages
        ]
        return peers < 3 or (all(ready) and all(len(stage) > 1 for stage in holders))


@asynccontextmanager
async def started(
    home: Path, shape: str, *peers: str, protection: str = "basic", memory: str = PLENTY
) -> AsyncIterator[Town]:
    store = Store(home / "store")
    source = open_whisper(write(home / NAME, shape), NAME)
    speech = await asyncio.to_thread(put_encoded, source, store)
    model = build_model(source, "f32", store, speech=speech)
    async with AsyncExitStack() as stack:
        meeting = stack.enter_context(running(home, "signaling", "--port", "0", "--store", store.root))
        url = meeting.until(r"^http://\S+")[0]
        town = Town(home, store.root, memory, stack)
        words = [
            "serve",
            model,
            "--signaling",
            url,
            "--name",
            "founder",
            "--keep",
            "--state",
            home / "founder",
        ]
        words += ["--protection", protection, "--store", store.root, "--memory", memory, *COMMON]
        founder = town.processes["founder"] = stack.enter_context(running(home, *words))
        town.link = founder.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        options = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
        town.asker = await stack.enter_async_context(join(town.link, options, store))
        for name in peers:
            town.add(name)
        await town.until(lambda: town.runs(1 + len(peers)))
        yield town


async def written(model: Transcriber, sound: Samples, asked: SpeechAsked) -> list[Segment]:
    return [part async for window in model.written(sound, asked) for part in window.segments]


def tokens_of(parts: list[Segment]) -> list[int]:
    return [token for part in parts for token in part.tokens]


CASES: dict[str, SpeechAsked] = {
    "en": SpeechAsked("en", times=False, max_tokens=MOST_TOKENS),
    "en, times": SpeechAsked("en", max_tokens=MOST_TOKENS),
    "de, translated, times": SpeechAsked("de", translated=True, max_tokens=MOST_TOKENS),
    "detected": SpeechAsked(times=False, max_tokens=MOST_TOKENS),
    "detected, times": SpeechAsked(max_tokens=MOST_TOKENS),
}


async def check(town: Town, reference: dict[str, Any], *cases: str) -> None:
    model = await open_transcriber(town.asker)
    try:
        for case in cases:
            asked = CASES[case]
            expected = reference["cases"][case]["tokens"]
            assert tokens_of(await written(model, samples(spoken()), asked)) == expected, case
        parts = await written(model, samples(long_sound()), SpeechAsked("en", max_tokens=MOST_TOKENS))
        got = [[part.start_ms, part.end_ms, list(part.tokens)] for part in parts]
        expected = [
            [round(1000 * start), round(1000 * end), tokens]
            for start, end, tokens in reference["long"]["segments"]
        ]
        assert got == expected
    finally:
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
        with pytest.raises(BadRequestError, match="words have none"):
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
        await check(town, reference, "en, times", "de, translated, times", "detected")
        assert await by_program(town, reference) == await asyncio.to_thread(by_command, town)


@pytest.mark.soak
async def test_so_does_a_model_of_the_size_of_whisper_tiny(tmp_path: Path) -> None:
    async with started(tmp_path, "tiny", "a", memory=ONE_OF_BOTH) as town:
        assert town.holders("encoder").isdisjoint(town.holders("decoder"))
        await check(town, json.loads((REFERENCE / "tiny.json").read_text()), *CASES)
