"""What one peer reaches against llama.cpp on the same GGUF: both in processes of their own, pinned to one
core, in alternating rounds.

Each side is a child that loads the model once and then runs a round whenever a line comes in: the prompt,
greedy tokens of one session, greedy tokens of eight sessions together. Only one child works at a time. Both
decode greedily from the logits in Python, llama.cpp through its low-level interface with one batch for all
eight sequences.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import numpy as np

from peer.errors import CannotServe
from peer.launch.model_import import find_or_import
from peer.model.chat_template import Message
from peer.model.tokenizer import Text
from peer.runtime.arithmetic import proven
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from planner.importers.registry import SHORT_NAMES, fetch_short_name
from planner.model.lowering import make_shard
from planner.model.manifest import decode_manifest
from planner.model.sources import TokenizerSource
from planner.model.store import Store

SYSTEM: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTION: Final = "What is the capital of France? Tell me about it in a paragraph."
SESSIONS: Final = 8
CONTEXT: Final = 512
MISSING: Final = (
    "llama-cpp-python is not installed, so there is nothing to compare with: install the extra, "
    "pip install 'shoal-mesh[bench]'"
)

Figures = dict[str, float | int | str | None]


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens per second of one round, and the greedy tokens (to see that both sides did the same work)."""

    prefill: float
    decode: float
    sessions8: float
    tokens: tuple[int, ...]


def bench_single(args: argparse.Namespace) -> Figures:
    """`shoal bench single`: uses args.store, args.model, args.rounds, args.tokens."""
    if find_spec("llama_cpp") is None:
        raise CannotServe(MISSING)
    store = Store(args.store)
    model_id = _four_bit(store, args.model)
    path = fetch_short_name(args.model, store.root) if args.model in SHORT_NAMES else Path(args.model)
    gguf = path if path.is_file() and path.suffix == ".gguf" else None
    if gguf is None:
        raise CannotServe(
            f"llama.cpp, which this compares with, reads GGUF files only: expected one as --model, got {args.model}"
        )
    return compare(store, model_id, gguf, args.rounds, args.tokens)


def _four_bit(store: Store, name: str) -> str:
    """The 4-bit import of `name`, made now if need be. Raises CannotServe for the id of a model in another format."""
    model_id = find_or_import(store, name, "4bit")
    weights = decode_manifest(store.manifest_bytes(model_id)).weights
    if weights != "4bit":
        raise CannotServe(
            f"the ratios are about 4bit weights, model {name} has {weights}: give a file or a name"
        )
    return model_id


def compare(store: Store, model_id: str, gguf: Path | None, rounds: int, tokens: int) -> Figures:
    """Medians of both sides and their ratios; without `gguf` the other side and the ratios are None."""
    manifest = decode_manifest(store.manifest_bytes(model_id))
    tokenizer = TokenizerSource(
        store.blob_path(manifest.tokenizer.sha256).read_bytes(),
        manifest.chat_template,
        manifest.bos_token,
        manifest.end_tokens,
        manifest.add_bos,
    )
    prompt = Text(tokenizer).encode_chat([Message("system", SYSTEM), Message("user", QUESTION)])
    with ExitStack() as stack:
        ours = stack.enter_context(_child("shoal", str(store.root), model_id))
        theirs = stack.enter_context(_child("llamacpp", str(gguf), "")) if gguf is not None else None
        mine: list[Round] = []
        other: list[Round] = []
        for number in range(rounds + 1):  # the first warms up
            pair = (ours(prompt, tokens), theirs(prompt, tokens) if theirs is not None else None)
            if number:
                mine.append(pair[0])
                other.extend(one for one in pair[1:] if one is not None)
    arithmetic = proven(store, manifest, "cpu", 1).class_of("cpu")
    figures: Figures = {"arithmetic": arithmetic, "prompt_tokens": len(prompt), "tokens": tokens}
    for kind in ("decode", "prefill", "sessions8"):
        here = statistics.median(getattr(one, kind) for one in mine)
        there = statistics.median(getattr(one, kind) for one in other) if other else None
        figures[f"{kind}_vs_llamacpp"] = None if there is None else round(here / there, 3)
        figures[f"{kind}_tok_s"] = round(here, 1)
        figures[f"{kind}_llamacpp_tok_s"] = None if there is None else round(there, 1)
    figures["sessions8_vs_one"] = round(
        statistics.median(one.sessions8 for one in mine) / statistics.median(one.decode for one in mine), 3
    )
    figures["same_tokens"] = _same(mine[0].tokens, other[0].tokens) if other else None
    return figures


