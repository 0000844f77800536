"""Small random checkpoints of every family of encoders, as folders: vectors of texts, and scores of pairs.

`python -m tests.planner.importers.encoders.make_reference` makes what transformers and sentence-transformers compute of
them, once, into the folder reference/; the suite needs neither.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tests.planner.importers.families.checkpoints import Floats, weights_of
from tests.planner.tiny_models import safetensors_bytes

REFERENCE: Final = Path(__file__).parent / "reference"
REAL: Final = "all-minilm-l6-v2"  # whose vectors of TEXTS are there, too
POSITIONS: Final = 64  # of which rows are compared, and most tokens of a text
TEXTS: Final = (
    "why is the sky blue",
    "Sunny",
    "the sea is as blue as the sky, and why?",
    "is it blue? " * 4,
    "a café, 東京 and nobody",
)
QUERY: Final = "why is the sky blue?"
WORDS: Final = (
    "why",
    "is",
    "the",
    "sky",
    "blue",
    "sea",
    "a",
    "as",
    "and",
    "it",
    "##s",
    "##e",
    "sun",
    "##ny",
    ",",
    "?",
)
LABELS: Final = ("sad", "glad", "neither")
BYTES: Final = 300  # tokens of a byte-level vocabulary, and some that no text has

_SIZES: Final = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": 80,
}


@dataclass(frozen=True)
class Case:
    """`kind`: model_type. `tokens`: which tokenizer. `numbers`: of its config. `modules`: what follows the encoder,
    with the mode of the pooling; of scores: the activation behind the head, "" where config.json does not say it.
    `labels`: of one that sorts texts.
    """

    kind: str
    tokens: str
    numbers: Mapping[str, Any]
    modules: tuple[str, ...] = ()
    activation: str | None = None
    labels: tuple[str, ...] = ()

    @property
    def scores(self) -> bool:
        return self.activation is not None


_DISTIL: Final = {
    "dim": 48,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 80,
    "max_position_embeddings": 80,
    "hidden_size": None,
    "num_hidden_layers": None,
    "num_attention_heads": None,
    "intermediate_size": None,
}
_ROBERTA: Final = {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_MODERN: Final = {"pad_token_id": 1, "num_hidden_layers": 4, "local_attention": 16, "head_dim": None}
_IDENTITY: Final = "torch.nn.modules.linear.Identity"

CASES: Final[Mapping[str, Case]] = {
    "bert": Case("bert", "words", {}, ("mean", "Normalize")),
    "bert-dense": Case("bert", "words", {"hidden_act": "gelu_new"}, ("cls", "Dense", "Normalize")),
    "roberta": Case("roberta", "bytes", _ROBERTA, ("mean",)),
    "xlm-roberta": Case("xlm-roberta", "unigrams", _ROBERTA, ("cls", "Normalize")),
    "distilbert": Case("distilbert", "words", _DISTIL, ("max", "Normalize")),
    "mpnet": Case("mpnet", "words", {"pad_token_id": 1}, ("mean", "Normalize")),
    "modernbert": Case("modernbert", "bytes", _MODERN, ("cls", "Normalize")),
    "nomic": Case("nomic_bert", "words", {}, ("mean", "Normalize")),
    "bert-scores": Case("bert", "words", {}, activation=_IDENTITY),
    "roberta-scores": Case("roberta", "bytes", _ROBERTA, activation=""),
    "xlm-roberta-scores": Case("xlm-roberta", "unigrams", _ROBERTA, activation=""),
    "distilbert-scores": Case("distilbert", "words", _DISTIL, activation=""),
    "mpnet-scores": Case("mpnet", "words", {"pad_token_id": 1}, activation=""),
    "modernbert-scores": Case(
        "modernbert", "bytes", {**_MODERN, "classifier_pooling": "mean"}, activation=""
    ),
    "nomic-scores": Case("nomic_bert", "words", {}, activation=""),
    "bert-classes": Case("bert", "words", {}, labels=LABELS),
    "roberta-classes": Case(
        "roberta", "bytes", {**_ROBERTA, "problem_type": "multi_label_classification"}, labels=LABELS
    ),
    "distilbert-classes": Case("distilbert", "words", _DISTIL, labels=LABELS),
    "modernbert-classes": Case("modernbert", "bytes", _MODERN, labels=LABELS),
}


def config_of(case: Case) -> dict[str, Any]:
    """Arguments of its transformers config."""
    words = tokenizer(case).get_vocab_size()
    given = {"vocab_size": words, "pad_token_id": 0, **_SIZES, **case.numbers}
    return {name: value for name, value in given.items() if value is not None}


def tokenizer(case: Case) -> Tokenizer:
    """A tokenizer as encoders of this family have it, with few tokens. MPNet's padding is the second one."""
    if case.tokens == "words":
        marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        if case.numbers.get("pad_token_id") == 1:
            marks[:2] = ["[UNK]", "[PAD]"]
        made = Tokenizer(
            models.WordPiece({w: at for at, w in enumerate((*marks, *WORDS))}, unk_token="[UNK]")
        )
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        before, between = "[CLS]", "[SEP]"
        pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    else:
        marks = ["<s>", "<pad>", "</s>", "<unk>"]
        if case.tokens == "bytes":
            letters = sorted(pre_tokenizers.ByteLevel.alphabet())
            merges = [("Ġ", "s"), ("Ġs", "k"), ("Ġsk", "y"), ("i", "s"), ("Ġ", "is"), ("b", "l")]
            tokens = [*marks, *letters, *("".join(pair) for pair in merges)]
            tokens += [f"unused {at}" for at in range(BYTES - len(tokens))]
            made = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges))
            made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            made.decoder = decoders.ByteLevel()
        else:
            pieces = [
                "▁",
                "▁why",
                "▁is",
                "▁the",
                "▁sky",
                "▁blue",
                "b",
                "l",
                "u",
                "e",
                "s",
                "k",
                "y",
                "a",
                "?",
                ",",
                "▁s",
                "ea",
            ]
            scores = [(mark, 0.0) for mark in marks] + [
                (piece, -1.0 - at / 8) for at, piece in enumerate(pieces)
            ]
            made = Tokenizer(models.Unigram(scores, unk_id=3))
            made.normalizer = normalizers.NFKC()
            made.pre_tokenizer = pre_tokenizers.Metaspace()
            made.decoder = decoders.Metaspace()
        before, between = "<s>", "</s>"
        pair = "<s> $A </s> </s> $B </s>"
    made.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    specials = [(mark, made.token_to_id(mark)) for mark in (before, between)]
    made.post_processor = processors.TemplateProcessing(
        single=f"{before} $A {between}", pair=pair, special_tokens=specials
    )
    return made


