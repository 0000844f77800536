"""What is said in a recording, written by a model of the mesh: its encoder by runs, its decoder by sessions; or one of
sound alone, by runs (peer.origin.ctc_writer). Edge.

A window of sound is a conversation that begins with the rows of the encoder. So what stages made of these rows, keys
and values of every block, is in their caches, and survives a lost peer as other caches do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from peer.errors import (
    AnswerFailed,
    BadCommand,
    CannotServe,
    MeshFull,
    MustContribute,
    NoPlan,
    PeerError,
    RunFailed,
    TransportError,
)
from peer.member.mesh_member import MeshMember
from peer.model.sound import Samples, Spectrogram, window_of
from peer.model.speech_asked import Segment, SpeechAsked, Written
from peer.model.speech_rules import FRAMES_OF_S, Floats, Said, Writing, language_of, parts_of
from peer.origin.answer_stream import Conversation, Delta, Settings
from peer.origin.answering_model import AnsweringModel
from peer.origin.ctc_writer import CtcWriter
from peer.origin.pinned_ends import OwnEnds
from peer.origin.run_client import RunClient
from peer.origin.speech_ends import SpeechEnds, by_rules
from peer.state.mesh_state import MeshState
from planner.errors import PlannerError
from planner.model.manifest import Manifest
from planner.model.speech import Speech, languages_line

LEARNT_WITHIN_S: Final = 5.0  # what is not here by then writes no speech as yet
AGAIN_S: Final = 0.5  # after a window that broke off, since a peer that is lost may still be in the plan
AGAIN_WITHIN_S: Final = 60.0  # as long as a mesh takes to place again what was lost
MEL: Final = "mel"  # the input of an encoder
ENCODED: Final = "encoded"  # its output

log = logging.getLogger(__name__)


class Transcriber(Protocol):
    """A model of the mesh that writes what is said, as this peer asks it. Several recordings may be written at once."""

    @property
    def name(self) -> str:
        """Under which the mesh offers it."""

    @property
    def model_id(self) -> str:
        """Its id."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that it knows; none where it knows one only."""

    def check(self, asked: SpeechAsked) -> None:
        """Raises BadCommand for what this model cannot do."""

    def written(self, samples: Samples, asked: SpeechAsked) -> AsyncGenerator[Written]:
        """What is said, a window at a time. `samples`: int16 (samples,), 16 kHz. Leaving the loop ends the work.

        Raises BadCommand for what the model cannot do, NoPlan, AnswerFailed, RunFailed, CannotServe.
        """

    async def close(self) -> None:
        """Gives back what is held for it here."""


