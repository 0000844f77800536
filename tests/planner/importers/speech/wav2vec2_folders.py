"""Folders of random models of Wav2Vec2's kind that anybody can make again.

`python -m tests.planner.importers.speech.make_ctc_reference` makes what transformers computes with them of a spoken
file, once, into the folder reference/; the suite needs neither torch nor transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.importers.speech.wav2vec2_graph import PLACES, Convolution, Wav2Vec2Shape, tensor_shapes
from planner.importers.vision.graph_file import Floats
from tests.planner.tiny_models import safetensors_bytes

LETTERS: Final = ("<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ")
KERNELS: Final = (10, 3, 3, 3, 3, 2, 2)
STRIDES: Final = (5, 2, 2, 2, 2, 2, 2)
SIZE: Final = "encoder.pos_conv_embed.conv.parametrizations.weight.original0"
DIRECTION: Final = "encoder.pos_conv_embed.conv.parametrizations.weight.original1"


@dataclass(frozen=True, slots=True)
class Case:
    """One model. `space`, `blank`: how much likelier the ends of words and blanks are than by chance, so that there are
    some; `settings`: what config.json says beside its sizes; `normalized`: the sound is.
    """

    seed: int
    space: float
    blank: float
    settings: dict[str, Any]
    normalized: bool = True
    old_names: bool = False  # of the weight that is kept in two parts


CASES: Final = {
    "base": Case(
        12, 1.67, 5.66, {"feat_extract_norm": "group", "do_stable_layer_norm": False, "conv_bias": False}
    ),
    "large": Case(
        10,
        2.37,
        7.04,
        {
            "feat_extract_norm": "layer",
            "do_stable_layer_norm": True,
            "conv_bias": True,
            "num_conv_pos_embeddings": 15,
            "do_lower_case": True,
        },
        normalized=False,
        old_names=True,
    ),
}


def config_of(case: Case) -> dict[str, Any]:
    """config.json, as transformers saves it."""
    return {
        "model_type": "wav2vec2",
        "architectures": ["Wav2Vec2ForCTC"],
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "conv_dim": [32] * 7,
        "conv_kernel": list(KERNELS),
        "conv_stride": list(STRIDES),
        "num_conv_pos_embeddings": 32,
        "num_conv_pos_embedding_groups": 4,
        "num_feat_extract_layers": 7,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
        "feat_extract_activation": "gelu",
        "vocab_size": len(LETTERS),
        "pad_token_id": 0,
        **{key: value for key, value in case.settings.items() if key != "do_lower_case"},
    }


def shape_of(case: Case) -> Wav2Vec2Shape:
    """The same in numbers of ours."""
    said = config_of(case)
    sizes = zip(said["conv_dim"], KERNELS, STRIDES, strict=True)
    return Wav2Vec2Shape(
        convolutions=tuple(Convolution(*each) for each in sizes),
        each_normed=said["feat_extract_norm"] == "layer",
        convolution_bias=said["conv_bias"],
        feature_activation="gelu",
        blocks=said["num_hidden_layers"],
        hidden=said["hidden_size"],
        heads=said["num_attention_heads"],
        ffn=said["intermediate_size"],
        activation="gelu",
        near=said["num_conv_pos_embeddings"],
        near_groups=said["num_conv_pos_embedding_groups"],
        norm_first=said["do_stable_layer_norm"],
        epsilon=1e-5,
        vocab=len(LETTERS),
        normalized=case.normalized,
    )


def weights_of(case: Case) -> dict[str, Floats]:
    """Every tensor, under the names of published models."""
    rng = np.random.default_rng(case.seed)
    found: dict[str, Floats] = {}
    for name, size in tensor_shapes(shape_of(case)).items():
        drawn = rng.standard_normal(size, np.float32)
        if "norm" in name and name.endswith("weight"):
            drawn = 1 + drawn * np.float32(0.1)
        elif name.endswith(".bias"):
            drawn *= np.float32(0.1)
        else:
            drawn *= np.float32(1.5 / np.sqrt(np.prod(size[1:])))
        if name == "lm_head.weight":
            drawn *= np.float32(2)
        if name == "lm_head.bias":
            drawn[1:4] -= np.float32(100)  # marks of texts are never said
            drawn[4] += np.float32(case.space)
            drawn[0] += np.float32(case.blank)
        if name == PLACES:
            names = ("weight_g", "weight_v") if case.old_names else ("", "")
            size_name, direction_name = (
                (f"encoder.pos_conv_embed.conv.{each}" for each in names)
                if case.old_names
                else (SIZE, DIRECTION)
            )
            found[size_name] = np.abs(rng.standard_normal((1, 1, size[2]), np.float32)) + np.float32(0.5)
            found[direction_name] = drawn
            continue
        found[name] = drawn
    return {name if name.startswith("lm_head") else f"wav2vec2.{name}": each for name, each in found.items()}


def write(folder: Path, name: str) -> Path:
    """The model `name` of CASES as transformers saves one."""
    case = CASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(case)))
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(LETTERS)}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "Wav2Vec2CTCTokenizer",
                "pad_token": "<pad>",
                "word_delimiter_token": "|",
                "do_lower_case": case.settings.get("do_lower_case", False),
            }
        )
    )
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "feature_extractor_type": "Wav2Vec2FeatureExtractor",
                "feature_size": 1,
                "sampling_rate": 16000,
                "padding_value": 0.0,
                "do_normalize": case.normalized,
                "return_attention_mask": case.settings["feat_extract_norm"] == "layer",
            }
        )
    )
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weights_of(case), "F32"))
    return folder
