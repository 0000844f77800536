"""Says to whoever coordinates what was computed and given for this peer, again and again until the ledger has it.

Edge around `peer.audit.receipts`, which decides.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import replace
from typing import Final

from peer.audit.receipts import Receipts
from peer.audit.step_checks import Checks
from peer.errors import PeerError
from peer.origin.session_host import SessionHost
from peer.replication.decoder_view import ModelView
from peer.wire.generated.frames import Open
from peer.wire.generated.requests import WORK, WorkRequest
from peer.wire.tensors import Tensor
from planner.model.store import BlobRef

SAY_EVERY_S: Final = 3.0  # a batch of what came since: the log is for other things, too
PATIENCE_S: Final = 5.0  # for a leader; what could not be said is said again

log = logging.getLogger(__name__)


class Accounts:
    """What this peer owes to whom, as long as it is a member. It follows the sessions, and has `checks` follow them."""

    def __init__(self, view: ModelView, sessions: SessionHost, checks: Checks) -> None:
        self._view = view
        self._sessions = sessions
        self.receipts = Receipts()
        self.checks = checks
        sessions.subscribe(self)

    def opened(self, frame: Open) -> None:
        """A turn of an answer begins."""
        plan = self._sessions.plan(frame.plan)
        if plan is None or len(plan.stages) != len(frame.route):
            return  # it was replaced long ago: this turn is not counted
        runs = [(stage.first, stage.stop) for stage in plan.stages]
        warms = frame.max_tokens == 0  # an answer moves there: what was computed before is paid for
        turn = replace(frame, start=frame.prompt_tokens) if warms else frame
        self.receipts.opened(_now_ms(), turn, runs)
        self.checks.opened(frame, plan)

    def emitted(self, session: bytes, position: int) -> None:
        """A token came."""
        self.receipts.token(session, position)
        self.checks.emitted(session, position)

    def ended(self, session: bytes) -> None:
        """An answer is over, however it ended."""
        self.receipts.ended(session)
        self.checks.ended(session)

    def returned(self, session: bytes, position: int, state: Tensor) -> None:
        """A state came back from which an answer goes on here."""
        self.checks.returned.note(session, position, state)

    def given(self, peer: str, ref: BlobRef, piece: int) -> None:
        """`peer` gave a piece of weights that has the right hash."""
        name = f"{ref.sha256} {self._view.me} {self._view.incarnation}"
        self.receipts.given(_now_ms(), peer, hashlib.sha256(name.encode()).hexdigest()[:32], piece)

    async def run(self) -> None:
        """Never returns."""
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            try:
                await self.say()
            except Exception:  # a defect here must not end this membership
                log.exception("what is owed could not be said")

    async def say(self) -> None:
        """Says what is due, once."""
        state = self._view.state
        claims = self.receipts.due(state.ledger, state.fairness)
        if not claims or self._view.me not in state.members:
            return
        try:
            await self._view.ask_leader(WORK, WorkRequest(claims), PATIENCE_S)
        except (PeerError, TimeoutError) as error:
            log.debug("work was not taken, it is said again: %s", error)


def _now_ms() -> int:
    return int(time.time() * 1000)
