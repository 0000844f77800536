"""Tiny models with random weights, written as GGUF files and as Hugging Face folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Weights = dict[str, npt.NDArray[np.float32]]
GGUF_NAMES = {
    "embed.weight": "token_embd.weight",
    "head.norm": "output_norm.weight",
    "head.weight": "output.weight",
    "attn.norm": "attn_norm.weight",
    "attn.q": "attn_q.weight",
    "attn.k": "attn_k.weight",
    "attn.v": "attn_v.weight",
    "attn.o": "attn_output.weight",
    "attn.q_bias": "attn_q.bias",
    "attn.k_bias": "attn_k.bias",
    "attn.v_bias": "attn_v.bias",
    "attn.q_norm": "attn_q_norm.weight",
    "attn.k_norm": "attn_k_norm.weight",
    "ffn.norm": "ffn_norm.weight",
    "ffn.gate": "ffn_gate.weight",
    "ffn.up": "ffn_up.weight",
    "ffn.down": "ffn_down.weight",
}
FOLDER_NAMES = {
    "embed.weight": "model.embed_tokens.weight",
    "head.norm": "model.norm.weight",
    "head.weight": "lm_head.weight",
    "attn.norm": "input_layernorm.weight",
    "attn.q": "self_attn.q_proj.weight",
    "attn.k": "self_attn.k_proj.weight",
    "attn.v": "self_attn.v_proj.weight",
    "attn.o": "self_attn.o_proj.weight",
    "attn.q_bias": "self_attn.q_proj.bias",
    "attn.k_bias": "self_attn.k_proj.bias",
    "attn.v_bias": "self_attn.v_proj.bias",
    "attn.q_norm": "self_attn.q_norm.weight",
    "attn.k_norm": "self_attn.k_norm.weight",
    "ffn.norm": "post_attention_layernorm.weight",
    "ffn.gate": "mlp.gate_proj.weight",
    "ffn.up": "mlp.up_proj.weight",
    "ffn.down": "mlp.down_proj.weight",
}


def file_name(ours: str, names: Mapping[str, str], prefix: str) -> str:
    if ours in names:
        return names[ours]
    unit, block, part = ours.split(".")
    return f"{prefix}.{block}.{names[f'{unit}.{part}']}"


def byte_alphabet() -> list[str]:
    return sorted(pre_tokenizers.ByteLevel.alphabet())


@dataclass(frozen=True)
class TinyModel:
    """`family` as in config.json. Sizes are the smallest that every GGUF block format allows (multiples of 256)."""

    family: str = "llama"
    tied: bool = True
    bias: bool = False
    qk_norm: bool = False
    blocks: int = 2
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    ffn: int = 512
    vocab: int = 288
    llama3_scaling: bool = False
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return "llama" if self.family == "mistral" else self.family

    def shapes(self) -> dict[str, tuple[int, ...]]:
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        shapes: dict[str, tuple[int, ...]] = {
            "embed.weight": (self.vocab, self.hidden),
            "head.norm": (self.hidden,),
        }
        if not self.tied:
            shapes["head.weight"] = (self.vocab, self.hidden)
        for i in range(self.blocks):
            shapes |= {
                f"attn.{i}.norm": (self.hidden,),
                f"attn.{i}.q": (q, self.hidden),
                f"attn.{i}.k": (kv, self.hidden),
                f"attn.{i}.v": (kv, self.hidden),
                f"attn.{i}.o": (self.hidden, q),
                f"ffn.{i}.norm": (self.hidden,),
                f"ffn.{i}.gate": (self.ffn, self.hidden),
                f"ffn.{i}.up": (self.ffn, self.hidden),
                f"ffn.{i}.down": (self.hidden, self.ffn),
            }
            if self.bias:
                shapes |= {f"attn.{i}.q_bias": (q,), f"attn.{i}.k_bias": (kv,), f"attn.{i}.v_bias": (kv,)}
            if self.qk_norm:
                shapes |= {f"attn.{i}.q_norm": (self.head_size,), f"attn.{i}.k_norm": (self.head_size,)}
        return shapes

    def weights(self) -> Weights:
        """Multiples of 1/64 of small size: exact in every floating format, bfloat16 included."""
        rng = np.random.default_rng(self.seed)
        return {
            name: (rng.integers(-64, 64, shape) / 64).astype(np.float32)
            for name, shape in self.shapes().items()
        }

    def write_gguf(
        self,
        path: Path,
        *,
        kind: GGMLQuantizationType = GGMLQuantizationType.F32,
        weights: Weights | None = None,
        metadata: Callable[[gguf.GGUFWriter], None] | None = None,
        without: tuple[str, ...] = (),
        extra: Mapping[str, npt.NDArray[Any]] | None = None,
        tokenizer: Callable[[gguf.GGUFWriter], None] | None = None,
        endian: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE,
        split_tensors: int = 0,
    ) -> Path:
        """Matrices are stored as `kind`, vectors as float32. `without`: metadata keys and tensors left out."""
        arch = self.architecture
        writer = gguf.GGUFWriter(
            path, arch, endianess=endian, split_max_tensors=split_tensors, small_first_shard=False
        )
        numbers: dict[str, int | float] = {
            "block_count": self.blocks,
            "context_length": 512,
            "embedding_length": self.hidden,
            "feed_forward_length": self.ffn,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 10_000.0,
        }
        if self.head_size * self.heads != self.hidden:
            numbers |= {"attention.key_length": self.head_size, "attention.value_length": self.head_size}
        for key, value in numbers.items():
            if key in without:
                continue
            if isinstance(value, float):
                writer.add_float32(f"{arch}.{key}", value)
            else:
                writer.add_uint32(f"{arch}.{key}", value)
        (tokenizer or self.add_tokenizer)(writer)
        if metadata:
            metadata(writer)
        for ours, weight in (weights or self.weights()).items():
            name = file_name(ours, GGUF_NAMES, "blk")
            if name in without:
                continue
            if arch == "llama":
                weight = self.permuted(ours, weight)
            if weight.ndim == 1 or kind == GGMLQuantizationType.F32:
                writer.add_tensor(name, weight)
            elif kind == GGMLQuantizationType.F16:
                writer.add_tensor(name, weight.astype(np.float16))
            else:
                writer.add_tensor(name, packed(weight, kind), raw_dtype=kind)
        if self.llama3_scaling:
            writer.add_tensor("rope_freqs.weight", self.rope_factors())
        for name, array in (extra or {}).items():
            writer.add_tensor(name, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def permuted(self, ours: str, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Half-split rows -> the interleaved rows of GGUF's llama, as its converter does it."""
        heads = {"q": self.heads, "q_bias": self.heads, "k": self.kv_heads, "k_bias": self.kv_heads}
        count = heads.get(ours.rpartition(".")[2])
        if count is None or not ours.startswith("attn."):
            return weight
        halves = weight.reshape(count, 2, weight.shape[0] // count // 2, *weight.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))

    def rope_factors(self) -> npt.NDArray[np.float32]:
        """Llama 3's divisors for factor 8, low 1, high 4, original context 8192."""
        dims = self.head_size
        freqs = 1.0 / (10_000.0 ** (np.arange(0, dims, 2) / dims))
        lengths = 2 * np.pi / freqs
        smooth = (8192 / lengths - 1.0) / (4.0 - 1.0)
        between = 1.0 / ((1 - smooth) / 8.0 + smooth)
        factors = np.where(lengths < 8192 / 4.0, 1.0, np.where(lengths > 8192 / 1.0, 8.0, between))
        return factors.astype(np.float32)

    def add_tokenizer(self, writer: gguf.GGUFWriter) -> None:
        """Byte-level BPE of 256 bytes, two merges, some control tokens, padded to the vocabulary."""
        tokens = [*byte_alphabet(), "he", "hel", "<|im_start|>", "<|im_end|>", "<think>"]
        kinds = [1] * 258 + [3, 3, 4]
        padding = self.vocab - len(tokens)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list([*tokens, *(f"[PAD{i}]" for i in range(padding))])
        writer.add_token_types([*kinds, *([5] * padding)])
        writer.add_token_merges(["h e", "he l"])
        writer.add_bos_token_id(258)
        writer.add_eos_token_id(259)
        writer.add_add_bos_token(False)
        writer.add_chat_template("{{ messages[0]['content'] }}")

    def write_folder(
        self,
        folder: Path,
        *,
        dtype: str = "F32",
        shards: int = 1,
        weights: Weights | None = None,
        without: tuple[str, ...] = (),
        extra: Mapping[str, npt.NDArray[np.float32]] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            "model_type": self.family,
            "num_hidden_layers": self.blocks,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_size,
            "intermediate_size": self.ffn,
            "vocab_size": self.vocab,
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": self.tied,
            "eos_token_id": 259,
            **self.config,
            **(config or {}),
        }
        if self.llama3_scaling:
            settings["rope_scaling"] = {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            }
        (folder / "config.json").write_text(
            json.dumps({k: v for k, v in settings.items() if k not in without})
        )
        self.write_tokenizer(folder)
        tensors = {
            file_name(ours, FOLDER_NAMES, "model.layers"): weight
            for ours, weight in (weights or self.weights()).items()
        }
        tensors |= extra or {}
        names = [name for name in tensors if name not in without]
        if shards == 1:
            (folder / "model.safetensors").write_bytes(
                safetensors_bytes({n: tensors[n] for n in names}, dtype)
            )
            return folder
        where: dict[str, str] = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            part = names[shard::shards]
            where |= dict.fromkeys(part, file)
            (folder / file).write_bytes(safetensors_bytes({name: tensors[name] for name in part}, dtype))
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": where})
        )
        return folder

    def write_tokenizer(self, folder: Path) -> None:
        vocab = {text: i for i, text in enumerate([*byte_alphabet(), "he", "hel"])}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("h", "e"), ("he", "l")]))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
        (folder / "tokenizer.json").write_text(tokenizer.to_str())
        (folder / "tokenizer_config.json").write_text(
            json.dumps(
                {
                    "bos_token": "<|im_start|>",
                    "eos_token": {"content": "<|im_end|>"},
                    "chat_template": "{{ messages[0]['content'] }}",
                    "add_bos_token": False,
                }
            )
        )

    def but(self, **changes: Any) -> TinyModel:
        return replace(self, **changes)


