"""From the bytes of a request to what is to be computed: all that grows with what was sent.

It runs where prompts are put into tokens (peer.model.prompts), in a process of its own unless the request is short, so
it imports nothing of the mesh.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from peer.errors import ApiError
from peer.gateway import anthropic_requests, response_requests
from peer.gateway.chat_requests import (
    ChatRequest,
    Wanted,
    chat_request,
    completion_request,
    without_files,
)
from peer.gateway.embedding_requests import EmbeddingRequest, embedding_request, too_long
from peer.gateway.grammar_jobs import CallForm, Form, JsonForm
from peer.gateway.grammars import MAX_SCHEMA_CHARACTERS
from peer.gateway.rerank_requests import RerankRequest, rerank_request
from peer.gateway.response_requests import Echo
from peer.gateway.tool_calls import Style, style_of
from peer.gateway.uploads.file_requests import Uploaded
from peer.model.prompts import Prompt, turns_prompt
from peer.model.tokenizer import Text
from peer.session.ask import room_for
from planner.model.sampling_defaults import SamplingDefaults

MODEL_ID: Final = re.compile(r"[0-9a-f]{64}")
MAX_NESTING: Final = 100  # lists and objects inside one another, of a whole request


@dataclass(frozen=True, slots=True)
class ForFurther:
    """A request that asks a further model, by name or id: it is read once more, for that one."""

    name: str


@dataclass(frozen=True, slots=True)
class Served:
    """The model that this gateway answers with ("": none), how where a request leaves that out, how many tokens of a
    text those take that make embeddings, by their names and ids, the names of all that the mesh offers, and how many
    tokens of a pair those take that rank texts.
    """

    name: str
    model: str
    context: int
    defaults: SamplingDefaults
    embedders: Mapping[str, int] = field(default_factory=dict)
    offers: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()  # names of further models that answer in words
    further: frozenset[str] = frozenset()  # and whatever else they are asked by
    rankers: Mapping[str, int] = field(default_factory=dict)

    def for_further(self, name: str) -> ForFurther | None:
        """Whether another model that answers in words is asked."""
        return ForFurther(name) if name in self.further and not self._is_own(name) else None

    def check(self, name: str) -> None:
        """Raises ApiError for a model that does not answer here."""
        if self._is_own(name):
            return
        if name in self.embedders:
            raise _unsuited(f"{name!r} makes embeddings and answers no questions: ask /v1/embeddings", self)
        if name in self.rankers:
            raise _unsuited(f"{name!r} ranks texts and answers no questions: ask /v1/rerank", self)
        if name in self.offers:
            raise _unsuited(
                f"{name!r} computes outputs of inputs and answers no questions: shoal run asks it", self
            )
        raise self.unknown(name)

    def check_embedding(self, name: str) -> None:
        """Raises ApiError for a model that makes no embeddings here."""
        if name in self.embedders:
            return
        none = (
            ""
            if self.embedders
            else ": shoal offer has the mesh run one that does, and --embedding-model of shoal api this machine"
        )
        if name in self.rankers:
            raise _unsuited(
                f"{name!r} ranks texts, as /v1/rerank asks it, and makes no embeddings{none}", self
            )
        self._refuse(name, f"makes no embeddings{none}")

    def check_rerank(self, name: str) -> None:
        """Raises ApiError for a model that ranks no texts here."""
        if name in self.rankers:
            return
        none = "" if self.rankers else ": shoal offer has the mesh run one that does"
        if name in self.embedders:
            raise _unsuited(
                f"{name!r} makes embeddings, as /v1/embeddings asks it, and ranks no texts{none}", self
            )
        self._refuse(name, f"ranks no texts{none}")

    def _refuse(self, name: str, lacks: str) -> NoReturn:
        """Raises ApiError for a model that does something else."""
        if self._is_own(name) or name in self.further:
            raise _unsuited(f"{name!r} answers in words and {lacks}", self)
        if name in self.offers:
            raise _unsuited(f"{name!r} computes outputs of inputs, as shoal run asks it, and {lacks}", self)
        raise self.unknown(name)

    def unknown(self, name: str) -> ApiError:
        """The refusal of a name that nothing here goes by."""
        return ApiError(
            f"The model {name[:100]!r} does not exist here; {self.line()}",
            404,
            param="model",
            code="model_not_found",
        )

    def line(self) -> str:
        """What is served here, in the middle of a sentence."""
        words = (*filter(None, (self.name,)), *(name for name in self.words if name != self.name))
        kinds = (
            ("answer in words" if len(words) > 1 else "answers in words", words),
            ("makes embeddings", [name for name in self.embedders if not MODEL_ID.fullmatch(name)]),
            ("ranks texts", [name for name in self.rankers if not MODEL_ID.fullmatch(name)]),
            ("is run by shoal run", sorted(self.offers - self.embedders.keys() - self.rankers.keys())),
        )
        parts = [f"{', '.join(map(repr, names))} {does}" for does, names in kinds if names]
        return (
            f"served are: {'; '.join(parts)}"
            if parts
            else "nothing is served yet: shoal offer has the mesh run a model"
        )

    def _is_own(self, name: str) -> bool:
        return self.name != "" and name in (self.name, self.model)


def _unsuited(why: str, served: Served) -> ApiError:
    return ApiError(f"{why}; {served.line()}", param="model", code="model_not_supported")


@dataclass(frozen=True, slots=True)
class ReadChat:
    """A chat request. `style` None: the model may call no tools; `form` None: the answer is free."""

    wanted: Wanted
    prompt: Prompt
    style: Style | None
    tools: frozenset[str]
    parallel: bool
    form: Form | None
    pictures: tuple[bytes | Uploaded, ...] = ()  # files


@dataclass(frozen=True, slots=True)
class ReadCompletion:
    """A request to go on with texts. `before`: what comes before each answer, where that was asked for."""

    wanted: Wanted
    prompts: tuple[tuple[int, ...], ...]
    before: tuple[str, ...]


def body_of(raw: bytes) -> Any:
    """The JSON of a request's body. Raises ApiError."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise ApiError("the request's body is not JSON") from None
    level = [body]
    for _ in range(MAX_NESTING):
        held = (
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, list | dict)
        )
        level = [each for children in held for each in children if isinstance(each, list | dict)]
        if not level:
            return body
    raise ApiError(f"the request's body has more than {MAX_NESTING} lists and objects inside one another")


