"""Which numbers config.json gives the towers of models that see, and how their checkpoints call the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.hf_config import Numbers
from planner.importers.vision.blocks import ACTIVATIONS, CLIP_LAYER, DINO_LAYER, VIT_LAYER, BlockNumbers
from planner.importers.vision.tower import TowerNumbers, check_tower

# What transformers takes for numbers that a config leaves out.
_USUAL: Final = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}
_VISION: Final[Mapping[str, Mapping[str, int]]] = {
    "clip_vision_model": _USUAL | {"patch_size": 32},
    "siglip_vision_model": _USUAL,
    "idefics3_vision": _USUAL | {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32},
    "smolvlm_vision": _USUAL | {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32},
    "vit": _USUAL,
    "dinov2": _USUAL | {"patch_size": 14},
}
_SAID: Final[Mapping[str, tuple[str, float]]] = {  # usual activation and epsilon
    "clip_vision_model": ("quick_gelu", 1e-5),
    "siglip_vision_model": ("gelu_pytorch_tanh", 1e-6),
    "idefics3_vision": ("gelu_pytorch_tanh", 1e-6),
    "smolvlm_vision": ("gelu_pytorch_tanh", 1e-6),
    "vit": ("gelu", 1e-12),
    "dinov2": ("gelu", 1e-6),
}


def tower_numbers(said: Numbers, kind: str, image: int | None = None) -> TowerNumbers:
    """The tower of a vision config of model_type `kind`. `image`: the side of pictures, where that is not the config's.

    Raises UnknownArchitecture for another kind or variant, CorruptModel for numbers that make no sense.
    """
    if kind not in _VISION:
        raise UnknownArchitecture(
            f"{said.where}: a tower of model_type {kind[:80]!r} is not supported; known are {', '.join(_VISION)}"
        )
    usual = _VISION[kind]
    number = {key: said.whole(key, value) for key, value in usual.items()}
    if said.whole("num_channels", 3) != 3:
        raise UnknownArchitecture(f"{said.where}: pictures of three colours expected")
    dino, vit = kind == "dinov2", kind in ("vit", "dinov2")
    if dino and said.flag("use_swiglu_ffn", False):
        raise UnknownArchitecture(f"{said.where}: use_swiglu_ffn is not supported")
    ffn = number["hidden_size"] * said.whole("mlp_ratio", 4) if dino else number["intermediate_size"]
    blocks = BlockNumbers(
        blocks=number["num_hidden_layers"],
        hidden=number["hidden_size"],
        heads=number["num_attention_heads"],
        ffn=ffn,
        epsilon=said.real("layer_norm_eps", _SAID[kind][1]),
        activation=activation_of(said, _SAID[kind][0]),
        layer=DINO_LAYER if dino else VIT_LAYER if vit else CLIP_LAYER,
        prefix="encoder.layer." if vit else "encoder.layers.",
        qkv_bias=said.flag("qkv_bias", True) if vit else True,
    )
    clip = kind == "clip_vision_model"
    found = TowerNumbers(
        blocks=blocks,
        image=image or number["image_size"],
        patch=number["patch_size"],
        patches="embeddings.patch_embeddings.projection" if vit else "embeddings.patch_embedding",
        positions="embeddings.position_embeddings" if vit else "embeddings.position_embedding.weight",
        class_row="embeddings.cls_token" if vit else "embeddings.class_embedding" if clip else None,
        first_norm="pre_layrnorm" if clip else None,
        last_norm="layernorm" if vit else "post_layernorm",
        grid=number["image_size"] // max(number["patch_size"], 1),
        patch_bias=not clip,
        positions_shape=(1,) if vit else (),
    )
    check_tower(found, said.where)
    if found.grid != found.side and not dino:
        raise UnknownArchitecture(
            f"{said.where}: pictures of {found.image} pixels for a tower of {number['image_size']} are not supported"
        )
    return found


def activation_of(said: Numbers, usual: str) -> str:
    """The activation of a config. Raises UnknownArchitecture."""
    called = said.word("hidden_act", usual)
    if called not in ACTIVATIONS:
        raise UnknownArchitecture(
            f"{said.where}: hidden_act {called[:80]!r} is not supported; known are {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[called]
