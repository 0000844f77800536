"""SmolLM2-135M-Instruct: its text, its cuts, and what it occupies."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import peer.runtime.execution
from peer.audit.envelope_recording import record, recorded
from peer.model.chat_template import Message
from peer.model.tokenizer import Text
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import Form
from peer.runtime.kv_slots import KvSlots
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from peer.session.evidence import Floats
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, encode_manifest
from planner.model.sources import TokenizerSource
from planner.model.store import Store
from tests.seeds import seeds

OPENING = (
    "The capital of France is Paris. It is a vibrant city known for its rich history, culture, and iconic "
    "landmarks. Paris is also a major global hub for finance, fashion, gastronomy, and culture, attracting "
    "millions of visitors each year."
)
QUESTION = "What is the capital of France? Tell me about it in a paragraph."
MIB = 1 << 20
LEAST_CUTS = 8
TOKENS = 8  # of each of eight answers
WAIT_S = 600  # for one step, on the slowest machine


def text_of(manifest: Manifest, store: Store) -> Text:
    return Text(
        TokenizerSource(
            store.blob_path(manifest.tokenizer.sha256).read_bytes(),
            manifest.chat_template,
            manifest.bos_token,
            manifest.end_tokens,
            manifest.add_bos,
        )
    )


NEAR_TIE: dict[str, float] = {
    "f32": 0.01,
    "8bit": 1.5,
    "4bit": 1.5,
}  # docs/numerics.md: how far processors differ
SURE = 0.9  # of the tokens are the likeliest on any processor


@pytest.mark.parametrize("weights", ["f32", "8bit", "4bit"])
def test_greedy_text_is_llama_cpps_up_to_near_ties(real_model: Callable[..., Any], weights: str) -> None:
    """Behind each part of that text the next token is the likeliest, or about as likely: processors round otherwise."""
    manifest, store = real_model(weights)
    text = text_of(manifest, store)
    asked, said = text.encode_chat([Message("user", QUESTION)]), text.encode(OPENING)
    said.append(next(token for token in manifest.end_tokens if token in asked))
    answers: SimpleQueue[Done | Refused] = SimpleQueue()
    form = proven(store, manifest, "cpu", 2).form
    shard = make_shard(manifest, store, 0, len(manifest.units), exact=form.plain)
    runtime = StageRuntime(shard, threads=2, slots=1, context=256, form=form, deliver=answers.put)
    position, given, behind = 0, asked, []
    for token in said:
        runtime.submit(Step(b"s", position, np.array(given), None, True, np.copy))
        answer = answers.get(timeout=WAIT_S)
        assert isinstance(answer, Done)
        assert isinstance(answer.finished, np.ndarray)
        behind.append(float(answer.finished.max() - answer.finished[token]))
        position, given = position + len(given), [token]
    runtime.close()
    assert max(behind) <= NEAR_TIE[weights]
    assert sum(gap == 0 for gap in behind) >= SURE * len(said)


def eight_at_once(manifest: Manifest, store: Store, form: Form) -> tuple[list[list[int]], list[list[int]]]:
    """Greedy tokens of eight questions, one after the other and all at once."""
    text = text_of(manifest, store)
    asked = [text.encode_chat([Message("user", f"{QUESTION} Answer number {n}.")]) for n in range(8)]
    answers: SimpleQueue[Done | Refused] = SimpleQueue()
    shard = make_shard(manifest, store, 0, len(manifest.units), exact=form.plain)
    runtime = StageRuntime(shard, threads=2, slots=8, context=256, form=form, deliver=answers.put)

    def answer(questions: list[int]) -> list[list[int]]:
        said: dict[bytes, list[int]] = {bytes([n]): [] for n in questions}
        for n in questions:
            runtime.submit(
                Step(bytes([n]), 0, np.array(asked[n]), None, True, lambda logits: int(logits.argmax()))
            )
        open_ones = len(questions)
        while open_ones:
            done = answers.get(timeout=WAIT_S)
            assert isinstance(done, Done)
            assert isinstance(done.finished, int)
            said[done.session].append(done.finished)
            if len(said[done.session]) == TOKENS:
                runtime.release(done.session)
                open_ones -= 1
                continue
            given, position = np.array([done.finished]), done.position + done.count
            runtime.submit(
                Step(done.session, position, given, None, True, lambda logits: int(logits.argmax()))
            )
        return [said[bytes([n])] for n in questions]

    try:
        return [answer([n])[0] for n in range(8)], answer(list(range(8)))
    finally:
        runtime.close()


@pytest.mark.parametrize("weights", ["f32", pytest.param("f16", marks=pytest.mark.soak), "8bit", "4bit"])
def test_eight_questions_at_once_are_answered_as_one_after_the_other(
    real_model: Callable[..., Any], weights: str
) -> None:
    manifest, store = real_model(weights)
    alone, at_once = eight_at_once(manifest, store, proven(store, manifest, "cpu", 2).form)
    assert at_once == alone


def test_what_is_recorded_at_import_holds_for_other_texts(real_model: Callable[..., Any]) -> None:
    manifest, store = real_model("8bit")
    model_id = hashlib.sha256(encode_manifest(manifest)).hexdigest()
    assert recorded(store, model_id) is None
    record(store, model_id)
    envelopes = recorded(store, model_id)
    assert envelopes is not None
    assert len(envelopes.borders) == len(manifest.units) - 1
    tokens = np.array(text_of(manifest, store).encode(OPENING))
    middle = 31
    rows = Stage(manifest, store, 0, middle).run(tokens, 0)
    assert envelopes.odd(middle, rows) is None
    assert envelopes.odd(middle, rows * np.float32(1e-3)) == 0
    assert envelopes.odd(middle, np.concatenate([rows, rows[-1:] * np.float32(1e3)])) == len(rows)


class Stage:
    """Units of a model for one session."""

    def __init__(self, manifest: Manifest, store: Store, first: int, stop: int) -> None:
        form = proven(store, manifest, "cpu", 2).form
        shard = make_shard(manifest, store, first, stop, exact=form.plain)
        self.execution = Execution(shard, threads=2, context=64, form=form)
        slots = KvSlots(1, 64, form)
        slots.admit(b"s")
        self.execution.ensure(slots, slots.rows, 64)

    def run(self, values: Any, position: int) -> Floats:
        """Tokens or hidden in; hidden, or logits where the head is, out."""
        execution = self.execution
        hidden = execution.embed(values) if execution.has_embed else values
        if len(hidden) == 1:
            hidden = execution.alone(hidden, Row(0, position))
        else:
            hidden = execution.prompt(hidden, Row(0, position))
        return execution.head(hidden) if execution.has_head else hidden.copy()


def run_stages(stages: list[Stage], tokens: list[int], prompt: int) -> Floats:
    """Logits of all positions: `prompt` tokens at once, then one by one."""
    found = []
    for start, stop in [(0, prompt), *((at, at + 1) for at in range(prompt, len(tokens)))]:
        values: Any = np.array(tokens[start:stop])
        for each in stages:
            values = each.run(values, start)
        found.append(values)
    return np.concatenate(found)


@pytest.mark.slow
@pytest.mark.series
def test_every_cut_of_the_8bit_model_changes_no_bit(
    real_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them in `make soak`, some that are drawn in `make test`."""
    monkeypatch.setattr(
        peer.runtime.execution, "use_huge_pages", lambda: 0
    )  # for speed only, and these live briefly
    manifest, store = real_model("8bit")
    tokens = text_of(manifest, store).encode(OPENING)[:32]
    assert len(tokens) == 32
    units = len(manifest.units)
    expected = run_stages([Stage(manifest, store, 0, units)], tokens, 24)
    assert expected.shape == (32, 49152)
    cuts = range(1, units)
    for cut in random.sample(cuts, max(LEAST_CUTS, seeds(len(cuts)))):
        stages = [Stage(manifest, store, 0, cut), Stage(manifest, store, cut, units)]
        assert np.array_equal(run_stages(stages, tokens, 24), expected), manifest.units[cut].name


