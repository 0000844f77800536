"""Writes reference/: what transformers writes of a spoken file by each random model. Needs torch, transformers and av.

python -m tests.planner.importers.speech.make_reference [NAME…]
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

from tests.planner.importers.speech.sounds import long_sound, spoken
from tests.planner.importers.speech.whisper_folders import (
    NO_TIMESTAMPS,
    REFERENCE,
    SUPPRESSED,
    VOCAB,
    write,
)

torch.set_num_threads(1)
CLOSE = 2e-3  # no token is decided by less
MOST_TOKENS = 20  # of a window
NO_TIMES: dict[str, Any] = {"suppress_tokens": [*SUPPRESSED, *range(NO_TIMESTAMPS, VOCAB)]}
SHORT: dict[str, dict[str, Any]] = {
    "en": {"language": "en", **NO_TIMES},
    "en, times": {"language": "en", "return_timestamps": True},
    "de, translated, times": {"language": "de", "task": "translate", "return_timestamps": True},
    "en, times, whole": {"language": "en", "return_timestamps": True, "max_new_tokens": None},
    "detected": {"task": "transcribe", **NO_TIMES},
    "detected, times": {"task": "transcribe", "return_timestamps": True},
}


class Gaps(transformers.LogitsProcessor):  # type: ignore[misc]
    """The least distance by which a token was the likeliest."""

    def __init__(self) -> None:
        self.least = float("inf")

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        best = torch.topk(scores, 2, dim=-1).values
        self.least = min(self.least, float((best[:, 0] - best[:, 1]).min()))
        return scores


def main() -> None:
    extractor = transformers.WhisperFeatureExtractor()
    short, long = spoken(), long_sound()
    for name in sys.argv[1:] or ("small", "tiny"):
        with TemporaryDirectory() as folder:
            write(Path(folder), name)
            model = transformers.WhisperForConditionalGeneration.from_pretrained(
                folder, attn_implementation="eager", dtype=torch.float32
            ).eval()
        found: dict[str, Any] = {"cases": {}}
        features = extractor(short, sampling_rate=16000, return_tensors="pt").input_features
        with torch.no_grad():
            rows = model.model.encoder(features).last_hidden_state[0].numpy()
            start = torch.tensor([[50258, 50259, 50359, 50363, *range(100, 160)]])
            logits = model(features, decoder_input_ids=start).logits[0].numpy()
        found["mel"] = [float(each) for each in features[0, ::16, :600:50].numpy().ravel()]
        found["rows"] = [float(each) for each in rows[::150, ::8].ravel()]
        found["logits"] = [float(each) for each in logits[:, ::2000].ravel()]
        found["largest"] = {"rows": float(np.abs(rows).max()), "logits": float(np.abs(logits).max())}
        for case, settings in SHORT.items():
            gaps = Gaps()
            wanted = {"max_new_tokens": MOST_TOKENS, "logits_processor": [gaps], **settings}
            made = model.generate(features, **wanted)
            print(name, case, gaps.least, made[0].tolist())
            found["cases"][case] = {"tokens": made[0].tolist(), "gap": gaps.least}
        inputs = extractor(
            long, sampling_rate=16000, return_tensors="pt", truncation=False, padding="longest",
            return_attention_mask=True,
        )  # fmt: skip
        gaps = Gaps()
        made = model.generate(
            **inputs, max_new_tokens=MOST_TOKENS, logits_processor=[gaps], language="en",
            return_timestamps=True, return_segments=True,
        )  # fmt: skip
        segments = [
            [round(float(each["start"]), 2), round(float(each["end"]), 2), each["tokens"].tolist()]
            for each in made["segments"][0]
        ]
        print(name, "long", gaps.least, len(segments), [each[:2] for each in segments])
        found["long"] = {"segments": segments, "gap": gaps.least}
        (REFERENCE / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
