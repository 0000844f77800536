"""Grammars over vocabularies whose marks are one token, control or not: what may come, and what is no end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from peer.errors import ApiError, GrammarFailed
from peer.gateway.grammars import Grammars, Guided
from peer.gateway.server import _told
from peer.gateway.tool_calls import Style, Tool
from peer.model.tokenizer import Text
from planner.model.sources import TokenizerSource

MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]")
CITY = {"type": "object", "properties": {"city": {"enum": ["Bern"]}}, "required": ["city"]}
TOOL = Tool("weather", CITY, {})
BODY = '{"name": "weather", "arguments": {"city": "Bern"}}'


@cache
def text(marks: str, sentence_piece: bool = False) -> Text:
    """A vocabulary of bytes whose `MARKS` are "control" tokens, "user" defined ones, or none ("words")."""
    if sentence_piece:
        vocab = {"<unk>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
        vocab |= {letter: 300 + at for at, letter in enumerate('▁{}":,abcdefghijklmnopqrstuvwxyz')}
        vocab |= {f"[UNUSED_{at}]": at for at in range(257, 300)}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence(steps)
    else:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE(vocab={name: at for at, name in enumerate(alphabet)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("<|im_end|>", special=True, normalized=False)])
    if marks != "words":
        special = marks == "control"
        tokenizer.add_tokens([AddedToken(mark, special=special, normalized=False) for mark in MARKS])
    end = tokenizer.token_to_id("<|im_end|>")
    return Text(TokenizerSource(tokenizer.to_str().encode(), None, None, (end,), False))


def allows(guide: Guided, token: int) -> bool:
    return bool(guide.allowed()[token // 31] >> token % 31 & 1)


def follow(guide: Guided, tokens: Sequence[int]) -> None:
    """Every one of `tokens` may come, and the grammar is complete behind the last one only."""
    for token in tokens:
        assert not guide.over()
        assert allows(guide, token), token
        guide.take(token)


@pytest.mark.parametrize("sentence_piece", [False, True])
@pytest.mark.parametrize("marks", ["words", "user", "control"])
def test_a_call_begins_and_ends_with_the_marks_that_models_write(marks: str, sentence_piece: bool) -> None:
    words = text(marks, sentence_piece)
    opening, closing = (
        words.encode(mark) if marks == "words" else [words.added_token(mark)] for mark in MARKS[:2]
    )
    guide = Grammars(words).calls(Style.TAGGED, [TOOL], parallel=False)
    follow(guide, [*opening, *words.encode("\n" + BODY + "\n"), *closing])
    assert guide.over()


@pytest.mark.parametrize("marks", ["words", "user", "control"])
def test_a_list_of_calls_begins_with_its_mark_where_that_is_a_token(marks: str) -> None:
    words = text(marks)
    opening = [] if marks == "words" else [words.added_token(MARKS[2])]
    guide = Grammars(words).calls(Style.LISTED, [TOOL], parallel=False)
    follow(guide, [*opening, *words.encode(f"[{BODY}]")])
    assert guide.over()


@pytest.mark.parametrize("constant", ["<|im_end|>", "<tool_call>", "a<|im_end|>b[TOOL_CALLS]"])
@pytest.mark.parametrize("sentence_piece", [False, True])
def test_a_constant_that_spells_a_control_token_is_written_in_words(
    constant: str, sentence_piece: bool
) -> None:
    words = text("control", sentence_piece)
    guide = Grammars(words).json({"const": constant})
    tokens = words.encode_words(json.dumps(constant))
    follow(guide, tokens)
    assert guide.over()
    assert words.decode(tokens) == json.dumps(constant)


def test_a_grammar_that_failed_is_an_error_and_no_end() -> None:
    words = text("user")
    guide = Grammars(words).json({"const": 1})
    guide.take(words.encode("2")[0])
    for asked in (guide.over, guide.allowed):
        with pytest.raises(GrammarFailed, match="ask for a simpler form"):
            asked()


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [(GrammarFailed("why"), 500, "grammar_failed"), (ValueError("a defect"), 500, None)],
)
def test_what_a_program_hears_of_a_failure(problem: Exception, status: int, code: str | None) -> None:
    told = _told(problem)
    assert (told.status, told.code, told.kind, told.retry_after_s) == (status, code, "server_error", None)


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"enum": []}, False])
def test_a_schema_that_no_answer_fits_is_refused_beforehand(schema: object) -> None:
    with pytest.raises(ApiError) as caught:
        Grammars(text("words")).json(schema)  # type: ignore[arg-type]
    assert (caught.value.status, caught.value.code) == (400, "invalid_schema")
