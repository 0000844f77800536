"""Writes offer_promotion.json: who takes over the units of offered models from who is lost, in states that commands
build.
"""

from __future__ import annotations

from typing import Any

from tracing import beside, written

from peer.coordination.offer_promotion import promoted, stands
from peer.state.generated.commands import (
    MemberDraining,
    MemberJoined,
    MemberLeft,
    MemberPaused,
    ModelOffered,
    ModelPlaced,
    RunStage,
)
from peer.state.member_commands import Command, encode_command
from peer.state.mesh_state import MeshState, apply
from tests.peer.coordination.offered_models import MIB, OWN, member

PATH = beside(__file__, "offer_promotion.json")
PEERS = ("a", "b", "c", "t", "z")


def placed(name: str, version: int, *stages: RunStage) -> list[Command]:
    return [ModelOffered("b" * 64, name), ModelPlaced(name, version, stages, 12, 345, ("It is best.",))]


MEMBERS: tuple[Command, ...] = (
    OWN,
    *member("a", 64),
    *member("b", 32, ["a"]),
    *member("c", 32, ["a"]),
    *member("t", 48, ["a", "b"], provider="wasm"),
    MemberJoined("z", "Z", True, False, False),
    *placed("det", 1, RunStage(0, 3, "b", ("c", "a"), MIB), RunStage(3, 4, "t", ("b",), 7)),
    *placed("cls", 900, RunStage(0, 2, "t", (), MIB), RunStage(2, 3, "b", ("z", "t"), 9)),
)
STATES: dict[str, tuple[Command, ...]] = {
    "all are here": MEMBERS,
    "who drains serves on": (*MEMBERS, MemberDraining("b", "it does not answer")),
    "a primary left": (*MEMBERS, MemberLeft("b", "lost")),
    "a primary and its first standby left": (*MEMBERS, MemberLeft("c", "lost"), MemberLeft("b", "lost")),
    "a tab left that nobody stands by for": (*MEMBERS, MemberLeft("t", "closed")),
    "one pauses": (*MEMBERS, MemberPaused("t", "hidden")),
    "nobody is left": (*MEMBERS, *(MemberLeft(peer, "lost") for peer in ("a", "b", "c", "t"))),
}


def row(what: str, commands: tuple[Command, ...]) -> dict[str, Any]:
    state = MeshState()
    for command in commands:
        state = apply(state, command)
    found = promoted(state)
    return {
        "what": what,
        "commands": [encode_command(command).decode() for command in commands],
        "stands": [peer for peer in PEERS if stands(state, peer)],
        "promoted": None if found is None else encode_command(found).decode(),
    }


def text() -> str:
    tables = {"peers": list(PEERS), "states": [row(what, commands) for what, commands in STATES.items()]}
    return written("who takes over the units of offered models", tables)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
