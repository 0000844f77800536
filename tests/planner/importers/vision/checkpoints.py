"""Small random checkpoints of every model that sees: the numbers of their config.json, weights and inputs that anybody
can make again.

`python -m tests.planner.importers.vision.make_reference` makes what transformers computes of them, once, into the
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
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.planner.importers.families.checkpoints import weights_of as matrices_of
from tests.planner.tiny_models import safetensors_bytes

REFERENCE: Final = Path(__file__).parent / "reference"
GREEDY: Final = 48  # tokens that follow a prompt
PICTURES: Final = 2
VOCAB: Final = 48
IMAGE: Final = 4  # the token of a picture's place
Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

_VISION: Final = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 24,
    "patch_size": 8,
}
_READER: Final = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 12,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_DECODER: Final = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}

_QWEN_DECODER: Final = {
    **_DECODER,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 3, 3]},
}
_QWEN_TOKENS: Final = {
    "image_token_id": IMAGE,
    "video_token_id": 3,
    "vision_start_token_id": 5,
    "vision_end_token_id": 6,
    "tie_word_embeddings": False,
}

# By case: the class of transformers, and its config.
CASES: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "clip": (
        "CLIPModel",
        {
            "model_type": "clip",
            "vision_config": _VISION,
            "text_config": {**_READER, "eos_token_id": 3},
            "projection_dim": 20,
        },
    ),
    "clip-old-end": (
        "CLIPModel",
        {"model_type": "clip", "vision_config": _VISION, "text_config": _READER, "projection_dim": 20},
    ),
    "siglip": (
        "SiglipModel",
        {"model_type": "siglip", "vision_config": _VISION, "text_config": {**_READER, "hidden_size": 32}},
    ),
    "vit": ("ViTModel", {"model_type": "vit", **_VISION}),
    "vit-classifier": ("ViTForImageClassification", {"model_type": "vit", **_VISION, "num_labels": 5}),
    "dinov2": (
        "Dinov2ForImageClassification",
        {"model_type": "dinov2", **_VISION, "image_size": 40, "mlp_ratio": 2, "num_labels": 3},
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        {
            "model_type": "llava",
            "vision_config": {**_VISION, "model_type": "clip_vision_model"},
            "text_config": _DECODER,
            "image_token_index": IMAGE,
            "image_seq_length": 9,
        },
    ),
    "llava-siglip": (
        "LlavaForConditionalGeneration",
        {
            "model_type": "llava",
            "vision_config": {**_VISION, "model_type": "siglip_vision_model", "vision_use_head": False},
            "text_config": {**_DECODER, "model_type": "qwen2", "num_key_value_heads": 2},
            "image_token_index": IMAGE,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "image_seq_length": 9,
        },
    ),
    "qwen2-vl": (
        "Qwen2VLForConditionalGeneration",
        {
            "model_type": "qwen2_vl",
            "vision_config": {
                "depth": 2,
                "embed_dim": 32,
                "hidden_size": 32,
                "mlp_ratio": 2,
                "num_heads": 2,
                "patch_size": 4,
            },
            "text_config": {**_QWEN_DECODER, "model_type": "qwen2_vl_text"},
            **_QWEN_TOKENS,
        },
    ),
    "qwen2.5-vl": (
        "Qwen2_5_VLForConditionalGeneration",
        {
            "model_type": "qwen2_5_vl",
            "vision_config": {
                "depth": 3,
                "hidden_size": 32,
                "out_hidden_size": 32,
                "intermediate_size": 40,
                "num_heads": 2,
                "patch_size": 4,
                "window_size": 16,
                "fullatt_block_indexes": [1],
            },
            "text_config": {**_QWEN_DECODER, "model_type": "qwen2_5_vl_text"},
            **_QWEN_TOKENS,
        },
    ),
    "idefics3": (
        "Idefics3ForConditionalGeneration",
        {
            "model_type": "idefics3",
            "vision_config": {**_VISION, "image_size": 32},
            "text_config": _DECODER,
            "image_token_id": IMAGE,
            "scale_factor": 2,
        },
    ),
}
TALKING: Final = ("llava", "llava-siglip", "idefics3", "qwen2-vl", "qwen2.5-vl")
QWEN: Final = ("qwen2-vl", "qwen2.5-vl")  # pictures keep their form
MERGE: Final = 2
# As LLaVA's is: it reads parts of a content.
TEMPLATE: Final = (
    "{% for m in messages %}{{ m.role }} {% for c in m.content %}{% if c.type == 'image' %}<image> {% else %}"
    "{{ c.text }} {% endif %}{% endfor %}{% endfor %}{% if add_generation_prompt %}w9{% endif %}"
)
PREPARED: Final[Mapping[str, Mapping[str, Any]]] = {  # what preprocessor_config.json says
    "clip": {
        "crop_size": {"height": 24, "width": 24},
        "do_center_crop": True,
        "do_resize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"shortest_edge": 24},
    },
    "dinov2": {
        "crop_size": {"height": 24, "width": 24},
        "do_center_crop": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "resample": 3,
        "size": {"shortest_edge": 28},
    },
    "siglip": {
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 3,
        "size": {"height": 24, "width": 24},
    },
    "vit": {
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 2,
        "size": {"height": 24, "width": 24},
    },
    "qwen": {
        "do_convert_rgb": True,
        "do_resize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "merge_size": MERGE,
        "patch_size": 4,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"shortest_edge": 512, "longest_edge": 1536},
        "temporal_patch_size": 2,
    },
    "idefics3": {
        "do_image_splitting": True,
        "do_pad": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "max_image_size": {"longest_edge": 32},
        "resample": 3,
        "size": {"longest_edge": 128},
    },
}


def called(token: int) -> str:
    """How the tokenizer calls a token."""
    return "<image>" if token == IMAGE else f"w{token}"


def prepared(case: str) -> Mapping[str, Any]:
    """What the preprocessor_config.json of a case says."""
    known = dict.fromkeys(QWEN, "qwen") | {
        "llava": "clip",
        "clip-old-end": "clip",
        "llava-siglip": "siglip",
        "vit-classifier": "vit",
    }
    return PREPARED[known.get(case, case)]


def sides(case: str) -> tuple[int, int]:
    """Height and width of the pictures that a case is tried with, in pixels."""
    return (24, 40) if case in QWEN else (32, 32) if case == "idefics3" else (24, 24)


def pixels_of(case: str) -> Floats:
    """Two pictures as a tower takes them."""
    rng = np.random.default_rng([*case.encode(), 1])
    return rng.standard_normal((PICTURES, 3, *sides(case))).astype(np.float32)


def picture_of(case: str) -> Pixels:
    """A picture as people have it: smooth, with edges and noise, (41, 57, 3)."""
    rng = np.random.default_rng([*case.encode(), 2])
    found = np.add.outer(np.linspace(0, 200, 41), np.linspace(0, 55, 57))[:, :, None] * np.array(
        [1, 0.7, 0.4]
    )
    found[10:20, 15:40] = rng.integers(0, 256, (10, 25, 3))
    return found.astype(np.uint8)


def texts_of(case: str) -> list[list[int]]:
    """Texts for CLIP and SigLIP, as long as another, with the end where it belongs."""
    rng = np.random.default_rng([*case.encode(), 3])
    end, length = (3 if case == "clip" else VOCAB - 1), 12 if case == "siglip" else 8
    rows = rng.integers(4, VOCAB - 1, (3, length))
    for row, at in enumerate((length - 1, 4, 6)):
        rows[row, at:] = end if case == "siglip" else 0
        rows[row, at] = end
    return [[int(each) for each in row] for row in rows]


def prompt_of(case: str, positions: int) -> list[int]:
    """A prompt with a picture in it, as many place holders as it has rows."""
    rng = np.random.default_rng([*case.encode(), 4])
    words = [int(each) for each in rng.integers(5, VOCAB, 14)]
    return [1, *words[:5], *[IMAGE] * positions, *words[5:]]


def weights_of(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Floats]:
    """Random weights by name and shape; single numbers are small, so that scores differ little."""
    single = {name: shape for name, shape in shapes.items() if shape in ((), (1,))}
    found = matrices_of({name: shape for name, shape in shapes.items() if name not in single}, seed)
    numbers = {
        name: np.full(shape, 1.5 if "scale" in name else -0.5, np.float32) for name, shape in single.items()
    }
    return {**found, **numbers}


@dataclass(frozen=True)
class Checkpoint:
    """What is committed of a case. `arrays`: what transformers computes, by name."""

    name: str
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    seed: int
    arrays: Mapping[str, Floats]
    greedy: tuple[int, ...]

    def write(self, folder: Path) -> Path:
        """The folder as transformers saves it."""
        folder.mkdir()
        weights = weights_of(self.shapes, self.seed)
        (folder / "config.json").write_text(json.dumps(self.config))
        (folder / "preprocessor_config.json").write_text(json.dumps(prepared(self.name)))
        (folder / "model.safetensors").write_bytes(safetensors_bytes(weights, "F32"))
        words = Tokenizer(models.WordLevel({called(i): i for i in range(VOCAB)}, unk_token="w3"))
        words.pre_tokenizer, words.decoder = pre_tokenizers.WhitespaceSplit(), decoders.Metaspace()
        words.add_special_tokens([AddedToken(called(IMAGE), special=True)])
        (folder / "tokenizer.json").write_text(words.to_str())
        if self.name in TALKING:
            (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
        return folder


def encoded(array: Floats) -> list[Any]:
    """As JSON keeps it."""
    return [list(array.shape), base64.b64encode(array.astype("<f4").tobytes()).decode()]


def load(case: str) -> Checkpoint:
    """What is committed of a case."""
    kept = json.loads((REFERENCE / f"{case}.json").read_text(encoding="utf-8"))
    arrays = {
        name: np.frombuffer(base64.b64decode(data), "<f4").reshape(shape)
        for name, (shape, data) in kept["arrays"].items()
    }
    shapes = {name: tuple(shape) for name, shape in kept["shapes"].items()}
    return Checkpoint(case, kept["config"], shapes, kept["seed"], arrays, tuple(kept["greedy"]))
