"""The scenario `ledger`: members and leaders are killed while answers run; then balances are compared with the work.

Edge. Every peer that computes is a process of its own, the founder too; this process asks, and keeps its own books.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from peer.consensus.records import Entry
from peer.errors import BadCommand, CannotServe, PeerError
from peer.state.generated.commands import PlanProposed, PlanRecord, WorkRecorded
from peer.state.member_commands import decode_command
from peer.validation.runs.loss_runner import Load
from peer.validation.scenarios.expected_ledger import Book, Logged, Seen, compared
from peer.validation.scenarios.leader_faults import moment
from peer.validation.scenarios.workload import questions
from peer.validation.world.answer_streams import answer_all
from peer.validation.world.voter_mesh import Voters
from peer.wire.generated.frames import Open
from peer.wire.tensors import Tensor

SCENARIO: Final = "ledger"
MEANING: Final = "SIGKILL of members and leaders while answers run; what was earned is what was computed"
LEADER_SHARE: Final = 0.5  # of the kills hit whoever coordinates, if anybody does
SAID_WITHIN_S: Final = 120.0  # everything that is owed stands in the log by then
LOOK_S: Final = 0.1


@dataclass(slots=True)
class Kills:
    """Who was killed, and what became of the answers meanwhile."""

    wanted: int
    members: int = 0
    leaders: int = 0
    serving: int = 0  # of both, peers over which answers went
    answers: int = 0
    completed: int = 0
    terms: int = 0  # that passed
    trouble: str = ""
    books: dict[str, Any] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """What the run is reported as: the comparison of the books, and how many were killed."""
        killed = self.members + self.leaders
        held = not self.trouble and killed == self.wanted and bool(self.books.get("held"))
        return {
            **self.books,
            "held": held,
            "books_fit": bool(self.books.get("held")),
            "kills": killed,
            "members_killed": self.members,
            "leaders_killed": self.leaders,
            "serving_killed": self.serving,
            "terms": self.terms,
            "answers_asked": self.answers,
            "answers_completed": self.completed,
            "trouble": self.trouble,
        }


class LedgerRunner:
    """Kills on one mesh. `tell` gets a line about each for people."""

    def __init__(self, voters: Voters, load: Load, kills: Kills, tell: Callable[[str], None]) -> None:
        self._voters = voters
        self._load = load
        self._kills = kills
        self._tell = tell
        model = voters.state.model
        assert model is not None  # the mesh is whole
        self._units = model.units
        self._seen = Seen(voters.asker.me, model.units)
        self._logged = Logged(Book(model.units))
        self._plans: dict[int, PlanRecord] = {}
        self._first_term = voters.order[0]
        voters.all_vote = False  # who was killed thrice in ten minutes flaps, and does not vote for a while
        self._listen()

    def _listen(self) -> None:
        """From here on both books are kept. Nothing was asked before."""
        asker = self._voters.asker
        self._note(asker.view.state.plan, asker.view.state.proposed)
        asker.view.on_log(self._log_changed)
        asker.sessions.subscribe(self)

    def _log_changed(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if entry.kind == "command":
                self._read(entry.data)

    # --- SessionListener

    def opened(self, frame: Open) -> None:
        """A turn of an answer begins."""
        state = self._voters.asker.view.state
        self._note(state.plan, state.proposed)
        if (plan := self._plans.get(frame.plan)) is not None:
            self._seen.opened(frame, [(stage.first, stage.stop) for stage in plan.stages])

    def emitted(self, session: bytes, position: int) -> None:
        """A token came."""
        self._seen.token(session, position)

    def ended(self, session: bytes) -> None:
        """What an answer was worth stays in the book."""

    def returned(self, session: bytes, position: int, state: Tensor) -> None:
        """States that come back cost nothing."""

    def _note(self, *plans: PlanRecord | None) -> None:
        self._plans.update({plan.version: plan for plan in plans if plan is not None})

    def _read(self, data: bytes) -> None:
        try:
            command = decode_command(data)
        except BadCommand:
            return
        if isinstance(command, PlanProposed):
            self._note(command.plan)  # an answer may move to one that another has replaced since
        if isinstance(command, WorkRecorded):
            for work in command.entries:
                self._logged.entry(work)

    async def kill(self, number: int) -> None:
        """One kill while answers run, and the mesh made whole again. Raises CannotServe."""
        voters, load, kills = self._voters, self._load, self._kills
        draw = random.Random(f"{load.seed}/{SCENARIO}/{number}").random
        asked, when = questions(load.sessions, load.tokens, draw), moment(load.sessions, load.tokens, draw)
        leads, place = draw() < LEADER_SHARE, int(draw() * len(voters.children))
        hit = ""

        def on_token(session: int, count: int) -> None:
            nonlocal hit
            if not hit and session == when.session and count >= when.after_token:
                leader = voters.placed.name
                hit = leader if leads and leader in voters.children else list(voters.children)[place]
                kills.leaders += hit == leader
                kills.members += hit != leader
                kills.serving += hit in voters.route()
                voters.ended(hit)
                voters.children[hit].send(signal.SIGKILL)

        answered = await answer_all(voters.asker, asked, on_token, digests=False)
        kills.answers += len(answered)
        kills.completed += sum(not each.stream.error for each in answered)
        if not hit:
            raise CannotServe("the answers ended before the kill")
        await voters.children[hit].gone()
        await voters.restore()
        killed = kills.members + kills.leaders
        self._tell(f"{SCENARIO} {number}: {hit} killed, whole again; {killed} kills, term {voters.order[0]}")

    async def close(self) -> None:
        """Compares, once all that is owed stands in the log."""
        voters, kills = self._voters, self._kills
        kills.terms = voters.order[0] - self._first_term
        accounts = voters.asker.accounts
        assert accounts is not None  # it asked
        try:
            async with asyncio.timeout(SAID_WITHIN_S):
                await accounts.say()
                while len(accounts.receipts):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            kills.trouble = kills.trouble or f"{len(accounts.receipts)} claims are not in the log"
        kills.books = compared(self._seen.book, self._logged, voters.state.ledger, self._units)


async def run_kills(
    voters: Voters, load: Load, first: int, kills: Kills, until_s: float, tell: Callable[[str], None]
) -> None:
    """All kills on one mesh, as long as there is time, and the comparison in the end, whatever happened."""
    runner = LedgerRunner(voters, load, kills, tell)
    try:
        for number in range(first, first + kills.wanted):
            if time.monotonic() >= until_s:
                break
            await runner.kill(number)
    except PeerError as error:
        kills.trouble = str(error)
    await runner.close()
