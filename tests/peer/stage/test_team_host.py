"""Who is let into a team, whose frames count, and what becomes of a team that loses a member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from peer.errors import BadCommand, CannotServe, MeshError
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from peer.session.seat import Run_
from peer.stage.team_host import TeamHost
from peer.stage.team_slices import Slices
from peer.stage.unit_host import Room
from peer.state.generated.commands import HeldSlice, PlanRecord, PlanStage
from peer.wire.generated.frames import TeamEnd, TeamPart, TeamRows, TeamStep
from peer.wire.generated.requests import TEAM_FORM, TEAM_HERE, TEAM_OPEN, TeamFormRequest, TeamHereRequest
from peer.wire.tensors import tensor_of

SESSION = bytes(16)
WAIT_S = 60


class Net:
    """Hosts whose frames and requests reach one another while both are there."""

    def __init__(self) -> None:
        self.hosts: dict[str, TeamHost] = {}
        self.handlers: dict[tuple[str, str], Callable[[str, Any], Any]] = {}
        self.silent: set[str] = set()

    def links(self, me: str) -> Any:
        def on(kind: Any, handler: Callable[[str, Any], Any]) -> None:
            self.handlers[me, kind.method] = handler

        async def call(peer: str, kind: Any, said: Any, timeout_s: float = 20.0) -> Any:
            async with asyncio.timeout(timeout_s):
                if peer in self.silent:
                    await asyncio.Event().wait()
                return await self.handlers[peer, kind.method](me, kind.read(kind.body(said)))

        def send(peer: str, frame: Any) -> None:
            if peer not in self.silent and me not in self.silent:
                host = self.hosts[peer]
                take: Callable[[str, Any], None] = {
                    TeamStep: host.step,
                    TeamRows: host.step,
                    TeamPart: host.part,
                    TeamEnd: host.end,
                }[type(frame)]
                take(me, frame)

        async def dial(_: str) -> None:
            return None

        return SimpleNamespace(
            me=me,
            on=on,
            ask=call,
            call=call,
            send_or_lose=send,
            is_connected=lambda peer: peer in self.hosts,
            dialer=SimpleNamespace(dial=dial),
        )


class Serving:
    """The runtimes of teams that a peer leads."""

    def __init__(self) -> None:
        self.runtimes: dict[Run_, StageRuntime] = {}
        self.answers: SimpleQueue[Done | Refused] = SimpleQueue()

    def lead(self, run: Run_, make: Callable[[Callable[[Done | Refused], None]], StageRuntime]) -> None:
        self.runtimes[run] = make(self.answers.put)

    async def lead_no_more(self, run: Run_) -> None:
        await asyncio.to_thread(self.runtimes.pop(run).close)


class Mesh:
    """Three peers that lend, and a plan in which the first leads the two others."""

    def __init__(self, made_up: Callable[..., Any]) -> None:
        _, self.manifest, store = made_up("f32")
        self.stage = PlanStage(0, len(self.manifest.units), "a", helpers=("b", "c"), shares=(2, 1, 1))
        self.plan = PlanRecord(1, (self.stage,), 1, 1)
        self.view = SimpleNamespace(state=SimpleNamespace(plan=self.plan, proposed=None))
        self.net, self.serving, self.lost = Net(), Serving(), list[Run_]()

        async def blobs(*_: object) -> None:
            return None

        for place, me in enumerate("abc"):
            host = self.net.hosts[me] = TeamHost(self.net.links(me), cast(Any, self.view))
            room = Room("cpu", 1, 4, 128)
            slices = Slices(store, cast(Any, SimpleNamespace(blobs=blobs)), self.manifest, room)
            host.lend(slices, cast(Any, self.serving), self.lost.append, lambda: None)
            assert self.part(place).place == place

    def part(self, place: int) -> HeldSlice:
        return HeldSlice(0, len(self.manifest.units), place, self.stage.shares)

    async def loaded(self) -> None:
        for place, host in enumerate(self.net.hosts.values()):
            assert host.slices is not None
            await host.slices.load(self.part(place))

    @property
    def lead(self) -> TeamHost:
        return self.net.hosts["a"]

    async def computed(self, position: int, tokens: list[int]) -> Done | Refused:
        step = Step(b"s", position, np.array(tokens, np.int64), None, True, np.copy)
        self.serving.runtimes[self.stage.first, self.stage.stop].submit(step)
        return await asyncio.to_thread(self.serving.answers.get, timeout=WAIT_S)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():  # noqa: ASYNC110 - threads end, which tell nobody
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for host in self.net.hosts.values():
            await host.close()


@pytest.fixture
async def mesh(made_up: Callable[..., Any]) -> Mesh:
    return Mesh(made_up)


async def test_a_team_opens_computes_and_opens_again_after_a_loss(mesh: Mesh) -> None:
    await mesh.loaded()
    assert [host.told() for host in mesh.net.hosts.values()] == [(), (mesh.part(1),), (mesh.part(2),)]
    await mesh.lead.open(mesh.stage)
    assert mesh.lead.told() == (mesh.part(0),)
    first = await mesh.computed(0, [1, 2, 3])
    assert isinstance(first, Done)
    mesh.lead.gone("c")
    assert mesh.lost == [(0, mesh.stage.stop)]
    assert mesh.lead.told() == ()
    await mesh.until(
        lambda: not any(host.in_use(mesh.part(at)) for at, host in enumerate(mesh.net.hosts.values()))
    )
    await mesh.lead.open(mesh.stage)
    again = await mesh.computed(0, [1, 2, 3])
    assert isinstance(again, Done)
    assert np.array_equal(first.finished, again.finished)
    await mesh.close()


async def test_a_member_that_does_not_answer_is_lost_for_the_team(mesh: Mesh) -> None:
    await mesh.loaded()
    await mesh.lead.open(mesh.stage)
    assert isinstance(await mesh.computed(0, [1, 2, 3]), Done)
    mesh.net.silent.add("b")
    refused = await mesh.computed(3, [4])
    assert isinstance(refused, Refused)
    assert refused.text == "a member of the team is silent"
    await mesh.until(lambda: mesh.lost == [(0, mesh.stage.stop)])
    await mesh.close()


async def test_a_helper_serves_nobody_but_the_lead_that_the_plan_names(mesh: Mesh) -> None:
    part = mesh.part(1)
    asks = TeamFormRequest(part.first, part.stop, part.place, part.shares)
    ask = mesh.net.handlers["b", TEAM_FORM.method]
    with pytest.raises(CannotServe, match="not loaded here yet"):
        await ask("a", asks)
    await mesh.loaded()
    assert (await ask("a", asks)).form.ends >= 0
    for peer, said in (
        ("c", asks),
        ("a", TeamFormRequest(part.first, part.stop, 2, part.shares)),
        ("a", TeamFormRequest(part.first, part.stop, 0, part.shares)),
        ("a", TeamFormRequest(part.first, part.stop, 1, (1, 1, 1))),
        ("a", TeamFormRequest(part.first + 1, part.stop, 1, part.shares)),
    ):
        with pytest.raises(BadCommand, match="a plan has the sender lead"):
            await ask(peer, said)
    mesh.view.state.plan = None
    with pytest.raises(MeshError):
        await mesh.lead.open(mesh.stage)
    assert not mesh.lead.told()
    await mesh.close()


async def test_frames_of_strangers_end_their_connection_and_those_of_no_team_are_passed_over(
    mesh: Mesh,
) -> None:
    await mesh.loaded()
    opened: list[bytes] = []
    join = mesh.net.handlers["b", TEAM_OPEN.method]

    async def noted(peer: str, said: Any) -> None:
        opened.append(bytes.fromhex(said.session))
        await join(peer, said)

    mesh.net.handlers["b", TEAM_OPEN.method] = noted
    await mesh.lead.open(mesh.stage)
    (session,) = opened
    helper = mesh.net.hosts["b"]
    tensor = tensor_of(np.zeros((1, mesh.manifest.hidden), np.float32))
    with pytest.raises(BadCommand, match="by its lead"):
        helper.step("c", TeamRows(session, 1, 2, (0,)))
    with pytest.raises(BadCommand, match="by its lead"):
        mesh.lead.step("b", TeamRows(session, 1, 2, (0,)))
    for member in (0, 1, 3):
        with pytest.raises(BadCommand, match="a part of the sender's own"):
            helper.part("c", TeamPart(session, 1, 1, member, 1, tensor))
    helper.end("d", TeamEnd(session, "no member says so"))
    assert helper.in_use(mesh.part(1))
    with pytest.raises(BadCommand, match="a team that is open here"):
        await mesh.net.handlers["b", TEAM_HERE.method]("d", TeamHereRequest(session.hex()))
    helper.step("c", TeamRows(SESSION, 1, 2, (0,)))
    helper.part("c", TeamPart(SESSION, 1, 1, 0, 1, tensor))
    helper.end("c", TeamEnd(SESSION, "of another team"))
    assert isinstance(await mesh.computed(0, [1, 2]), Done)
    await mesh.close()
