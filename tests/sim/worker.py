"""What a simulated peer computes: steps one after the other in virtual time, those that nobody waits for last."""

from __future__ import annotations

from collections.abc import Callable

from peer.session.effects import NotRan, Ran, Reason, RunStep
from peer.session.seat import Run_
from tests.sim.toy import Cache, from_hidden, logits_of, to_hidden

SLOW = 10  # times as long while a peer is busy with something else

Caches = dict[Run_, dict[bytes, Cache]]


class Worker:
    """`later(after_s, call, *args)` does something in time, `deliver` takes what came of a step."""

    def __init__(
        self, later: Callable[..., None], deliver: Callable[[Ran | NotRan], None], token_s: float
    ) -> None:
        self.slow = False
        self.caches: Caches = {}
        self._later = later
        self._deliver = deliver
        self._token_s = token_s
        self._waiting: list[RunStep] = []
        self._running: RunStep | None = None
        self._released = False

    def submit(self, step: RunStep) -> None:
        """Takes a step; never answers at once."""
        self._waiting.append(step)
        self._next()

    def free(self, run: Run_, session: bytes) -> None:
        """Forgets the session; what waits of it is dropped without an answer."""
        self.caches.get(run, {}).pop(session, None)
        self._waiting = [step for step in self._waiting if (step.run, step.session) != (run, session)]
        running = self._running
        if running is not None and (running.run, running.session) == (run, session):
            self._released = True

    def _next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        step = self._running = self._waiting.pop(self._place())
        self._released = False
        self._later(self._token_s * (1 + positions(step) / 8) * (SLOW if self.slow else 1), self._finish)

    def _place(self) -> int:
        """The first step of a session that somebody waits for, or else the first."""
        if not self._waiting[0].behind:
            return 0
        urgent = {(step.run, step.session) for step in self._waiting if not step.behind}
        places = (at for at, step in enumerate(self._waiting) if (step.run, step.session) in urgent)
        return next(places, 0)

    def _finish(self) -> None:
        step, self._running = self._running, None
        assert step is not None
        result = run_step(self.caches, step)
        if self._released:
            self.caches.get(step.run, {}).pop(step.session, None)
        self._deliver(result)
        self._next()


def positions(step: RunStep) -> int:
    """How many positions a step computes."""
    if step.tokens is not None:
        return len(step.tokens)
    return len(step.hidden) if step.hidden is not None else 0


def lacks(have: int, position: int) -> bool:
    """Whether a cache of `have` positions cannot go on with `position`."""
    return position > have


def run_step(caches: Caches, step: RunStep) -> Ran | NotRan:
    """What the runtime of `step.run` answers."""
    mine = caches.get(step.run)
    if mine is None:
        text = "these units are not loaded"
        return NotRan(step.run, step.session, step.epoch, step.position, 0, Reason.UNKNOWN_PLAN, text)
    cache = mine.get(step.session)
    have = len(cache.rows) if cache is not None else 0
    if lacks(have, step.position):
        text = f"has {have} positions"
        return NotRan(step.run, step.session, step.epoch, step.position, have, Reason.MISSING_POSITION, text)
    if cache is None:
        cache = mine[step.session] = Cache(*step.run)
    if step.tokens is not None:
        values = [int(token) + 1 for token in step.tokens.tolist()]
    else:
        assert step.hidden is not None
        values = from_hidden(step.hidden)
    numbers = cache.run(step.position, values, step.prompt or len(values) > 1)
    token = step.finish(logits_of(numbers[-1])) if step.finish is not None else None
    return Ran(step.run, step.session, step.epoch, step.position, len(values), to_hidden(numbers), token)
