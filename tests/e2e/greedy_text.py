"""Whether greedy text of a GGUF file is that of llama.cpp and of transformers, with the same weights as float32.

python -m tests.e2e.greedy_text ours FILE ours.json            # Shoal's environment; prompt and tokens
python tests/e2e/greedy_text.py llama FILE ours.json llama.json      # one with llama-cpp-python, numpy and gguf
python tests/e2e/greedy_text.py transformers FILE ours.json hf.json  # one with torch, transformers and gguf
python tests/e2e/greedy_text.py compare ours.json llama.json

Two texts are the same, or part where the two likeliest tokens are closer than NEAR: which of them an engine takes there
says nothing. Only the standard library is imported above, since no environment has all of it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROMPT = "The history of bread begins"
TOKENS = 64
NEAR = 1e-3  # of two logits


def greedy(logits_of: Callable[[list[int]], Any], prompt: list[int]) -> dict[str, Any]:
    """The likeliest tokens. `logits_of(tokens)` goes on with these and gives the last one's logits."""
    import numpy as np

    tokens, gaps, fresh = list[int](), list[float](), prompt
    for _ in range(TOKENS):
        logits = np.asarray(logits_of(fresh))
        second, first = np.sort(logits)[-2:]
        gaps.append(float(first - second))
        fresh = [int(logits.argmax())]
        tokens += fresh
    return {"prompt": prompt, "tokens": tokens, "gaps": gaps}


def ours(file: Path) -> dict[str, Any]:
    """As a process computes it."""
    import numpy as np

    from peer.model.tokenizer import text_of
    from peer.runtime.arithmetic import proven
    from peer.runtime.execution import Execution, Row
    from peer.runtime.kv_slots import KvSlots
    from planner.importers.decoder_units import build_model
    from planner.importers.gguf import open_gguf
    from planner.model.lowering import make_shard
    from planner.model.manifest import decode_manifest
    from planner.model.store import Store

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        manifest = decode_manifest(store.manifest_bytes(build_model(open_gguf(file), "f32", store)))
        form = proven(store, manifest, "cpu", 1).form
        shard = make_shard(manifest, store, 0, len(manifest.units), exact=form.plain)
        text = text_of(store, manifest)
        execution, context = Execution(shard, threads=1, context=512, form=form), 512
        slots, length = KvSlots(1, context, form), 0
        slots.admit(b"")
        execution.ensure(slots, slots.rows, context)

        def logits_of(tokens: list[int]) -> Any:
            nonlocal length
            hidden = execution.embed(np.array(tokens))
            run = execution.alone if len(tokens) == 1 else execution.prompt
            made = run(hidden, Row(0, length))[-1:].copy()
            length += len(tokens)
            return execution.head(made)[0]

        found = greedy(logits_of, list(text.encode(PROMPT)))
        execution.close()
        return {**found, "text": text.decode(found["tokens"])}


def widened(file: Path, target: Path) -> Path:
    """The same file with all its tensors as float32, which engines do not round activations for."""
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(file)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        part = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, part)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape(tuple(int(size) for size in reversed(tensor.shape))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def llama(file: Path, prompt: list[int]) -> dict[str, Any]:
    """As llama.cpp computes it."""
    import numpy as np
    from llama_cpp import Llama

    with tempfile.TemporaryDirectory() as folder:
        model = Llama(
            str(widened(file, Path(folder) / "wide.gguf")),
            n_ctx=512,
            n_threads=1,
            n_gpu_layers=0,
            logits_all=True,
            verbose=False,
        )

        def logits_of(tokens: list[int]) -> Any:
            model.eval(tokens)
            return np.array(model.scores[model.n_tokens - 1])

        return {**greedy(logits_of, prompt), "tokenized": model.tokenize(PROMPT.encode())}


def transformers(file: Path, prompt: list[int]) -> dict[str, Any]:
    """As transformers computes it."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    known: list[int] = []

    def logits_of(tokens: list[int]) -> Any:
        known.extend(tokens)
        with torch.no_grad():
            return model(torch.tensor([known])).logits[0, -1].float().numpy()

    return greedy(logits_of, prompt)


def compare(one: dict[str, Any], other: dict[str, Any]) -> str:
    """What two texts have to do with each other; raises SystemExit where they part without a near tie."""
    if "tokenized" in other and other["tokenized"] != one["prompt"]:
        raise SystemExit(f"the prompt is {one['prompt']} here and {other['tokenized']} there")
    pairs = zip(one["tokens"], other["tokens"], strict=True)
    parts = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
    least = min(one["gaps"][: TOKENS if parts is None else parts + 1])
    if parts is None:
        return f"{TOKENS} tokens are the same; the closest two likeliest ones were {least:.4f} apart"
    if one["gaps"][parts] >= NEAR:
        raise SystemExit(f"token {parts} differs where the likeliest two are {one['gaps'][parts]:.4f} apart")
    return f"{parts} tokens are the same, then two are as likely ({one['gaps'][parts]:.6f} apart)"


def main(arguments: list[str]) -> None:
    """Does what the first argument says."""
    match arguments:
        case ["ours", file, out]:
            Path(out).write_text(json.dumps(ours(Path(file))), encoding="utf-8")
        case ["llama" | "transformers" as engine, file, given, out]:
            prompt = json.loads(Path(given).read_text(encoding="utf-8"))["prompt"]
            made = (llama if engine == "llama" else transformers)(Path(file), prompt)
            Path(out).write_text(json.dumps(made), encoding="utf-8")
        case ["compare", one, other]:
            texts = [json.loads(Path(each).read_text(encoding="utf-8")) for each in (one, other)]
            sys.stdout.write(compare(*texts) + "\n")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
