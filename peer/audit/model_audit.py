"""What is checked, counted and tried of one model that answers in words: the mesh's own, or a further one. Edge."""

from __future__ import annotations

from collections.abc import Callable

from peer.audit.accounting import Accounts
from peer.audit.canaries import Canaries, Times
from peer.audit.outlier_reports import Oddities
from peer.audit.recomputation import Start
from peer.audit.step_checks import Checks
from peer.model.fetcher import Fetcher
from peer.origin.answering_model import AnsweringModel
from peer.stage.stage_host import StageHost
from peer.transport.peer_links import PeerLinks


class ModelAudit:
    """Of the model that `answering` asks and `stage` computes."""

    def __init__(
        self,
        links: PeerLinks,
        answering: AnsweringModel,
        stage: StageHost,
        start: Start,
        others_bytes: Callable[[], int],
    ) -> None:
        """`start` runs a task of the owner's; `others_bytes()`: what plans of other models take of this peer."""
        self._links = links
        self._start = start
        self.view, self.sessions, self.model = answering.view, answering.sessions, answering.model
        self.stage = stage
        self.checks = Checks(links, self, start, others_bytes)
        self.accounts = Accounts(self.view, self.sessions, self.checks)
        self.canaries = Canaries(links, answering, self.checks, Times())

    def begin(self, fetcher: Fetcher | None) -> None:
        """Says what this peer owes, has steps checked, and tries others while it leads, from here on. `fetcher` None:
        everything of the model is here.
        """
        odd = Oddities(self._links, self.view, self.stage, self.model, fetcher, self._start)
        for task in (self.accounts.run(), self.canaries.run(), odd.run()):
            self._start(task)

    async def close(self) -> None:
        """Gives back what was loaded for checks."""
        await self.checks.close()