PROBE = """
import json, sys
from pathlib import Path
from queue import SimpleQueue
import numpy as np
from peer.runtime.arithmetic import proven
from peer.runtime.self_benchmark import measure_units
from peer.runtime.stage_runtime import StageRuntime, Step
from planner.model.manifest import decode_manifest
from planner.model.lowering import make_shard
from planner.model.store import Store

def status():
    with open("/proc/self/status") as lines:
        found = dict(line.split(":", 1) for line in lines)
    return {name: int(found[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS", "RssAnon")}

root, model, first, stop = sys.argv[1:]
store = Store(Path(root))
manifest = decode_manifest(store.manifest_bytes(model))
proof = proven(store, manifest, "cpu", 1)
times = measure_units(store, manifest, proof, "cpu", 1)
before = status()
answers = SimpleQueue()
shard = make_shard(manifest, store, int(first), int(stop), exact=proof.form.plain)
runtime = StageRuntime(shard, threads=1, slots=4, context=256, form=proof.form, deliver=answers.put)
loaded = status()
width = manifest.hidden
for session in range(4):
    for position in range(0, 240, 80):
        values = (np.arange(80), None) if first == "0" else (None, np.ones((80, width), np.float32))
        runtime.submit(Step(bytes([session]), position, *values, True))
        answers.get()
memory = runtime.memory_bytes()
print(json.dumps({"before": before, "loaded": loaded, "after": status(), "weights": memory.weights,
                  "kv": memory.kv, "overhead": memory.overhead, "planned_overhead": times.overhead_bytes}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("weights", "part"),
    [
        ("8bit", "whole"),
        ("f32", "whole"),
        ("4bit", "second half"),
        pytest.param("4bit", "whole", marks=pytest.mark.soak),
        pytest.param("8bit", "first half", marks=pytest.mark.soak),
    ],
)
def test_memory_is_what_the_plan_says(real_model: Callable[..., Any], weights: str, part: str) -> None:
    """A peer's life in a process of its own: measure, load, four sessions filled to the end of the context."""
    manifest, store = real_model(weights)
    units = len(manifest.units)
    first, stop = {"whole": (0, units), "first half": (0, 31), "second half": (31, units)}[part]
    model_id = store.put_manifest(encode_manifest(manifest))
    command = [sys.executable, "-c", PROBE, str(store.root), model_id, str(first), str(stop)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["after"]["VmHWM"] < found["weights"] + found["kv"] + 250 * MIB
    grown = found["loaded"]["RssAnon"] - found["before"]["RssAnon"]
    assert found["weights"] == pytest.approx(grown, rel=0.1)
    resident = found["after"]["VmRSS"]
    assert found["weights"] + found["kv"] + found["overhead"] == pytest.approx(resident, rel=0.1)
    planned = found["weights"] + found["kv"] + found["planned_overhead"]
    assert resident <= planned <= 1.1 * resident
