"""A mesh without a coordinator: people read what works and what does not, and it is looked for until it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

import pytest

from peer.errors import ConnectFailed
from peer.limits import LOWEST_VERSION
from peer.member.mesh_member import CLOSED, WITHDRAWN, MeshMember
from peer.member.peer_parts import PeerParts
from peer.member.progress import silent
from peer.member.reconnect import Away, Returning, pauses
from peer.replication.log_keeping import LogKeeping
from peer.state.generated.commands import MemberJoined, ModelChosen, PlanRecord, PlanStage
from peer.state.mesh_state import MeshState, apply
from peer.transport.engines.choose import choose_engine
from peer.transport.engines.settings import EngineSettings
from peer.transport.signaling_client import SignalingClient
from peer.wire.generated.frames import Hello
from planner.model.store import Store
from signaling.presence import SignalKind
from tests.patience import WITHIN_S

MOST_PAUSE_S = 8.0  # nothing hangs longer than 10 s without a word


class Lost:
    """A mesh that is found by entering it, after `failures` tries that fail."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.made = 0
        self.found = False

    def missing(self, attempt: int) -> Away | None:
        return None if self.found else Away("ann", False, 3, 1, attempt)

    async def enter(self) -> None:
        self.made += 1
        if self.left:
            self.left -= 1
            raise ConnectFailed("nobody is there")
        self.found = True


def at_once() -> Iterator[float]:
    while True:
        yield 0.0


async def test_every_try_is_shown_before_it_is_made_and_success_ends_it() -> None:
    lost, shown = Lost(2), list[str]()
    returning = Returning(lost.missing, lost.enter, lambda: shown.append(str(returning.away)), at_once)
    await returning.search()
    assert [line.partition("(looking for them, ")[2][:5] for line in shown] == [
        "",
        "try 1",
        "try 2",
        "try 3",
        "",
    ]
    assert shown[0].startswith("the coordinator (ann) is gone: answers go on")
    assert shown[-1] == "None"
    assert returning.away is None
    assert lost.made == 3


async def test_a_person_need_not_wait_for_the_next_try() -> None:
    lost = Lost(1)
    returning = Returning(lost.missing, lost.enter, lambda: None, lambda: iter((3600.0, 3600.0, 3600.0)))
    searching = asyncio.ensure_future(returning.search())
    async with asyncio.timeout(WITHIN_S):
        while not searching.done():
            returning.try_now()
            await asyncio.sleep(0)
    assert lost.made == 2


async def test_others_that_choose_somebody_end_the_search() -> None:
    lost = Lost(99)
    returning = Returning(lost.missing, lost.enter, lambda: None, lambda: iter((3600.0, 3600.0)))
    searching = asyncio.ensure_future(returning.search())
    await asyncio.sleep(0)
    lost.found = True
    returning.try_now()
    async with asyncio.timeout(WITHIN_S):
        await searching
    assert lost.made == 0


def test_no_pause_is_longer_than_people_wait_until_nobody_waits_any_more() -> None:
    assert max(islice(pauses(), 20)) <= MOST_PAUSE_S
    later = list(islice(pauses(), 40))[20:]
    assert later == sorted(later)
    assert later[-1] == 60.0


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (Away("ann", True, 1, 0), ("no answer meanwhile", "it has to come back", "shoal recover")),
        (Away("ann", False, 2, 1), ("answers go on", "1 of 2 voters", "2 are needed", "shoal recover")),
        (Away("", False, 3, 2), ("the coordinator is gone", "the others choose another one")),
        (Away("ann", False, 5, 2, 7), ("2 of 5", "3 are needed", "try 7")),
    ],
)
def test_people_read_what_still_works(away: Away, words: tuple[str, ...]) -> None:
    assert all(word in str(away) for word in words), str(away)


# --- a member whose connection to the coordinator breaks -------------------------------------------------------------


def member(tmp_path: Path, coordinator_serves: bool) -> MeshMember:
    make = choose_engine("aiortc")

    async def signal(kind: SignalKind, peer: str, connection: bytes, text: str) -> None:
        raise ConnectFailed(f"{peer} is not here")

    hello = Hello(LOWEST_VERSION, "me", "me", "test")
    engine = lambda: make(EngineSettings(("127.0.0.1",)))  # noqa: E731
    parts = PeerParts(hello, engine, signal, lambda: bytes(16), Store(tmp_path))
    holder = "boss" if coordinator_serves else "other"
    state = apply(MeshState(), ModelChosen("a" * 64, "toy", 4, 128, 2, "latency"))
    for peer in ("boss", "other", "me"):
        state = apply(state, MemberJoined(peer, f"{peer}'s laptop", True))
    state = replace(state, plan=PlanRecord(1, (PlanStage(0, 4, holder),), 0, 0))
    members = {p: replace(m, held=((0, 4),)) if p == holder else m for p, m in state.members.items()}
    parts.view.obey(replace(state, members=members))
    kept = LogKeeping("mesh", "me", None)
    mesh = MeshMember(parts, cast(SignalingClient, None), kept, silent, handover_grace_s=0.0)
    mesh.leader_watch.led_by = "boss"
    return mesh


@pytest.mark.parametrize(("serves", "word"), [(True, "no answer meanwhile"), (False, "answers go on")])
async def test_the_loss_is_said_and_who_it_was(tmp_path: Path, serves: bool, word: str) -> None:
    mesh = member(tmp_path, serves)
    said, heard = list[str](), asyncio.Event()

    def look() -> None:
        said.append(str(mesh.away))
        heard.set()

    mesh.leader_watch.on_away(look)
    mesh.watch_leader(Lost(99).enter)
    mesh.links.disconnected("boss", "silent for 7 s", False)
    async with asyncio.timeout(WITHIN_S):
        await heard.wait()
    assert mesh.away is not None
    assert "(boss's laptop)" in said[0]
    assert word in said[0]
    assert not mesh.ended.is_set()
    await mesh.close("the test is over")


async def test_who_leaves_is_told_nothing_of_the_connections_that_end(tmp_path: Path) -> None:
    mesh = member(tmp_path, True)
    said = list[str]()
    mesh.leader_watch.on_away(lambda: said.append(str(mesh.away)))
    mesh.watch_leader(Lost(99).enter)
    mesh.links.disconnected("boss", "silent for 7 s", False)  # a search has begun
    mesh.leaving = True
    async with asyncio.timeout(WITHIN_S):
        while mesh.away is None:
            mesh.leader_watch.try_now()
            await asyncio.sleep(0)
    assert said == []
    await mesh.close("the test is over")


@pytest.mark.parametrize(
    ("reason", "why"),
    [(CLOSED, "closed the mesh"), (WITHDRAWN, "withdrew"), ("left", ""), ("the founder left", "")],
)
async def test_only_the_last_one_that_leaves_ends_the_mesh(tmp_path: Path, reason: str, why: str) -> None:
    mesh = member(tmp_path, True)
    mesh.watch_leader(Lost(99).enter)
    mesh.links.disconnected("boss", reason, True)
    assert mesh.ended.is_set() == bool(why)
    assert why in mesh.why_ended
    await mesh.close("the test is over")
