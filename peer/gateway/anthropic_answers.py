"""Answers in the form of Anthropic's Messages API, whole or as its events."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from peer.errors import ApiError
from peer.gateway.answers import Called, Done, Event, Said
from peer.gateway.responses import Choice, Shape, Usage
from peer.gateway.tool_calls import ToolCall

_REASONS: Final = {
    "end": "end_turn",
    "stop": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}
_KINDS: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def message(model: str, choice: Choice, used: Usage) -> Shape:
    """A whole answer."""
    content: list[Shape] = [{"type": "text", "text": choice.text}] if choice.text or not choice.calls else []
    content += [
        _tool_use(call, id) | {"input": json.loads(call.arguments)}
        for call, id in zip(choice.calls, choice.call_ids, strict=True)
    ]
    return _empty(model) | {"content": content, "usage": _usage(used)} | _ended(choice.why, choice.stop)


def _empty(model: str) -> Shape:
    return {
        "id": f"msg_{os.urandom(12).hex()}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _tool_use(call: ToolCall, id: str) -> Shape:
    return {"type": "tool_use", "id": f"toolu_{id.removeprefix('call_')}", "name": call.name, "input": {}}


def _ended(why: str, stop: str) -> Shape:
    return {"stop_reason": _REASONS[why], "stop_sequence": stop or None}


def _usage(used: Usage) -> Shape:
    return {
        "input_tokens": used.prompt - used.cached,
        "cache_read_input_tokens": used.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": used.answer,
    }


def error(problem: ApiError) -> Shape:
    """The error object of a refusal."""
    kind = _KINDS.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": str(problem)}}


def models(found: Sequence[tuple[str, str]]) -> Shape:
    """The list of models: (name, when, as RFC 3339 says it) of each."""
    data = [{"type": "model", "id": name, "display_name": name, "created_at": when} for name, when in found]
    ids = [name for name, _ in found]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return {"data": data, "has_more": False, "first_id": first, "last_id": last}


class MessageForm:
    """One answer. `call_ids` makes ids of so many calls."""

    has_names = True
    last = b""

    def __init__(self, model: str, prompt_tokens: int, call_ids: Callable[[int], Sequence[str]]) -> None:
        self._model = model
        self._prompt = prompt_tokens
        self._call_ids = call_ids
        self._blocks = 0
        self._is_open = False
        self._end: Shape = {}

    def whole(self, choices: Sequence[Choice], used: Usage) -> Shape:
        """The answer that is there."""
        return message(self._model, choices[0], used)

    def begin(self, _: int) -> list[Shape]:
        """What comes before the first word."""
        used = _usage(Usage(self._prompt, 0, 0))
        return [{"type": "message_start", "message": _empty(self._model) | {"usage": used}}]

    def parts(self, event: Event) -> list[Shape]:
        """The events of what happened."""
        match event:
            case Said() if event.text:
                opened = [] if self._is_open else [self._start({"type": "text", "text": ""})]
                self._is_open = True
                return [*opened, self._delta({"type": "text_delta", "text": event.text})]
            case Called():
                made = self._closed()
                for call, id in zip(event.calls, self._call_ids(len(event.calls)), strict=True):
                    made.append(self._start(_tool_use(call, id)))
                    made.append(self._delta({"type": "input_json_delta", "partial_json": call.arguments}))
                    self._is_open = True
                    made += self._closed()
                return made
            case Done():
                self._end = _ended(event.why, event.finished.stop)
                return self._closed()
            case _:
                return []

    def end(self, used: Usage) -> list[Shape]:
        """What comes after the last word."""
        return [
            {"type": "message_delta", "delta": self._end, "usage": _usage(used)},
            {"type": "message_stop"},
        ]

    @staticmethod
    def failed(problem: ApiError) -> Shape:
        """What ends the stream in place of that."""
        return error(problem)

    def _start(self, block: Shape) -> Shape:
        return {"type": "content_block_start", "index": self._blocks, "content_block": block}

    def _delta(self, delta: Shape) -> Shape:
        return {"type": "content_block_delta", "index": self._blocks, "delta": delta}

    def _closed(self) -> list[Shape]:
        if not self._is_open:
            return []
        self._is_open = False
        self._blocks += 1
        return [{"type": "content_block_stop", "index": self._blocks - 1}]
