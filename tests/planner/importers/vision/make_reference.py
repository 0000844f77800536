"""Writes reference/: what transformers computes of each small checkpoint. Needs torch, transformers and Pillow.

python -m tests.planner.importers.vision.make_reference [CASE…]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save_file

from tests.planner.importers.vision.checkpoints import (
    CASES,
    GREEDY,
    IMAGE,
    MERGE,
    QWEN,
    REFERENCE,
    TALKING,
    encoded,
    picture_of,
    pixels_of,
    prepared,
    prompt_of,
    texts_of,
    weights_of,
)

torch.set_num_threads(1)
CLOSE = 1e-3  # of the largest logit: no greedy token is decided by less
PROCESSORS = {
    "clip": "CLIPImageProcessorPil",
    "siglip": "SiglipImageProcessorPil",
    "vit": "ViTImageProcessorPil",
    "dinov2": "BitImageProcessorPil",
    "idefics3": "Idefics3ImageProcessorPil",
    "qwen2": "Qwen2VLImageProcessorPil",
    "qwen2.5": "Qwen2VLImageProcessorPil",
}


def model_of(case: str, seed: int) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """The model with its weights, and the shapes of the tensors that its checkpoint has."""
    kind, numbers = CASES[case]
    config = transformers.AutoConfig.for_model(**numbers)
    made = getattr(transformers, kind)
    model = made._from_config(config, attn_implementation="eager").float().eval()
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # under the names that published checkpoints have
        path = Path(folder) / "model.safetensors"
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        save_file(weights_of(shapes, seed), path, metadata={"format": "pt"})
        loaded, how = made.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        wrong = {what: names for what, names in how.items() if names and what != "conversion_errors"}
        if wrong:
            raise SystemExit(f"{case}: {wrong}")
        return loaded.eval(), shapes


def patches_of(case: str, pictures: int) -> dict[str, Any]:
    """The first pictures of a case as patches, the order of squares, and the grid of each."""
    pixels = pixels_of(case)[:pictures]
    _, colours, height, width = pixels.shape
    patch = prepared(case)["patch_size"]
    high, wide = height // patch, width // patch
    cut = pixels.reshape(pictures, colours, high // MERGE, MERGE, patch, wide // MERGE, MERGE, patch)
    turned = cut.transpose(0, 2, 5, 3, 6, 1, 4, 7)[:, :, :, :, :, :, None].repeat(2, axis=6)
    return {
        "pixel_values": torch.tensor(turned.reshape(pictures * high * wide, -1)),
        "image_grid_thw": torch.tensor([[1, high, wide]] * pictures),
    }


def seen(model: Any, case: str) -> dict[str, Any]:
    """What the towers make."""
    pixels = torch.tensor(pixels_of(case))
    with torch.no_grad():
        if case in ("clip", "clip-old-end", "siglip"):
            found = model(input_ids=torch.tensor(texts_of(case)), pixel_values=pixels)
            logits = found.logits_per_image
            scores = logits.sigmoid() if case == "siglip" else logits.softmax(1)
            return {
                "picture_vectors": found.image_embeds,
                "text_vectors": found.text_embeds,
                "scores": scores,
            }
        if case == "vit":
            found = model(pixel_values=pixels)
            return {"rows": found.last_hidden_state, "vector": found.pooler_output}
        if case in ("vit-classifier", "dinov2"):
            return {"logits": model(pixel_values=pixels).logits}
        if case == "idefics3":
            return {"rows": torch.stack(list(model.model.get_image_features(pixels[:, None]).pooler_output))}
        if case in QWEN:
            rows = model.model.get_image_features(**patches_of(case, len(pixels))).pooler_output
            return {"rows": torch.stack(list(rows))}
        rows = model.model.get_image_features(pixels).pooler_output
        return {"rows": torch.stack(list(rows))}


def logits_of(model: Any, case: str, tokens: list[int]) -> Any:
    if case in QWEN:
        ids = torch.tensor([tokens])
        with torch.no_grad():
            kinds = (ids == IMAGE).int()
            found = model(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **patches_of(case, 1))
        return found.logits[0].numpy()
    pixels = torch.tensor(pixels_of(case)[:1])
    pixels = pixels[:, None] if case == "idefics3" else pixels
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens]), pixel_values=pixels, use_cache=False).logits[0].numpy()


def answer(model: Any, case: str, prompt: list[int]) -> list[int] | None:
    """GREEDY likeliest tokens, never that of a picture; None where one was close."""
    tokens = list(prompt)
    for _ in range(GREEDY):
        logits = logits_of(model, case, tokens)[-1]
        second, first = np.sort(logits)[-2:]
        if first - second < CLOSE * np.abs(logits).max() or int(logits.argmax()) == IMAGE:
            return None
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


def processed(case: str) -> Any:
    """What the processor of transformers makes of a picture."""
    known = case.split("-")[0] if case != "llava-siglip" else "siglip"
    made = getattr(transformers, PROCESSORS["clip" if known == "llava" else known])
    more = {"do_image_splitting": False} if case == "idefics3" else {}
    found = made(**{**prepared(case), **more})(Image.fromarray(picture_of(case)), return_tensors="np", **more)
    if case in QWEN:
        (_, high, wide), patch = found["image_grid_thw"][0], prepared(case)["patch_size"]
        cut = found["pixel_values"].reshape(high // MERGE, wide // MERGE, MERGE, MERGE, 3, 2, patch, patch)
        return cut[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, high * patch, wide * patch)
    return np.asarray(found["pixel_values"]).reshape(-1, *np.asarray(found["pixel_values"]).shape[-3:])[0]


def make(case: str) -> None:
    greedy: list[int] | None = []
    for seed in range(60):
        model, shapes = model_of(case, seed)
        arrays = seen(model, case)
        if case in TALKING:
            prompt = prompt_of(case, arrays["rows"].shape[1])
            greedy = answer(model, case, prompt)
            if greedy is None or len(set(greedy)) < 3:
                continue
            arrays["answer_logits"] = torch.tensor(logits_of(model, case, prompt))
        break
    else:
        print(f"{case}: no seed without close tokens")
        return
    arrays["prepared"] = torch.tensor(processed(case))
    kept = {
        "config": json.loads(model.config.to_json_string(use_diff=True)),
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "seed": seed,
        "greedy": greedy,
        "arrays": {name: encoded(array.numpy()) for name, array in arrays.items()},
    }
    text = json.dumps(kept, sort_keys=True) + "\n"
    (REFERENCE / f"{case}.json").write_text(text, encoding="utf-8")
    print(
        case, "seed", seed, {name: tuple(array.shape) for name, array in arrays.items()}, len(text), "bytes"
    )


if __name__ == "__main__":
    for wanted in sys.argv[1:] or CASES:
        make(wanted)
