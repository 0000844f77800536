"""Decides how a member is asked to measure itself once more, and what its answer, or none, means.

Edge around peer.coordination.remeasure_policy, over a task.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from peer.coordination.remeasure_policy import FreshTimes, Outcome
from peer.errors import ConnectFailed, ConnectionLost, MeshError
from peer.state.generated.commands import MemberMeasured
from peer.state.mesh_state import MeshState
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.requests import MEASURE, MeasureAnswer, MeasureRequest
from planner.predict.forecast import Foreseen

TRIES: Final = 3  # to hear of the history what it says for a plan that was made without it
AGAIN_S: Final = 30.0  # between them
WITHIN_S: Final = 60.0  # a measurement takes two seconds, on a busy machine many times that

log = logging.getLogger(__name__)
Ask = Callable[[str, str], Awaitable[MeasureAnswer]]  # peer, model


class Freshening:
    """`ask` has a member measure itself; `due` says whom."""

    def __init__(self, ask: Ask, due: FreshTimes | None = None) -> None:
        self._ask = ask
        self.due = due or FreshTimes()
        self._task: asyncio.Task[None] | None = None
        self._unheard = 0  # how often in a row the history was not heard
        self._not_before = float("-inf")  # it is asked again

    def looked(self, found: Foreseen | None) -> None:
        """What a history said when a plan was to be made; None: it was not heard."""
        if found is None:
            self._unheard += 1
            return
        self._unheard = 0
        self.due.doubts(found.doubted(), found.times.keys())

    def look(self, now: float, state: MeshState, *, calm: bool) -> bool:
        """Called often: asks who is to be asked now. Whether the history is to be asked again, since it was not heard
        for the last plan.
        """
        peer = self.due.due(now, state, calm=calm)
        if peer is not None and state.model is not None:
            self.due.begun(peer)
            self._task = asyncio.ensure_future(self._asked(peer, state.model.model))
        if not 0 < self._unheard <= TRIES or not self.due.is_quiet(now) or now < self._not_before:
            return False
        self._not_before = now + AGAIN_S
        return True

    def heard(self, command: MemberMeasured) -> None:
        """A member told what it measured since it was asked to."""
        self.due.heard(command.peer, command.profile)

    async def close(self) -> None:
        """Waits for no answer any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _asked(self, peer: str, model: str) -> None:
        log.info("asks %s to measure itself once more: a prediction of its times abstained", peer[:8])
        outcome: Outcome = "lost"
        try:
            answer = await self._ask(peer, model)
            outcome = "measured" if answer.measured else "busy" if answer.busy else "unable"
        except (ConnectionLost, ConnectFailed, TimeoutError):
            log.info("%s was lost when it was to measure itself; it is not asked again", peer[:8])
        except MeshError as error:  # an older peer does not know how
            log.info("%s does not measure itself once more: %s", peer[:8], error)
            outcome = "unable"
        except Exception:  # a defect of this peer's own measuring, which must not end what it coordinates
            log.exception("%s failed to measure itself once more", peer[:8])
            outcome = "unable"
        finally:
            self.due.ended(time.monotonic(), model, outcome)


def freshening(links: PeerLinks) -> Freshening:
    """Asks the members of this mesh, this peer among them."""

    async def ask(peer: str, model: str) -> MeasureAnswer:
        said = MeasureRequest(model)
        if peer == links.me:
            return await links.ask(peer, MEASURE, said)
        if not links.is_connected(peer):
            return MeasureAnswer(measured=False, busy=True)
        return await links.call(peer, MEASURE, said, WITHIN_S)

    return Freshening(ask)
