"""Coming back, second tabs, pauses, and everything that goes wrong on the way in: each shows a clear state, soon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Finished, Settings
from peer.session import origin
from signaling.invites import InviteLink, parse_link
from signaling.server import ServerOptions, serve
from tests.browsers.harness import Browser, Driver, Models, TabInBrowser, founded, launch, visit
from tests.patience import WITHIN_S, soon

CLEAR_WITHIN_S = 10.0
PROMPT = "The capital of France is"


class Relay:
    """A way to the signaling server that can be cut, and mended."""

    def __init__(self, port: int) -> None:
        self.pause_s = 0.0  # after each 64 KiB of an answer
        self._port = port
        self._own_port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._own_port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._own_port)
        self._own_port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, onward}
        await asyncio.gather(_pump(reader, onward), _pump(there, writer, self.pause_s))
        self._writers -= {writer, onward}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause_s: float = 0.0) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(pause_s)
    writer.close()


@asynccontextmanager
async def relayed(server: str) -> AsyncIterator[Relay]:
    relay = Relay(int(server.rpartition(":")[2]))
    await relay.start()
    yield relay
    await relay.stop()


async def lend(made: Browser, mesh: MeshMember, link: str | None = None) -> TabInBrowser:
    assert mesh.link is not None
    link = link or mesh.link.url()
    tab = await made.tab(parse_link(link).server)
    status = await tab.join(link, lends=True)
    assert status["state"] == "in", status
    await mesh.until_serving(WITHIN_S)
    return tab


async def test_the_second_visit_fetches_no_weights_and_spoilt_pieces_heal(
    driver: Driver, harness: Path, models: Models, tmp_path: Path
) -> None:
    async with (
        founded(models, harness, cuts=(31,)) as mesh,
        relayed(mesh.link.server if mesh.link else "") as relay,
    ):
        assert mesh.link is not None
        assert mesh.model.pieces is not None
        link = mesh.link.url().replace(mesh.link.server, relay.url)
        first = await launch(driver, "chromium", tmp_path / "profile")
        tab = await lend(first, mesh, link)
        begun = await tab.until("s.runs.length > 0")
        assert begun["fetchedBytes"] > 10 << 20
        me = begun["me"]
        await first.close()
        assert await mesh.view.until(lambda state: len(state.members) == 1, soon(CLEAR_WITHIN_S))

        given = mesh.model.pieces.given_bytes
        second = await launch(driver, "chromium", tmp_path / "profile")
        tab = await lend(second, mesh, link)
        again = await tab.until("s.runs.length > 0")
        assert again["me"] == me
        assert again["fetchedBytes"] == 0
        assert mesh.model.pieces.given_bytes == given
        assert await tab.run("shoal.spoil()")
        await second.close()
        assert await mesh.view.until(lambda state: len(state.members) == 1, soon(CLEAR_WITHIN_S))

        given = mesh.model.pieces.given_bytes
        third = await launch(driver, "chromium", tmp_path / "profile")
        tab = await lend(third, mesh, link)
        healed = await tab.until("s.runs.length > 0")
        # From the store, or from the founder, who holds all units while it is alone.
        fetched = healed["fetchedBytes"] + mesh.model.pieces.given_bytes - given
        assert 0 < fetched <= (4 << 20) + 65536
        await third.close()


async def test_a_download_that_was_cut_off_goes_on_where_it_was(
    driver: Driver, harness: Path, models: Models, tmp_path: Path
) -> None:
    async with founded(models, harness, cuts=(31,)) as mesh:
        assert mesh.link is not None
        async with relayed(mesh.link.server) as relay:
            link = mesh.link.url().replace(mesh.link.server, relay.url)
            first = await launch(driver, "chromium", tmp_path / "profile")
            tab = await first.tab(relay.url)
            relay.pause_s = 0.01  # some 6 MB a second and connection
            status = await tab.join(link, lends=True)
            assert status["state"] == "in", status
            begun = await tab.until("s.fetchedBytes > 20e6")
            assert begun["runs"] == []
            await first.kill()
            relay.pause_s = 0.0
            second = await launch(driver, "chromium", tmp_path / "profile")
            tab = await second.tab(relay.url)
            status = await tab.join(link, lends=True)
            assert status["state"] == "in", status
            ready = await tab.until("s.runs.length > 0")
            plan = mesh.view.state.plan or mesh.view.state.proposed
            assert plan is not None
            assert mesh.manifest is not None
            whole = sum(blob.bytes for blob in mesh.manifest.blobs(31, 62))
            kept = whole - ready["fetchedBytes"]
            assert kept > 15e6, (whole, ready)
            await second.close()


async def test_pieces_come_from_peers_and_wrong_ones_are_found_out(
    driver: Driver, harness: Path, models: Models, tmp_path: Path
) -> None:
    async with founded(models, harness, cuts=(31,)) as mesh:
        assert mesh.link is not None
        giver = mesh.model.pieces
        assert giver is not None
        made = await launch(driver, "chromium", tmp_path / "profile")
        async with relayed(mesh.link.server) as relay:
            tab = await lend(made, mesh, mesh.link.url().replace(mesh.link.server, relay.url))
            before = giver.given_bytes  # the head's blob is the embedding's, which the founder holds
            await relay.stop()
            mesh.set_cuts((27,))  # four units move from the founder to the tab, which cannot reach the store
            await tab.until("s.runs.length === 1 && s.runs[0][0] === 27")
            assert giver.given_bytes > before + (4 << 20)
            answer = await tab.run(f"shoal.complete({PROMPT!r}, 4)")
            assert len(answer["tokens"]) == 4

            await relay.start()
            read = giver._read
            giver._read = lambda frame: bytes(len(read(frame)))  # type: ignore[method-assign]
            mesh.set_cuts((20,))
            status = await tab.until("s.runs.length === 1 && s.runs[0][0] === 20")
            assert any("wrong bytes" in notice for notice in status["notices"]), status["notices"]
            await mesh.until_serving(WITHIN_S)
            answer = await tab.run(f"shoal.complete({PROMPT!r}, 4)")
            assert len(answer["tokens"]) == 4
        await made.close()


async def test_a_second_tab_watches_and_takes_over(driver: Driver, harness: Path, models: Models) -> None:
    async with founded(models, harness, cuts=(31,), uses=1) as mesh:  # one person, one place
        made = await visit(driver, "chromium")
        first = await lend(made, mesh)
        me = (await first.status())["me"]
        second = await made.tab(mesh.link.server if mesh.link else "")
        status = await second.join(mesh.link.url() if mesh.link else "", lends=True)
        assert (status["state"], status["viewer"], status["lending"]) == ("in", True, "asks")
        stranger = await visit(driver, "chromium")
        away = await stranger.tab(mesh.link.server if mesh.link else "")
        refused = await away.join(mesh.link.url() if mesh.link else "", lends=False)
        assert refused["error"].startswith("InviteUsedUp"), refused
        await stranger.close()
        answer = await second.run(f"shoal.complete({PROMPT!r}, 4)")
        assert len(answer["tokens"]) == 4
        await driver.call("closePage", page=first.page)
        status = await second.until("s.lending === 'lending' && s.runs.length > 0")
        assert (status["viewer"], status["me"]) == (False, me)
        answer = await second.run(f"shoal.complete({PROMPT!r}, 4)")
        assert len(answer["tokens"]) == 4
        await made.close()


async def test_a_paused_tab_stays_and_comes_back(driver: Driver, harness: Path, models: Models) -> None:
    async with founded(models, harness, cuts=(31,)) as mesh:
        made = await visit(driver, "chromium")
        tab = await lend(made, mesh)
        await tab.run("shoal.pause()")
        status = await tab.until("s.lending === 'paused' && s.members.some(m => m.status === 'paused')")
        assert status["state"] == "in"
        assert mesh.view.state.serving() is None
        await tab.run("shoal.resume()")
        await mesh.until_serving(WITHIN_S)
        answer = await tab.run(f"shoal.complete({PROMPT!r}, 4)")
        assert len(answer["tokens"]) == 4
        await made.close()


async def test_answers_survive_tabs_that_reload_and_are_killed(
    driver: Driver, harness: Path, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The founder asks; the tab that computes goes in the middle. The founder takes its part over."""
    monkeypatch.setattr(origin, "HOPE_S", soon(origin.HOPE_S))  # it loads half of the model meanwhile
    async with founded(models, harness, cuts=(31,)) as mesh:
        made = await launch(driver, "chromium", tmp_path / "profile")
        tab = await lend(made, mesh)
        for goes in ("reload", "kill"):
            conversation = mesh.conversation()
            pieces = conversation.complete(PROMPT, Settings(max_tokens=200, ignore_end=True))
            await anext(pieces)
            going = asyncio.create_task(
                driver.call("reload", page=tab.page) if goes == "reload" else made.kill()
            )
            async with asyncio.timeout(WITHIN_S):
                rest = [piece async for piece in pieces]
            finished = rest[-1]
            assert isinstance(finished, Finished)
            assert finished.tokens == 200
            conversation.close()
            await going
            if goes == "reload":
                assert mesh.link is not None
                status = await tab.join(mesh.link.url(), lends=True)
                assert status["state"] == "in", status
                await mesh.until_serving(WITHIN_S)


