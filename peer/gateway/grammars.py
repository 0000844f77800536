"""Holds an answer to a grammar: which tokens may come next, by llguidance.

Edge around that library, which is an extra (`api`): a peer that only computes does without.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from peer.errors import ApiError
from peer.gateway.tool_calls import CLOSING, OPENING, Style, Tool
from peer.session.steering import mask_words

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

# Spaces as models were trained on them; a choice would let small models write spaces for ever.
SPACING: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
ANY_OBJECT: Final = {"type": "object"}
MAX_SCHEMA_CHARACTERS: Final = 100_000


class Grammars:
    """The grammars of one model. Made once: reading its vocabulary takes a moment. Raises ApiError where it cannot."""

    def __init__(self, tokenizer_json: bytes, vocab: int, end_tokens: Sequence[int]) -> None:
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise ApiError(
                "answers in a given form need the extra: pip install 'shoal-mesh[api]' where this gateway runs",
                501,
                "server_error",
                code="not_installed",
            ) from None
        self._vocab = vocab
        text = tokenizer_json.decode()
        self._tokenizer: LLTokenizer = LLTokenizer(text, n_vocab=vocab, eos_token=list(end_tokens) or None)

    def json(self, schema: Mapping[str, Any] | None) -> Guided:
        """JSON that `schema` allows; None: any object. Raises ApiError for a schema that cannot be held to."""
        from llguidance import LLMatcher

        text = json.dumps(ANY_OBJECT if schema is None else schema)
        if len(text) > MAX_SCHEMA_CHARACTERS:
            raise ApiError(
                f"a schema has up to {MAX_SCHEMA_CHARACTERS} characters here", param="response_format"
            )
        try:
            grammar = LLMatcher.grammar_from_json_schema(text, overrides=SPACING)
        except ValueError as error:
            raise _refused(str(error), "response_format") from error
        return self._guided(grammar, "response_format")

    def calls(self, style: Style, tools: Sequence[Tool], *, parallel: bool) -> Guided:
        """One call of one of `tools`, or with `parallel` one or more where the style has room for them."""
        arguments = "parameters" if style is Style.BARE else "arguments"
        one: dict[str, Any] = {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"name": {"const": tool.name}, arguments: tool.parameters},
                    "required": ["name", arguments],
                    "additionalProperties": False,
                }
                for tool in tools
            ]
        }
        if len(json.dumps(one)) > MAX_SCHEMA_CHARACTERS:
            raise ApiError(
                f"all tools together have up to {MAX_SCHEMA_CHARACTERS} characters here", param="tools"
            )
        match style:
            case Style.TAGGED:
                again = ' ("\\n" call)*' if parallel else ""
                frame = f'start: call{again}\ncall: "{OPENING[style]}\\n" body "\\n{CLOSING}"\nbody: %json '
            case Style.BARE:
                frame = "start: body\nbody: %json "
            case Style.LISTED:
                again = ' (", " body)*' if parallel else ""
                frame = f'start: "[" body{again} "]"\nbody: %json '
        one["x-guidance"] = SPACING
        return self._guided(frame + json.dumps(one), "tools")

    def _guided(self, grammar: str, param: str) -> Guided:
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise _refused(matcher.get_error(), param)
        return Guided(matcher, self._vocab)


def _refused(why: str, param: str) -> ApiError:
    line = " ".join(why.split())[:300]
    return ApiError(f"this schema cannot be held to: {line}", param=param, code="invalid_schema")


class Guided:
    """One answer under a grammar (peer.origin.answer_stream.Guide)."""

    def __init__(self, matcher: LLMatcher, vocab: int) -> None:
        self._matcher = matcher
        self._vocab = vocab

    def allowed(self) -> tuple[int, ...]:
        """Returns the tokens that may come next as words of a bit mask; () after an error of the grammar."""
        bits = self._matcher.compute_bitmask()
        return () if self._matcher.is_error() else mask_words(bits, self._vocab)

    def take(self, token: int) -> None:
        """Tells the grammar which token came."""
        self._matcher.consume_token(token)

    def over(self) -> bool:
        """Returns whether the grammar is complete."""
        return self._matcher.is_stopped()
