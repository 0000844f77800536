"""A mesh of processes that offers a random model of Whisper's kind, and one that asks it, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.member.transcription import Transcriber
from peer.model.sound import Samples
from peer.model.speech_asked import Segment, SpeechAsked
from peer.state.decoder_sight import seen_as
from planner.importers.decoder_units import build_model
from planner.importers.speech.storing import put_encoded
from planner.importers.speech.whisper import open_whisper
from planner.model.store import Store
from tests.e2e.command import Running, running
from tests.patience import WITHIN_S
from tests.planner.importers.speech.whisper_folders import write

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
        both: list[Any] = [*plan.stages, *offer.stages]
        holders = [(stage.primary, *stage.standbys) for stage in both]
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
