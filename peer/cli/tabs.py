"""`shoal tabs`: tabs of this machine's browsers as peers of a mesh, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from peer.errors import NoBrowser
from peer.launch.browsers import TabOptions, check_page, find_browser, open_tab
from peer.launch.terminal import either, interrupts, say


async def run_tabs(args: argparse.Namespace) -> int:
    """Opens the tabs and closes them again. Raises NoBrowser, also when a browser ends by itself."""
    labels = numbered(args.browsers)
    for browser in dict.fromkeys(args.browsers):
        find_browser(browser)
    await check_page(args.link)
    async with AsyncExitStack() as stack:
        ctrl = stack.enter_context(interrupts())
        ended = asyncio.Event()
        tabs = []
        for browser, label in zip(args.browsers, labels, strict=True):
            options = TabOptions(args.headless, args.memory, label, profile_of(args.profiles, label))
            tab = await stack.enter_async_context(open_tab(browser, args.link, options))
            watch = asyncio.ensure_future(tab.process.wait())
            watch.add_done_callback(lambda _: ended.set())
            stack.callback(watch.cancel)
            tabs.append((label, tab))
        say(f"opened {', '.join(labels)}: they join by themselves; Ctrl-C closes them")
        await either(ctrl.asked, ended)
        if not ctrl.asked.is_set():
            gone = [label for label, tab in tabs if tab.process.returncode is not None]
            raise NoBrowser(f"{' and '.join(gone)} ended by itself: does it start from here without shoal?")
        say("closing")
    return 0


def numbered(browsers: list[str]) -> list[str]:
    """Names for people: "Chromium", "Firefox", "Chromium 2"."""
    seen: Counter[str] = Counter()
    labels = []
    for browser in browsers:
        seen[browser] += 1
        name = browser.capitalize()
        labels.append(name if seen[browser] == 1 else f"{name} {seen[browser]}")
    return labels


def profile_of(folder: Path | None, label: str) -> Path | None:
    """A kept profile for each tab: its weights need no second download."""
    return None if folder is None else (folder / label.lower().replace(" ", "-")).absolute()
