"""Decides whom to try with an answer that is known beforehand, and when: soon after a peer came, then about every hour.

Edge. Whoever coordinates asks a question like any other, over a route on which the peer in question serves one stage,
and has a position of it checked as positions of people's answers are. Nothing in it tells the peer that it is tried.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from peer.audit.step_checks import Answer, Checks
from peer.errors import PeerError
from peer.model.chat_template import Message
from peer.origin.answering_model import AnsweringModel
from peer.origin.session_host import Outcome
from peer.session.ask import Ask, room_for
from peer.session.effects import Broken, Emit, Ended
from peer.session.origin import OriginSession
from peer.session.routes import Route, choose, holders
from peer.session.sampling import Sampling
from peer.state.generated.commands import PlanRecord
from peer.state.mesh_state import MeshState
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.requests import STATUS, CheckVerdict

LOOK_S: Final = 5.0  # between two looks at who is due
TOKENS: Final = (8, 24)  # of an answer, at least and at most
ANSWER_S: Final = 60.0
STATUS_S: Final = 10.0
ABOUT: Final = (
    *("the tides", "bread", "a bicycle", "the moon", "volcanoes", "bees", "a good night's sleep", "chess"),
    *("rain", "the printing press", "glass", "cats", "paper", "coffee", "the heart", "bridges", "maps"),
    *("magnets", "an orchard", "old clocks", "salt", "the alphabet", "trains", "snow", "a lighthouse"),
)
ASKED: Final = (
    "What should I know about {about}?",
    "Tell me about {about} in {count} sentences.",
    "Write {count} short lines about {about}.",
    "Explain {about} to a child of {count}.",
    "Who was the first to write about {about}?",
    "Give me {count} facts about {about}, please.",
    "why is there so much talk about {about}",
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Times:
    """When peers are tried: between these many seconds after they came, and after they were tried."""

    first_s: tuple[float, float] = (90.0, 240.0)
    again_s: tuple[float, float] = (1800.0, 5400.0)
    busy_s: tuple[float, float] = (30.0, 90.0)  # where people's answers need all the room


class Due:
    """When each peer is tried next. Pure but for `rng`: handed `now_s`."""

    def __init__(self, times: Times, rng: random.Random) -> None:
        self._times = times
        self._rng = rng
        self._at_s: dict[str, float] = {}
        self._leads = False

    def look(self, now_s: float, leads: bool, peers: Collection[str]) -> list[str]:
        """Who is due, the longest waiting first, of `peers` that compute. Who was here when this peer began to
        coordinate was tried by the one before.
        """
        begins = leads and not self._leads
        known = self._at_s.keys() if leads and self._leads else set()
        self._leads = leads
        if not leads:
            self._at_s.clear()
            return []
        kept = {peer: self._at_s[peer] for peer in peers if peer in known}
        for peer in sorted(set(peers) - kept.keys()):
            low, high = self._times.first_s
            most = max(high, self._times.again_s[1]) if begins and len(peers) > 1 else high
            kept[peer] = now_s + self._rng.uniform(low, most)
        self._at_s = kept
        return sorted((peer for peer, at_s in kept.items() if at_s <= now_s), key=lambda peer: kept[peer])

    def tried(self, now_s: float, peer: str) -> None:
        """It was tried; again later."""
        self._at_s[peer] = now_s + self._rng.uniform(*self._times.again_s)

    def busy(self, now_s: float, peer: str) -> None:
        """There was no room; soon again."""
        self._at_s[peer] = now_s + self._rng.uniform(*self._times.busy_s)


class Canaries:
    """Tries peers while this one coordinates, by asking `of`. `tried`: verdicts by peer, the last of each."""

    def __init__(self, links: PeerLinks, of: AnsweringModel, checks: Checks, times: Times) -> None:
        self._links = links
        self._of = of
        self._view = of.view
        self._sessions = of.sessions
        self._model = of.model
        self._checks = checks
        self._rng = random.Random()
        self.due = Due(times, self._rng)
        self.tried: dict[str, CheckVerdict] = {}

    async def run(self, look_s: float = LOOK_S) -> None:
        """Never returns."""
        while True:
            await asyncio.sleep(look_s)
            try:
                await self.look()
            except Exception:  # a defect here must not end this membership
                log.exception("nobody could be tried")

    async def look(self) -> None:
        """Tries whoever is due, one after the other."""
        view = self._view
        leads = view.leader == view.me and self._model.manifest is not None
        for peer in self.due.look(time.monotonic(), leads, computing(view.state, view.me)):
            state = view.state  # each try takes a while
            if view.leader != view.me or not state.fairness.checks_ppm or state.proposed is not None:
                return  # another peer leads, nobody wants checks, or stages are about to change
            found = await self._try(peer)
            if found == "busy":
                self.due.busy(time.monotonic(), peer)
                continue
            self.due.tried(time.monotonic(), peer)
            if found is not None:
                self.tried[peer] = found

    async def _try(self, peer: str) -> CheckVerdict | Literal["busy"] | None:
        """Has `peer` compute something at one of its stages; None where no answer came of it."""
        state, plan = self._view.state, self._view.state.serving()
        if plan is None:
            return None
        stages = [at for at, stage in enumerate(plan.stages) if peer in holders(state, stage)]
        if not stages:
            return None
        place = self._rng.choice(stages)
        route = route_over(state, plan, place, peer)
        if route is None or route.peers[place] != peer:
            return None
        try:
            await asyncio.gather(*(self._links.dialer.dial(p) for p in {*route.peers} - {self._view.me}))
            if not await self._has_room(route, peer):
                return "busy"
            return await self._ask(route, peer, place)
        except (PeerError, TimeoutError) as error:
            log.debug("nobody answered: %s", error)
            return None

    async def _has_room(self, route: Route, peer: str) -> bool:
        """Whether a session is free at the other stages beside this one; who is tried is not asked right before it."""
        model = self._view.state.model
        most = max(1, model.sessions - 1) if model is not None else 0
        for other in {*route.peers} - {self._view.me, peer}:
            if (await self._links.call(other, STATUS, None, STATUS_S)).active >= most:
                return False
        return len(self._sessions) < most

    async def _ask(self, route: Route, peer: str, place: int) -> CheckVerdict | None:
        """Asks over `route` as people do, stops as they do, and has a position of the answer checked."""
        model = self._view.state.model
        if model is None:
            return None
        outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        core = OriginSession(self._of.new_session(), self._view.me)
        self._sessions.attach(core, outcomes.put_nowait)
        try:
            asked = await self._asked(model.context)
            effects = core.begin(time.monotonic(), route, asked)
            self._sessions.perform(core.session, effects)
            async with asyncio.timeout(ANSWER_S):
                answer = await self._answered(core, outcomes)
            last = len(core.tokens) - 2
            if answer is None or answer.opening.route[place] != peer or last < answer.opening.prompt_tokens:
                return None
            position = self._rng.randint(answer.opening.prompt_tokens, last)
            return await self._checks.check_known(answer, tuple(core.tokens), place, position)
        except TimeoutError:
            return None
        finally:
            self._sessions.detach(core.session)

    async def _answered(self, core: OriginSession, outcomes: asyncio.Queue[Outcome]) -> Answer | None:
        """Waits for some tokens, or for the end before them. None: no answer came, or over no plan that is known."""
        wanted, answer = self._rng.randint(*TOKENS), None
        while True:
            match await outcomes.get():
                case Emit():
                    wanted -= 1
                    answer = self._checks.answer_of(core.session) or answer
                    if not wanted:
                        self._sessions.perform(core.session, core.cancel())
                case Ended():
                    return answer
                case Broken():
                    return None

    async def _asked(self, context: int) -> Ask:
        """A question with settings as people have them. Raises as Prompts.chat."""
        prompt = (await self._model.prompts.chat([Message("user", self._question())], context)).tokens
        warm = self._rng.random() < 0.5
        sampling = Sampling(
            temperature=self._rng.choice((0.7, 0.8, 1.0)) if warm else 0.0,
            top_p=self._rng.choice((0.9, 0.95, 1.0)) if warm else 1.0,
            seed=self._rng.randrange(1 << 31),
        )
        most = room_for(len(prompt), None, context)
        return Ask(prompt, most, sampling, self._model.text.end_tokens)

    def _question(self) -> str:
        form = self._rng.choice(ASKED)
        return form.format(about=self._rng.choice(ABOUT), count=self._rng.randint(2, 12))


def computing(state: MeshState, me: str) -> list[str]:
    """Others that hold a stage of the plan in force."""
    plan = state.serving()
    stages = plan.stages if plan is not None else ()
    found = {peer for stage in stages for peer in holders(state, stage)} - {me}
    return sorted(found)


def route_over(state: MeshState, plan: PlanRecord, place: int, peer: str) -> Route | None:
    """A route on which `peer` serves stage `place`."""
    others = {other for other in holders(state, plan.stages[place]) if other != peer}
    return choose(state, plan, avoid=frozenset(others))
