"""The toy mesh while its plan changes: what moves, how, and what came of each answer."""

from __future__ import annotations

from functools import partial

from peer.session.effects import OriginEffect
from peer.session.origin import Ask, OriginSession
from peer.session.seat import ID_BYTES, Seat
from peer.session.stage import StageCore, StageRules
from peer.state.generated.commands import PlanRecord
from peer.wire.generated.frames import Feed, Here, Refuse, Token
from tests.peer.session.toy_mesh import GREEDY, World, plan_of

LOOK_S = 0.05
WAYS = {
    "one border moves": (plan_of(1, [3, 6], ["p0", "p1", "p2"]), plan_of(2, [2, 6], ["p0", "p1", "p2"])),
    "stages merge": (plan_of(1, [3, 6], ["p0", "p1", "p2"]), plan_of(2, [6], ["p0", "p2"])),
    "a stage splits": (plan_of(1, [4], ["p0", "p1"]), plan_of(2, [2, 4, 6], ["p0", "p2", "p1", "p3"])),
    "other peers": (plan_of(1, [4], ["p0", "p1"]), plan_of(2, [4], ["p2", "p3"])),
    "peers change places": (plan_of(1, [4], ["p0", "p1"]), plan_of(2, [4], ["p1", "p0"])),
    "one peer is enough": (plan_of(1, [2, 5], ["p0", "p1", "p2"]), plan_of(2, [], ["p1"])),
}


class Moving(World):
    """A world whose askers move; with `copies` new seats get the caches of those who compute the answer."""

    now: float

    def __init__(self, seed: int, plans: list[PlanRecord], *, copies: bool = False) -> None:
        self._copies = copies
        super().__init__(seed, plans)
        self.first: dict[bytes, bytes] = {}  # session that an answer began in, by the one that it has

    def stage_core(self, peer: str) -> StageCore:
        return StageCore(peer, rules=StageRules(bring=partial(self._bring, peer)))

    def _bring(self, peer: str, seat: Seat) -> bool:
        if not self._copies:
            return False
        opening = seat.opening
        old = next(plan for plan in self.plans if plan.version == opening.before)
        parts = []
        for other, stage in zip(opening.shadows, old.stages, strict=True):
            run = (stage.first, stage.stop)
            if run[0] < seat.run[1] and seat.run[0] < run[1]:
                found = self.cores[other].same_answer(opening.session, run, opening.origin)
                parts.append(self.runtimes[other, run].cache[found[0]][: found[1]] if found else [])
        count = min(map(len, parts))
        if count:
            self.runtimes[peer, seat.run].cache[opening.session] = list(parts[0][:count])
        self.post(self.now + self.random.uniform(0.0, 0.3), "copy", peer, (seat.key, count))
        return True

    def deliver(self, src: str, dst: str, item: object) -> None:
        if isinstance(item, tuple):
            self.from_stage(dst, self.cores[dst].brought(self.now, *item))
            return
        if isinstance(item, Token | Refuse | Here | Feed) and item.session not in self.origins:
            for core in list(self.origins.values()):
                if core.second == item.session and core.me == dst:
                    self.perform(core, core.session, core.second_frame(self.now, src, item))
        super().deliver(src, dst, item)

    def perform(self, core: OriginSession, before: bytes, effects: list[OriginEffect]) -> None:
        if core.session != before:
            self.origins[core.session] = self.origins.pop(before)
            self.emitted[core.session] = self.emitted.pop(before)
            self.first[core.session] = self.first.pop(before, before)
        self.from_origin(core, effects)

    def go(self, until: float) -> None:
        """Runs, and looks at every session as its timer would."""
        while self.now < until and (self.queue or any(c.second for c in self.origins.values())):
            self.run(until=min(until, self.now + LOOK_S))
            self.now = min(until, self.now + LOOK_S) if not self.queue else max(self.now, self.queue[0][0])
            for core in list(self.origins.values()):
                if self.now >= core.deadline:
                    self.perform(core, core.session, core.tick(self.now))


def answers(world: Moving, plan: PlanRecord, count: int, tokens: int) -> dict[bytes, list[int]]:
    prompts = {}
    for number in range(count):
        session = bytes([number]) * 12 + bytes(ID_BYTES)
        prompts[session] = [1 + number, 2, 3] * (1 + 7 * number)
        world.ask(session, "asker", plan, Ask(tuple(prompts[session]), tokens, GREEDY, ()))
    return prompts
