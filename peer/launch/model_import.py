"""How a name on the command line becomes a model of the local store: imported once, and found there again."""

from __future__ import annotations

import argparse
import re
from datetime import date
from pathlib import Path
from typing import Final

from peer.errors import TextError
from peer.launch.stored_models import StoredModel, stored_model
from peer.launch.terminal import counting, out, say
from peer.member.peer_options import bytes_text
from peer.model.chat_template import Message, not_in_tabs
from peer.model.tokenizer import Text
from planner.errors import CorruptModel, CorruptStore, UnknownArchitecture
from planner.importers.registry import HF_PREFIX, Located, answering, embedding, locate
from planner.model.architecture import SourceModel
from planner.model.encoder import SourceEncoder
from planner.model.import_index import Contents, ImportIndex
from planner.model.store import PREFIX_DIGITS, Store
from planner.model.units import build_model
from planner.types import WeightFormat

ENCODER_WEIGHTS: Final = "f32"  # embedding models are kept as float32

_ID = re.compile(rf"[0-9a-f]{{{PREFIX_DIGITS},64}}")


def run_import(args: argparse.Namespace) -> int:
    """`shoal import`: imports a model anew and says what came of it."""
    store = Store(args.store)
    located = locate(args.model, store.root, say)
    contents = _contents(store, located)
    source = located.open()
    weights: WeightFormat = ENCODER_WEIGHTS if isinstance(source, SourceEncoder) else args.weights
    found = stored_model(store, _put(store, source, weights, contents, args.model))
    assert found is not None
    parts = f"{len(found.units)} units" if found.answers else f"embedding model, {len(found.units)} parts"
    out.print(f"{found.name}  {weights}  {parts}  {bytes_text(found.bytes)}  {found.model_id}", markup=False)
    return 0


def find_or_import(store: Store, name: str, weights: WeightFormat) -> str:
    """The id of the model that `name` leads to, imported where the store does not have these contents.

    `name`: a path, hf:, a short name, or a model id of the store or its beginning. Raises ModelError or StoreError;
    nothing is half-written.
    """
    found = _by_id(store, name)
    if found is None:
        return _find_or_import(store, name, weights, answers=True)
    if not found.answers:
        raise UnknownArchitecture(f"{found.name} ({name}) makes embeddings and answers no questions")
    return found.model_id


def find_or_import_encoder(store: Store, name: str) -> str:
    """As `find_or_import`, for an embedding model."""
    found = _by_id(store, name)
    if found is None:
        return _find_or_import(store, name, ENCODER_WEIGHTS, answers=False)
    if found.answers:
        raise UnknownArchitecture(f"{found.name} ({name}) answers in words and makes no embeddings")
    return found.model_id


def _by_id(store: Store, name: str) -> StoredModel | None:
    """The model with this id or beginning of one; None for what is no id. Raises NotInStore or CorruptStore."""
    if _ID.fullmatch(name) is None or Path(name).exists():
        return None
    model_id = store.find(name)
    found = stored_model(store, model_id)
    if found is None or not found.whole:
        raise CorruptStore(f"model {model_id} is not whole in the store {store.root}: import it again")
    return found


def _find_or_import(store: Store, name: str, weights: WeightFormat, *, answers: bool) -> str:
    located = locate(name, store.root, say)
    contents = _contents(store, located)
    known = ImportIndex(store.root).model(located.name, weights, contents)
    found = None if known is None else stored_model(store, known)
    if found is not None and found.whole and found.answers is answers:
        return found.model_id
    source = located.open()
    wanted = answering(source) if answers else embedding(source)
    return _put(store, wanted, weights, contents, name)


def _check_text(source: SourceModel) -> None:
    """Raises CorruptModel where no peer could make a prompt, before anything is written."""
    problem = "its chat template and vocabulary make no token of a question: expected one token or more"
    try:
        if Text(source.tokenizer).encode_chat([Message("user", "Hello")], date.today()):
            return
    except TextError as error:
        problem = str(error)
    raise CorruptModel(f"{source.name}: {problem}; choose another file of this model")


def _contents(store: Store, located: Located) -> Contents:
    if located.pinned:
        return Contents(located.pinned)
    with counting(f"read {located.name}") as progress:
        return ImportIndex(store.root).contents(located.files, progress)


def _put(
    store: Store, source: SourceModel | SourceEncoder, weights: WeightFormat, contents: Contents, asked: str
) -> str:
    """Imports anew. Raises ModelError, also where a file changed meanwhile, or StoreError."""
    if not isinstance(source, SourceEncoder):
        _check_text(source)
        refused = not_in_tabs(source.tokenizer.chat_template) if source.tokenizer.chat_template else None
        if refused is not None:
            say(
                f"the chat template of {source.name} has {refused}, which tabs cannot show as processes do: "
                "ask this model from a terminal or the API, tabs can still compute for it"
            )
    with counting(f"import {source.name} as {weights}") as progress:
        if isinstance(source, SourceEncoder):
            from planner.model.encoder_graph import put_encoder

            model_id = put_encoder(source, store, progress)
        else:
            model_id = build_model(source, weights, store, progress)
    contents.check()
    if not isinstance(source, SourceEncoder):
        from peer.audit.envelope_recording import record  # an engine, which other commands need not wait for

        with counting("record how long its rows are") as progress:
            record(store, model_id, progress)
    if contents.seen and not asked.startswith(HF_PREFIX):
        asked = str(Path(asked).absolute())
    ImportIndex(store.root).keep(source.name, weights, contents, model_id, asked)
    return model_id
