"""One way of a run: who is asked, what happens when peers are lost or nothing ends, and how it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from peer.dataflow.flow_stage import SendValue
from peer.errors import BadCommand, ConnectionLost, NoPlan, RunFailed
from peer.origin import run_lane
from peer.origin.run_lane import OfferedGraph, RunLane
from peer.state.generated.commands import Member, ModelOffer, RunStage
from peer.state.mesh_state import MeshState
from peer.wire.generated.requests import RUN_OPEN, RunOpenRequest
from planner.model.graph_manifest import GraphManifest, GraphUnit, Value
from planner.model.store import BlobRef
from tests.patience import WITHIN_S

NOTHING = BlobRef("0" * 64, 1, ("0" * 64,))
UNITS = tuple(
    GraphUnit(name, "graph", NOTHING, (), (), (takes,), (makes,), 0, 0, (), ())
    for name, takes, makes in (("first", "x", "h"), ("second", "h", "y"))
)
MANIFEST = GraphManifest("m", ("x",), ("y",), {}, tuple(Value(n, "float32", (), ()) for n in "xhy"), UNITS)
OFFERED = OfferedGraph("name", "a" * 64, MANIFEST)
X, Y = 0, 2


class World:
    """Links, view and flow of the peer `me`. `refuse` says who does not open its stages, and why."""

    me = "me"

    def __init__(self) -> None:
        members = {name: Member(name, name, True, status="measured") for name in "abc"}
        self.state = replace(MeshState(), members=members)
        self.place(RunStage(0, 1, "a", ("c",)), RunStage(1, 2, "b", ()))
        self.opened: list[RunOpenRequest] = []
        self.begun_s: dict[int, float] = {}  # by epoch
        self.sent: list[SendValue] = []
        self.refuse: dict[str, BaseException] = {}
        self.closed: list[str] = []
        self.gone: list[Callable[..., None]] = []
        self.changed: list[Callable[[], None]] = []
        self.exchange = self
        self.listener: Any = None

    def place(self, *stages: RunStage) -> None:
        before = self.state.offers.get("name")
        offer = ModelOffer("a" * 64, before.version + 1 if before is not None else 1, stages)
        self.state = replace(self.state, offers={"name": offer})

    def lane(self, *apart: str) -> RunLane:
        me = cast(Any, self)
        return RunLane(me, me, me, OFFERED, frozenset(apart), lambda: None)

    async def ask(self, peer: str, kind: Any, said: Any, timeout_s: float) -> None:
        assert kind is RUN_OPEN
        self.opened.append(said)
        self.begun_s.setdefault(said.epoch, asyncio.get_running_loop().time())
        if peer in self.refuse:
            raise self.refuse[peer]

    async def call(self, peer: str, *_: object) -> None:
        self.closed.append(peer)

    def on_gone(self, listener: Callable[..., None]) -> Callable[[], None]:
        self.gone.append(listener)
        return lambda: self.gone.remove(listener)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.changed.append(listener)
        return lambda: self.changed.remove(listener)

    def listen(self, run: bytes, listener: Any) -> Callable[[], None]:
        self.listener = listener
        return lambda: None

    def send_or_lose(self, peer: str, frame: object) -> None:
        """Nobody needs what is said here."""

    def send(self, effect: SendValue, value: Value) -> None:
        self.sent.append(effect)

    def lose(self, peer: str) -> None:
        for listener in list(self.gone):
            listener(peer, "lost", False)

    def answer(self, lane: RunLane, item: int = 0) -> None:
        maker = lane.route.makers[Y]
        lane.came(maker, self.opened[-1].epoch, item, Y, np.float32(7).reshape(()))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AGAIN_S", 0.01), ("STALL_S", 0.05), ("MOST_STALL_S", 0.2), ("FORGIVEN_S", 0.05)):
        monkeypatch.setattr(run_lane, name, value)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - it comes about by timers
            await asyncio.sleep(0.002)


def x() -> dict[int, Any]:
    return {X: np.float32(1).reshape(())}


async def test_a_lost_primary_gives_way_to_its_standby_and_the_item_is_sent_again() -> None:
    world = World()
    lane = world.lane()
    await lane.open()
    asking = asyncio.ensure_future(lane.run(x()))
    await asyncio.sleep(0)
    assert [(sent.peer, sent.epoch) for sent in world.sent] == [("a", 1)]
    world.lose("a")
    await until(lambda: lane.reroutes > 0 and len(world.sent) > 1)
    assert lane.route.peers == ("c", "b")
    assert (world.sent[-1].peer, world.sent[-1].epoch) == ("c", 2)
    world.answer(lane)
    assert (await asking)[Y] == 7
    await lane.close()
    assert world.closed == ["a", "b", "c"]  # "a" may be back, with what it kept
    assert world.gone == []
    assert world.changed == []


async def test_a_peer_whose_connection_alone_was_lost_is_tried_again() -> None:
    world = World()
    lane = world.lane()
    await lane.open()
    world.lose("b")  # nobody stands by for it
    await until(lambda: 2 in world.begun_s)
    assert lane.route.peers == ("a", "b")
    await lane.close()


async def test_stages_are_opened_again_where_nothing_ends_less_and_less_often() -> None:
    world = World()
    lane = world.lane()
    await lane.open()
    asking = asyncio.ensure_future(lane.run(x()))

    def busy() -> bool:
        for listener in world.changed:
            listener()  # a state that changes all the time is no sign of progress
        return 4 in world.begun_s

    await until(busy)
    first, second, third, fourth = (world.begun_s[epoch] for epoch in (1, 2, 3, 4))
    assert second - first > 0.04
    assert third - second > 0.08
    assert fourth - third > 0.16
    world.answer(lane)
    assert (await asking)[Y] == 7
    await lane.close()


async def test_another_lane_takes_other_peers_or_none() -> None:
    world = World()
    with pytest.raises(RunFailed, match="no other peers"):
        await world.lane("a", "b").open()
    world.place(RunStage(0, 2, "a", ("c",)))
    lane = world.lane("a")
    await lane.open()
    assert lane.route.peers == ("c",)
    await lane.close()


async def test_what_waits_fails_when_the_model_is_withdrawn() -> None:
    world = World()
    lane = world.lane()
    await lane.open()
    asking = asyncio.ensure_future(lane.run(x()))
    await asyncio.sleep(0)
    world.state = replace(world.state, offers={})
    for listener in world.changed:
        listener()
    with pytest.raises(NoPlan, match="withdrawn"):
        await asking
    with pytest.raises(NoPlan, match="withdrawn"):
        await lane.run(x())
    await lane.close()


async def test_who_cannot_be_reached_is_passed_over_and_who_refuses_is_asked_again() -> None:
    world = World()
    world.refuse["a"] = ConnectionLost("gone")
    lane = world.lane()
    await lane.open()
    assert lane.route.peers == ("c", "b")
    await lane.close()
    world.refuse = {"b": BadCommand("no placement gives this peer these units")}
    opening = asyncio.ensure_future(world.lane().open())
    await until(lambda: len(world.opened) >= 8)
    world.refuse = {}
    await opening


async def test_who_refuses_is_asked_again_as_soon_as_another_placement_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_lane, "AGAIN_S", 10 * WITHIN_S)
    world = World()
    world.refuse = {"b": BadCommand("no placement gives this peer these units")}
    lane = world.lane()
    opening = asyncio.ensure_future(lane.open())
    await until(lambda: len(world.opened) == 2)
    assert not opening.done()
    world.place(RunStage(0, 2, "c", ()))
    for listener in world.changed:
        listener()
    async with asyncio.timeout(WITHIN_S):
        await opening
    assert lane.route.peers == ("c",)
    await lane.close()


async def test_a_peer_that_refuses_for_long_ends_the_run_with_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_lane, "REFUSED_S", 0.05)
    world = World()
    world.refuse["b"] = BadCommand("no placement gives this peer these units")
    with pytest.raises(RunFailed, match="b does not open its stages of name: no placement"):
        await world.lane().open()
    world.refuse = {}
    lane = world.lane()
    await lane.open()
    asking = asyncio.ensure_future(lane.run(x()))
    world.refuse["b"] = ConnectionLost("gone")  # and nobody stands by for it
    world.lose("b")
    with pytest.raises(RunFailed, match="b does not open its stages"):
        await asking
    await lane.close()


@pytest.mark.parametrize(
    ("thrown", "words"),
    [(asyncio.CancelledError(), "broken off"), (ZeroDivisionError(), "this peer failed: ZeroDivisionError")],
)
async def test_what_waits_ends_whatever_ends_the_leading_of_its_run(
    thrown: BaseException, words: str
) -> None:
    world = World()
    lane = world.lane()
    await lane.open()
    asking = asyncio.ensure_future(lane.run(x()))
    world.refuse["b"] = thrown
    world.lose("a")
    with pytest.raises(RunFailed, match=words):
        await asking
    await lane.close()


async def test_a_run_of_which_nothing_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lane, "GIVE_UP_S", 0.3)
    world = World()
    lane = world.lane()
    await lane.open()
    with pytest.raises(RunFailed, match="no item of name has ended for"):
        await lane.run(x())
    assert 2 in world.begun_s
    await lane.close()
