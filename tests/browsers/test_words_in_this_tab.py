"""What a tab keeps: words, with the switch for that, from everybody else; and fronts of prompts, as a stage."""

from __future__ import annotations

import json
from pathlib import Path

from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Settings
from peer.session.prefix_cache import LEAST_TOKENS, split
from peer.session.sampling import Sampling
from peer.wire.bundles import frames_of
from peer.wire.generated.frames import Bundle, Feed, Frame, Open, Step, Token
from peer.wire.tensors import Dtype
from tests.browsers.accessibility import DESKTOP, PHONE, expect_names, expect_no_barriers
from tests.browsers.harness import Driver, Models, founded, visit
from tests.browsers.page import Page
from tests.browsers.together import WATCHED
from tests.patience import WITHIN_S

CUTS = (3,)  # of the six units of two blocks: this process has the first stage, the tab the last one
COUNT = 8
RULES = "Answer like a pirate who has seen the world. " * 10  # a front that is worth keeping
FIRST, SECOND = "Tell me a secret.", "And another one?"
SWITCHES = "[...document.querySelectorAll('input[role=switch]')]"
KEPT = json.dumps({"temperature": 0, "repetitionPenalty": 1, "maxTokens": COUNT, "topP": 1})
GREEDY = f"localStorage.setItem('shoal.settings', {json.dumps(KEPT)})"
SHEET = "document.querySelector('.who-is-in')"
LIST = "document.querySelector('button[aria-label=Conversations]')"
OWN_LINE = (
    "[...document.querySelectorAll('dialog .talk-lines .talk-open')]"
    ".find((line) => line.innerText.includes('in this tab'))"
)
DONE = "document.querySelectorAll('.turn .foot .facts').length"


def heard(mesh: MeshMember) -> list[Frame]:
    """All frames of sessions that come to `mesh` from others from now on."""
    found: list[Frame] = []
    take = mesh.parts.router.frame

    def seen(peer: str, frame: Frame) -> None:
        if peer != mesh.me:
            found.extend(frames_of(frame) if isinstance(frame, Bundle) else [frame])
        take(peer, frame)

    mesh.links.start(seen)
    return found


async def answer(mesh: MeshMember, said: list[Message], *, shares: bool = True) -> str:
    """What an asker gets that keeps nothing to itself. `shares`: the front of its prompt, with other sessions."""
    conversation = mesh.conversation()
    settings = Settings(Sampling(), COUNT)
    prompt = mesh.text.encode_chat(said)
    pieces = conversation.chat(said, settings) if shares else conversation.tokens(prompt, settings)
    text = "".join([piece.text async for piece in pieces if isinstance(piece, Delta)])
    conversation.close()
    return text


async def the_tab_keeps_fronts(mesh: MeshMember, frames: list[Frame]) -> None:
    """Of a second session with the same instructions the tab computes what follows them."""
    rules = Message("system", RULES)
    expected = [await answer(mesh, [rules, Message("user", said)], shares=False) for said in (FIRST, SECOND)]
    assert await answer(mesh, [rules, Message("user", FIRST)]) == expected[0]
    frames.clear()
    sent: list[Frame] = []
    send = mesh.links.dialer.send

    def seen(peer: str, frame: Frame) -> None:
        sent.extend(frames_of(frame) if isinstance(frame, Bundle) else [frame])
        send(peer, frame)

    mesh.links.dialer.send = seen  # type: ignore[method-assign]
    assert await answer(mesh, [rules, Message("user", SECOND)]) == expected[1]
    (front,) = [
        prefix for frame in sent if isinstance(frame, Open) and (prefix := split(frame)[1]) is not None
    ]
    steps = [frame for frame in sent if isinstance(frame, Step)]
    assert min(step.position for step in steps) == front.count >= LEAST_TOKENS
    assert [frame for frame in frames if isinstance(frame, Feed)] == [], (front, sent[0])


async def test_what_is_asked_stays_in_the_tab(driver: Driver, app: Path, two_blocks: Models) -> None:
    made = await visit(driver, "chromium")
    async with founded(two_blocks, app, cuts=CUTS, weights="f32") as mesh:
        assert mesh.link is not None
        width, height = DESKTOP
        page = Page(await made.tab(mesh.link.server, width=width, height=height, early=GREEDY))
        await page.click(f"{SWITCHES}[1]")
        # The choice is kept.
        page = Page(await made.tab(mesh.link.url(), width=width, height=height, early=WATCHED))
        frames = heard(mesh)
        await page.until_says("Ready: new private conversations stay in this tab", WITHIN_S)
        await page.until(f"{SWITCHES}.length === 1 && {SWITCHES}[0].checked")
        await page.until_says("Kept in this tab until it is closed")
        said: list[Message] = []
        for at, question in enumerate((FIRST, SECOND)):
            await page.ask(question)
            await page.until(f"{DONE} === {at + 1}")
            said.append(Message("user", question))
            said.append(Message("assistant", await answer(mesh, said)))
        await page.click(SHEET)
        await page.press("JSON")
        kept = json.loads(await page.run("kept[0].text()"))
        assert [each["text"] for each in kept["messages"]] == [each.content for each in said]
        await page.key("Escape")
        pinned = [frame for frame in frames if isinstance(frame, Open) and frame.origin != mesh.me]
        assert len(pinned) >= 2
        assert all((each.sampling, each.end_tokens, each.history) == ((), (), ()) for each in pinned)
        sessions = {frame.session for frame in pinned}
        steps = [frame for frame in frames if isinstance(frame, Step) and frame.session in sessions]
        assert len(steps) >= 2 * COUNT
        assert all(step.tensor.dtype is Dtype.FLOAT32 for step in steps)
        assert not any(isinstance(frame, Token) and frame.session in sessions for frame in frames)
        assert not mesh.view.state.conversations
        await the_tab_keeps_fronts(mesh, frames)
        await expect_no_barriers(page, "a conversation in this tab")
        await page.sized(*PHONE)
        await page.press("My part")
        await expect_no_barriers(page, "the switch on a phone")
        await expect_names(page, "the switch on a phone")
        await page.click(f"{SWITCHES}[0]")
        await page.press("Chat")
        await page.click(LIST)
        await page.click("document.querySelector('dialog .new-talk')")
        await page.click("document.querySelector('input[name=audience][value=mesh]')")
        await page.ask("Is this for everybody?")
        assert await mesh.view.until(lambda state: len(state.conversations) == 1, WITHIN_S)
        await page.click(LIST)
        await page.click(OWN_LINE)
        await page.until(f"{DONE} === 2")
        await page.click(SHEET)
        await page.press("Delete…")
        await page.click("document.querySelector('.sure .danger')")
        await page.until("document.querySelectorAll('nav.talks .talk-lines li').length === 1")
        assert len(mesh.view.state.conversations) == 1
    await made.close()
