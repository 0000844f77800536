"""A source text in a mesh of three processes, the encoder on one, the decoder over two: two of the three are lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from peer.api import Mesh
from peer.errors import ContextOverflow
from peer.gateway.server import GatewayOptions, gateway
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from planner.model.store import Store
from tests.e2e.command import Running, run, running
from tests.e2e.real_mesh import options
from tests.patience import WITHIN_S
from tests.planner.importers.seq2seq.checkpoints import END, GREEDY, load, text_of

NAME = "writer"
CASE = "flan-t5"
LEND = ("--memory", "1GiB", "--bind", "127.0.0.1", "--threads", "1")


def until_end(tokens: tuple[int, ...]) -> list[int]:
    """Greedy tokens up to the one that ends a text."""
    return list(tokens[: tokens.index(END) + 1]) if END in tokens else list(tokens)


async def answer(
    mesh: Mesh, source: str, at: int = -1, action: Callable[[], None] = lambda: None
) -> list[int]:
    """The tokens of a target text; `action` is done when `at` of them are here."""
    got: list[int] = []
    async with aclosing(mesh.chat(source, max_tokens=GREEDY)) as pieces:  # greedy, as nothing else is said
        async for piece in pieces:
            if piece.id >= 0:
                got.append(piece.id)
            if len(got) == at:
                action()
    return got


class Town:
    """The mesh, as who asks it sees it."""

    def __init__(self, member: MeshMember, processes: dict[str, Running]) -> None:
        self.member = member
        self.processes = processes

    def name(self, peer: str) -> str:
        member = self.member.view.state.members.get(peer)
        return member.name if member is not None else ""

    def where(self) -> tuple[list[str], set[str]]:
        """Who runs the stages of the decoder, in order, and who those of the encoder."""
        state = self.member.view.state
        plan = state.serving()
        offers = [stage.primary for offer in state.offers.values() for stage in offer.stages]
        stages = [self.name(stage.primary) for stage in plan.stages] if plan is not None else []
        return stages, {self.name(peer) for peer in offers}

    def doubled(self) -> bool:
        """Every stage of the decoder is held by a standby as well."""
        state = self.member.view.state
        plan = state.serving()
        return plan is not None and all(
            any((stage.first, stage.stop) in state.members[peer].held for peer in stage.standbys)
            for stage in plan.stages
        )

    def kill(self, name: str) -> None:
        self.processes[name].process.send_signal(signal.SIGKILL)

    async def until(self, holds: Callable[[], bool]) -> None:
        assert await self.member.view.until(lambda _: holds(), WITHIN_S), self.where()


async def test_a_target_text_survives_the_peer_of_the_encoder_and_one_of_the_decoder(tmp_path: Path) -> None:
    checkpoint = load(CASE)
    folder = checkpoint.write(tmp_path / NAME)
    sources = [text_of(source) for source in checkpoint.sources]
    expected = [until_end(tokens) for tokens in checkpoint.greedy]
    async with AsyncExitStack() as stack:
        meeting = stack.enter_context(
            running(tmp_path, "signaling", "--port", "0", "--store", tmp_path / "store")
        ).until(r"^http://\S+")[0]
        serve = ("serve", folder, "--weights", "f32", "--name", "founder", "--signaling", meeting)
        serve += (
            "--component",
            "low=0-3@founder",
            "--component",
            "high=4-7@one",
            "--sessions",
            "2",
            "--protection",
            "high",
        )
        founder = stack.enter_context(running(tmp_path, *serve, "--store", tmp_path / "store", *LEND))
        link = founder.until(r"http://\S+#\S+")[0]
        processes = {"founder": founder}
        for name in ("one", "two"):
            where = ("--state", tmp_path / name, "--store", tmp_path / f"{name}-store")
            processes[name] = stack.enter_context(
                running(tmp_path, "join", link, "--name", name, *where, *LEND)
            )
        joining = join(link, options("asker", 0), Store(tmp_path / "other"))
        member = await stack.enter_async_context(joining)
        town, mesh = Town(member, processes), Mesh(member)
        await town.until(lambda: town.where() == (["founder", "one"], {"two"}))
        assert await answer(mesh, sources[0]) == expected[0]
        assert await asyncio.gather(*(answer(mesh, source) for source in sources)) == expected
        with pytest.raises(ContextOverflow, match="source texts of at most 512 tokens"):
            await answer(mesh, " ".join(["w9"] * 512))
        await _over_http(stack, member, sources[0], expected[0])
        await _in_a_terminal(tmp_path, link, sources[0], expected[0])

        await town.until(town.doubled)
        assert await answer(mesh, sources[0], 3, lambda: town.kill("two")) == expected[0]
        # The next one dies as soon as its answer has begun: two of three voters are gone then, so the log may never say
        # that its standby has loaded what it held.
        await town.until(lambda: bool(town.where()[1]) and "two" not in town.where()[1])
        assert await answer(mesh, sources[1], 3, lambda: town.kill("one")) == expected[1]


def words_of(tokens: list[int]) -> str:
    """What tokens say."""
    return text_of(tokens)


async def _over_http(stack: AsyncExitStack, member: MeshMember, source: str, expected: list[int]) -> None:
    url = await stack.enter_async_context(gateway(member, GatewayOptions(port=0), None))
    client = await stack.enter_async_context(
        AsyncOpenAI(base_url=url, api_key="-", max_retries=0, timeout=300)
    )
    plain: Any = {"model": NAME, "max_tokens": 12}
    written = await client.completions.create(prompt=source, **plain)
    assert written.choices[0].text == words_of(expected[:12])
    turns: Any = [
        {"role": "user", "content": "w4 w5"},
        {"role": "assistant", "content": "w6"},
        {"role": "user", "content": source},
    ]
    said = await client.chat.completions.create(messages=turns, **plain)
    assert said.choices[0].message.content == words_of(expected[:12])
    with pytest.raises(BadRequestError, match="source texts of at most 512 tokens"):
        await client.completions.create(prompt=" ".join(["w9"] * 600), **plain)


async def _in_a_terminal(home: Path, link: str, source: str, expected: list[int]) -> None:
    where = ("--state", home / "asker", "--store", home / "third", "--bind", "127.0.0.1")
    words = (source, "--max-tokens", "12")
    said = await asyncio.to_thread(run, home, "generate", link, *words, *where)
    assert (said.status, said.out.strip()) == (0, words_of(expected[:12])), said.err
    said = await asyncio.to_thread(run, home, "generate", link, *words, "--pin-ends", *where)
    assert (said.status, len(said.complaints)) == (1, 1)
    assert "ask it without --pin-ends" in said.complaints[0]
