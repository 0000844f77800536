"""Writes reference/: what transformers and sentence-transformers compute of each small checkpoint, on a CPU. Needs
torch, transformers and sentence-transformers.

python -m tests.planner.importers.encoders.make_reference [CASE… | FOLDER]: of a folder of all-MiniLM-L6-v2 as well
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
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from tests.planner.importers.encoders.checkpoints import (
    CASES,
    DENSE,
    QUERY,
    REAL,
    REFERENCE,
    TEXTS,
    Case,
    config_of,
    tokens_of,
    write_folder,
)
from tests.planner.importers.families.checkpoints import weights_of

torch.set_num_threads(1)
SEED = 0
FARTHEST = 511  # of the distances whose buckets are kept


def shapes_of(case: Case) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """config.json, and the shapes of the tensors that its checkpoint has, under the names of published ones."""
    numbers = config_of(case)
    if case.scores:
        numbers["num_labels"] = 1
    if case.labels:
        numbers["id2label"] = dict(enumerate(case.labels))
    config = transformers.AutoConfig.for_model(case.kind, **numbers)
    classifies = case.scores or case.labels
    kind = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
    model = kind.from_config(config, attn_implementation="eager").float().eval()
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        kept = json.loads((Path(folder) / "config.json").read_text())
        with safe_open(Path(folder) / "model.safetensors", "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if case.activation:
        kept["sentence_transformers"] = {"activation_fn": case.activation}
    return kept, shapes


def rows_of(model: Any, tokens: list[int]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        found: np.ndarray[Any, Any] = model(torch.tensor([tokens])).last_hidden_state[0].numpy()
    return found


def make(name: str) -> None:
    case = CASES[name]
    config, shapes = shapes_of(case)
    with TemporaryDirectory() as folder:
        path = write_folder(
            Path(folder) / "model", case, config, weights_of(shapes, SEED), weights_of(DENSE, SEED)
        )
        how = {"attn_implementation": "eager", "dtype": torch.float32}
        if case.labels:
            model = transformers.AutoModelForSequenceClassification.from_pretrained(path, **how).eval()
            words = transformers.AutoTokenizer.from_pretrained(path)
            sorts = transformers.pipeline("text-classification", model=model, tokenizer=words, device="cpu")
            found = [{each["label"]: each["score"] for each in sorts(text, top_k=None)} for text in TEXTS]
            made = np.array([[each[label] for label in case.labels] for each in found])
            inner = getattr(model, model.base_model_prefix)
        elif case.scores:
            scorer = CrossEncoder(str(path), device="cpu", model_kwargs=how)
            inner = getattr(scorer.model, scorer.model.base_model_prefix)
            made = scorer.predict([(QUERY, text) for text in TEXTS])[:, None]
        else:
            embedder = SentenceTransformer(str(path), device="cpu", model_kwargs=how)
            inner = embedder[0].auto_model if hasattr(embedder[0], "auto_model") else embedder[0].model
            made = embedder.encode(list(TEXTS), convert_to_numpy=True)
        rows = rows_of(inner.eval(), tokens_of(name))
    kept = {
        "config": config,
        "shapes": {tensor: list(shape) for tensor, shape in shapes.items()},
        "seed": SEED,
        "rows": base64.b64encode(rows.astype("<f4").tobytes()).decode(),
        "made": base64.b64encode(np.asarray(made).astype("<f4").tobytes()).decode(),
    }
    if case.kind == "mpnet":
        ahead = torch.arange(-FARTHEST, FARTHEST + 1)
        kept["buckets"] = MPNetEncoder.relative_position_bucket(ahead).tolist()
    text = json.dumps(kept, sort_keys=True) + "\n"
    (REFERENCE / f"{name}.json").write_text(text, encoding="utf-8")
    print(name, made.shape, float(np.abs(made).max()), float(np.abs(rows).max()), len(text), "bytes")


def make_real(folder: Path) -> None:
    """The vectors of the real model."""
    embedder = SentenceTransformer(str(folder), device="cpu", model_kwargs={"attn_implementation": "eager"})
    made = embedder.encode(list(TEXTS), convert_to_numpy=True)
    kept = {"made": base64.b64encode(made.astype("<f4").tobytes()).decode()}
    (REFERENCE / f"{REAL}.json").write_text(json.dumps(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or CASES:
        if wanted in CASES:
            make(wanted)
        else:
            make_real(Path(wanted))
