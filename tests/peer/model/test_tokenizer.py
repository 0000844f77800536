"""Text: streams equal whole decodes, stop strings cut alike in any pieces, prompts begin with one BOS."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from peer.model.chat_template import Message
from peer.model.tokenizer import StopStrings, Text, TextError
from planner.model.sources import TokenizerSource

CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "l'été à la plage 🙂🙃",
    "日本語の文章 and words",
    "e\u0301 cafe\u0301",
]
HARD = [
    "👩‍👩‍👧‍👦 family, 🇫🇷 flag, 👍🏽 skin",
    "e\u0301a\u0308\u0323 combining",
    "नमस्ते दुनिया",
    "\u200b zero \u2028 line",
    "  leading and  double  spaces ",
    "tabs\t\tand\n\nlines\r\n",
    "",
    "\U0010ffff\ue000",
    "日本語🙂",
]


def source(tokenizer: Tokenizer, **changes: Any) -> TokenizerSource:
    fields: dict[str, Any] = {"chat_template": None, "bos_token": 0, "end_tokens": (1,), "add_bos": False}
    return TokenizerSource(tokenizer_json=tokenizer.to_str().encode(), **(fields | changes))


@cache
def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(["<think>", "日本 x"])  # added, not special: part of the text
    return tokenizer


@cache
def sentence_piece(strip: int = 1) -> Tokenizer:
    vocab = {"<s>": 0, "</s>": 1, "<unk>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for piece in ["▁", "t", "h", "e", "th", "the", "▁the", "c", "a", "f", "é", "▁▁"]:
        vocab[piece] = len(vocab)
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁")]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        ([normalizers.Prepend("▁")] if strip else []) + [normalizers.Replace(" ", "▁")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return tokenizer


@cache
def metaspace() -> Tokenizer:
    tokenizer = sentence_piece()
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.normalizer = normalizers.Sequence([])
    copy.pre_tokenizer = pre_tokenizers.Metaspace()
    copy.decoder = decoders.Metaspace()
    return copy


FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level,
    "SentencePiece": sentence_piece,
    "no strip": lambda: sentence_piece(0),
}


def streamed(text: Text, tokens: list[int]) -> list[str]:
    stream = text.stream()
    return [*(stream.push(token) for token in tokens), stream.flush()]


@cache
def text_of(family: str) -> Text:
    return Text(source(FAMILIES[family]()))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("words", HARD)
def test_a_stream_equals_the_whole(family: str, words: str) -> None:
    text = text_of(family)
    tokens = text.encode(words)
    pieces = streamed(text, tokens)
    assert "".join(pieces) == FAMILIES[family]().decode(tokens) == words
    assert "\ufffd" not in "".join(pieces)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=150, deadline=None)
@given(
    st.text(st.characters(codec="utf-8", exclude_characters="▁"))
)  # SentencePiece cannot tell its mark from a space
def test_any_text_comes_back_from_a_stream(family: str, words: str) -> None:
    text = text_of(family)
    tokens = text.encode(words)
    assert (
        "".join(streamed(text, tokens)) == FAMILIES[family]().decode(tokens) == text.decode(tokens) == words
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 420), max_size=30))
def test_any_byte_level_tokens_decode_as_the_library_does(tokens: list[int]) -> None:
    """Also those that are no UTF-8, special tokens, and ids above the vocabulary."""
    text = text_of("byte-level")
    assert "".join(streamed(text, tokens)) == byte_level().decode(tokens, skip_special_tokens=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(259, 270), max_size=12))
def test_metaspace_tokens_decode_as_the_library_does(tokens: list[int]) -> None:
    assert "".join(streamed(Text(source(metaspace())), tokens)) == metaspace().decode(tokens)


def test_an_emoji_waits_for_its_last_token() -> None:
    text = text_of("SentencePiece")
    tokens = [3 + byte for byte in "🙂".encode()]
    assert streamed(text, tokens) == ["", "", "", "🙂", ""]


def test_half_a_character_at_the_end_is_one_replacement() -> None:
    text = text_of("SentencePiece")
    assert streamed(text, [3 + byte for byte in "🙂".encode()[:3]]) == ["", "", "", "\ufffd"]


def test_bytes_that_never_make_a_character_do_not_wait() -> None:
    text = text_of("SentencePiece")
    pieces = streamed(text, [3 + 0xFF] * 50)
    assert pieces == ["\ufffd"] * 50 + [""]


def test_special_tokens_are_not_shown() -> None:
    text = text_of("byte-level")
    assert streamed(text, [0, *text.encode("a"), 1, 10**6, -1]) == ["", "a", "", "", "", ""]


def test_a_decoder_of_another_kind_is_refused() -> None:
    tokenizer = Tokenizer(models.WordPiece(vocab={"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(TextError, match="WordPiece"):
        Text(source(tokenizer))
    tokenizer.decoder = None
    with pytest.raises(TextError, match="missing"):
        Text(source(tokenizer))


@pytest.mark.parametrize("broken", [b"", b"{}", b"\xff\xfe", b'{"model": 3}'])
def test_a_broken_tokenizer_is_one_clear_line(broken: bytes) -> None:
    with pytest.raises(TextError, match=r"tokenizer\.json cannot be read: [^\n]+$"):
        Text(TokenizerSource(broken, None, None, (), False))


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(TextError, match="surrogate"):
        text_of("byte-level").encode("\ud83d")


TALK = [
    Message("system", "Be kind."),
    Message("user", "Hi"),
    Message("assistant", "Hello"),
    Message("user", "Bye"),
]


@pytest.mark.parametrize(
    ("template", "add_bos", "begins"),
    [
        ("{{ bos_token }}x", True, [0]),
        ("x", True, [0]),
        ("x", False, []),
        ("{{ bos_token }}x", False, [0]),
    ],
)
def test_there_is_one_bos_where_one_belongs(template: str, add_bos: bool, begins: list[int]) -> None:
    text = Text(source(byte_level(), chat_template=template, add_bos=add_bos))
    assert text.encode_chat(TALK) == begins + text_of("byte-level").encode("x")


def test_plain_text_gets_a_bos_when_the_model_wants_one() -> None:
    text = Text(source(byte_level(), add_bos=True))
    assert text.encode("the")[0] == 0
    assert text.encode("<s>the") == text.encode("the")


def test_a_template_knows_its_tokens_and_the_date() -> None:
    template = "{{ eos_token }}{{ strftime_now('%d %b %Y') }}{% if add_generation_prompt %}>{% endif %}"
    text = Text(source(byte_level(), chat_template=template))
    assert text.render_chat(TALK, date(2026, 3, 4)) == "</s>04 Mar 2026>"


def test_without_a_template_plain_paragraphs() -> None:
    shown = text_of("byte-level").render_chat(TALK)
    assert shown == "System: Be kind.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye\n\nAssistant:"


def test_without_a_template_chatml_when_the_vocabulary_has_it() -> None:
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    shown = Text(source(tokenizer)).render_chat(TALK[1:2])
    assert shown == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_truncation_in_the_file_does_not_shorten_a_prompt() -> None:
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    assert len(Text(source(tokenizer)).encode("the quick brown fox")) == len(
        text_of("byte-level").encode("the quick brown fox")
    )


def stop_cut(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    watch = StopStrings(stops)
    shown = ""
    for piece in pieces:
        part, stopped = watch.push(piece)
        shown += part
        if stopped:
            assert watch.push("more") == ("", True)
            return shown, True
    return shown + watch.flush(), False


@pytest.mark.parametrize(
    ("stops", "pieces", "shown", "stopped"),
    [
        (["END"], ["abc", "E", "N", "D", "x"], "abc", True),
        (["END"], ["abcE", "N", "d"], "abcENd", False),
        (["aab"], ["a", "a", "a", "b"], "a", True),
        (["\n\nUser:", "\n\n"], ["hi\n", "\nUser:"], "hi", True),
        (["abcd", "bc"], ["ab", "cd"], "a", True),
        (["abc", "bc"], ["abc"], "", True),
        (["🙂"], ["a🙂b"], "a", True),
        ([], ["abc"], "abc", False),
        (["abc"], ["ab"], "ab", False),
    ],
)
def test_stop_strings(stops: list[str], pieces: list[str], shown: str, stopped: bool) -> None:
    assert stop_cut(stops, pieces) == (shown, stopped)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_stop_strings_do_not_depend_on_the_pieces(stops: list[str], pieces: list[str]) -> None:
    whole = "".join(pieces)
    ends = [
        (end, end - len(stop))
        for end in range(len(whole) + 1)
        for stop in stops
        if whole[:end].endswith(stop)
    ]
    wanted = (whole[: min(ends)[1]], True) if ends else (whole, False)
    assert stop_cut(stops, pieces) == wanted
    assert stop_cut(stops, list(whole)) == wanted


@given(st.lists(st.text("ab", max_size=5), max_size=10))
def test_only_a_possible_beginning_is_held_back(pieces: list[str]) -> None:
    watch, text, shown = StopStrings(["abba"]), "", ""
    for piece in pieces:
        text += piece
        part, stopped = watch.push(piece)
        shown += part
        if stopped:
            return
        held = text[len(shown) :]
        assert "abba".startswith(held)
        assert len(held) < 4


@pytest.mark.parametrize("stops", [[""], ["x" * 257], ["x"] * 17])
def test_stop_strings_are_bounded(stops: list[str]) -> None:
    with pytest.raises(TextError, match="stop string"):
        StopStrings(stops)


def test_decoder_rules_of_published_tokenizers_are_known() -> None:
    """The decoder sections of Llama 2, Gemma, Llama 3 and Qwen, as their tokenizer.json files have them."""
    rules = json.loads(sentence_piece().to_str())
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    fallback = [replace, {"type": "ByteFallback"}, {"type": "Fuse"}]
    for decoder in (
        {
            "type": "Sequence",
            "decoders": [*fallback, {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
        },
        {"type": "Sequence", "decoders": fallback},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    ):
        rules["decoder"] = decoder
        Text(TokenizerSource(json.dumps(rules).encode(), None, None, (), False))
