"""Decides what a request of another program asks for: JSON in the form of OpenAI's API, field by field. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from peer.errors import ApiError, BadPicture, BadSampling
from peer.gateway.tool_calls import Tool, arguments_of, tool_of
from peer.gateway.uploads.file_requests import Uploaded
from peer.model.picture_parts import PICTURE, check_count, from_data_url
from peer.session.sampling import MAX_SEED, MILLION, AskedSampling, Sampling, sampling_for
from peer.session.steering import MAX_ALTERNATIVES, MAX_BIASES
from planner.model.sampling_defaults import SamplingDefaults

MAX_STOP_STRINGS: Final = 16
MAX_STOP_CHARACTERS: Final = 256
MAX_CHOICES: Final = 16  # of one request
MAX_MESSAGES: Final = 4096
MAX_TOOLS: Final = 128
MAX_BIAS: Final = 100.0
MAX_PROMPTS: Final = 64  # of one completions request

# Fields that programs send and that change nothing here.
_WITHOUT_EFFECT: Final = frozenset(
    [
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
        "verbosity",
    ]
)
_SHARED: Final = frozenset(
    [
        "model",
        "n",
        "stream",
        "stream_options",
        "stop",
        "seed",
        "max_tokens",
        "temperature",
        "top_p",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "logprobs",
        "top_k",
        "min_p",
        "repetition_penalty",
    ]
)
_CHAT: Final = _SHARED | frozenset(
    [
        "messages",
        "max_completion_tokens",
        "top_logprobs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
    ]
)
_COMPLETION: Final = _SHARED | frozenset(["prompt", "echo", "suffix", "best_of"])
# Of a message; those that programs send back as they got them change nothing here.
_MESSAGE: Final = (
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "reasoning_content",
    "refusal",
    "annotations",
    "audio",
    "function_call",
    "provider_specific_fields",
)
_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

_T = TypeVar("_T")
Turn = dict[str, Any]  # a message as chat templates read it


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to answer. `alternatives` None: no probabilities; `seed` None: by chance."""

    model: str
    drawn: Sampling  # whatever its seed
    seed: int | None
    max_tokens: int | None
    stop: tuple[str, ...]
    choices: int
    stream: bool
    usage_at_end: bool
    alternatives: int | None
    bias: tuple[tuple[int, int], ...]  # (token, millionths to add to its logit)

    def sampling(self, seed: int) -> Sampling:
        """The settings of one answer."""
        return replace(self.drawn, seed=seed)


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """What the answer's text must be: any JSON object (`schema` None), or what the schema allows."""

    schema: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """`required`: the answer must be a call; of `forced`, where that names a tool."""

    wanted: Wanted
    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...]
    required: bool
    forced: str | None
    parallel: bool
    format: ResponseFormat | None


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Prompts as text or token ids. `echo`: the prompt comes before its answer."""

    wanted: Wanted
    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool


def chat_request(body: object, defaults: SamplingDefaults) -> ChatRequest:
    """What POST /v1/chat/completions asks for; settings that it leaves out are `defaults`. Raises ApiError."""
    fields = fields_of(body, _CHAT)
    given = _value(fields, "logprobs", bool, False)
    most = whole(fields, "top_logprobs", 0, MAX_ALTERNATIVES)
    if most is not None and not given:
        raise ApiError("top_logprobs needs logprobs: true", param="top_logprobs")
    wanted = _wanted(fields, defaults, (most or 0) if given else None)
    tools = tuple(_tools(fields))
    required, forced, none = _tool_choice(fields.get("tool_choice"), tools)
    return ChatRequest(
        wanted,
        tuple(_turns(fields.get("messages"))),
        () if none else tools,
        required,
        forced,
        _value(fields, "parallel_tool_calls", bool, True),
        _format(fields.get("response_format")),
    )


def completion_request(body: object, defaults: SamplingDefaults) -> CompletionRequest:
    """What POST /v1/completions asks for; settings that it leaves out are `defaults`. Raises ApiError."""
    fields = fields_of(body, _COMPLETION)
    wanted = _wanted(fields, defaults, whole(fields, "logprobs", 0, MAX_ALTERNATIVES))
    if fields.get("suffix"):
        raise ApiError("suffix is not supported: the models of this mesh only go on", param="suffix")
    best = whole(fields, "best_of", 1, MAX_CHOICES)
    if best is not None and best != wanted.choices:
        raise ApiError("best_of is not supported: ask for n answers and choose", param="best_of")
    return CompletionRequest(wanted, _prompts(fields.get("prompt")), _value(fields, "echo", bool, False))


def fields_of(body: object, known: frozenset[str]) -> Mapping[str, Any]:
    """The fields of a request that have a meaning here and are not null. Raises ApiError for others than `known`."""
    if not isinstance(body, dict):
        raise ApiError("expected a JSON object as the request's body")
    fields = {
        name: value for name, value in body.items() if value is not None and name not in _WITHOUT_EFFECT
    }
    for name in fields:
        if name not in known:
            raise ApiError(
                f"the parameter {name[:64]!r} is not supported here",
                param=name[:64],
                code="unsupported_parameter",
            )
    return fields


def known_only(given: object, known: Sequence[str], where: str) -> None:
    """Raises ApiError for a field of a nested object that is not `known`: none is ignored in silence."""
    assert isinstance(given, dict)
    for name, value in given.items():
        if value is not None and name not in known:
            raise ApiError(
                f"the parameter {f'{where}.{name}'[:100]!r} is not supported here",
                param=f"{where}.{name}"[:100],
                code="unsupported_parameter",
            )


def _wanted(fields: Mapping[str, Any], defaults: SamplingDefaults, alternatives: int | None) -> Wanted:
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise ApiError("expected the name of a model; GET /v1/models lists them", param="model")
    options = _value(fields, "stream_options", dict, {})
    known_only(options, ("include_usage", "include_obfuscation"), "stream_options")
    most = [whole(fields, name, 1, MAX_SEED) for name in ("max_completion_tokens", "max_tokens")]
    return Wanted(
        model=model,
        drawn=_drawn(fields, defaults),
        seed=_seed(fields),
        max_tokens=next((value for value in most if value is not None), None),
        stop=_stop(fields.get("stop")),
        choices=whole(fields, "n", 1, MAX_CHOICES) or 1,
        stream=_value(fields, "stream", bool, False),
        usage_at_end=options.get("include_usage") is True,
        alternatives=alternatives,
        bias=_bias(fields),
    )


def _drawn(fields: Mapping[str, Any], defaults: SamplingDefaults) -> Sampling:
    asked = AskedSampling(
        temperature=_number(fields, "temperature", 0.0, 2.0),
        top_k=whole(fields, "top_k", 0, 2**31 - 1),
        top_p=_number(fields, "top_p", 0.0, 1.0),
        min_p=_number(fields, "min_p", 0.0, 1.0),
        repetition_penalty=_number(fields, "repetition_penalty", 0.01, 100.0),
        frequency_penalty=_number(fields, "frequency_penalty", -2.0, 2.0),
        presence_penalty=_number(fields, "presence_penalty", -2.0, 2.0),
    )
    try:
        return sampling_for(defaults, asked)
    except BadSampling as error:
        raise ApiError(str(error)) from error


def _value(fields: Mapping[str, Any], name: str, kind: type[_T], default: _T) -> _T:
    value = fields.get(name, default)
    if not isinstance(value, kind):
        raise ApiError(f"{name} must be {_KINDS[kind]}", param=name)
    return value


_KINDS: Final[dict[type[Any], str]] = {bool: "true or false", dict: "an object", list: "a list", str: "text"}


def _number(fields: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    """A number from `low` to `high`, None where it is left out. Raises ApiError."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ApiError(f"{name} must be a number from {low:g} to {high:g}", param=name)
    return float(value)


