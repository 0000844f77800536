"""`shoal models`: what the local store holds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from peer.launch.stored_models import Kind, StoredModel, stored_model
from peer.launch.terminal import out, say
from peer.member.byte_sizes import bytes_text
from planner.importers.encoders.table import encoder_rows
from planner.importers.families.table import rows as families
from planner.importers.seq2seq.table import seq2seq_rows
from planner.importers.vision.table import vision_rows
from planner.model.import_index import ImportIndex
from planner.model.store import Store

_STATES: Final = {
    Kind.ANSWERS: "",
    Kind.EMBEDDINGS: "for embeddings",
    Kind.RANKS: "for ranking",
    Kind.GRAPH: "for runs",
    Kind.SPEECH: "for speech",
}
ID_DIGITS: Final = 12  # enough to name a model to `shoal serve`; more where two begin alike


def models(args: argparse.Namespace) -> int:
    """One line for each model: the beginning of its id, name, weights, size, and what it was imported from. With
    --families one for each family that can be imported.
    """
    if args.families:
        return _families(args.json)
    store = Store(args.store)
    sources = ImportIndex(store.root).sources()
    ids = store.models()
    found = {model_id: stored_model(store, model_id) for model_id in ids}
    if args.json:
        out.print(json.dumps([_document(i, found[i], sources.get(i, [])) for i in ids]), markup=False)
        return 0
    if not ids:
        say(f"no models in {store.root} yet; shoal import MODEL brings one")
        return 0
    digits = _digits(ids)
    rows = [(model_id[:digits], *_row(found[model_id], sources.get(model_id, []))) for model_id in ids]
    rows.sort(key=lambda row: (row[1], row[0]))
    _print(rows)
    return 0


def _families(as_json: bool) -> int:
    rows = [*families(), *seq2seq_rows(), *encoder_rows(), *vision_rows()]
    if as_json:
        keys = ("family", "gguf", "config", "apart")
        out.print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]), markup=False)
    else:
        _print([("FAMILY", "IN GGUF AS", "IN CONFIG.JSON AS", "WHAT SETS IT APART"), *rows])
    return 0


def _print(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        out.print("  ".join(cells).rstrip(), markup=False, soft_wrap=True)


def _digits(ids: list[str]) -> int:
    """How many digits tell all ids apart, and at least ID_DIGITS."""
    pairs = pairwise(ids)  # they are sorted
    shared = [next(n for n in range(64) if one[n] != other[n]) for one, other in pairs]
    return max([ID_DIGITS, *(n + 1 for n in shared)])


def _row(model: StoredModel | None, sources: list[str]) -> tuple[str, ...]:
    if model is None:
        return ("?", "", "", "damaged: import it again", "")
    state = _STATES[model.kind] if model.whole else "not whole: import it again"
    return (model.name, model.weights, bytes_text(model.bytes), state, ", ".join(sources))


def _document(model_id: str, model: StoredModel | None, sources: list[str]) -> dict[str, object]:
    if model is None:
        return {"id": model_id, "whole": False}
    return {
        "id": model_id,
        "name": model.name,
        "weights": model.weights,
        "kind": model.kind.value,
        "bytes": model.bytes,
        "whole": model.whole,
        "sources": sources,
    }
