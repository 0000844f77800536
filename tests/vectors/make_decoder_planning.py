"""Writes decoder_planning.json: with what further models that answer in words are planned, in states that commands
build.
"""

from __future__ import annotations

from typing import Any

from tracing import beside, written

from peer.coordination.decoder_planning import OWN as THE_OWN
from peer.coordination.decoder_planning import (
    Sharing,
    Weights,
    planned_with,
    said_of,
    shared_runs,
    taken_bytes,
)
from peer.state.generated.commands import (
    DecoderActivated,
    DecoderOffered,
    DecoderPlanned,
    DecoderRefused,
    ModelOffered,
    ModelPlaced,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    PlanStage,
    PlanWished,
    RunStage,
)
from peer.state.member_commands import Command, encode_command
from peer.state.mesh_state import MeshState, apply
from planner.types import Unit
from tests.peer.coordination.offered_models import MIB, OWN, member, own_plan

PATH = beside(__file__, "decoder_planning.json")
PEERS = ("a", "b", "t", "g", "old")
UNITS_OWN = (
    Unit("embed", "embed", 5 * MIB, 0, 0, 4),
    Unit("l0", "attn", MIB, 3000, 64, 256),
    Unit("l1", "ffn", MIB, 7000, 0, 256),
    Unit("l2", "attn", MIB, 3000, 64, 256),
    Unit("l3", "ffn", MIB, 7000, 0, 256),
    Unit("head", "head", 5 * MIB, 11000, 0, 4),
)
UNITS_MORE = (
    Unit("embed", "embed", 9 * MIB, 0, 0, 4, 9 * MIB, 9 * MIB),
    Unit("l0", "attn", MIB, 4001, 64, 128, MIB + 1, 4 * MIB),
    Unit("l1", "ffn", MIB, 3333, 0, 128),
    Unit("l2", "ffn", MIB, 9000, 0, 128),
    Unit("head", "head", 2 * MIB, 500, 0, 4),
)
ALONE = (Unit("x", "ffn", 0, 1 << 19, 0, 4),)  # what is timed where no model of the mesh answers in words

MEMBERS: tuple[Command, ...] = (
    OWN,
    *member("a", 64),
    *member("b", 32, ["a"]),
    *member("t", 48, ["a", "b"], provider="wasm"),
    *member("g", 3, ["a"], provider="webgpu"),
    *member("old", 90, ["a"]),
    *own_plan(PlanStage(0, 2, "a", ("t",), 6 * MIB, MIB, MIB), PlanStage(2, 6, "g", (), 7 * MIB, MIB, MIB)),
)
MORE = DecoderOffered("more", "c" * 64, 5, 128, 2, "latency")
LAST = DecoderOffered("last", "d" * 64, 5, 64, 1, "throughput")
PLAN = PlanRecord(
    2**19 + 5,
    (PlanStage(0, 3, "b", ("t",), 8 * MIB, 2 * MIB, MIB), PlanStage(3, 5, "t", (), MIB, 99, MIB)),
    1,
    1,
)
WHOLE = PlanRecord(2**19 + 6, (PlanStage(0, 5, "b", ("a", "t"), 14 * MIB, 99, MIB),), 1, 1)
TAIL = PlanRecord(
    2**19 + 7, (PlanStage(0, 2, "a", (), 10 * MIB, 9, MIB), PlanStage(2, 5, "b", (), 4 * MIB, 9, MIB)), 1, 1
)
TEAM = PlanRecord(
    2**19 + 8,
    (
        PlanStage(0, 4, "b", ("a",), 7 * MIB, 9, MIB, ("a", "t"), (500, 250, 250)),
        PlanStage(4, 5, "b", (), 2 * MIB, 0, MIB),
    ),
    1,
    1,
)
STATES: dict[str, tuple[Command, ...]] = {
    "one is offered": (*MEMBERS, MORE),
    "of two one has a plan": (
        *MEMBERS,
        MORE,
        LAST,
        DecoderPlanned("last", PLAN),
        DecoderActivated("last", PLAN.version),
    ),
    "one has both": (*MEMBERS, MORE, DecoderPlanned("more", PLAN), DecoderActivated("more", PLAN.version)),
    "what was refused takes nothing": (
        *MEMBERS,
        MORE,
        LAST,
        DecoderPlanned("last", PLAN),
        DecoderRefused("last", "no"),
    ),
    "a model of a graph lies beside": (
        *MEMBERS,
        MORE,
        ModelOffered("b" * 64, "det"),
        ModelPlaced("det", 1, (RunStage(0, 3, "b", ("a",), 5 * MIB + 1),), 1, 1, ()),
    ),
    "two have the same plan": (
        *MEMBERS,
        MORE,
        LAST,
        DecoderPlanned("more", WHOLE),
        DecoderActivated("more", WHOLE.version),
        DecoderPlanned("last", WHOLE),
    ),
    "two are cut otherwise": (
        *MEMBERS,
        MORE,
        LAST,
        DecoderPlanned("last", TAIL),
        DecoderActivated("last", TAIL.version),
        DecoderPlanned("last", WHOLE),
        DecoderPlanned("more", TAIL),
    ),
    "a team computes one": (
        *MEMBERS,
        MORE,
        LAST,
        DecoderPlanned("last", TEAM),
        DecoderActivated("last", TEAM.version),
        DecoderPlanned("more", WHOLE),
    ),
    "one graph is offered twice": (
        *MEMBERS,
        MORE,
        ModelOffered("b" * 64, "det"),
        ModelPlaced("det", 1, (RunStage(0, 3, "b", ("a",), 5 * MIB + 1),), 1, 1, ()),
        ModelOffered("b" * 64, "again"),
        ModelPlaced("again", 1, (RunStage(0, 3, "b", (), 5 * MIB + 1),), 1, 1, ()),
    ),
    "a component is wished": (*MEMBERS, LAST, PlanWished("optimal", "latency"), MORE),
}


