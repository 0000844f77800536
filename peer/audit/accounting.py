"""Says to whoever coordinates what was computed and given for this peer, again and again until the ledger has it.

Edge around `peer.audit.receipts`, which decides.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import replace
from typing import Any, Final

from peer.audit.canaries import Canaries, Times
from peer.audit.outlier_reports import Oddities
from peer.audit.receipts import Claim, Receipts, claims_codec
from peer.audit.step_checks import checks_work
from peer.errors import PeerError
from peer.member.mesh_member import Mesh
from peer.model.fetcher import Fetcher
from peer.state.fairness import counted_milli, may_ask
from peer.wire.frame_codec import Open
from planner.model.store import BlobRef

SAY_EVERY_S: Final = 3.0  # a batch of what came since: the log is for other things, too
PATIENCE_S: Final = 5.0  # for a leader; what could not be said is said again

log = logging.getLogger(__name__)


class Accounts:
    """What this peer owes to whom, as long as it is a member."""

    def __init__(self, mesh: Mesh) -> None:
        self._node = mesh.node
        self.receipts = Receipts()
        self.checks = checks_work(mesh)
        self.canaries = Canaries(mesh, self.checks, Times())

    def opened(self, frame: Open) -> None:
        """A turn of an answer begins."""
        plan = self._node.askings.plan(frame.plan)
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

    def given(self, peer: str, ref: BlobRef, piece: int) -> None:
        """`peer` gave a piece of weights that has the right hash."""
        replica = self._node.replica
        life = replica.begin.incarnation if replica is not None else 0
        name = f"{ref.sha256} {self._node.me} {life}"
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
        state = self._node.state
        claims = self.receipts.due(state.ledger, state.fairness)
        if not claims or self._node.me not in state.members:
            return
        try:
            await self._node.line.ask("work", body_of_claims(claims), PATIENCE_S)
        except (PeerError, TimeoutError) as error:
            log.debug("work was not taken, it is said again: %s", error)


def body_of_claims(claims: tuple[Claim, ...]) -> dict[str, Any]:
    """The body of a `work` request."""
    return {"entries": claims_codec.encode(claims)}


def keeps_accounts(mesh: Mesh, fetcher: Fetcher | None = None) -> Accounts:
    """From here on `mesh` says what it owes, and refuses who may not ask."""
    accounts = Accounts(mesh)
    node = mesh.node
    mesh.accounts = accounts
    node.askings.opened = accounts.opened
    node.askings.emitted = accounts.emitted
    node.askings.over = accounts.ended
    node.askings.returned = accounts.checks.returned.note
    node.core.may_ask = lambda peer: may_ask(node.state.fairness, node.state.ledger, peer)
    node.core.admitting.owed_milli = lambda peer: counted_milli(node.state.fairness, node.state.ledger, peer)
    if fetcher is not None:
        fetcher.given = accounts.given
    mesh.start(accounts.run())
    mesh.start(accounts.canaries.run())
    mesh.start(Oddities(mesh, fetcher).run())
    return accounts


def _now_ms() -> int:
    return int(time.time() * 1000)