def whole(fields: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    """A whole number from `low` to `high`, None where it is left out. Raises ApiError."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ApiError(f"{name} must be a whole number from {low} to {high}", param=name)
    return value


def _seed(fields: Mapping[str, Any]) -> int | None:
    """Any whole number of 64 bits, as OpenAI takes; folded into what travels here."""
    seed = whole(fields, "seed", -(2**63), 2**63 - 1)
    return None if seed is None else seed % (MAX_SEED + 1)


def _stop(stop: object) -> tuple[str, ...]:
    strings = (
        [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else [] if stop is None else [0]
    )
    if len(strings) > MAX_STOP_STRINGS or not all(
        isinstance(text, str) and 0 < len(text) <= MAX_STOP_CHARACTERS for text in strings
    ):
        raise ApiError(
            f"stop must be text, or up to {MAX_STOP_STRINGS} texts, of 1 to {MAX_STOP_CHARACTERS} characters",
            param="stop",
        )
    return tuple(strings)


def _bias(fields: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    given = _value(fields, "logit_bias", dict, {})
    found: list[tuple[int, int]] = []
    for name, value in given.items():
        fits = (
            not isinstance(value, bool) and isinstance(value, int | float) and -MAX_BIAS <= value <= MAX_BIAS
        )
        if not (name.isdecimal() and name.isascii() and len(name) < 10 and fits):
            raise ApiError(
                f"logit_bias must map token ids to numbers from {-MAX_BIAS:g} to {MAX_BIAS:g}",
                param="logit_bias",
            )
        found.append((int(name), round(value * MILLION)))
    if len(found) > MAX_BIASES:
        raise ApiError(f"logit_bias may name up to {MAX_BIASES} tokens", param="logit_bias")
    return tuple(sorted(dict(found).items()))


def _prompts(prompt: object) -> tuple[str | tuple[int, ...], ...]:
    match prompt:
        case str():
            return (prompt,)
        case [int(), *_]:
            return (_ids(prompt),)
        case [_, *_] if len(prompt) <= MAX_PROMPTS:
            return tuple(one if isinstance(one, str) else _ids(one) for one in prompt)
        case _:
            raise ApiError(
                f"prompt must be text, token ids, or a list of up to {MAX_PROMPTS} of either", param="prompt"
            )


def _ids(prompt: object) -> tuple[int, ...]:
    if not isinstance(prompt, list) or not all(type(one) is int and 0 <= one < 2**31 for one in prompt):
        raise ApiError("a prompt must be text or a list of token ids", param="prompt")
    return tuple(prompt)


# --- messages


def _turns(messages: object) -> Sequence[Turn]:
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_MESSAGES:
        raise ApiError(f"messages must be a list of 1 to {MAX_MESSAGES} messages", param="messages")
    return [_turn(message, f"messages[{place}]") for place, message in enumerate(messages)]


def _turn(message: object, where: str) -> Turn:
    if not isinstance(message, dict):
        raise ApiError(f"{where} must be an object", param=where)
    role = _ROLES.get(message.get("role", "")) if isinstance(message.get("role"), str) else None
    if role is None:
        raise ApiError(f"{where}.role must be one of {', '.join(_ROLES)}", param=f"{where}.role")
    known_only(message, _MESSAGE, where)
    calls = message.get("tool_calls") if role == "assistant" else None
    content = message.get("content")
    if content is None and role == "assistant":
        content = ""
    turn: Turn = {"role": role, "content": _content(content, f"{where}.content")}
    if role != "user" and not isinstance(turn["content"], str):
        raise ApiError(f"{where}.content: pictures are read in questions of a user", param=f"{where}.content")
    if calls:
        turn["tool_calls"] = _calls(calls, f"{where}.tool_calls")
    for name in ("name", "tool_call_id", "reasoning_content"):
        if isinstance(message.get(name), str):
            turn[name] = message[name]
    if role == "tool" and "tool_call_id" not in turn:
        raise ApiError(
            f"{where}.tool_call_id must name the call that this answers", param=f"{where}.tool_call_id"
        )
    return turn


def _content(content: object, where: str) -> str | list[Turn]:
    """A text; or where there are pictures, parts, each of them a text or the file of a picture."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError(f"{where} must be text, or a list of text parts", param=where)
    parts: list[Turn] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if (picture := _PICTURES.get(str(kind))) is not None:
            parts.append({"type": PICTURE, "file": picture(part, where), "where": where})
            continue
        if kind not in ("text", "refusal") or not isinstance(part.get(kind), str):
            raise ApiError(f"{where}: this mesh reads text parts only, no images or sound", param=where)
        known_only(part, ("type", kind, "cache_control", "annotations"), where)
        parts.append({"type": "text", "text": part[kind]})
    if any(part["type"] == PICTURE for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def _uploaded(part: Mapping[str, Any], where: str) -> Uploaded:
    """The file that a part names. Raises ApiError."""
    known_only(part, ("type", "file", "cache_control"), where)
    named = part.get("file")
    if not isinstance(named, dict) or not isinstance(named.get("file_id"), str):
        raise ApiError(f"{where}: file must be an object with the file_id of a picture", param=where)
    known_only(named, ("file_id", "filename"), f"{where}.file")
    return Uploaded(named["file_id"], where)


def _picture(part: Mapping[str, Any], where: str) -> bytes:
    """The file of a picture that a part holds. Raises ApiError, also for a URL of another server."""
    known_only(part, ("type", "image_url", "cache_control"), where)
    named = part.get("image_url")
    if not isinstance(named, dict) or not isinstance(named.get("url"), str):
        raise ApiError(f"{where}: image_url must be an object with a url", param=where)
    known_only(named, ("url", "detail"), f"{where}.image_url")
    try:
        return from_data_url(named["url"])
    except BadPicture as error:
        raise ApiError(f"{where}: {error}", param=where) from None


_PICTURES: Final[Mapping[str, Callable[[Mapping[str, Any], str], bytes | Uploaded]]] = {
    "image_url": _picture,
    "file": _uploaded,
}


def without_files(turns: Sequence[Turn], sees: bool) -> tuple[tuple[Turn, ...], tuple[bytes | Uploaded, ...]]:
    """The turns as chat templates read them, and the files of their pictures in order. Raises ApiError where the model
    `sees` none, or for too many.
    """
    files: list[bytes | Uploaded] = []
    made: list[Turn] = []
    for turn in turns:
        content = turn["content"]
        if isinstance(content, str):
            made.append(turn)
            continue
        for part in content:
            if part["type"] == PICTURE:
                if not sees:
                    where = part["where"]
                    raise ApiError(
                        f"{where}: this mesh reads text parts only, no images or sound", param=where
                    )
                files.append(part["file"])
        bare = [{"type": PICTURE} if part["type"] == PICTURE else part for part in content]
        made.append({**turn, "content": bare})
    try:
        check_count(files)
    except BadPicture as error:
        raise ApiError(str(error), param="messages") from None
    return tuple(made), tuple(files)


def _calls(calls: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise ApiError(f"{where} must be a list", param=where)
    found: list[dict[str, Any]] = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ApiError(f"{where}: each call has a function with a name", param=where)
        known_only(call, ("id", "type", "function", "index"), where)
        known_only(function, ("name", "arguments"), f"{where}.function")
        arguments = arguments_of(function.get("arguments"))
        if arguments is None:
            raise ApiError(f"{where}: arguments must be a JSON object, as text", param=where)
        held = {"name": function["name"], "arguments": arguments}
        found.append({"type": "function", "id": str(call.get("id", "")), "function": held})
    return found


def _tools(fields: Mapping[str, Any]) -> list[Tool]:
    given = _value(fields, "tools", list, [])
    if len(given) > MAX_TOOLS:
        raise ApiError(f"tools may be up to {MAX_TOOLS}", param="tools")
    tools = [tool_of(tool, f"tools[{place}]") for place, tool in enumerate(given)]
    for place, tool in enumerate(given):
        known_only(tool, ("type", "function"), f"tools[{place}]")
        known_only(
            tool["function"], ("name", "description", "parameters", "strict"), f"tools[{place}].function"
        )
    if len({tool.name for tool in tools}) < len(tools):
        raise ApiError("tools must have names of their own", param="tools")
    return tools


def _tool_choice(choice: object, tools: Sequence[Tool]) -> tuple[bool, str | None, bool]:
    """Whether a call is required, of which tool, and whether none may be made."""
    match choice:
        case None | "auto":
            return False, None, False
        case "none":
            return False, None, True
        case "required" if tools:
            return True, None, False
        case {"type": "function", "function": {"name": str(name)} as function} if any(
            tool.name == name for tool in tools
        ):
            known_only(choice, ("type", "function"), "tool_choice")
            known_only(function, ("name",), "tool_choice.function")
            return True, name, False
        case _:
            raise ApiError(
                'tool_choice must be "auto", "none", "required", or name a function that is among tools',
                param="tool_choice",
            )


def _format(given: object) -> ResponseFormat | None:
    where = "response_format"
    match given:
        case None:
            return None
        case {"type": "text"}:
            known_only(given, ("type",), where)
            return None
        case {"type": "json_object", "schema": dict(schema)}:  # as other servers take it
            known_only(given, ("type", "schema"), where)
            return ResponseFormat(schema)
        case {"type": "json_object"}:
            known_only(given, ("type",), where)
            return ResponseFormat(None)
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)} as named}:
            known_only(given, ("type", "json_schema"), where)
            known_only(named, ("name", "description", "schema", "strict"), f"{where}.json_schema")
            return ResponseFormat(schema)
        case _:
            raise ApiError(
                'response_format must be {"type": "text"}, {"type": "json_object"}, or '
                '{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}',
                param="response_format",
            )
