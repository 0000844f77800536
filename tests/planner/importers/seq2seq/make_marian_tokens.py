"""Writes tokens/marian-tokens.json and tokens/marian.spm.gz: how transformers reads texts with a small SentencePiece
model. Needs sentencepiece and transformers.

python -m tests.planner.importers.seq2seq.make_marian_tokens
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import sentencepiece
import transformers

TOKENS: Final = Path(__file__).parent / "tokens"
ENGLISH: Final = (
    "The mesh answers questions with models that people have on their disks. A peer that is lost is made up for. "
    "Good night, and good luck: it is late. How many peers hold a part of the model? Translate this text, please. "
    "A question right after a peer died may still take the route of the lost peer, and waits until another one comes."
)
GERMAN: Final = (
    "Das Netz beantwortet Fragen mit Modellen, die Leute auf ihren Platten haben. Ein verlorener Teilnehmer wird "
    "ersetzt. Gute Nacht und viel Glück: es ist spät. Wie viele Teilnehmer halten einen Teil des Modells? Übersetze "
    "bitte diesen Text. Größe, Straße, Äpfel, Öl."
)
TEXTS: Final = (
    "Good night.",
    "  Good   night ,  model! ",
    "How many peers are lost?",
    "ﬁnd the ① model… “quoted” ２０２６",
    "Übersetze Größe",
    "xyzzy 漢字 model",
    "",
    " ",
    ">>deu<< Good night.",
    "a\tb\nc",
)


def trained(folder: Path, name: str, text: str, rule: str) -> Path:
    """A model of 90 pieces of that text."""
    (folder / f"{name}.txt").write_text(
        "\n".join(text.replace(". ", ".\n").split("\n") * 4), encoding="utf-8"
    )
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / f"{name}.txt"), model_prefix=str(folder / name), vocab_size=90, model_type="unigram",
        normalization_rule_name=rule, character_coverage=1.0, num_threads=1, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    return folder / f"{name}.model"


def main() -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        source = trained(folder, "source", ENGLISH, "nmt_nfkc")
        target = trained(folder, "target", GERMAN, "identity")
        pieces = dict.fromkeys(("</s>", "<unk>"))
        for each in (source, target):
            model = sentencepiece.SentencePieceProcessor(model_file=str(each))
            pieces |= dict.fromkeys(
                model.id_to_piece(number) for number in range(len(model)) if not model.is_control(number)
            )
        words = {piece: number for number, piece in enumerate((*pieces, ">>deu<<", "<pad>"))}
        vocabulary = folder / "vocab.json"
        vocabulary.write_text(json.dumps(words))
        tokenizer = transformers.MarianTokenizer(
            source_spm=str(source),
            target_spm=str(target),
            vocab=str(vocabulary),
            source_lang="en",
            target_lang="de",
        )
        cases = []
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False)
            cases.append([text, ids])
            print(repr(text), tokenizer.convert_ids_to_tokens(ids))
        said = tokenizer(text_target="Gute Nacht, Größe!").input_ids[:-1]
        found = {"words": words, "texts": cases, "target": [said, tokenizer.decode(said)]}
        print(found["target"])
        (TOKENS / "marian-tokens.json").write_text(json.dumps(found))
        with source.open("rb") as model, gzip.GzipFile(TOKENS / "marian.spm.gz", "wb", mtime=0) as packed:
            shutil.copyfileobj(model, packed)


if __name__ == "__main__":
    main()
