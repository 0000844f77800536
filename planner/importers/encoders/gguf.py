"""How a GGUF file of an encoder reads: names as llama.cpp has them, the vocabulary inside it, its pooling.

Such a file says of what follows the rows of a text how they are pooled, and no more. Vectors have length one, as
llama.cpp makes them by default; a sentence-transformers folder without Normalize makes longer ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import CorruptModel, MissingTensor, UnknownArchitecture
from planner.importers.encoders.ending import Pooling, VectorEnding
from planner.importers.encoders.family import Names
from planner.importers.encoders.folder import OpenedEncoder
from planner.importers.encoders.shape import EncoderShape, check_shape, tensor_shapes
from planner.importers.gguf import GgufTensor, refuse_unreadable
from planner.importers.gguf_file import GgufFile, model_stem
from planner.importers.layout import check_tensors
from planner.importers.tokenizer import word_piece

BERT: Final = "bert"
NOMIC_BERT: Final = "nomic-bert"
_REFUSED: Final = (  # encoders that such a file may hold, and nobody reads here
    "modern-bert",
    "nomic-bert-moe",
    "neo-bert",
    "jina-bert-v2",
    "jina-bert-v3",
    "eurobert",
)
GGUF_ENCODERS: Final = (BERT, NOMIC_BERT, *_REFUSED)
_POOLINGS: Final[Mapping[int, Pooling]] = {1: "mean", 2: "cls"}
_KEPT: Final[Names] = {
    "embed.words": ("token_embd",),
    "embed.kinds": ("token_types",),
    "embed.positions": ("position_embd",),
    "embed.norm": ("token_embd_norm",),
    "layer.o": ("blk.{block}.attn_output",),
    "layer.attention_norm": ("blk.{block}.attn_output_norm",),
    "layer.down": ("blk.{block}.ffn_down",),
    "layer.ffn_norm": ("blk.{block}.layer_output_norm",),
}


@dataclass(frozen=True, slots=True)
class _Said:
    """The numbers of a file without the prefix of its architecture."""

    file: GgufFile
    kind: str

    def whole(self, key: str, otherwise: int | None = None) -> int:
        """Raises CorruptModel where it is missing."""
        value = self.file.whole(f"{self.kind}.{key}")
        if value is None and otherwise is None:
            raise self._missing(key)
        return value if value is not None else otherwise or 0

    def real(self, key: str, otherwise: float | None = None) -> float:
        """Raises CorruptModel where it is missing."""
        value = self.file.number(f"{self.kind}.{key}")
        if value is None and otherwise is None:
            raise self._missing(key)
        return float(value) if value is not None else otherwise or 0.0

    def _missing(self, key: str) -> CorruptModel:
        return CorruptModel(
            f"{self.file.path.name}: metadata {self.kind}.{key} is missing; convert the model again"
        )


def open_gguf_encoder(file: GgufFile, name: str | None = None) -> OpenedEncoder:
    """Opens a file whose architecture is one of GGUF_ENCODERS. Raises a ModelError that says what was expected."""
    where, kind = file.path.name, file.text("general.architecture") or ""
    if kind not in (BERT, NOMIC_BERT):
        raise UnknownArchitecture(
            f"{where}: architecture {kind[:80]!r} is not supported in GGUF files; known encoders are {BERT} and "
            f"{NOMIC_BERT}: a folder may do"
        )
    refuse_unreadable(file)
    said = _Said(file, kind)
    shape = _shape(said, nomic=kind == NOMIC_BERT)
    check_shape(shape, where)
    ending = VectorEnding(_pooling(said, where), (None,))
    lie, shapes = _places(file, shape)
    check_tensors(
        shapes,
        lambda each: file.tensors[each].shape if each in file.tensors else None,
        lambda each: each,
        where,
    )
    for stranger in sorted(file.tensors.keys() - shapes.keys()):
        raise UnknownArchitecture(
            f"{where}: tensor {stranger[:80]} has no place in {kind} as known here; this variant is not supported"
        )
    tensors = {ours: [GgufTensor(file.tensors[each]) for each in each_of] for ours, each_of in lie.items()}
    tokenizer = word_piece(file, shape.vocab).to_str().encode()
    return OpenedEncoder(name or model_stem(file.path), shape, shape.positions, ending, tokenizer, tensors)


def _shape(said: _Said, *, nomic: bool) -> EncoderShape:
    file = said.file
    words, kinds = file.tensors.get("token_embd.weight"), file.tensors.get("token_types.weight")
    if words is None:
        raise MissingTensor(f"{file.path.name}: tensor token_embd.weight is missing; the model is incomplete")
    if file.flag(f"{said.kind}.attention.causal"):
        raise UnknownArchitecture(f"{file.path.name}: attention that looks both ways expected")
    blocks = said.whole("block_count")
    base = said.real("rope.freq_base", 1000.0) if nomic else 0.0
    return EncoderShape(
        blocks=blocks,
        hidden=said.whole("embedding_length"),
        heads=said.whole("attention.head_count"),
        ffn=said.whole("feed_forward_length"),
        vocab=words.shape[0],
        positions=said.whole("context_length"),
        norm_epsilon=said.real("attention.layer_norm_epsilon"),
        activation="silu" if nomic else "gelu",
        table=not nomic,
        kinds=0 if kinds is None else kinds.shape[0] if len(kinds.shape) > 1 else 1,
        rotary=(base,) * min(blocks, 1 << 10) if nomic else (),
        gated=nomic,
        attention_bias=not nomic,
        ffn_bias=not nomic,
    )


def _pooling(said: _Said, where: str) -> Pooling:
    number = said.whole("pooling_type", 0)
    if number not in _POOLINGS:
        raise UnknownArchitecture(
            f"{where}: pooling_type 1 (the mean) or 2 (the first token) expected, got {number}: cross-encoders are "
            "read from folders"
        )
    return _POOLINGS[number]


def _places(
    file: GgufFile, shape: EncoderShape
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[int, ...]]]:
    """By our name the tensors of the file, and what shape each has there."""
    joined = "blk.0.attn_qkv.weight" in file.tensors
    names: Names = {
        **_KEPT,
        "layer.qkv": tuple(
            f"blk.{{block}}.attn_{part}" for part in (("qkv",) if joined else ("q", "k", "v"))
        ),
        "layer.up": tuple(
            f"blk.{{block}}.ffn_{part}" for part in (("gate", "up") if shape.gated else ("up",))
        ),
    }
    lie: dict[str, tuple[str, ...]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for ours, whole in tensor_shapes(shape).items():
        part, _, kind = ours.rpartition(".")
        block = ""
        if part.startswith("layer."):
            _, block, part = part.split(".", 2)
            part = f"layer.{part}"
        lie[ours] = tuple(f"{each.replace('{block}', block)}.{kind}" for each in names[part])
        for each in lie[ours]:
            shapes[each] = (whole[0] // len(lie[ours]), *whole[1:])
    return lie, shapes
