"""A lost coordinator is said at once, looked for again and again, and given up in the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from peer.engines import EngineSettings, choose_engine
from peer.errors import ConnectFailed
from peer.frames import PROTOCOL_VERSION, Hello
from peer.mesh import Mesh, silent
from peer.mesh_state import MemberJoined, MeshState, ModelChosen, PlanRecord, PlanStage, apply
from peer.node import Node
from peer.returning import PAUSES_S, Returning
from peer.signaling_client import SignalingClient
from planner.store import Store
from signaling.presence import SignalKind

MOST_PAUSE_S = 8.0  # nothing hangs longer than 10 s without a word


class Tries:
    """Stands for entering the mesh: fails `failures` times."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.made = 0

    async def enter(self) -> None:
        self.made += 1
        if self.left:
            self.left -= 1
            raise ConnectFailed("nobody is there")


async def test_every_try_is_shown_before_it_is_made_and_success_ends_it() -> None:
    tries, shown = Tries(2), list[str]()
    returning = Returning(tries.enter, lambda: shown.append(str(returning.away)), (0.0, 0.0, 0.0, 0.0))
    assert await returning.search("ann", needed=True)
    assert [line.rpartition("(")[2] for line in shown] == [
        "try 1 of 4)",
        "try 2 of 4)",
        "try 3 of 4)",
        "None",
    ]
    assert shown[0].startswith("the coordinator (ann) is gone: no answer without it")
    assert returning.away is None


async def test_it_gives_up_after_the_last_try() -> None:
    tries = Tries(9)
    returning = Returning(tries.enter, lambda: None, (0.0, 0.0))
    assert not await returning.search("", needed=False)
    assert tries.made == 2
    assert "answers go on" in str(returning.away)


async def test_a_person_need_not_wait_for_the_next_try() -> None:
    tries = Tries(1)
    returning = Returning(tries.enter, lambda: None, (3600.0, 3600.0))
    searching = asyncio.ensure_future(returning.search("ann", needed=False))
    async with asyncio.timeout(5):
        while not searching.done():
            returning.try_now()
            await asyncio.sleep(0)
    assert tries.made == 2


def test_no_pause_is_longer_than_people_wait() -> None:
    assert max(PAUSES_S) <= MOST_PAUSE_S


# --- a member whose connection to the coordinator breaks -------------------------------------------------------------


def member(tmp_path: Path, coordinator_serves: bool) -> Mesh:
    make = choose_engine("aiortc")

    async def signal(kind: SignalKind, peer: str, connection: bytes, text: str) -> None:
        raise ConnectFailed(f"{peer} is not here")

    hello = Hello(PROTOCOL_VERSION, "me", "me", "test")
    node = Node(hello, lambda: make(EngineSettings(("127.0.0.1",))), signal, lambda: bytes(16))
    holder = "boss" if coordinator_serves else "other"
    state = apply(MeshState(term=1), ModelChosen("a" * 64, "toy", 4, 128, 2, "latency"))
    for peer in ("boss", "other", "me"):
        state = apply(state, MemberJoined(peer, f"{peer}'s laptop", True))
    state = replace(state, plan=PlanRecord(1, (PlanStage(0, 4, holder),), 0, 0))
    members = {p: replace(m, held=((0, 4),)) if p == holder else m for p, m in state.members.items()}
    node.state = replace(state, members=members)
    node.coordinator = "boss"
    return Mesh(node, cast(SignalingClient, None), Store(tmp_path), silent)


@pytest.mark.parametrize(("serves", "word"), [(True, "no answer without it"), (False, "answers go on")])
async def test_the_loss_is_said_in_the_same_moment(tmp_path: Path, serves: bool, word: str) -> None:
    mesh = member(tmp_path, serves)
    tries, came_back = Tries(1), asyncio.Event()
    said: list[str] = []

    def look() -> None:
        said.append(str(mesh.away))
        if mesh.away is None:
            came_back.set()
        else:
            asyncio.get_running_loop().call_soon(mesh.try_now)

    mesh.on_away.append(look)
    mesh.watch_coordinator(tries.enter)
    mesh.node.disconnected("boss", "silent for 7 s", False)
    mesh.node.disconnected("other", "silent for 7 s", False)  # another member is no coordinator
    await asyncio.sleep(0)
    assert mesh.away is not None
    assert said == [str(mesh.away)]
    assert "(boss's laptop)" in said[0]
    assert word in said[0]
    async with asyncio.timeout(5):
        await came_back.wait()
    assert tries.made == 2
    assert not mesh.ended.is_set()
    await mesh.node.close("the test is over")


async def test_a_coordinator_that_stays_away_ends_the_membership(tmp_path: Path) -> None:
    mesh = member(tmp_path, True)
    loop = asyncio.get_running_loop()

    def hurry() -> None:
        loop.call_soon(mesh.try_now)

    mesh.on_away.append(hurry)
    mesh.watch_coordinator(Tries(99).enter)
    mesh.node.disconnected("boss", "silent for 7 s", False)
    async with asyncio.timeout(5):
        await mesh.ended.wait()
    assert "did not come back" in mesh.why_ended
    await mesh.node.close("the test is over")
