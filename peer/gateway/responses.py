"""Decides what the gateway's answers look like: objects in the form of OpenAI's API, ready to become JSON. Pure."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from peer.errors import ApiError
from peer.gateway.tool_calls import ToolCall
from peer.origin.arithmetic_changes import Crossing
from planner.model.sampling_defaults import SamplingDefaults

Shape = dict[str, Any]

_REASONS: Final = {"end": "stop", "stop": "stop", "length": "length", "tool_calls": "tool_calls"}


@dataclass(frozen=True, slots=True)
class Likely:
    """A token and the natural logarithm of its probability; `others` are the likeliest in its place, best first.

    `token` is its id, and the only name that no other token has. `text`: U+FFFD for half a character. `utf8`: None for
    control tokens, which are no part of the text; `text` is their name.
    """

    token: int
    text: str
    utf8: bytes | None
    logprob: float
    others: tuple[Likely, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What one or more answers took, in tokens."""

    prompt: int
    cached: int
    answer: int

    def __add__(self, other: Usage) -> Usage:
        """Of answers to two prompts."""
        return Usage(self.prompt + other.prompt, self.cached + other.cached, self.answer + other.answer)

    def beside(self, other: Usage) -> Usage:
        """Of several answers to one prompt: the prompt counts once, as in OpenAI's API."""
        return Usage(
            max(self.prompt, other.prompt), max(self.cached, other.cached), self.answer + other.answer
        )


class Used:
    """What a request took: `choices` answers to each prompt, numbered one prompt after the other."""

    def __init__(self, choices: int) -> None:
        self._choices = choices
        self._of_prompt: dict[int, Usage] = {}

    def add(self, index: int, usage: Usage) -> None:
        """Answer number `index` is at its end."""
        prompt = index // self._choices
        known = self._of_prompt.get(prompt)
        self._of_prompt[prompt] = usage if known is None else known.beside(usage)

    @property
    def all(self) -> Usage:
        """Returns the tokens of all prompts and answers together."""
        return sum(self._of_prompt.values(), Usage(0, 0, 0))


@dataclass(slots=True)
class Choice:
    """One answer, as far as it has come. `why`: as peer.origin.answer_stream.Finished says, or "tool_calls"; ""
    while it runs.
    """

    index: int
    text: str = ""
    likely: list[Likely] = field(default_factory=list)
    calls: tuple[ToolCall, ...] = ()
    call_ids: tuple[str, ...] = ()
    why: str = ""
    crossed: tuple[Crossing, ...] = ()
    stop: str = ""  # the stop string that ended it


@dataclass(frozen=True, slots=True)
class Heading:
    """What every part of one answer begins with."""

    id: str
    created: int  # Unix seconds
    model: str
    fingerprint: str
    with_likely: bool

    def of(self, kind: str, choices: Sequence[Shape]) -> Shape:
        """Returns a response of that kind ("chat.completion" and others) around the choices."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": list(choices),
        }


def error(problem: ApiError) -> Shape:
    """The error object of a refusal."""
    return {
        "error": {
            "message": str(problem),
            "type": problem.kind,
            "param": problem.param,
            "code": problem.code,
        }
    }


def model(name: str, created: int, context: int, model_id: str) -> Shape:
    """One model that is served, as all models have it."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "shoal",
        "context_length": context,
        "manifest": model_id,
    }


def answering_model(
    name: str, created: int, context: int, model_id: str, defaults: SamplingDefaults
) -> Shape:
    """One that answers in words; `sampling`: how, where a request leaves that out."""
    return model(name, created, context, model_id) | {"sampling": asdict(defaults)}


