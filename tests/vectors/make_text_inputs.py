"""Writes text_inputs.json: manifests that say how texts become inputs, and what texts become, for both languages."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from tracing import beside, written

from peer.errors import BadCommand
from peer.model.text_inputs import TextReader
from planner.errors import CorruptStore
from planner.model.graph_manifest import decode_graph_manifest
from tests.planner.importers.encoders import checkpoints

PATH = beside(__file__, "text_inputs.json")
MARKS: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS: Final = (
    "why", "is", "the", "sky", "blue", "cafe", "sun", "##ny", "##s", "##e", "##p", "s", "[", "]", "?", ",", "-", "東",
)  # fmt: skip
TEXTS: Final[tuple[list[str], ...]] = (
    ["Why is the sky blue?"],
    ["why", "is the SUNNY sky blue", ""],
    ["Café, 東 - nobody"],
    ["[SEP]"],
    ["sky " * 6],
    ["sky " * 7],
    ["x" * (128 * 8)],
    ["x" * (128 * 8 + 1)],
    ["sky"] * 3,
    [],
)


def tokenizer() -> str:
    """A WordPiece as encoders of the BERT family have it, with few words."""
    made = Tokenizer(
        models.WordPiece({word: at for at, word in enumerate((*MARKS, *WORDS))}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS])
    made.enable_truncation(3)  # which says nothing here: texts are refused, not cut
    made.enable_padding(length=20)
    found: str = made.to_str()
    return found


def manifest(width: int | str = "length", **types: str) -> dict[str, Any]:
    """A model that takes inputs of these types, and says that texts become them. It makes a number, a vector and a
    score of each text.
    """
    blob = {"sha256": "0" * 64, "bytes": 1, "pieces": ["0" * 64]}
    return {
        "format": "shoal-2",
        "name": "encoder",
        "inputs": list(types),
        "outputs": ["y", "z", "s"],
        "sizes": {},
        "values": [
            *({"name": name, "dtype": dtype, "shape": ["texts", width], "bytes": []} for name, dtype in types.items()),
            {"name": "y", "dtype": "float32", "shape": ["texts"], "bytes": []},
            {"name": "z", "dtype": "float32", "shape": ["texts", 4], "bytes": []},
            {"name": "s", "dtype": "float32", "shape": ["texts", 1], "bytes": []},
        ],
        "units": [
            {
                "name": "all", "component": "model", "graph": blob, "weights": [], "tensors": [], "inputs": list(types),
                "outputs": ["y", "z", "s"], "params": 0, "resident_bytes": 0, "flops": [], "ops": [],
            }
        ],
        "text": {
            "tokenizer": blob, "longest": 8, "pad": 0,
            **{name: name for name in types},
        },
    }  # fmt: skip


ALL: Final = manifest(tokens="int64", mask="float32", types="int32")


def changed(*path: str, to: Any = None) -> dict[str, Any]:
    """ALL with another value at a place of `text`; None: without it."""
    document = copy.deepcopy(ALL)
    at = document["text"]
    for key in path[:-1]:
        at = at[key]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return document


def manifests() -> list[dict[str, Any]]:
    """What stands in a manifest, and whether it is read."""
    cases = [
        ALL,
        manifest(tokens="int32"),
        manifest(8, tokens="int64", mask="int64"),
        manifest(7, tokens="int64"),
        manifest(tokens="float32"),
        manifest(tokens="int64", mask="bool"),
        changed("tokenizer"),
        changed("tokenizer", to={"sha256": "0" * 64, "bytes": (64 << 20) + 1, "pieces": ["0" * 64] * 17}),
        changed("tokens", to="y"),
        changed("mask"),
        changed("mask", to="tokens"),
        changed("longest", to=0),
        changed("longest", to=(1 << 20) + 1),
        changed("pad", to=-1),
        changed("pad", to=1 << 31),
        {**ALL, "text": "words"},
        {**ALL, "values": [*ALL["values"][:2], {**ALL["values"][2], "shape": ["texts"]}, *ALL["values"][3:]]},
        changed("vectors", to="z"),
        *(changed("vectors", to=name) for name in ("y", "tokens", "x")),
        *(
            {
                **changed("vectors", to="z"),
                "values": [*ALL["values"][:4], {**ALL["values"][4], **vectors}, *ALL["values"][5:]],
            }
            for vectors in (
                {"dtype": "float16"},
                {"shape": ["texts", "length"]},
                {"shape": [3, 4]},
                {"shape": ["texts", (1 << 16) + 1]},
                {"shape": ["texts", 4, 1]},
            )
        ),
        changed("scores", to="s"),
        *(changed("scores", to=name) for name in ("z", "y", "tokens", "x")),
        {
            **changed("scores", to="s"),
            "values": [*ALL["values"][:5], {**ALL["values"][5], "dtype": "float16"}],
        },
    ]
    rows = []
    for document in cases:
        encoded = json.dumps(document)
        try:
            decode_graph_manifest(encoded.encode())
            why = ""
        except CorruptStore as error:
            why = str(error)
        rows.append({"manifest": encoded, "why": why})
    return rows


def texts() -> list[dict[str, Any]]:
    """Arrays by name as nested lists, or why there are none."""
    rows = []
    wide = [ALL, manifest(8, tokens="int64", mask="int64"), {**ALL, "text": {**ALL["text"], "pad": 7}}]
    for document in wide:
        encoded = json.dumps(document)
        reader = TextReader(decode_graph_manifest(encoded.encode()), tokenizer().encode())
        for given in TEXTS:
            arrays: dict[str, Any] = {}
            why = ""
            try:
                arrays = {name: array.tolist() for name, array in reader.arrays(given).items()}
            except BadCommand as error:
                why = str(error)
            rows.append({"manifest": encoded, "texts": given, "arrays": arrays, "why": why})
    return rows


KINDS: Final[dict[str, str]] = {"words": "mpnet", "bytes": "roberta", "unigrams": "xlm-roberta"}
HARD: Final = (
    "why is the sky blue?",
    " Sunny  skies,\n\ta sea",
    "Is the sky BLUE",
    "</s> [SEP] <pad> <s>",
    "cafe\u0301 caf\u00e9 \ufb01ne \u00bd",
    "\u6771\u4eac, \U0001f30a\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u200b\u00a0blue\u00ad",
    "\u2581why sky",
    "is" * 24,
)  # what tokenizers are known to cut in different ways


def tokenizers() -> list[dict[str, Any]]:
    """The tokens of texts by each kind of tokenizer that encoders have."""
    rows = []
    document = manifest(tokens="int64")
    document["text"]["longest"] = 200
    reads = decode_graph_manifest(json.dumps(document).encode())
    for kind, case in KINDS.items():
        rules = checkpoints.tokenizer(checkpoints.CASES[case]).to_str()
        reader = TextReader(reads, rules.encode())
        ids = [list(row.ids) for row in reader.rows(HARD)]
        rows.append(
            {"kind": kind, "manifest": json.dumps(document), "rules": rules, "texts": HARD, "ids": ids}
        )
    return rows


def text() -> str:
    about = (
        "`tokenizer`: a tokenizer.json. `manifests`: whether a manifest with `text` is read, else why not. `texts`: "
        "what becomes of texts by a manifest and the tokenizer, or why nothing does. `tokenizers`: tokens of texts by "
        "each kind of tokenizer."
    )
    found = {
        "tokenizer": [tokenizer()],
        "manifests": manifests(),
        "texts": texts(),
        "tokenizers": tokenizers(),
    }
    return written(about, found)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
