"""How a name on the command line becomes a model of the local store: imported once, and found there again."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeGuard

from peer.errors import BadCommand, TextError
from peer.launch.stored_models import Kind, StoredModel, check_blobs, stored_model
from peer.launch.terminal import counting, out, say
from peer.member.byte_sizes import bytes_text
from peer.model.chat_template import Message, not_in_tabs
from peer.model.tokenizer import Text
from planner.errors import CorruptModel, CorruptStore, NotInStore, OldFormat, UnknownArchitecture
from planner.importers.architecture import SourceModel
from planner.importers.decoder_units import build_model
from planner.importers.encoders.file import encoder_file, how_written
from planner.importers.encoders.folder import OpenedEncoder
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import import_graph
from planner.importers.registry import HF_PREFIX, Located, Source, answering, locate
from planner.importers.seq2seq.folder import Seq2SeqModel
from planner.importers.seq2seq.storing import put_encoder
from planner.importers.speech.storing import put_encoded
from planner.importers.speech.wav2vec2 import CtcModel
from planner.importers.speech.whisper import WhisperModel
from planner.importers.vision.folder import SourceVision
from planner.model.import_index import Contents, ImportIndex
from planner.model.manifest import decode_manifest
from planner.model.store import PREFIX_DIGITS, Store
from planner.types import WeightFormat

SAMPLE: Final = "--sample"  # among the files of an import
LONG_BYTES: Final = 1 << 30  # of a model, whose check takes longer than a person waits without a word
ENVELOPES: Final = "envelopes.json"  # as peer.audit.norm_envelopes has it

ONE_ANSWERS: Final = ": a mesh has one model that answers, with which shoal serve founds it"
_DOES: Final = {
    Kind.ANSWERS: "answers in words",
    Kind.EMBEDDINGS: "makes embeddings",
    Kind.RANKS: "ranks texts",
    Kind.GRAPH: "computes outputs of inputs",
    Kind.SPEECH: "writes what is said",
}
_DECODES: Final = (Kind.ANSWERS, Kind.SPEECH)
_ID = re.compile(rf"[0-9a-f]{{{PREFIX_DIGITS},64}}")


def run_import(args: argparse.Namespace) -> int:
    """`shoal import`: imports a model anew, or finds that of an unchanged ONNX file, and says what it is."""
    store = Store(args.store)
    located = locate(args.model, store.root, say)
    source = located.open() if _is_graph(located) else None
    if args.expert_units != 1 and isinstance(source, SourceGraph):
        raise BadCommand(
            f"--expert-units is for mixtures of experts that answer in words, and {args.model} is none"
        )
    if isinstance(source, SourceGraph):
        wanted = _as_asked(source, args)
        files = {SAMPLE: wanted.sample} if wanted.sample is not None else {}
        found = _found_graph(store, wanted, _contents(store, located, files), args.model)
    elif args.name is not None or args.sample is not None or args.size or args.tiles:
        raise BadCommand(
            f"--name, --sample, --size and --tiles are for .onnx files, and {args.model} is none"
        )
    else:
        contents = _contents(store, located)
        opened = located.open()
        assert not isinstance(opened, SourceGraph)
        if isinstance(opened, OpenedEncoder):
            if args.expert_units != 1:
                raise BadCommand(
                    f"--expert-units is for mixtures of experts, and {opened.name} is an encoder"
                )
            found = _found_encoder(store, opened, contents, args.model)
        elif _is_tower(opened):
            found = _graph_of_folder(store, opened, contents, args.model)
        else:
            assert not isinstance(opened, CtcModel)
            found = _stored(store, _put(store, opened, args.weights, contents, args.model, args.expert_units))
    kind = {Kind.EMBEDDINGS: "embedding model, ", Kind.RANKS: "model that ranks texts, "}.get(found.kind, "")
    parts = f"{kind}{len(found.units)} units"
    out.print(
        f"{found.name}  {found.weights}  {parts}  {bytes_text(found.bytes)}  {found.model_id}", markup=False
    )
    return 0


def find_or_import(store: Store, name: str, weights: WeightFormat) -> str:
    """The id of the model that `name` leads to, imported where the store does not have these contents.

    `name`: a path, hf:, a short name, or a model id of the store or its beginning. Raises ModelError or StoreError;
    nothing is half-written.
    """
    found = _by_id(store, name)
    if found is not None:
        return _answering(found, name).model_id
    located = locate(name, store.root, say)
    contents = _contents(store, located)
    found = _known(store, located.name, weights, contents)
    if found is not None and found.kind is Kind.ANSWERS:
        return found.model_id
    return _put(store, _in_words(located.open()), weights, contents, name)


def find_or_import_encoder(store: Store, name: str) -> str:
    """As `find_or_import`, for an embedding model."""
    found = _graph(store, name, "makes no embeddings")
    if found.kind is Kind.EMBEDDINGS:
        return found.model_id
    raise UnknownArchitecture(f"{found.name} ({name}) {_DOES[found.kind]} and makes no embeddings")


def find_or_import_graph(store: Store, name: str, bands: int = 0) -> str:
    """As `find_or_import`, for a model that computes outputs of inputs: an ONNX file, its pictures in so many bands of
    rows (planner.slices.tiles), a folder of an encoder, or an id.
    """
    return _graph(store, name, f"is no model of inputs and outputs{ONE_ANSWERS}", bands).model_id


def _graph(store: Store, name: str, lacks: str, bands: int = 0) -> StoredModel:
    """`lacks`: what a model that answers in words is refused with."""
    found = _by_id(store, name)
    if found is not None and found.kind in _DECODES:
        raise UnknownArchitecture(f"{found.name} ({name}) {_DOES[found.kind]} and {lacks}")
    if found is not None:
        return found
    located = locate(name, store.root, say)
    source = located.open()
    contents = _contents(store, located)
    if isinstance(source, SourceGraph):
        return _found_graph(store, replace(source, bands=bands), contents, name)
    if isinstance(source, OpenedEncoder):
        return _found_encoder(store, source, contents, name)
    if isinstance(source, WhisperModel):
        raise UnknownArchitecture(f"{source.name} writes what is said: shoal offer has a mesh run it")
    if _is_tower(source):
        return _graph_of_folder(store, source, contents, name)
    raise UnknownArchitecture(f"{source.name} answers in words and {lacks}")


def find_or_import_any(store: Store, name: str, weights: WeightFormat) -> StoredModel:
    """As `find_or_import`, for whatever a mesh serves: a model that answers in words, one that writes what is said, or
    one of inputs and outputs.
    """
    found = _by_id(store, name)
    if found is not None and found.kind in _DECODES:
        return found
    if found is None:
        located = locate(name, store.root, say)
        if not _is_graph(located):
            contents = _contents(store, located)
            known = _known(store, located.name, weights, contents)
            if known is not None and known.kind in _DECODES:
                return known
            source = located.open()
            if isinstance(source, WhisperModel):
                return _stored(store, _put(store, source, weights, contents, name))
            if isinstance(source, OpenedEncoder):
                return _found_encoder(store, source, contents, name)
            if _is_tower(source):
                return _graph(store, name, "")
            return _stored(store, _put(store, _in_words(source), weights, contents, name))
    return _graph(store, name, "")


def _is_tower(source: Source) -> TypeGuard[SourceVision | CtcModel]:
    """Whether it is a folder that becomes one graph of units: of towers that see, or of what writes of sound alone."""
    return isinstance(source, CtcModel) or (isinstance(source, SourceVision) and source.decoder is None)


def _in_words(source: Source) -> SourceModel | SourceVision:
    """The source, if it answers in words, with the towers that it sees with. Raises UnknownArchitecture."""
    found = answering(source)
    return source if isinstance(source, SourceVision) else found


def _graph_of_folder(
    store: Store, source: SourceVision | CtcModel, contents: Contents, asked: str
) -> StoredModel:
    """The model of the graph of a folder, imported where the store does not have it."""
    with source.graph(store.root / "tmp") as graph:
        return _found_graph(store, graph, contents, asked)


def _by_id(store: Store, name: str) -> StoredModel | None:
    """The model with this id or beginning of one; None for what is no id. Raises NotInStore or CorruptStore."""
    if _ID.fullmatch(name) is None or Path(name).exists():
        return None
    model_id = store.find(name)
    found = stored_model(store, model_id)
    if found is None:
        _refuse_old(store, model_id)
    if found is None or not found.whole:
        raise CorruptStore(f"model {model_id} is not whole in the store {store.root}: import it again")
    damage = _damage(store, found)
    if damage:
        raise CorruptStore(
            f"model {model_id} is damaged in the store {store.root} ({damage}): import it again"
        )
    return found


def _refuse_old(store: Store, model_id: str) -> None:
    """Raises OldFormat for a model that an older version stored."""
    try:
        decode_manifest(store.manifest_bytes(model_id))
    except OldFormat as error:
        raise OldFormat(f"model {model_id[:12]}: {error}") from None
    except (CorruptStore, NotInStore):
        return


def _damage(store: Store, found: StoredModel) -> str:
    """What is wrong with the bytes of a model; "": nothing, after its envelopes were mended if they had to be."""
    try:
        if found.bytes < LONG_BYTES:
            check_blobs(store, found, lambda *_: None)
        else:
            with counting(f"check {found.name}") as progress:
                check_blobs(store, found, progress)
    except (CorruptStore, NotInStore) as error:
        return str(error).partition(";")[0]
    if found.kind is Kind.ANSWERS and store.beside_manifest(found.model_id, ENVELOPES).exists():
        # an engine, which other commands need not wait for
        from peer.audit.envelope_recording import record_again

        record_again(store, found.model_id, say)
    return ""


def _answering(found: StoredModel, name: str) -> StoredModel:
    """Raises UnknownArchitecture where the model does something else."""
    if found.kind is Kind.ANSWERS:
        return found
    raise UnknownArchitecture(f"{found.name} ({name}) {_DOES[found.kind]} and answers no questions")


def _known(store: Store, name: str, weights: str, contents: Contents) -> StoredModel | None:
    """What an earlier import of the same made, if all of it is here and no byte is damaged."""
    known = ImportIndex(store.root).model(name, weights, contents)
    if known is None:
        return None
    found = stored_model(store, known)
    if found is None:
        if known in store.models():
            say(f"the manifest of {name} in the store is damaged, and it is imported again")
        return None
    if not found.whole:
        return None
    damage = _damage(store, found)
    if damage:
        say(f"{found.name} is damaged in the store ({damage}) and is imported again")
        return None
    return found


def _stored(store: Store, model_id: str) -> StoredModel:
    found = stored_model(store, model_id)
    assert found is not None
    return found


def _is_graph(located: Located) -> bool:
    """Whether it leads to an ONNX file. Other files are opened after their contents are known."""
    return any(name.endswith(".onnx") for name in (*located.files, *(name for name, _ in located.pinned)))


def _as_asked(source: SourceGraph, args: argparse.Namespace) -> SourceGraph:
    sizes = dict(source.sizes) if args.sample is None else {}
    return replace(
        source,
        name=args.name or source.name,
        sample=args.sample,
        sizes=tuple((sizes | dict(args.size or ())).items()),
        bands=args.tiles or 0,
    )


def _found_graph(store: Store, source: SourceGraph, contents: Contents, asked: str) -> StoredModel:
    """The model of an ONNX file, imported where the store does not have it."""
    known = _known(store, source.name, source.how, contents)
    if known is not None and known.kind is not Kind.ANSWERS:
        return known
    with counting(f"cut and compare {source.name}", "borders") as progress:
        model_id = import_graph(source, store, progress, say)
    contents.check()
    ImportIndex(store.root).keep(source.name, source.how, contents, model_id, _shown(contents, asked))
    return _stored(store, model_id)


def _found_encoder(store: Store, source: OpenedEncoder, contents: Contents, asked: str) -> StoredModel:
    """The model of a folder of an encoder, imported where the store does not have it."""
    known = _known(store, source.name, how_written(source), contents)
    if known is not None and known.kind is not Kind.ANSWERS:
        return known
    with (
        encoder_file(source, store) as file,
        counting(f"cut and compare {source.name}", "borders") as progress,
    ):
        model_id = import_graph(file, store, progress, say)
    contents.check()
    ImportIndex(store.root).keep(
        source.name, how_written(source), contents, model_id, _shown(contents, asked)
    )
    return _stored(store, model_id)


def _check_text(source: SourceModel) -> None:
    """Raises CorruptModel where no peer could make a prompt, before anything is written."""
    problem = "its chat template and vocabulary make no token of a question: expected one token or more"
    try:
        if Text(source.tokenizer).encode_chat([Message("user", "Hello")], date.today()):
            return
    except TextError as error:
        problem = str(error)
    raise CorruptModel(f"{source.name}: {problem}; choose another file of this model")


def _contents(store: Store, located: Located, beside: Mapping[str, Path] = MappingProxyType({})) -> Contents:
    """What an import reads: of the model, and of files that belong to no model."""
    with counting(f"read {located.name}") as progress:
        found = ImportIndex(store.root).contents({**located.files, **beside}, progress)
    return Contents((*located.pinned, *found.hashes), found.seen)


def _put(
    store: Store,
    source: SourceModel | WhisperModel | SourceVision,
    weights: WeightFormat,
    contents: Contents,
    asked: str,
    expert_units: int = 1,
) -> str:
    """Imports anew. Raises ModelError, also where a file changed meanwhile, or StoreError."""
    if isinstance(source, WhisperModel):
        if expert_units != 1:
            raise BadCommand(
                f"--expert-units is for mixtures of experts, and {source.name} writes what is said"
            )
        with counting(f"cut and compare the encoder of {source.name}", "borders") as progress:
            encoded = put_encoded(source, store, progress, say)
        with counting(f"import {source.name} as {weights}") as progress:
            model_id = build_model(source, weights, store, progress, speech=encoded)
        contents.check()
        ImportIndex(store.root).keep(source.name, weights, contents, model_id, _shown(contents, asked))
        return model_id
    sight = None
    if isinstance(source, Seq2SeqModel):
        _check_text(source)
        with counting(f"cut and compare the encoder of {source.name}", "borders") as progress:
            text = put_encoder(source, store, progress, say)
        with counting(f"import {source.name} as {weights}") as progress:
            model_id = build_model(source, weights, store, progress, expert_units=expert_units, text=text)
        contents.check()
        ImportIndex(store.root).keep(source.name, weights, contents, model_id, _shown(contents, asked))
        return model_id
    if isinstance(source, SourceVision):
        assert source.decoder is not None
        assert source.sight is not None
        _check_text(source.decoder)
        sight = replace(source.sight, model=_graph_of_folder(store, source, contents, asked).model_id)
        source = source.decoder
    _check_text(source)
    refused = not_in_tabs(source.tokenizer.chat_template) if source.tokenizer.chat_template else None
    if refused is not None:
        say(
            f"the chat template of {source.name} has {refused}, which tabs cannot show as processes do: "
            "ask this model from a terminal or the API, tabs can still compute for it"
        )
    with counting(f"import {source.name} as {weights}") as progress:
        model_id = build_model(source, weights, store, progress, expert_units=expert_units, sight=sight)
    contents.check()
    from peer.audit.envelope_recording import record  # an engine, which other commands need not wait for

    with counting("record how long its rows are") as progress:
        record(store, model_id, progress)
    how = weights if expert_units == 1 else f"{weights}, experts in {expert_units} units"
    ImportIndex(store.root).keep(source.name, how, contents, model_id, _shown(contents, asked))
    return model_id


def _shown(contents: Contents, asked: str) -> str:
    """What a model was imported from, as `shoal models` shows it."""
    if contents.seen and not asked.startswith(HF_PREFIX) and Path(asked).exists():
        return str(Path(asked).absolute())
    return asked
