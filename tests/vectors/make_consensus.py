"""Writes consensus.txt: what cores did in simulated runs, for the cores of all languages to do again.

How a life stands there is in consensus_traces.py; digests have their first 8 digits. Lives are chosen so that every
shape (a kind of event, the role it finds, the kinds of effects it has) that thousands of runs show is there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peer.consensus.core import Core
from peer.consensus.events import ChangeConfig, Effect, Event, Received, Reject, Send
from peer.consensus.trace_json import plain
from tests.consensus.sim.healing import run_schedule
from tests.consensus.sim.member import Member
from tests.consensus.sim.schedule import make_schedule
from tests.vectors.consensus_traces import written_life

TARGET = Path(__file__).parent / "consensus.txt"
SCHEDULES = 700
LIVES = 520
MOST_STEPS = 70
DIGITS = 8


@dataclass(frozen=True, slots=True)
class Step:
    now: int
    event: Event
    effects: Sequence[Effect]
    digest: str
    shape: str


class Recorder:
    """Gathers the lives of one run; digests, which cost much, only of the first `wanted` steps of a life."""

    def __init__(self, seed: int, wanted: Mapping[str, int]) -> None:
        self._seed = seed
        self._wanted = wanted
        self.lives: dict[str, list[Step]] = {}

    def __call__(self, member: Member, now: int, event: Event, effects: Sequence[Effect]) -> None:
        name = f"seed {self._seed} {member.id} {member.boots}"
        life = self.lives.setdefault(name, [])
        if len(life) >= MOST_STEPS:
            return
        assert isinstance(member.core, Core)
        digest = member.core.digest()[:DIGITS] if len(life) < self._wanted.get(name, 0) else ""
        life.append(Step(now, event, effects, digest, _shape(member, event, effects)))


def _shape(member: Member, event: Event, effects: Sequence[Effect]) -> str:
    return " ".join([member.role, _name(event), *sorted({_name(effect) for effect in effects})])


def _name(value: Event | Effect) -> str:
    match value:
        case Received(message=message) | Send(message=message):
            return type(message.body).__name__
        case ChangeConfig(change=change):
            return type(change).__name__
        case Reject(reason=reason):
            return f"Reject {reason}"
        case _:
            return type(value).__name__


def lives(seed: int, wanted: Mapping[str, int]) -> dict[str, list[Step]]:
    """All lives of a run, by name."""
    recorder = Recorder(seed, wanted)
    run_schedule(make_schedule(seed), record=recorder)
    return recorder.lives


def choose(count: int) -> dict[str, int]:
    """How many steps of which lives: all that show something new, up to it; then the shortest of the others."""
    seen: set[str] = set()
    chosen: dict[str, int] = {}
    others: list[tuple[int, str]] = []
    for seed in range(SCHEDULES):
        for name, steps in lives(seed, {}).items():
            news = [place for place, step in enumerate(steps) if step.shape not in seen]
            if news:
                chosen[name] = news[-1] + 1
                seen.update(step.shape for step in steps[: news[-1] + 1])
            elif len(steps) > 8:
                others.append((len(steps), name))
    others.sort()
    chosen.update({name: steps for steps, name in others[: max(0, count - len(chosen))]})
    return chosen


def life_text(name: str, steps: list[Step]) -> str:
    """The life as consensus_traces.py writes it."""
    wire = [
        [step.now, plain(step.event), [plain(effect) for effect in step.effects], step.digest]
        for step in steps
    ]
    return written_life(name, wire)


def main() -> int:
    chosen = choose(LIVES)
    text = ""
    for seed in sorted({int(name.split()[1]) for name in chosen}):
        found = lives(seed, chosen)
        text += "".join(
            life_text(name, steps[: chosen[name]]) for name, steps in found.items() if name in chosen
        )
    TARGET.write_text(text, encoding="utf-8")
    print(f"{len(chosen)} lives, {sum(chosen.values())} steps, {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
