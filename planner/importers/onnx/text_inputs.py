"""Whether the inputs of an ONNX file are made of texts, and how: by the tokenizer.json that lies beside it.

Edge: reads that file. A model has text inputs where it takes token ids, under one of the names that exporters give
them, and nothing else but a mask of them and types of segments. It makes embeddings where an output of the name that
sentence-transformers gives it is a vector for each text, and scores pairs where an output `scores` is a number of each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

from planner.errors import CorruptStore, UnknownTokenizer
from planner.model.blob_ref import PIECE_BYTES, BlobRef
from planner.model.graph_manifest import (
    MAX_TEXT_TOKENS,
    MAX_TOKENIZER_BYTES,
    GraphManifest,
    TextInputs,
    check_text,
)

FILE: Final = "tokenizer.json"
EXPORT_FOLDER: Final = "onnx"  # in which exporters put the file, one below the tokenizer
LONGEST: Final = 512  # tokens of a text where nothing says it: what encoders of the BERT family take
_TOKENS: Final = ("input_ids", "tokens")
_MASKS: Final = ("attention_mask", "mask")
_TYPES: Final = ("token_type_ids", "types")
_VECTORS: Final = ("embedding", "sentence_embedding")
_SCORES: Final = "scores"
_CLASSES: Final = "classes"
_PADS: Final = ("[PAD]", "<pad>")


def tokenizer_beside(source: Path) -> Path | None:
    """The tokenizer that belongs to an ONNX file: in its folder, or the one above a folder of exports."""
    folders = [source.parent]
    if source.absolute().parent.name == EXPORT_FOLDER:
        folders.append(source.absolute().parent.parent)
    return next((folder / FILE for folder in folders if (folder / FILE).is_file()), None)


def text_inputs(
    manifest: GraphManifest,
    tokenizer: Path,
    longest: int,
    filler: int | None = None,
    labels: tuple[str, ...] = (),
) -> tuple[bytes, TextInputs] | None:
    """The bytes of the tokenizer and how texts become inputs; None where the inputs are others.

    `longest`: most tokens of a text; 0: as the model's axis or the tokenizer says. `filler`: the token that fills up;
    None: as the tokenizer says. `labels`: into which texts are sorted. Raises UnknownTokenizer.
    """
    by: dict[str, str | None] = {}
    for what, known in (("tokens", _TOKENS), ("mask", _MASKS), ("types", _TYPES)):
        by[what] = next((name for name in manifest.inputs if name in known), None)
    tokens = by["tokens"]
    if tokens is None:
        return None
    content = _read(tokenizer)
    rules, pad = _rules(content)
    axis = manifest.value(tokens).shape[-1:]
    if not longest:
        longest = axis[0] if axis and isinstance(axis[0], int) else _truncated(rules)
    pad = pad if filler is None else filler
    found = TextInputs(_ref(content), tokens, by["mask"], by["types"], longest, pad)
    try:
        check_text(manifest, found)
    except CorruptStore:
        return None
    for name in _VECTORS:
        with suppress(CorruptStore):
            check_text(manifest, wanted := replace(found, vectors=name))
            return content, wanted
    with suppress(CorruptStore):
        check_text(manifest, wanted := replace(found, scores=_SCORES))
        return content, wanted
    if labels:
        check_text(manifest, wanted := replace(found, classes=_CLASSES, labels=labels))
        return content, wanted
    return content, found


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TOKENIZER_BYTES + 1)
    except OSError as error:
        raise UnknownTokenizer(f"{path.name} cannot be read: {error.strerror}") from None
    if len(content) > MAX_TOKENIZER_BYTES:
        raise UnknownTokenizer(f"{path.name}: at most {MAX_TOKENIZER_BYTES} bytes expected")
    return content


def _rules(content: bytes) -> tuple[Mapping[str, object], int]:
    """The parsed file, and the token that fills up. Raises UnknownTokenizer."""
    try:
        tokenizer = Tokenizer.from_str(content.decode("utf-8"))
        rules = json.loads(content)
    except Exception as error:  # tokenizers raises bare Exception
        raise UnknownTokenizer(
            f"{FILE} beside the model cannot be read: {str(error)[:200]}; take it away to import without it"
        ) from None
    pads = (tokenizer.token_to_id(name) for name in _PADS)
    return rules, next((pad for pad in pads if pad is not None), 0)


def _truncated(rules: Mapping[str, object]) -> int:
    said = rules.get("truncation")
    most = said.get("max_length") if isinstance(said, dict) else None
    return most if isinstance(most, int) and 1 <= most <= MAX_TEXT_TOKENS else LONGEST


def _ref(content: bytes) -> BlobRef:
    pieces = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
    hashes = tuple(hashlib.sha256(piece).hexdigest() for piece in pieces)
    return BlobRef(hashlib.sha256(content).hexdigest(), len(content), hashes)
