"""Decides when the history of a mesh is asked for the times to plan with, and how long planning waits for them.

Edge around planner.predict.forecast, over the history and a thread of its own. A mesh without a history, one whose
history cannot be asked, or is not asked through in time, plans with what its members measured, as ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from peer.state.mesh_state import MeshState
from peer.transport.peer_links import PeerLinks
from planner.errors import HistoryUnusable
from planner.history.facts import MAX_FIELD, PeerClass, class_of
from planner.history.reading import Cell, cells, measured_often
from planner.predict.forecast import Foreseen, foreseen
from planner.predict.unit_times import MIN_RUNS, Predictor, counted, fit, revisit, samples_of
from planner.service.planning_jobs import PlanningJobs
from planner.types import PlanRequest

WITHIN_S: Final = 2.0  # planning waits no longer; what is found later counts the next time
RESTLESS_TIMES: Final = 6  # that a peer measured itself within RESTLESS_WITHIN: it starts anew, or wavers
RESTLESS_WITHIN: Final = timedelta(hours=1)
MOST_CLASSES: Final = 12  # that are learned from: those here, then those with the most runs
NOBODY: Final = PlanRequest((), (), (), 1, 1)
View = Callable[[], AbstractContextManager[Any]]  # a connection to what the history has

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Learned:
    predictor: Predictor
    answers: int  # so many had been given
    about: frozenset[tuple[str, str, int]]  # cells with enough runs to steer, and classes that are here


class Foresight:
    """`opened` gives it a history; until then, and after `closed`, it knows nothing."""

    def __init__(self) -> None:
        self._view: View | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[Foreseen | None] | None = None
        self._state: Callable[[], MeshState] = MeshState
        self._agent: Callable[[str], str] = lambda _: ""
        self._answers = 0
        self._looked_at = 0
        self._learned: _Learned | None = None
        self._complained: set[type[Exception]] = set()  # each kind is told once
        self._was_late = False

    @property
    def is_open(self) -> bool:
        """Whether there is a history to be asked."""
        return self._view is not None

    def opened(self, view: View) -> None:
        """From here on `view` is asked."""
        self._view = view
        self._pool = ThreadPoolExecutor(1, "foresight")
        self._pool.submit(self._find, view, NOBODY, {}, 0)  # what it takes is loaded before anybody waits

    def closed(self) -> None:
        """Asks no more. May wait for a question that is under way."""
        pool, self._view, self._pool = self._pool, None, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def knows(self, state: Callable[[], MeshState], agent: Callable[[str], str]) -> None:
        """Of this mesh: its state as committed, and `agent(peer)`, what a member calls its software."""
        self._state, self._agent = state, agent

    def answered(self, count: int) -> bool:
        """So many more answers were given; whether what plans go by is to be looked at again now."""
        self._answers += count
        if not revisit(self._answers, self._looked_at):
            return False
        self._looked_at = self._answers
        return True

    async def look(
        self, request: PlanRequest, state: MeshState, late: Callable[[], None] = lambda: None
    ) -> Foreseen | None:
        """The times to plan `request` of `state` with; None: as the members measured themselves.

        `late()` is called, once, when they were not known in time and are now.
        """
        asked = self._ask(request, state)
        if asked is None:
            return None
        found = asyncio.wrap_future(asked)
        await asyncio.wait([found], timeout=WITHIN_S)
        if found.done():
            return found.result()

        def known(done: asyncio.Future[Foreseen | None]) -> None:
            if not done.cancelled() and done.exception() is None and done.result() is not None:
                late()

        if not self._was_late:  # a machine on which they are late each time is not to plan without end
            self._was_late = True
            found.add_done_callback(known)
        return None

    async def plan_bytes(self, jobs: PlanningJobs, body: bytes) -> bytes:
        """The planning service: JSON request in, JSON answer out. Raises RequestError, JobError."""
        if not self.is_open:
            return await jobs.plan_bytes(body)
        asked = await jobs.decoded(body)
        lost = asked.serving is not None and asked.serving.lost  # after a loss nobody waits for the history
        looking = None if lost else self._ask(asked.request, self._state())
        found: Foreseen | None = None
        if looking is not None:
            looked = asyncio.wrap_future(looking)
            await asyncio.wait([looked], timeout=WITHIN_S)
            found = looked.result() if looked.done() and not looked.cancelled() else None
        if found is not None:
            asked = replace(asked, request=found.request)
        return await jobs.answered(asked, found)

    def _ask(self, request: PlanRequest, state: MeshState) -> Future[Foreseen | None] | None:
        view, pool = self._view, self._pool
        if view is None or pool is None or (self._running is not None and not self._running.done()):
            return None
        classes, answers = self._classes(state), self._looked_at
        try:
            self._running = pool.submit(self._find, view, request, classes, answers)
        except RuntimeError:  # closed at this moment
            return None
        return self._running

    def _classes(self, state: MeshState) -> Mapping[str, PeerClass]:
        """Which class each member counts as."""
        return {
            peer: class_of(
                self._agent(peer)[: 2 * MAX_FIELD], member.profile.provider, member.profile.threads
            )
            for peer, member in state.members.items()
            if member.profile is not None
        }

    # --- in the thread

    def _find(
        self, view: View, request: PlanRequest, classes: Mapping[str, PeerClass], answers: int
    ) -> Foreseen | None:
        try:
            with view() as connection:
                known = cells(connection)
                since = datetime.now(UTC).replace(tzinfo=None) - RESTLESS_WITHIN
                restless = measured_often(connection, RESTLESS_TIMES, since)
            here = frozenset(classes[peer.peer].name for peer in request.peers if peer.peer in classes)
            kept = _kept(known, here)
            about = frozenset(
                [
                    (cell.device_class, cell.kind, cell.bucket)
                    for cell in kept
                    if cell.runs >= MIN_RUNS or cell.device_class in here
                ]
            )
            learned = self._learned
            if not any(cell.runs >= MIN_RUNS and (cell.device_class in here or not here) for cell in kept):
                return foreseen(request, classes, counted(samples_of(kept)))  # nothing to learn for them yet
            if learned is None or learned.about != about or learned.answers != answers:
                learned = self._learned = _Learned(fit(samples_of(kept)), answers, about)
            found = foreseen(request, classes, learned.predictor)
            return replace(found, restless=restless) if found.doubted() else found
        except Exception as error:  # whatever it is: a mesh plans on without its history
            if type(error) not in self._complained:
                told = log.info if isinstance(error, HistoryUnusable) else log.exception
                told("the history says nothing of times, plans go by what was measured: %s", error)
            self._complained.add(type(error))
            return None


def agent_of(links: PeerLinks, peer: str) -> str:
    """What a peer calls its software; "" where nobody knows."""
    connection = links.dialer.connection(peer)
    remote = connection.remote if connection is not None else None
    return remote.agent if remote is not None else links.agent if peer == links.me else ""


def _kept(known: list[Cell], here: frozenset[str]) -> list[Cell]:
    """What is learned from."""
    runs: dict[str, int] = {}
    for cell in known:
        runs[cell.device_class] = runs.get(cell.device_class, 0) + cell.runs
    ranked = sorted(runs, key=lambda name: (name not in here, -runs[name], name))[:MOST_CLASSES]
    chosen = frozenset(ranked)
    return [cell for cell in known if cell.device_class in chosen]