async def test_links_that_lead_nowhere_say_so(driver: Driver, harness: Path, models: Models) -> None:
    async with founded(models, harness, cuts=None) as mesh:
        assert mesh.link is not None
        made = await visit(driver, "chromium")
        url = mesh.link.url()
        gone = InviteLink(mesh.link.server, mesh.link.mesh, os.urandom(32)).url()
        async with serve(ServerOptions(web_app=harness)) as empty:
            cases = (
                (url[:-1] + ("A" if url[-1] != "A" else "B"), "out", "WrongLink", "copy it again"),
                (gone, "out", "UnknownInvite", ""),
                (url.replace(mesh.link.server, empty.url), "out", "UnknownInvite", ""),
                (
                    url.replace(mesh.link.server, "http://127.0.0.1:9"),
                    "waiting",
                    "ServerUnreachable",
                    "shoal serve",
                ),
            )
            for link, state, name, text in cases:
                tab = await made.tab(empty.url if empty.url in link else mesh.link.server)
                async with asyncio.timeout(soon(CLEAR_WITHIN_S)):
                    status = await tab.join(link, lends=False)
                assert status["state"] == state
                assert status["error"].startswith(name), status["error"]
                assert text in status["error"]
        tab = await made.tab(mesh.link.server)
        await tab.run("shoal.version(99)")
        async with asyncio.timeout(soon(CLEAR_WITHIN_S)):
            status = await tab.join(url, lends=False)
        assert status["error"].startswith("VersionMismatch"), status
        assert "reload the page" in status["error"]
        await made.close()


