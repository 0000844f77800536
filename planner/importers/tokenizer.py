"""How the vocabulary inside a GGUF file becomes a Hugging Face tokenizer.json that cuts text the same way.

`tokenizer.ggml.model` "gpt2" is byte-level BPE with stored merges; "llama" is SentencePiece BPE, whose merges
follow from the scores. The result never adds a BOS: TokenizerSource.add_bos says whether the caller should.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from planner.errors import CorruptModel, UnknownTokenizer
from planner.importers.gguf_file import GgufFile
from planner.importers.pretokenizers import PRE_TOKENIZERS, normalizer, pre_tokenizer
from planner.model.sources import TokenizerSource

KNOWN_MODELS = ("gpt2", "llama")
SPACE = "▁"  # U+2581, SentencePiece's space

END_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
)


class TokenType(IntEnum):
    """tokenizer.ggml.token_type"""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def tokenizer_from_gguf(file: GgufFile, vocab: int) -> TokenizerSource:
    """Builds the tokenizer. `vocab`: rows of the embedding. UnknownTokenizer lists what is known."""
    where = file.path.name
    model = file.text("tokenizer.ggml.model")
    tokens = file.texts("tokenizer.ggml.tokens")
    if model not in KNOWN_MODELS:
        raise UnknownTokenizer(
            f"{where}: tokenizer model {model!r} is not supported; known are {', '.join(KNOWN_MODELS)}"
        )
    if not tokens:
        raise CorruptModel(f"{where}: metadata tokenizer.ggml.tokens is missing; convert the model again")
    if len(tokens) > vocab:
        raise CorruptModel(f"{where}: {len(tokens)} tokens do not fit into an embedding of {vocab} rows")
    types = _types(file, len(tokens))
    ids = _unique(tokens, where)
    if model == "gpt2":
        tokenizer, add_bos = _byte_level(file, ids)
    else:
        tokenizer, add_bos = _sentence_piece(file, ids, types), True
    end_of_turn = {ids[text] for text in END_OF_TURN if text in ids}
    _add_tokens(tokenizer, tokens, types, end_of_turn)
    bos = _token_id(file, "bos", len(tokens))
    ends = [_token_id(file, key, len(tokens)) for key in ("eos", "eot", "eom")]
    stated = file.flag("tokenizer.ggml.add_bos_token")
    return TokenizerSource(
        tokenizer_json=tokenizer.to_str().encode(),
        chat_template=_chat_template(file),
        bos_token=bos,
        end_tokens=end_tokens(ends, end_of_turn),
        add_bos=(add_bos if stated is None else stated) and bos is not None,
    )


def _chat_template(file: GgufFile) -> str | None:
    default = file.text("tokenizer.chat_template")
    return default and chosen_by_tools(default, file.text("tokenizer.chat_template.tool_use"))


_BLANKS_OF_BLOCK: Final = re.compile(r"\A[ \t]+(?=\{[%#](?!\+))")


def chosen_by_tools(default: str, tool_use: str | None) -> str:
    """One chat template of two: `tool_use` shows questions with tools, `default` the others, each as it is."""
    if tool_use is None or tool_use == default:
        return default
    return f"{{% if tools %}}{_alone(tool_use)}{{% else %}}{_alone(default)}{{% endif %}}"


def _alone(template: str) -> str:
    """A template that gives the same between two blocks as alone, where trim_blocks and lstrip_blocks cut blanks."""
    text = _BLANKS_OF_BLOCK.sub("", template.removesuffix("\n"))
    first = "{{ '\\n' }}" if text.startswith("\n") else ""
    text = text[len(first) and 1 :]
    kept = text.rstrip(" \t")
    blanks = text[len(kept) :].replace("\t", "\\t")
    last = f"{{{{ '{blanks}' }}}}" if blanks and (not kept or kept.endswith("\n")) else text[len(kept) :]
    return first + kept + last


def end_tokens(stated: Iterable[int | None], end_of_turn: Iterable[int]) -> tuple[int, ...]:
    """Ids that end an answer: those the model states, in its order, then the well-known ones, ascending."""
    found = [token for token in stated if token is not None]
    return tuple(dict.fromkeys([*found, *sorted(end_of_turn)]))


def _byte_level(file: GgufFile, ids: dict[str, int]) -> tuple[Tokenizer, bool]:
    name = file.text("tokenizer.ggml.pre") or "default"
    kind = PRE_TOKENIZERS.get(name)
    if kind is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UnknownTokenizer(
            f"{file.path.name}: pre-tokenizer {name!r} is not supported; known are {known}"
        )
    stored = file.texts("tokenizer.ggml.merges")
    if stored is None:
        raise CorruptModel(
            f"{file.path.name}: metadata tokenizer.ggml.merges is missing; convert the model again"
        )
    merges = [_merge(text, ids, file.path.name) for text in stored]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=kind.ignore_merges))
    if (before := normalizer(kind)) is not None:
        tokenizer.normalizer = before
    tokenizer.pre_tokenizer = pre_tokenizer(kind)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer, kind.add_bos


def word_piece(file: GgufFile, vocab: int) -> Tokenizer:
    """The tokenizer of an encoder, as BERT has it: words are lowercased unless the vocabulary has capitals, and a text,
    or a pair of them, stands between marks. `vocab`: rows of the embedding.
    """
    where, model = file.path.name, file.text("tokenizer.ggml.model")
    tokens = file.texts("tokenizer.ggml.tokens")
    if model != "bert":
        raise UnknownTokenizer(
            f"{where}: tokenizer model {model!r} of an encoder is not supported; known is bert"
        )
    if not tokens or len(tokens) > vocab:
        raise CorruptModel(f"{where}: 1 to {vocab} tokenizer.ggml.tokens expected, got {len(tokens or ())}")
    types = _types(file, len(tokens))
    control = {at for at, kind in enumerate(types) if kind in (TokenType.CONTROL, TokenType.UNKNOWN)}
    marks = {
        name: _token_id(file, key, len(tokens))
        for name, keys in _MARKS.items()
        for key in keys
        if _token_id(file, key, len(tokens)) is not None
    }
    if missing := [name for name in _MARKS if marks.get(name) is None]:
        raise CorruptModel(f"{where}: metadata names no token {', '.join(missing)}; convert the model again")
    control |= {token for token in marks.values() if token is not None}
    words = [_of_word(text, at in control) for at, text in enumerate(tokens)]
    ids = _unique(words, where)
    first, last, unknown = (words[token] for name in _MARKS if (token := marks[name]) is not None)
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token=unknown))
    plain = (text for at, text in enumerate(words) if at not in control and not _BRACKETS.fullmatch(text))
    lower = not any(text != text.lower() for text in plain)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, ids[first]), (last, ids[last])],
    )
    tokenizer.add_special_tokens(
        [AddedToken(words[at], special=True, normalized=False) for at in sorted(control)]
    )
    return tokenizer


_MARKS: Final = {  # by what they are: keys of the token's id, the last one that is there counts
    "[CLS]": ("cls", "bos"),
    "[SEP]": ("eos", "seperator"),
    "[UNK]": ("unknown",),
}
_BRACKETS: Final = re.compile(r"\[.*\]")


def _of_word(text: str, control: bool) -> str:
    """A token as WordPiece has it: converters put a mark before those that begin words, and none before others."""
    if control or _BRACKETS.fullmatch(text):
        return text
    return text[1:] if text.startswith(SPACE) else f"##{text}"


def _merge(text: str, ids: dict[str, int], where: str) -> tuple[str, str]:
    left, space, right = text[1:].partition(" ")  # a space in the first place belongs to the left half
    left = text[:1] + left
    if not space or left not in ids or right not in ids or left + right not in ids:
        raise CorruptModel(f"{where}: merge {text[:60]!r} joins or makes tokens that the vocabulary lacks")
    return left, right


def _sentence_piece(file: GgufFile, ids: dict[str, int], types: Sequence[int]) -> Tokenizer:
    scores = file.numbers("tokenizer.ggml.scores")
    if scores is None or len(scores) < len(types):
        got = "none" if scores is None else str(len(scores))
        raise CorruptModel(f"{file.path.name}: expected {len(types)} tokenizer.ggml.scores, got {got}")
    if not np.isfinite(scores).all():
        raise CorruptModel(
            f"{file.path.name}: tokenizer.ggml.scores should be finite numbers: download the file again"
        )
    unknown = _token_id(file, "unknown", len(types))
    if unknown is None:
        unknown = next((i for i, kind in enumerate(types) if kind == TokenType.UNKNOWN), None)
    texts = {token: text for text, token in ids.items()}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=ids,
            merges=_merges_from_scores(ids, np.asarray(scores, np.float64), types),
            unk_token=None if unknown is None else texts.get(unknown),
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = file.flag("tokenizer.ggml.add_space_prefix") is not False
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_from_scores(
    ids: dict[str, int], scores: np.ndarray, types: Sequence[int]
) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a piece, best score of the result first: as SentencePiece merges."""
    joinable = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    ranked: list[tuple[float, int, int, int, str, str]] = []
    for text, token in ids.items():
        if types[token] not in joinable:
            continue
        for cut in range(1, len(text)):
            left, right = ids.get(text[:cut]), ids.get(text[cut:])
            if left is not None and right is not None:
                ranked.append((-float(scores[token]), token, left, right, text[:cut], text[cut:]))
    return [(left, right) for *_, left, right in sorted(ranked)]