class DecoderTranscriber:
    """One whose decoder writes tokens of what its encoder made of a window of sound."""

    def __init__(
        self, mesh: MeshMember, name: str, answering: AnsweringModel, manifest: Manifest, ends: OwnEnds
    ) -> None:
        """`ends`: of the decoder; they are closed with it. `manifest` says that it writes speech."""
        assert manifest.speech is not None
        self._name = name
        self._model_id = answering.chosen.model
        self.speech: Speech = manifest.speech
        self._mesh = mesh
        self._answering = answering
        self._manifest = manifest
        self._ends = ends
        path = answering.model.store.blob_path(self.speech.spectrogram.sha256)
        self._spectrogram = Spectrogram(path, self.speech, 1)
        self._one = asyncio.Lock()  # the spectrogram makes one at a time

    @property
    def name(self) -> str:
        """Under which the mesh offers it."""
        return self._name

    @property
    def model_id(self) -> str:
        """Its id."""
        return self._model_id

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that it knows; none where it knows one only."""
        return tuple(sorted(self.speech.languages))

    def check(self, asked: SpeechAsked) -> None:
        """Raises BadCommand for what this model cannot do."""
        if (
            asked.language is not None
            and self.speech.languages
            and asked.language not in self.speech.languages
        ):
            raise BadCommand(
                f"{self.name} does not know the language {asked.language!r:.40}; it knows "
                f"{languages_line(self.speech.languages)}"
            )
        if asked.translated and self.speech.translate is None:
            raise BadCommand(f"{self.name} does not translate: expected a model of several languages")
        if asked.words:
            raise BadCommand(f"{self.name} tells times of segments, not of words")
        room = self._manifest.context - self.speech.rows
        if asked.max_tokens is not None and not 1 <= asked.max_tokens <= room:
            raise BadCommand(f"expected 1 to {room} tokens of a window, got {asked.max_tokens}")

    async def written(self, samples: Samples, asked: SpeechAsked) -> AsyncGenerator[Written]:
        """What is said, a window at a time. `samples`: int16 (samples,), 16 kHz. Leaving the loop ends the work.

        Raises BadCommand for what the model cannot do, NoPlan, AnswerFailed, RunFailed, CannotServe.
        """
        self.check(asked)
        async with self._one:
            frames = await asyncio.to_thread(self._spectrogram.frames, samples)
        ends = SpeechEnds(self._ends, self._manifest.vocab)
        run = await self._mesh.open_run(self._encoder())
        session = self._answering.new_session()
        conversation = Conversation(self._answering.sessions, self._answering.model.prompts, session, ends)
        try:
            async with aclosing(self._windows(frames, asked, run, conversation, ends)) as windows:
                async for window in windows:
                    yield window
        finally:
            with suppress(Exception):  # the mesh may be gone already, and said so
                conversation.close()
            await run.close()

    async def close(self) -> None:
        """Gives back the memory of the ends."""
        await self._ends.close()

    async def _windows(
        self, frames: Floats, asked: SpeechAsked, run: RunClient, conversation: Conversation, ends: SpeechEnds
    ) -> AsyncGenerator[Written]:
        speech, total, seek = self.speech, frames.shape[1], 0
        writing = Writing(speech, min(self._manifest.end_tokens), None, asked.translated, asked.times)
        if asked.language is not None and speech.languages:
            writing = replace(writing, language=speech.languages[asked.language])
        while seek < total:
            count = min(total - seek, speech.frames)
            rows = await self._encoded(run, window_of(frames, seek, speech.frames))
            if writing.language is None and speech.languages:
                prompt = ends.window(rows, (speech.start,), lambda logits, _: _alone(logits, speech))
                (language,) = await _tokens(
                    conversation, ends, prompt, Settings(max_tokens=1, ignore_end=True)
                )
                writing = replace(writing, language=language)
                prompt = ends.again(writing.prompt, by_rules(writing))
            else:
                prompt = ends.window(rows, writing.prompt, by_rules(writing))
            settings = Settings(sampling=asked.sampling, max_tokens=asked.max_tokens)
            found = await _tokens(conversation, ends, prompt, settings)
            tokens = [token for token in found if token != writing.end]
            shares = ends.log_shares
            parts, later = parts_of(tokens, speech, seek, count)
            mean = sum(shares) / len(shares) if shares else 0.0
            seek += later
            yield Written(
                tuple(self._segment(part, writing.end, mean) for part in parts),
                min(seek, total) * 1000 // FRAMES_OF_S,
                total * 1000 // FRAMES_OF_S,
                next((code for code, each in speech.languages.items() if each == writing.language), ""),
            )

    def _segment(self, part: Said, end: int, mean: float) -> Segment:
        words = [token for token in part.tokens if token < end]
        text = self._answering.model.text.decode(words)
        return Segment(part.start_ms, part.end_ms, text, part.tokens, mean)

    def _encoder(self) -> str:
        """The name under which the mesh offers the encoder. Raises NoPlan."""
        for name, offer in sorted(self._mesh.view.state.offers.items()):
            if offer.model == self.speech.encoder:
                return name
        raise NoPlan(f"this mesh does not run the encoder of {self.name}: shoal offer LINK has it run both")

    async def _encoded(self, run: RunClient, window: Floats) -> Floats:
        """float32 (rows, width). Raises RunFailed."""
        made = (await run.run({MEL: window}))[ENCODED]
        expected = (1, self.speech.rows, self._manifest.hidden)
        if made.shape != expected or not np.isfinite(made).all():
            raise RunFailed(f"the encoder of {self.name} made no finite numbers of shape {expected}")
        rows: Floats = made[0].astype(np.float32, copy=False)
        return rows


def _alone(logits: Floats, speech: Speech) -> Floats:
    """The logits of the likeliest language alone."""
    language = language_of(logits, speech)
    found = np.full_like(logits, -np.inf)
    found[language] = logits[language]
    return found


async def _tokens(
    conversation: Conversation, ends: SpeechEnds, prompt: tuple[int, ...], settings: Settings
) -> list[int]:
    """The tokens of a window, which is begun again where it breaks off: it would be written with the same words."""
    until = time.monotonic() + AGAIN_WITHIN_S
    while True:
        ends.forget()
        try:
            return await _tokens_once(conversation, prompt, settings)
        except (AnswerFailed, TransportError) as error:
            if isinstance(error, MeshFull | MustContribute) or time.monotonic() >= until:
                raise
            log.info("a window is written again: %s", error)
        await asyncio.sleep(AGAIN_S)


async def _tokens_once(conversation: Conversation, prompt: tuple[int, ...], settings: Settings) -> list[int]:
    found: list[int] = []
    async with aclosing(conversation.tokens(prompt, settings)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Delta) and piece.token >= 0:
                found.append(piece.token)
    return found


class SpeechModels:
    """The models of a mesh that write what is said, as far as `look` has learnt what is offered."""

    def __init__(self, mesh: MeshMember) -> None:
        self._mesh = mesh
        self._known: dict[str, bool] = {}  # by model id: whether it writes speech

    async def look(self) -> None:
        """Learns what is offered now."""
        state = self._mesh.view.state
        wanted = {model: name for name, model in _offered(state).items()}
        self._known = {model: known for model, known in self._known.items() if model in wanted}
        missing = [name for model, name in wanted.items() if model not in self._known]
        with suppress(TimeoutError):
            async with asyncio.timeout(LEARNT_WITHIN_S):
                await asyncio.gather(*map(self._learn, missing))

    @property
    def found(self) -> dict[str, str]:
        """Ids by name, sorted."""
        every = _offered(self._mesh.view.state)
        return {name: model for name, model in sorted(every.items()) if self._known.get(model)}

    def pick(self, called: str | None) -> str:
        """The name of the model of this name or id; of None: of the only one. Raises NoPlan, CannotServe."""
        found = self.found
        have = f"it has {', '.join(found)}" if found else "shoal offer has it run one"
        if called is None and len(found) == 1:
            return next(iter(found))
        if called is None and found:
            raise NoPlan(f"say which of {len(found)} models is to write what is said: {', '.join(found)}")
        for name, model in found.items():
            if called in (name, model):
                return name
        state = self._mesh.view.state
        if called is not None and (called in state.decoders or called in state.offers):
            raise CannotServe(f"{called} does not write what is said: {have}")
        which = f"no model {called} that writes" if called is not None else "no model that writes"
        raise NoPlan(f"this mesh has {which} what is said: {have}")

    async def _learn(self, name: str) -> None:
        with suppress(PeerError, PlannerError):  # who asks it by name hears why
            offer = self._mesh.view.state.offers.get(name)
            if offer is not None:
                graph = await self._mesh.graph_manifest(offer.model)
                self._known[offer.model] = graph.ctc is not None
                return
            answering = await self._mesh.answering(name)
            manifest = answering.model.manifest
            if manifest is not None:
                self._known[answering.chosen.model] = manifest.speech is not None


def _offered(state: MeshState) -> dict[str, str]:
    """Ids by name of all that a mesh offers: graphs, and models with a decoder."""
    graphs = {name: offer.model for name, offer in state.offers.items()}
    return graphs | {name: decoder.model for name, decoder in state.decoders.items()}


async def open_transcriber(mesh: MeshMember, called: str | None = None, threads: int = 1) -> Transcriber:
    """A model that writes what is said, by its name or id; None: the only one. Close it when it is over.

    Embedding and head of a decoder are fetched and run here. Raises NoPlan, CannotServe, CorruptStore.
    """
    models = SpeechModels(mesh)
    await models.look()
    name = models.pick(called)
    offer = mesh.view.state.offers.get(name)
    if offer is not None:
        graph = await mesh.graph_manifest(offer.model)
        if graph.ctc is None:
            raise CannotServe(f"{name} does not write what is said")
        return CtcWriter(name, offer.model, graph.ctc, mesh.open_run)
    answering = await mesh.answering(name)
    manifest = answering.model.manifest
    if manifest is None or manifest.speech is None:
        raise CannotServe(f"{name} does not write what is said")
    await mesh.fetch([manifest.speech.spectrogram])
    ends = await mesh.ends_of(answering.model, threads)
    try:
        return DecoderTranscriber(mesh, name, answering, manifest, ends)
    except Exception as error:  # whatever the engine says of a file from elsewhere
        await ends.close()
        raise CannotServe(f"the spectrogram of {name} cannot be run: {str(error)[:200]}") from None
