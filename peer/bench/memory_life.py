"""A peer's life as `shoal bench memory` looks at it, in a process of its own: measure, load, fill, go on.

STORE MODEL CONTEXT SESSIONS -> after each phase a line of JSON on standard output, then a line on standard input is
awaited.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import numpy as np

import peer.member.mesh_member  # noqa: F401 - the code that a peer has in memory
from peer.runtime.arithmetic import proven
from peer.runtime.peak_memory import forget_peak, peak_bytes
from peer.runtime.piece_sizes import PIECE_TOKENS
from peer.runtime.self_benchmark import measure_here
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store

TURNS: Final = 12  # at most, of the long conversations after everything was full once
LATER_TOKENS: Final = 2560  # at most, of those; but two turns


class _Peer:
    def __init__(self, manifest: Manifest, store: Store, context: int, sessions: int) -> None:
        self._manifest = manifest
        self._answers: SimpleQueue[Done | Refused] = SimpleQueue()
        form = proven(store, manifest, "cpu", 1).form
        self.shard = make_shard(manifest, store, 0, len(manifest.units), exact=form.plain)
        self.runtime = StageRuntime(
            self.shard, threads=1, slots=2 * sessions, context=context, form=form, deliver=self._answers.put
        )
        self._rng = np.random.default_rng(0)

    def say(self, session: int, first: int, stop: int) -> None:
        """Tokens of a prompt at positions [first, stop)."""
        for start in range(first, stop, PIECE_TOKENS):
            tokens = self._rng.integers(0, self._manifest.vocab, min(PIECE_TOKENS, stop - start))
            self.runtime.submit(Step(bytes([session]), start, tokens, None, True, prompt=True))
            self._answer()

    def answer(self, session: int, first: int, stop: int) -> None:
        """Single tokens, all the same."""
        for position in range(first, stop):
            self.runtime.submit(Step(bytes([session]), position, np.zeros(1, np.int64), None, True))
            self._answer()

    def _answer(self) -> None:
        found = self._answers.get()
        if isinstance(found, Refused):
            raise RuntimeError(f"a step was refused: {found.text}")


def main() -> None:
    """Lives a peer's life: STORE MODEL CONTEXT SESSIONS on the command line; tells figures as it goes."""
    root, model, context_text, sessions_text = sys.argv[1:]
    context, sessions = int(context_text), int(sessions_text)
    store = Store(Path(root))
    manifest = decode_manifest(store.manifest_bytes(model))
    times = measure_here(store, manifest, "cpu", 1, context=context)
    units = manifest.planner_units()
    _tell(
        root,
        weights=sum(unit.held_bytes("mapped") for unit in units),
        kv=sum(unit.kv_bytes(context) for unit in units) * sessions,
        overhead=times.overhead_bytes,
    )
    one = _Peer(manifest, store, context, sessions)
    _tell(root)
    forget_peak()  # nothing of the store is mapped any more
    for session in range(sessions):
        one.say(session, 0, context - 2)
        one.answer(session, context - 2, context)
    _tell(root)
    turns = max(2, min(TURNS, LATER_TOKENS * 4 // 5 // context))
    for turn in range(turns):  # others come and go, and answers are edited
        session = sessions + turn
        one.runtime.release(bytes([turn]))
        one.say(session, 0, context // 2)
        one.answer(session, context // 2, context // 2 + 8)
        one.runtime.truncate(bytes([session]), context // 4)
        one.say(session, context // 4, context - 1)
    _tell(root)
    one.runtime.close()


def _tell(root: str, **more: int) -> None:
    """What this process occupies now: what no file is behind, what is code, and what of the store is mapped."""
    with open("/proc/self/status", encoding="ascii") as lines:
        status = dict(line.split(":", 1) for line in lines)
    mapped = _mapped(os.path.realpath(root) + os.sep)
    file = int(status["RssFile"].split()[0]) * 1024 - mapped
    anonymous = int(status["RssAnon"].split()[0]) * 1024
    told = {"anonymous": anonymous, "file": file, "mapped": mapped, "peak": peak_bytes(), **more}
    print(json.dumps(told), flush=True)  # noqa: T201
    sys.stdin.readline()


def _mapped(inside: str) -> int:
    total, counted = 0, False
    with open("/proc/self/smaps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            if line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024 if counted else 0
            elif "-" in line.split(maxsplit=1)[0]:
                counted = inside in line
    return total


if __name__ == "__main__":
    main()
