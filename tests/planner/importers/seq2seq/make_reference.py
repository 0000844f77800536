"""Writes reference/: what transformers computes of each small checkpoint. Needs torch and transformers, on a CPU.

python -m tests.planner.importers.seq2seq.make_reference [CASE…]
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

from tests.planner.importers.seq2seq.checkpoints import (
    CASES,
    GREEDY,
    REFERENCE,
    sources_of,
    start_of,
    targets_of,
    weights_of,
)

torch.set_num_threads(1)
CLOSE = 1e-3  # of the largest logit: no greedy token is decided by less
SEEDS = 60


def model_of(case: str, seed: int) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """The model with its weights, and the shapes of the tensors that its checkpoint has."""
    kind, numbers, _, more = CASES[case]
    config = transformers.AutoConfig.for_model(kind, **numbers)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").float().eval()
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = Path(folder) / "model.safetensors"
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        shapes |= more
        save_file(weights_of(shapes, seed), path, metadata={"format": "pt"})
        loaded, how = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        wrong = {what: names for what, names in how.items() if names and what != "conversion_errors"}
        if wrong:
            raise SystemExit(f"{case}: {wrong}")
        head, words = loaded.get_output_embeddings().weight, loaded.get_input_embeddings().weight
        if torch.equal(head, words) == bool(more):
            raise SystemExit(f"{case}: a head of its own expected exactly where its checkpoint has one")
        return loaded.eval(), shapes


def logits_of(model: Any, source: list[int], target: list[int]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        made = model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target]), use_cache=False
        )
    found: np.ndarray[Any, Any] = made.logits[0].numpy()
    return found


def answer(model: Any, case: str, source: list[int]) -> list[int] | None:
    """GREEDY likeliest tokens; None where one was close. They do not stop at an end."""
    tokens = start_of(case)
    begun = len(tokens)
    never = [each for (each,) in CASES[case][2].get("bad_words_ids", [])]
    for _ in range(GREEDY):
        logits = logits_of(model, source, tokens)[-1]
        logits[never] = -np.inf
        second, first = np.sort(logits)[-2:]
        if first - second < CLOSE * np.abs(logits[np.isfinite(logits)]).max():
            return None
        tokens.append(int(logits.argmax()))
    return tokens[begun:]


def make(case: str) -> None:
    for seed in range(SEEDS):
        model, shapes = model_of(case, seed)
        answers = [answer(model, case, source) for source in sources_of(case)]
        if (
            None not in answers
            and all(len(set(each or ())) > 2 for each in answers)
            and answers[0] != answers[1]
        ):
            break
    else:
        print(f"{case}: no seed without close tokens")
        return
    logits = logits_of(model, sources_of(case)[0], targets_of(case)).astype("<f4")
    kept = {
        "config": {**json.loads(model.config.to_json_string(use_diff=True)), **CASES[case][1]},
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "seed": seed,
        "greedy": answers,
        "logits": base64.b64encode(logits.tobytes()).decode(),
    }
    text = json.dumps(kept, sort_keys=True) + "\n"
    (REFERENCE / f"{case}.json").write_text(text, encoding="utf-8")
    print(case, "seed", seed, "largest logit", float(np.abs(logits).max()), len(text), "bytes", answers)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or CASES:
        make(wanted)
