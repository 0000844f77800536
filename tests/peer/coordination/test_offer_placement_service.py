"""A leader with offered models: placed as soon as they are offered, taken over at once, left alone otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from peer.consensus.events import Change, Status
from peer.consensus.records import Config, Server
from peer.coordination import offer_placement_service
from peer.coordination.coordinator import Coordinator
from peer.coordination.coordinator_service import Coordinating, Order
from peer.coordination.offer_placement_service import Placing
from peer.errors import BadCommand, CannotServe
from peer.state.generated.commands import ModelOffered, ModelWithdrawn, RoleGiven
from peer.state.member_commands import Command, encode_command
from peer.state.mesh_state import MeshState
from peer.wire.generated.requests import PROPOSE, ProposeRequest
from planner.model.graph_manifest import GraphManifest
from planner.types import Unit
from tests.patience import WITHIN_S
from tests.peer.coordination.offered_models import ASK, FLOPS, LEND, grown, manifest, member, mesh, shown

UNITS = tuple(Unit(kind, kind, 0, 0, 0, 4) for kind in ("embed", "attn", "ffn", "head"))


class NoLog:
    """Takes everything; a group of one."""

    epoch = 1

    def status(self) -> Status:
        return Status("leader", 1, "a", 1, 1, 1, Config((Server("a", 1, True),)), {"a": 1})

    def propose(self, data: bytes) -> asyncio.Future[Order]:
        future: asyncio.Future[Order] = asyncio.get_running_loop().create_future()
        future.set_result((1, 1))
        return future

    def change(self, change: Change) -> asyncio.Future[Order]:
        return self.propose(b"")

    def transfer(self, to: str) -> asyncio.Future[Order]:
        return self.propose(b"")

    def incarnation_of(self, peer: str) -> int:
        return 0


class Models:
    """What the server has, and how often it was asked."""

    def __init__(self, **known: GraphManifest | Exception) -> None:
        self.known = known
        self.asked: list[str] = []

    async def manifest(self, model: str) -> GraphManifest:
        self.asked.append(model)
        found = self.known[model]
        if isinstance(found, Exception):
            raise found
        return found


@asynccontextmanager
async def led(state: MeshState, models: Models) -> AsyncIterator[Coordinating]:
    """A mesh that `a` owns and leads."""
    core = Coordinator("a", UNITS, None, grown(state, RoleGiven("a", "owner")))
    placing = partial(Placing, models.manifest, lambda _: 5, FLOPS)
    made = Coordinating(core, NoLog(), lambda _: True, placing=placing)
    made.begin("")
    try:
        yield made
    finally:
        await made.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
            await asyncio.sleep(0.005)


def propose(made: Coordinating, peer: str, command: Command) -> None:
    made.answer(peer, PROPOSE, ProposeRequest(encode_command(command).decode()))


async def test_an_offer_is_placed_protected_and_withdrawn() -> None:
    async with led(mesh(a=50, b=50), Models(**{ASK: manifest(15)})) as made:
        with pytest.raises(BadCommand, match="expected an owner of this mesh"):
            propose(made, "b", ModelOffered(ASK, "x"))
        propose(made, "a", ModelOffered(ASK, "x"))
        await until(lambda: bool(made.state.offers["x"].stages))
        [stage] = made.state.offers["x"].stages
        assert {stage.primary, *stage.standbys} == {"a", "b"}
        assert made.state.offers["x"].latency_us > 0
        with pytest.raises(BadCommand, match="is called x already"):
            propose(made, "a", ModelOffered(LEND, "x"))
        propose(made, "a", ModelWithdrawn("x"))
        assert made.state.offers == {}


async def test_a_standby_takes_over_in_the_same_moment_and_another_one_stands_by_next() -> None:
    async with led(mesh(a=10, b=50, c=50, d=50), Models(**{ASK: manifest(15)})) as made:
        propose(made, "a", ModelOffered(ASK, "x"))
        await until(lambda: bool(made.state.offers["x"].stages))
        [stage] = made.state.offers["x"].stages
        [heir] = stage.standbys
        made.gone(stage.primary, "lost")
        assert shown(made.state.offers["x"].stages) == [(0, 1, heir, ())]
        [idle] = {"b", "c", "d"} - {stage.primary, heir}
        await until(lambda: shown(made.state.offers["x"].stages) == [(0, 1, heir, (idle,))])


async def test_one_who_begins_to_lead_moves_nothing() -> None:
    models = Models(**{ASK: manifest(15)})
    async with led(mesh(a=50, b=50), models) as made:
        propose(made, "a", ModelOffered(ASK, "x"))
        await until(lambda: bool(made.state.offers["x"].stages))
        before = made.state
    async with led(before, models) as next_one:
        asked = len(models.asked)
        await until(lambda: len(models.asked) > asked)
        await next_one._placing._task  # type: ignore[union-attr,misc]
        assert next_one.state.offers == before.offers


async def test_a_manifest_that_cannot_be_had_is_tried_again_and_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone, defect = CannotServe("the server is gone"), ValueError("a defect")
    models = Models(**{ASK: gone, LEND: manifest(15), "d" * 64: defect})
    async with led(mesh(a=50), models) as made:
        for name, model in (("x", ASK), ("y", LEND), ("z", "d" * 64)):
            propose(made, "a", ModelOffered(model, name))
        await until(lambda: all(offer.version for offer in made.state.offers.values()))
        assert made.state.offers["x"].why == ("its manifest cannot be had: the server is gone",)
        assert made.state.offers["z"].why == ("its manifest cannot be read: ValueError",)
        assert made.state.offers["y"].stages
        asked, index = models.asked.count(ASK), made.state.index
        assert made._placing is not None
        made._placing.look(thoroughly=True)
        assert (models.asked.count(ASK), made.state.index) == (asked, index), "not before its time"
        models.known[ASK] = manifest(9)
        monkeypatch.setattr(offer_placement_service, "AGAIN_S", 0.0)
        made._placing._missing[ASK] = (made._placing._missing[ASK][0], 0.0)
        made._placing.look(thoroughly=True)
        await until(lambda: bool(made.state.offers["x"].stages))


async def test_a_model_that_nobody_can_hold_says_what_is_missing_and_is_placed_when_somebody_comes() -> None:
    async with led(mesh(a=20), Models(**{ASK: manifest(60)})) as made:
        propose(made, "a", ModelOffered(ASK, "x"))
        await until(lambda: bool(made.state.offers["x"].version))
        assert made.state.offers["x"].stages == ()
        assert "MiB more" in made.state.offers["x"].why[0]
        for command in member("b", 80, ("a",)):
            made.submit(command)
        await until(lambda: shown(made.state.offers["x"].stages) == [(0, 1, "b", ())])
