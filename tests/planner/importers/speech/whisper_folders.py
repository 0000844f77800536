"""Folders of random models of Whisper's kind that anybody can make again, with the real numbers of special tokens.

`python -m tests.planner.importers.speech.make_reference` makes what transformers writes by them of a spoken file, once,
into the folder reference/; the suite needs neither torch nor transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models

from planner.importers.speech.whisper_graphs import EncoderShape, tensor_names
from tests.planner.tiny_models import safetensors_bytes

REFERENCE: Final = Path(__file__).parent / "reference"
SPOKEN: Final = REFERENCE / "spoken.flac"  # by espeak-ng, 16 kHz
VOCAB: Final = 51865
TEXT: Final = 50257  # tokens of text stand before <|endoftext|>
END: Final = 50257
START: Final = 50258
LANGUAGES: Final = ("en", "zh", "de", "es", "ru", "ko", "fr")  # of 99 that the real model has
TRANSLATE: Final = 50358
TRANSCRIBE: Final = 50359
NO_TIMESTAMPS: Final = 50363
POSITIONS: Final = 448
ROWS: Final = 1500
SUPPRESSED: Final = (1, 2, 7, 50358, 50359, 50360, 50361, 50362)
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Shape:
    """One model. `loud`: how much louder embeddings of times are than those of words; `places`: those of positions than
    in the others; `sharp`: how much fewer rows of the encoder each token looks at.
    """

    hidden: int
    heads: int
    blocks: int
    ffn: int
    seed: int
    loud: float = 1.0
    places: float = 1.0
    sharp: float = 1.0


SHAPES: Final = {
    "small": Shape(64, 2, 2, 128, 3, 1.35),
    "tiny": Shape(384, 6, 4, 1536, 5, 1.2),  # Whisper-tiny's
    "varied": Shape(64, 2, 2, 128, 3, 1.35, 4, 4),  # other words for other sounds
}


def config_of(shape: Shape) -> dict[str, Any]:
    """config.json, as transformers saves it."""
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "activation_function": "gelu",
        "d_model": shape.hidden,
        "encoder_layers": shape.blocks,
        "decoder_layers": shape.blocks,
        "encoder_attention_heads": shape.heads,
        "decoder_attention_heads": shape.heads,
        "encoder_ffn_dim": shape.ffn,
        "decoder_ffn_dim": shape.ffn,
        "max_source_positions": ROWS,
        "max_target_positions": POSITIONS,
        "num_mel_bins": 80,
        "vocab_size": VOCAB,
        "scale_embedding": False,
        "bos_token_id": END,
        "eos_token_id": END,
        "pad_token_id": END,
        "decoder_start_token_id": START,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }


def generation_of() -> dict[str, Any]:
    """generation_config.json, as published models have it."""
    return {
        "bos_token_id": END,
        "eos_token_id": END,
        "pad_token_id": END,
        "decoder_start_token_id": START,
        "is_multilingual": True,
        "lang_to_id": {f"<|{code}|>": START + 1 + place for place, code in enumerate(LANGUAGES)},
        "task_to_id": {"transcribe": TRANSCRIBE, "translate": TRANSLATE},
        "no_timestamps_token_id": NO_TIMESTAMPS,
        "max_initial_timestamp_index": 50,
        "suppress_tokens": list(SUPPRESSED),
        "begin_suppress_tokens": [220, END],
        "max_length": POSITIONS,
        "prev_sot_token_id": 50361,
        "return_timestamps": False,
        "transformers_version": "4.31.0.dev0",
    }


def weights_of(shape: Shape) -> dict[str, Floats]:
    """Every tensor, under the names of published models."""
    rng = np.random.default_rng(shape.seed)
    width, bias = shape.hidden, (shape.hidden,)
    encoder = EncoderShape(shape.blocks, width, shape.heads, shape.ffn, 80, ROWS)
    shapes = {f"model.encoder.{name}": size for name, size in tensor_names(encoder).items()}
    decoder: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (VOCAB, width),
        "embed_positions.weight": (POSITIONS, width),
        "layer_norm.weight": bias,
        "layer_norm.bias": bias,
    }
    for block in range(shape.blocks):
        for module in ("self_attn", "encoder_attn"):
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                decoder[f"layers.{block}.{module}.{part}.weight"] = (width, width)
                if part != "k_proj":
                    decoder[f"layers.{block}.{module}.{part}.bias"] = bias
        for norm in ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"):
            decoder[f"layers.{block}.{norm}.weight"] = decoder[f"layers.{block}.{norm}.bias"] = bias
        decoder[f"layers.{block}.fc1.weight"] = (shape.ffn, width)
        decoder[f"layers.{block}.fc1.bias"] = (shape.ffn,)
        decoder[f"layers.{block}.fc2.weight"] = (width, shape.ffn)
        decoder[f"layers.{block}.fc2.bias"] = bias
    shapes |= {f"model.decoder.{name}": size for name, size in decoder.items()}
    found: dict[str, Floats] = {}
    for name, size in shapes.items():
        drawn = rng.standard_normal(size, np.float32)
        if "norm.weight" in name:
            drawn = 1 + drawn * np.float32(0.1)
        elif name.endswith(".bias"):
            drawn *= np.float32(0.1)
        elif "embed_tokens" in name:
            drawn *= np.float32(0.35)
            drawn[NO_TIMESTAMPS + 1 :] *= np.float32(shape.loud)
        elif "embed_positions" in name:
            drawn *= np.float32(0.3 * shape.places)
        else:
            drawn *= np.float32((2.0 if "encoder_attn" in name else 1.0) / np.sqrt(np.prod(size[1:])))
            if "encoder_attn.k_proj" in name:
                drawn *= np.float32(shape.sharp)
        found[name] = drawn
    return found


def tokenizer_json() -> str:
    """A tokenizer with a word for each number, and the real special tokens."""
    words = {f"w{number} ": number for number in range(TEXT)}
    made = Tokenizer(models.WordLevel(words, unk_token="w3 "))
    made.decoder = decoders.Fuse()
    special = ["<|endoftext|>", "<|startoftranscript|>"]
    special += [f"<|{code}|>" for code in LANGUAGES]
    special += [f"<|x{number}|>" for number in range(99 - len(LANGUAGES))]
    special += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
    special += ["<|nospeech|>", "<|notimestamps|>"]
    made.add_special_tokens(special)
    made.add_tokens([f"<|{tick * 0.02:.2f}|>" for tick in range(1501)])
    return made.to_str()


def write(folder: Path, name: str) -> Path:
    """The model `name` of SHAPES as transformers saves one."""
    shape = SHAPES[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(shape)))
    (folder / "generation_config.json").write_text(json.dumps(generation_of()))
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"feature_size": 80, "hop_length": 160, "n_fft": 400, "sampling_rate": 16000})
    )
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weights_of(shape), "F32"))
    return folder
