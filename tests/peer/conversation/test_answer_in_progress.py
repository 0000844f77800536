"""One answer while this peer makes it: how much of it the log gets at once, and the day of a question."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.conversation.answer_in_progress import LOG_S, Making
from peer.model.tokenizer import Text
from peer.origin.answer_stream import Conversation, Delta, Finished, day_of
from peer.state.generated.commands import MAX_MESSAGE_BYTES, Message


async def made(*pieces: str) -> Making:
    text = SimpleNamespace(stream=lambda: None, end_tokens=())
    session = SimpleNamespace(on_wait=lambda _: lambda: None)
    making = Making("c", cast(Conversation, session), cast(Text, text), ())

    async def given() -> AsyncGenerator[Delta | Finished]:
        for token, words in enumerate(pieces):
            yield Delta(words, token)

    assert await making.run(given(), lambda: None) == ""
    return making


def known(tokens: int, text: str) -> Message:
    return cast(Message, SimpleNamespace(tokens=tokens, text=text))


def logged(making: Making) -> list[tuple[int, int]]:
    """What the log gets, call by call, until it has all of it."""
    found: list[tuple[int, int]] = []
    text, tokens, now = "", 0, making._logged_s + 2 * LOG_S
    while (due := making.due(known(tokens, text), now)) is not None:
        tokens, more = due
        found.append((tokens, len(more)))
        text += more
        now += 2 * LOG_S
    return found


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        pytest.param(("one", " two", " three"), [(3, 13)], id="short pieces go at once"),
        pytest.param(
            ("x" * 10_000, "y" * 6384, "z", "w" * 9000, "v" * 9000),
            [(2, 16_384), (4, 9001), (5, 9000)],
            id="no command has more than 16,384 characters",
        ),
        pytest.param(
            ("x", "y" * 20_000, "z"), [(1, 1), (2, 20_000), (3, 1)], id="a token that is longer goes alone"
        ),
    ],
)
async def test_what_the_log_gets(pieces: tuple[str, ...], wanted: list[tuple[int, int]]) -> None:
    assert logged(await made(*pieces)) == wanted


async def test_words_of_any_language_fit_into_a_command() -> None:
    making = await made(*["語" * 1000] * 40)
    due = making.due(known(0, ""), making._logged_s + 2 * LOG_S)
    assert due is not None
    assert len(due[1].encode()) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    ("when_ms", "day"),
    [
        (0, (1970, 1, 1)),
        (1_800_000_000_000, (2027, 1, 15)),
        (253_402_300_799_999, (9999, 12, 31)),
        (253_402_300_800_000, (9999, 12, 31)),
        (2**53 - 1, (9999, 12, 31)),
    ],
)
def test_the_day_of_a_question(when_ms: int, day: Any) -> None:
    found = day_of(when_ms)
    assert (found.year, found.month, found.day) == day
