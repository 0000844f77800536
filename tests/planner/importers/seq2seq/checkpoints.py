"""Small random checkpoints of every family of encoder-decoder models, and weights that anybody can make again.

`python -m tests.planner.importers.seq2seq.make_reference` makes what transformers computes of them, once, into the
folder reference/; the suite needs neither torch nor transformers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from tests.planner.tiny_models import safetensors_bytes

REFERENCE: Final = Path(__file__).parent / "reference"
POSITIONS: Final = 64  # of which logits are compared
SOURCES: Final = (24, 17)  # tokens of source texts, the marks at their ends included
GREEDY: Final = 48
VOCAB: Final = 48
PAD, END, BEGIN, UNKNOWN = 0, 1, 2, 3
FIRST: Final = 4  # of tokens that are words
_WORDS: Final = ("shared", "embed_tokens", "lm_head")
Floats = npt.NDArray[np.float32]

_T5: Final = {
    "d_model": 64,
    "d_kv": 24,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 2,
    "vocab_size": VOCAB,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "pad_token_id": PAD,
    "eos_token_id": END,
    "decoder_start_token_id": PAD,
}
_BART: Final = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 80,
    "vocab_size": VOCAB,
    "max_position_embeddings": 80,
    "pad_token_id": PAD,
    "eos_token_id": END,
    "bos_token_id": BEGIN,
    "forced_eos_token_id": END,
}

# By case: model_type, its config, what generation_config.json has, tensors beside those that transformers saves.
CASES: Final[Mapping[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, tuple[int, ...]]]]] = {
    "t5": ("t5", {**_T5, "feed_forward_proj": "relu", "num_decoder_layers": 3}, {}, {}),
    "flan-t5": (
        "t5",
        {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {},
        {"lm_head.weight": (VOCAB, 64)},
    ),
    "bart": (
        "bart",
        {**_BART, "decoder_start_token_id": END, "forced_bos_token_id": BEGIN},
        {"forced_bos_token_id": BEGIN},
        {},
    ),
    "bart-scaled": (
        "bart",
        {**_BART, "decoder_start_token_id": END, "scale_embedding": True, "activation_function": "gelu_new"},
        {},
        {},
    ),
    "marian": (
        "marian",
        {
            **_BART,
            "decoder_start_token_id": PAD,
            "scale_embedding": True,
            "activation_function": "swish",
            "bos_token_id": None,
        },
        {"bad_words_ids": [[PAD]]},
        {},
    ),
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A random model and what transformers makes of it: `logits` (64, vocab) of `targets` behind the first source, and
    `greedy` tokens of each source.
    """

    name: str
    config: dict[str, Any]
    weights: dict[str, Floats]
    logits: Floats
    greedy: tuple[tuple[int, ...], ...]

    @property
    def sources(self) -> list[list[int]]:
        """The tokens of source texts, with what stands around them."""
        return sources_of(self.name)

    @property
    def targets(self) -> list[int]:
        """Tokens behind the first source, of which there are logits."""
        return targets_of(self.name)

    def write(self, folder: Path) -> Path:
        """The checkpoint as transformers saves it."""
        folder.mkdir(parents=True, exist_ok=True)
        _, _, generation, _ = CASES[self.name]
        (folder / "config.json").write_text(json.dumps(self.config))
        if generation:
            (folder / "generation_config.json").write_text(json.dumps(generation))
        (folder / "tokenizer.json").write_text(tokenizer_json(self.name))
        (folder / "model.safetensors").write_bytes(safetensors_bytes(self.weights, "F32"))
        return folder


def load(name: str) -> Checkpoint:
    """A case with its reference."""
    kept = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(kept["logits"]), "<f4").reshape(POSITIONS, VOCAB)
    return Checkpoint(
        name,
        kept["config"],
        weights_of({each: tuple(shape) for each, shape in kept["shapes"].items()}, kept["seed"]),
        logits,
        tuple(map(tuple, kept["greedy"])),
    )


def weights_of(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Floats]:
    """Random numbers of a size at which rows neither vanish nor all look the same."""
    found: dict[str, Floats] = {}
    bare = not any("layernorm_embedding" in name for name in shapes)  # without it, little comes of attention
    for name, shape in shapes.items():
        rng = np.random.default_rng([seed, *name.encode()])
        drawn = rng.standard_normal(shape, np.float32)
        t5 = "block" in name or name.startswith(("shared", "lm_head")) or "final_layer_norm" in name
        if "norm" in name and name.endswith("weight"):
            drawn = 1 + drawn * np.float32(0.1)
        elif "embed_positions" in name:
            drawn *= np.float32(1.0)
        elif name.endswith(("bias", "bias.weight")) or any(each in name for each in _WORDS):
            drawn *= np.float32(0.5 if t5 else 0.1)
        else:
            sharp = any(each in name for each in (".q_proj", ".k_proj"))
            of_bart = (6.0 if bare else 4.0) if sharp else (0.3 if bare else 0.6) if ".fc" in name else 2.0
            loud = (2.0 if "EncDec" in name else 1.2) if t5 else of_bart
            drawn *= np.float32(loud / np.sqrt(shape[-1]))
        found[name] = drawn.astype(np.float32)
    return found


def words_of(text: str, count: int) -> list[int]:
    """That many tokens of words, by a name."""
    drawn = np.random.default_rng([7, *text.encode()]).integers(FIRST, VOCAB, count)
    return [int(each) for each in drawn]


def sources_of(name: str) -> list[list[int]]:
    """The tokens of both source texts."""
    begun = [BEGIN] if CASES[name][0] == "bart" else []
    return [
        [*begun, *words_of(f"{name}, source {place}", length - len(begun) - 1), END]
        for place, length in enumerate(SOURCES)
    ]


def start_of(name: str) -> list[int]:
    """The tokens that a target begins with."""
    _, config, generation, _ = CASES[name]
    forced = generation.get("forced_bos_token_id")
    return [config["decoder_start_token_id"], *([] if forced is None else [forced])]


def targets_of(name: str) -> list[int]:
    """Tokens of a target, with those that it begins with."""
    begun = start_of(name)
    return [*begun, *words_of(f"{name}, target", POSITIONS - len(begun))]


def tokenizer_json(name: str) -> str:
    """A tokenizer with a word for each number, and marks at the ends of a text."""
    words = {"<pad>": PAD, "</s>": END, "<s>": BEGIN, "<unk>": UNKNOWN}
    words |= {f"\u2581w{number}": number for number in range(FIRST, VOCAB)}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(["<pad>", "</s>", "<s>", "<unk>"])
    ends = "<s> $A </s>" if CASES[name][0] == "bart" else "$A </s>"
    made.post_processor = processors.TemplateProcessing(
        single=ends, special_tokens=[("<s>", BEGIN), ("</s>", END)]
    )
    return made.to_str()


def text_of(tokens: list[int]) -> str:
    """What the tokenizer makes these tokens of, without the marks."""
    return " ".join(f"w{token}" for token in tokens if token >= FIRST)
