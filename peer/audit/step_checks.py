"""Has steps of its answers checked, bears witness for others, and says in the log whose results are wrong.

Edge. An asker has one step in so many checked, each stage of its route: by another holder of the same units, and where
that one finds a difference by a third peer, or by itself. Who finds one says so in the log in its own name; one word
convicts nobody (peer.state.fairness).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from peer.audit.check_policy import NextCheck, in_order, judges_of
from peer.audit.judge import Judge, Place, place_of, spans_up_to, testimony
from peer.audit.recomputation import Recomputing, Start, computes, computes_units
from peer.errors import BadCommand, PeerError
from peer.model.local_model import LocalModel
from peer.origin.session_host import SessionHost
from peer.replication.decoder_view import ModelView
from peer.session.pinned_ends import is_pinned, tells_ids
from peer.session.pinned_ends_evidence import KeptEnds, Returned
from peer.session.seat import ID_BYTES, Seat
from peer.stage.stage_host import StageHost
from peer.state.generated.commands import CheckFailed, PlanRecord
from peer.state.mesh_state import AWAY
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.frames import Open
from peer.wire.generated.requests import (
    CHECK,
    MAX_CHECKED_POSITIONS,
    MAX_CHECKED_SETTINGS,
    ODD,
    WITNESS,
    CheckAnswer,
    CheckCounts,
    CheckReport,
    CheckRequest,
    CheckVerdict,
    OddRequest,
    WitnessAnswer,
    WitnessRequest,
)
from planner.errors import PlannerError

FOUND_LATELY_MS: Final = 600_000  # how long one word against a peer has it checked sooner
CHECK_S: Final = 60.0  # for a judge: it computes when nothing else does
ODD_AGAIN_S: Final = 10.0  # between two checks that one peer brings about
MOST_MATCHES: Final = 64  # questions of one peer about one session whether marks match: each may be a guess
AT_ONCE: Final = 1  # checks that an asker has under way: those that come too fast are left out

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Verdicts on steps."""

    same: int = 0
    differs: int = 0
    disputed: int = 0
    unable: int = 0

    def add(self, verdict: CheckVerdict) -> None:
        """One more."""
        setattr(self, verdict, getattr(self, verdict) + 1)

    def said(self) -> CheckCounts:
        """As a peer tells them."""
        return CheckCounts(self.same, self.differs, self.disputed, self.unable)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of this peer: the route that computes it, and the plan of that."""

    opening: Open
    plan: PlanRecord


@dataclass(slots=True)
class _Asked:
    """Who was asked to check a session of this peer, and its tokens then; of an answer whose ends stay here (`kept`)
    nobody hears them.
    """

    tokens: tuple[int, ...]
    kept: KeptEnds | None = None
    peers: set[str] = field(default_factory=set)


class Audited(Protocol):
    """The parts of a peer that serve the model whose steps are checked."""

    @property
    def view(self) -> ModelView:
        """The mesh as if this model were its own."""

    @property
    def stage(self) -> StageHost:
        """Units that are computed here."""

    @property
    def sessions(self) -> SessionHost:
        """Answers that are asked here."""

    @property
    def model(self) -> LocalModel:
        """Its manifest and tokenizer."""


class Checks:
    """This peer as one that asks for checks of steps of one model, bears witness, and checks."""

    def __init__(
        self, links: PeerLinks, of: Audited, start: Start, others_bytes: Callable[[], int] = lambda: 0
    ) -> None:
        """`start` runs a task of the owner's; `others_bytes()`: what plans of other models take of this peer."""
        self._links = links
        self._view = of.view
        self._stage = of.stage
        self._sessions = of.sessions
        self._model = of.model
        self._start = start
        self._rng = random.Random()
        self._answers: dict[bytes, Answer] = {}
        self._asked: dict[bytes, _Asked] = {}
        self._next = NextCheck()
        self._running = 0
        self._odd_s: dict[str, float] = {}  # by peer: when it may bring about another check
        self._odd_due: dict[
            bytes, tuple[int, int]
        ] = {}  # by session: stage and position whose token is to come
        self.returned = Returned()  # of answers whose ends stay here
        again = Recomputing(of.view, of.stage, of.model, start, others_bytes)
        self.judge = Judge(links, of.stage, of.model, again, self.witness)
        self.made = Counts()  # here, for others and for this peer
        self.got = Counts()  # for answers of this peer

    # --- as the asker

    def opened(self, frame: Open, plan: PlanRecord) -> None:
        """A turn of an answer begins."""
        self._answers[frame.session] = Answer(frame, plan)

    def emitted(self, session: bytes, position: int) -> None:
        """The token for `position` came: the position before it was computed by all stages."""
        answer = self._answers.get(session)
        fairness = self._view.state.fairness
        if answer is None or not fairness.checks_ppm:
            return
        due = self._odd_due.get(session)
        if due is not None and position > due[1]:
            self._look_at_odd(answer)
        suspected = not self._suspects().isdisjoint(answer.opening.route)
        busy = self._running >= AT_ONCE
        if not self._next.token(fairness.checks_ppm, self._rng.random, suspected=suspected, busy=busy):
            return
        self._running += 1
        self._start(self._check(answer, position - 1))

    def answer_of(self, session: bytes) -> Answer | None:
        """The running answer of this peer in `session`."""
        return self._answers.get(session)

    async def check_known(
        self, answer: Answer, tokens: tuple[int, ...], stage: int, position: int
    ) -> CheckVerdict:
        """Has one stage of an answer of this peer checked now; where nobody else can, by this peer itself."""
        session = answer.opening.session
        if session in self._asked:
            return "unable"
        self._asked[session] = self._asked_for(answer, tokens)
        try:
            return await self._check_stage(answer, stage, position, alone=True)
        finally:
            self._asked.pop(session, None)

    def odd(self, peer: str, session: bytes, position: int) -> None:
        """A peer of a route finds what came to it odd: the stage before it is checked at once. Raises BadCommand."""
        answer = self._answers.get(session)
        route = answer.opening.route if answer is not None else ()
        now_s = time.monotonic()
        if answer is None or peer not in route[1:]:
            raise BadCommand("odd: expected a stage of a running answer of this peer, and not the first")
        if self._running >= AT_ONCE or now_s < self._odd_s.get(peer, 0.0) or not self._checks_ppm:
            return  # whoever says it again and again has no more checked
        self._odd_s[peer] = now_s + ODD_AGAIN_S
        self._odd_due[session] = (route.index(peer) - 1, position)
        if len(self._sessions.tokens(session)) >= position + 2:
            self._look_at_odd(answer)

    def _look_at_odd(self, answer: Answer) -> None:
        """The token of an odd row was drawn, so that it can be checked."""
        stage, position = self._odd_due.pop(answer.opening.session)
        if self._running < AT_ONCE:
            self._running += 1
            self._start(self._check_odd(answer, stage, position))

    async def _check_odd(self, answer: Answer, stage: int, position: int) -> None:
        try:
            tokens = tuple(self._sessions.tokens(answer.opening.session))
            await self.check_known(answer, tokens, stage, position)
        except Exception:  # a defect in a check must not end this membership
            log.exception("a check failed")
        finally:
            self._running -= 1

    @property
    def _checks_ppm(self) -> int:
        return self._view.state.fairness.checks_ppm

    def ended(self, session: bytes) -> None:
        """An answer is over, and so are the sessions that it moved from or was to move to."""
        for key in [key for key in self._answers if key[:-ID_BYTES] == session[:-ID_BYTES]]:
            del self._answers[key]
            self._odd_due.pop(key, None)

    def _suspects(self) -> set[str]:
        """Peers that somebody found wrong a short while ago."""
        since_ms = time.time() * 1000 - FOUND_LATELY_MS
        return {each.peer for each in self._view.state.fairness.findings if each.when_ms > since_ms}

    async def _check(self, answer: Answer, position: int) -> None:
        session = answer.opening.session
        self._asked[session] = self._asked_for(answer, tuple(self._sessions.tokens(session)))
        try:
            verdicts = [await self._check_stage(answer, stage, position) for stage in self._order(answer)]
            self._next.checked(unable="unable" in verdicts)
        except Exception:  # a defect in a check must not end this membership
            log.exception("a check failed")
        finally:
            self._running -= 1
            self._asked.pop(session, None)

    def _asked_for(self, answer: Answer, tokens: tuple[int, ...]) -> _Asked:
        session, route = answer.opening.session, answer.opening.route
        if not is_pinned(answer.opening):
            return _Asked(tokens)
        ends = self._sessions.own_ends
        if ends is None:
            return _Asked(())
        return _Asked(tokens, KeptEnds(ends, tokens, self.returned.of(session), len(route)))

    def _order(self, answer: Answer) -> list[int]:
        suspects = self._suspects()
        stages = list(range(len(answer.opening.route)))
        self._rng.shuffle(stages)
        return in_order(stages, answer.opening.route, suspects)

    async def _check_stage(
        self, answer: Answer, stage: int, position: int, *, alone: bool = False
    ) -> CheckVerdict:
        opening, route = answer.opening, answer.opening.route
        tail = stage == len(route) - 1
        asked = self._asked[opening.session]
        if (
            route[stage] == self._view.me
            or position >= MAX_CHECKED_POSITIONS
            or len(asked.tokens) < position + 2
        ):
            return "same"  # nobody need check what it computed itself
        if answer.plan.stages[stage].helpers and answer.plan.version not in self._versions():
            return "same"  # a judge does not know that a team computes it
        if not stage and self._sessions.has_rows(opening.session):
            return "same"  # as far as anybody can say: it computed from rows, and tokens are what others can be told
        pinned = is_pinned(opening)
        if tail and not pinned and len(opening.sampling) != MAX_CHECKED_SETTINGS:
            return "same"  # an answer that is held to a form: what was allowed is known to its asker alone
        before = asked.kept.before(position) if asked.kept is not None and tail else range(position)
        draws = tail and not pinned
        drawn = max(0, position + 1 - opening.prompt_tokens)
        place = Place(
            session=opening.session,
            stage=stage,
            position=position,
            units=(answer.plan.stages[stage].first, answer.plan.stages[stage].stop),
            peer=route[stage],
            before=route[stage - 1] if stage else "",
            after="" if tail else route[stage + 1],
            spans=spans_up_to(opening.spans, opening.prompt_tokens, position + 1),
            token=asked.tokens[position + 1] if draws else -1,
            sampling=opening.sampling if draws else (),
            sampled=drawn + opening.generated,
            also=-1 if draws or not before else self._rng.choice(before),
            pinned=pinned,
        )
        judges = self._judges(place)
        if not judges and alone:
            judges = [self._view.me]
        if not judges:
            return "same"  # as far as anybody can say
        found, last = 0, _UNABLE
        for peer in [*judges, *([self._view.me] if self._view.me not in judges else [])]:
            if peer not in judges and not found:
                break  # this peer would have to load the units: only to decide what another found
            verdict = await self._ask(peer, place)
            self.got.add(verdict)
            if verdict == "unable":
                continue
            last = verdict
            found += verdict == "differs"
            if verdict != "differs" or found == 2 or place.peer in self._view.state.fairness.quarantined:
                break
        return last

    def _versions(self) -> set[int]:
        """Of the plans that everybody knows."""
        state = self._view.state
        return {plan.version for plan in (state.plan, state.proposed) if plan is not None}

    def _judges(self, place: Place) -> list[str]:
        """Who holds the units and may check it, the best first."""
        state, me = self._view.state, self._view.me
        able = [
            (peer, computes(member))
            for peer, member in sorted(state.members.items())
            if peer != place.peer and member.status not in AWAY and place.units in member.held
        ]
        self._rng.shuffle(able)
        manifest = self._model.manifest
        weights = manifest.weights if manifest is not None else "4bit"
        return judges_of(
            able, weights, computes_units(state, place.peer, place.units), me, (place.before, place.after)
        )

    async def _ask(self, peer: str, place: Place) -> CheckVerdict:
        asked = self._asked[place.session]
        asked.peers.add(peer)
        if asked.kept is not None:
            asked.kept.judges.setdefault(peer, set()).add(place.stage)
        try:
            if peer == self._view.me:
                return await self._judge(peer, place)
            return (await self._links.ask(peer, CHECK, place.to_request(), CHECK_S)).verdict
        except (PeerError, PlannerError, TimeoutError) as error:
            log.debug("no check by %s: %s", peer[:8], error)
            return "unable"

    # --- for others

    async def checked(self, peer: str, said: CheckRequest) -> CheckAnswer:
        """Computes what `peer` asks about. Raises BadCommand."""
        place = place_of(said)
        if not {place.peer, place.before, place.after} - {""} <= self._view.state.members.keys():
            raise BadCommand("check: expected a step of members")
        return CheckAnswer(await self._judge(peer, place))

    def report(self) -> CheckReport:
        """What was checked, for people."""
        judge = self.judge
        return CheckReport(
            self.made.said(), self.got.said(), judge.kept, judge.again.positions, round(judge.worst * 1e6)
        )

    async def close(self) -> None:
        """Gives back what was loaded for checks."""
        await self.judge.close()

    def witness(self, peer: str, said: WitnessRequest) -> WitnessAnswer:
        """What this peer knows of a step that `peer` checks. Raises BadCommand where it is none of its business."""
        session, side = bytes.fromhex(said.session), said.side
        stage, first, stop = said.stage, said.first, said.stop
        if not first < stop <= first + MAX_CHECKED_POSITIONS:
            raise BadCommand(f"witness: expected at most {MAX_CHECKED_POSITIONS} positions")
        if side in ("tokens", "sent", "back"):
            asked = self._asked.get(session)
            if asked is None or peer not in asked.peers:
                raise BadCommand("witness: expected a peer that was asked to check this session")
            if asked.kept is not None:
                return asked.kept.shown(peer, side, first, stop)
            return WitnessAnswer(tokens=asked.tokens[first:stop] if side == "tokens" else None)
        seat = self._stage.core.seat_at(session, stage)
        if seat is None:
            raise BadCommand("witness: expected a session that is computed here")
        if (
            side in ("in", "marks")
            and tells_ids(seat.opening)
            and peer not in (self._view.me, seat.opening.origin)
        ):
            raise BadCommand("witness: expected the asker, who alone has the tokens")
        if peer != self._view.me:
            self._admit(peer, seat, {"out": stage + 1, "in": stage - 1}.get(side, stage))
        if side == "match" and peer != self._view.me:
            seat.matches[peer] = seat.matches.get(peer, 0) + 1
            if seat.matches[peer] > MOST_MATCHES:
                raise BadCommand(f"witness: at most {MOST_MATCHES} of these questions about one session")
        return testimony(seat, side, first, stop, said.seen)

    def _admit(self, peer: str, seat: Seat, stage: int) -> None:
        """All of it tells of the text: only who asked for it, or holds the units on one side, may have it."""
        state = self._view.state
        plans = [p for p in (state.plan, state.proposed) if p is not None and p.version == seat.opening.plan]
        stages = plans[0].stages if plans else ()
        runs = {(s.first, s.stop) for place, s in enumerate(stages) if place in (stage, seat.opening.stage)}
        member = state.members.get(peer)
        if peer != seat.opening.origin and (member is None or not runs & set(member.held)):
            raise BadCommand("witness: expected the asker, or a holder of the units in question")

    async def _judge(self, asker: str, place: Place) -> CheckVerdict:
        """Computes the place again. A difference is said in the log, in this peer's name."""
        verdict = _UNABLE
        try:
            verdict = await self.judge.compare(asker, place)
            if verdict == "differs":
                log.warning("%s computed position %d wrong", place.peer[:8], place.position)
                now_ms = int(time.time() * 1000)
                step = (place.session.hex(), place.position, place.units)
                await self._view.propose(CheckFailed(*step, place.peer, self._view.me, now_ms))
        except (PeerError, PlannerError, TimeoutError, RuntimeError, ValueError, ArithmeticError) as error:
            log.debug("cannot check: %s", error)  # or what it was told makes no step
        self.made.add(verdict)
        return verdict


