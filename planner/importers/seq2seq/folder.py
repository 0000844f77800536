"""How a Hugging Face folder with an encoder-decoder model reads: its decoder as a SourceModel, its encoder as a graph
of units, and what stands around a source text. What the folder says is checked before anything is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from planner.errors import CorruptModel, MissingTensor, NoSuchModel, UnknownArchitecture
from planner.importers.architecture import Architecture
from planner.importers.encoders.folder import OpenedEncoder
from planner.importers.encoders.shape import RowsEnding, check_shape
from planner.importers.encoders.shape import tensor_shapes as encoder_shapes
from planner.importers.generation_settings import of_folder
from planner.importers.hf_config import (
    Json,
    Numbers,
    check_tokenizer,
    read_json,
    tokenizer_from_folder,
)
from planner.importers.layout import check_numbers, check_tensors, tensor_shapes
from planner.importers.safetensors import FolderTensor, read_files
from planner.importers.seq2seq.family import Seq2SeqFamily
from planner.importers.seq2seq.marian_tokens import SOURCE, marian_tokenizer
from planner.importers.seq2seq.table import family_of_seq2seq, is_known
from planner.model.sampling_defaults import LIKELIEST, SamplingDefaults
from planner.model.source_text import MAX_AROUND, SourceText
from planner.model.sources import SourceTensor, TokenizerSource

# Of a conversation the last turn is the source text, behind instructions where there are any.
TEMPLATE: Final = (
    "{% if messages|length > 1 and messages[0]['role'] == 'system' %}{{ messages[0]['content'] }} {% endif %}"
    "{{ messages[-1]['content'] }}"
)
NEVER: Final = -1e9  # added to the logit of a token that the settings forbid
_HEAD: Final = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Seq2SeqModel:
    """The folder as planner.importers.architecture.SourceModel of its decoder. `encoder`: what makes the rows that it
    looks at; `text`: what stands around a source and before a target text, the encoder's id left open.
    """

    name: str
    architecture: Architecture
    tokenizer: TokenizerSource
    sampling: SamplingDefaults
    encoder: OpenedEncoder
    text: SourceText
    tensors: Mapping[str, FolderTensor]
    file: str

    def tensor(self, name: str) -> SourceTensor:
        """The decoder's tensor with our name `name`; MissingTensor where it has none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise MissingTensor(f"{self.file}: this model has no tensor {name}") from None


def is_seq2seq(folder: Path) -> bool:
    """Whether the folder says that it holds a model of this kind."""
    config = read_json(folder, "config.json")
    return config is not None and is_known(config.get("model_type"))


