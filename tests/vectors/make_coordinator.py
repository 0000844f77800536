"""Writes coordinator.json: what happens in a mesh, and what a coordinator adds to the log, for both languages.

Figures of plans and their reasons are left out: only Python evaluates plans. A trace ends where a plan needs a planner.
"""

from __future__ import annotations

import json
import random
from typing import Any

from tracing import beside, written

from peer.coordination.coordinator import SILENT, Coordinator
from peer.errors import BadCommand
from peer.state.failure_domains import Surroundings
from peer.state.generated.commands import (
    LinkFacts,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    ModelChosen,
    PlanProposed,
    PlanRecord,
    PlanStage,
    Profile,
    ProtectionChosen,
    UnitsHeld,
)
from peer.state.member_commands import Command, decode_command, encode_command
from peer.state.protection import PRESETS, Level
from planner.model import yardstick
from planner.types import Unit

PATH = beside(__file__, "coordinator.json")
SEED = 20261128
TRACES = 14
OPS = 12
PEERS = ("pa", "pb", "pc", "pd")
KINDS = ("embed", "attn", "ffn", "attn", "ffn", "head")
UNITS = tuple(Unit(f"{kind}.{at}", kind, 1000 * (at + 1), 5, 2, 64) for at, kind in enumerate(KINDS))
RUNS = ((0, 3), (3, 6))
TOOK_OVER = "Who stood by took over; nobody else moves."


class NeedsPlanner(Exception):
    """What the coordinator proposed is not a standby that took over."""


def profile(rng: random.Random, kinds: tuple[str, ...] = KINDS) -> Profile:
    table = {kind: rng.randrange(1, 9) * 1000 for kind in sorted(set(kinds))}
    said = Surroundings(
        rng.choice((None, 21, 500, 9000)),
        rng.choice(("", "a2" * 16, "b3" * 16)),
        "",
        rng.choice(("", "c4" * 16)),
    )
    arithmetic = rng.choice(
        ("", "cpu/avx2/rows-1/0123456789abcdef", "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755")
    )
    return Profile(1 << 30, 1000, table, table, table, 500, "cpu", 1, said, arithmetic)


def measured(rng: random.Random, peer: str) -> MemberMeasured:
    relayed = rng.choice((None, False, False, True))
    links = [
        LinkFacts(*pair, 1000, 10**7, 0, relayed)
        for other in PEERS
        if other != peer
        for pair in ((peer, other), (other, peer))
    ]
    return MemberMeasured(peer, profile(rng), tuple(links))


def plan(rng: random.Random, version: int) -> PlanRecord:
    stages = []
    for first, stop in RUNS:
        primary, *standbys = rng.sample(PEERS, rng.choice((1, 2, 3)))
        stages.append(PlanStage(first, stop, primary, tuple(standbys), 1, 1, 1))
    return PlanRecord(version, tuple(stages), 1000, 1000, ("by hand",))


def happens(rng: random.Random, version: int) -> Command:
    peer = rng.choice(PEERS)
    return rng.choice(
        (
            MemberJoined(peer, peer, True, True, True, 7),
            measured(rng, peer),
            MemberLeft(peer, "gone"),
            MemberLeft(peer, "gone"),
            MemberDraining(peer, rng.choice((SILENT, "hidden"))),
            MemberPaused(peer, "hidden"),
            MemberLeaving(peer),
            UnitsHeld(peer, tuple(rng.sample(RUNS, rng.choice((0, 1, 2, 2))))),
            PlanProposed(plan(rng, version)),
        )
    )


def told(rng: random.Random) -> tuple[str, MemberMeasured | UnitsHeld]:
    """What a member says of itself, often wrong."""
    sender, peer = rng.choice(PEERS), rng.choice(PEERS)
    if rng.random() < 0.5:
        runs = rng.choice(((0, 3), (3, 6), (0, 7)))
        return sender, UnitsHeld(rng.choice((sender, peer)), (runs,))
    said = measured(rng, rng.choice((sender, sender, peer)))
    odd = rng.choice(("", "", "links", "kind", "missing", "slow"))
    if odd == "links":
        return sender, MemberMeasured(said.peer, said.profile, (LinkFacts("pa", "pb", 1, 10**6, 0),))
    if odd == "kind":
        return sender, MemberMeasured(said.peer, profile(rng, (*KINDS, "other")), ())
    if odd == "missing":
        return sender, MemberMeasured(said.peer, profile(rng, ("attn", "ffn")), ())
    if odd == "slow":
        links = (LinkFacts(said.peer, "pd", 61_000_000, 10**6, 0), LinkFacts("pd", said.peer, 5, 999, 0))
        return sender, MemberMeasured(said.peer, said.profile, links)
    return sender, said


