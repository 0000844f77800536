"""How a Hugging Face folder with a Whisper model reads: its decoder as a SourceModel, its encoder, and its tokens.

What the folder says is checked before anything is stored: numbers, tensors, and the tokens that steer what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from planner.errors import CorruptModel, MissingTensor, NoSuchModel, UnknownArchitecture
from planner.importers.architecture import Activation, Architecture, BlockKind
from planner.importers.hf_config import ACTIVATIONS, Json, Numbers, read_json, tokenizer_from_folder
from planner.importers.layout import check_numbers, check_tensors, tensor_shapes
from planner.importers.safetensors import FolderTensor, read_files
from planner.importers.speech.whisper_graphs import (
    WINDOW,
    EncoderShape,
    mel_filters,
    tensor_names,
    write_encoder,
)
from planner.model.blob_ref import BlobRef
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.sources import SourceTensor, TokenizerSource
from planner.model.speech import HOP, MAX_LANGUAGES, MAX_MELS, MAX_SUPPRESSED, RATE, Speech

KNOWN: Final = "whisper"
PREFIX: Final = "model."
ENCODER: Final = "encoder."
DECODER: Final = "decoder."
MOST_ROWS: Final = 1 << 14
FEATURES: Final = {"hop_length": HOP, "n_fft": WINDOW, "sampling_rate": RATE}

_PLACES: Final[Mapping[str, str]] = {
    "attn.norm": "self_attn_layer_norm.weight",
    "cross.norm": "encoder_attn_layer_norm.weight",
    "ffn.norm": "final_layer_norm.weight",
    "ffn.up": "fc1.weight",
    "ffn.down": "fc2.weight",
}
_WHOLE: Final[Mapping[str, str]] = {
    "embed.weight": "embed_tokens.weight",
    "embed.positions": "embed_positions.weight",
    "head.norm": "layer_norm.weight",
    "head.norm_bias": "layer_norm.bias",
}
_MODULES: Final = {"attn": "self_attn", "cross": "encoder_attn"}


def is_whisper(folder: Path) -> bool:
    """Whether the folder says that it holds a model of this kind."""
    config = read_json(folder, "config.json")
    return config is not None and config.get("model_type") == KNOWN


@dataclass(frozen=True, slots=True)
class WhisperModel:
    """The folder as planner.importers.architecture.SourceModel of its decoder. `encoder`: numbers of the encoder;
    `filters`: bands of the spectrogram, (201, mels); `tokens`: those that steer what is written.
    """

    name: str
    architecture: Architecture
    tokenizer: TokenizerSource
    tensors: Mapping[str, FolderTensor]
    encoder: EncoderShape
    encoder_tensors: Mapping[str, FolderTensor]
    filters: npt.NDArray[np.float64]
    tokens: SpeechTokens
    file: str

    @property
    def sampling(self) -> SamplingDefaults | None:
        """Always None: what is said is written as the model finds it likeliest."""
        return None

    def tensor(self, name: str) -> SourceTensor:
        """The decoder's tensor with our name `name`; MissingTensor where it has none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise MissingTensor(f"{self.file}: this model has no tensor {name}") from None

    def write_encoder(self, folder: Path) -> Path:
        """Writes the encoder as an ONNX file into `folder`; returns its path. Raises CorruptModel."""

        def weights(name: str) -> npt.NDArray[np.float32]:
            found = self.encoder_tensors[name].float32()
            if not np.isfinite(found).all():
                raise CorruptModel(
                    f"{self.file}: tensor {PREFIX}{ENCODER}{name} has numbers that are not finite"
                )
            return found

        return write_encoder(folder, self.encoder, weights)

    def speech(self, encoder: str, spectrogram: BlobRef) -> Speech:
        """How the model writes what is said, with the id of its stored encoder."""
        tokens = self.tokens
        return Speech(
            encoder=encoder,
            spectrogram=spectrogram,
            rows=self.encoder.rows,
            mels=self.encoder.mels,
            frames=2 * self.encoder.rows,
            start=tokens.start,
            languages=tokens.languages,
            transcribe=tokens.tasks.get("transcribe"),
            translate=tokens.tasks.get("translate"),
            no_timestamps=tokens.no_timestamps,
            suppressed=tokens.suppressed,
            begin_suppressed=tokens.begin_suppressed,
            max_initial=tokens.max_initial,
        )


