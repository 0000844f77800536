"""What programs hear of a mesh that cannot answer now, from a real server over members that are not."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession

from peer.errors import NoPlan
from peer.gateway import server
from peer.gateway.answers import Answers, Task
from peer.gateway.chat_requests import completion_request
from peer.gateway.client_pace import Bounds
from peer.gateway.request_reading import ReadCompletion
from peer.gateway.server import GatewayOptions, gateway
from peer.member.mesh_member import MeshMember
from peer.origin.model_health import UNPLACED
from peer.state.generated.commands import (
    DecoderOffered,
    DecoderRefused,
    ModelOffered,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanStage,
    UnitsHeld,
)
from peer.state.member_commands import Command, encode_command
from planner.model.sampling_defaults import USUAL
from signaling.http_connections import ConnectionRoom
from tests.descriptors import no_descriptor_left
from tests.patience import WITHIN_S
from tests.peer.town import MODEL, Town, town

LOCAL = GatewayOptions("127.0.0.1", 0)


async def say(mesh: MeshMember, *commands: Command) -> None:
    assert mesh.view.replica is not None
    for command in commands:
        await mesh.view.replica.propose(encode_command(command))


@asynccontextmanager
async def asked(
    here: Town, holder: str, asker: str, options: GatewayOptions = LOCAL
) -> AsyncIterator[tuple[ClientSession, MeshMember]]:
    """A program that asks `asker`, in a mesh where `holder` computes alone."""
    leader, member = here.members["a"], here.members[asker]
    run = (0, MODEL.units)
    plan = PlanRecord(1, (PlanStage(*run, holder),), 0, 0)
    await say(leader, PlanProposed(plan), UnitsHeld(holder, (run,)), PlanActivated(1))
    await here.until(lambda: member.view.state.serving() is not None)
    async with gateway(member, options, None) as url, ClientSession() as http:
        http.headers["X-Base"] = url.removesuffix("/v1")
        yield http, member


async def status(http: ClientSession, path: str) -> int:
    async with http.get(http.headers["X-Base"] + path) as answer:
        return answer.status


async def test_health_goes_by_the_stages_and_not_by_the_plan() -> None:
    async with town() as here:
        await here.found("a")
        asker = await here.join("q", compute=False)
        async with asked(here, "a", "q") as (http, _):
            assert await status(http, "/healthz") == 200
            here.freeze("a")
            here.unlink("a", "q", "silent for 7 s", False)
            assert asker.view.state.serving() is not None, "nobody is left to put it out"
            assert await status(http, "/healthz") == 503
            away = asker.leader_watch.missing(0)
            assert away is not None
            assert "no answer meanwhile" in str(away)
            here.thaw("a")
            await here.until(lambda: asker.links.is_connected("a"))  # dialled again by itself
            assert await status(http, "/healthz") == 200


async def test_health_tells_of_each_model_and_goes_by_the_one_that_is_asked() -> None:
    options = replace(LOCAL, keys=("key",))
    async with town() as here:
        await here.found("a")
        await here.join("q", compute=False)
        async with asked(here, "a", "q", options) as (http, member):
            await say(
                here.members["a"],
                ModelOffered("b" * 64, "ocr"),
                DecoderOffered("other", "c" * 64, 2, 64, 1, "latency"),
                DecoderRefused("other", "5 MiB are missing"),
            )
            await here.until(lambda: bool(member.view.state.decoders))
            await here.until(lambda: bool(member.view.state.decoders["other"].refused))

            async def health(of: str = "", key: str = "key") -> tuple[int, dict[str, Any]]:
                headers = {"Authorization": f"Bearer {key}"}
                async with http.get(f"{http.headers['X-Base']}/healthz{of}", headers=headers) as answer:
                    return answer.status, await answer.json()

            status, told = await health()
            assert (status, told["ok"]) == (200, True)
            assert [(each["name"], each["kind"], each["ok"], each["why"]) for each in told["models"]] == [
                (MODEL.name, "words", True, ""),
                ("other", "words", False, "5 MiB are missing"),
                ("ocr", "arrays", False, UNPLACED),
            ]
            for of, statuses in (
                (MODEL.name, (200, 200)),
                (MODEL.model, (200, 200)),
                ("other", (503, 503)),
                ("c" * 64, (503, 503)),
                ("ocr", (503, 503)),
                ("nothing", (404, 503)),  # who has no key cannot find out what there is
            ):
                status, told = await health(f"?model={of}")
                assert (status, told["ok"]) == (statuses[0], statuses[0] == 200)
                assert len(told["models"]) == 3
                assert await health(f"?model={of}", key="none") == (
                    statuses[1],
                    {"ok": statuses[1] == 200},
                )

            here.freeze("a")
            here.unlink("a", "q", "silent for 7 s", False)
            status, told = await health()
            assert (status, told["models"][0]["why"]) == (503, "not reached of its peers: a")


async def test_a_program_is_told_to_come_again_while_its_peer_is_out_of_the_mesh() -> None:
    async with town() as here:
        await here.found("a")
        await here.join("q", compute=False)
        async with asked(here, "a", "q") as (http, member):
            assert await status(http, "/v1/models") == 200
            await member.leave_log()
            async with http.get(http.headers["X-Base"] + "/v1/models") as answer:
                assert answer.status == 503
                assert answer.headers["Retry-After"]
                assert "not in its mesh now" in (await answer.json())["error"]["message"]
            assert await status(http, "/healthz") == 503


async def test_models_that_are_offered_are_listed_and_take_no_chat() -> None:
    async with town() as here:
        await here.found("a")
        await here.join("q", compute=False)
        async with asked(here, "a", "q") as (http, member):
            await say(here.members["a"], ModelOffered("b" * 64, "ocr"))
            await here.until(lambda: "ocr" in member.view.state.offers)
            base = http.headers["X-Base"]
            async with http.get(f"{base}/v1/models") as answer:
                own, offered = (await answer.json())["data"]
            assert own["id"] == MODEL.name
            assert "chat" not in own
            assert (offered["id"], offered["chat"], offered["manifest"]) == ("ocr", False, "b" * 64)
            async with http.get(f"{base}/v1/models/ocr") as answer:
                assert await answer.json() == offered
            assert await status(http, "/v1/models/other") == 404


async def test_who_is_lost_is_said_by_name_though_nothing_changed_since_this_peer_joined() -> None:
    async with town() as here:
        leader = await here.found("a")
        asker = await here.join("q", compute=False)
        async with asked(here, "a", "q"):
            await here.until(lambda: asker.view.leader == leader.me)
            asker.watch_leader(nothing)
            here.freeze("a")
            await here.until(lambda: asker.view.leader is None)
            assert asker.links.is_connected("a"), "silence is noticed later than an election"
            assert "the coordinator (a) is gone: no answer meanwhile" in str(asker.leader_watch.missing(0))


async def test_who_asks_too_often_is_refused_after_a_while_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "HELD_S", 0.2)
    options = replace(LOCAL, keys=("one", "other"), pace=Bounds(2, 1000.0, 0))
    async with town() as here:
        await here.found("a")
        await here.join("q", compute=False)
        async with asked(here, "a", "q", options) as (http, _):

            async def ask(key: str, path: str = "/v1/models") -> tuple[int, str]:
                own = {"Authorization": f"Bearer {key}"}
                async with http.get(http.headers["X-Base"] + path, headers=own) as answer:
                    return answer.status, answer.headers.get("Retry-After", "")

            assert [(await ask("one"))[0] for _ in range(2)] == [200, 200]
            since = time.monotonic()
            assert await ask("one") == (429, "600")
            assert time.monotonic() - since >= 0.2
            assert (await ask("other"))[0] == 200
            assert [(await ask(f"none {at}"))[0] for at in range(3)] == [401, 401, 429], "by their address"
            assert (await ask("one", "/healthz"))[0] == 200


async def nothing() -> None:
    return None


class Read:
    """In place of what puts prompts into tokens."""

    async def run(self, *_: object) -> ReadCompletion:
        wanted = completion_request({"model": "m", "prompt": "a", "max_tokens": 1}, USUAL).wanted
        return ReadCompletion(wanted, ((1,),), ("",))

    async def close(self) -> None:
        pass


async def test_nothing_is_computed_for_a_program_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def together(_: Answers, tasks: Sequence[Task]) -> None:
        begun.append(len(tasks))
        raise NoPlan("nobody computes here")

    monkeypatch.setattr(Answers, "together", together)
    async with town() as here:
        await here.found("a")
        asker = await here.join("q", compute=False)
        monkeypatch.setattr(asker.model, "_prompts", Read())
        async with asked(here, "a", "q") as (http, _):
            at = urlsplit(http.headers["X-Base"])
            request = (
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 2\r\n\r\n"
            )
            for size in (0, 1, 2) * 5:  # of the body, in a packet of its own
                _, writer = await asyncio.open_connection(at.hostname, at.port)
                writer.write(request + b"{}"[: 2 - size])
                await writer.drain()
                writer.write(b"{}"[2 - size :])
                await writer.drain()
                writer.transport.abort()
            async with http.post(http.headers["X-Base"] + "/v1/completions", json={}) as answer:
                assert answer.status == 503
    assert begun == [1]


@pytest.mark.parametrize("said", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"])
async def test_a_connection_that_says_no_whole_head_is_ended(said: bytes) -> None:
    options = GatewayOptions("127.0.0.1", 0, connections=ConnectionRoom(first_s=0.2))
    async with town() as here:
        await here.found("a")
        await here.join("q", compute=False)
        async with asked(here, "a", "q", options) as (http, _):
            at = urlsplit(http.headers["X-Base"])
            reader, writer = await asyncio.open_connection(at.hostname, at.port)
            writer.write(said)
            async with asyncio.timeout(WITHIN_S):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
            assert await status(http, "/healthz") == 200


@pytest.mark.parametrize(
    "short", [MemoryError(), OSError(errno.EMFILE, "too many files"), OSError(errno.ENOMEM, "")]
)
async def test_what_is_short_for_a_while_is_said_so_and_over_when_it_is_over(
    short: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town() as here:
        await here.found("a")
        await here.join("q", compute=False)
        async with asked(here, "a", "q") as (http, _):
            with monkeypatch.context() as during:

                def lacking(*_: object) -> None:
                    raise short

                during.setattr("peer.gateway.responses.models", lacking)
                async with http.get(http.headers["X-Base"] + "/v1/models") as answer:
                    assert answer.status == 503
                    assert answer.headers["Retry-After"]
                    assert (await answer.json())["error"]["code"] == "gateway_full"
            assert await status(http, "/v1/models") == 200


@pytest.mark.skipif(os.name != "posix", reason="limits of descriptors")
async def test_a_gateway_that_had_no_free_descriptor_answers_who_came_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, "asyncio")
    loop = asyncio.get_running_loop()
    async with town() as here:
        await here.found("a")
        await here.join("q", compute=False)
        async with asked(here, "a", "q") as (http, _):
            at = urlsplit(http.headers["X-Base"])
            client = socket.socket()
            client.setblocking(False)
            with no_descriptor_left():
                await loop.sock_connect(client, (at.hostname, at.port))
                async with asyncio.timeout(WITHIN_S):
                    while "out of system resource" not in caplog.text:  # noqa: ASYNC110 - asyncio's own words
                        await asyncio.sleep(0.01)
            await loop.sock_sendall(
                client, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            async with asyncio.timeout(WITHIN_S):
                assert (await loop.sock_recv(client, 64)).startswith(b"HTTP/1.1 200")
            client.close()
