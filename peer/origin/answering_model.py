"""A model of the mesh that answers in words, as this peer asks it: the mesh's own, or a further one. Edge."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from peer.errors import BadCommand, CannotServe, NoPlan
from peer.limits import SESSION_BYTES
from peer.model.local_model import LocalModel
from peer.origin.answer_stream import Conversation
from peer.origin.session_host import SessionHost
from peer.origin.source_rows import OpenRun, Sourced, sourced
from peer.replication.decoder_view import ModelView
from peer.state.generated.commands import ModelChosen


@dataclass(frozen=True, slots=True)
class AnsweringModel:
    """`view` is the mesh as if this model were its own; `mark`: what the ids of its sessions begin with; `open_run`
    begins runs of models that it offers, None where source texts are not to be read.
    """

    view: ModelView
    model: LocalModel
    sessions: SessionHost
    mark: bytes = b""
    open_run: OpenRun | None = None

    @property
    def chosen(self) -> ModelChosen:
        """Its name, its id and what is promised. Raises NoPlan where it is not offered any more."""
        found = self.view.state.model
        if found is None:
            raise NoPlan("this model is not offered any more, or this peer is not in its mesh now: try again")
        return found

    @property
    def can_answer(self) -> bool:
        """Whether an answer could begin now."""
        return self.sessions.can_answer

    @property
    def answers_questions(self) -> bool:
        """Whether it is no model that writes what is said."""
        return self.model.manifest is None or self.model.manifest.speech is None

    def new_session(self) -> bytes:
        """The id of a session of this model that nobody has."""
        return self.mark + os.urandom(SESSION_BYTES - len(self.mark))

    def conversation(self, session: bytes | None = None) -> Conversation:
        """A conversation with it, in that session; None: in a new one. Close it when it is over. Raises NoPlan before
        the model is known, BadCommand for a session of another model, CannotServe for one that writes what is said.
        """
        if not self.answers_questions:
            raise CannotServe(
                f"{self.chosen.name} writes what is said and answers no questions: shoal transcribe asks it"
            )
        if session is not None and not session.startswith(self.mark):
            raise BadCommand("expected a session of the model that answers")
        own = self.sessions.own_ends if session is None else None
        if own is not None and self._reads_sources:
            raise CannotServe(
                f"{self.chosen.name} has its source texts read by an encoder of the mesh: ask it without --pin-ends"
            )
        if self.open_run is None and self._reads_sources:
            raise CannotServe(f"{self.chosen.name} is asked with source texts, which are not read here")
        sources = self._sourced if self._reads_sources else None
        return Conversation(self.sessions, self.model.prompts, session or self.new_session(), own, sources)

    @property
    def _reads_sources(self) -> bool:
        return self.model.manifest is not None and self.model.manifest.source is not None

    async def _sourced(self, tokens: Sequence[int]) -> Sourced:
        manifest = self.model.manifest
        assert manifest is not None
        assert manifest.source is not None
        assert self.open_run is not None
        return await sourced(tokens, manifest, manifest.source, self.view.state, self.open_run)