def _add_tokens(
    tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int], end_of_turn: set[int]
) -> None:
    """Control tokens are matched whole and left out of decoded text; user-defined ones are kept in it."""
    added: list[AddedToken] = []
    for token, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if not text or tokenizer.token_to_id(text) != token:
            continue
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN) or token in end_of_turn:
            added.append(AddedToken(text, special=True, normalized=False))
        elif kind == TokenType.USER_DEFINED:
            added.append(AddedToken(text, special=False, normalized=False))
    tokenizer.add_tokens(added)


def _types(file: GgufFile, count: int) -> list[int]:
    stored = file.numbers("tokenizer.ggml.token_type")
    if stored is None:
        return [int(TokenType.NORMAL)] * count
    if len(stored) < count:
        raise CorruptModel(f"{file.path.name}: expected {count} tokenizer.ggml.token_type, got {len(stored)}")
    return [int(kind) for kind in stored[:count].tolist()]


def _unique(tokens: Sequence[str], where: str) -> dict[str, int]:
    """Text -> id. Empty texts (padding) get a name of their own; the same text twice is an error."""
    ids: dict[str, int] = {}
    for token, text in enumerate(tokens):
        first = ids.setdefault(text or f"[EMPTY_{token}]", token)
        if first != token and "\N{REPLACEMENT CHARACTER}" in text:
            ids[f"[BROKEN_{token}]"] = token  # pieces of characters, made equal by decoding
        elif first != token:
            raise CorruptModel(f"{where}: token {text[:60]!r} has two ids, {first} and {token}")
    return ids


def _token_id(file: GgufFile, name: str, count: int) -> int | None:
    token = file.whole(f"tokenizer.ggml.{name}_token_id")
    return token if token is not None and token < count else None
