"""Vocabularies of GGUF files as tokenizer.json: cuts, merges, added tokens, end tokens."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import pytest
from jinja2 import Environment
from tokenizers import Tokenizer

from planner.errors import CorruptModel, ModelError, UnknownTokenizer
from planner.importers.gguf import open_gguf
from planner.importers.hf_config import _chat_template
from planner.importers.pretokenizers import PRE_TOKENIZERS, pre_tokenizer
from planner.importers.tokenizer import chosen_by_tools

if TYPE_CHECKING:
    from tests.planner.tiny_models import TinyModel

TEXTS = [
    "Hello world, it's 12345 and I'LL say 6,789.01!",
    "naïve café Ünïcödé ½ ² Ⅷ ٣٤",
    "日本語のテキスト 中文 한국어 हिन्दी ไทย",
    "مرحبا بالعالم שלום",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈 é \u200b\u200d\ufeff",
    "def f(x):\n    return x**2  # ok\n\n\n\t\tindent\r\nwin\r\n",
    "  leading and trailing   ",
    "http://x.y/z?a=1&b=%20#frag {}[]()<>|\\^`~",
    "\x00\x01\x7f\u00a0nbsp\u2003em\u3000ideo",
    "",
    " ",
    "\n",
]


def load(source_json: bytes) -> Tokenizer:
    return Tokenizer.from_str(source_json.decode())


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return found


def pieces(name: str, text: str) -> list[str]:
    cuts = pre_tokenizer(PRE_TOKENIZERS[name]).pre_tokenize_str(text)
    return [text[start:stop] for _, (start, stop) in cuts]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "it's 123 a", ["it", "'s", " 123", " a"]),
        ("smollm", "it's 123 a", ["it", "'s", " ", "1", "2", "3", " a"]),
        ("llama-bpe", "IT'S 12345 a\n\n b", ["IT", "'S", " ", "123", "45", " a", "\n\n", " b"]),
        ("qwen2", "it's 123 a", ["it", "'s", " ", "1", "2", "3", " a"]),
        ("tekken", "helloWorld HTTPServer 12", ["hello", "World", " HTTPServer", " ", "1", "2"]),
        ("gpt-4o", "Don't 1234", ["Don't", " ", "123", "4"]),
        ("deepseek-llm", "Hi, 中文 12\n", ["Hi", ",", " ", "中文", " ", "12", "\n"]),
        ("deepseek-coder", "Hi, 中文 12\n", ["Hi", ",", " ", "中文", " ", "1", "2", "\n"]),
        ("deepseek-v3", "Hi, 中文 1234\n", ["Hi", ",", " ", "中文", " ", "123", "4", "\n"]),
        ("falcon", "a,1234", ["a", ",", "123", "4"]),
        ("default", "a,1234 b", ["a", ",", "123", "4", " b"]),
    ],
)
def test_named_pre_tokenizers_cut_where_their_models_do(name: str, text: str, expected: list[str]) -> None:
    assert pieces(name, text) == expected


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_every_pre_tokenizer_gives_every_text_back(tiny_model: TinyModel, tmp_path: Path, name: str) -> None:
    model = tiny_model.but(blocks=1)
    path = model.write_gguf(tmp_path / "m.gguf", tokenizer=with_pre(model, name))
    tokenizer = load(open_gguf(path).tokenizer.tokenizer_json)
    for text in TEXTS:
        assert tokenizer.decode(ids(tokenizer, text), skip_special_tokens=False) == text


def with_pre(model: TinyModel, name: str) -> Callable[[gguf.GGUFWriter], None]:
    def add(writer: gguf.GGUFWriter) -> None:
        model.add_tokenizer(writer)
        writer.kv_data[0]["tokenizer.ggml.pre"].value = name

    return add


def test_merges_added_tokens_and_facts_come_through(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = open_gguf(tiny_model.write_gguf(tmp_path / "m.gguf")).tokenizer
    tokenizer = load(source.tokenizer_json)
    assert tokenizer.encode("hello <|im_start|>x<|im_end|><think>", add_special_tokens=False).tokens == [
        *("hel", "l", "o", "Ġ", "<|im_start|>", "x", "<|im_end|>", "<think>")
    ]
    assert tokenizer.decode([256, 258, 260, 259]) == "he<think>", (
        "control tokens are skipped, user-defined kept"
    )
    assert tokenizer.get_vocab_size() == 288
    assert (source.bos_token, source.end_tokens, source.add_bos) == (258, (259,), False)
    assert source.chat_template == "{{ messages[0]['content'] }}"


def changed(model: TinyModel, change: Callable[[dict[str, Any]], None]) -> Callable[[gguf.GGUFWriter], None]:
    def add(writer: gguf.GGUFWriter) -> None:
        model.add_tokenizer(writer)
        change(writer.kv_data[0])

    return add


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            lambda kv: setattr(kv["tokenizer.ggml.pre"], "value", "martian"),
            UnknownTokenizer,
            "'martian' .*llama-bpe.*smollm",
        ),
        (
            lambda kv: setattr(kv["tokenizer.ggml.model"], "value", "bert"),
            UnknownTokenizer,
            "'bert' .* gpt2, llama",
        ),
        (lambda kv: kv.pop("tokenizer.ggml.model"), UnknownTokenizer, "None"),
        (lambda kv: kv.pop("tokenizer.ggml.tokens"), CorruptModel, "tokens is missing"),
        (lambda kv: kv.pop("tokenizer.ggml.merges"), CorruptModel, "merges is missing"),
        (lambda kv: kv["tokenizer.ggml.merges"].value.append("q z"), CorruptModel, "merge 'q z'"),
        (lambda kv: kv["tokenizer.ggml.merges"].value.append("hel"), CorruptModel, "merge 'hel'"),
        (
            lambda kv: kv["tokenizer.ggml.tokens"].value.__setitem__(5, "he"),
            CorruptModel,
            "'he' has two ids, 5 and 256",
        ),
        (lambda kv: kv["tokenizer.ggml.tokens"].value.append("more"), CorruptModel, "289 tokens do not fit"),
        (lambda kv: kv["tokenizer.ggml.token_type"].value.pop(), CorruptModel, "expected 288 .*, got 287"),
        (
            lambda kv: setattr(kv["tokenizer.ggml.model"], "value", "llama"),
            CorruptModel,
            "288 tokenizer.ggml.scores, got none",
        ),
    ],
)
def test_a_vocabulary_that_cannot_be_used_is_one_clear_line(
    tiny_model: TinyModel,
    tmp_path: Path,
    change: Callable[[dict[str, object]], None],
    error: type[ModelError],
    says: str,
) -> None:
    path = tiny_model.write_gguf(tmp_path / "m.gguf", tokenizer=changed(tiny_model, change))
    with pytest.raises(error, match=says):
        open_gguf(path)


def test_end_tokens_are_the_stated_and_the_well_known(tiny_model: TinyModel, tmp_path: Path) -> None:
    def change(kv: dict[str, Any]) -> None:
        tokens = kv["tokenizer.ggml.tokens"].value
        tokens[270], tokens[271], tokens[272] = "<|eot_id|>", "<|endoftext|>", "<|eom_id|>"
        kv["tokenizer.ggml.eos_token_id"].value = 280

    source = open_gguf(
        tiny_model.write_gguf(tmp_path / "m.gguf", tokenizer=changed(tiny_model, change))
    ).tokenizer
    assert source.end_tokens == (280, 259, 270, 271, 272)
    assert ids(load(source.tokenizer_json), "x<|eot_id|>")[1:] == [270], (
        "marked as padding, matched all the same"
    )


@pytest.mark.parametrize(
    ("pre", "stated", "expected"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("smollm", None, False), ("smollm", True, True)],
)
def test_bos_is_added_as_stated_or_as_the_family_does(
    tiny_model: TinyModel, tmp_path: Path, pre: str, stated: bool | None, expected: bool
) -> None:
    def change(kv: dict[str, Any]) -> None:
        kv["tokenizer.ggml.pre"].value = pre
        if stated is None:
            del kv["tokenizer.ggml.add_bos_token"]
        else:
            kv["tokenizer.ggml.add_bos_token"].value = stated

    source = open_gguf(
        tiny_model.write_gguf(tmp_path / "m.gguf", tokenizer=changed(tiny_model, change))
    ).tokenizer
    assert source.add_bos is expected
    assert 258 not in ids(load(source.tokenizer_json), "x")


def sentence_piece(rng: random.Random, count: int) -> tuple[list[str], list[float], list[int]]:
    """Three control tokens, 256 bytes, letters, then pieces that each join two earlier ones, best first."""
    letters = ["▁", *"abcde"]
    known = list(letters)
    while len(known) < count:
        piece = rng.choice(known) + rng.choice(known)
        if len(piece) <= 8 and piece not in known:
            known.append(piece)
    joined = known[len(letters) :]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *joined, *letters]
    scores = (
        [0.0] * 259
        + [-float(rank) for rank in range(len(joined))]
        + [-1000.0 - i for i in range(len(letters))]
    )
    return tokens, scores, [2, 3, 3] + [6] * 256 + [1] * (len(joined) + len(letters))


def merged_by_score(text: str, tokens: list[str], scores: list[float]) -> list[int]:
    """SentencePiece BPE by its definition: join the neighbours that make the best piece, the leftmost first."""
    known = {token: index for index, token in enumerate(tokens)}
    parts = list(text)
    while True:
        best: tuple[float, int] | None = None
        for at in range(len(parts) - 1):
            token = known.get(parts[at] + parts[at + 1])
            if token is not None and (best is None or scores[token] > best[0]):
                best = (scores[token], at)
        if best is None:
            break
        parts[best[1] : best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
    found: list[int] = []
    for part in parts:
        found += [known[part]] if part in known else [known[f"<0x{byte:02X}>"] for byte in part.encode()]
    return found


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece_merges_follow_from_the_scores(
    tiny_model: TinyModel, tmp_path: Path, prefix: bool
) -> None:
    rng = random.Random(7)
    tokens, scores, kinds = sentence_piece(rng, 120)
    model = tiny_model.but(vocab=len(tokens))

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(kinds)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        if not prefix:
            writer.add_add_space_prefix(False)

    source = open_gguf(model.write_gguf(tmp_path / "m.gguf", tokenizer=add)).tokenizer
    assert (source.bos_token, source.end_tokens, source.add_bos) == (1, (2,), True)
    tokenizer = load(source.tokenizer_json)
    lead = "▁" if prefix else ""
    for _ in range(400):
        text = "".join(rng.choice("aaabbbcdde é🙂") for _ in range(rng.randint(1, 30)))
        expected = merged_by_score(lead + text.replace(" ", "▁"), tokens, scores)
        assert ids(tokenizer, text) == expected, text
        assert tokenizer.decode(expected) == text
    assert ids(tokenizer, "ab</s>")[-1] == 2
    assert tokenizer.decode([*ids(tokenizer, "ab"), 2]) == "ab"


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_refused(tiny_model: TinyModel, tmp_path: Path, score: float) -> None:
    def change(kv: dict[str, Any]) -> None:
        kv["tokenizer.ggml.model"].value = "llama"
        kv["tokenizer.ggml.scores"] = gguf.gguf_writer.GGUFValue(
            [0.0] * 287 + [score], gguf.GGUFValueType.ARRAY
        )

    path = tiny_model.write_gguf(tmp_path / "m.gguf", tokenizer=changed(tiny_model, change))
    with pytest.raises(CorruptModel, match="should be finite numbers"):
        open_gguf(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello  world 12", ["Hello", "Ġ", "Ġworld", "Ġ", "1", "2"]),
        ("I don't", ["I", "Ġdon", "'t"]),
        ("<|im_start|>user\nHi<|im_end|>\n", ["<|im_start|>", "user", "Ċ", "Hi", "<|im_end|>", "Ċ"]),
    ],
)
def test_the_real_tokenizer_cuts_as_expected(smollm2_gguf: Path, text: str, expected: list[str]) -> None:
    tokenizer = load(open_gguf(smollm2_gguf).tokenizer.tokenizer_json)
    assert tokenizer.encode(text, add_special_tokens=False).tokens == expected


def test_the_real_tokenizer_gives_every_text_back(smollm2_gguf: Path) -> None:
    source = open_gguf(smollm2_gguf).tokenizer
    tokenizer = load(source.tokenizer_json)
    rng = random.Random(3)
    varied = ["".join(rng.choice(TEXTS) for _ in range(3)) for _ in range(100)]
    for text in [*TEXTS, *varied]:
        assert tokenizer.decode(ids(tokenizer, text), skip_special_tokens=False) == text
    assert (source.bos_token, source.end_tokens, source.add_bos) == (1, (2, 0), False)
    assert source.chat_template is not None
    assert "<|im_start|>" in source.chat_template


def test_the_real_tokenizer_equals_llama_cpp(smollm2_gguf: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is an extra of the benchmarks")
    theirs = llama_cpp.Llama(model_path=str(smollm2_gguf), vocab_only=True, verbose=False)
    ours = load(open_gguf(smollm2_gguf).tokenizer.tokenizer_json)
    rng = random.Random(5)
    varied = [
        "".join(rng.choice([*TEXTS, "<|im_start|>", "<|im_end|>"]) for _ in range(4)) for _ in range(300)
    ]
    for text in [*TEXTS, *varied]:
        assert ids(ours, text) == theirs.tokenize(text.encode(), add_bos=False, special=True), text


@pytest.mark.parametrize(
    "template", ["a", "\n a\n", "  {% if true %}b{% endif %}\n  ", "x  ", "{% set y = 1 %}\n{{ y }}\n\t", ""]
)
def test_a_template_for_tools_is_chosen_by_tools(template: str) -> None:
    environment = Environment(trim_blocks=True, lstrip_blocks=True)
    alone = environment.from_string(template).render()
    for both, tools in ((("D", template), [1]), ((template, "T"), None), ((template, "T"), [])):
        assert environment.from_string(chosen_by_tools(*both)).render(tools=tools) == alone
    assert chosen_by_tools(template, None) == template


def test_a_folder_with_a_template_for_tools(tmp_path: Path) -> None:
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "chat_template.jinja").write_text("D")
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("T")
    listed = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    for folder, settings in ((tmp_path, {}), (tmp_path / "none", {"chat_template": listed})):
        assert _chat_template(folder, settings) == chosen_by_tools("D", "T")
