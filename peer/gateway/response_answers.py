"""Answers in the form of OpenAI's Responses API, whole or as its events."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from peer.errors import ApiError
from peer.gateway.answers import Called, Done, Event, Said
from peer.gateway.response_requests import Echo
from peer.gateway.responses import Choice, Likely, Shape, Usage, chat_likely
from peer.gateway.tool_calls import ToolCall


@dataclass(frozen=True, slots=True)
class ResponseAnswer:
    """What every part of one answer has. `created`: Unix seconds."""

    id: str
    created: int
    model: str
    echo: Echo

    @classmethod
    def new(cls, created: int, model: str, echo: Echo) -> ResponseAnswer:
        """One with an id of its own."""
        return cls(f"resp_{os.urandom(24).hex()}", created, model, echo)

    def of(self, status: str, output: Sequence[Shape], used: Usage | None = None, why: str = "") -> Shape:
        """The response object."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if why == "length" else None,
            "model": self.model,
            "output": list(output),
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "truncation": "disabled",
            "metadata": {},
            "usage": None if used is None else _usage(used),
            **self.echo.fields,
        }

    def whole(self, choice: Choice, used: Usage) -> Shape:
        """The answer that is there."""
        calls = [_call(call, id) for call, id in zip(choice.calls, choice.call_ids, strict=True)]
        words = [] if calls and not choice.text else [self._words(choice.text, choice.likely, choice.why)]
        return self.of(_status(choice.why), [*words, *calls], used, choice.why)

    def _words(self, text: str, likely: Sequence[Likely], why: str) -> Shape:
        part = self.part(text, likely)
        return _message(f"msg_{os.urandom(24).hex()}", _status(why), [part])

    def part(self, text: str, likely: Sequence[Likely]) -> Shape:
        """The words of an answer."""
        shown = self.likely(likely)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": shown}

    def likely(self, likely: Sequence[Likely]) -> list[Shape]:
        """Probabilities of tokens, where they were asked for."""
        found: list[Shape] = chat_likely(likely)["content"] if self.echo.with_likely else []
        return found


def _status(why: str) -> str:
    return "incomplete" if why == "length" else "completed"


def _message(id: str, status: str, content: Sequence[Shape]) -> Shape:
    return {"type": "message", "id": id, "status": status, "role": "assistant", "content": list(content)}


def _call(call: ToolCall, id: str, *, arguments: str | None = None, status: str = "completed") -> Shape:
    said, id = call.arguments if arguments is None else arguments, id.removeprefix("call_")
    return {
        "type": "function_call",
        "id": f"fc_{id}",
        "call_id": f"call_{id}",
        "name": call.name,
        "arguments": said,
        "status": status,
    }


def _usage(used: Usage) -> Shape:
    return {
        "input_tokens": used.prompt,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": 0},
        "output_tokens": used.answer,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.prompt + used.answer,
    }


class ResponseForm:
    """One answer. `call_ids` makes ids of so many calls."""

    has_names = True
    last = b""

    def __init__(self, answer: ResponseAnswer, call_ids: Callable[[int], Sequence[str]]) -> None:
        self._answer = answer
        self._call_ids = call_ids
        self._number = 0
        self._output: list[Shape] = []
        self._words_id = ""  # of the message that is being said
        self._text = ""
        self._likely: list[Likely] = []
        self._why = ""

    def whole(self, choices: Sequence[Choice], used: Usage) -> Shape:
        """The answer that is there."""
        return self._answer.whole(choices[0], used)

    def begin(self, _: int) -> list[Shape]:
        """What comes before the first word."""
        begun = self._answer.of("in_progress", [])
        return [
            self._event("response.created", response=begun),
            self._event("response.in_progress", response=begun),
        ]

    def parts(self, event: Event) -> list[Shape]:
        """The events of what happened."""
        match event:
            case Said():
                return self._said(event)
            case Called():
                made = self._closed("") if self._words_id else []
                for call, id in zip(event.calls, self._call_ids(len(event.calls)), strict=True):
                    made += self._called(call, id)
                return made
            case Done():
                self._why = event.why
                made = [] if self._words_id or self._output else self._opened()
                return made + (self._closed(event.why) if self._words_id else [])
            case _:
                return []

    def end(self, used: Usage) -> list[Shape]:
        """What comes after the last word."""
        status = _status(self._why)
        whole = self._answer.of(status, self._output, used, self._why)
        return [self._event(f"response.{status}", response=whole)]

    def failed(self, problem: ApiError) -> Shape:
        """What ends the stream in place of that."""
        return self._event("error", code=problem.code, message=str(problem), param=problem.param)

    def _event(self, kind: str, **more: Any) -> Shape:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **more}

    @property
    def _place(self) -> Shape:
        return {"item_id": self._words_id, "output_index": len(self._output), "content_index": 0}

    def _opened(self) -> list[Shape]:
        self._words_id = f"msg_{os.urandom(24).hex()}"
        item = _message(self._words_id, "in_progress", [])
        return [
            self._event("response.output_item.added", output_index=len(self._output), item=item),
            self._event("response.content_part.added", part=self._answer.part("", ()), **self._place),
        ]

    def _said(self, event: Said) -> list[Shape]:
        made = [] if self._words_id else self._opened()
        self._text += event.text
        self._likely += event.likely
        shown = self._answer.likely(event.likely)
        made.append(
            self._event("response.output_text.delta", delta=event.text, logprobs=shown, **self._place)
        )
        return made

    def _closed(self, why: str) -> list[Shape]:
        part = self._answer.part(self._text, self._likely)
        item = _message(self._words_id, _status(why), [part])
        words = {"text": self._text, "logprobs": part["logprobs"]}
        made = [
            self._event("response.output_text.done", **words, **self._place),
            self._event("response.content_part.done", part=part, **self._place),
            self._event("response.output_item.done", output_index=len(self._output), item=item),
        ]
        self._output.append(item)
        self._words_id, self._text, self._likely = "", "", []
        return made

    def _called(self, call: ToolCall, id: str) -> list[Shape]:
        item, at = _call(call, id), len(self._output)
        begun = _call(call, id, arguments="", status="in_progress")
        place = {"item_id": item["id"], "output_index": at}
        said = call.arguments
        self._output.append(item)
        return [
            self._event("response.output_item.added", output_index=at, item=begun),
            self._event("response.function_call_arguments.delta", delta=said, **place),
            self._event("response.function_call_arguments.done", arguments=said, name=call.name, **place),
            self._event("response.output_item.done", output_index=at, item=item),
        ]
