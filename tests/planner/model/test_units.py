"""Weights become units without loss where that is promised, closely where it is not, and stored once."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from planner.errors import CorruptModel
from planner.importers.architecture import Architecture
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.manifest import Manifest, ManifestUnit, decode_manifest
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.sources import BlockQuantized, TokenizerSource
from planner.model.store import Store
from planner.model.units import (
    exact_4bit,
    exact_8bit,
    pack_nibbles,
    quantize_4bit,
    quantize_8bit,
)
from planner.types import WeightFormat

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)
HALF = np.float16


def halves(*shape: int) -> npt.NDArray[np.float32]:
    return (RNG.standard_normal(shape) / 50).astype(HALF).astype(np.float32)


def stored_weight(unit: ManifestUnit, store: Store, name: str) -> npt.NDArray[np.float64]:
    """The weight that the stored form stands for, in float64."""
    blob = store.blob_path(unit.blob.sha256).read_bytes()

    def array(part: str) -> Array | None:
        tensor = unit.tensor(f"{name}.{part}")
        if tensor is None:
            return None
        dtype = {"f32": "<f4", "f16": "<f2", "u8": "u1"}[tensor.dtype]
        count = tensor.bytes // np.dtype(dtype).itemsize
        return np.frombuffer(blob, dtype, count, tensor.offset).reshape(tensor.shape)

    def unpacked(packed: Array) -> Array:
        return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)

    whole = array("w")
    if whole is not None:
        return whole.astype(np.float64)
    scale = array("scale")
    assert scale is not None
    wide = scale.astype(np.float64)[..., None]
    q8, q4, zero, rest = array("q8"), array("q4"), array("zero"), array("rest")
    if q8 is not None:
        return ((q8.astype(np.float64) - 128) * wide).reshape(len(q8), -1)
    assert q4 is not None
    assert zero is not None
    zeros = unpacked(zero)[:, : scale.shape[1], None].astype(np.float64)
    found = (unpacked(q4).astype(np.float64) - zeros) * wide
    if rest is not None:
        found += rest.astype(np.float64)[..., None]
    return found.reshape(len(found), -1)


def real(value: object) -> npt.NDArray[np.float64]:
    return np.asarray(value, np.float64)


def test_exact_4bit_is_d_q_plus_m() -> None:
    q = RNG.integers(0, 16, (8, 96), dtype=np.uint8)
    d, m = np.abs(halves(8, 3)), halves(8, 3)
    d[0], m[1], m[2] = 0, 0, 20 * d[2]
    tensors = exact_4bit(BlockQuantized(4, q, d, m))
    blocks = (real(tensors["q"]) - real(tensors["zero"])[..., None]) * real(d)[..., None]
    found = blocks + real(tensors["rest"])[..., None]
    expected = real(d)[..., None] * real(q).reshape(8, 3, 32) + real(m)[..., None]
    np.testing.assert_array_equal(found, expected)
    assert tensors["zero"].max() <= 15


def test_exact_forms_without_minimum() -> None:
    d = halves(4, 2)
    q4, q8 = RNG.integers(0, 16, (4, 64), np.uint8), RNG.integers(0, 256, (4, 64), np.uint8)
    four, eight = exact_4bit(BlockQuantized(4, q4, d, None)), exact_8bit(BlockQuantized(8, q8, d, None))
    assert "rest" not in four
    assert (four["zero"] == 8).all()
    np.testing.assert_array_equal(eight["q8"].reshape(4, 64), q8)


@pytest.mark.parametrize("columns", [32, 64, 80, 96])
def test_rounding_is_within_half_a_step(columns: int) -> None:
    w = (RNG.standard_normal((5, columns)) * 3).astype(np.float32)
    w[0] = 0
    w[1, :32] = np.abs(w[1, :32])
    padded = np.pad(w, ((0, 0), (0, -columns % 32))).reshape(5, -1, 32)
    eight, four = quantize_8bit(w), quantize_4bit(w)
    found8 = (real(eight["q8"]) - 128) * real(eight["scale"])[..., None]
    found4 = (real(four["q"]) - real(four["zero"])[..., None]) * real(four["scale"])[..., None]
    assert (np.abs(found8 - padded) <= 0.501 * real(eight["scale"])[..., None]).all()
    assert (np.abs(found4 - padded) <= 1.01 * real(four["scale"])[..., None]).all()


def test_nibbles_are_low_first_and_padded() -> None:
    assert pack_nibbles(np.array([[1, 2, 3]], np.uint8)).tolist() == [[0x21, 0x03]]


@dataclass(frozen=True)
class Tensor:
    values: npt.NDArray[np.float32]
    exact: BlockQuantized | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def kind(self) -> str:
        return "made up"

    def float32(self) -> npt.NDArray[np.float32]:
        return self.values

    def blocks(self) -> BlockQuantized | None:
        return self.exact

    def rows(self, first: int, stop: int) -> Tensor:
        if self.exact is None:
            return Tensor(self.values[first:stop])
        q, d, m = self.exact.q, self.exact.d, self.exact.m
        part = BlockQuantized(
            self.exact.bits, q[first:stop], d[first:stop], None if m is None else m[first:stop]
        )
        return Tensor(self.values[first:stop], part)


class Source:
    """A model whose tensors a test may replace."""

    name = "made up"
    tokenizer = TokenizerSource(b"{}", None, 1, (2,), True)
    sampling: SamplingDefaults | None = None

    def __init__(self, **changes: Any) -> None:
        self.architecture = Architecture(
            **{
                "family": "llama",
                "blocks": 1,
                "hidden": 32,
                "heads": 2,
                "kv_heads": 1,
                "head_size": 16,
                "ffn": 64,
                "vocab": 10,
                "context": 64,
                "norm_epsilon": 1e-5,
                "rope_base": 1e4,
                "rope_dims": 16,
                "rope_scaling": None,
                "rope_factors": None,
                "qkv_bias": True,
                "qk_norm": True,
                "tied_embedding": True,
                **changes,
            }
        )
        self.replaced: dict[str, Tensor] = {}

    def tensor(self, name: str) -> Tensor:
        shapes = {
            "weight": (10, 32),
            "norm": (32,),
            "q": (32, 32),
            "k": (16, 32),
            "v": (16, 32),
            "o": (32, 32),
        }
        shapes |= {
            "gate": (64, 32),
            "up": (64, 32),
            "down": (32, 64),
            "q_bias": (32,),
            "k_bias": (16,),
            "v_bias": (16,),
        }
        shapes |= {"q_norm": (16,), "k_norm": (16,)}
        if name not in self.replaced:
            shape = shapes[name.rpartition(".")[2]]
            self.replaced[name] = Tensor(RNG.standard_normal(shape).astype(np.float32))
        return self.replaced[name]


def build(source: Any, weights: WeightFormat, folder: Path) -> tuple[Manifest, Store]:
    store = Store(folder)
    return decode_manifest(store.manifest_bytes(build_model(source, weights, store))), store


@pytest.mark.parametrize("weights", ["f32", "f16", "8bit", "4bit"])
def test_fused_rows_stand_below_one_another(tmp_path: Path, weights: WeightFormat) -> None:
    source = Source()
    manifest, store = build(source, weights, tmp_path)
    assert [unit.name for unit in manifest.units] == ["embed", "attn.0", "ffn.0", "head"]
    attn, ffn = manifest.units[1:3]
    tolerance = {"f32": 0.0, "f16": 2e-3, "8bit": 0.02, "4bit": 0.4}[weights]
    for unit, fused, parts in (
        (attn, "qkv", ("attn.0.q", "attn.0.k", "attn.0.v")),
        (attn, "o", ("attn.0.o",)),
        (ffn, "gate_up", ("ffn.0.gate", "ffn.0.up")),
        (ffn, "down", ("ffn.0.down",)),
    ):
        expected = np.concatenate([source.tensor(part).values for part in parts])
        np.testing.assert_allclose(stored_weight(unit, store, fused), expected, atol=tolerance, rtol=0)


def test_figures_of_units(tmp_path: Path) -> None:
    manifest, _ = build(Source(), "f32", tmp_path)
    embed, attn, ffn, head = manifest.units
    assert (embed.resident_bytes, embed.flops_per_token) == (0, 0)
    assert (attn.kv_bytes_per_token, ffn.kv_bytes_per_token) == (2 * 16 * 4, 0)
    assert (attn.state, attn.out_bytes_per_token) == (("key.0", "value.0"), 32 * 4)
    assert head.resident_bytes == 4 * (10 * 32 + 32)
    assert ffn.params == 3 * 64 * 32 + 32
    assert embed.blob == head.blob


def test_an_untied_head_has_its_own_blob(tmp_path: Path) -> None:
    manifest, _store = build(Source(tied_embedding=False), "8bit", tmp_path)
    embed, head = manifest.units[0], manifest.units[-1]
    assert embed.blob != head.blob
    assert head.tensor("head.q8") is not None
    assert {tensor.name for tensor in embed.tensors} == {"embed.q8", "embed.scale"}


def test_the_same_model_has_the_same_id(tmp_path: Path) -> None:
    source = Source()
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    seen: list[tuple[int, int]] = []
    first = build_model(source, "4bit", one, lambda done, total: seen.append((done, total)))
    assert first == build_model(source, "4bit", other)
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(set(done))
    assert set(totals) == {done[-1]}


@pytest.mark.parametrize("weights", ["f32", "f16", "8bit", "4bit"])
@pytest.mark.parametrize("exact", [None, "q4_0", "q4_1", "q8_0"])
def test_the_rows_at_once_and_the_threads_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: WeightFormat, exact: str | None
) -> None:
    source = Source()
    if exact is not None:
        bits, least = int(exact[1]), exact.endswith("1")
        q = RNG.integers(0, 1 << bits, (16, 32), np.uint8)
        m = halves(16, 1) if least else None
        d = np.abs(halves(16, 1))
        source.replaced["attn.0.k"] = Tensor(halves(16, 32), BlockQuantized(bits, q, d, m))
    found = set()
    for values, cores in ((1 << 19, 1), (1, 4), (7 * 32, 2)):
        monkeypatch.setattr("planner.model.blob_plan.VALUES_AT_ONCE", values)
        monkeypatch.setattr("planner.model.blob_writer._cores", lambda cores=cores: cores)
        found.add(build_model(source, weights, Store(tmp_path / str(values))))
    assert len(found) == 1


def test_an_import_that_fails_or_is_interrupted_leaves_nothing_half_written(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def interrupted(done: int, _: int) -> None:
        if done > 2000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_model(Source(), "f32", store, interrupted)
    assert store.models() == []
    assert [*(tmp_path / "tmp").iterdir()] == []
    for blob in (tmp_path / "blobs").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name


# Whoever has a model keeps it: the same file makes the same bytes on every machine, whatever its processor.
IDS = {
    "8bit": "560d305d75390cbed304a2f779d04d89795f142c229c5d4701c5adc640e46b7f",
    "4bit": "90fa839eb5e7504478bf76c31fa217fa1e550c756651836dbd025936adc29740",
    "f32": "727a1ec92c723e2b45d6622af1ae998dd6ea29bffa802ea8f1527dbc71c66aa8",
    "f16": "40f78ee82d8391db08941fa85043f02e08960af4161d944c259397ce478d45ee",
}


@pytest.mark.parametrize("weights", [*IDS])
def test_the_real_model_has_the_id_that_it_always_had(
    smollm2_gguf: Path, tmp_path: Path, weights: WeightFormat
) -> None:
    source = open_gguf(smollm2_gguf, "SmolLM2-135M-Instruct.Q4_1")
    assert build_model(source, weights, Store(tmp_path)) == IDS[weights]


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("attn.0.q", Tensor(np.zeros((32, 31), np.float32)), "attn.0.q.*32, 32.*32, 31"),
        ("ffn.0.norm", Tensor(np.zeros(31, np.float32)), "ffn.0.norm"),
        ("ffn.0.up", Tensor(np.full((64, 32), np.nan, np.float32)), "ffn.0.up.*NaN"),
        ("attn.0.norm", Tensor(np.full(32, np.inf, np.float32)), "attn.0.norm"),
    ],
)
@pytest.mark.parametrize("weights", ["f32", "8bit", "4bit"])
def test_bad_tensors_are_named(
    tmp_path: Path, weights: WeightFormat, name: str, tensor: Tensor, words: str
) -> None:
    source = Source()
    source.replaced[name] = tensor
    with pytest.raises(CorruptModel, match=words):
        build(source, weights, tmp_path)


def test_what_float16_cannot_hold_is_refused(tmp_path: Path) -> None:
    source = Source()
    source.replaced["ffn.0.up"] = Tensor(np.full((64, 32), 1e6, np.float32))
    with pytest.raises(CorruptModel, match=r"ffn\.0\.up as float16"):
        build(source, "f16", tmp_path)


@pytest.fixture(scope="module")
def real_source(smollm2_gguf: Path) -> Any:
    return open_gguf(smollm2_gguf)


@pytest.mark.parametrize("name", ["attn.0.qkv", "attn.29.o", "ffn.0.gate_up", "ffn.17.down"])
def test_4bit_of_the_real_model_is_exact(
    real_source: Any, built_4bit: Callable[[], tuple[Manifest, Store]], name: str
) -> None:
    """The stored form equals the file's `d * q + m`, computed in float64, to the bit."""
    manifest, store = built_4bit()
    unit_name, _, linear = name.rpartition(".")
    unit = next(unit for unit in manifest.units if unit.name == unit_name)
    parts = {"qkv": "qkv", "gate_up": ("gate", "up")}.get(linear, (linear,))
    names = [f"{unit_name}.{part}" for part in parts]
    expected = []
    for each in names:
        blocks = real_source.tensor(each).blocks()
        assert blocks is not None
        assert blocks.m is not None
        w = real(blocks.d)[..., None] * real(blocks.q).reshape(*blocks.d.shape, 32)
        expected.append((w + real(blocks.m)[..., None]).reshape(len(w), -1))
    np.testing.assert_array_equal(stored_weight(unit, store, linear), np.concatenate(expected))


@pytest.fixture(scope="module")
def built_4bit(
    real_source: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], tuple[Manifest, Store]]:
    built = build(real_source, "4bit", tmp_path_factory.mktemp("four"))
    return lambda: built


def test_sizes_of_the_real_model(built_4bit: Callable[[], tuple[Manifest, Store]]) -> None:
    manifest, _ = built_4bit()
    assert sum(unit.params for unit in manifest.units[1:]) == 134_515_008
    assert manifest.units[0].blob == manifest.units[-1].blob
    assert len({unit.blob.sha256 for unit in manifest.units}) == len(manifest.units) - 1
    assert len(manifest.graphs()) == 4
    assert dataclasses.replace(manifest) == manifest
