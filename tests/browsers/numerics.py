"""How far providers are from each other, and one from itself: logits of one model over the same tokens.

`python -m tests.browsers.numerics GGUF` prints the tables of docs/numerics.md.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from peer.bench.browser import browser_path, build_page, drive
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from peer.session.position_spans import steps_of
from planner.importers.architecture import Architecture, SourceModel
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, decode_manifest
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.sources import SourceTensor, TokenizerSource
from planner.model.store import Store
from planner.types import WeightFormat

Floats = npt.NDArray[np.float32]
CONTEXT = 128
PROMPT = (504, 3575, 282, 4649, 314)  # "The capital of France is"
TEXT = 116  # greedy tokens of a text
TURN = (24, 16)  # tokens given, then sampled
SOFTWARE_GPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")


@dataclass(frozen=True, slots=True)
class Cut:
    """The first `blocks` of a model, with its embedding and head: small enough for a GPU made of software."""

    whole: SourceModel
    blocks: int

    @property
    def name(self) -> str:
        return f"{self.blocks} blocks of {self.whole.name}"

    @property
    def architecture(self) -> Architecture:
        return replace(self.whole.architecture, blocks=self.blocks)

    @property
    def sampling(self) -> SamplingDefaults | None:
        return self.whole.sampling

    @property
    def tokenizer(self) -> TokenizerSource:
        return self.whole.tokenizer

    def tensor(self, name: str) -> SourceTensor:
        return self.whole.tensor(name)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one run from another over the same tokens: the largest of a logit, the steps whose best token agrees from
    the start, and how many steps there were. `spread` is the standard deviation of the first run's logits.
    """

    largest: float
    same: int
    steps: int
    spread: float


def difference(one: Floats, other: Floats) -> Difference:
    unequal = np.flatnonzero(one.argmax(axis=1) != other.argmax(axis=1))
    return Difference(
        largest=float(np.abs(one - other).max()),
        same=int(unequal[0]) if len(unequal) else len(one),
        steps=len(one),
        spread=float(one.std()),
    )


def loaded(manifest: Manifest, store: Store) -> Execution:
    """The whole model on one thread, with room for one session."""
    form = proven(store, manifest, "cpu", 1).form
    shard = make_shard(manifest, store, 0, len(manifest.units), "cpu", exact=form.plain)
    execution = Execution(shard, threads=1, context=CONTEXT, form=form)
    slots = KvSlots(1, CONTEXT, form)
    slots.admit(b"0")
    execution.ensure(slots, slots.rows, CONTEXT)
    return execution


def on_cpu(store: Store, model: str, steps: int) -> tuple[list[int], Floats]:
    """Greedy tokens (the prompt first) and the logits (steps, vocab) that each came from."""
    manifest = decode_manifest(store.manifest_bytes(model))
    execution = loaded(manifest, store)
    try:
        tokens, logits = list(PROMPT), []
        hidden = execution.prompt(execution.embed(np.array(PROMPT, np.int64)), Row(0, 0))[-1:].copy()
        while True:
            logits.append(execution.head(hidden)[0].copy())
            if len(logits) == steps:
                return tokens, np.stack(logits)
            tokens.append(int(logits[-1].argmax()))
            row = execution.embed(np.array(tokens[-1:], np.int64))
            hidden = execution.alone(row, Row(0, len(tokens) - 1)).copy()
    finally:
        execution.close()


def turn_by_turn(store: Store, model: str, tokens: list[int], given: int, sampled: int) -> Floats:
    """Logits (tokens, vocab) on a CPU of tokens that by turns were given together and came one by one."""
    manifest = decode_manifest(store.manifest_bytes(model))
    execution = loaded(manifest, store)
    try:
        logits: list[Floats] = []
        for start, stop in steps_of(0, len(tokens), (given, sampled) * len(tokens)):
            hidden = execution.embed(np.array(tokens[start:stop], np.int64))
            alone = stop - start == 1
            hidden = (
                execution.alone(hidden, Row(0, start)) if alone else execution.prompt(hidden, Row(0, start))
            )
            logits.append(execution.head(hidden.copy()).copy())
        return np.concatenate(logits)
    finally:
        execution.close()


def turns(store: Store, model: str) -> Difference:
    """A text that was given at once, from the same text in turns of TURN."""
    tokens, _ = on_cpu(store, model, TEXT)
    return difference(
        turn_by_turn(store, model, tokens, len(tokens), 0), turn_by_turn(store, model, tokens, *TURN)
    )


async def in_browser(store: Store, page: Path, model: str, provider: str, tokens: list[int]) -> Floats:
    """Logits after the prompt and after each token more, as a tab computes them."""
    order: dict[str, Any] = {
        "executable": browser_path(),
        "flags": list(SOFTWARE_GPU) if provider == "webgpu" else [],
        "evaluate": {"call": "logits", "args": [model, provider, tokens, len(PROMPT)]},
    }
    found = await drive(store, page, order)
    vocab = decode_manifest(store.manifest_bytes(model)).vocab
    return np.frombuffer(base64.b64decode(found["value"]), np.float32).reshape(-1, vocab)


async def table(gguf: Path) -> list[dict[str, Any]]:
    """Every pair of providers: the whole model on CPU and WASM, two blocks of it on all three."""
    rows: list[dict[str, Any]] = []
    page, source = build_page(), open_gguf(gguf)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        formats: tuple[WeightFormat, ...] = ("f32", "8bit", "4bit")
        for weights in formats:
            for blocks, steps in ((source.architecture.blocks, 64), (2, 8)):
                model = build_model(Cut(source, blocks), weights, store)
                tokens, cpu = on_cpu(store, model, steps)
                if blocks > 2:
                    pair = f"given at once - in turns of {TURN[0]} given and {TURN[1]} sampled"
                    rows.append(
                        {"weights": weights, "blocks": blocks, "pair": pair, "found": turns(store, model)}
                    )
                runs = {"CPU": cpu, "WASM": await in_browser(store, page, model, "wasm", tokens)}
                if blocks == 2:
                    runs["WebGPU"] = await in_browser(store, page, model, "webgpu", tokens)
                names = list(runs)
                for place, one in enumerate(names):
                    for other in names[place + 1 :]:
                        found = difference(runs[one], runs[other])
                        rows.append(
                            {"weights": weights, "blocks": blocks, "pair": f"{one} - {other}", "found": found}
                        )
    return rows


if __name__ == "__main__":
    for row in asyncio.run(table(Path(sys.argv[1]))):
        found: Difference = row.pop("found")
        sys.stdout.write(f"{json.dumps(row)} {found}\n")
