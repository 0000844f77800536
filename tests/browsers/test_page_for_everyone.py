"""The page for people who use keys and screen readers: axe-core, accessible names, the focus, what is read aloud."""

from __future__ import annotations

import functools
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browsers.accessibility import DESKTOP, PHONE, barriers, expect_names, expect_no_barriers, misnamed
from tests.browsers.harness import WEB_PEER, Browser, Driver, Models, founded, visit
from tests.browsers.own_words import own
from tests.browsers.page import Page

CUTS = (31,)
FOCUSED = (
    "(() => { const at = document.activeElement; const label = at.labels?.[0];"
    " const name = at.getAttribute('aria-label') ?? (label ?? at).innerText;"
    " return at === document.body ? '' : `${at.tagName.toLowerCase()} ${name.trim().split('\\n')[0]}`; })()"
)
MEASURED = (  # what a token took at both stages, and in the last answer
    "[...document.querySelectorAll('.stage-times > div:nth-child(2) dd,"
    " .plan-figures > div:nth-child(2) dd:nth-child(2)')].map((dd) => dd.textContent)"
)
NOT_ASKED_A_NAME = "localStorage.removeItem('shoal.name')"
SMALL = (  # what a finger could miss: less than 44 px high or wide
    "[...document.querySelectorAll('button, summary, select, input, textarea')]"
    ".map((one) => (/radio|checkbox/.test(one.type) ? one.closest('label') : one))"
    ".filter((one) => one.checkVisibility({ visibilityProperty: true }) && one.closest('.prose') === null)"
    ".filter((one) => { const { height, width } = one.getBoundingClientRect();"
    " return Math.min(height, width) < 43.5; })"
    ".map((one) => one.outerHTML.slice(0, 120))"
)
NEW_CONVERSATION = (
    "[...document.querySelectorAll('button')].some((one) => one.checkVisibility() &&"
    " `${one.ariaLabel ?? ''} ${one.innerText}`.includes('New conversation'))"
)
INVITE = "document.querySelector('[aria-label=\"Invite someone\"]')"
WHO_IS_IN = "document.querySelector('.who-is-in')"
PLAN = "document.querySelector('.to-plan')"
MODELS = "document.querySelector('.to-models')"
# Sheets: the scene that they lie over, and what opens them.
SHEETS = {
    "people": ("together", WHO_IS_IN),
    "invite": ("together", INVITE),
    "settings": ("together", "document.querySelector('[aria-label=Settings]')"),
    "conversations": ("together", "document.querySelector('button[aria-label=Conversations]')"),
    "share a copy": ("own-words", INVITE),
    "invite to the mesh": ("ready", INVITE),
    "private conversation": ("own-words", WHO_IS_IN),
    "keyboard shortcuts": ("ready", "document.querySelector('[aria-label=\"Keyboard shortcuts\"]')"),
    "plan of a crowd": ("crowd", PLAN),
    "plan that cannot serve": ("failed", PLAN),
    "goal of plans": ("answered", PLAN),
    "models": ("models", MODELS),
    "what a model gave": ("models-done", MODELS),
    "a run that failed": ("models-failed", MODELS),
}
HEARD = (
    "(() => { globalThis.heard = []; const box = document.querySelector('.conversation [role=status]');"
    " new MutationObserver(() => heard.push(box.textContent)).observe(box,"
    " { childList: true, characterData: true, subtree: true }); })()"
)


# One sheet is closed, another one opened before the next frame, in which a browser tells of the first one's end.
SHEET_AFTER_SHEET = """
(async () => {
  const frame = () => new Promise((seen) => requestAnimationFrame(seen));
  document.querySelector("dialog button[aria-label=Close]").click();
  while (document.querySelector("dialog") !== null) await new Promise((then) => setTimeout(then));
  document.querySelector("button[aria-label=Settings]").click();
  for (let frames = 0; frames < 4; frames += 1) await frame();
  return document.querySelector("dialog[open]") !== null;
})()
"""


async def walk(page: Page, steps: int) -> list[str]:
    """What has the focus after each press of Tab."""
    seen = []
    for _ in range(steps):
        await page.key("Tab")
        seen.append(await page.run(FOCUSED))
    return seen


