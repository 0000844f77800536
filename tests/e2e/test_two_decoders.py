"""Two models that answer in words in one mesh: each answers with its own tokens, and survives as the other does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientSession

from peer.api import Mesh
from peer.errors import NoPlan
from peer.gateway.server import GatewayOptions, gateway
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.model.chat_template import Message
from peer.origin.answer_stream import Conversation, Delta, Settings
from peer.session.sampling import GREEDY
from peer.state.decoder_sight import seen_as
from peer.state.generated.commands import DecoderOffered, ModelWithdrawn
from peer.state.mesh_state import MeshState
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from tests.e2e.command import Result, Running, run, running
from tests.e2e.real_mesh import CONTEXT, UNITS, Models, Start
from tests.e2e.unsplit import QUESTION, Unsplit
from tests.patience import WITHIN_S
from tests.planner.tiny_models import TinyModel

FIRST, SECOND, THIRD = "tiny", "other", "third"
TOKENS = 120
PROMPT = (1, 2, 3, 4)
COMMON = ("--memory", "1GiB", "--bind", "127.0.0.1")


async def _tokens(
    conversation: Conversation,
    prompt: list[int],
    count: int,
    at: int = -1,
    action: Callable[[], None] = lambda: None,
) -> list[int]:
    """The tokens of one answer; `action` is done when `at` of them are here."""
    got: list[int] = []
    try:
        async for piece in conversation.tokens(prompt, Settings(GREEDY, count, ignore_end=True)):
            if isinstance(piece, Delta) and piece.token >= 0:
                got.append(piece.token)
                if len(got) == at:
                    action()
    finally:
        conversation.close()
    return got


def _doubled(state: MeshState) -> bool:
    """Every stage is served, and held by a standby as well."""
    plan = state.serving()
    return plan is not None and all(
        any((stage.first, stage.stop) in state.members[peer].held for peer in stage.standbys)
        for stage in plan.stages
    )


@dataclass
class Town:
    """A signaling server, peers in processes of their own by name, and one that only asks, in this process."""

    home: Path
    store: Path
    models: dict[str, str]  # ids by name
    meeting: str
    stack: AsyncExitStack
    link: str = ""
    asker: MeshMember = field(init=False)
    processes: dict[str, Running] = field(default_factory=dict)

    def add(self, name: str) -> None:
        state = ("--state", self.home / name)
        words = ["join", self.link, "--name", name, *state, "--store", self.store, *COMMON]
        self.processes[name] = self.stack.enter_context(running(self.home, *words))

    def found(self, *models: str) -> Running:
        served = [self.models[name] for name in models]
        state = ("--state", self.home / "founder")
        words = ["serve", *served, "--signaling", self.meeting, "--name", "founder", "--keep", *state]
        words += ["--protection", "high", "--store", self.store, *COMMON]
        self.processes["founder"] = self.stack.enter_context(running(self.home, *words))
        return self.processes["founder"]

    def command(self, name: str, *words: object, who: str = "one", typed: str | None = None) -> Result:
        where = ("--store", self.store, "--state", self.home / who, "--bind", "127.0.0.1")
        return run(self.home, name, self.link, *words, *where, typed=typed)

    def name_of(self, peer: str | None) -> str:
        member = self.asker.view.state.members.get(peer or "")
        return member.name if member is not None else ""

    def seen(self, name: str) -> MeshState:
        """The mesh as those see it who serve that model."""
        state = self.asker.view.state
        return state if name == FIRST else seen_as(state, name)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
                await asyncio.sleep(0.02)

    def all_vote(self) -> bool:
        replica = self.asker.view.replica
        voters = replica.config.voters if replica is not None else ()
        return len(voters) == 3 and set(voters) <= self.asker.view.state.members.keys()

    async def answer(self, name: str, at: int = -1, action: Callable[[], None] = lambda: None) -> list[int]:
        asked = await self.asker.answering(name)
        return await _tokens(asked.conversation(), list(PROMPT), TOKENS, at, action)


@asynccontextmanager
async def started(home: Path, *served: str) -> AsyncIterator[Town]:
    store = Store(home / "store")
    models = {}
    for seed, name in enumerate((FIRST, SECOND, THIRD)):
        gguf = TinyModel(seed=seed, blocks=2 + seed).write_gguf(home / f"{name}.gguf")
        models[name] = build_model(open_gguf(gguf, name), "8bit", store)
    async with AsyncExitStack() as stack:
        meeting = stack.enter_context(running(home, "signaling", "--port", "0", "--store", store.root))
        url = meeting.until(r"^http://\S+")[0]
        town = Town(home, store.root, models, url, stack)
        town.link = town.found(*served).until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        options = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
        town.asker = await stack.enter_async_context(join(town.link, options, store))
        for name in ("a", "b"):
            town.add(name)
        await town.until(lambda: town.all_vote() and all(_doubled(town.seen(name)) for name in served))
        yield town


async def test_each_decoder_survives_who_computes_and_who_coordinates(tmp_path: Path) -> None:
    async with started(tmp_path, FIRST, SECOND) as town:
        assert town.name_of(town.asker.view.leader) == "founder"
        calm = {name: await town.answer(name) for name in (FIRST, SECOND)}
        assert calm[FIRST] != calm[SECOND]

        def kill(name: str) -> None:
            town.processes[name].process.kill()

        # The founder coordinates, and computes: it is killed in the middle of answers of both.
        both = await asyncio.gather(town.answer(FIRST), town.answer(SECOND, 20, lambda: kill("founder")))
        assert both == [calm[FIRST], calm[SECOND]]
        await town.until(lambda: town.name_of(town.asker.view.leader) in ("a", "b"))
        town.add("c")
        await town.until(lambda: all(_doubled(town.seen(name)) for name in (FIRST, SECOND)))

        # And now whoever computes the first stage of the second model, whether it coordinates or not.
        plan = town.seen(SECOND).serving()
        assert plan is not None
        first = town.name_of(plan.stages[0].primary)
        assert await town.answer(SECOND, 20, lambda: kill(first)) == calm[SECOND]
        assert await town.answer(FIRST) == calm[FIRST]


async def test_decoders_come_and_go_by_command_while_others_answer(tmp_path: Path) -> None:
    async with started(tmp_path, FIRST, SECOND) as town:
        calm = {name: await town.answer(name) for name in (FIRST, SECOND)}
        over = False

        async def asked_on(name: str) -> int:
            count = 0
            while not over:
                assert await town.answer(name) == calm[name]
                count += 1
            return count

        answering = [asyncio.ensure_future(asked_on(name)) for name in (FIRST, SECOND)]
        given = await asyncio.to_thread(
            town.command, "offer", tmp_path / f"{THIRD}.gguf", "--name", THIRD, who="founder"
        )
        assert given.status == 0, given.err
        assert f"{THIRD} answers in words, too, 4 conversations of" in given.out
        prompt = ("hello", "--temperature", "0", "--max-tokens", "8", "--json")
        shown = await asyncio.to_thread(town.command, "generate", *prompt, "--model", THIRD)
        assert shown.status == 0, shown.err
        said = {THIRD: json.loads(shown.out)["text"]}
        # The same with its ends kept here, and in a conversation that everybody reads.
        pinned = await asyncio.to_thread(
            town.command, "generate", *prompt, "--model", THIRD, "--pin-ends", who="pins"
        )
        assert json.loads(pinned.out)["text"] == said[THIRD], pinned.err
        settings = ("--temperature", "0", "--max-tokens", "8")
        for model in (THIRD, FIRST):  # entered again, with another model from then on
            talk = ("--in", "talk", "--model", model, *settings)
            chat = await asyncio.to_thread(town.command, "chat", *talk, typed="hello\n")
            assert chat.status == 0, chat.err
        (kept,) = town.asker.view.state.conversations.values()
        answers = [each for each in kept.messages if each.form == "answer"]
        assert [each.model for each in answers] == [THIRD, ""]
        assert answers[0].text == said[THIRD]
        assert kept.model == ""
        async with gateway(town.asker, GatewayOptions(port=0)) as url, ClientSession() as programs:
            async with programs.get(f"{url}/models") as response:
                listed = [each["id"] for each in (await response.json())["data"]]
                assert listed == [FIRST, SECOND, THIRD]
            for name in (FIRST, SECOND, town.models[SECOND], THIRD):
                body = {"model": name, "temperature": 0, "max_tokens": 8}
                body["messages"] = [{"role": "user", "content": "hello"}]
                async with programs.post(f"{url}/chat/completions", json=body) as response:
                    answer = await response.json()
                assert answer["model"] in (name, SECOND), answer
                text = answer["choices"][0]["message"]["content"]
                assert said.setdefault(answer["model"], text) == text
        for name in (SECOND, THIRD):
            told = await Mesh(town.asker).ask("hello", model=name, temperature=0, max_tokens=8)
            assert told.text == said[name]
        assert len(set(said.values())) == 3
        taken = await asyncio.to_thread(town.command, "withdraw", THIRD, who="founder")
        assert taken.out == f"{THIRD} is not offered any more\n"
        with pytest.raises(NoPlan, match=f"under the name {THIRD}"):
            await town.asker.answering(THIRD)
        over = True
        assert min(await asyncio.gather(*answering)) >= 2


async def _offered(mesh: MeshMember, model: str) -> None:
    await mesh.propose(DecoderOffered(SECOND, model, UNITS, CONTEXT, 2, "latency"))
    assert await mesh.view.until(
        lambda state: SECOND in state.decoders and state.decoders[SECOND].plan is not None, WITHIN_S
    )


@pytest.mark.soak
async def test_two_forms_of_the_real_model_answer_as_each_does_unsplit(start: Start, models: Models) -> None:
    async with start((30,), 2) as (founder, second):
        await founder.until_serving(WITHIN_S)
        await _offered(founder, models.ids["4bit"])
        prompt = founder.text.encode_chat([Message("user", QUESTION)])
        for mesh in (founder, second):
            one, other = await asyncio.gather(
                _tokens(mesh.conversation(), prompt, 40),
                _tokens((await mesh.answering(SECOND)).conversation(), prompt, 40),
            )
            assert one == Unsplit(models).answer(prompt, 40, GREEDY)
            assert other == Unsplit(models, "4bit").answer(prompt, 40, GREEDY)
        await founder.propose(ModelWithdrawn(SECOND))
        assert await second.view.until(lambda state: SECOND not in state.decoders, WITHIN_S)
