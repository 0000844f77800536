"""`shoal bench pipeline`: what splitting costs, side by side in one run.

Every subject is a process (a mesh: several), one thread each; rounds alternate between subjects, and figures are
medians of the rounds. The asker is the first stage's process, as when a peer's owner asks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from peer.errors import CannotServe
from peer.launch.local_mesh import QUESTION
from peer.launch.model_import import find_or_import
from peer.launch.terminal import say
from peer.model.chat_template import Message
from peer.model.tokenizer import text_of
from peer.runtime.arithmetic import proven
from planner.model.manifest import decode_manifest
from planner.model.onnxruntime_import import ort
from planner.model.store import Store

LONG_PROMPT_TOKENS = 900
SESSION_COUNTS = (1, 4, 8)
STOP_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Subject:
    """Something to time: its name in the figures and its child's arguments."""

    name: str
    arguments: tuple[str, ...]
    stages: int


class Child:
    """A subject that runs. Tasks are answered one at a time."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        command = [sys.executable, "-m", "peer.bench.pipeline_child", *subject.arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> dict[str, Any]:
        """The next result. Raises CannotServe when the child ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CannotServe(f"the benchmark's part {self.subject.name} ended early; run it with --verbose")
        result: dict[str, Any] = json.loads(line)
        return result

    def ask(self, prompt: list[int], tokens: int, sessions: int = 1) -> dict[str, Any]:
        """Times one task."""
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"prompt": prompt, "tokens": tokens, "sessions": sessions}) + "\n"
        )
        self._process.stdin.flush()
        return self.read()

    def stop(self) -> None:
        """Ends the child; kills it when it does not go."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def running(subject: Subject) -> Iterator[Child]:
    """A child that is ready for tasks."""
    say(f"starting {subject.name}")
    child = Child(subject)
    try:
        child.read()
        yield child
    finally:
        child.stop()


def bench_pipeline(args: argparse.Namespace) -> dict[str, Any]:
    """The figures by name; a transport that is not installed is null."""
    store = Store(args.store)
    model_id = find_or_import(store, args.model, "8bit")
    manifest = decode_manifest(store.manifest_bytes(model_id))
    text = text_of(store, manifest)
    short = text.encode_chat([Message("user", QUESTION)])
    long = (short * (LONG_PROMPT_TOKENS // len(short) + 1))[:LONG_PROMPT_TOKENS]
    fast = importlib.util.find_spec("aiolibdatachannel") is not None
    if not fast:
        say("libdatachannel is not installed (extra fast, CPython 3.12 or newer): its figures are null")
    subjects = _subjects(str(args.store), model_id, len(manifest.units), fast)
    seen: dict[str, list[float]] = {}
    answers: dict[str, list[int]] = {}

    def note(name: str, value: float) -> None:
        seen.setdefault(name, []).append(value)

    with ExitStack() as stack:
        children = [stack.enter_context(running(subject)) for subject in subjects]
        for child in children:
            child.ask(short, 8)  # warms caches and connections; not counted
        for number in range(args.rounds):
            say(f"round {number + 1} of {args.rounds}")
            for child in children:
                name = child.subject.name
                result = child.ask(short, args.tokens)
                note(f"{name}_tok_s", result["tok_s"])
                note(f"{name}_ttft_45", result["first_s"])
                answers.setdefault(name, result["answer"])
            for child in children:
                note(f"{child.subject.name}_ttft_900", child.ask(long, 1)["first_s"])
            for child in (c for c in children if c.subject.name.startswith("2_")):
                for sessions in SESSION_COUNTS:
                    result = child.ask(short, args.tokens, sessions)
                    note(f"{child.subject.name}_{sessions}_sessions_tok_s", result["tok_s"])
    medians = {name: statistics.median(values) for name, values in seen.items()}
    arithmetic = proven(store, manifest, "cpu", 1).class_of("cpu")
    return _figures(medians, subjects, answers, len(short), args.rounds, arithmetic)


def _subjects(store: str, model_id: str, units: int, fast: bool) -> list[Subject]:
    middle = balanced_cuts(units, 2), balanced_cuts(units, 3)
    subjects = [
        Subject("unsplit", ("unsplit", store, model_id), 1),
        Subject("2_aiortc", ("mesh", store, model_id, middle[0], "aiortc"), 2),
        Subject("3_aiortc", ("mesh", store, model_id, middle[1], "aiortc"), 3),
    ]
    if fast:
        subjects.append(Subject("2_fast", ("mesh", store, model_id, middle[0], "libdatachannel"), 2))
        subjects.append(Subject("3_fast", ("mesh", store, model_id, middle[1], "libdatachannel"), 3))
    return subjects


def balanced_cuts(units: int, stages: int) -> str:
    """Borders between blocks that give each stage about as many units; the head weighs like several of them."""
    blocks = (units - 2) // 2
    weight = blocks + 4  # the head of a small model weighs about as much as four blocks
    borders = [1 + 2 * round(weight * place / stages) for place in range(1, stages)]
    return ",".join(str(min(border, units - 2)) for border in borders)


def _figures(
    medians: dict[str, float],
    subjects: list[Subject],
    answers: dict[str, list[int]],
    prompt: int,
    rounds: int,
    arithmetic: str,
) -> dict[str, Any]:
    base = medians["unsplit_tok_s"]

    def ratio(name: str) -> float | None:
        return round(medians[name] / base, 3) if name in medians else None

    def hop_ms(name: str, stages: int) -> float | None:
        return round((1 / medians[name] - 1 / base) / stages * 1000, 3) if name in medians else None

    def over(name: str, other: str) -> float | None:
        return round(medians[name] / medians[other], 3) if name in medians else None

    best = "2_fast" if "2_fast_tok_s" in medians else "2_aiortc"
    return {
        "unsplit_tok_s": round(base, 2),
        "ratio_2_aiortc": ratio("2_aiortc_tok_s"),
        "ratio_3_aiortc": ratio("3_aiortc_tok_s"),
        "ratio_2_fast": ratio("2_fast_tok_s"),
        "ratio_3_fast": ratio("3_fast_tok_s"),
        "hop_ms_aiortc": hop_ms("2_aiortc_tok_s", 2),
        "hop_ms_fast": hop_ms("2_fast_tok_s", 2),
        "ttft_ratio_45": over("2_aiortc_ttft_45", "unsplit_ttft_45"),
        "ttft_ratio_900": over("2_aiortc_ttft_900", "unsplit_ttft_900"),
        "ttft_ratio_45_fast": over("2_fast_ttft_45", "unsplit_ttft_45"),
        "ttft_ratio_900_fast": over("2_fast_ttft_900", "unsplit_ttft_900"),
        "ratio_4_sessions": over(f"{best}_4_sessions_tok_s", f"{best}_1_sessions_tok_s"),
        "ratio_8_sessions": over(f"{best}_8_sessions_tok_s", f"{best}_1_sessions_tok_s"),
        "ratio_8_sessions_aiortc": over("2_aiortc_8_sessions_tok_s", "2_aiortc_1_sessions_tok_s"),
        "same_tokens": all(answers[s.name] == answers["unsplit"] for s in subjects),
        "prompt_tokens": prompt,
        "rounds": rounds,
        "medians": {name: round(value, 4) for name, value in medians.items()},
        "arithmetic": arithmetic,
        "versions": {"python": platform.python_version(), "onnxruntime": ort.__version__},
    }
