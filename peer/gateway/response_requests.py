"""What a request of OpenAI's Responses API asks for, as chat/completions has it. Pure.

Nothing of an answer is kept: a program sends the whole conversation each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from peer.errors import ApiError
from peer.gateway.chat_requests import fields_of, known_only
from peer.gateway.responses import Shape

_KNOWN: Final = frozenset(
    [
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "model",
        "parallel_tool_calls",
        "reasoning",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
    ]
)
_AS_THEY_ARE: Final = ("model", "parallel_tool_calls", "stream", "temperature", "top_p")
_LOGPROBS: Final = "message.output_text.logprobs"
_WITHOUT_EFFECT: Final = (
    _LOGPROBS,
    "reasoning.encrypted_content",
)  # of `include`: there is none of the second
_INPUT_TEXTS: Final = ("input_text", "output_text", "text", "refusal")


@dataclass(frozen=True, slots=True)
class Echo:
    """What an answer says again of its request."""

    fields: Mapping[str, Any]
    with_likely: bool


def chat_body(body: object) -> tuple[dict[str, Any], Echo]:
    """The same request as chat/completions has it. Raises ApiError for what cannot be honoured."""
    fields = fields_of(body, _KNOWN)
    _check(fields)
    made: dict[str, Any] = {name: fields[name] for name in _AS_THEY_ARE if name in fields}
    made["messages"] = [*_instructions(fields.get("instructions")), *_turns(fields.get("input"))]
    if "max_output_tokens" in fields:
        made["max_completion_tokens"] = fields["max_output_tokens"]
    if "tools" in fields:
        made["tools"] = _tools(fields["tools"])
    if "tool_choice" in fields:
        made["tool_choice"] = _tool_choice(fields["tool_choice"])
    if (form := _format(fields.get("text"))) is not None:
        made["response_format"] = form
    likely = _LOGPROBS in fields.get("include", ()) or bool(fields.get("top_logprobs"))
    if likely:
        made |= {"logprobs": True, "top_logprobs": fields.get("top_logprobs", 0)}
    if "stream_options" in fields:
        options = fields["stream_options"]
        if not isinstance(options, dict):
            raise ApiError("stream_options must be an object", param="stream_options")
        known_only(options, ("include_obfuscation",), "stream_options")
    return made, Echo(_echoed(fields), likely)


def _check(fields: Mapping[str, Any]) -> None:
    """Raises ApiError for a setting that asks for what no model here does."""
    reasoning = fields.get("reasoning")
    if reasoning is not None:
        if not isinstance(reasoning, dict):
            raise ApiError("reasoning must be an object", param="reasoning")
        asks = {name: value for name, value in reasoning.items() if value not in (None, "none")}
        known_only(asks, (), "reasoning")
    if fields.get("truncation", "disabled") != "disabled":
        raise ApiError(
            "truncation is not supported here but as disabled: no part of a conversation is left out in silence",
            param="truncation",
            code="unsupported_parameter",
        )
    include = fields.get("include", [])
    if not isinstance(include, list) or any(one not in _WITHOUT_EFFECT for one in include):
        raise ApiError(f"include may have {' and '.join(_WITHOUT_EFFECT)}", param="include")


def _echoed(fields: Mapping[str, Any]) -> Shape:
    text = fields.get("text") or {}
    return {
        "instructions": fields.get("instructions"),
        "max_output_tokens": fields.get("max_output_tokens"),
        "parallel_tool_calls": fields.get("parallel_tool_calls", True),
        "temperature": fields.get("temperature"),
        "text": {"format": text.get("format") or {"type": "text"}},
        "tool_choice": fields.get("tool_choice", "auto"),
        "tools": fields.get("tools", []),
        "top_p": fields.get("top_p"),
    }


def _instructions(given: object) -> list[Shape]:
    if given is None:
        return []
    if not isinstance(given, str):
        raise ApiError("instructions must be text", param="instructions")
    return [{"role": "system", "content": given}]


def _turns(given: object) -> list[Shape]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise ApiError("input must be text, or a list of items", param="input")
    made: list[Shape] = []
    for place, item in enumerate(given):
        turn = _turn(item, f"input[{place}]")
        if turn is None:
            continue
        if turn.get("tool_calls") and made and made[-1]["role"] == "assistant":  # calls of one answer
            made[-1]["tool_calls"] = [*made[-1].get("tool_calls", ()), *turn["tool_calls"]]
        else:
            made.append(turn)
    return made


def _turn(item: object, where: str) -> Shape | None:
    if not isinstance(item, dict):
        raise ApiError(f"{where} must be an object", param=where)
    match item.get("type", "message"):
        case "message":
            known_only(item, ("type", "role", "content", "id", "status", "phase"), where)
            return {"role": item.get("role"), "content": _content(item.get("content"), f"{where}.content")}
        case "function_call":
            known_only(item, ("type", "id", "call_id", "name", "arguments", "status", "namespace"), where)
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"type": "function", "id": str(item.get("call_id", "")), "function": function}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case "function_call_output":
            known_only(item, ("type", "id", "call_id", "output", "status"), where)
            said = _content(item.get("output"), f"{where}.output")
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": said}
        case "reasoning":  # sent back as another model gave it; no template reads it
            return None
        case kind:
            raise ApiError(
                f"{where}: items are message, function_call and function_call_output, got {str(kind)[:40]!r}",
                param=where,
            )


def _content(given: object, where: str) -> str | list[Shape]:
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise ApiError(f"{where} must be text, or a list of text parts", param=where)
    parts: list[Shape] = []
    for part in given:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "input_image":
            known_only(part, ("type", "image_url", "file_id", "detail"), where)
            if part.get("file_id") is not None:
                if part.get("image_url") is not None:
                    raise ApiError(f"{where}: image_url or file_id expected, got both", param=where)
                parts.append({"type": "file", "file": {"file_id": part["file_id"]}})
                continue
            parts.append({"type": "image_url", "image_url": {"url": part.get("image_url")}})
            continue
        name = "refusal" if kind == "refusal" else "text"
        if kind not in _INPUT_TEXTS or not isinstance(part.get(name), str):
            raise ApiError(f"{where}: this mesh reads text parts, got {str(kind)[:40]!r}", param=where)
        known_only(part, ("type", name, "annotations", "logprobs"), where)
        parts.append({"type": "text", "text": part[name]})
    if any(part["type"] != "text" for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def _tools(given: object) -> list[Shape]:
    if not isinstance(given, list):
        raise ApiError("tools must be a list", param="tools")
    made: list[Shape] = []
    for place, tool in enumerate(given):
        where = f"tools[{place}]"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            kind = tool.get("type") if isinstance(tool, dict) else tool
            raise ApiError(
                f"{where}: this mesh runs no tools of its own, got {str(kind)[:40]!r}", param=where
            )
        known_only(tool, ("type", "name", "description", "parameters", "strict"), where)
        function = {
            name: tool[name] for name in ("name", "description", "parameters") if tool.get(name) is not None
        }
        made.append({"type": "function", "function": function})
    return made


def _tool_choice(given: object) -> object:
    if isinstance(given, dict) and given.get("type") == "function":
        known_only(given, ("type", "name"), "tool_choice")
        return {"type": "function", "function": {"name": given.get("name")}}
    return given


def _format(text: object) -> Shape | None:
    if text is None:
        return None
    if not isinstance(text, dict):
        raise ApiError("text must be an object", param="text")
    known_only(text, ("format", "verbosity"), "text")
    match text.get("format"):
        case {"type": "json_schema", **named}:
            return {"type": "json_schema", "json_schema": named}
        case None:
            return None
        case dict(given):
            return given
        case _:
            raise ApiError("text.format must be an object", param="text.format")
