"""A question with a picture from a tab: prepared there, looked at by the mesh, answered as a process is answered."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from peer.api import Mesh
from peer.state.generated.commands import ModelOffered
from planner.importers.decoder_units import build_model
from planner.importers.onnx.importing import import_graph
from planner.importers.vision.folder import open_vision
from planner.model.store import Store
from tests.browsers.accessibility import DESKTOP, PHONE, expect_names, expect_no_barriers
from tests.browsers.harness import Driver, Models, founded, visit
from tests.browsers.page import Page
from tests.planner.importers.vision.checkpoints import load, picture_of

WORDS: Final = "w10 w11 w13"
TOKENS: Final = 24
NAME: Final = "seeing"
SMALLEST: Final = 43.5  # of what a finger finds, in pixels; 44 rounded
GREEDY: Final = (
    f"localStorage['shoal.settings'] = {json.dumps(json.dumps({'temperature': 0, 'maxTokens': TOKENS}))}"
)
ANSWER: Final = "[...document.querySelectorAll('.turn')].at(-1).querySelector('.prose').innerText"
ANSWERED: Final = "document.querySelectorAll('.answer[aria-busy=false] .facts').length"
SMALL: Final = (
    "[...document.querySelectorAll('.composer button, .composer input:not([type=radio], [hidden])')]"
    ".filter((one) => one.checkVisibility() && Math.min(one.getBoundingClientRect().width,"
    f" one.getBoundingClientRect().height) < {SMALLEST}).map((one) => one.outerHTML.slice(0, 120))"
)


def png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


PICTURE: Final = png(picture_of("llava"))
OTHER: Final = png(picture_of("llava")[::-1])


def question(*files: bytes) -> list[dict[str, Any]]:
    pictures = [{"type": "image", "image": file} for file in files]
    return [{"role": "user", "content": [*pictures, {"type": "text", "text": WORDS}]}]


def seeing(home: Path) -> tuple[Models, ModelOffered]:
    """A random model that sees, in a store of its own, and its towers as they are offered."""
    store = Store(home / "store")
    folder = load("llava").write(home / NAME)
    for file in folder.glob(
        "*.json"
    ):  # a role is no word of this tokenizer: each side would make its own of it
        file.write_text(file.read_text().replace("{{ m.role }}", "w5"))
    source = open_vision(folder, NAME)
    with source.graph(home) as graph:
        towers = import_graph(graph, store)
    assert source.sight is not None
    sight = replace(source.sight, model=towers)
    assert source.decoder is not None
    model = build_model(source.decoder, "f32", store, sight=sight)
    return Models(store, {"f32": model}), ModelOffered(towers, "towers")


def dropped(name: str, mime: str, file: bytes, event: str = "drop") -> str:
    """An expression that drops or pastes a file, as a browser tells the page of it."""
    kind, field = ("DragEvent", "dataTransfer") if event == "drop" else ("ClipboardEvent", "clipboardData")
    on = ".conversation" if event == "drop" else ".composer textarea"
    return (
        "(() => { const data = new DataTransfer();"
        f" const bytes = Uint8Array.from(atob({json.dumps(b64encode(file).decode())}), (one) => one.charCodeAt(0));"
        f" data.items.add(new File([bytes], {json.dumps(name)}, {{ type: {json.dumps(mime)} }}));"
        f" document.querySelector({json.dumps(on)}).dispatchEvent(new {kind}({json.dumps(event)},"
        f" {{ bubbles: true, cancelable: true, {field}: data }})); }})()"
    )


async def answered(page: Page, count: int) -> list[str]:
    """The words of the last answer, once there are `count`."""
    await page.until(f"{ANSWERED} === {count}")
    assert await page.run("document.querySelector('.failed') === null"), await page.text()
    said: str = await page.run(ANSWER)
    return said.split()


async def test_a_tab_asks_with_pictures(driver: Driver, app: Path, tmp_path: Path) -> None:
    """Chosen by keyboard, dropped and pasted; the mesh answers the tab as it answers a process."""
    (tmp_path / "a_cat.png").write_bytes(PICTURE)
    models, towers = await asyncio.to_thread(seeing, tmp_path)
    async with founded(models, app, weights="f32", context=128) as mesh:
        assert mesh.link is not None
        made = await visit(driver, "chromium")
        page = Page(await made.tab(mesh.link.url(), width=DESKTOP[0], height=DESKTOP[1], early=GREEDY))
        await page.until("document.querySelector('.pill.is-ready')")
        assert await page.run("document.querySelector('.add-picture') === null"), "nobody would look at it"
        await mesh.propose(towers)
        await page.until("document.querySelector('.add-picture')")
        asked = Mesh(mesh)
        expected = [
            (await asked.ask(question(*files), temperature=0, max_tokens=TOKENS)).text.split()
            for files in ((PICTURE,), (OTHER,), (PICTURE, OTHER))
        ]
        assert expected[0] != expected[1]

        # By keyboard alone: the chooser, a description, the question.
        await page.run("document.querySelector('.composer textarea').focus()")
        await page.key("Tab")
        assert await page.run("document.activeElement.ariaLabel") == "Add a picture"
        await driver.call("choose", page=page.tab.page, key="Enter", files=[str(tmp_path / "a_cat.png")])
        await page.until("document.querySelector('.picked img')?.alt === 'a cat'")
        await expect_no_barriers(page, "a picture is added")
        await expect_names(page, "a picture is added")
        await page.ask(WORDS)
        assert await answered(page, 1) == expected[0]
        shown = "document.querySelector('.asked-with img')"
        assert await page.run(f"{shown}.alt") == "a cat"
        assert await page.run(f"{shown}.naturalWidth") > 0
        await expect_no_barriers(page, "asked with a picture")

        # A phone: dropped, removed again, pasted; what is no picture is refused in words.
        await page.sized(*PHONE)
        await page.run("document.querySelector('button[aria-label=\"New conversation\"]').click()")
        await page.until("document.querySelector('.turn') === null")
        await page.run(dropped("cat.png", "image/png", PICTURE))
        await page.until("document.querySelector('.picked img')")
        assert await page.run(SMALL) == []
        await expect_no_barriers(page, "a picture is added, on a phone")
        await page.run("document.querySelector('.picked button[aria-label=\"Remove cat\"]').focus()")
        await page.key("Enter")
        await page.until("document.querySelector('.picked') === null")
        assert await page.run("document.activeElement.id") == "question"
        await page.run(dropped("notes.txt", "text/plain", b"no picture"))
        await page.until_says(
            "“notes.txt” cannot be added: a picture (PNG, JPEG, WEBP, GIF, BMP) expected, got text/plain"
        )
        await page.run(dropped("torn.png", "image/png", PICTURE[:40]))
        await page.until_says(
            "“torn.png” cannot be added: a picture (PNG, JPEG, WEBP, GIF, BMP) expected, and this cannot"
        )
        for file in (PICTURE, OTHER):
            await page.run(dropped("pasted.png", "image/png", file, "paste"))
        await page.until("document.querySelectorAll('.picked img').length === 2")
        await page.ask(WORDS)
        assert await answered(page, 1) == expected[2]
        assert await page.run("document.documentElement.scrollWidth <= innerWidth")
        await made.close()
