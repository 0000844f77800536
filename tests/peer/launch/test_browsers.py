"""Opening tabs: where the invite goes, which program starts, and that nothing of it is left."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import pytest

from peer.cli.tabs import numbered, profile_of
from peer.errors import NoBrowser
from peer.launch import browsers as tabs
from peer.launch.browsers import TabOptions, check_page, find_browser, open_tab, tab_address
from peer.member.peer_options import browsers
from signaling.errors import WrongLink
from signaling.invites import InviteLink
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions, serve

LINK = InviteLink("http://127.0.0.1:8765", identity_from_seed(b"m" * 32).id, b"i" * 32).url()


def test_wishes_stand_behind_the_invite() -> None:
    assert tab_address(LINK, TabOptions()) == LINK
    wished = tab_address(LINK, TabOptions(memory_bytes=5, name="Den & co"))
    assert wished == f"{LINK}&name=Den%20%26%20co&memory=5"
    with pytest.raises(WrongLink):
        tab_address("http://127.0.0.1/", TabOptions())


def test_lists_of_browsers() -> None:
    assert browsers("chromium, firefox,chromium") == ["chromium", "firefox", "chromium"]
    assert numbered(["chromium", "firefox", "chromium"]) == ["Chromium", "Firefox", "Chromium 2"]
    assert profile_of(Path("/p"), "Chromium 2") == Path("/p/chromium-2")
    assert profile_of(None, "Chromium") is None
    for wrong in ("", ",", "netscape"):
        with pytest.raises(argparse.ArgumentTypeError, match="chromium, firefox"):
            browsers(wrong)


def test_a_browser_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tabs, "_PLACES", {})
    with pytest.raises(NoBrowser, match="no firefox is installed"):
        find_browser("firefox")


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_tab_is_opened_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, browser: str
) -> None:
    said = tmp_path / "said"
    page = tmp_path / "said.page"
    fake = tmp_path / browser
    # Stands for a browser: notes its arguments and the page that it was given, then waits for its end.
    fake.write_text(
        f'#!/bin/sh\nfor last; do :; done\necho "$@" > {said}.args\ncp "${{last#file://}}" {said}.page\n'
        f"mv {said}.args {said}\nexec sleep 60\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    async with open_tab(browser, LINK, TabOptions(headless=True, name="Den")) as tab:
        while not said.exists():
            assert tab.process.returncode is None
            await asyncio.sleep(0.01)
        arguments = said.read_text()
        assert "headless" in arguments
        assert LINK.partition("#")[2] not in arguments
        assert f"{LINK}&amp;name=Den" in page.read_text()
        folder = Path(arguments.split()[-1].removeprefix("file://")).parent
        assert folder.stat().st_mode & 0o077 == 0
        profile = folder / "profile"
        assert (profile / "user.js").exists() is (browser == "firefox")
    assert tab.process.returncode is not None
    assert not folder.exists()


async def test_a_server_without_the_page_is_told_apart(tmp_path: Path) -> None:
    async with serve(ServerOptions()) as plain:
        with pytest.raises(NoBrowser, match="make setup"):
            await check_page(LINK.replace("http://127.0.0.1:8765", plain.url))
    with pytest.raises(NoBrowser, match="does not answer"):
        await check_page(LINK.replace("http://127.0.0.1:8765", plain.url))
    (tmp_path / "index.html").write_text("the page")
    async with serve(ServerOptions(web_app=tmp_path)) as server:
        await check_page(LINK.replace("http://127.0.0.1:8765", server.url))