def settings_of(case: Case) -> dict[str, Any]:
    """tokenizer_config.json, which sentence-transformers reads."""
    bracketed = case.tokens == "words"
    with_types = case.kind in ("bert", "nomic_bert")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "[PAD]" if bracketed else "<pad>",
        "unk_token": "[UNK]" if bracketed else "<unk>",
        "cls_token": "[CLS]" if bracketed else "<s>",
        "sep_token": "[SEP]" if bracketed else "</s>",
        "model_max_length": POSITIONS,
        "model_input_names": ["input_ids", *(["token_type_ids"] if with_types else []), "attention_mask"],
    }


def write_folder(
    folder: Path,
    case: Case,
    config: Mapping[str, Any],
    weights: Mapping[str, Floats],
    dense: Mapping[str, Floats],
) -> Path:
    """The checkpoint as published ones are: a sentence-transformers folder, or that of a cross-encoder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weights, "F32"))
    (folder / "tokenizer.json").write_text(tokenizer(case).to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings_of(case)))
    if case.scores or case.labels:
        return folder
    kinds = ["Transformer", "Pooling", *case.modules[1:]]
    modules = [
        {
            "idx": at,
            "name": str(at),
            "path": f"{at}_{kind}" if at else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for at, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": POSITIONS, "do_lower_case": False})
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
    flags = {f"pooling_mode_{name}": mode == case.modules[0] for mode, name in modes.items()}
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": _SIZES["hidden_size"], **flags})
    )
    if "Dense" in kinds:
        place = folder / f"{kinds.index('Dense')}_Dense"
        place.mkdir(exist_ok=True)
        rows, columns = dense["linear.weight"].shape
        said = {"in_features": columns, "out_features": rows, "bias": True}
        said |= {"activation_function": "torch.nn.modules.activation.Tanh"}
        (place / "config.json").write_text(json.dumps(said))
        (place / "model.safetensors").write_bytes(safetensors_bytes(dense, "F32"))
    return folder


DENSE: Final = {"linear.weight": (24, 48), "linear.bias": (24,)}


@dataclass(frozen=True)
class Checkpoint:
    """What is committed of a case. `rows`: (POSITIONS, hidden) of `tokens`; `made`: (texts, numbers), of TEXTS each or
    of the pairs of QUERY with them.
    """

    name: str
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    seed: int
    rows: Floats
    made: Floats

    @property
    def case(self) -> Case:
        return CASES[self.name]

    @property
    def tokens(self) -> list[int]:
        return tokens_of(self.name)

    def weights(self) -> dict[str, Floats]:
        return weights_of(self.shapes, self.seed)

    def write(self, folder: Path) -> Path:
        return write_folder(folder, self.case, self.config, self.weights(), weights_of(DENSE, self.seed))


def tokens_of(name: str) -> list[int]:
    """Random tokens, no marks among them."""
    words = tokenizer(CASES[name]).get_vocab_size()
    found: list[int] = np.random.default_rng([*name.encode()]).integers(4, words, POSITIONS).tolist()
    return found


def real_vectors() -> Floats:
    """What sentence-transformers makes of TEXTS with the real model, (texts, 384)."""
    kept = json.loads((REFERENCE / f"{REAL}.json").read_text(encoding="utf-8"))
    return np.frombuffer(base64.b64decode(kept["made"]), "<f4").reshape(len(TEXTS), -1)


def load(name: str) -> Checkpoint:
    """What is committed of a case."""
    kept = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    shapes = {tensor: tuple(shape) for tensor, shape in kept["shapes"].items()}

    def array(called: str, rows: int) -> Floats:
        return np.frombuffer(base64.b64decode(kept[called]), "<f4").reshape(rows, -1)

    return Checkpoint(
        name, kept["config"], shapes, kept["seed"], array("rows", POSITIONS), array("made", len(TEXTS))
    )
