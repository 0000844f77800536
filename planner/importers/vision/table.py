"""The table of families of models that see."""

from __future__ import annotations

from typing import Final

# Models, model_type, components and what they give.
SEEING: Final[tuple[tuple[str, tuple[str, ...], str, str], ...]] = (
    (
        "LLaVA 1.5 (a tower of CLIP or SigLIP)",
        ("llava",),
        "vision, projector, and the decoder",
        "answers about pictures",
    ),
    (
        "Qwen2-VL",
        ("qwen2_vl",),
        "vision, projector, and the decoder",
        "answers about pictures, which keep their form",
    ),
    (
        "Qwen2.5-VL",
        ("qwen2_5_vl",),
        "vision, projector, and the decoder",
        "answers about pictures, which keep their form",
    ),
    (
        "Idefics3, SmolVLM",
        ("idefics3", "smolvlm"),
        "vision, projector, and the decoder",
        "answers about pictures, each taken whole, not in tiles",
    ),
    ("CLIP", ("clip",), "vision, text", "vectors of pictures and texts, shares of labels"),
    ("SigLIP", ("siglip",), "vision, text", "vectors of pictures and texts, a probability of each pair"),
    ("ViT", ("vit",), "one", "rows, a vector, logits where there is a classifier"),
    ("DINOv2", ("dinov2",), "one", "rows, a vector, logits where there is a classifier"),
)


def vision_rows() -> list[tuple[str, str, str, str]]:
    """For people, of each family: its models, its names in GGUF files (none) and in config.json, what it gives."""
    return [(title, "", ", ".join(called), gives) for title, called, _, gives in SEEING]