def bare(command: Command) -> dict[str, Any]:
    """As the log has it; of a plan that the coordinator made only who serves what."""
    shown: dict[str, Any] = json.loads(encode_command(command))
    if isinstance(command, PlanProposed):
        if TOOK_OVER not in command.plan.why and command.plan.why != ("by hand",):
            raise NeedsPlanner
        stages = [[s.first, s.stop, s.primary, list(s.standbys)] for s in command.plan.stages]
        return {"kind": "PlanProposed", "version": command.plan.version, "stages": stages}
    return shown


def trace(number: int) -> dict[str, Any]:
    rng = random.Random(SEED + number)
    coordinator = Coordinator("pa", UNITS)
    ops: list[dict[str, Any]] = []

    def did(op: dict[str, Any], log: list[Command]) -> None:
        ops.append({**op, "gives": [bare(command) for command in log]})

    def submit(command: Command) -> None:
        did({"do": "submit", "command": json.loads(encode_command(command))}, coordinator.submit(command))

    level: Level = rng.choice(
        ("standard", "basic")
    )  # above them the coordinator of Python places standbys, a tab does not
    submit(ModelChosen("ab" * 32, "tiny", len(UNITS), 32, 2, "latency"))
    submit(ProtectionChosen(PRESETS[level]))
    for peer in PEERS:
        submit(MemberJoined(peer, peer, True, True, True, 7))
    for peer in PEERS:
        submit(decode_command(encode_command(measured(rng, peer))))
        submit(UnitsHeld(peer, tuple(rng.sample(RUNS, rng.choice((1, 2, 2))))))
    submit(PlanProposed(plan(rng, 1)))
    try:
        for _ in range(OPS):
            how = rng.random()
            if how < 0.25:
                sender, command = told(rng)
                op = {"do": "told", "peer": sender, "command": json.loads(encode_command(command))}
                try:
                    taken = coordinator.told(sender, command)
                except BadCommand:
                    ops.append({**op, "refused": True})
                else:
                    did(op, [] if taken is None else [taken])
            elif how < 0.35:
                peer = rng.choice(sorted(coordinator.awaited) or PEERS)
                did({"do": "stop_waiting", "peer": peer}, coordinator.stop_waiting(peer))
            else:
                submit(happens(rng, coordinator.state.last_version + 1))
            ops[-1]["awaited"] = sorted(coordinator.awaited)
    except NeedsPlanner:
        pass
    return {"name": f"random mesh of seed {SEED + number}, {level}", "ops": ops}


def without_words() -> dict[str, Any]:
    """A mesh whose founder chose no model: profiles are checked by what its peers time, and nothing is planned."""
    rng = random.Random(SEED)
    coordinator = Coordinator("pa", yardstick.UNITS)
    ops: list[dict[str, Any]] = []

    def tell(command: MemberMeasured | UnitsHeld) -> None:
        op: dict[str, Any] = {"do": "told", "peer": "pb", "command": json.loads(encode_command(command))}
        try:
            taken = coordinator.told("pb", command)
        except BadCommand:
            ops.append({**op, "refused": True})
        else:
            ops.append({**op, "gives": [] if taken is None else [bare(taken)]})

    for command in (
        MemberJoined("pa", "pa", True, True, True, 1),
        MemberJoined("pb", "pb", True, True, True, 1),
    ):
        given = coordinator.submit(command)
        ops.append(
            {
                "do": "submit",
                "command": json.loads(encode_command(command)),
                "gives": [bare(each) for each in given],
            }
        )
    tell(UnitsHeld("pb", ((0, 1),)))
    tell(UnitsHeld("pb", ()))
    for kinds in (("attn", "ffn"), (), (yardstick.KIND,)):
        tell(MemberMeasured("pb", profile(rng, kinds), ()))
    assert coordinator.wanted() is None
    return {"name": "a mesh without a model that answers in words", "units": "yardstick", "ops": ops}


def text() -> str:
    about = (
        "Histories of meshes. `submit`: a command enters the log; `gives` is it with what the coordinator adds, of "
        "plans version and stages (first, stop, primary, standbys). `told`: what `peer` says of "
        "itself, and what of it enters the log; `stop_waiting`: a lost peer was waited for long enough. `awaited`: "
        "who is then. `units` of a trace: other ones than those above."
    )
    units = [{"name": unit.name, "kind": unit.kind, "weight_bytes": unit.weight_bytes} for unit in UNITS]
    return written(about, {"units": units, "traces": [*map(trace, range(TRACES)), without_words()]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
