"""Decides how a model calls tools: which style its chat template speaks, and what is a call in its words. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from peer.errors import ApiError

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DECODER: Final = json.JSONDecoder()


class Style(Enum):
    """How a family of models writes calls."""

    TAGGED = "tagged"  # Hermes, Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    BARE = "bare"  # Llama 3: {"name": ..., "parameters": {...}}, alone
    LISTED = "listed"  # Mistral: [TOOL_CALLS] [{"name": ..., "arguments": {...}}]


OPENING: Final = {Style.TAGGED: "<tool_call>", Style.LISTED: "[TOOL_CALLS]", Style.BARE: "<|python_tag|>"}
CLOSING: Final = "</tool_call>"
_MARKS: Final = frozenset((*OPENING.values(), CLOSING, "[ARGS]", "[CALL_ID]"))


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `whole` is its description as templates read it."""

    name: str
    parameters: Mapping[str, Any]
    whole: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. `arguments` is the text of a JSON object."""

    name: str
    arguments: str


def tool_of(given: object, where: str) -> Tool:
    """One entry of a request's `tools`. Raises ApiError."""
    function = given.get("function") if isinstance(given, dict) and given.get("type") == "function" else None
    if not isinstance(function, dict):
        raise ApiError(f'{where} must be {{"type": "function", "function": {{...}}}}', param=where)
    name, parameters = function.get("name"), function.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ApiError(f"{where}.function.name must be 1 to 64 letters, digits, _, . or -", param=where)
    if not isinstance(parameters, dict):
        raise ApiError(f"{where}.function.parameters must be a JSON schema", param=where)
    return Tool(name, parameters, {"type": "function", "function": {**function, "parameters": parameters}})


def style_of(template: str) -> Style | None:
    """How a chat template that knows tools has calls written; None where it tells of none that can be read here."""
    if "<tool_call>" in template:
        return Style.TAGGED
    if "[TOOL_CALLS]" in template:
        return Style.LISTED
    if "<|python_tag|>" in template or '"parameters":' in template:
        return Style.BARE
    return None


def arguments_of(arguments: object) -> dict[str, Any] | None:
    """The arguments of a call as an object; None when they are none."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, dict) else None


def with_mark(style: Style, text: str, control: str) -> str:
    """An answer's text with the control token behind it, where that is a mark of calls: `text` itself where not."""
    opens = control == OPENING[style]
    return text + control if opens or (control in _MARKS and OPENING[style] in text) else text


def held_from(style: Style, text: str) -> int:
    """From which character on `text` may be a call, and must not be shown as words yet; its length where nothing is."""
    opening = OPENING[style]
    at = text.find(opening)
    if at >= 0:
        return at
    if style is not Style.TAGGED and text.lstrip()[:1] in ("{", "[", ""):
        return 0
    for length in range(min(len(opening) - 1, len(text)), 0, -1):
        if text.endswith(opening[:length]):
            return len(text) - length
    return len(text)


def parsed(style: Style, text: str, names: frozenset[str]) -> tuple[str, tuple[ToolCall, ...]]:
    """The words and the calls in a whole answer. What is no call of a known name stays words."""
    start = held_from(style, text)
    calls = _calls(style, text[start:], names)
    return (text[:start].rstrip(), calls) if calls else (text, ())


def _calls(style: Style, text: str, names: frozenset[str]) -> tuple[ToolCall, ...]:
    text = text.strip()
    found: list[ToolCall] = []
    while text:
        for mark in (OPENING[style], CLOSING, ";", ","):
            if text.startswith(mark):
                text = text[len(mark) :].lstrip()
                break
        else:
            try:
                value, end = _DECODER.raw_decode(text)
            except (ValueError, RecursionError):
                return ()
            for one in value if isinstance(value, list) else [value]:
                call = _call(one, names)
                if call is None:
                    return ()
                found.append(call)
            text = text[end:].lstrip()
    return tuple(found)


def _call(value: object, names: frozenset[str]) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    held = value.get("function") if isinstance(value.get("function"), dict) else value
    assert isinstance(held, dict)
    name = held.get("name")
    arguments = arguments_of(held.get("arguments", held.get("parameters", {})))
    if not isinstance(name, str) or name not in names or arguments is None:
        return None
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))
