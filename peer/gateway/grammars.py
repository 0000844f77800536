"""Holds an answer to a grammar: which tokens may come next, by llguidance.

Edge around that library, which is an extra (`api`): a peer that only computes does without.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from peer.errors import ApiError, GrammarFailed
from peer.gateway.tool_calls import CLOSING, OPENING, Style, Tool
from peer.model.tokenizer import Text
from peer.session.steering import mask_words

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

# Spaces as models were trained on them; a choice would let small models write spaces for ever.
SPACING: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
ANY_OBJECT: Final = {"type": "object"}
MAX_SCHEMA_CHARACTERS: Final = 100_000
MAX_LEXER_STATES: Final = 50_000  # some 2 kB each
ENDS: Final = frozenset(("NoExtension", "NoExtensionBias", "EndOfSentence"))  # of a grammar that is complete


class Grammars:
    """The grammars of one model. Made once: reading its vocabulary takes a moment. Raises ApiError where it cannot."""

    def __init__(self, text: Text) -> None:
        try:
            from llguidance import LLParserLimits, LLTokenizer, TokenizerWrapper
        except ImportError:
            raise ApiError(
                "answers in a given form need the extra: pip install 'shoal-mesh[api]' where this gateway runs",
                501,
                "server_error",
                code="not_installed",
            ) from None
        self._text = text
        self._limits = LLParserLimits(max_lexer_states=MAX_LEXER_STATES)
        self._tokenizer: LLTokenizer = LLTokenizer(
            TokenizerWrapper(_Vocabulary(text)),
            n_vocab=text.vocab_size,
            eos_token=list(text.end_tokens) or None,
        )

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
            raise schema_refused(str(error), "response_format") from error
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
                opening, closing = self._mark(OPENING[style]), self._mark(CLOSING)
                frame = f'start: call{again}\ncall: {opening} "\\n" body "\\n" {closing}\nbody: %json '
            case Style.BARE:
                frame = "start: body\nbody: %json "
            case Style.LISTED:
                again = ' (", " body)*' if parallel else ""
                known = self._text.added_token(OPENING[style]) is not None
                opening = f"{self._mark(OPENING[style])} " if known else ""
                frame = f'start: {opening}"[" body{again} "]"\nbody: %json '
        one["x-guidance"] = SPACING
        return self._guided(frame + json.dumps(one), "tools")

    def _guided(self, grammar: str, param: str) -> Guided:
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise schema_refused(matcher.get_error(), param)
        guided = Guided(matcher, self._text.vocab_size)
        try:
            begins = any(guided.allowed())
        except GrammarFailed:
            begins = False
        if not begins:
            raise schema_refused("no answer fits it, such as one that would have to hold itself", param)
        return guided

    def _mark(self, name: str) -> str:
        """A mark of the style in a grammar: the one token that models were trained on, where there is one."""
        token = self._text.added_token(name)
        return json.dumps(name) if token is None else f"<[{token}]>"


class _Vocabulary:
    """The tokens as llguidance reads them. Control tokens match no words, as in the text that is shown of an answer."""

    def __init__(self, text: Text) -> None:
        shown = [text.token_bytes(token) for token in range(text.vocab_size)]
        self.eos_token_id = text.end_tokens[0] if text.end_tokens else None
        self.bos_token_id = None
        self.tokens = [
            text.token_text(at).encode() if utf8 is None else utf8 for at, utf8 in enumerate(shown)
        ]
        self.special_token_ids = [at for at, utf8 in enumerate(shown) if utf8 is None]
        self._text = text

    def __call__(self, words: str) -> list[int]:
        return self._text.encode_words(words)


def schema_refused(why: str, param: str) -> ApiError:
    """What a program hears whose schema no answer can be held to."""
    line = " ".join(why.split())[:300]
    return ApiError(f"this schema cannot be held to: {line}", param=param, code="invalid_schema")


class Guided:
    """The place in a grammar that one answer has come to."""

    def __init__(self, matcher: LLMatcher, vocab: int) -> None:
        self._matcher = matcher
        self._vocab = vocab

    def allowed(self) -> tuple[int, ...]:
        """Returns the tokens that may come next as words of a bit mask. Raises GrammarFailed."""
        bits = self._matcher.compute_bitmask()
        self._check()
        return mask_words(bits, self._vocab)

    def take(self, token: int) -> None:
        """Tells the grammar which token came."""
        self._matcher.consume_token(token)

    def over(self) -> bool:
        """Returns whether the grammar is complete. Raises GrammarFailed where it stopped for another reason."""
        self._check()
        return self._matcher.is_stopped()

    def _check(self) -> None:
        """An engine that failed is stopped, too: that is no end of an answer."""
        matcher = self._matcher
        if matcher.is_error():
            why = next(iter(matcher.get_error().splitlines()), "")[:200]
        elif matcher.is_stopped() and matcher.stop_reason() not in ENDS:
            why = matcher.stop_reason()
        else:
            return
        raise GrammarFailed(
            f"the grammar cannot follow this answer any further ({why}): ask for a simpler form"
        )