class CheckRequests:
    """What others ask about steps, answered by the checks of the model whose session it is."""

    def __init__(self, links: PeerLinks, of: Callable[[bytes], Checks]) -> None:
        """`of(session)`: the checks of its model."""
        self._of = of
        self._judging: set[str] = set()  # peers for which a check is under way here, of whatever model
        links.on(CHECK, self._asked_to_check)
        links.on(WITNESS, self._asked_to_witness)
        links.on(ODD, self._told_of_odd)

    async def _told_of_odd(self, peer: str, said: OddRequest) -> None:
        session = bytes.fromhex(said.session)
        self._of(session).odd(peer, session, said.position)

    async def _asked_to_check(self, peer: str, said: CheckRequest) -> CheckAnswer:
        if peer in self._judging:
            raise BadCommand("check: expected one at a time")
        self._judging.add(peer)
        try:
            return await self._of(bytes.fromhex(said.session)).checked(peer, said)
        finally:
            self._judging.discard(peer)

    async def _asked_to_witness(self, peer: str, said: WitnessRequest) -> WitnessAnswer:
        return self._of(bytes.fromhex(said.session)).witness(peer, said)


def added_up(reports: Iterable[CheckReport]) -> CheckReport:
    """What was checked of several models together."""
    every = list(reports)

    def counted(counts: Iterable[CheckCounts]) -> CheckCounts:
        return CheckCounts(
            *map(sum, zip(*((c.same, c.differs, c.disputed, c.unable) for c in counts), strict=True))
        )

    return CheckReport(
        counted(each.made for each in every),
        counted(each.got for each in every),
        sum(each.kept for each in every),
        sum(each.positions for each in every),
        max(each.worst_ppm for each in every),
    )


_UNABLE: Final[CheckVerdict] = "unable"
