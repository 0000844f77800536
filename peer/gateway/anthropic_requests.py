"""What a request of Anthropic's Messages API asks for, as OpenAI's chat/completions has it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from peer.errors import ApiError
from peer.gateway.chat_requests import MAX_STOP_CHARACTERS, MAX_STOP_STRINGS, fields_of, known_only
from peer.gateway.responses import Shape

_KNOWN: Final = frozenset(
    [
        "max_tokens",
        "messages",
        "model",
        "output_config",
        "output_format",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
    ]
)
_AS_THEY_ARE: Final = ("model", "max_tokens", "stream", "temperature", "top_k", "top_p")
_WITHOUT_EFFECT: Final = frozenset(["cache_control", "diagnostics", "user_profile_id", "workspace_id"])
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def chat_body(body: object, *, counted: bool = False) -> dict[str, Any]:
    """The same request as OpenAI's chat/completions has it. `counted`: its tokens are only counted.

    Raises ApiError for what cannot be honoured.
    """
    fields = fields_of(body, _KNOWN | _WITHOUT_EFFECT)
    if "max_tokens" not in fields and not counted:
        raise ApiError("max_tokens must say how long the answer may be, in tokens", param="max_tokens")
    made: dict[str, Any] = {name: fields[name] for name in _AS_THEY_ARE if name in fields}
    made["messages"] = [*_system(fields.get("system")), *_messages(fields.get("messages"))]
    if "stop_sequences" in fields:
        made["stop"] = _stop(fields["stop_sequences"])
    if "tools" in fields:
        made["tools"] = _tools(fields["tools"])
    if "tool_choice" in fields:
        made |= _tool_choice(fields["tool_choice"])
    _check_thinking(fields.get("thinking"))
    form = _format(fields)
    return made if form is None else made | {"response_format": form}


def _system(given: object) -> list[Shape]:
    if given is None:
        return []
    return [{"role": "system", "content": "".join(_texts(given, "system"))}]


def _texts(given: object, where: str) -> list[str]:
    """The texts of a content of texts alone."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        raise ApiError(f"{where} must be text, or a list of text blocks", param=where)
    return [_text(block, f"{where}[{place}]") for place, block in enumerate(given)]


def _text(block: object, where: str) -> str:
    if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
        kind = block.get("type") if isinstance(block, dict) else None
        raise ApiError(f"{where}: this mesh reads text blocks, got {str(kind)[:40]!r}", param=where)
    known_only(block, ("type", "text", "cache_control", "citations"), where)
    text: str = block["text"]
    return text


def _messages(given: object) -> list[Shape]:
    """The turns; those of one role after another are one, as the API has it."""
    if not isinstance(given, list) or not given:
        raise ApiError("messages must be a list of messages", param="messages")
    made: list[Shape] = []
    for place, message in enumerate(given):
        where = f"messages[{place}]"
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            raise ApiError(f"{where}.role must be user or assistant", param=f"{where}.role")
        known_only(message, ("role", "content"), where)
        turns = _user if message["role"] == "user" else _assistant
        for turn in turns(message.get("content"), f"{where}.content"):
            if made and made[-1]["role"] == turn["role"] != "tool":
                made[-1] = _joined(made[-1], turn)
            else:
                made.append(turn)
    if made[-1]["role"] == "assistant":
        raise ApiError(
            "the last message must be the user's: answers that begin with given words are not supported here",
            param="messages",
        )
    return made


def _joined(first: Shape, second: Shape) -> Shape:
    both = [text for text in (first["content"], second["content"]) if text]
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    if all(isinstance(content, str) for content in both):
        content: object = "\n\n".join(both)
    else:
        between = [{"type": "text", "text": "\n\n"}] if len(both) > 1 else []
        content = [part for parts in (_parts(both[0]), between, *map(_parts, both[1:])) for part in parts]
    return first | {"content": content} | ({"tool_calls": calls} if calls else {})


def _parts(content: str | list[Shape]) -> list[Shape]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _picture(block: Mapping[str, Any], where: str) -> Shape:
    """The picture of a block, as chat completions have it. Raises ApiError."""
    known_only(block, ("type", "source", "cache_control"), where)
    match block.get("source"):
        case {"type": "base64", "media_type": str(media), "data": str(data)} if media.startswith("image/"):
            url = f"data:{media};base64,{data}"
        case {"type": "file", "file_id": str(given)}:
            return {"type": "file", "file": {"file_id": given}}
        case {"type": "url", "url": str(given)}:
            url = given  # of which the reader says that nothing is fetched
        case _:
            raise ApiError(
                f"{where}.source: the bytes of a picture in base64, or the id of one in /v1/files expected",
                param=f"{where}.source",
            )
    return {"type": "image_url", "image_url": {"url": url}}