# What each model has for its units, by name: "last" is equal to "more" but for its first block.
CONTENTS = {
    THE_OWN: ("o0", "o1", "o2", "o3", "o4", "h"),
    "more": ("e", "m1", "m2", "m3", "h"),
    "last": ("e", "m1", "m2", "m3", "h"),
}
TUNED = {**CONTENTS, "last": ("e", "n1", "m2", "m3", "h")}


def speaks(peer: str) -> int:
    return {"old": 5, "a": 7}.get(peer, 8)


def sharing(contents: dict[str, tuple[str, ...]]) -> Sharing:
    models = {
        name: Weights(UNITS_OWN if name == THE_OWN else UNITS_MORE, texts) for name, texts in contents.items()
    }
    return Sharing(models, speaks)


def shared(state: MeshState, contents: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    known = sharing(contents)
    return {
        "contents": {name: list(texts) for name, texts in contents.items()},
        "taken": {name: taken_bytes(state, name, known) for name in ("", *sorted(state.decoders))},
        "runs": {
            name: [[run.peer, run.first, run.stop, run.bytes] for run in shared_runs(state, name, known)]
            for name in sorted(state.decoders)
        },
    }


def unit(each: Unit) -> dict[str, Any]:
    return {
        "name": each.name,
        "kind": each.kind,
        "flops_per_token": each.flops_per_token,
        "weight_bytes": each.weight_bytes,
        "packed_bytes": each.held_bytes("packed"),
        "wide_bytes": each.held_bytes("wide"),
    }


def seen(state: MeshState, name: str, own: tuple[Unit, ...]) -> dict[str, Any]:
    found = planned_with(state, name, UNITS_MORE, own, speaks)
    members = {
        peer: {
            "compute": each.compute,
            "memory_bytes": each.profile.memory_bytes if each.profile else 0,
            "decode_ns": dict(each.profile.decode_ns) if each.profile else {},
            "prefill_ns": dict(each.profile.prefill_ns) if each.profile else {},
            "batch_ns": dict(each.profile.batch_ns) if each.profile else {},
        }
        for peer, each in found.members.items()
    }
    return {
        "name": name,
        "own": [unit(each) for each in own],
        "last_version": found.last_version,
        "members": members,
    }


def row(what: str, commands: tuple[Command, ...]) -> dict[str, Any]:
    state = MeshState()
    for command in commands:
        state = apply(state, command)
    return {
        "what": what,
        "commands": [encode_command(command).decode() for command in commands],
        "taken": {name: taken_bytes(state, name) for name in ("", *sorted(state.decoders))},
        "shared": [shared(state, contents) for contents in (CONTENTS, TUNED)],
        "seen": [seen(state, name, own) for name in sorted(state.decoders) for own in (UNITS_OWN, ALONE)],
    }


def text() -> str:
    decided: tuple[Command, ...] = (
        PlanProposed(PLAN),
        PlanActivated(PLAN.version),
        PlanRefused("it lacks 9 MiB"),
    )
    tables = {
        "units": [unit(each) for each in UNITS_MORE],
        "own": [unit(each) for each in UNITS_OWN],
        "speaks": [[peer, speaks(peer)] for peer in PEERS],
        "states": [row(what, commands) for what, commands in STATES.items()],
        "said": [
            [encode_command(command).decode(), encode_command(said_of("more", command)).decode()]
            for command in decided
        ],
    }
    return written("with what further models that answer in words are planned", tables)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
