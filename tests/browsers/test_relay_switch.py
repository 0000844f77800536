"""The switch “Only through the relay”: refused clearly where there is none; with one, no other address is told."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peer.member.joining import Founding, found
from peer.member.peer_options import MeshOptions, PeerOptions
from signaling.ice import TurnService
from signaling.keys import identity_from_seed
from signaling.room import Policy
from signaling.server import ServerOptions
from tests.browsers.harness import PLEDGE, Driver, Models, founded, visit
from tests.browsers.page import Page
from tests.patience import WITHIN_S

SECRET = "0123456789abcdef0123456789abcdef"
HERE = "127.0.0.1"
WATCH = (  # what this page tells of itself, and how it fares
    "globalThis.made = []; globalThis.RTCPeerConnection = class extends RTCPeerConnection {"
    " constructor(how) { super(how); made.push(this); } }"
)
TOLD = (
    "made.map(({ localDescription }) => localDescription?.sdp ?? '')"
    ".flatMap((sdp) => [...sdp.matchAll(/^a=candidate:.* typ (\\w+)/gm)]).map(([, kind]) => kind)"
)
CONNECTED = "made.some(({ connectionState }) => connectionState === 'connected')"
SWITCH = "document.querySelector('input[role=switch]')"


@contextmanager
def relay(folder: Path) -> Iterator[int]:
    """coturn on this machine; its port."""
    if shutil.which("turnserver") is None:
        why = "coturn is not installed (turnserver)"
        warnings.warn(f"a page behind a TURN relay is NOT tested here: {why}", stacklevel=1)
        pytest.skip(why)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((HERE, 0))
        port: int = free.getsockname()[1]
    words = ["turnserver", "-c", "/dev/null", "--no-cli", "--no-tls", "--no-dtls", "--use-auth-secret"]
    words += ["--static-auth-secret", SECRET, "--realm", "shoal", "--allow-loopback-peers"]
    words += ["--listening-ip", HERE, "--relay-ip", HERE, "--listening-port", str(port)]
    words += ["--pidfile", str(folder / "pid"), "--log-file", "stdout", "--simple-log"]
    with (folder / "turn.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
        try:
            yield port
        finally:
            process.terminate()
            process.wait()


async def test_a_mesh_without_a_relay_is_not_joined(driver: Driver, app: Path, two_blocks: Models) -> None:
    made = await visit(driver, "chromium")
    async with founded(two_blocks, app, weights="f32") as mesh:
        assert mesh.link is not None
        page = Page(await made.tab(mesh.link.server, early=WATCH))
        await page.until(SWITCH)
        await page.click(SWITCH)
        page = Page(await made.tab(mesh.link.url(), early=WATCH))  # the choice is kept
        await page.until_says("This mesh has no relay", WITHIN_S)
        await page.until_says("Ask its founder for one (shoal serve --turn)")
        assert await page.run(f"{SWITCH}.checked && made.length === 0")
        await page.click(SWITCH)
        await page.press("Join again")
        await page.until_says("2 here", WITHIN_S)
    await made.close()


async def test_with_a_relay_no_other_address_is_told(
    driver: Driver, app: Path, two_blocks: Models, tmp_path: Path
) -> None:
    made = await visit(driver, "chromium")
    with relay(tmp_path) as port:
        turn = TurnService((f"turn:{HERE}:{port}",), SECRET.encode())
        server = ServerOptions(web_app=app, policy=Policy(turn=turn))
        promise = Founding(two_blocks.ids["f32"], MeshOptions(512, 4, "latency", None), server)
        options = PeerOptions("founder", PLEDGE, 1, "cpu", "aiortc", (HERE,))
        key = identity_from_seed(os.urandom(32))
        async with found(promise, options, two_blocks.store, key) as mesh:
            assert mesh.link is not None
            page = Page(await made.tab(mesh.link.server, early=WATCH))
            await page.until(SWITCH)
            await page.click(SWITCH)
            page = Page(await made.tab(mesh.link.url(), early=WATCH))
            await page.until_says("2 here", WITHIN_S)
            assert await page.run(CONNECTED)
            assert set(await page.run(TOLD)) == {"relay"}
            await page.ask("Hello")
            await page.until("document.querySelector('.turn .prose, .turn .foot .facts')")
        await made.close()
