"""The gateway of a real mesh with the real model, asked by the official openai client; the Python API beside it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import (
    APIStatusError,
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    NotFoundError,
)

from peer import Mesh as Door
from peer.api import Options
from peer.gateway.embedder import Embedder, LocalEncoder
from peer.gateway.server import GatewayOptions, gateway
from peer.member.mesh_member import MeshMember
from planner.importers.encoders.folder import open_encoder
from tests.e2e.real_mesh import Models, Start, until
from tests.patience import WITHIN_S
from tests.planner.stored_encoder import put_encoder

KEY = "a key of the tests"
MODEL = "smollm2-135m"
EMBEDS = "all-minilm-l6-v2"
SESSIONS = 8
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass
class World:
    meshes: list[MeshMember]
    url: str
    client: AsyncOpenAI

    async def ask(self, text: str = "What is the capital of France?", **more: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        return await self.client.chat.completions.create(**{"model": MODEL, "messages": messages, **more})

    async def until_free(self) -> None:
        """Waits until no stage holds a session."""
        await until(lambda: not any(mesh.stage.core.sessions() for mesh in self.meshes))


@pytest.fixture
async def world(start: Start, models: Models, minilm_folder: Path) -> AsyncIterator[World]:
    embedder = Embedder(
        LocalEncoder(models.store, put_encoder(open_encoder(minilm_folder, EMBEDS), models.store), 1)
    )
    async with AsyncExitStack() as stack:
        meshes = await stack.enter_async_context(start((30,), 2, sessions=SESSIONS))
        await meshes[0].until_serving(WITHIN_S)
        options = GatewayOptions(port=0, keys=(KEY,))
        stack.callback(embedder.close)
        url = await stack.enter_async_context(gateway(meshes[0], options, embedder))
        client = await stack.enter_async_context(
            AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=300)
        )
        yield World(meshes, url, client)


async def test_the_openai_client_gets_what_it_asks_for(world: World) -> None:
    """One mesh for all of it: what takes long is to start one."""
    assert [model.id async for model in world.client.models.list()] == [MODEL, EMBEDS]
    for name in (MODEL, EMBEDS):
        assert (await world.client.models.retrieve(name)).id == name
    await embeds(world)
    await chats_and_streams(world)
    await draws_by_seed(world)
    await holds_to_a_schema(world)
    await refuses(world)
    await stops_where_told(world)
    await frees_what_is_cancelled(world)
    await serves_many(world)
    await world.until_free()


async def chats_and_streams(world: World) -> None:
    whole = await world.ask(max_tokens=12, temperature=0)
    choice = whole.choices[0]
    assert choice.finish_reason == "length"
    assert (whole.usage.completion_tokens, whole.usage.prompt_tokens) == (12, 37)
    stream = await world.ask(
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
        top_logprobs=2,
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == choice.message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 12
    told = [
        one for c in chunks if c.choices and c.choices[0].logprobs for one in c.choices[0].logprobs.content
    ]
    assert len(told) == 12
    assert all(one.token == one.top_logprobs[0].token and one.logprob < 0 for one in told)  # greedy
    completed = await world.client.completions.create(
        model=MODEL, prompt=["The sky is", "One, two,"], max_tokens=3, temperature=0, echo=True
    )
    assert [c.text.startswith(p) for c, p in zip(completed.choices, ("The sky is", "One, two,"), strict=True)]


async def draws_by_seed(world: World) -> None:
    """Answers to one request have seeds in a row."""
    two = await world.ask(n=2, seed=5, max_tokens=8)
    single = await world.ask(seed=6, max_tokens=8)
    assert two.choices[1].message.content == single.choices[0].message.content
    usual = await world.ask(seed=6, max_tokens=8, temperature=0.7, top_p=0.95)
    assert usual.choices[0].message.content == single.choices[0].message.content
    listed = await world.client.models.retrieve(MODEL)
    assert listed.model_extra is not None
    assert listed.model_extra["sampling"]["temperature"] == 0.7
    token = world.meshes[0].text.encode("Paris")[0]
    wanted = await world.ask(temperature=0, max_tokens=1, logit_bias={str(token): 100})
    assert wanted.choices[0].message.content == world.meshes[0].text.decode([token])


async def holds_to_a_schema(world: World) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    answers = [await world.ask(temperature=t, seed=3, max_tokens=40, response_format=form) for t in (0, 1)]
    for answer in answers:
        assert answer.choices[0].finish_reason == "stop"
        assert set(json.loads(answer.choices[0].message.content)) == {"city", "capital"}
    loose = await world.ask(max_tokens=5, temperature=0, response_format={"type": "json_object"})
    assert loose.choices[0].message.content.startswith("{")


async def refuses(world: World) -> None:
    async def refused(kind: type[APIStatusError], code: str | None, **more: Any) -> None:
        with pytest.raises(kind) as caught:
            await world.ask(**more)
        assert caught.value.code == code, caught.value

    await refused(NotFoundError, "model_not_found", model="gpt")
    await refused(BadRequestError, "context_length_exceeded", text="word " * 600)
    await refused(BadRequestError, "context_length_exceeded", max_tokens=500)
    tool = {"type": "function", "function": {"name": "now", "parameters": {}}}
    await refused(BadRequestError, "tools_not_supported", tools=[tool])
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    await refused(BadRequestError, "invalid_schema", response_format=form)
    with pytest.raises(AuthenticationError):
        await world.client.with_options(api_key="another").models.list()
    await refused(BadRequestError, "model_not_supported", model=EMBEDS)
    await refused_to_embed(world)


async def embeds(world: World) -> None:
    """The client asks for base64 unless told, and hands out numbers either way."""
    make = world.client.embeddings.create
    texts = ["How do I bake bread?", "A recipe for a loaf", "The mesh elects a new leader"]
    packed = await make(model=EMBEDS, input=texts)
    plain = await make(model=EMBEDS, input=texts, encoding_format="float", dimensions=384)
    assert [one.index for one in packed.data] == [0, 1, 2]
    assert [one.embedding for one in packed.data] == [one.embedding for one in plain.data]
    assert (packed.model, packed.usage.prompt_tokens, packed.usage.total_tokens) == (EMBEDS, 24, 24)
    bread, loaf, mesh = (np.array(one.embedding) for one in packed.data)
    assert len(bread) == 384
    assert bread @ bread == pytest.approx(1, abs=1e-5)
    assert bread @ loaf > 0.5 > 0.2 > bread @ mesh
    (first,) = (await make(model=EMBEDS, input=[101, 2129, 2079, 1045, 8670, 3489, 7852, 1029, 102])).data
    assert np.array(first.embedding) @ bread == pytest.approx(1, abs=1e-5)  # the first text, as its tokens


async def refused_to_embed(world: World) -> None:
    for kind, code, asked in (
        (BadRequestError, "model_not_supported", {"model": MODEL, "input": "x"}),
        (NotFoundError, "model_not_found", {"model": "ada", "input": "x"}),
        (BadRequestError, "context_length_exceeded", {"model": EMBEDS, "input": "word " * 300}),
        (BadRequestError, None, {"model": EMBEDS, "input": ""}),
        (BadRequestError, None, {"model": EMBEDS, "input": "x", "dimensions": 64}),
    ):
        with pytest.raises(kind) as caught:
            await world.client.embeddings.create(**asked)
        assert caught.value.code == code, caught.value
    with pytest.raises(AuthenticationError):
        await world.client.with_options(api_key="another").embeddings.create(model=EMBEDS, input="x")


async def stops_where_told(world: World) -> None:
    whole = (await world.ask(max_tokens=12, temperature=0)).choices[0].message.content
    stop = whole[4:7]
    for stopped in (
        await world.ask(max_tokens=12, temperature=0, stop=stop),
        await world.ask(max_tokens=12, temperature=0, stop=["never", stop]),
    ):
        assert stopped.choices[0].message.content == whole[: whole.index(stop)]
        assert stopped.choices[0].finish_reason == "stop"


async def frees_what_is_cancelled(world: World) -> None:
    """A client that goes away takes its sessions with it, on every stage."""
    stream = await world.ask(
        max_tokens=300, temperature=0, stream=True, n=2, logit_bias={"2": -100, "0": -100}
    )
    async for _ in stream:
        break
    await until(lambda: all(mesh.stage.core.sessions() == 2 for mesh in world.meshes))
    await stream.close()
    await world.until_free()
    sampled = [mesh.stage.core.tokens_sampled for mesh in world.meshes]
    waiting = asyncio.create_task(world.ask(max_tokens=300, temperature=0, logit_bias={"2": -100, "0": -100}))
    await until(lambda: [mesh.stage.core.tokens_sampled for mesh in world.meshes] != sampled)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await world.until_free()


async def serves_many(world: World) -> None:
    """More at once than the mesh has sessions: each gets its own answer."""

    async def one(number: int) -> str:
        answer = await world.ask(text=f"Say {number}.", max_tokens=2, temperature=0)
        assert answer.usage.completion_tokens in (1, 2)
        return str(answer.choices[0].finish_reason)

    assert len(await asyncio.gather(*(one(number) for number in range(64)))) == 64


async def test_programs_ask_by_the_python_api(start: Start, models: Models) -> None:
    async with start((30,), 2, sessions=SESSIONS) as meshes:
        await meshes[0].until_serving(WITHIN_S)
        link = meshes[0].link
        assert link is not None
        async with Door.join(
            link.url(), store=models.store.root, bind=("127.0.0.1",), transport="aiortc"
        ) as mesh:
            await mesh.ready(WITHIN_S)
            question = "Where is the Eiffel tower?"
            held = await mesh.ask(question, schema=SCHEMA, max_tokens=40, temperature=0.9, seed=4)
            assert held.why == "end"
            assert set(json.loads(held.text)) == {"city", "capital"}
            assert (
                await mesh.ask(question, schema=SCHEMA, max_tokens=40, temperature=0.9, seed=4)
            ).text == held.text
            usual: Options = {"temperature": 0.7, "top_p": 0.95}
            drawn = [await mesh.ask(question, max_tokens=8, seed=4, **more) for more in ({}, usual)]
            assert drawn[0].text == drawn[1].text
            tokens = [
                token async for token in mesh.chat(question, max_tokens=5, temperature=0, top_logprobs=0)
            ]
            assert sum(token.likely is not None for token in tokens) == 5
        example = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLES / "compare_seeds.py"),
            link.url(),
            "Name a fruit.",
            "1,2",
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
        )
        out, _ = await example.communicate()
        assert example.returncode == 0
        assert b"seed 1 again gives the same" in out
