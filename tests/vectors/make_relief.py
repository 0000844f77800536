"""Writes relief.json: what a coordinator plans when peers become slower, come, and are lost, for both languages.

The Python coordinator plans itself; a tab is told by the planning service what the Python one reckons.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from tracing import beside, written

from peer.coordination.coordinator import Coordinator, Wanted, solve
from peer.coordination.repair_order import chained, priority_stages, waves
from peer.state.failure_domains import Surroundings
from peer.state.generated.commands import (
    LinkFacts,
    MemberDraining,
    MemberJoined,
    MemberLeft,
    MemberMeasured,
    ModelChosen,
    Profile,
    ProtectionChosen,
    UnitsHeld,
)
from peer.state.member_commands import Command, encode_command
from peer.state.plan_record import holders_of, route_of
from peer.state.protection import PRESETS, Level
from planner.adapt.plan_comparison import Serving
from planner.service.planning_service import Asked, answer
from planner.types import Plan, Stage, Unit

PATH = beside(__file__, "relief.json")
SEED = 20261129
TRACES = 16
OPS = 7
LOOK_MS = 750  # between two looks of a coordinator
MIB = 2**20
KINDS = ("embed", "attn", "ffn", "attn", "ffn", "attn", "ffn", "head")
UNITS = tuple(
    Unit(f"{kind}.{at}", kind, 3 * MIB, 10**6, 1024 if kind == "attn" else 0, 2048)
    for at, kind in enumerate(KINDS)
)


def profile(slower: float, around: Surroundings, memory_mib: int) -> Profile:
    times = {kind: round(400_000 * slower) for kind in sorted(set(KINDS))}
    return Profile(memory_mib * MIB, 2 * MIB, times, times, times, 1000, "cpu", 1, around)


class Trace:
    """A mesh, and what its coordinator was told and did."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.made = Coordinator("p0", UNITS)
        self.ops: list[dict[str, Any]] = []
        self.now_ms = 100_000
        self.memory = {f"p{number}": self.rng.choice((14, 17, 26)) for number in range(5)}

    def did(self, op: dict[str, Any], log: list[Command]) -> None:
        self.ops.append({**op, "gives": [json.loads(encode_command(command)) for command in log]})

    def submit(self, command: Command) -> None:
        self.did({"do": "submit", "command": json.loads(encode_command(command))}, self.made.submit(command))

    def measured(self, peer: str, slower: float, around: Surroundings, *, links: bool = False) -> None:
        others = [other for other in sorted(self.made.state.members) if links and other != peer]
        found = tuple(
            LinkFacts(*pair, 500, 10**8, 0, False)
            for other in others
            for pair in ((peer, other), (other, peer))
        )
        self.submit(MemberMeasured(peer, profile(slower, around, self.memory[peer]), found))

    def plan(self) -> None:
        """Plans as long as there is something to plan."""
        while (wanted := self.made.wanted()) is not None:
            asked = self.serving(wanted)
            told = without_choices(answer(Asked(wanted.request, wanted.wish, asked)))
            found = solve(wanted)
            if isinstance(found, Plan):
                found = replace(found, choices=())
            assert json.loads(told).keys() >= ({"plan"} if isinstance(found, Plan) else {"infeasible"})
            op = {"do": "plan", "serving": None if asked is None else shown(asked), "answer": told}
            self.did(op, self.made.planned(wanted, found))

    def serving(self, wanted: Wanted) -> Serving | None:
        here = {peer.peer for peer in wanted.request.peers}
        held = {peer: runs for peer, runs in wanted.held.items() if peer in here}
        if wanted.before:
            return Serving(wanted.before, held, True, wanted.first)
        serving = self.made.state.serving()
        if serving is None:
            return None
        return Serving(tuple(Stage(s.first, s.stop, s.primary) for s in serving.stages), held)

    def load(self) -> None:
        """Whoever is to hold units holds them, and no others."""
        for _ in ("the next plan", "it alone"):
            state = self.made.state
            runs: dict[str, set[tuple[int, int]]] = {peer: set() for peer in sorted(state.members)}
            for record in (state.proposed, state.plan):
                for peer, held in (holders_of(record) if record is not None else {}).items():
                    runs.get(peer, set()).update(held)
            for peer, wanted in runs.items():
                if tuple(sorted(wanted)) != self.made.state.members[peer].held:
                    self.submit(UnitsHeld(peer, tuple(sorted(wanted))))

    def look(self, times: int) -> None:
        for _ in range(times):
            self.now_ms += LOOK_MS
            log = self.made.relieve(self.now_ms / 1000)
            self.did({"do": "look", "now_ms": self.now_ms}, log)
            if log:
                self.load()

    def happens(self) -> None:
        state, rng = self.made.state, self.rng
        peers = sorted(state.members)
        serving = state.serving()
        route = sorted(set(route_of(serving))) if serving is not None else peers
        what = rng.random()
        if what < 0.5:
            peer = rng.choice(route)
            self.measured(peer, rng.choice((0.5, 1.0, 1.2, 4.0, 12.0)), self.around(peer))
        elif what < 0.58:
            peer = rng.choice(peers)
            self.measured(
                peer,
                self.slower(peer),
                Surroundings(rng.choice((20, 500, 9000)), rng.choice(("", "a2" * 16))),
            )
        elif what < 0.68 and len(peers) < len(self.memory):
            peer = next(each for each in sorted(self.memory) if each not in state.members)
            self.submit(MemberJoined(peer, peer, True))
            self.measured(peer, rng.choice((0.5, 1.0)), Surroundings(20), links=True)
        elif what < 0.77 and len(peers) > 2:
            peer = rng.choice(peers[1:])
            self.submit(MemberDraining(peer, "hidden"))
        elif len(peers) > 2:
            lone = [peer for peer in peers[1:] if self.alone(peer)]
            needed = [peer for peer in lone if peer in route]
            if lone:
                self.submit(MemberLeft(rng.choice(needed or lone), "gone"))

    def around(self, peer: str) -> Surroundings:
        known = self.made.state.members[peer].profile
        return known.surroundings if known is not None else Surroundings()

    def slower(self, peer: str) -> float:
        known = self.made.state.members[peer].profile
        return known.decode_ns["attn"] / 400_000 if known is not None else 1.0

    def alone(self, peer: str) -> bool:
        """Whether `peer` serves nothing, or units that nobody else holds: no plan follows without a planner."""
        state = self.made.state
        serving = state.serving()
        if serving is None:
            return False
        others = {
            unit
            for other, member in state.members.items()
            if other != peer
            for first, stop in member.held
            for unit in range(first, stop)
        }
        return peer not in route_of(serving) or not set(range(len(UNITS))) <= others


