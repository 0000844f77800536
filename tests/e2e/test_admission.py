"""A full mesh of real peers: askers see where they stand, who gives more is called first, who leaves is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession

from peer.errors import MeshFull, MustContribute
from peer.gateway.server import GatewayOptions, gateway
from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Conversation, Finished, Settings
from peer.stage.seat_waiting import Waits
from peer.state.generated.commands import FairnessChosen
from peer.wire.bundles import frames_of
from peer.wire.generated.frames import Bundle, Frame, Token
from peer.wire.generated.requests import WORK, Claim, WorkRequest
from tests.e2e.real_mesh import Start, until
from tests.patience import WITHIN_S

LONG = Settings(max_tokens=490, ignore_end=True)
SHORT = Settings(max_tokens=6, ignore_end=True)
QUESTION = "Rivers of Europe"
BODY = {"model": "smollm2-135m", "prompt": QUESTION, "max_tokens": 3}
TOKEN_S = 0.3  # of the answer that holds the only session: it lasts longer than all that is tried meanwhile
WORKED = (0, 2000)  # positions that one peer is said to have computed for another


@dataclass
class Asked:
    """One question of a member, and what it saw of the line."""

    mesh: MeshMember
    settings: Settings
    seen: list[Waits | None] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    why: str = ""
    called_at: float = 0.0

    def __post_init__(self) -> None:
        self.conversation: Conversation = self.mesh.conversation()
        self.conversation.on_wait(self._stands)

    def _stands(self, waits: Waits | None) -> None:
        self.seen.append(waits)
        if waits is None:
            self.called_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        try:
            async for piece in self.conversation.complete(QUESTION, self.settings):
                if isinstance(piece, Finished):
                    self.why = piece.why
                elif piece.token >= 0:
                    self.ids.append(piece.token)
        finally:
            self.conversation.close()

    @property
    def place(self) -> int:
        """Where it stands now; 0 while it does not wait."""
        last = self.seen[-1] if self.seen else None
        return last.place if last is not None else 0


@pytest.fixture
async def meshes(start: Start) -> AsyncIterator[list[MeshMember]]:
    async with start((31,), 3, sessions=1) as started:
        await started[0].until_serving(WITHIN_S)
        yield started


async def test_a_full_mesh_has_a_line(meshes: list[MeshMember]) -> None:
    first, second, third = meshes
    alone = Asked(first, SHORT)
    await alone.run()
    await gives_more(third, second)
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        hurry = slowed(meshes)
        under_way = Asked(first, LONG)
        answering = tasks.create_task(under_way.run())
        await until(lambda: len(under_way.ids) > 2)

        came_first, came_last = Asked(second, SHORT), Asked(third, SHORT)
        tasks.create_task(came_first.run())
        await until(lambda: came_first.place == 1)
        tasks.create_task(came_last.run())
        await until(lambda: (came_first.place, came_last.place) == (2, 1))  # it gave more
        assert all(waits is None or waits.wait_s is not None for waits in came_first.seen), "measured before"

        leaves = Asked(first, SHORT)
        leaving = tasks.create_task(leaves.run())
        await until(lambda: leaves.place > 0)
        leaves.conversation.stop()
        await leaving
        assert (leaves.why, leaves.ids) == ("cancelled", [])
        impatient = Asked(first, Settings(max_tokens=6, seat_wait_s=0.2))
        with pytest.raises(MeshFull, match="in use"):
            await impatient.run()
        await refused_by_the_gateway(first)
        assert under_way.why == ""
        hurry()
        under_way.conversation.stop()
        await answering
    assert came_first.ids == came_last.ids == alone.ids
    assert came_last.called_at < came_first.called_at
    await until(lambda: not any(len(mesh.stage.core.admitting.line) for mesh in meshes))
    await shares_fairly(first, second)


def slowed(meshes: list[MeshMember]) -> Callable[[], None]:
    """The first stage hears of each token late, until the result is called."""
    plan = meshes[0].view.state.plan
    assert plan is not None
    first = next(mesh for mesh in meshes if mesh.me == plan.stages[0].primary)
    take = first.parts.router.frame
    loop = asyncio.get_running_loop()

    def late(sender: str, frame: Frame) -> None:
        for each in frames_of(frame) if isinstance(frame, Bundle) else [frame]:
            if isinstance(each, Token):
                loop.call_later(TOKEN_S, take, sender, each)
            else:
                take(sender, each)

    first.links.start(late)

    def hurry() -> None:
        first.links.start(take)

    return hurry


async def shares_fairly(owner: MeshMember, debtor: MeshMember) -> None:
    """From here on who owes more than half of what `debtor` does is refused, and reads why, a program as well."""
    await owner.propose(FairnessChosen("fair", WORKED[1] * 500, 0))
    assert await debtor.view.until(lambda state: state.fairness.policy == "fair", WITHIN_S)
    with pytest.raises(MustContribute, match="shoal join"):
        await Asked(debtor, SHORT).run()
    async with (
        gateway(debtor, GatewayOptions(port=0)) as url,
        ClientSession() as client,
        client.post(f"{url}/completions", json=BODY) as answer,
    ):
        error = (await answer.json())["error"]
        assert (answer.status, error["type"], error["code"]) == (503, "server_error", "must_contribute")
        assert "shoal join" in error["message"]


async def gives_more(giver: MeshMember, asker: MeshMember) -> None:
    """The ledger says that `giver` computed for `asker`, who says so itself."""
    claim = Claim("ab" * 16, 1, giver.me, WORKED, (0, 62), "tokens")
    await asker.view.ask_leader(WORK, WorkRequest((claim,)))
    for mesh in (giver, asker):
        assert await mesh.view.until(lambda state: giver.me in state.ledger.balances, WITHIN_S)


async def refused_by_the_gateway(mesh: MeshMember) -> None:
    options = GatewayOptions(port=0, full_wait_s=0.2)
    async with (
        gateway(mesh, options) as url,
        ClientSession() as client,
        client.post(f"{url}/completions", json=BODY) as answer,
    ):
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "mesh_full"
        assert int(answer.headers["Retry-After"]) > 0