async def sheet_keeps_and_returns_focus(page: Page, opener: str, key: str, state: str) -> None:
    """Opened by its button: the focus stays inside, Escape closes it, and the button has the focus again."""
    button = f"document.querySelector('button[aria-label={json.dumps(opener)}]')"
    await page.run(f"{button}.focus()")
    await page.key("Enter")
    await page.until("document.querySelector('dialog[open]')")
    await expect_no_barriers(page, state)
    await expect_names(page, state)
    inside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
    for _ in range(12):
        await page.key("Tab")
        assert await page.run(inside), f"{state}: the focus left the sheet for {await page.run(FOCUSED)}"
    await page.key("Escape")
    await page.until("document.querySelector('dialog') === null")
    assert await page.run(f"document.activeElement === {button}"), f"{state}: the focus did not come back"
    await page.key(key)
    await page.until("document.querySelector('dialog[open]')")
    await page.key("Escape")
    await page.until("document.querySelector('dialog') === null")


async def test_every_state_is_for_everyone(driver: Driver, app: Path, models: Models) -> None:
    made = await visit(driver, "chromium")
    async with founded(models, app, cuts=CUTS) as mesh:
        assert mesh.link is not None
        page = Page(await made.tab(mesh.link.server, width=DESKTOP[0], height=DESKTOP[1]))
        await page.until_says("One model, run together")
        await expect_no_barriers(page, "no link")
        await expect_names(page, "no link")

        page = Page(
            await made.tab(mesh.link.url(), width=DESKTOP[0], height=DESKTOP[1], early=NOT_ASKED_A_NAME)
        )
        await page.until_says("Your name? (optional)")
        await expect_no_barriers(page, "your name")
        await expect_names(page, "your name")
        assert await page.run(FOCUSED) == "input Your name? (optional)"
        await page.run("document.execCommand('insertText', false, 'Ada')")
        await page.key("Enter")
        await page.until("document.querySelector('.steps')")
        await expect_no_barriers(page, "joining")
        await page.until("document.querySelector('.lending.is-lending')")
        await page.until_says("2 here")
        await page.until("document.querySelector('.starter:enabled')")
        assert "Ada" in {member.name for member in mesh.view.state.members.values()}
        await expect_no_barriers(page, "nothing asked yet")
        await expect_names(page, "nothing asked yet")

        assert await page.run(FOCUSED) == "textarea Your question"
        await page.run("document.querySelector('button[aria-label=Settings]').focus()")
        await page.key("Shift+Tab")
        order = await walk(page, 26)
        for before, after in (
            ("button Settings", "button Invite someone"),
            ("button Invite someone", "input Only you"),
            ("input Only you", "textarea Your question"),
            ("textarea Your question", "input Memory this tab may use"),
        ):
            assert order.index(before) < order.index(after), order
        await sheet_keeps_and_returns_focus(page, "Invite someone", "Alt+KeyS", "share sheet")
        await sheet_keeps_and_returns_focus(page, "Settings", "Alt+Comma", "settings")
        await sheet_keeps_and_returns_focus(page, "Keyboard shortcuts", "?", "keyboard shortcuts")
        await sheet_keeps_and_returns_focus(page, "See the plan", "Alt+KeyP", "the plan")

        await page.key("Alt+KeyS")
        await page.until("document.querySelector('dialog[open]')")
        assert await page.run(SHEET_AFTER_SHEET), "the end of one sheet closed the next one"
        await page.key("Escape")
        await page.until("document.querySelector('dialog') === null")

        await page.run(HEARD)
        await page.ask("Tell me in four sentences what a fish is.")
        await page.until("document.querySelector('.prose')")
        await expect_no_barriers(page, "an answer streams")
        await page.until("document.querySelector('.turn .foot .facts')")
        tokens = int((await page.run("document.querySelector('.facts').textContent")).split(" token")[0])
        heard = await page.run("heard")
        said = " ".join(heard)
        answer: str = await page.run("document.querySelector('.prose').innerText")
        assert len(heard) < max(4, tokens / 4), heard  # sentences, not tokens
        assert [word for word in answer.split() if word.strip("*#-`|") not in said] == []
        assert heard[-1].endswith("Answer complete.")
        await page.until("document.querySelector('.people summary')")
        await page.run("document.querySelectorAll('.people details').forEach((one) => { one.open = true; })")
        await expect_no_barriers(page, "answered, cards open")
        await expect_names(page, "answered, cards open")
        await page.key("Alt+KeyP")
        await page.until_says("Only owners of the mesh change this")
        assert await page.run("document.querySelector('.wish input, .wish button') === null")
        await own(mesh)
        await page.until("document.querySelector('dialog[open] .wish-form')")
        await page.until(f"{MEASURED}.length === 3 && {MEASURED}.every((text) => / ms/.test(text))")
        await expect_no_barriers(page, "the plan, measured")

        await page.sized(*PHONE)
        await expect_no_barriers(page, "the plan, measured, on a phone")
        assert await page.run("document.querySelector('.plan').scrollWidth <= innerWidth")
        await page.key("Escape")
        await page.until("document.querySelector('dialog') === null")
        for part in ("Chat", "Mesh", "My part"):
            await page.press(part)
            await expect_no_barriers(page, f"phone, {part}")
            await expect_names(page, f"phone, {part}")
            assert await page.run("document.documentElement.scrollWidth <= innerWidth"), part
        await page.press("Leave")
        await page.until("document.querySelector('.sure')")
        await expect_no_barriers(page, "phone, are you sure")
        await page.press("Cancel")
        await page.press("Leave")
        await page.until("document.querySelector('.sure')")
        await page.press("Leave")
        await page.until_says("You left the mesh")
        await expect_no_barriers(page, "phone, outside")
        await page.sized(*DESKTOP)
        await expect_no_barriers(page, "outside")
    await made.close()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the page over made-up meshes is served."""
    folder = tmp_path_factory.mktemp("scenes")
    vite = WEB_PEER / "node_modules" / ".bin" / "vite"
    command = [str(vite), "build", "scenes", "-c", "vite.config.ts", "--outDir", str(folder)]
    subprocess.run(
        [*command, "--emptyOutDir", "--logLevel", "error"], cwd=WEB_PEER, check=True, stdin=subprocess.DEVNULL
    )
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return None


async def each_scene(browser: Browser, scenes: str, size: tuple[int, int]) -> None:
    page = Page(await browser.tab(scenes, width=size[0], height=size[1]))
    names = await page.run("scenes")
    found: dict[str, Any] = {}
    assert len(names) > 20
    for name in names:
        await page.tab.driver.call("goto", page=page.tab.page, url="about:blank")
        await page.tab.driver.call("goto", page=page.tab.page, url=f"{scenes}/#{name}")
        await page.until("document.querySelector('.page')")
        await page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        if here := await barriers(page):
            found[name] = here
        if size == PHONE and (small := await page.run(SMALL)):
            found[f"{name}, small"] = small
        if nameless := await misnamed(page):
            found[f"{name}, names"] = nameless
    assert found == {}, json.dumps(found, indent=1)
    await each_sheet(page, scenes, size)


async def each_sheet(page: Page, scenes: str, size: tuple[int, int]) -> None:
    found: dict[str, Any] = {}
    shown = ""
    for name, (scene, opener) in SHEETS.items():
        if scene != shown:
            await page.tab.driver.call("goto", page=page.tab.page, url="about:blank")
            await page.tab.driver.call("goto", page=page.tab.page, url=f"{scenes}/#{scene}")
            await page.until(NEW_CONVERSATION)
            shown = scene
        await page.click(opener)
        await page.until("document.querySelector('dialog[open]')")
        for more in ("dialog .talk-more", "dialog .talk-acts button:last-child"):
            await page.run(f"document.querySelector({more!r})?.click()")
        if here := await barriers(page):
            found[name] = here
        if size == PHONE and (small := await page.run(SMALL)):
            found[f"{name}, small"] = small
        if nameless := await misnamed(page):
            found[f"{name}, names"] = nameless
        await page.key("Escape")
        await page.until("document.querySelector('dialog') === null")
        if scene == "together":
            await page.key("Escape")  # stops nothing
            assert await page.run("document.querySelector('[aria-label=\"Stop the answer\"]') !== null"), name
    assert found == {}, json.dumps(found, indent=1)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_states_that_are_hard_to_reach(driver: Driver, scenes: str, size: tuple[int, int]) -> None:
    """Made-up meshes on the same page: a peer gone, the battery low, no room to store, a crowd."""
    made = await visit(driver, "chromium")
    await each_scene(made, scenes, size)
    await made.close()