def _same(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many tokens agree from the start."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@contextmanager
def _child(side: str, where: str, model_id: str) -> Iterator[Callable[[list[int], int], Round]]:
    """A process that measures one side; the function given runs one round in it."""
    command = [sys.executable, "-m", "peer.bench.single", side, where, model_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def run(prompt: list[int], tokens: int) -> Round:
            stdin.write(json.dumps({"prompt": prompt, "tokens": tokens}) + "\n")
            stdin.flush()
            line = stdout.readline()
            if not line:
                raise CannotServe(f"the {side} side of the benchmark ended with status {process.wait()}")
            found = json.loads(line)
            return Round(found["prefill"], found["decode"], found["sessions8"], tuple(found["tokens"]))

        try:
            yield run
        finally:
            stdin.close()


def _serve_rounds(arguments: list[str]) -> None:
    """The child: one line in, one round, one line out."""
    side, where, model_id = arguments
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    measure = _shoal(where, model_id) if side == "shoal" else _llamacpp(where)
    for line in sys.stdin:
        order = json.loads(line)
        sys.stdout.write(json.dumps(asdict(measure(order["prompt"], order["tokens"]))) + "\n")
        sys.stdout.flush()


def _shoal(root: str, model_id: str) -> Callable[[list[int], int], Round]:
    store = Store(Path(root))
    manifest = decode_manifest(store.manifest_bytes(model_id))
    answers: SimpleQueue[Done | Refused] = SimpleQueue()
    form = proven(store, manifest, "cpu", 1).form
    shard = make_shard(manifest, store, 0, len(manifest.units), "cpu", exact=form.plain)
    runtime = StageRuntime(
        shard,
        threads=1,
        slots=SESSIONS,
        context=min(CONTEXT, manifest.context),
        form=form,
        deliver=answers.put,
    )

    def step(session: int, position: int, tokens: list[int]) -> None:
        given = np.array(tokens, np.int64)
        runtime.submit(
            Step(bytes([session]), position, given, None, True, lambda logits: int(logits.argmax()))
        )

    def answer() -> tuple[int, int]:
        found = answers.get()
        if isinstance(found, Refused):
            raise CannotServe(f"the benchmark's step was refused: {found.text}")
        assert isinstance(found.finished, int)
        return found.session[0], found.finished

    def run(prompt: list[int], tokens: int, sessions: int) -> tuple[float, float, list[int]]:
        started = time.perf_counter()
        latest: dict[int, int] = {}
        for session in range(sessions):
            step(session, 0, prompt)
            latest.update([answer()])
        filled = time.perf_counter()
        first = [latest[0]]
        for number in range(tokens - 1):
            for session in range(sessions):
                step(session, len(prompt) + number, [latest[session]])
            latest = dict(answer() for _ in range(sessions))
            first.append(latest[0])
        ended = time.perf_counter()
        for session in range(sessions):
            runtime.release(bytes([session]))
        return (
            sessions * len(prompt) / (filled - started),
            sessions * (tokens - 1) / (ended - filled),
            first,
        )

    def measure(prompt: list[int], tokens: int) -> Round:
        prefill, decode, found = run(prompt, tokens, 1)
        return Round(prefill, decode, run(prompt, tokens, SESSIONS)[1], tuple(found))

    return measure


def _llamacpp(path: str) -> Callable[[list[int], int], Round]:
    import ctypes

    import llama_cpp as lib

    quiet = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params())
    if not model:
        raise CannotServe(f"llama.cpp cannot load {path}")
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def run(prompt: list[int], tokens: int, sessions: int) -> tuple[float, float, list[int]]:
        assert quiet  # kept alive by this closure: llama.cpp calls it whenever it likes
        settings = lib.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = CONTEXT * sessions, CONTEXT, CONTEXT
        settings.n_seq_max = sessions
        settings.n_threads = settings.n_threads_batch = 1
        context = lib.llama_init_from_model(model, settings)
        batch = lib.llama_batch_init(CONTEXT, 0, 1)

        def decode(items: list[tuple[int, int, int, bool]]) -> None:
            batch.n_tokens = len(items)
            for place, (token, position, sequence, wanted) in enumerate(items):
                batch.token[place], batch.pos[place] = token, position
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                batch.logits[place] = wanted
            if lib.llama_decode(context, batch):
                raise CannotServe("llama.cpp refused a batch")

        def best(place: int) -> int:
            logits: Any = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, place), (vocab,))
            return int(logits.argmax())

        # Its first call sets up buffers.
        decode([(prompt[0], 0, 0, True)])
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        started = time.perf_counter()
        latest = []
        for session in range(sessions):
            decode([(token, at, session, at == len(prompt) - 1) for at, token in enumerate(prompt)])
            latest.append(best(len(prompt) - 1))
        filled = time.perf_counter()
        first = [latest[0]]
        for number in range(tokens - 1):
            decode([(latest[each], len(prompt) + number, each, True) for each in range(sessions)])
            latest = [best(each) for each in range(sessions)]
            first.append(latest[0])
        ended = time.perf_counter()
        lib.llama_batch_free(batch)
        lib.llama_free(context)
        return (
            sessions * len(prompt) / (filled - started),
            sessions * (tokens - 1) / (ended - filled),
            first,
        )

    def measure(prompt: list[int], tokens: int) -> Round:
        prefill, decode, found = run(prompt, tokens, 1)
        return Round(prefill, decode, run(prompt, tokens, SESSIONS)[1], tuple(found))

    return measure


if __name__ == "__main__":
    _serve_rounds(sys.argv[1:])
