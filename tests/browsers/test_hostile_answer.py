"""A hostile answer over the real wire: whatever the model says, the page shows it and obeys nothing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import peer.session.open_checks
from tests.browsers.harness import Driver, Models, founded, visit
from tests.browsers.page import Page

CONTEXT = 2048
NETWORK = ("http", "https", "ws", "wss", "ftp")  # Firefox has fonts of its own in data: URLs
WATCH = (
    "globalThis.ran = []; globalThis.refused = []; globalThis.alert = (text) => { ran.push(text); };"
    "document.addEventListener('securitypolicyviolation',"
    " (event) => refused.push(`${event.violatedDirective} ${event.blockedURI}`))"
)
MARKUP = """Here:
<script>ran.push('script')</script><img src=x onerror="ran.push('img')">
<svg onload="ran.push('svg')"><script>ran.push(1)</script></svg>
<iframe srcdoc="<script>parent.ran.push('frame')</script>"></iframe>
<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=ran.push(2)&gt;">
<form action="https://evil.example/"><button formaction="javascript:ran.push(3)">go</button></form>
<style>body{display:none}</style><base href="https://evil.example/"><meta http-equiv=refresh content="0;url=/x">
<details open ontoggle=ran.push(4)>x</details>

The end of markup."""
LINKS = """[one](javascript:ran.push(5)) [two](data:text/html,<script>ran.push(6)</script>)
[three](https://evil.example/ "x\\" onclick=\\"ran.push(7)") ![pixel](https://evil.example/track.png)
[four](JaVaScRiPt:ran.push(8)) [five](&#106;avascript:ran.push(9)) [six](//evil.example/a)
![x](data:image/svg+xml;base64,PHN2Zz4=) <https://evil.example/auto> [seven]: javascript:ran.push(10)

> > > - 1. # **_~~`deep`~~_** <b onmouseover=ran.push(11)>b</b>

| <script>ran.push(12)</script> | [x](vbscript:1) |
| --- | --- |
| ` <img src=x> ` | ![y](https://evil.example/y.png) |

```html "><script>ran.push(13)</script>
</code></pre><script>ran.push(14)</script><img src=x onerror=ran.push(15)>
```

The end of links."""
SHAPES = (
    "Admin: \u202egnp.exe\u202c and \u2066user\u2069 \u200f\u200e. "
    + "W" * 120
    + " https://evil.example/"
    + "a/" * 60
    + "\n\n```\n"
    + "long " * 40
    + "\n```\n\nThe end of shapes."
)
ALLOWED = "P BR HR H3 H4 H5 H6 BLOCKQUOTE UL OL LI STRONG EM S CODE PRE A TABLE THEAD TBODY TR TH TD DIV SPAN BUTTON"
STRANGE = (
    f"[...document.querySelectorAll('.prose .block *')].filter((element) => !{json.dumps(ALLOWED.split())}"
    ".includes(element.tagName) || [...element.attributes].some(({ name }) => name.startsWith('on') || name ==="
    " 'style' || name === 'src')).map((element) => element.outerHTML)"
)
TOUCH = (
    "document.querySelectorAll('.prose *').forEach((one) => ['mouseover', 'focus', 'toggle'].forEach("
    "(kind) => one.dispatchEvent(new Event(kind, { bubbles: true }))))"
)
LINKS_MADE = (
    "[...document.querySelectorAll('.prose a')].map((a) => [a.getAttribute('href'), a.target, a.rel])"
    ".filter(([href]) => href !== null)"
)


class Script:
    """Stands in for the sampler: says the tokens of `text`, whatever the logits are, then ends."""

    def __init__(self) -> None:
        self.tokens: Iterator[int] = iter(())

    def __call__(self, *_: Any) -> int:
        return next(self.tokens)


@pytest.mark.parametrize("browser", ["chromium", pytest.param("firefox", marks=pytest.mark.soak)])
async def test_a_hostile_answer_is_shown_and_not_obeyed(
    driver: Driver,
    app: Path,
    two_blocks: Models,
    browser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script()
    monkeypatch.setattr(peer.session.open_checks, "sample", script)
    made = await visit(driver, browser)
    async with founded(two_blocks, app, weights="f32", context=CONTEXT) as mesh:
        assert mesh.link is not None
        page = Page(await made.tab(mesh.link.url(), width=390, height=844, early=WATCH))
        await page.until("document.querySelector('.lending.is-lending')")
        await page.press("My part")
        await page.press("Pause lending")  # the scripted sampler is the founder's
        await page.until("document.querySelector('.lending.is-paused')")
        await page.press("Chat")
        address = await page.run("location.href")
        links: list[list[str]] = []
        for text, end in ((MARKUP, "of markup."), (LINKS, "of links."), (SHAPES, "of shapes.")):
            script.tokens = iter([*mesh.text.encode(text), mesh.text.end_tokens[0]])
            await page.ask("Go on.")
            await page.until("document.querySelector('.turn .foot .facts')")
            assert end in await page.run("document.querySelector('.prose').innerText")
            assert await page.run(STRANGE) == []
            assert await page.run("document.documentElement.scrollWidth <= innerWidth")
            assert await page.run("/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)") is False
            links += await page.run(LINKS_MADE)
            await page.run(TOUCH)
            await page.key("Alt+KeyN")
            await page.until("document.querySelector('.turn') === null")
        assert links
        for href, target, rel in links:
            assert href.startswith("https://evil.example/")  # a person may follow it, the page does not
            assert (target, rel) == ("_blank", "noopener noreferrer nofollow")
        assert await page.run("[ran, refused, document.title, location.href]") == [[], [], "Shoal", address]
        assert await page.run("getComputedStyle(document.body).display") == "block"
        went = await driver.call("went", page=page.tab.page)
        server = mesh.link.server
        asked = [url for url in went["requests"] if urlsplit(url).scheme in NETWORK]
        assert [url for url in asked if not url.startswith(f"{server}/")] == []
        assert {url.split("#")[0] for url in went["navigations"]} == {f"{server}/"}
        assert went["dialogs"] == []
    await made.close()
