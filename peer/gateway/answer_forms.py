"""Which form an answer has: whole, or as parts of a stream of server-sent events."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from peer.errors import ApiError
from peer.gateway import responses as shapes
from peer.gateway.answers import Called, Done, Event, Said
from peer.gateway.chat_requests import Wanted
from peer.gateway.responses import Choice, Heading, Shape, Usage


class AnswerForm(Protocol):
    """The form of one API, for one request."""

    @property
    def has_names(self) -> bool:
        """Whether each event of a stream is named by its part's type."""

    @property
    def last(self) -> bytes:
        """What a stream ends with."""

    def whole(self, choices: Sequence[Choice], used: Usage) -> Shape:
        """The answer that is there."""

    def begin(self, choices: int) -> list[Shape]:
        """What comes before the first word."""

    def parts(self, event: Event) -> list[Shape]:
        """What happened."""

    def end(self, used: Usage) -> list[Shape]:
        """What comes after the last word."""

    def failed(self, problem: ApiError) -> Shape:
        """What ends a stream in place of that."""


def call_ids(count: int) -> tuple[str, ...]:
    """Ids of so many calls of tools."""
    return tuple(f"call_{os.urandom(12).hex()}" for _ in range(count))


@dataclass(frozen=True, slots=True)
class ChatForm:
    """OpenAI's chat/completions."""

    heading: Heading
    wanted: Wanted
    has_names: bool = False
    last: bytes = b"data: [DONE]\n\n"

    def whole(self, choices: Sequence[Choice], used: Usage) -> Shape:
        """The answer that is there."""
        return shapes.chat(self.heading, choices, used)

    def begin(self, choices: int) -> list[Shape]:
        """A chunk without words for each choice."""
        return [shapes.chat_begins(self.heading, index) for index in range(choices)]

    def parts(self, event: Event) -> list[Shape]:
        """What happened."""
        match event:
            case Said():
                return [shapes.chat_says(self.heading, event.index, event.text, event.likely)]
            case Called():
                ids = call_ids(len(event.calls))
                return [shapes.chat_calls(self.heading, event.index, event.calls, ids)]
            case Done():
                return [shapes.chat_ends(self.heading, event.index, event.why, event.finished.crossed)]
            case _:
                return []

    def end(self, used: Usage) -> list[Shape]:
        """The counts of tokens, for who asked for them."""
        return [shapes.chat_used(self.heading, used)] if self.wanted.usage_at_end else []

    def failed(self, problem: ApiError) -> Shape:
        """The error as an event."""
        return shapes.error(problem)


@dataclass(frozen=True, slots=True)
class CompletionForm:
    """OpenAI's completions. `before`: what comes before each answer, where that was asked for."""

    heading: Heading
    wanted: Wanted
    before: Sequence[str]
    has_names: bool = False
    last: bytes = b"data: [DONE]\n\n"

    def whole(self, choices: Sequence[Choice], used: Usage) -> Shape:
        """The answer that is there."""
        for choice in choices:
            choice.text = self.before[choice.index] + choice.text
        return shapes.completion(self.heading, choices, used)

    def begin(self, choices: int) -> list[Shape]:
        """What comes before each answer."""
        return [
            shapes.completion_says(self.heading, index, self.before[index], ())
            for index in range(choices)
            if self.before[index]
        ]

    def parts(self, event: Event) -> list[Shape]:
        """What happened."""
        match event:
            case Said():
                return [shapes.completion_says(self.heading, event.index, event.text, event.likely)]
            case Done():
                crossed = event.finished.crossed
                return [shapes.completion_says(self.heading, event.index, "", (), event.why, crossed)]
            case _:
                return []

    def end(self, used: Usage) -> list[Shape]:
        """The counts of tokens, for who asked for them."""
        return [shapes.completion_used(self.heading, used)] if self.wanted.usage_at_end else []

    def failed(self, problem: ApiError) -> Shape:
        """The error as an event."""
        return shapes.error(problem)
