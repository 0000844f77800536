"""The tokenizer of a Marian folder without tokenizer.json cuts texts as transformers does with sentencepiece."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from planner.errors import CorruptModel, ModelError, UnknownTokenizer
from planner.importers.registry import locate
from planner.importers.seq2seq.folder import open_seq2seq
from planner.importers.seq2seq.marian_tokens import marian_tokenizer, pieces_of
from tests.planner.importers.seq2seq.checkpoints import load

TOKENS = Path(__file__).parent / "tokens"
MADE: dict[str, Any] = json.loads((TOKENS / "marian-tokens.json").read_text())
SPM = gzip.decompress((TOKENS / "marian.spm.gz").read_bytes())
TARGET_ALONE = ("Übersetze Größe", "xyzzy 漢字 model")  # have letters in a row that source.spm does not know


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "source.spm").write_bytes(SPM)
    (tmp_path / "vocab.json").write_text(json.dumps(MADE["words"]))
    return tmp_path


@pytest.fixture
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_str(marian_tokenizer(folder).decode())


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return found


@pytest.mark.parametrize(("text", "ids"), [case for case in MADE["texts"] if case[0] not in TARGET_ALONE])
def test_texts_are_the_tokens_of_transformers(tokenizer: Tokenizer, text: str, ids: list[int]) -> None:
    assert ids_of(tokenizer, text) == ids


def test_what_the_source_language_does_not_know_is_cut_into_pieces_of_the_target_language(
    tokenizer: Tokenizer,
) -> None:
    """Transformers takes letters in a row that source.spm does not know for one unknown token."""
    assert tokenizer.encode("Übersetze").tokens[:4] == ["▁", "Ü", "b", "er"]
    assert ids_of(tokenizer, "漢字") == [MADE["words"]["▁"], MADE["words"]["<unk>"]]


def test_a_target_text_is_its_pieces(tokenizer: Tokenizer) -> None:
    ids, text = MADE["target"]
    assert tokenizer.decode([each for each in ids if each != MADE["words"]["<unk>"]]) == text.replace(
        "<unk>", ""
    )


def test_a_folder_without_tokenizer_json_is_imported(tmp_path: Path) -> None:
    checkpoint = load("marian")
    written = checkpoint.write(tmp_path / "writer")
    vocab = checkpoint.config["vocab_size"]
    words = {**MADE["words"]}
    assert len(words) > vocab, "more pieces than this model has rows"
    (written / "tokenizer.json").unlink()
    (written / "source.spm").write_bytes(SPM)
    (written / "vocab.json").write_text(json.dumps(words))
    with pytest.raises(CorruptModel, match="do not fit into an embedding"):
        open_seq2seq(written)
    few = [*list(words)[: vocab - 1], "<pad>"]
    (written / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(few)}))
    made = Tokenizer.from_str(open_seq2seq(written).tokenizer.tokenizer_json.decode())
    assert made.get_vocab_size() == vocab
    assert {"source.spm", "vocab.json"} <= locate(str(written), tmp_path).files.keys()


def field(number: int, content: bytes | int | float) -> bytes:
    """One of a protobuf message."""
    if isinstance(content, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", content)
    if isinstance(content, int):
        return bytes([number << 3, content])
    return bytes([number << 3 | 2, len(content)]) + content


PIECE = field(1, field(1, "▁a".encode()) + field(2, -1.5))
BAD: dict[str, tuple[bytes, type[ModelError], str]] = {
    "nothing": (b"", CorruptModel, "found no piece"),
    "text": (b"<html>", CorruptModel, "ends early or is no"),
    "a length without bytes": (bytes([10, 200, 1]), CorruptModel, "ends early"),
    "a number without end": (bytes([255] * 12), CorruptModel, "ends early"),
    "an empty piece": (field(1, field(2, -1.5)), CorruptModel, "1 to 1024 characters"),
    "a score that is no number": (
        field(1, field(1, b"a") + field(2, float("nan"))),
        CorruptModel,
        "finite scores",
    ),
    "letters that are none": (field(1, field(1, b"\xff")), CorruptModel, "UTF-8"),
    "bytes": (field(1, field(1, b"<0x41>") + field(3, 6)), UnknownTokenizer, "pieces of bytes"),
    "another type": (PIECE + field(2, field(3, 2)), UnknownTokenizer, "type unigram expected"),
    "no space before a text": (PIECE + field(3, field(3, 0)), UnknownTokenizer, "put before texts"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_model_of_that_kind_is_refused(case: str) -> None:
    content, error, says = BAD[case]
    with pytest.raises(error, match=says):
        pieces_of(content, "source.spm")


def test_a_model_that_is_cut_short_is_refused_or_has_fewer_pieces() -> None:
    whole = pieces_of(SPM, "source.spm")
    refused = 0
    for stop in range(0, 2000, 7):
        try:
            found = pieces_of(SPM[:stop], "source.spm")
        except CorruptModel:
            refused += 1
            continue
        assert found.scores.items() <= whole.scores.items()
    assert refused > 200


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"</s>": 0, "<unk>": 1}, "should have <pad>"),
        ({"</s>": 0, "<unk>": 1, "<pad>": 3}, "from 0 on, each once"),
        ({"</s>": 0, "<unk>": 0, "<pad>": 1}, "from 0 on, each once"),
        ({}, "from 0 on, each once"),
    ],
)
def test_a_vocabulary_with_holes_is_refused(folder: Path, words: dict[str, int], says: str) -> None:
    (folder / "vocab.json").write_text(json.dumps(words))
    with pytest.raises(CorruptModel, match=says):
        marian_tokenizer(folder)


def test_a_folder_without_a_vocabulary_is_refused(folder: Path) -> None:
    (folder / "vocab.json").unlink()
    with pytest.raises(UnknownTokenizer, match=r"neither tokenizer\.json nor source\.spm and vocab\.json"):
        marian_tokenizer(folder)
