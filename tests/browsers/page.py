"""One tab with the page, as a person sees and uses it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.browsers.harness import TabInBrowser
from tests.patience import WITHIN_S, soon

SHOWN_WITHIN_S = 10.0  # a state that a person waits for, on a calm machine
# What the tab computed for others and itself.
HELPED = "Number(document.querySelector('.facts-grid dd').textContent.replaceAll(',', ''))"


class Page:
    """One tab with the page, as a person sees it."""

    def __init__(self, tab: TabInBrowser) -> None:
        self.tab = tab

    async def run(self, expression: str) -> Any:
        return await self.tab.run(expression)

    async def text(self) -> str:
        shown: str = await self.run("document.body.innerText")
        return shown

    async def until(self, what: str, within_s: float = WITHIN_S) -> None:
        """Waits until the expression `what` is true."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    if await self.run(f"Boolean({what})"):
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"{what} did not come about within {within_s} s; the page says: {await self.text()}")

    async def until_says(self, words: str, within_s: float | None = None) -> None:
        """Waits until the page shows these words; soon, where nothing else is said."""
        shown = f"document.body.innerText.includes({json.dumps(words)})"
        await self.until(shown, soon(SHOWN_WITHIN_S) if within_s is None else within_s)

    async def ask(self, question: str) -> None:
        """Types into the field and presses Enter."""
        await self.until("document.querySelector('.composer textarea')")
        await self.run(
            "(() => { const field = document.querySelector('.composer textarea'); field.focus();"
            f"document.execCommand('insertText', false, {json.dumps(question)}); }})()"
        )
        await self.until("!document.querySelector('button[type=submit]').disabled")
        await self.run(
            "document.querySelector('.composer textarea').dispatchEvent("
            "new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }))"
        )

    async def key(self, key: str) -> None:
        """Presses a key as a person does: "Tab", "Shift+Tab", "Alt+KeyS"."""
        await self.tab.driver.call("key", page=self.tab.page, key=key)

    async def sized(self, width: int, height: int) -> None:
        await self.tab.driver.call("sized", page=self.tab.page, width=width, height=height)

    async def press(self, label: str) -> None:
        """Presses the button with that label, as soon as there is one that may be pressed."""
        await self.click(
            "[...document.querySelectorAll('button')]"
            f".find((button) => !button.disabled && button.innerText.trim() === {json.dumps(label)})"
        )

    async def click(self, what: str, within_s: float = WITHIN_S) -> None:
        """Clicks on the element `what`, as soon as there is one.

        Found and clicked in one step: the page may draw itself anew between two.
        """
        await self.until(f"((element) => {{ element?.click(); return element; }})({what})", within_s)