def offered_model(name: str, created: int, model_id: str) -> Shape:
    """One model that is offered for runs: it takes no chat."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "shoal",
        "chat": False,
        "manifest": model_id,
    }


def models(found: Sequence[Shape]) -> Shape:
    """Returns the response of GET /v1/models."""
    return {"object": "list", "data": list(found)}


def usage(used: Usage) -> Shape:
    """Returns the counts of tokens as the API names them."""
    return {
        "prompt_tokens": used.prompt,
        "completion_tokens": used.answer,
        "total_tokens": used.prompt + used.answer,
        "prompt_tokens_details": {"cached_tokens": used.cached},
    }


# --- chat


def chat(heading: Heading, choices: Sequence[Choice], used: Usage) -> Shape:
    """A whole answer of chat/completions."""
    shaped = [
        {
            "index": choice.index,
            "message": _message(choice),
            "logprobs": chat_likely(choice.likely) if heading.with_likely else None,
            "finish_reason": _REASONS[choice.why],
        }
        | _crossed(choice.crossed)
        for choice in choices
    ]
    return heading.of("chat.completion", shaped) | {"usage": usage(used)}


def chat_begins(heading: Heading, index: int) -> Shape:
    """The first chunk of a choice."""
    return _chat_chunk(heading, index, {"role": "assistant", "content": ""})


def chat_says(heading: Heading, index: int, text: str, likely: Sequence[Likely]) -> Shape:
    """Returns a chunk of a chat stream with text."""
    return _chat_chunk(heading, index, {"content": text}, likely)


def chat_calls(heading: Heading, index: int, calls: Sequence[ToolCall], ids: Sequence[str]) -> Shape:
    """Returns a chunk of a chat stream with calls of tools; `ids` are theirs."""
    shaped = [{"index": place, **call} for place, call in enumerate(_calls(calls, ids))]
    return _chat_chunk(heading, index, {"tool_calls": shaped})


def chat_ends(heading: Heading, index: int, why: str, crossed: Sequence[Crossing] = ()) -> Shape:
    """The last chunk of a choice. `crossed`: where it went on with other arithmetic."""
    ends = _chat_chunk(heading, index, {}, why=why)
    ends["choices"][0] |= _crossed(crossed)
    return ends


def chat_used(heading: Heading, used: Usage) -> Shape:
    """The last chunk, for who asked for usage."""
    return heading.of("chat.completion.chunk", []) | {"usage": usage(used)}


def _crossed(found: Sequence[Crossing]) -> Shape:
    """What only a mesh has to say of a choice; nothing where there is nothing."""
    return {"shoal": {"crossed": [asdict(each) for each in found]}} if found else {}


def _chat_chunk(
    heading: Heading, index: int, delta: Mapping[str, Any], likely: Sequence[Likely] = (), why: str = ""
) -> Shape:
    choice = {
        "index": index,
        "delta": dict(delta),
        "logprobs": chat_likely(likely) if heading.with_likely and likely else None,
        "finish_reason": _REASONS[why] if why else None,
    }
    return heading.of("chat.completion.chunk", [choice])


def _message(choice: Choice) -> Shape:
    message: Shape = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.calls:
        message["tool_calls"] = _calls(choice.calls, choice.call_ids)
        message["content"] = choice.text or None
    return message


def _calls(calls: Sequence[ToolCall], ids: Sequence[str]) -> list[Shape]:
    return [
        {"id": id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call, id in zip(calls, ids, strict=True)
    ]


def chat_likely(likely: Sequence[Likely]) -> Shape:
    """Probabilities of tokens as chat/completions has them: `content`, a place for each token."""

    def shaped(one: Likely, names: Mapping[int, str]) -> Shape:
        utf8 = None if one.utf8 is None else list(one.utf8)
        return {"token": names[one.token], "logprob": one.logprob, "bytes": utf8}

    def place(one: Likely) -> Shape:
        names = _names(one)
        return shaped(one, names) | {"top_logprobs": [shaped(other, names) for other in one.others]}

    return {"content": [place(one) for one in likely], "refusal": None}


def _names(likely: Likely) -> dict[int, str]:
    """What the tokens of one place are called, each by another name: their text, the bytes of what is none, or the id
    of one whose text another has.
    """
    names: dict[int, str] = {}
    for one in (likely, *likely.others):
        name = one.text
        if one.utf8 is not None and one.text.encode() != one.utf8:
            name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in one.utf8)
        taken = not name or name in (names[token] for token in names if token != one.token)
        names.setdefault(one.token, f"token_id:{one.token}" if taken else name)
    return names


# --- completions


def completion(heading: Heading, choices: Sequence[Choice], used: Usage) -> Shape:
    """A whole answer of completions."""
    shaped = [_completed(heading, c.index, c.text, c.likely, c.why) | _crossed(c.crossed) for c in choices]
    return heading.of("text_completion", shaped) | {"usage": usage(used)}


def completion_says(
    heading: Heading,
    index: int,
    text: str,
    likely: Sequence[Likely],
    why: str = "",
    crossed: Sequence[Crossing] = (),
) -> Shape:
    """A chunk; with `why` the last one of a choice."""
    return heading.of("text_completion", [_completed(heading, index, text, likely, why) | _crossed(crossed)])


def completion_used(heading: Heading, used: Usage) -> Shape:
    """Returns the last chunk of a text stream, which has the counts of tokens."""
    return heading.of("text_completion", []) | {"usage": usage(used)}


def _completed(heading: Heading, index: int, text: str, likely: Sequence[Likely], why: str) -> Shape:
    offsets: list[int] = []
    at = 0
    utf8 = getincrementaldecoder("utf-8")(errors="replace")
    for one in likely:
        offsets.append(at)
        at += len(utf8.decode(one.utf8 or b""))
    names = [_names(one) for one in likely]
    shaped = {
        "tokens": [called[one.token] for one, called in zip(likely, names, strict=True)],
        "token_logprobs": [one.logprob for one in likely],
        "top_logprobs": [
            {called[other.token]: other.logprob for other in one.others}
            for one, called in zip(likely, names, strict=True)
        ],
        "text_offset": offsets,
    }
    return {
        "index": index,
        "text": text,
        "logprobs": shaped if heading.with_likely else None,
        "finish_reason": _REASONS[why] if why else None,
    }