def open_seq2seq(folder: Path, name: str | None = None) -> Seq2SeqModel:
    """Opens the folder. Raises a ModelError that says what was expected."""
    where = folder.name
    config = read_json(folder, "config.json")
    if config is None:
        raise NoSuchModel(f"{folder} has no config.json: expected a Hugging Face model folder")
    if config.get("quantization_config"):
        raise UnknownArchitecture(f"{where}: quantized exports are not supported: use the original")
    family = family_of_seq2seq(config, where)
    files = _files(folder, family)
    _one_embedding(files, family, where)
    shape, architecture = family.numbers(Numbers(config, where, tensors=files))
    check_shape(shape, where)
    check_numbers(architecture, where)
    wanted, encoded = tensor_shapes(architecture), encoder_shapes(shape)
    if family.computed:
        _compute_positions(files, family, shape.positions, shape.hidden)
    if architecture.logit_bias:
        files["final_logits_bias"] = _logit_bias(folder, files, config, architecture.vocab)
    shift = shape.first_row  # rows of the tables of positions before the first
    sizes = {
        ours: (size[0] + (ours == "embed.positions") * shift, *size[1:]) for ours, size in wanted.items()
    }
    lie: dict[str, tuple[str, ...]] = {ours: (_decoder_name(family, ours),) for ours in wanted}
    expected = {lie[ours][0]: size for ours, size in sizes.items()}
    for ours, size in encoded.items():
        lie[f"encoder.{ours}"] = names = _encoder_names(family, ours)
        expected |= {file: (size[0] // len(names), *size[1:]) for file in names}
    check_tensors(expected, lambda file: files[file].shape if file in files else None, str, where)
    for stranger in sorted(files.keys() - expected.keys()):
        raise UnknownArchitecture(
            f"{where}: tensor {stranger} has no place in {family.models[0]} as known here; this variant is not "
            "supported"
        )
    tensors = {ours: files[lie[ours][0]] for ours in wanted}
    if shift and "embed.positions" in tensors:
        tensors["embed.positions"] = tensors["embed.positions"].rows(shift, sizes["embed.positions"][0])
    called = name or folder.resolve().name
    tokenizer = _tokenizer(folder, config, architecture.vocab)
    text, ends = _text(folder, config, family, architecture.vocab, shape.positions)
    return Seq2SeqModel(
        called,
        architecture,
        replace(tokenizer, chat_template=TEMPLATE, end_tokens=ends, add_bos=False),
        of_folder(folder) or LIKELIEST,
        OpenedEncoder(
            f"{called}.encoder",
            shape,
            shape.positions,
            RowsEnding(),
            None,
            {ours: [files[file] for file in lie[f"encoder.{ours}"]] for ours in encoded},
        ),
        text,
        tensors,
        where,
    )


def _tokenizer(folder: Path, config: Json, vocab: int) -> TokenizerSource:
    """By tokenizer.json, or where there is none by the SentencePiece model of source texts."""
    if (folder / "tokenizer.json").is_file() or not (folder / SOURCE).is_file():
        return tokenizer_from_folder(folder, config, vocab)
    content = marian_tokenizer(folder)
    check_tokenizer(content, vocab, folder.name)
    return TokenizerSource(content, None, None, (), add_bos=False)


def _files(folder: Path, family: Seq2SeqFamily) -> dict[str, FolderTensor]:
    """The tensors by their names without the family's prefix."""
    read = read_files(folder, re.compile(r"(?:model\.)?(?:encoder|decoder)\.version"))
    found = {file.removeprefix(family.prefix): tensor for file, tensor in read.items()}
    if len(found) != len(read):
        raise CorruptModel(
            f"{folder.name}: a tensor is there twice, with {family.prefix} before its name and without"
        )
    return found


def _one_embedding(files: dict[str, FolderTensor], family: Seq2SeqFamily, where: str) -> None:
    """Leaves one tensor of words, called as the first of the family's names, and a head only where it differs."""
    names = [f"{name}.weight" for name in family.words]
    found = [files.pop(name) for name in names if name in files]
    if not found:
        if _HEAD not in files:
            raise MissingTensor(f"{where}: tensor {names[0]} is missing; the model is incomplete")
        found = [files.pop(_HEAD)]
    if not all(_alike(found[0], each) for each in found[1:]):
        raise UnknownArchitecture(
            f"{where}: expected one embedding of encoder and decoder, got two that differ"
        )
    files[names[0]] = found[0]
    if _HEAD in files and _alike(found[0], files[_HEAD]):
        del files[_HEAD]


def _alike(one: FolderTensor, other: FolderTensor) -> bool:
    return (one.kind, one.shape) == (other.kind, other.shape) and np.array_equal(one.payload, other.payload)


def _compute_positions(
    files: dict[str, FolderTensor], family: Seq2SeqFamily, positions: int, width: int
) -> None:
    """Sines in the first half of each row, cosines in the second, where a file has no table."""
    half = width // 2 + width % 2
    angles = np.arange(positions)[:, None] / 10_000 ** (2 * (np.arange(width) // 2) / width)
    table = np.empty((positions, width), np.float32)
    table[:, :half], table[:, half:] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
    made = FolderTensor("F32", table.shape, table.reshape(-1).view(np.uint8))
    for name in (*_encoder_names(family, "embed.positions.weight"), family.file_name("embed.positions")):
        files.setdefault(name, made)


def _logit_bias(folder: Path, files: Mapping[str, FolderTensor], config: Json, vocab: int) -> FolderTensor:
    """What is added to logits, far below 0 for tokens that the settings say never come. Raises CorruptModel."""
    bias = np.zeros(vocab, np.float32)
    stored = files.get("final_logits_bias")
    if stored is not None:
        if stored.shape not in ((1, vocab), (vocab,)):
            raise CorruptModel(
                f"{folder.name}: tensor final_logits_bias should be (1, {vocab}), is {stored.shape}"
            )
        bias += stored.float32().reshape(-1)
    never = _said(folder, config).get("bad_words_ids") or []
    if not isinstance(never, list):
        raise CorruptModel(f"{folder.name}: bad_words_ids should be a list of lists of tokens")
    for words in never:
        if not isinstance(words, list) or len(words) != 1 or not _is_token(words[0], vocab):
            raise UnknownArchitecture(f"{folder.name}: expected bad_words_ids of one token each")
        bias[words[0]] += np.float32(NEVER)
    return FolderTensor("F32", (vocab,), bias.view(np.uint8))


def _encoder_names(family: Seq2SeqFamily, ours: str) -> tuple[str, ...]:
    if ours == "embed.words.weight":
        return (f"{family.words[0]}.weight",)
    return family.encoder.file_names(ours, family.encoder.names)


def _decoder_name(family: Seq2SeqFamily, ours: str) -> str:
    return f"{family.words[0]}.weight" if ours == "embed.weight" else family.file_name(ours)


def _said(folder: Path, config: Json) -> Json:
    """What generation_config.json says, and config.json where that is silent."""
    generation = read_json(folder, "generation_config.json") or {}
    return {**config, **{key: value for key, value in generation.items() if value is not None}}


def _is_token(value: object, vocab: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocab


def _text(
    folder: Path, config: Json, family: Seq2SeqFamily, vocab: int, longest: int
) -> tuple[SourceText, tuple[int, ...]]:
    """What stands around texts, and the tokens that end a target. Raises CorruptModel."""
    said = _said(folder, config)

    def tokens(key: str, *, needed: bool = False) -> tuple[int, ...]:
        value = said.get(key)
        found: Sequence[object] = value if isinstance(value, list) else [] if value is None else [value]
        if (
            len(found) > MAX_AROUND
            or not all(_is_token(each, vocab) for each in found)
            or (needed and not found)
        ):
            raise CorruptModel(
                f"{folder.name}: expected {key} as a token of the vocabulary, got {value!r:.40}"
            )
        return tuple(each for each in found if isinstance(each, int))

    ends, pads = tokens("eos_token_id", needed=True), tokens("pad_token_id", needed=True)
    return (
        SourceText(
            encoder="0" * 64,
            longest=longest,
            token=pads[0],
            before=tokens("bos_token_id", needed=True)[:1] if family.opens else (),
            behind=ends[:1],
            start=(*tokens("decoder_start_token_id", needed=True), *tokens("forced_bos_token_id")),
        ),
        ends,
    )
