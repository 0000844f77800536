"""Runs scenarios: the undisturbed answers, the disturbed ones, what differs, and back to a whole mesh for the next.

Edge that puts rig, faults and streams together; what a run shows is decided in `peer.validation.scenarios.figures`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from peer.errors import CannotServe, PeerError
from peer.validation.scenarios.faults import MOVED_TOKENS, Does, Mesh, Name, schedule
from peer.validation.scenarios.figures import Judged, Ran, Stream, judge, pause
from peer.validation.scenarios.workload import Question, questions
from peer.validation.world.answer_streams import Answered, answer_all, first_other, same_caches
from peer.validation.world.fault_schedule import Faults
from peer.validation.world.mesh import Rig

SETS: Final = 8  # of questions: each is answered undisturbed once, then disturbed as often as runs need it
SHAKEN_LASTS: Final = 1e9  # a shaken network is shaken until the answers end


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked in every run, and from which seed everything is drawn."""

    sessions: int
    tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Run:
    """One disturbed run as it is kept: `gaps_s` of the undisturbed and of the disturbed answers."""

    scenario: Name
    number: int
    ran: Ran
    streams: tuple[Stream, ...]


class Runner:
    """Runs on one rig. `tell` gets a line about each run for people."""

    def __init__(self, rig: Rig, load: Load, tell: Callable[[str], None]) -> None:
        self._rig = rig
        self._load = load
        self._tell = tell
        self._known: dict[tuple[int, int], list[Answered]] = {}
        self._digests = not rig.tabs()  # a tab rounds otherwise than a process: the same tokens, other bits

    async def undisturbed(self, number: int, tokens: int = 0) -> tuple[tuple[Question, ...], list[Answered]]:
        """The questions of run `number` and their answers when nothing happens. Raises CannotServe when those fail."""
        place = number % SETS
        load = self._load
        tokens = max(tokens, load.tokens)
        asked = questions(load.sessions, tokens, random.Random(f"{load.seed}/{place}").random)
        known = self._known.get((place, tokens))
        if known is None:
            known = await answer_all(self._rig.founder, asked, digests=self._digests)
            for answered in known:
                if answered.stream.error:
                    raise CannotServe(f"an answer failed with nothing disturbed: {answered.stream.error}")
            self._known[place, tokens] = known
        return asked, known

    async def run(self, name: Name, number: int) -> Run:
        """One run, and the mesh made whole again. Raises CannotServe when an undisturbed answer fails."""
        rig, load = self._rig, self._load
        await rig.need_a_tab()
        moves = name is Name.MIGRATION
        asked, known = await self.undisturbed(number, MOVED_TOKENS if moves else 0)
        mesh = Mesh(len(rig.plan().stages), len(rig.names), load.sessions, asked[0].tokens)
        rig.coverage, version = None, rig.plan().version
        planned = schedule(name, number, mesh, random.Random(f"{load.seed}/{name.value}/{number}").random)
        before = await self._replayed()
        faults = Faults(rig, planned)
        seen = await answer_all(
            rig.founder, asked, faults.on_token, digests=self._digests, show=faults.follow
        )
        after = await self._replayed()
        at_end = [talk.plan for talk in faults.talks]
        pauses = [
            pause(a.stream, b.stream, min(faults.hit_s, default=0.0))
            for a, b in zip(known, seen, strict=True)
        ]
        over = sum(longest > most for longest, most in pauses) if moves else 0
        covered = rig.coverage
        shaken = any(fault.does is Does.SHAKE for fault in planned)
        first_s = min(faults.hit_s, default=None)
        last_s = SHAKEN_LASTS if shaken or moves else max(faults.hit_s, default=0.0)
        judged = tuple(judge(a.stream, b.stream, first_s, last_s) for a, b in zip(known, seen, strict=True))
        notes = [*faults.notes, *_troubles(known, seen, judged)]
        if moves:
            notes += [f"pauses of {', '.join(f'{a * 1000:.0f} ({b * 1000:.0f})' for a, b in pauses)} ms"]
            notes += covered.gaps[:4] if covered is not None else []
        trouble, restored_s = "", None
        begun = time.perf_counter()
        try:
            await faults.over()
            await rig.restore()
            restored_s = time.perf_counter() - begun
        except PeerError as error:
            trouble = str(error)
        kv = [
            same
            for a, b in zip(known, seen, strict=True)
            if (same := same_caches(a.caches, b.caches)) is not None
        ]
        ran = Ran(
            judged=judged,
            primary_hit=faults.primary_hit,
            kv_equal=all(kv) if kv else None,
            replayed_bytes=sum(max(0, count - before.get(peer, 0)) for peer, count in after.items()),
            restored_s=restored_s,
            trouble=trouble,
            notes=tuple(notes),
            moved=sum(plan > version for plan in at_end) if moves else None,
            pauses_over=over,
            uncovered=len(covered.gaps) if covered is not None else 0,
        )
        self._tell(f"{name.value} {number}: {_line(ran)}")
        return Run(name, number, ran, tuple(answered.stream for answered in seen))

    async def _replayed(self) -> dict[str, int]:
        reports = await self._rig.founder.status()
        return {peer: int(report.get("replayed_bytes", 0)) for peer, report in reports.items()}


def _troubles(known: list[Answered], seen: list[Answered], judged: tuple[Judged, ...]) -> list[str]:
    """What is wrong with the answers, without their words."""
    found = []
    for place, (a, b, result) in enumerate(zip(known, seen, judged, strict=True)):
        if b.stream.error:
            found.append(f"answer {place} broke off after {len(b.stream.tokens)} tokens: {b.stream.error}")
        if not result.equal:
            found.append(f"answer {place} differs from token {result.first_difference} on")
        elif a.caches is not None and b.caches is not None and a.caches != b.caches:
            found.append(f"caches of answer {place} differ: {first_other(a.caches, b.caches)}")
    return found


def _line(ran: Ran) -> str:
    whole = sum(answer.completed for answer in ran.judged)
    equal = sum(answer.equal for answer in ran.judged)
    hit = [answer.recovery_s for answer in ran.judged if answer.recovery_s is not None]
    worst = f", recovery up to {max(hit) * 1000:.0f} ms" if hit else ""
    restored = f", whole again after {ran.restored_s:.1f} s" if ran.restored_s is not None else ""
    kv = "" if ran.kv_equal is None else ", caches equal" if ran.kv_equal else ", CACHES DIFFER"
    notes = "; ".join((*ran.notes, *([ran.trouble] if ran.trouble else [])))
    return f"{whole}/{len(ran.judged)} complete, {equal} equal{worst}{kv}{restored} ({notes})"