def read_chat(text: Text, raw: bytes, served: Served) -> ReadChat | ForFurther:
    """POST /v1/chat/completions. Raises ApiError, ContextOverflow, TextError."""
    return _read_chat(text, body_of(raw), served)


def read_response(text: Text, raw: bytes, served: Served) -> tuple[ReadChat, Echo] | ForFurther:
    """POST /v1/responses, and what its answer says of it again. Raises as read_chat."""
    body, echo = response_requests.chat_body(body_of(raw))
    read = _read_chat(text, body, served)
    return read if isinstance(read, ForFurther) else (read, echo)


def read_message(text: Text, raw: bytes, served: Served) -> ReadChat | ForFurther:
    """POST /v1/messages. Raises as read_chat."""
    return _read_chat(text, anthropic_requests.chat_body(body_of(raw)), served)


def read_count(text: Text, raw: bytes, served: Served) -> ReadChat | ForFurther:
    """POST /v1/messages/count_tokens: the prompt whose tokens are counted. Raises as read_chat."""
    return _read_chat(text, anthropic_requests.chat_body(body_of(raw), counted=True), served)


def _read_chat(text: Text, body: Any, served: Served) -> ReadChat | ForFurther:
    asked = chat_request(body, served.defaults)
    if (other := served.for_further(asked.wanted.model)) is not None:
        return other
    served.check(asked.wanted.model)
    style = _style(text, asked, served)
    form = _form(asked, style)
    tools = [tool.whole for tool in asked.tools] or None
    turns, pictures = without_files(asked.turns, text.sight is not None)
    prompt = turns_prompt(text, turns, tools, served.context)
    _check_not_empty(prompt.tokens, "messages")
    names = frozenset(tool.name for tool in asked.tools)
    return ReadChat(asked.wanted, prompt, style, names, asked.parallel, form, pictures)