def packed(weight: npt.NDArray[np.float32], kind: GGMLQuantizationType) -> npt.NDArray[np.uint8]:
    """The weight in block form; formats that the gguf package cannot write get random blocks with tame scales."""
    try:
        quantized: npt.NDArray[np.uint8] = gguf.quants.quantize(weight, kind)
        return quantized
    except NotImplementedError:
        block, block_bytes = GGML_QUANT_SIZES[kind]
        rng = np.random.default_rng(int(kind))
        shape = (*weight.shape[:-1], weight.shape[-1] // block * block_bytes)
        # 0x00..0x3b keeps every float16 read out of these bytes under 1, whatever its place in the block
        return rng.integers(0, 0x3C, shape, dtype=np.uint8)


def safetensors_bytes(tensors: Mapping[str, npt.NDArray[Any]], dtype: str) -> bytes:
    """The format written by hand, so that tests do not read with what wrote. `dtype`: of all that is not bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, weight in tensors.items():
        kind = "U8" if weight.dtype == np.uint8 else dtype
        match kind:
            case "BF16":
                raw = (weight.view(np.uint32) >> 16).astype(np.uint16).tobytes()
            case "F16":
                raw = weight.astype(np.float16).tobytes()
            case "F64":
                raw = weight.astype(np.float64).tobytes()
            case _:
                raw = weight.tobytes()
        header[name] = {
            "dtype": kind,
            "shape": list(weight.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(body)