async def test_a_mesh_that_ends_says_so(driver: Driver, harness: Path, models: Models) -> None:
    made = await visit(driver, "chromium")
    async with founded(models, harness) as mesh:
        assert mesh.link is not None
        tab = await made.tab(mesh.link.server)
        status = await tab.join(mesh.link.url(), lends=False)
        assert status["state"] == "in", status
    status = await tab.until("s.state === 'out'", soon(CLEAR_WITHIN_S))
    assert "the founder closed the mesh" in status["error"]
    await made.close()


async def test_without_signaling_a_running_mesh_answers_and_later_tabs_join(
    driver: Driver, harness: Path, models: Models
) -> None:
    async with founded(models, harness, cuts=(31,)) as mesh:
        assert mesh.link is not None
        made = await visit(driver, "chromium")
        async with relayed(mesh.link.server) as relay:
            link = mesh.link.url().replace(mesh.link.server, relay.url)
            tab = await lend(made, mesh, link)
            other = await made.tab(relay.url)
            later = await made.tab(relay.url)
            await relay.stop()
            answer = await tab.run(f"shoal.complete({PROMPT!r}, 8)")
            assert len(answer["tokens"]) == 8
            async with asyncio.timeout(soon(CLEAR_WITHIN_S)):
                status = await other.join(link, lends=False)
            assert status["state"] == "waiting"
            assert status["error"].startswith("ServerUnreachable")
            await relay.start()
            status = await later.join(link, lends=False)
            assert status["state"] == "in", status
            answer = await later.run(f"shoal.complete({PROMPT!r}, 8)")
            assert len(answer["tokens"]) == 8
            await other.until("s.state === 'in'")  # it went on trying
        await made.close()