def read_completion(text: Text, raw: bytes, served: Served) -> ReadCompletion | ForFurther:
    """POST /v1/completions. Raises ApiError, ContextOverflow, TextError."""
    asked = completion_request(body_of(raw), served.defaults)
    if (other := served.for_further(asked.wanted.model)) is not None:
        return other
    served.check(asked.wanted.model)
    if asked.echo and asked.wanted.alternatives is not None:
        raise ApiError("echo with logprobs is not supported: a prompt's tokens have none here", param="echo")
    prompts: list[tuple[int, ...]] = []
    before: list[str] = []
    for prompt in asked.prompts:
        tokens = tuple(text.encode(prompt)) if isinstance(prompt, str) else prompt
        _check_not_empty(tokens, "prompt")
        room_for(len(tokens), None, served.context)
        if any(token >= text.vocab_size for token in tokens):
            raise ApiError(f"token ids are from 0 to {text.vocab_size - 1}", param="prompt")
        prompts.append(tokens)
        shown = prompt if isinstance(prompt, str) else text.decode(tokens)
        before.append(shown if asked.echo else "")
    return ReadCompletion(asked.wanted, tuple(prompts), tuple(before))


def _check_not_empty(tokens: Sequence[int], param: str) -> None:
    if not tokens:
        raise ApiError("the prompt is empty: there is nothing to go on from", param=param)


def read_embedding(_: Text | None, raw: bytes, served: Served) -> EmbeddingRequest:
    """POST /v1/embeddings. Raises ApiError."""
    asked = embedding_request(body_of(raw))
    served.check_embedding(asked.model)
    most_tokens = served.embedders[asked.model]
    for place, one in enumerate(asked.inputs):
        if not isinstance(one, str) and len(one) > most_tokens:
            raise too_long(f"input {place}: {len(one)} tokens", asked.model, most_tokens)
    return asked


def read_rerank(_: Text | None, raw: bytes, served: Served) -> RerankRequest:
    """POST /v1/rerank. Raises ApiError."""
    asked = rerank_request(body_of(raw))
    served.check_rerank(asked.model)
    return asked


def no_text() -> None:
    """What stands for a tokenizer where no model of the mesh answers in words."""


def read_unanswered(_: object, raw: bytes, served: Served) -> ForFurther:
    """Which further model is asked for words where the mesh has none of its own that answers. Raises ApiError for what
    does not, by the name that it asks.
    """
    body = body_of(raw)
    name = body.get("model") if isinstance(body, dict) else None
    if not isinstance(name, str) or not name:
        raise ApiError("expected the name of a model; GET /v1/models lists them", param="model")
    if (other := served.for_further(name)) is not None:
        return other
    served.check(name)
    raise AssertionError(name)  # no name passes


def _style(text: Text, asked: ChatRequest, served: Served) -> Style | None:
    """How the model calls the tools of this request. Raises ApiError where it knows none."""
    if not asked.tools:
        return None
    style = style_of(text.tool_template) if text.tool_template is not None else None
    if style is None:
        raise ApiError(
            f"the chat template of {served.name!r} knows no tools: ask without, or serve a model that was trained "
            "with them",
            param="tools",
            code="tools_not_supported",
        )
    return style


def _form(asked: ChatRequest, style: Style | None) -> Form | None:
    """What an answer must be; None where it is free."""
    if style is not None and asked.required:
        tools = tuple(tool for tool in asked.tools if asked.forced in (None, tool.name))
        _bounded([tool.parameters for tool in tools], "tools")
        return CallForm(style, tools, asked.parallel)
    if asked.format is not None:
        _bounded(asked.format.schema, "response_format")
        return JsonForm(asked.format.schema)
    return None


def _bounded(schema: object, param: str) -> None:
    if len(json.dumps(schema)) > MAX_SCHEMA_CHARACTERS:
        raise ApiError(
            f"all schemas together have up to {MAX_SCHEMA_CHARACTERS} characters here", param=param
        )
