"""Two browsers in one conversation of a real mesh: it is seen as it is said, and outlives the tab that asked."""

from __future__ import annotations

import asyncio
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peer.openings
from peer.asking import Delta, Settings
from peer.mesh import Mesh
from peer.mesh_conversations import Message
from peer.sampling import Sampling, sample
from peer.turns import prompt_of
from signaling.invites import Role

from .conftest import WITHIN_S, Driver, Models, founded, launch
from .page import SHOWN_WITHIN_S, Page

MOST_TOKENS = 120
STREAMING = (
    "[...document.querySelectorAll('.answer[aria-busy=true] .prose')].some((one) => one.innerText.length > 9)"
)
QUIET = "document.querySelector('.answer[aria-busy=true], .queued') === null"
TRANSCRIPT = (
    "[...document.querySelectorAll('.turn')].map((turn) => [turn.querySelector('.question').innerText,"
    " turn.querySelector('.prose')?.innerText ?? ''])"
)
ROLE_OF_BOB = "document.querySelector('select[aria-label=\"What Bob may do\"]')"
GIVE_BOB = (
    f"(() => {{ const role = {ROLE_OF_BOB}; role.value = '%s'; role.dispatchEvent(new Event('change')); }})()"
)
SETTINGS = (
    "localStorage.setItem('shoal.settings',"
    f" JSON.stringify({{temperature: 0.8, repetitionPenalty: 1, maxTokens: {MOST_TOKENS}}}))"
)


class Pace:
    """A sampler that takes its time, so that a tab can be closed while an answer is made."""

    def __init__(self) -> None:
        self.token_s = 0.0
        self._sample: Callable[..., int] = sample

    def __call__(self, *arguments: Any) -> int:
        time.sleep(self.token_s)
        return self._sample(*arguments)


async def until(mesh: Mesh, what: Callable[[], bool], words: str) -> None:
    """Waits until the founder's state satisfies `what`."""
    assert await mesh.node.until(lambda _: what(), WITHIN_S), words


def messages(mesh: Mesh) -> list[Message]:
    """Of the one conversation that there is, as the founder knows them."""
    return [message for each in mesh.node.state.conversations.values() for message in each.messages]


async def made_alone(mesh: Mesh, answer: Message) -> str:
    """The text of the same answer, asked by the founder from the beginning to the end."""
    (conversation,) = mesh.node.state.conversations.values()
    asked = next(message for message in conversation.messages if message.id == answer.parent)
    day = datetime.datetime.fromtimestamp(asked.when_ms / 1000, datetime.UTC).date()
    prompt = mesh.text.encode_chat(prompt_of(conversation, asked.id), day)
    settings = Settings(Sampling.from_wire(answer.sampling), max_tokens=answer.max_tokens)
    talk = mesh.conversation()
    text = "".join([piece.text async for piece in talk.tokens(prompt, settings) if isinstance(piece, Delta)])
    talk.close()
    return text


async def test_two_browsers_in_one_conversation(
    driver: Driver, app: Path, two_blocks: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = Pace()
    monkeypatch.setattr(peer.openings, "sample", pace)
    chromium, firefox = await asyncio.gather(
        *(launch(driver, browser, tmp_path / browser) for browser in ("chromium", "firefox"))
    )
    async with founded(two_blocks, app, weights="f32", role=Role.GUEST) as mesh:
        assert mesh.link is not None
        link = mesh.link.url()  # for those who only ask: the founder computes
        ann = Page(await chromium.tab(f"{link}&name=Ann", early=SETTINGS, width=1280, height=800))
        bob = Page(await firefox.tab(f"{link}&name=Bob", early=SETTINGS, width=390, height=844))
        await ann.until_says("3 here", WITHIN_S)
        await bob.until("document.querySelector('.starter:enabled')")

        pace.token_s = 0.05
        await ann.ask("What do fish say?")
        await bob.until(STREAMING)  # by what Ann's tab tells, and the log
        await bob.ask("And why?")
        await ann.until("document.querySelector('.queued')", SHOWN_WITHIN_S)
        assert "Waits for your question" in await ann.run("document.querySelector('.queued').innerText")
        pace.token_s = 0.0
        await ann.until(f"document.querySelectorAll('.turn').length === 2 && {QUIET}")
        await bob.until(QUIET)

        await ann.run("document.querySelector('.who-is-in').click()")
        await ann.until(ROLE_OF_BOB, SHOWN_WITHIN_S)
        await ann.run(GIVE_BOB % "viewer")
        await bob.until_says("You read along in this conversation")
        assert await bob.run("document.querySelector('.composer textarea')") is None
        await ann.run(GIVE_BOB % "member")
        await bob.until("document.querySelector('.composer textarea')")
        await ann.key("Escape")

        pace.token_s = 0.1
        await ann.ask("Tell me more.")
        await bob.until(STREAMING)
        answer = messages(mesh)[-1]
        assert (answer.form, answer.state) == ("answer", "running")
        await driver.call("closePage", page=ann.tab.page)
        await until(mesh, lambda: messages(mesh)[-1].author != answer.author, "another asker")
        pace.token_s = 0.0
        await until(mesh, lambda: messages(mesh)[-1].state != "running", "the end of the answer")
        await bob.until(QUIET)

        known = messages(mesh)
        answers = [message for message in known if message.form == "answer"]
        assert [message.form for message in known].count("to-model") == 3 == len(answers)
        assert {message.state for message in answers} <= {"done", "stopped"}, answers
        for message in answers:
            assert message.text == await made_alone(mesh, message), json.dumps(message.text)
        # Who comes late sees all of it, as it is seen by those who were there.
        late = Page(await chromium.tab(f"{link}&name=Cy", early=SETTINGS, width=1280, height=800))
        await late.until("document.querySelectorAll('.turn').length === 3")
        assert await late.run(TRANSCRIPT) == await bob.run(TRANSCRIPT)
    await chromium.close()
    await firefox.close()
