"""How a Hugging Face folder with a Wav2Vec2 model for CTC reads: as a graph of units that makes logits of sound, and
the texts of its tokens. What the folder says is checked before anything is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture, UnknownTokenizer
from planner.importers.hf_config import Json, Numbers, read_json
from planner.importers.layout import check_tensors
from planner.importers.onnx.asked import SourceGraph
from planner.importers.safetensors import FolderTensor, read_files
from planner.importers.speech.wav2vec2_graph import (
    LOGITS,
    PLACES,
    SOUND,
    Convolution,
    Wav2Vec2Shape,
    tensor_shapes,
    wav2vec2_file,
)
from planner.importers.vision.blocks import ACTIVATIONS
from planner.importers.vision.graph_file import Floats
from planner.model.speech import MAX_CTC_CHARS, MAX_CTC_TOKENS, MAX_HOP, RATE, CtcText

KNOWN: Final = "wav2vec2"
SPEAKS: Final = "ForCTC"  # how the architecture of one that writes ends
PREFIX: Final = "wav2vec2."
VOCABULARY: Final = "vocab.json"
FOLDER_FILES: Final = (VOCABULARY, "special_tokens_map.json", "added_tokens.json")
TRIED_S: Final = 1  # of sound with which the import is tried
MADE: Final = "wav2vec2 1"  # which changes with the graph that is written
_PLACES_SIZE: Final = "encoder.pos_conv_embed.conv.weight_g"
_PLACES_DIRECTION: Final = "encoder.pos_conv_embed.conv.weight_v"
_NAMES_NOW: Final = {  # as newer versions of torch save the two parts of that weight
    "encoder.pos_conv_embed.conv.parametrizations.weight.original0": _PLACES_SIZE,
    "encoder.pos_conv_embed.conv.parametrizations.weight.original1": _PLACES_DIRECTION,
}
_UNUSED: Final = "masked_spec_embed"  # of training
_LIMITS: Final = (
    ("num_hidden_layers", 128),
    ("hidden_size", 1 << 14),
    ("num_attention_heads", 256),
    ("intermediate_size", 1 << 16),
    ("vocab_size", MAX_CTC_TOKENS),
    ("num_conv_pos_embeddings", 1 << 10),
    ("num_conv_pos_embedding_groups", 1 << 10),
)
_MOST_CONVOLUTIONS: Final = 32


@dataclass(frozen=True, slots=True)
class CtcModel:
    """A folder that was opened. `text`: what its logits mean."""

    name: str
    shape: Wav2Vec2Shape
    text: CtcText
    tensors: Mapping[str, FolderTensor]

    def weights(self, name: str) -> Floats:
        """A tensor as wav2vec2_graph.tensor_shapes names it."""
        if name != PLACES or PLACES in self.tensors:
            return self.tensors[name].float32()
        size, direction = self.tensors[_PLACES_SIZE].float32(), self.tensors[_PLACES_DIRECTION].float32()
        long = np.sqrt(np.square(direction, dtype=np.float64).sum((0, 1), keepdims=True))
        whole: Floats = (direction * (size / long)).astype(np.float32)
        return whole

    @contextmanager
    def graph(self, scratch: Path) -> Iterator[SourceGraph]:
        """The ONNX file, as long as the block lasts. Raises CorruptModel."""
        with wav2vec2_file(self.shape, self.name, self.weights, scratch) as file:
            yield SourceGraph(
                file,
                self.name,
                sizes=(("samples", max(TRIED_S * RATE, 2 * self.text.seen)),),
                most_units=self.shape.blocks + 2,
                made=MADE,
                ctc=self.text,
            )


def is_wav2vec2(folder: Path) -> bool:
    """Whether the folder says that it holds a model of this kind."""
    config = read_json(folder, "config.json")
    return config is not None and config.get("model_type") == KNOWN


def open_wav2vec2(folder: Path, name: str | None = None) -> CtcModel:
    """Opens the folder. Raises a ModelError that says what was expected."""
    where = folder.name
    config = read_json(folder, "config.json")
    if config is None:
        raise NoSuchModel(f"{folder} has no config.json: expected a Hugging Face model folder")
    _check_kind(config, where)
    shape = _shape(Numbers(config, where), folder)
    files = {}
    for file, tensor in read_files(folder).items():
        ours = file.removeprefix(PREFIX)
        files[_NAMES_NOW.get(ours, ours)] = tensor
    files.pop(_UNUSED, None)
    wanted = tensor_shapes(shape)
    if PLACES not in files:
        whole = wanted.pop(PLACES)
        wanted |= {_PLACES_SIZE: (1, 1, whole[2]), _PLACES_DIRECTION: whole}
    check_tensors(wanted, lambda file: files[file].shape if file in files else None, str, where)
    for stranger in sorted(files.keys() - wanted.keys()):
        raise UnknownArchitecture(
            f"{where}: tensor {stranger} has no place in {KNOWN} as known here; this variant is not supported"
        )
    return CtcModel(name or folder.resolve().name, shape, _text(folder, config, shape), files)


def _check_kind(config: Json, where: str) -> None:
    architectures = config.get("architectures")
    called = architectures[0] if isinstance(architectures, list) and architectures else ""
    if not isinstance(called, str) or not called.endswith(SPEAKS):
        raise UnknownArchitecture(
            f"{where}: {KNOWN} for CTC expected (architectures: Wav2Vec2ForCTC), which writes what is said; got "
            f"{called!r:.60}"
        )
    if config.get("quantization_config"):
        raise UnknownArchitecture(f"{where}: quantized exports are not supported: use the original")
    if config.get("add_adapter") or config.get("adapter_attn_dim") is not None:
        raise UnknownArchitecture(f"{where}: adapters, as models of MMS have them, are not supported")


def _shape(said: Numbers, folder: Path) -> Wav2Vec2Shape:
    where = said.where
    counts = {
        key: said.whole(key, usual)
        for key, usual in (
            ("num_hidden_layers", 12),
            ("hidden_size", 768),
            ("num_attention_heads", 12),
            ("intermediate_size", 3072),
            ("vocab_size", 32),
            ("num_conv_pos_embeddings", 128),
            ("num_conv_pos_embedding_groups", 16),
        )
    }
    for key, most in _LIMITS:
        if not 1 <= counts[key] <= most:
            raise CorruptModel(f"{where}: expected {key} between 1 and {most}, got {counts[key]}")
    hidden, heads = counts["hidden_size"], counts["num_attention_heads"]
    groups = counts["num_conv_pos_embedding_groups"]
    if hidden % heads or hidden % groups:
        raise CorruptModel(
            f"{where}: {hidden} values cannot be shared evenly by {heads} heads or {groups} groups"
        )
    features = said.word("feat_extract_norm", "group")
    if features not in ("group", "layer"):
        raise UnknownArchitecture(f"{where}: feat_extract_norm group or layer expected, got {features!r:.40}")
    epsilon = said.real("layer_norm_eps", 1e-5)
    if not 0 < epsilon < 1:
        raise CorruptModel(f"{where}: a norm epsilon between 0 and 1 expected, got {epsilon}")
    prepared = read_json(folder, "preprocessor_config.json") or {}
    if prepared.get("sampling_rate", RATE) != RATE or prepared.get("feature_size", 1) != 1:
        raise UnknownArchitecture(f"{where}: sound of one channel and {RATE} samples a second expected")
    shape = Wav2Vec2Shape(
        convolutions=_convolutions(said),
        each_normed=features == "layer",
        convolution_bias=said.flag("conv_bias", False),
        feature_activation=_activation(said, "feat_extract_activation"),
        blocks=counts["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        ffn=counts["intermediate_size"],
        activation=_activation(said, "hidden_act"),
        near=counts["num_conv_pos_embeddings"],
        near_groups=groups,
        norm_first=said.flag("do_stable_layer_norm", False),
        epsilon=epsilon,
        vocab=counts["vocab_size"],
        normalized=Numbers(prepared, f"{where}: preprocessor_config.json").flag("do_normalize", True),
    )
    if not 1 <= shape.hop <= shape.seen <= MAX_HOP:
        raise CorruptModel(
            f"{where}: convolutions of frames of up to {MAX_HOP} samples, each at least as wide as its step, expected"
        )
    return shape


def _activation(said: Numbers, key: str) -> str:
    called = said.word(key, "gelu")
    found = ACTIVATIONS.get(called)
    if found is None:
        raise UnknownArchitecture(
            f"{said.where}: {key} {called[:40]!r} is not supported; known are {', '.join(ACTIVATIONS)}"
        )
    return found


def _convolutions(said: Numbers) -> tuple[Convolution, ...]:
    usual = {
        "conv_dim": (512,) * 7,
        "conv_kernel": (10, 3, 3, 3, 3, 2, 2),
        "conv_stride": (5, 2, 2, 2, 2, 2, 2),
    }
    lists = []
    for key, otherwise in usual.items():
        found = said.reals(key)
        lists.append(tuple(map(int, found)) if found is not None else otherwise)
        if not all(1 <= each <= 1 << 14 for each in lists[-1]):
            raise CorruptModel(f"{said.where}: {key} as whole numbers from 1 to {1 << 14} expected")
    count = len(lists[0])
    if not 1 <= count <= _MOST_CONVOLUTIONS or {len(each) for each in lists} != {count}:
        raise CorruptModel(
            f"{said.where}: conv_dim, conv_kernel and conv_stride of 1 to {_MOST_CONVOLUTIONS} numbers each expected"
        )
    return tuple(Convolution(*each) for each in zip(*lists, strict=True))


def _text(folder: Path, config: Json, shape: Wav2Vec2Shape) -> CtcText:
    """What tokens mean, by vocab.json and its neighbours."""
    where = folder.name
    words = read_json(folder, VOCABULARY)
    if words is None:
        raise UnknownTokenizer(f"{where} has no {VOCABULARY}, which says the text of each token")
    settings = {
        **(read_json(folder, "special_tokens_map.json") or {}),
        **(read_json(folder, "tokenizer_config.json") or {}),
    }
    said = Numbers(settings, f"{where}: tokenizer_config.json")
    if said.word("replace_word_delimiter_char", " ") != " ":
        raise UnknownTokenizer(f"{where}: words with spaces between them expected")
    texts = [""] * shape.vocab
    for word, number in words.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < shape.vocab:
            raise UnknownTokenizer(
                f"{where}: {VOCABULARY} should have numbers under {shape.vocab} by text, has {number!r:.40}"
            )
        if len(word) > MAX_CTC_CHARS:
            raise UnknownTokenizer(f"{where}: tokens of up to {MAX_CTC_CHARS} characters expected")
        texts[number] = word
    added = {**words, **(read_json(folder, "added_tokens.json") or {})}
    blank = added.get(_token(settings, "pad_token", "<pad>"), config.get("pad_token_id"))
    if isinstance(blank, bool) or not isinstance(blank, int) or not 0 <= blank < shape.vocab:
        raise UnknownTokenizer(
            f"{where}: a padding token of the vocabulary expected, which stands for no sound"
        )
    space = words.get(_token(settings, "word_delimiter_token", "|"))
    for name, usual in (("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")):
        number = words.get(_token(settings, name, usual))
        if number is not None:
            texts[number] = ""
    for silent in (blank, space):
        if silent is not None:
            texts[silent] = ""
    lower = said.flag("do_lower_case", False)
    return CtcText(
        input=SOUND,
        logits=LOGITS,
        tokens=tuple(text.lower() if lower else text for text in texts),
        blank=blank,
        space=space,
        hop=shape.hop,
        seen=shape.seen,
    )


def _token(settings: Json, name: str, usual: str) -> str:
    """The text of a special token; files say it alone or with settings of its own."""
    found = settings.get(name)
    found = found.get("content") if isinstance(found, dict) else found
    return found if isinstance(found, str) else usual