def _blocks(content: object, where: str) -> list[tuple[Mapping[str, Any], str]]:
    if isinstance(content, str):
        return [({"type": "text", "text": content}, where)]
    if not isinstance(content, list):
        raise ApiError(f"{where} must be text, or a list of blocks", param=where)
    found: list[tuple[Mapping[str, Any], str]] = []
    for place, block in enumerate(content):
        if not isinstance(block, dict):
            raise ApiError(f"{where}[{place}] must be an object", param=where)
        found.append((block, f"{where}[{place}]"))
    return found


def _user(content: object, where: str) -> list[Shape]:
    results: list[Shape] = []
    parts: list[Shape] = []
    for block, here in _blocks(content, where):
        if block.get("type") == "image":
            parts.append(_picture(block, here))
            continue
        if block.get("type") != "tool_result":
            parts.append({"type": "text", "text": _text(block, here)})
            continue
        known_only(block, ("type", "tool_use_id", "content", "is_error", "cache_control"), here)
        if not isinstance(block.get("tool_use_id"), str):
            raise ApiError(f"{here}.tool_use_id must name the call that this answers", param=here)
        said = "\n".join(_texts(block.get("content") or "", f"{here}.content"))
        failed = "The call failed: " if block.get("is_error") is True else ""
        results.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": failed + said})
    if parts or not results:
        sees = any(part["type"] != "text" for part in parts)
        asked: object = parts if sees else "".join(part["text"] for part in parts)
        results.append({"role": "user", "content": asked})
    return results


def _assistant(content: object, where: str) -> list[Shape]:
    texts: list[str] = []
    calls: list[Shape] = []
    for block, here in _blocks(content, where):
        match block.get("type"):
            case "thinking" | "redacted_thinking":  # sent back as another model gave it; no template reads it
                continue
            case "tool_use":
                known_only(block, ("type", "id", "name", "input", "cache_control", "caller"), here)
                if not isinstance(block.get("name"), str) or not isinstance(block.get("input"), dict):
                    raise ApiError(f"{here}: a call has a name and an input, which is an object", param=here)
                function = {
                    "name": block["name"],
                    "arguments": json.dumps(block["input"], ensure_ascii=False),
                }
                calls.append({"type": "function", "id": str(block.get("id", "")), "function": function})
            case _:
                texts.append(_text(block, here))
    turn: Shape = {"role": "assistant", "content": "".join(texts)}
    return [turn | ({"tool_calls": calls} if calls else {})]


def _stop(given: object) -> list[str]:
    if (
        not isinstance(given, list)
        or len(given) > MAX_STOP_STRINGS
        or not all(isinstance(text, str) and 0 < len(text) <= MAX_STOP_CHARACTERS for text in given)
    ):
        raise ApiError(
            f"stop_sequences must be up to {MAX_STOP_STRINGS} texts of 1 to {MAX_STOP_CHARACTERS} characters",
            param="stop_sequences",
        )
    return given


def _tools(given: object) -> list[Shape]:
    if not isinstance(given, list):
        raise ApiError("tools must be a list", param="tools")
    made: list[Shape] = []
    for place, tool in enumerate(given):
        where = f"tools[{place}]"
        if not isinstance(tool, dict) or tool.get("type", "custom") not in ("custom", None):
            kind = tool.get("type") if isinstance(tool, dict) else tool
            raise ApiError(
                f"{where}: this mesh runs no tools of its own, got {str(kind)[:40]!r}", param=where
            )
        known_only(tool, ("type", "name", "description", "input_schema", "strict", "cache_control"), where)
        if not isinstance(tool.get("input_schema"), dict):
            raise ApiError(f"{where}.input_schema must be a JSON schema", param=f"{where}.input_schema")
        function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
        if isinstance(tool.get("description"), str):
            function["description"] = tool["description"]
        made.append({"type": "function", "function": function})
    return made


def _tool_choice(given: object) -> Shape:
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not (kind in _CHOICES or kind == "tool"):
        raise ApiError('tool_choice must have the type "auto", "any", "tool" or "none"', param="tool_choice")
    known_only(given, ("type", "name", "disable_parallel_tool_use"), "tool_choice")
    choice = _CHOICES.get(str(kind), {"type": "function", "function": {"name": given.get("name")}})
    return {"tool_choice": choice, "parallel_tool_calls": given.get("disable_parallel_tool_use") is not True}


def _check_thinking(given: object) -> None:
    if given is not None and not (isinstance(given, dict) and given.get("type") == "disabled"):
        raise ApiError(
            "thinking is not supported here but as disabled", param="thinking", code="unsupported_parameter"
        )


def _format(fields: Mapping[str, Any]) -> Shape | None:
    config, where = fields.get("output_config"), "output_config"
    if config is not None:
        if not isinstance(config, dict):
            raise ApiError("output_config must be an object", param=where)
        known_only(config, ("format",), where)
        given: object = config.get("format")
    else:
        given, where = fields.get("output_format"), "output_format"
    match given:
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        case _:
            raise ApiError(f'{where} must be {{"type": "json_schema", "schema": {{...}}}}', param=where)