@dataclass(frozen=True, slots=True)
class SpeechTokens:
    """Numbers of tokens, as planner.model.speech.Speech has them."""

    start: int
    languages: Mapping[str, int]
    tasks: Mapping[str, int]
    no_timestamps: int
    suppressed: tuple[int, ...]
    begin_suppressed: tuple[int, ...]
    max_initial: int | None


def open_whisper(folder: Path, name: str | None = None) -> WhisperModel:
    """Opens the folder. Raises a ModelError that says what was expected."""
    where = folder.name
    config = read_json(folder, "config.json")
    if config is None:
        raise NoSuchModel(f"{folder} has no config.json: expected a Hugging Face model folder")
    files = {file.removeprefix(PREFIX): tensor for file, tensor in read_files(folder).items()}
    said = Numbers(config, where)
    encoder, architecture = _numbers(said, where)
    check_numbers(architecture, where)
    wanted = tensor_shapes(architecture)
    encoded = {ENCODER + each: shape for each, shape in tensor_names(encoder).items()}
    tensors: dict[str, FolderTensor] = {}
    for ours, shape in wanted.items():
        if ours.endswith(".k_bias"):  # these models have none
            tensors[ours] = FolderTensor("F32", shape, np.zeros(4 * shape[0], np.uint8))

    def shape_of(file: str) -> tuple[int, ...] | None:
        return files[file].shape if file in files else None

    own = {ours: shape for ours, shape in wanted.items() if ours not in tensors}
    check_tensors(own, lambda ours: shape_of(_file_name(ours)), _file_name, where)
    check_tensors(encoded, shape_of, str, where)
    known = {*encoded, *map(_file_name, own), "proj_out.weight"}
    for stranger in sorted(files.keys() - known):
        raise UnknownArchitecture(
            f"{where}: tensor {stranger} has no place in {KNOWN} as known here; this variant is not supported"
        )
    _check_tied(files, where)
    tensors |= {ours: replace(files[_file_name(ours)], shape=shape) for ours, shape in own.items()}
    tokenizer = tokenizer_from_folder(folder, config, architecture.vocab)
    return WhisperModel(
        name or folder.resolve().name,
        architecture,
        tokenizer,
        tensors,
        encoder,
        {each.removeprefix(ENCODER): files[each] for each in encoded},
        _filters(folder, encoder.mels),
        _tokens(folder, config, tokenizer, architecture.vocab),
        where,
    )


def _file_name(ours: str) -> str:
    """Where a tensor of the decoder lies, without PREFIX."""
    if ours in _WHOLE:
        return DECODER + _WHOLE[ours]
    unit, block, part = ours.split(".")
    kind = "bias" if part.endswith("_bias") else "weight"
    part = part.removesuffix("_bias")
    if unit in _MODULES and part in ("q", "k", "v", "o"):
        called = f"{_MODULES[unit]}.{'out' if part == 'o' else part}_proj.{kind}"
    else:
        called = _PLACES[f"{unit}.{part}"].removesuffix("weight") + kind
    return f"{DECODER}layers.{block}.{called}"


