"""Runs the scenarios about the coordinator: four answers, a writer, a reader, a fault; and back to a whole mesh.

Edge that puts voters, writing and streams together; what a run shows is decided in
`peer.validation.scenarios.leader_faults`.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from peer.errors import CannotServe, PeerError
from peer.validation.runs.loss_runner import Load
from peer.validation.scenarios.figures import judge
from peer.validation.scenarios.leader_faults import CUT_S, FROZEN_S, Kept, Leading, Led, moment
from peer.validation.scenarios.link_conditions import CUT
from peer.validation.scenarios.workload import Question, questions
from peer.validation.world.answer_streams import Answered, answer_all
from peer.validation.world.command_writer import Writing, kept_states
from peer.validation.world.voter_mesh import Voters

SETS: Final = 4  # of questions: each is answered undisturbed once, then disturbed as often as runs need it
LEADS_WITHIN_S: Final = 30.0
AWAKE_S: Final = 2.0  # a peer that woke up says what it has to say within this
OLD_ORDER: Final = "an old order"  # of what peers log when they refuse one


@dataclass(slots=True)
class _Hit:
    """The fault of one run, as it came."""

    number: int
    name: str = ""
    at_s: float = 0.0
    term: int = 0
    served: bool = False
    leader_s: float | None = None


class LeaderRunner:
    """Runs on one mesh. `tell` gets a line about each run for people."""

    def __init__(self, voters: Voters, load: Load, tell: Callable[[str], None]) -> None:
        self._voters = voters
        self._load = load
        self._tell = tell
        self._known: dict[int, tuple[tuple[Question, ...], list[Answered]]] = {}
        self._writing = Writing(voters.asker)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def calm_s(self) -> list[float]:
        """The longest gap of each undisturbed answer."""
        return [_longest(answered) for _, known in self._known.values() for answered in known]

    async def begin(self) -> None:
        """Begins what is written before any fault."""
        await self._writing.begin()

    async def run(self, name: Leading, number: int) -> Led:
        """One run, and the mesh made whole again. Raises CannotServe when an undisturbed answer fails."""
        asked, known = await self._undisturbed(number)
        load, hit = self._load, _Hit(number)
        when = moment(load.sessions, load.tokens, random.Random(f"{load.seed}/{name.value}/{number}").random)
        over = asyncio.Event()

        def on_token(session: int, count: int) -> None:
            if not hit.name and session == when.session and count >= when.after_token:
                hit.name = self._voters.placed.name or "?"
                self._tasks.append(asyncio.ensure_future(self._hurt(name, hit, over)))

        seen = await answer_all(self._voters.asker, asked, on_token, digests=False)
        trouble, restored_s = "", None
        try:
            if not hit.name:
                raise CannotServe("the answers ended before the fault")
            await over.wait()
            await asyncio.gather(*self._tasks)
            begun = time.perf_counter()
            await self._voters.restore()
            restored_s = time.perf_counter() - begun
        except PeerError as error:
            trouble = str(error)
        finally:
            await self._drop_tasks()
        judged = tuple(
            judge(a.stream, b.stream, hit.at_s or None, hit.at_s) for a, b in zip(known, seen, strict=True)
        )
        written = self._writing.first_after(hit.at_s)
        notes = [
            f"answer {place} broke off: {b.stream.error}" for place, b in enumerate(seen) if b.stream.error
        ]
        led = Led(
            judged,
            tuple(map(_longest, seen)),
            hit.served,
            hit.leader_s,
            None if written is None else written - hit.at_s,
            restored_s,
            trouble,
            tuple(notes),
        )
        self._tell(f"{name.value} {number}: {hit.name}, {_line(led)}")
        return led

    async def end(self, mesh: str) -> Kept:
        """No more commands: what of them is in the logs of all voters, once all of them have ended."""
        writing, voters = self._writing, self._voters
        await writing.close()
        await voters.settled()
        old = voters.complaints(OLD_ORDER) + writing.went_back
        voters.down.update(voters.children)
        await asyncio.gather(*(child.end() for child in voters.children.values()))
        states = kept_states(mesh, voters.children.values())
        lost = {number for state in states.values() for number in writing.lost_in(state)}
        return Kept(
            writing.said,
            len(writing.acknowledged),
            len(lost),
            writing.unknown,
            writing.reads,
            writing.refused_reads,
            writing.stale_reads,
            old,
        )

    async def close(self) -> None:
        """Nothing of it goes on."""
        await self._drop_tasks()
        await self._writing.close()

    async def _undisturbed(self, number: int) -> tuple[tuple[Question, ...], list[Answered]]:
        place, load = number % SETS, self._load
        if place not in self._known:
            asked = questions(load.sessions, load.tokens, random.Random(f"{load.seed}/{place}").random)
            known = await answer_all(self._voters.asker, asked, digests=False)
            for answered in known:
                if answered.stream.error:
                    raise CannotServe(f"an answer failed with nothing disturbed: {answered.stream.error}")
            self._known[place] = asked, known
        return self._known[place]

    async def _hurt(self, name: Leading, hit: _Hit, over: asyncio.Event) -> None:
        """The fault, from its moment until it is over."""
        voters = self._voters
        try:
            before = voters.placed
            if not before.name:
                raise CannotServe("nobody coordinated when the fault was to come")
            hit.name, hit.term = before.name, before.term
            hit.served = before.name in voters.route()
            hit.at_s = time.perf_counter()
            child = voters.children[before.name]
            others = [other for other in voters.children if other != before.name]
            match name:
                case Leading.LEADER_KILLED:
                    voters.ended(before.name)
                    child.send(signal.SIGKILL)
                    await self._another(hit)
                case Leading.LEADER_FROZEN:
                    child.send(signal.SIGSTOP)
                    try:
                        await self._another(hit)
                        await asyncio.sleep(max(0.0, hit.at_s + FROZEN_S - time.perf_counter()))
                    finally:
                        child.send(signal.SIGCONT)
                    await asyncio.sleep(AWAKE_S)
                    await voters.follows(before.name)
                case Leading.LINK_ONE_WAY:
                    await self._cut([(before.name, others[0])], hit, one_way=True)
                case Leading.LEADER_BRIDGE:
                    # Once the coordinator is the bridge, once it is not.
                    bridge = before.name if hit.number % 2 else others[0]
                    ends = [each for each in voters.children if each != bridge]
                    await self._cut([(ends[0], ends[1])], hit, one_way=False)
                case _:
                    assert_never(name)
        finally:
            over.set()

    async def _cut(self, links: list[tuple[str, str]], hit: _Hit, *, one_way: bool) -> None:
        """Cuts links for a while; somebody must lead, and commands go through, until the end of it."""
        voters = self._voters
        assert voters.relay is not None
        await voters.relay.set_links(CUT, links, one_way=one_way)
        await asyncio.sleep(max(0.0, hit.at_s + CUT_S - time.perf_counter()))
        asked_s = time.perf_counter()
        await voters.until(
            lambda: self._writing.first_after(asked_s) is not None,
            LEADS_WITHIN_S,
            lambda: "no command goes through",
        )
        hit.leader_s = 0.0 if voters.order[0] == hit.term else None
        if hit.leader_s is None:
            hit.leader_s = time.perf_counter() - asked_s

    async def _another(self, hit: _Hit) -> None:
        """Waits until an entry of a later term is committed, which shows a leader that takes commands."""
        voters = self._voters
        noticed = asyncio.Event()

        def look() -> None:
            if voters.order[0] > hit.term and hit.leader_s is None:
                hit.leader_s = time.perf_counter() - hit.at_s
                noticed.set()

        unsubscribe = voters.asker.view.subscribe(look)
        try:
            async with asyncio.timeout(LEADS_WITHIN_S):
                await noticed.wait()
        except TimeoutError:
            raise CannotServe(f"nobody coordinates {LEADS_WITHIN_S:.0f} s later") from None
        finally:
            unsubscribe()

    async def _drop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


def _longest(answered: Answered) -> float:
    return max((stop - first for first, stop in answered.stream.gaps[1:]), default=0.0)


def _line(led: Led) -> str:
    whole = sum(answer.completed for answer in led.judged)
    equal = sum(answer.equal for answer in led.judged)
    if led.leader_s is None:
        leader = "nobody leads"
    else:
        leader = f"another leads after {led.leader_s:.2f} s" if led.leader_s else "it leads on"
    pause = max(led.pauses_s, default=0.0)
    restored = f", whole again after {led.restored_s:.1f} s" if led.restored_s is not None else ""
    notes = "; ".join((*led.notes, *([led.trouble] if led.trouble else [])))
    return (
        f"{leader}; {whole}/{len(led.judged)} complete, {equal} equal, longest pause {pause * 1000:.0f} ms"
        f"{' of answers that needed it' if led.served else ''}{restored}{f' ({notes})' if notes else ''}"
    )
