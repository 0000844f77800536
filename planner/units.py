"""How a model's weights become units: which tensors are fused, in which form each is stored, and what it
costs to keep.

Forms of a linear layer `name` with N outputs and K inputs, B = K/32 blocks (K padded to whole blocks):
    8bit   name.q8 u8 (N, B, 32), name.scale f32 (N, B):           w = scale * (q - 128)
    4bit   name.q4 u8 (N, B, 16), name.scale, name.zero u8 (N, ceil(B/2)), and where the source needs it
           name.rest f32 (N, B):                                    w = scale * (q - zero) + rest
    f32    name.w f32 (N, K)           f16   name.w f16 (N, K)
A nibble pair holds the lower index in the low nibble. Q4_1 is `d * q + m`: `zero` is the whole number nearest
to -m/d and `rest = m + zero * d`, so the sum of both is the file's weight exactly and what is multiplied with
quantized activations is centred. q, k, v are one linear (`qkv`), gate and up another (`gate_up`): rows below
one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, assert_never

import numpy as np
import numpy.typing as npt

from planner.architecture import Architecture, BlockQuantized, SourceModel, SourceTensor
from planner.errors import CorruptModel, UnknownArchitecture
from planner.manifest import (
    DTYPE_BYTES,
    FORMAT,
    DType,
    Manifest,
    ManifestUnit,
    StoredTensor,
    encode_manifest,
    unit_names,
)
from planner.store import BlobRef, Store
from planner.types import UnitKind, WeightFormat

BLOCK: Final = 32  # columns that share a scale: the block of every GGUF type that maps exactly
ALIGN: Final = 64  # bytes; a cache line, so that kernels may load stored tensors in place

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]
Tensors = dict[str, Array]

_DTYPES: Final[dict[np.dtype[Any], DType]] = {
    np.dtype(np.float32): "f32",
    np.dtype(np.float16): "f16",
    np.dtype(np.uint8): "u8",
}


def build_model(
    source: SourceModel, weights: WeightFormat, store: Store, progress: Progress | None = None
) -> str:
    """Cut `source` into units, put their blobs and the manifest into `store`; returns the model id.

    `progress(done, total)` counts units. Holds one unit in memory at a time. Raises ModelError or StoreError.
    """
    architecture = source.architecture
    _check(architecture)
    names = unit_names(architecture.blocks)
    units: list[ManifestUnit] = []
    embed = _embed_tensors(source, weights)
    head = _head_tensors(source, weights)
    if architecture.tied_embedding:
        shared = put_tensors(store, {**{f"embed.{part}": array for part, array in embed.items()}, **head})
        embed_blob, embed_tensors = shared[0], tuple(t for t in shared[1] if t.name.startswith("embed."))
        head_blob, head_tensors = shared[0], tuple(_renamed(t, "embed.", "head.") for t in shared[1])
    else:
        embed_blob, embed_tensors = put_tensors(
            store, {f"embed.{part}": array for part, array in embed.items()}
        )
        head_blob, head_tensors = put_tensors(store, head)
    del embed, head
    for place, (name, kind) in enumerate(names):
        match kind:
            case "embed":
                blob, tensors = embed_blob, embed_tensors
            case "head":
                blob, tensors = head_blob, head_tensors
            case "attn" | "ffn":
                block = int(name.partition(".")[2])
                make = _attn_tensors if kind == "attn" else _ffn_tensors
                blob, tensors = put_tensors(store, make(source, block, weights))
            case _:
                assert_never(kind)
        units.append(_unit(name, kind, architecture, blob, tensors))
        if progress is not None:
            progress(place + 1, len(names))
    tokenizer = source.tokenizer
    manifest = Manifest(
        format=FORMAT,
        name=source.name,
        weights=weights,
        architecture=architecture,
        tokenizer=store.put_blob([tokenizer.tokenizer_json]),
        chat_template=tokenizer.chat_template,
        bos_token=tokenizer.bos_token,
        end_tokens=tokenizer.end_tokens,
        add_bos=tokenizer.add_bos,
        units=tuple(units),
    )
    return store.put_manifest(encode_manifest(manifest))


def resident_bytes(kind: UnitKind, tensors: Iterable[StoredTensor]) -> int:
    """What the unit's weights occupy on a CPU once loaded.

    The embedding is read row by row from its blob and stays on disk. Half floats are widened. Quantized
    linears are repacked by the kernels with one float more per block (the sum that corrects for the zero
    point), which replaces the zero points; their scales stay beside the repacked form.
    """
    if kind == "embed":
        return 0
    total = 0
    for tensor in tensors:
        values = math.prod(tensor.shape)
        if tensor.dtype == "f16":
            total += 4 * values
        else:
            total += tensor.bytes
        if tensor.name.endswith(".scale"):
            total += 4 * values
    return total


def quantize_8bit(w: npt.NDArray[np.float32]) -> Tensors:
    """Symmetric: the largest magnitude of a block becomes 127."""
    blocks = _blocked(w)
    scale = np.abs(blocks).max(axis=2) / np.float32(127)
    q = np.rint(blocks / np.where(scale > 0, scale, np.float32(1))[..., None]) + 128
    return {"q8": np.clip(q, 0, 255).astype(np.uint8), "scale": scale.astype(np.float32)}


def quantize_4bit(w: npt.NDArray[np.float32]) -> Tensors:
    """Asymmetric with a whole zero point: the least and greatest of a block, and 0, span the 16 values."""
    blocks = _blocked(w)
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    scale = ((high - low) / np.float32(15)).astype(np.float32)
    divisor = np.where(scale > 0, scale, np.float32(1))
    zero = np.clip(np.rint(-low / divisor), 0, 15)
    q = np.clip(np.rint(blocks / divisor[..., None]) + zero[..., None], 0, 15)
    return {"q": q.astype(np.uint8), "scale": scale, "zero": zero.astype(np.uint8)}


def exact_8bit(blocks: BlockQuantized) -> Tensors:
    """Q8_0 as it is."""
    rows, columns = blocks.q.shape
    return {"q8": blocks.q.reshape(rows, columns // BLOCK, BLOCK), "scale": blocks.d}


def exact_4bit(blocks: BlockQuantized) -> Tensors:
    """Q4_0 and Q4_1 without loss; see the module's docstring."""
    rows, columns = blocks.q.shape
    q = blocks.q.reshape(rows, columns // BLOCK, BLOCK)
    if blocks.m is None:
        return {"q": q, "scale": blocks.d, "zero": np.full(blocks.d.shape, 8, np.uint8)}
    d, m = blocks.d.astype(np.float64), blocks.m.astype(np.float64)
    zero = np.clip(np.rint(np.divide(-m, d, out=np.zeros_like(d), where=d != 0)), 0, 15)
    return {
        "q": q,
        "scale": blocks.d,
        "zero": zero.astype(np.uint8),
        "rest": (m + zero * d).astype(np.float32),
    }


def pack_nibbles(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Two values a byte along the last axis, lower index in the low nibble; an odd end is padded with 0."""
    if values.shape[-1] % 2:
        values = np.concatenate([values, np.zeros((*values.shape[:-1], 1), np.uint8)], axis=-1)
    high = np.left_shift(values[..., 1::2], np.uint8(4))
    return np.bitwise_or(values[..., 0::2], high)


def _check(architecture: Architecture) -> None:
    if architecture.rope_dims != architecture.head_size:
        raise UnknownArchitecture(
            f"models that rotate whole heads expected, got rotary over {architecture.rope_dims} of "
            f"{architecture.head_size} head dimensions"
        )
    if architecture.rope_scaling is not None and architecture.rope_scaling.kind not in ("llama3", "linear"):
        raise UnknownArchitecture(
            f'rope scaling "{architecture.rope_scaling.kind}" is not known; llama3 and linear are'
        )


def _blocked(w: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    rows, columns = w.shape
    padding = -columns % BLOCK
    if padding:
        w = np.concatenate([w, np.zeros((rows, padding), np.float32)], axis=1)
    return w.reshape(rows, -1, BLOCK)


def _matrix(tensor: SourceTensor, name: str, shape: tuple[int, int]) -> SourceTensor:
    if tensor.shape != shape:
        raise CorruptModel(f"tensor {name}: shape {shape} expected, got {tensor.shape}")
    return tensor


def _vector(source: SourceModel, name: str, length: int) -> Array:
    tensor = source.tensor(name)
    if tensor.shape != (length,):
        raise CorruptModel(f"tensor {name}: shape ({length},) expected, got {tensor.shape}")
    return _finite(tensor.float32(), name)


def _finite(values: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.float32]:
    if not np.isfinite(values).all():
        raise CorruptModel(f"tensor {name}: finite numbers expected, found NaN or infinity")
    return values


def _one(tensor: SourceTensor, name: str, weights: WeightFormat) -> Tensors:
    """One linear before fusing. 4-bit values are not packed yet."""
    blocks = tensor.blocks() if weights in ("8bit", "4bit") else None
    if blocks is not None and not all(
        np.isfinite(part).all() for part in (blocks.d, blocks.m) if part is not None
    ):
        raise CorruptModel(f"tensor {name}: finite scales expected, found NaN or infinity")
    match weights:
        case "8bit":
            exact = blocks is not None and blocks.bits == 8
            return exact_8bit(blocks) if exact and blocks else quantize_8bit(_finite(tensor.float32(), name))
        case "4bit":
            exact = blocks is not None and blocks.bits == 4
            return exact_4bit(blocks) if exact and blocks else quantize_4bit(_finite(tensor.float32(), name))
        case "f32":
            return {"w": _finite(tensor.float32(), name)}
        case "f16":
            with np.errstate(over="ignore"):
                return {"w": _finite(tensor.float32().astype(np.float16), f"{name} as float16")}
        case _:
            assert_never(weights)


def _linear(
    source: SourceModel, name: str, parts: Sequence[tuple[str, int]], columns: int, weights: WeightFormat
) -> Tensors:
    """The fused linear of `parts` (tensor name, rows) below one another, as tensors called `name.*`."""
    made = [_one(_matrix(source.tensor(part), part, (rows, columns)), part, weights) for part, rows in parts]
    if any("rest" in one for one in made):
        made = [{"rest": np.zeros_like(one["scale"]), **one} for one in made]
    fused = {key: np.concatenate([one[key] for one in made]) for key in made[0]}
    if "q" in fused:
        fused["q4"] = pack_nibbles(fused.pop("q"))
        fused["zero"] = pack_nibbles(fused["zero"])
    return {f"{name}.{key}": fused[key] for key in sorted(fused)}


def _attn_tensors(source: SourceModel, block: int, weights: WeightFormat) -> Tensors:
    a = source.architecture
    prefix = f"attn.{block}"
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    sizes = (("q", queries), ("k", keys), ("v", keys))
    tensors: Tensors = {"norm": _vector(source, f"{prefix}.norm", a.hidden)}
    tensors |= _linear(source, "qkv", [(f"{prefix}.{part}", rows) for part, rows in sizes], a.hidden, weights)
    if a.qkv_bias:
        tensors["qkv.bias"] = np.concatenate(
            [_vector(source, f"{prefix}.{part}_bias", rows) for part, rows in sizes]
        )
    if a.qk_norm:
        tensors["q_norm"] = _vector(source, f"{prefix}.q_norm", a.head_size)
        tensors["k_norm"] = _vector(source, f"{prefix}.k_norm", a.head_size)
    return tensors | _linear(source, "o", [(f"{prefix}.o", a.hidden)], queries, weights)


def _ffn_tensors(source: SourceModel, block: int, weights: WeightFormat) -> Tensors:
    a = source.architecture
    prefix = f"ffn.{block}"
    tensors: Tensors = {"norm": _vector(source, f"{prefix}.norm", a.hidden)}
    tensors |= _linear(
        source, "gate_up", [(f"{prefix}.gate", a.ffn), (f"{prefix}.up", a.ffn)], a.hidden, weights
    )
    return tensors | _linear(source, "down", [(f"{prefix}.down", a.hidden)], a.ffn, weights)


def _table(source: SourceModel, name: str, weights: WeightFormat) -> Tensors:
    """Embedding or head matrix. It keeps 8 bits where the rest has 4: it decides every token and is read row
    by row.
    """
    a = source.architecture
    kept: WeightFormat = "8bit" if weights == "4bit" else weights
    return _one(_matrix(source.tensor(name), name, (a.vocab, a.hidden)), name, kept)


def _embed_tensors(source: SourceModel, weights: WeightFormat) -> Tensors:
    return _table(source, "embed.weight", weights)


def _head_tensors(source: SourceModel, weights: WeightFormat) -> Tensors:
    """The final norm, and the matrix unless it is the embedding."""
    a = source.architecture
    tensors: Tensors = {"norm": _vector(source, "head.norm", a.hidden)}
    if not a.tied_embedding:
        tensors |= {f"head.{part}": array for part, array in _table(source, "head.weight", weights).items()}
    return tensors


def _renamed(tensor: StoredTensor, old: str, new: str) -> StoredTensor:
    name = new + tensor.name.removeprefix(old) if tensor.name.startswith(old) else tensor.name
    return StoredTensor(name, tensor.dtype, tensor.shape, tensor.offset, tensor.bytes)


def put_tensors(store: Store, tensors: Tensors) -> tuple[BlobRef, tuple[StoredTensor, ...]]:
    """One blob with all tensors, each aligned."""
    stored: list[StoredTensor] = []
    offset = 0
    for name, array in tensors.items():
        dtype = _DTYPES[array.dtype]
        stored.append(StoredTensor(name, dtype, array.shape, offset, array.nbytes))
        offset += array.nbytes + -array.nbytes % ALIGN

    def chunks() -> Iterator[bytes | memoryview]:
        for array in tensors.values():
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            yield memoryview(little.reshape(-1).view(np.uint8).data)
            yield b"\0" * (-array.nbytes % ALIGN)

    return store.put_blob(chunks()), tuple(stored)


def _params(tensors: Iterable[StoredTensor]) -> int:
    """Weights, not counting scales, zero points and rests."""
    total = 0
    for tensor in tensors:
        values = math.prod(tensor.shape)
        if tensor.name.endswith(".q4"):
            total += 2 * values
        elif not tensor.name.endswith((".scale", ".zero", ".rest")):
            total += values
    return total


def _unit(
    name: str,
    kind: UnitKind,
    architecture: Architecture,
    blob: BlobRef,
    tensors: tuple[StoredTensor, ...],
) -> ManifestUnit:
    a = architecture
    block = name.partition(".")[2]
    params = _params(tensors)
    return ManifestUnit(
        name=name,
        kind=kind,
        inputs=("tokens",) if kind == "embed" else ("hidden",),
        outputs=("logits",) if kind == "head" else ("hidden",),
        state=(f"key.{block}", f"value.{block}") if kind == "attn" else (),
        params=params,
        flops_per_token=0 if kind == "embed" else 2 * params,
        out_bytes_per_token=4 if kind == "head" else a.hidden * DTYPE_BYTES["f32"],
        kv_bytes_per_token=2 * a.kv_heads * a.head_size * DTYPE_BYTES["f32"] if kind == "attn" else 0,
        blob=blob,
        tensors=tensors,
        resident_bytes=resident_bytes(kind, tensors),
    )
