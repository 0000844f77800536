"""A mesh without a model that answers in words: founded, joined, run and shown; what asks for words is told so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from aiohttp import ClientSession

from peer.api import Mesh
from peer.errors import CannotServe, NoPlan
from peer.gateway.server import GatewayOptions, gateway
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions
from peer.state.generated.commands import ModelChosen
from peer.storage.peer_keys import kept_identity
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.command import run, running
from tests.e2e.graph_model import double_file
from tests.e2e.real_mesh import options, until
from tests.patience import WITHIN_S

NONE_ANSWERS = "no model of this mesh answers in words: shoal run asks double"


async def test_it_is_founded_by_a_command_and_a_process_joins_runs_and_shows_it(tmp_path: Path) -> None:
    kept = ("--state", tmp_path / "state", "--store", tmp_path / "store")
    serve = (
        "serve",
        double_file(tmp_path),
        "--keep",
        *kept,
        "--memory",
        "1GiB",
        "--port",
        "0",
        "--bind",
        "127.0.0.1",
    )
    async with AsyncExitStack() as stack:
        founder = stack.enter_context(running(tmp_path, *serve))
        link = founder.until(r"http://\S+#\S+")[0]
        joining = join(link, options("joiner", 1 << 30), Store(tmp_path / "other"), compute=True)
        mesh = await stack.enter_async_context(joining)
        assert await mesh.view.until(
            lambda state: (
                bool(state.offers["double"].stages)
                and sum(member.profile is not None for member in state.members.values()) == 2
            ),
            WITHIN_S,
        )
        for member in mesh.view.state.members.values():
            assert member.profile is not None
            assert member.profile.prefill_ns["ffn"] > 0
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        np.testing.assert_array_equal((await Mesh(mesh).run("double", {"x": x}))["y"], 2 * x)
        for asked in (Mesh(mesh).ready(), Mesh(mesh).ask("Hello")):
            with pytest.raises(NoPlan, match=NONE_ANSWERS):
                await asked

        async with gateway(mesh, GatewayOptions(port=0), None) as url, ClientSession() as http:
            async with http.get(f"{url}/models") as answer:
                assert [(each["id"], each["chat"]) for each in (await answer.json())["data"]] == [
                    ("double", False)
                ]
            async with http.get(url.removesuffix("/v1") + "/healthz") as answer:
                told = await answer.json()
                assert (answer.status, told["ok"]) == (200, True)
                assert [(each["name"], each["kind"], each["why"]) for each in told["models"]] == [
                    ("double", "arrays", "")
                ]
            for path, body, status, code in (
                ("chat/completions", {"messages": []}, 404, "model_not_found"),
                ("completions", {"prompt": "x"}, 404, "model_not_found"),
                ("embeddings", {"input": "x"}, 404, "model_not_found"),
                ("chat/completions", {"model": "double", "messages": []}, 400, "model_not_supported"),
                ("embeddings", {"model": "double", "input": "x"}, 400, "model_not_supported"),
                ("completions", {"model": "", "prompt": "x"}, 400, None),
            ):
                async with http.post(f"{url}/{path}", json={"model": "talker"} | body) as answer:
                    error = (await answer.json())["error"]
                    assert (answer.status, error["code"]) == (status, code), error
                    assert code is None or error["message"].endswith(
                        "served are: 'double' is run by shoal run"
                    )

        away = ("--state", tmp_path / "asker", "--store", tmp_path / "third")
        talk = await asyncio.to_thread(run, tmp_path, "generate", link, "Hello", *away)
        assert (talk.status, talk.complaints) == (1, [f"shoal: {NONE_ANSWERS}"])
        shown = await asyncio.to_thread(run, tmp_path, "status", link, "--once", *away)
        assert shown.status == 0, shown.err
        assert (
            "no model of this mesh answers in words; it runs 1 of 1 offered, which shoal run asks"
            in shown.out
        )
        assert "offers double: " in shown.out
        assert "None" not in shown.out
        planned = await asyncio.to_thread(run, tmp_path, "plan", link, *away)
        assert planned.status == 0, planned.err
        first, *others = planned.out.splitlines()
        assert first == NONE_ANSWERS
        assert "double: It runs so now." in others


async def test_who_came_in_before_there_was_such_a_model_is_told_to_join_once_more(tmp_path: Path) -> None:
    promise = Founding(None, MeshOptions(0, 1, "throughput", None), ServerOptions())
    store = Store(tmp_path / "store")
    async with AsyncExitStack() as stack:
        founding = found(promise, options("founder", 0), store, identity_from_seed(bytes(32)))
        founder = await stack.enter_async_context(founding)
        assert founder.link is not None
        assert founder.view.state.wish is not None
        assert founder.view.state.wish.goal == "throughput"
        mesh = await stack.enter_async_context(join(founder.link.url(), options("asker", 0), store))
        assert founder.leadership.current is not None
        founder.leadership.current.submit(ModelChosen("a" * 64, "talker", 2, 128, 1, "latency"))
        await until(mesh.ended.is_set)
        assert mesh.why_ended == "talker answers in this mesh from now on: join once more"


async def test_a_kept_mesh_is_founded_again_as_it_was_and_not_without_the_model_that_answers(
    tmp_path: Path,
) -> None:
    promise = Founding(None, MeshOptions(0, 1, "latency", None), ServerOptions())
    store, key = Store(tmp_path / "store"), identity_from_seed(bytes(range(32)))

    @asynccontextmanager
    async def kept() -> AsyncIterator[MeshMember]:
        with kept_identity(tmp_path / "founders", key.id) as own:
            async with found(promise, options("founder", 1 << 30), store, key, kept=own) as mesh:
                yield mesh

    async with kept() as mesh:
        first = mesh.me
    async with kept() as mesh:
        assert mesh.me == first
        assert mesh.view.state.model is None
        assert mesh.leadership.current is not None
        mesh.leadership.current.submit(ModelChosen("a" * 64, "talker", 2, 128, 1, "latency"))
        await mesh.leadership.current.settled()
    with pytest.raises(
        CannotServe, match="the mesh that is kept here answers with talker: give that model, too"
    ):
        async with kept():
            pass
