"""A recording goes on being written, with the same words, when a peer of the decoder or of the encoder is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from peer.member.transcription import open_transcriber
from peer.model.speech_asked import Segment, SpeechAsked
from peer.state.decoder_sight import seen_as
from peer.wire.generated.frames import Open
from peer.wire.tensors import Tensor
from tests.e2e.speech_mesh import MOST_TOKENS, NAME, samples, started, written
from tests.planner.importers.speech.sounds import long_sound

MINUTE = 60 * 16000


class Killer:
    """Calls `kill` when `count` tokens of sessions have come."""

    def __init__(self, count: int, kill: Callable[[], None]) -> None:
        self.left = count
        self.kill = kill

    def opened(self, frame: Open) -> None:
        """A turn begins."""

    def emitted(self, session: bytes, position: int) -> None:
        self.left -= 1
        if not self.left:
            self.kill()

    def ended(self, session: bytes) -> None:
        """An answer is over."""

    def returned(self, session: bytes, position: int, state: Tensor) -> None:
        """A state came back."""


@pytest.mark.soak
async def test_who_computes_may_be_lost_in_the_middle(tmp_path: Path) -> None:
    async with started(tmp_path, "small", "a", "b", protection="high") as town:
        model = await open_transcriber(town.asker)
        asked, sound = SpeechAsked("en", max_tokens=MOST_TOKENS), samples(long_sound()[:MINUTE])
        calm = await written(model, sound, asked)

        # Whoever computes the first stage of the decoder is lost in the middle of the second window.
        plan = seen_as(town.asker.view.state, NAME).serving()
        assert plan is not None
        lost = town.name_of(plan.stages[0].primary)
        sessions = (await town.asker.answering(NAME)).sessions
        killer = Killer(MOST_TOKENS + 10, town.processes[lost].process.kill)
        unsubscribe = sessions.subscribe(killer)
        assert await written(model, sound, asked) == calm
        assert killer.left < 0
        unsubscribe()

        # And now whoever computes the encoder, before the second window is encoded.
        town.add("c")
        await town.until(lambda: lost not in town.members() and "c" in town.members() and town.runs(3))
        offer = town.asker.view.state.offers[f"{NAME}.encoder"]
        got: list[Segment] = []
        async for window in model.written(sound, asked):
            if not got:
                town.processes[town.name_of(offer.stages[0].primary)].process.kill()
            got += window.segments
        assert got == calm
        await model.close()
