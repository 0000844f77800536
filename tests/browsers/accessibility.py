"""What the page owes to people who use keys and screen readers: sizes of windows, barriers and names."""

from __future__ import annotations

import json
from typing import Any

from tests.browsers.page import Page

PHONE = (390, 844)
DESKTOP = (1280, 800)
NAMED = {
    "button",
    "link",
    "textbox",
    "slider",
    "spinbutton",
    "radio",
    "checkbox",
    "DisclosureTriangle",
    "image",
}
SETTLED = (  # colours that change over a moment have changed
    "Promise.all(document.getAnimations().filter((one) => one instanceof CSSTransition)"
    ".map((one) => one.finished.catch(() => null))).then(() => null)"
)


async def barriers(page: Page) -> list[dict[str, Any]]:
    """What axe-core finds, in light and dark."""
    found: list[dict[str, Any]] = []
    for looks in ("light", "dark"):
        await page.run(f"document.documentElement.setAttribute('data-looks', {looks!r})")
        await page.run(SETTLED)
        found += await page.tab.driver.call("axe", page=page.tab.page)
    return found


async def expect_no_barriers(page: Page, state: str) -> None:
    found = await barriers(page)
    assert found == [], f"{state}: {json.dumps(found, indent=1)}"


async def misnamed(page: Page) -> list[str]:
    """What can be operated or reached and does not say what it is, to Chromium's accessibility tree; and banners of
    sheets, which only the page has.
    """
    nodes: list[dict[str, Any]] = await page.tab.driver.call("tree", page=page.tab.page)
    roles = [node["role"] for node in nodes]
    assert any(role in NAMED for role in roles), "no tree"
    found = [
        node["role"]
        for node in nodes
        if (node["role"] in NAMED or node["focusable"]) and not node["name"].strip()
    ]
    return found + ["banner"] * (roles.count("banner") - (0 if "dialog" in roles else 1))


async def expect_names(page: Page, state: str) -> None:
    """Everything that can be operated says what it is."""
    assert await misnamed(page) == [], state