def _numbers(said: Numbers, where: str) -> tuple[EncoderShape, Architecture]:
    activation: Activation | None = ACTIVATIONS.get(said.word("activation_function", "gelu"))
    if activation != "gelu" or said.flag("scale_embedding", False):
        raise UnknownArchitecture(f"{where}: expected exact GELU and an embedding that is not scaled")
    if not said.flag("tie_word_embeddings", True):
        raise UnknownArchitecture(f"{where}: expected a head that is the embedding")
    hidden, heads = said.whole("d_model"), said.whole("decoder_attention_heads")
    encoder = EncoderShape(
        blocks=said.whole("encoder_layers"),
        hidden=hidden,
        heads=said.whole("encoder_attention_heads"),
        ffn=said.whole("encoder_ffn_dim"),
        mels=said.whole("num_mel_bins"),
        rows=said.whole("max_source_positions"),
    )
    for what, value, limit in (
        ("encoder_layers", encoder.blocks, 128),
        ("d_model", hidden, 1 << 14),
        ("encoder_attention_heads", encoder.heads, 256),
        ("encoder_ffn_dim", encoder.ffn, 1 << 16),
        ("num_mel_bins", encoder.mels, MAX_MELS),
        ("max_source_positions", encoder.rows, MOST_ROWS),
        ("decoder_attention_heads", heads, 256),
    ):
        if not 1 <= value <= limit:
            raise CorruptModel(f"{where}: expected {what} between 1 and {limit}, got {value}")
    if hidden % heads or hidden % encoder.heads:
        raise CorruptModel(
            f"{where}: {hidden} values cannot be shared evenly by {heads} or {encoder.heads} heads"
        )
    positions = said.whole("max_target_positions")
    return encoder, Architecture(
        family=KNOWN,
        blocks=said.whole("decoder_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        ffn=said.whole("decoder_ffn_dim"),
        vocab=said.whole("vocab_size"),
        context=encoder.rows + positions,
        norm_epsilon=1e-5,
        rope_base=10_000.0,
        rope_dims=hidden // heads,
        rope_scaling=None,
        rope_factors=None,
        qkv_bias=True,
        qk_norm=False,
        tied_embedding=True,
        norm="layer",
        norm_bias=True,
        activation="gelu",
        gated=False,
        o_bias=True,
        ffn_bias=True,
        positions=positions,
        encoded=encoder.rows,
        pattern=(BlockKind(table=-1),),
    )


def _check_tied(files: Mapping[str, FolderTensor], where: str) -> None:
    """Raises UnknownArchitecture where a copy of the head differs from the embedding."""
    head, embedding = files.get("proj_out.weight"), files[DECODER + "embed_tokens.weight"]
    if head is not None and (
        head.shape != embedding.shape or not np.array_equal(head.payload, embedding.payload)
    ):
        raise UnknownArchitecture(f"{where}: expected a head that is the embedding")


def _filters(folder: Path, mels: int) -> npt.NDArray[np.float64]:
    """Those of preprocessor_config.json, or else computed ones. Raises a ModelError."""
    said = read_json(folder, "preprocessor_config.json") or {}
    for key, expected in FEATURES.items():
        if said.get(key, expected) != expected:
            raise UnknownArchitecture(
                f"{folder.name}: expected {key} {expected} in preprocessor_config.json, got {said[key]!r:.40}"
            )
    if said.get("feature_size", mels) != mels:
        raise CorruptModel(
            f"{folder.name}: preprocessor_config.json has {said['feature_size']!r:.40} bands, not {mels}"
        )
    if said.get("mel_filters") is None:
        return mel_filters(mels)
    try:
        found = np.asarray(said["mel_filters"], np.float64)
    except (ValueError, TypeError):
        found = np.empty(0)
    lines = WINDOW // 2 + 1
    if found.shape == (mels, lines):
        found = found.T
    if found.shape != (lines, mels) or not np.isfinite(found).all() or (found < 0).any():
        raise CorruptModel(f"{folder.name}: mel_filters of ({mels}, {lines}) numbers from 0 on expected")
    return found


def _tokens(folder: Path, config: Json, tokenizer: TokenizerSource, vocab: int) -> SpeechTokens:
    """By generation_config.json, and by the tokenizer's names where that is silent. Raises CorruptModel."""
    said = {**config, **(read_json(folder, "generation_config.json") or {})}
    words = Tokenizer.from_str(tokenizer.tokenizer_json.decode())
    where = folder.name

    def token(key: str, text: str) -> int:
        found = said.get(key)
        found = words.token_to_id(text) if found is None else found
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < vocab - 1:
            raise CorruptModel(f"{where}: expected {key} as a token of the vocabulary, got {found!r:.40}")
        return found

    def several(key: str) -> tuple[int, ...]:
        found = said.get(key)
        found = [] if found is None else found
        if not isinstance(found, list) or len(found) > MAX_SUPPRESSED or not all(map(is_token, found)):
            raise CorruptModel(f"{where}: expected {key} as a list of tokens, got {found!r:.40}")
        return tuple(found)

    def is_token(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocab

    def table(key: str) -> dict[str, int]:
        found = said.get(key)
        found = {} if found is None else found
        fits = isinstance(found, dict) and len(found) <= MAX_LANGUAGES
        if not fits or not all(is_token(value) for value in found.values()):
            raise CorruptModel(f"{where}: expected {key} as tokens by name, got {found!r:.40}")
        return {str(name).strip("<|>").lower(): value for name, value in found.items()}

    most = said.get("max_initial_timestamp_index")
    if most is not None and not is_token(most):
        raise CorruptModel(f"{where}: expected max_initial_timestamp_index as a number, got {most!r:.40}")
    start = token("decoder_start_token_id", "<|startoftranscript|>")
    return SpeechTokens(
        start=start,
        languages=table("lang_to_id"),
        tasks=table("task_to_id"),
        no_timestamps=token("no_timestamps_token_id", "<|notimestamps|>"),
        suppressed=several("suppress_tokens"),
        begin_suppressed=several("begin_suppress_tokens"),
        max_initial=None if most is None else int(most),
    )
