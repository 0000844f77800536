"""A random model of Whisper's kind over several peers writes the tokens that transformers writes of a spoken file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.member.transcription import Segment, SpeechAsked, Transcriber, open_transcriber
from peer.model.sound import Samples
from peer.state.decoder_sight import seen_as
from planner.importers.decoder_units import build_model
from planner.importers.speech.storing import put_encoded
from planner.importers.speech.whisper import open_whisper
from planner.model.store import Store
from tests.e2e.command import Running, running
from tests.patience import WITHIN_S
from tests.planner.importers.speech.sounds import long_sound, spoken
from tests.planner.importers.speech.whisper_folders import REFERENCE, write

COMMON = ("--memory", "1GiB", "--bind", "127.0.0.1")
MOST_TOKENS = 40  # of a window, as in the reference
NAME = "speaker"


def samples(sound: Any) -> Samples:
    return np.rint(sound * 32768).astype(np.int16)


@dataclass
class Town:
    """A signaling server, peers in processes of their own by name, and one that only asks, in this process."""

    home: Path
    store: Path
    stack: AsyncExitStack
    link: str = ""
    asker: MeshMember = field(init=False)
    processes: dict[str, Running] = field(default_factory=dict)

    def add(self, name: str) -> None:
        state = ("--state", self.home / name)
        words = ["join", self.link, "--name", name, *state, "--store", self.store, *COMMON]
        self.processes[name] = self.stack.enter_context(running(self.home, *words))

    def name_of(self, peer: str | None) -> str:
        member = self.asker.view.state.members.get(peer or "")
        return member.name if member is not None else ""

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
                await asyncio.sleep(0.02)

    def runs(self, peers: int) -> bool:
        """The encoder has a place, and the decoder is served; on so many peers at least where there are standbys."""
        state = self.asker.view.state
        plan = seen_as(state, NAME).serving() if NAME in state.decoders else None
        offer = state.offers.get(f"{NAME}.encoder")
        if plan is None or offer is None or not offer.stages:
            return False
        if peers < 3:
            return True
        doubled = all(
            any(
                (stage.first, stage.stop) in state.decoders[NAME].held.get(peer, ())
                for peer in stage.standbys
            )
            for stage in plan.stages
        )
        return doubled and all(stage.standbys for stage in offer.stages)


@asynccontextmanager
async def started(home: Path, shape: str, *peers: str, protection: str = "basic") -> AsyncIterator[Town]:
    store = Store(home / "store")
    source = open_whisper(write(home / NAME, shape), NAME)
    speech = await asyncio.to_thread(put_encoded, source, store)
    model = build_model(source, "f32", store, speech=speech)
    async with AsyncExitStack() as stack:
        meeting = stack.enter_context(running(home, "signaling", "--port", "0", "--store", store.root))
        url = meeting.until(r"^http://\S+")[0]
        town = Town(home, store.root, stack)
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
        words += ["--protection", protection, "--store", store.root, *COMMON]
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


async def check(town: Town, reference: dict[str, Any]) -> None:
    model = await open_transcriber(town.asker)
    try:
        for case, asked in CASES.items():
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


@pytest.mark.parametrize("shape", ["small", pytest.param("tiny", marks=pytest.mark.soak)])
async def test_two_peers_write_what_transformers_writes(tmp_path: Path, shape: str) -> None:
    async with started(tmp_path, shape, "a") as town:
        await check(town, json.loads((REFERENCE / f"{shape}.json").read_text()))
