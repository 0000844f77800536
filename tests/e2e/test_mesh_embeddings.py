"""Embeddings by a model that the mesh runs: over HTTP, from Python and in a terminal, also when a peer is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from peer.api import Mesh
from peer.errors import BadCommand, CannotServe, NoPlan
from peer.gateway.server import GatewayOptions, gateway
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.text_models import embeddings
from planner.model.store import Store
from tests.e2e.command import run, running
from tests.e2e.graph_model import double_file
from tests.e2e.real_mesh import options
from tests.patience import WITHIN_S
from tests.planner.importers.encoders.checkpoints import QUERY, load
from tests.planner.importers.encoders.checkpoints import TEXTS as DOCUMENTS
from tests.planner.plain_bert import TinyBert, plain_bert

TEXTS = ["a mesh", "a mesh of peers answers", "sky"]
ROWS = ([2, 4, 5, 3], [2, 4, 5, 6, 7, 8, 3], [2, 10, 3])
RANKED = np.argsort(-load("bert-scores").made[:, 0]).tolist()
SORTED = load("bert-classes")
LIKELIEST = [SORTED.case.labels[at] for at in SORTED.made.argmax(axis=1)]
MANY = [TEXTS[place % len(TEXTS)] for place in range(3000)]


async def test_a_mesh_makes_embeddings_for_programs_and_people(tmp_path: Path) -> None:
    folder = TinyBert().write(tmp_path / "tiny")
    expected = plain_bert(folder, *ROWS)
    serve = (
        "serve",
        folder,
        double_file(tmp_path),
        load("bert-scores").write(tmp_path / "ranks"),
        load("bert-classes").write(tmp_path / "sorts"),
        "--store",
        tmp_path / "store",
    )
    serve += ("--memory", "1GiB", "--port", "0", "--bind", "127.0.0.1", "--threads", "1")
    away = ("--state", tmp_path / "asker", "--store", tmp_path / "third")
    async with AsyncExitStack() as stack:
        founder = stack.enter_context(running(tmp_path, *serve))
        link = founder.until(r"http://\S+#\S+")[0]
        joining = join(link, options("joiner", 0), Store(tmp_path / "other"))
        member = await stack.enter_async_context(joining)
        mesh = Mesh(member)
        assert await member.view.until(
            lambda state: len(state.offers) == 4 and all(offer.stages for offer in state.offers.values()),
            WITHIN_S,
        )
        np.testing.assert_allclose(await mesh.embed(TEXTS), expected, atol=2e-6)
        np.testing.assert_allclose(await mesh.embed("sky", "tiny"), expected[2:], atol=2e-6)
        for asked, error, says in (
            (mesh.embed("sky", "double"), CannotServe, "double makes no embeddings of texts: it has tiny"),
            (mesh.embed("sky", "other"), NoPlan, "no embedding model other: it has tiny"),
            (mesh.embed("sky", "ranks"), CannotServe, "ranks makes no embeddings of texts: it has tiny"),
            (mesh.rerank("sky", ["a"], "tiny"), CannotServe, "tiny ranks no texts: it has ranks"),
            (
                mesh.rerank("sky", ["sky " * 99]),
                BadCommand,
                "text 1: 103 tokens with the one that it is compared",
            ),
            (mesh.embed(["sky", "a mesh " * 6]), BadCommand, "text 2: 14 tokens, and tiny takes 12"),
        ):
            with pytest.raises(error, match=says):
                await asked
        assert [place for place, _ in await mesh.rerank(QUERY, DOCUMENTS)] == RANKED
        await _sorted(mesh)
        await _over_http(stack, member)

        said = await asyncio.to_thread(run, tmp_path, "embed", link, *TEXTS, *away)
        assert said.status == 0, said.err
        lines = [json.loads(line) for line in said.out.splitlines()]
        assert [line["text"] for line in lines] == TEXTS
        np.testing.assert_allclose([line["embedding"] for line in lines], expected, atol=2e-6)
        (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS))
        kept = ("--file", tmp_path / "texts.txt", "--out", tmp_path / "made.npy")
        said = await asyncio.to_thread(run, tmp_path, "embed", link, *kept, *away)
        assert said.status == 0, said.err
        np.testing.assert_allclose(np.load(tmp_path / "made.npy"), expected, atol=2e-6)
        for words, why in (
            ((), "give texts, or --file with a text a line, and not both"),
            (("sky", "--model", "double"), "double makes no embeddings of texts: it has tiny"),
            (("sky", "--out", "made.txt"), "--out made.txt: the name of a .npy file expected"),
        ):
            said = await asyncio.to_thread(run, tmp_path, "embed", link, *words, *away)
            assert (said.status, said.complaints) == (1, [f"shoal: {why}"])
        said = await asyncio.to_thread(run, tmp_path, "rerank", link, QUERY, *DOCUMENTS, "--top", "2", *away)
        assert said.status == 0, said.err
        lines = [json.loads(line) for line in said.out.splitlines()]
        assert [(line["index"], line["text"]) for line in lines] == [(at, DOCUMENTS[at]) for at in RANKED[:2]]
        said = await asyncio.to_thread(run, tmp_path, "classify", link, *DOCUMENTS, "--top", "1", *away)
        assert said.status == 0, said.err
        lines = [json.loads(line) for line in said.out.splitlines()]
        assert [line["text"] for line in lines] == list(DOCUMENTS)
        assert [[*line["labels"]] for line in lines] == [[label] for label in LIKELIEST]


async def _sorted(mesh: Mesh) -> None:
    """Labels with scores, as transformers gives them."""
    for text, expected in zip(DOCUMENTS, SORTED.made, strict=True):
        found = await mesh.classify(text)
        assert list(found.values()) == sorted(found.values(), reverse=True)
        assert [found[label] for label in SORTED.case.labels] == pytest.approx(expected.tolist(), abs=1e-5)
    for asked, error, says in (
        (mesh.classify("sky", model="tiny"), CannotServe, "tiny sorts no texts into classes: it has sorts"),
        (mesh.classify("sky " * 99), BadCommand, "101 tokens, and sorts takes 64"),
        (mesh.classify(b"sky"), BadCommand, "a text expected, or labels for a picture"),
    ):
        with pytest.raises(error, match=says):
            await asked


async def _over_http(stack: AsyncExitStack, member: MeshMember) -> None:
    url = await stack.enter_async_context(gateway(member, GatewayOptions(port=0), None))
    client = await stack.enter_async_context(
        AsyncOpenAI(base_url=url, api_key="-", max_retries=0, timeout=300)
    )
    listed = {model.id: model.model_extra or {} async for model in client.models.list()}
    assert (listed["tiny"]["dimensions"], listed["tiny"]["context_length"]) == (32, 12)
    assert "dimensions" not in listed["double"]
    expected = await Mesh(member).embed(TEXTS)
    made = await client.embeddings.create(model="tiny", input=TEXTS)
    assert made.usage.prompt_tokens == sum(map(len, ROWS))
    np.testing.assert_array_equal(np.array([one.embedding for one in made.data], np.float32), expected)
    by_id = await client.embeddings.create(
        model=listed["tiny"]["manifest"], input=[list(row) for row in ROWS]
    )
    np.testing.assert_array_equal(np.array([one.embedding for one in by_id.data], np.float32), expected)
    with pytest.raises(NotFoundError, match="'tiny' makes embeddings; 'ranks' ranks texts; 'double'"):
        await client.embeddings.create(model="other", input="sky")
    asked = {"model": "ranks", "query": QUERY, "documents": DOCUMENTS}
    ranked = await client.post(
        "/rerank", body={**asked, "top_n": 3, "return_documents": True}, cast_to=object
    )
    assert isinstance(ranked, dict)
    assert [each["index"] for each in ranked["results"]] == RANKED[:3]
    assert [each["document"]["text"] for each in ranked["results"]] == [DOCUMENTS[at] for at in RANKED[:3]]
    assert listed["ranks"]["ranks"] is True
    for more, says in (
        ({"model": "tiny"}, "'tiny' makes embeddings, as /v1/embeddings asks it, and ranks no texts"),
        ({"model": "double"}, "computes outputs of inputs, as shoal run asks it, and ranks no texts"),
        ({"documents": ["sky " * 99]}, "108 tokens with the query in place of the 64 tokens"),
    ):
        with pytest.raises(BadRequestError, match=says):
            await client.post("/rerank", body=asked | more, cast_to=object)
    for model, text, says in (
        ("ranks", "sky", "ranks texts, as /v1/rerank asks it, and makes no embeddings"),
        ("double", "sky", "makes no embeddings"),
        ("tiny", "a mesh " * 6, "14 tokens in place of the 12 tokens"),
        ("tiny", "", "must not be empty"),
    ):
        with pytest.raises(BadRequestError, match=says):
            await client.embeddings.create(model=model, input=text)


async def test_all_vectors_come_when_a_peer_is_killed(tmp_path: Path) -> None:
    folder = TinyBert().write(tmp_path / "tiny")
    expected = plain_bert(folder, *ROWS)
    words = ("--memory", "1GiB", "--bind", "127.0.0.1", "--threads", "1")
    async with AsyncExitStack() as stack:
        founder = stack.enter_context(
            running(
                tmp_path,
                "serve",
                folder,
                "--store",
                tmp_path / "store",
                "--memory",
                "0",
                "--port",
                "0",
                *words[2:],
            )
        )
        link = founder.until(r"http://\S+#\S+")[0]
        processes = {
            name: stack.enter_context(
                running(tmp_path, "join", link, "--name", name, "--state", tmp_path / name, "--store",
                        tmp_path / f"{name}-store", *words)
            ).process.pid
            for name in ("first", "second")
        }  # fmt: skip
        joining = join(link, options("asker", 0), Store(tmp_path / "other"))
        member = await stack.enter_async_context(joining)
        assert await member.view.until(
            lambda state: (
                sum(each.profile is not None for each in state.members.values()) == 2
                and bool(state.offers["tiny"].stages)
            ),
            WITHIN_S,
        )
        there = 0

        def done(count: int) -> None:
            nonlocal there
            if there == 0:
                stage = member.view.state.offers["tiny"].stages[0]
                os.kill(processes[member.view.state.members[stage.primary].name], signal.SIGKILL)
            there += count

        made = await embeddings(member, MANY, "tiny", done)
        assert there == len(MANY)
        np.testing.assert_allclose(made, expected[np.arange(len(MANY)) % len(TEXTS)], atol=2e-6)
