"""GGUF files: every family, every block format, and everything that can be wrong with a file."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Kind

from planner.errors import CorruptModel, MissingTensor, ModelError, NoSuchModel, UnknownArchitecture
from planner.importers.architecture import SourceModel
from planner.importers.gguf import open_gguf
from planner.importers.gguf_file import read_gguf
from planner.importers.layout import tensor_shapes

if TYPE_CHECKING:
    from tests.planner.tiny_models import TinyModel

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, own head": {"tied": False},
    "llama, scaled": {"llama3_scaling": True},
    "llama, biased": {"bias": True},
    "llama, wide heads": {"head_size": 128},
    "mistral": {"family": "mistral", "tied": False},
    "qwen2": {"family": "qwen2", "bias": True},
    "qwen3": {"family": "qwen3", "qk_norm": True, "head_size": 128, "tied": False},
}
BLOCK_KINDS = [
    kind
    for kind in sorted(gguf.quants._type_traits)
    if kind not in (Kind.F32, Kind.F16) and 256 % gguf.GGML_QUANT_SIZES[kind][0] == 0
]


def check_source(source: SourceModel) -> None:
    """The promises of the protocol that hold for every model."""
    for name, shape in tensor_shapes(source.architecture).items():
        tensor = source.tensor(name)
        weight = tensor.float32()
        assert (tensor.shape, weight.shape, weight.dtype) == (shape, shape, np.float32), name
        assert weight.flags.c_contiguous
    with pytest.raises(MissingTensor, match=r"no tensor attn\.99\.q"):
        source.tensor("attn.99.q")


@pytest.mark.parametrize("changes", FAMILIES.values(), ids=FAMILIES.keys())
def test_every_family_reads_back_its_weights_in_half_split_order(
    tiny_model: TinyModel, tmp_path: Path, changes: dict[str, Any]
) -> None:
    model = tiny_model.but(**changes)
    source = open_gguf(model.write_gguf(tmp_path / "tiny.Q4.gguf"))
    check_source(source)
    for name, weight in model.weights().items():
        np.testing.assert_array_equal(source.tensor(name).float32(), weight, name)
    a = source.architecture
    assert (source.name, a.family) == ("tiny.Q4", model.architecture)
    assert (a.blocks, a.hidden, a.heads, a.kv_heads, a.head_size) == (2, 256, 4, 2, model.head_size)
    assert (a.ffn, a.vocab, a.context, a.rope_dims) == (512, 288, 512, model.head_size)
    assert (a.qkv_bias, a.qk_norm, a.tied_embedding) == (model.bias, model.qk_norm, model.tied)
    assert a.norm_epsilon == pytest.approx(1e-5)
    assert (a.rope_base, a.rope_scaling) == (10_000.0, None)
    assert (a.rope_factors is not None) == model.llama3_scaling
    if not model.tied:
        assert source.tensor("head.weight").kind == "F32"
    else:
        with pytest.raises(MissingTensor):
            source.tensor("head.weight")


@pytest.mark.parametrize("kind", BLOCK_KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_every_block_format_is_dequantized_and_rows_move_whole(
    tiny_model: TinyModel, tmp_path: Path, kind: Kind, family: str
) -> None:
    model = tiny_model.but(family=family, bias=family == "qwen2", blocks=1)
    path = model.write_gguf(tmp_path / "m.gguf", kind=kind)
    source = open_gguf(path)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for ours, theirs, heads in (
        ("attn.0.q", "attn_q", 4),
        ("attn.0.k", "attn_k", 2),
        ("attn.0.v", "attn_v", 0),
        ("ffn.0.down", "ffn_down", 0),
    ):
        tensor = stored[f"blk.0.{theirs}.weight"]
        expected = gguf.quants.dequantize(tensor.data, kind)
        if heads and family == "llama":
            pairs = expected.reshape(heads, model.head_size // 2, 2, -1)
            expected = pairs.swapaxes(1, 2).reshape(expected.shape)
        assert source.tensor(ours).kind == kind.name
        np.testing.assert_array_equal(source.tensor(ours).float32(), expected)
        assert np.isfinite(expected).all()
        assert expected.any()


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["attn.0.q", "attn.0.k", "attn.0.v", "ffn.0.down", "embed.weight"])
def test_exact_blocks_equal_the_float32_form_to_the_bit(
    tiny_model: TinyModel, tmp_path: Path, kind: Kind, name: str
) -> None:
    tensor = open_gguf(tiny_model.write_gguf(tmp_path / "m.gguf", kind=kind)).tensor(name)
    blocks = tensor.blocks()
    assert blocks is not None
    rows, columns = tensor.shape
    assert blocks.bits == (8 if kind == Kind.Q8_0 else 4)
    assert (blocks.q.shape, blocks.q.dtype) == ((rows, columns), np.uint8)
    assert blocks.d.shape == (rows, columns // 32)
    assert blocks.q.max() < 2**blocks.bits
    q = blocks.q.reshape(rows, -1, 32).astype(np.float32)
    if blocks.m is None:
        weight = blocks.d[:, :, None] * (q - np.float32(2 ** (blocks.bits - 1)))
    else:
        weight = blocks.d[:, :, None] * q + blocks.m[:, :, None]
    np.testing.assert_array_equal(weight.reshape(rows, columns), tensor.float32())
    assert (blocks.m is not None) == (kind == Kind.Q4_1)


@pytest.mark.parametrize(
    "kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_K, Kind.Q6_K], ids=lambda kind: kind.name
)
def test_other_formats_have_no_exact_block_form(tiny_model: TinyModel, tmp_path: Path, kind: Kind) -> None:
    source = open_gguf(tiny_model.write_gguf(tmp_path / "m.gguf", kind=kind))
    assert source.tensor("ffn.0.up").blocks() is None
    assert source.tensor("ffn.0.norm").blocks() is None


def test_llama3_frequencies_are_read(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model.but(llama3_scaling=True)
    factors = open_gguf(model.write_gguf(tmp_path / "m.gguf")).architecture.rope_factors
    assert factors == tuple(model.rope_factors().tolist())
    assert factors[0] == 1.0
    assert factors[-1] == 8.0


def test_linear_scaling_and_sliding_window(tiny_model: TinyModel, tmp_path: Path) -> None:
    def metadata(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)
        writer.add_sliding_window(100)

    a = open_gguf(tiny_model.write_gguf(tmp_path / "m.gguf", metadata=metadata)).architecture
    assert a.rope_scaling is not None
    assert (a.rope_scaling.kind, a.rope_scaling.factor, a.context) == ("linear", 4.0, 100)


def test_all_shards_are_opened_from_any_of_them(tiny_model: TinyModel, tmp_path: Path) -> None:
    tiny_model.write_gguf(tmp_path / "big.gguf", split_tensors=7)
    parts = sorted(tmp_path.glob("big-*-of-*.gguf"))
    assert len(parts) == 3
    for part in parts:
        source = open_gguf(part)
        assert source.name == "big"
        for name, weight in tiny_model.weights().items():
            np.testing.assert_array_equal(source.tensor(name).float32(), weight, name)
    parts[1].unlink()
    with pytest.raises(NoSuchModel, match=r"one of 3 shards and 1 are missing .*big-00002-of-00003\.gguf"):
        open_gguf(parts[0])


def test_float64_and_zero_biases_and_old_extras_are_fine(tiny_model: TinyModel, tmp_path: Path) -> None:
    extra = {
        "blk.0.attn_output.bias": np.zeros(256, np.float32),
        "blk.0.attn_rot_embd": np.ones(32, np.float32),
    }
    weights = tiny_model.weights()
    doubles = {n: w.astype(np.float64) if n == "ffn.0.up" else w for n, w in weights.items()}
    path = tiny_model.write_gguf(tmp_path / "m.gguf", weights=doubles, extra=extra)  # type: ignore[arg-type]
    source = open_gguf(path)
    assert source.tensor("ffn.0.up").kind == "F64"
    np.testing.assert_array_equal(source.tensor("ffn.0.up").float32(), weights["ffn.0.up"])


def number(key: str, value: int) -> Callable[[gguf.GGUFWriter], None]:
    return lambda writer: writer.add_uint32(key, value)


REFUSED: dict[str, tuple[dict[str, Any], type[ModelError], str]] = {
    "unknown architecture": (
        {"family": "gemma"},
        UnknownArchitecture,
        r"architecture 'gemma' is not supported; the nearest that is: .*; `shoal models --families` lists all",
    ),
    "missing embedding": ({"without": ("token_embd.weight",)}, MissingTensor, r"token_embd\.weight"),
    "missing matrix": (
        {"without": ("blk.1.ffn_down.weight",)},
        MissingTensor,
        r"blk\.1\.ffn_down\.weight \(ffn\.1\.down\) is missing",
    ),
    "missing number": ({"without": ("block_count",)}, CorruptModel, r"llama\.block_count is missing"),
    "missing epsilon": (
        {"without": ("attention.layer_norm_rms_epsilon",)},
        CorruptModel,
        "rms_epsilon is missing",
    ),
    "wrong shape": (
        {"ffn": 256, "weights_of": {}},
        CorruptModel,
        r"ffn_gate\.weight should be \(256, 256\), is \(512, 256\)",
    ),
    "too many blocks": (
        {"blocks": 2000, "weights_of": {}},
        CorruptModel,
        "expected blocks between 1 and 1024, got 2000",
    ),
    "uneven heads": ({"kv_heads": 3, "weights_of": {}}, CorruptModel, "4 heads cannot share 3"),
    "no heads": ({"heads": 0, "weights_of": {}}, CorruptModel, "at least one head"),
    "odd head": ({"head_size": 63, "weights_of": {}}, CorruptModel, "even head size, got 63"),
    "experts": ({"metadata": number("llama.expert_count", 8)}, CorruptModel, "expert_used_count is missing"),
    "experts of a dense family": (
        {"family": "qwen2", "metadata": number("qwen2.expert_count", 8)},
        UnknownArchitecture,
        "mixtures of experts of qwen2 are not supported; choose a dense model",
    ),
    "part rotates": (
        {"metadata": number("llama.rope.dimension_count", 32)},
        UnknownArchitecture,
        "64, 64 and 32",
    ),
    "longrope": (
        {"metadata": lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)},
        UnknownArchitecture,
        "rope scaling 'longrope' is not supported",
    ),
    "wrong type": (
        {"without": ("block_count",), "metadata": lambda w: w.add_string("llama.block_count", "2")},
        CorruptModel,
        r"llama\.block_count should be a finite number, is '2'",
    ),
    "stranger": (
        {"extra": {"blk.0.attn_sub_norm.weight": np.ones(4, np.float32)}},
        UnknownArchitecture,
        r"blk\.0\.attn_sub_norm\.weight has no place in llama",
    ),
    "bias of the output": (
        {"extra": {"blk.0.attn_output.bias": np.ones(256, np.float32)}},
        UnknownArchitecture,
        r"attn_output\.bias has no place",
    ),
    "factors": (
        {"extra": {"rope_freqs.weight": np.ones(4, np.float32)}},
        CorruptModel,
        r"should be \(32,\), is \(4,\)",
    ),
    "negative factors": ({"extra": {"rope_freqs.weight": -np.ones(32, np.float32)}}, CorruptModel, "above 0"),
    "integers": (
        {"extra": {"rope_freqs.weight": np.ones(32, np.int32)}},
        CorruptModel,
        "type I32, which the gguf package cannot turn into numbers",
    ),
    "big-endian": ({"endian": gguf.GGUFEndian.BIG}, CorruptModel, "big-endian GGUF; convert it"),
}


@pytest.mark.parametrize(("how", "error", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_one_clear_line(
    tiny_model: TinyModel, tmp_path: Path, how: dict[str, Any], error: type[ModelError], says: str
) -> None:
    fields = {"family", "ffn", "blocks", "kv_heads", "heads", "head_size"}
    changes = {key: value for key, value in how.items() if key in fields}
    options = {key: value for key, value in how.items() if key not in fields and key != "weights_of"}
    if "weights_of" in how:  # the header lies about the tensors
        options["weights"] = {
            name: tiny_model.permuted(name, weight) for name, weight in tiny_model.weights().items()
        }
        model = tiny_model.but(family="qwen2", **changes)
    else:
        model = tiny_model.but(**changes)
    path = model.write_gguf(tmp_path / "bad.gguf", **options)
    with pytest.raises(error, match=says) as caught:
        open_gguf(path)
    assert str(caught.value).startswith("bad.gguf: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"GG", "ends early, inside the magic"),
        (b"PK\x03\x04" + bytes(100), "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(100), "expected GGUF version 2 or 3, got 1"),
        (b"GGUF" + struct.pack("<I", 99) + bytes(100), "expected GGUF version 2 or 3, got 99"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(100), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "promises 1152921504606846976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "promises 1152921504606846976 metadata values"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 40) + bytes(9), "bytes long, at most 65535"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77) + bytes(9), "unknown type 77"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 0, 1 << 50), "promises 1125899906842624 k"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1), "list of lists"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ1sIB", 3, 0, 2, 1, b"k", 4, 7, 1, b"k", 0, 7), "k appears twice"),
        (
            b"GGUF" + struct.pack("<IQQQ1sI5QIQ", 3, 1, 0, 1, b"t", 9, 1, 1, 1, 1, 1, 0, 0),
            "expected 1 to 4 dimensions, got 9",
        ),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 4, 999, 0), "has type 999"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 4, 2, 0), "multiples of 32"),
        (
            b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 1 << 62, 0, 0),
            "tensor t needs bytes up to",
        ),
        (
            b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 1, 0, 1 << 63),
            "tensor t needs bytes up to",
        ),
    ],
)
def test_a_hostile_header_is_refused_before_anything_is_allocated(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(CorruptModel, match=says):
        read_gguf(path)


def test_cut_anywhere_it_is_corrupt_and_flipped_anywhere_it_is_named(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    path = tiny_model.but(blocks=1).write_gguf(tmp_path / "whole.gguf", kind=Kind.Q4_0)
    whole = path.read_bytes()
    header = len(whole) - sum(int(t.n_bytes) for t in gguf.GGUFReader(path).tensors)
    bad = tmp_path / "bad.gguf"
    for cut in [*range(400), *range(400, header, 97), *range(header, len(whole), 20_011), len(whole) - 1]:
        bad.write_bytes(whole[:cut])
        with pytest.raises(CorruptModel):
            open_gguf(bad)
    rng = np.random.default_rng(1)
    for place in rng.integers(0, header, 300).tolist():
        broken = bytearray(whole)
        broken[place] ^= 1 << int(rng.integers(8))
        bad.write_bytes(broken)
        try:
            open_gguf(bad)
        except ModelError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_no_file_and_no_permission_are_clear(tmp_path: Path) -> None:
    with pytest.raises(NoSuchModel, match="there is no file"):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(NoSuchModel, match="cannot be read"):
        open_gguf(tmp_path)


def test_the_real_model(smollm2_gguf: Path) -> None:
    source = open_gguf(smollm2_gguf)
    a = source.architecture
    assert source.name == "SmolLM2-135M-Instruct.Q4_1"
    assert (a.family, a.blocks, a.hidden, a.heads, a.kv_heads, a.head_size) == ("llama", 30, 576, 9, 3, 64)
    assert (a.ffn, a.vocab, a.context, a.rope_base, a.tied_embedding) == (1536, 49152, 8192, 100_000.0, True)
    blocks = source.tensor("attn.29.q").blocks()
    assert blocks is not None
    assert blocks.m is not None
    weight = blocks.d[:, :, None] * blocks.q.reshape(576, 18, 32) + blocks.m[:, :, None]
    np.testing.assert_array_equal(weight.reshape(576, 576), source.tensor("attn.29.q").float32())
    assert source.tensor("embed.weight").kind == "Q8_0"
