"""Writes reference/ctc-*.json: what transformers computes of a spoken file with each random model of Wav2Vec2's kind.
Needs torch, transformers and av.

python -m tests.planner.importers.speech.make_ctc_reference [NAME…]
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

from tests.planner.importers.speech.sounds import spoken
from tests.planner.importers.speech.wav2vec2_folders import CASES, write
from tests.planner.importers.speech.whisper_folders import REFERENCE

torch.set_num_threads(1)


def main() -> None:
    sound = spoken()
    for name in sys.argv[1:] or CASES:
        with TemporaryDirectory() as folder:
            write(Path(folder), name)
            model = transformers.Wav2Vec2ForCTC.from_pretrained(
                folder, attn_implementation="eager", dtype=torch.float32
            ).eval()
            extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(folder)
            tokenizer = transformers.Wav2Vec2CTCTokenizer.from_pretrained(folder)
        values = extractor(sound, sampling_rate=16000, return_tensors="pt").input_values
        with torch.no_grad():
            logits = model(values).logits[0]
        best = torch.topk(logits, 2, dim=-1).values
        said = tokenizer.decode(logits.argmax(-1), output_word_offsets=True)
        cased = str.lower if tokenizer.do_lower_case else str  # which transformers forgets in offsets
        found: dict[str, Any] = {
            "logits": [float(each) for each in logits[::2].numpy().ravel()],
            "largest": float(np.abs(logits.numpy()).max()),
            "gap": float((best[:, 0] - best[:, 1]).min()),
            "text": said.text,
            "words": [
                [cased(each["word"]), int(each["start_offset"]), int(each["end_offset"])]
                for each in said.word_offsets
            ],
        }
        print(name, logits.shape, found["gap"], found["text"][:300], len(found["words"]))
        (REFERENCE / f"ctc-{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
