"""One model as the gateway answers with it: who waits for its sessions, its answers, and its grammars. Edge."""

from __future__ import annotations

from peer.gateway.answers import Answers
from peer.gateway.grammar_jobs import GrammarJobs
from peer.gateway.request_queue import Line
from peer.model.local_model import LocalModel
from peer.origin.answering_model import AnsweringModel
from peer.state.generated.commands import ModelChosen


class AskedModel:
    """`answering` is the model; at most `max_waiting` requests wait for it, each for a session `full_wait_s`."""

    def __init__(self, answering: AnsweringModel, max_waiting: int, full_wait_s: float) -> None:
        self.answering = answering
        self.line = Line(self._sessions, max_waiting)
        self.answers = Answers(answering, self.line, full_wait_s)
        self._grammars: GrammarJobs | None = None
        self._unsubscribe = answering.view.subscribe(self.line.look)

    @property
    def chosen(self) -> ModelChosen:
        """Its name, its id and what is promised. Raises NoPlan where it is not offered any more."""
        return self.answering.chosen

    @property
    def model(self) -> LocalModel:
        """Its manifest and tokenizer."""
        return self.answering.model

    def grammars(self) -> GrammarJobs:
        """What compiles grammars for its vocabulary."""
        if self._grammars is None:
            self._grammars = GrammarJobs(self.model.text_file)
        return self._grammars

    async def close(self) -> None:
        """Stops listening to the state of the mesh, and ends the process of its grammars."""
        self._unsubscribe()
        if self._grammars is not None:
            await self._grammars.close()

    def _sessions(self) -> int:
        found = self.answering.view.state.model
        return found.sessions if found is not None else 0