def without_choices(told: bytes) -> str:
    """They make a plan long, and nobody decides by them."""
    answered: dict[str, Any] = json.loads(told)
    if "plan" in answered:
        answered["plan"]["choices"] = []
    return json.dumps(answered)


def shown(asked: Serving) -> dict[str, Any]:
    stages = [{"first": s.first, "stop": s.stop, "peer": s.peer} for s in asked.stages]
    held = {peer: [list(run) for run in runs] for peer, runs in asked.held.items()}
    return {"stages": stages, "held": held, "lost": asked.lost, "first": list(asked.first)}


def trace(number: int) -> dict[str, Any]:
    made = Trace(SEED + number)
    rng = made.rng
    level: Level = rng.choice(("basic", "basic", "standard"))
    made.submit(ModelChosen("ab" * 32, "toy", len(UNITS), 64, 1, "latency"))
    priority = rng.choice(((), ("ffn.4",), ("attn.3", "head.7")))
    made.submit(ProtectionChosen(replace(PRESETS[level], priority=priority)))
    for peer in ("p0", "p1", "p2", "p3"):
        made.submit(MemberJoined(peer, peer, True))
    for peer in ("p0", "p1", "p2", "p3"):
        made.measured(peer, 1.0, Surroundings(20), links=True)
    made.plan()
    made.load()
    for _ in range(OPS):
        made.happens()
        made.plan()
        if rng.random() < 0.9:
            made.load()
        made.look(rng.choice((1, 3, 6)))
        if rng.random() < 0.3:
            made.now_ms += 60_000
    return {"name": f"random mesh of seed {SEED + number}, {level}", "ops": made.ops}


def places(number: int) -> dict[str, Any]:
    """Lost stages, and the order of their repair."""
    rng = random.Random(SEED + number)
    cuts = sorted(rng.sample(range(1, len(UNITS)), rng.randint(0, 6)))
    runs = list(zip([0, *cuts], [*cuts, len(UNITS)], strict=True))
    lost = sorted(rng.sample(range(len(runs)), rng.randint(0, len(runs))))
    names = [unit.name for unit in UNITS]
    priority = rng.sample(names, rng.choice((0, 1, 1, 2)))
    together = rng.random() < 0.5
    order = waves(chained(lost), priority_stages(runs, names, priority), together=together)
    return {
        "runs": runs,
        "lost": lost,
        "priority": priority,
        "together": together,
        "order": [place for wave in order for place in wave],
    }


def text() -> str:
    about = (
        "Histories of meshes. `submit`: a command enters the log; `gives` is it with what the coordinator adds. "
        "`plan`: the planning service is asked, beside `serving` (null: nothing serves), and says `answer`; `look`: a "
        "coordinator looks whether peers are to be relieved. `repairs`: lost places in the order of their repair."
    )
    units = [{"name": unit.name, "kind": unit.kind, "weight_bytes": unit.weight_bytes} for unit in UNITS]
    tables = {
        "units": units,
        "traces": [trace(number) for number in range(TRACES)],
        "repairs": [places(number) for number in range(24)],
    }
    return written(about, tables)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
