"""Tabs of this machine's browsers as peers: finds the browsers, opens the invite link in each, closes them again.

Edge. A browser of its own profile for each tab; nobody's open windows are touched.
"""

from __future__ import annotations

import asyncio
import html
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp

from peer.errors import NoBrowser
from signaling.app_files import built_app, no_app
from signaling.invites import parse_link

CLOSE_WITHIN_S: Final = 10.0
PAGE_WITHIN_S: Final = 8.0
_NAMES: Final = {
    "chromium": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge"),
    "firefox": ("firefox", "firefox-esr"),
}
_PLACES: Final = {
    "chromium": (
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        r"C:\Program Files\Google\Chrome\Application\chrome.exe",
        r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
    ),
    "firefox": (
        "/Applications/Firefox.app/Contents/MacOS/firefox",
        r"C:\Program Files\Mozilla Firefox\firefox.exe",
    ),
}
# Without these two a machine that has no network but its own loopback cannot connect to itself.
_CHROMIUM: Final = (
    *("--no-first-run", "--no-default-browser-check", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
    *("--disable-features=WebRtcHideLocalIpsWithMdns", "--allow-loopback-in-peer-connection"),
)
_FIREFOX: Final = {
    "media.peerconnection.ice.loopback": "true",
    "media.peerconnection.ice.obfuscate_host_addresses": "false",
    "browser.shell.checkDefaultBrowser": "false",
    "browser.aboutwelcome.enabled": "false",
    "browser.tabs.warnOnClose": "false",
    "datareporting.policy.dataSubmissionEnabled": "false",
    "browser.sessionstore.resume_from_crash": "false",
}


@dataclass(frozen=True, slots=True)
class TabOptions:
    """How a tab is opened. `profile` None: an empty one, thrown away; `memory_bytes` None: what the page lends."""

    headless: bool = False
    memory_bytes: int | None = None
    name: str | None = None
    profile: Path | None = None


@dataclass(frozen=True, slots=True)
class OpenTab:
    """One browser with one tab."""

    browser: str
    process: asyncio.subprocess.Process


def find_browser(browser: str) -> Path:
    """The program of "chromium" (or one of its family) or "firefox". Raises NoBrowser."""
    for name in _NAMES.get(browser, ()):
        if (found := shutil.which(name)) is not None:
            return Path(found)
    for place in _PLACES.get(browser, ()):
        if Path(place).is_file():
            return Path(place)
    raise NoBrowser(
        f"no {browser} is installed here (looked for {', '.join(_NAMES.get(browser, (browser,)))}): install it, "
        f"or choose others with --browsers"
    )


def check_app(browsers: Sequence[str]) -> None:
    """Raises NoBrowser when there are to be tabs of `browsers`, and this installation has no page to serve to them."""
    if browsers and built_app() is None:
        raise NoBrowser(no_app())


async def check_page(link: str) -> None:
    """Raises NoBrowser when the link's server has no page that a browser could join with, or does not answer."""
    server = parse_link(link).server
    try:
        timeout = aiohttp.ClientTimeout(total=PAGE_WITHIN_S)
        async with aiohttp.ClientSession(timeout=timeout) as http, http.get(f"{server}/") as page:
            built = "Cross-Origin-Opener-Policy" in page.headers
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise NoBrowser(f"{server} does not answer, so no tab can join there: check the link") from error
    if not built:
        raise NoBrowser(
            f"{server} has no page for browsers: whoever runs it builds one with `make setup`, or installs a wheel "
            "that has it, and starts again"
        )


def tab_address(link: str, options: TabOptions) -> str:
    """The link, with what is wished for the tab behind the invite. Raises WrongLink."""
    wishes = {"name": options.name, "memory": options.memory_bytes}
    given = "".join(f"&{key}={quote(str(value))}" for key, value in wishes.items() if value is not None)
    return parse_link(link).url() + given


@asynccontextmanager
async def open_tab(browser: str, link: str, options: TabOptions) -> AsyncIterator[OpenTab]:
    """A tab that joins by itself, until the block ends. Raises NoBrowser or WrongLink."""
    program = find_browser(browser)
    address = tab_address(link, options)
    with tempfile.TemporaryDirectory(prefix="shoal-tab-", ignore_cleanup_errors=True) as folder:
        profile = options.profile or Path(folder) / "profile"
        command = _prepare(browser, program, profile, Path(folder), address, headless=options.headless)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is for this program, which then closes the browser
        )
        try:
            yield OpenTab(browser, process)
        finally:
            await _end(process)


def _prepare(
    browser: str, program: Path, profile: Path, folder: Path, address: str, *, headless: bool
) -> Sequence[str]:
    """Writes what the browser reads, and returns how to start it."""
    profile.mkdir(parents=True, exist_ok=True)
    opening = folder / "open.html"
    # Not on the command line, where every program of this machine could read the invite.
    opening.write_text(f'<meta http-equiv="refresh" content="0;url={html.escape(address, quote=True)}">')
    if browser == "firefox":
        lines = [f'user_pref("{key}", {value});' for key, value in _FIREFOX.items()]
        (profile / "user.js").write_text("\n".join(lines) + "\n")
        command = [str(program), "--no-remote", "--profile", str(profile)]
        return [*command, *(["--headless"] if headless else []), opening.as_uri()]
    command = [str(program), f"--user-data-dir={profile}", *_CHROMIUM]
    if headless:
        command.append("--headless=new")
    if sys.platform == "linux" and os.geteuid() == 0:
        command.append("--no-sandbox")  # Chromium does not start as root with it
    return [*command, opening.as_uri()]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Asks the browser to end, and ends it if it does not."""
    _signal(process, signal.SIGTERM)
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_WITHIN_S):
            await process.wait()
    kill = getattr(signal, "SIGKILL", signal.SIGTERM)
    _signal(process, kill)  # what is left of its helpers
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.terminate()
