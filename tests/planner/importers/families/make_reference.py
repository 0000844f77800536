"""Writes reference/: what transformers computes of each small checkpoint. Needs torch and transformers, on a CPU.

python -m tests.planner.importers.families.make_reference [CASE…]
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

from tests.planner.importers.families.checkpoints import (
    CASES,
    GREEDY,
    POSITIONS,
    PROMPT,
    REFERENCE,
    config_of,
    tokens_of,
    weights_of,
)

torch.set_num_threads(1)
CLOSE = 1e-3  # of the largest logit: no greedy token is decided by less


def model_of(case: str, seed: int) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """The model with its weights, and the shapes of the tensors that its checkpoint has."""
    kind, numbers = config_of(case)
    config = transformers.AutoConfig.for_model(kind, **numbers)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # under the names that published checkpoints have
        path = Path(folder) / "model.safetensors"
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        save_file(weights_of(shapes, seed), path, metadata={"format": "pt"})
        loaded, how = transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        wrong = {what: names for what, names in how.items() if names and what != "conversion_errors"}
        if wrong:
            raise SystemExit(f"{case}: {wrong}")
        return loaded.eval(), shapes


def logits_of(model: Any, tokens: list[int]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        found: np.ndarray[Any, Any] = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    return found


def answer(model: Any, prompt: list[int]) -> list[int] | None:
    """GREEDY likeliest tokens; None where one was close."""
    tokens = list(prompt)
    for _ in range(GREEDY):
        logits = logits_of(model, tokens)[-1]
        second, first = np.sort(logits)[-2:]
        if first - second < CLOSE * np.abs(logits).max():
            return None
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


def make(case: str) -> None:
    for seed in range(40):
        model, shapes = model_of(case, seed)
        answers = [answer(model, tokens_of(f"{case}, {which}", PROMPT)) for which in ("one", "two")]
        if None not in answers and all(len(set(each or ())) > 2 for each in answers):
            break
    else:
        print(f"{case}: no seed without close tokens")
        return
    logits = logits_of(model, tokens_of(case, POSITIONS)).astype("<f4")
    kept = {
        "config": json.loads(model.config.to_json_string(use_diff=True)),
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "seed": seed,
        "greedy": answers,
        "logits": base64.b64encode(logits.tobytes()).decode(),
    }
    text = json.dumps(kept, sort_keys=True) + "\n"
    (REFERENCE / f"{case}.json").write_text(text, encoding="utf-8")
    print(case, "seed", seed, "largest logit", float(np.abs(logits).max()), len(text), "bytes")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or CASES:
        make(wanted)
