"""All units of a model as one stage of this process, for tests of what it computes and keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from peer.runtime.arithmetic import proven
from peer.runtime.stage_runtime import Done, StageRuntime, Step
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest
from planner.model.store import Store

Floats = npt.NDArray[np.float32]
CONTEXT = 2048
WAIT_S = 60


class OneStage:
    """All units of a model as a stage, asked one step after the other."""

    def __init__(self, manifest: Manifest, store: Store, *, whole: bool = False) -> None:
        """`whole`: nothing is dropped."""
        form = proven(store, manifest, "cpu", 1).form
        shard = make_shard(manifest, store, 0, len(manifest.units), exact=form.plain)
        self.answers: SimpleQueue[Any] = SimpleQueue()
        self.runtime = StageRuntime(
            replace(shard, window=None) if whole else shard,
            threads=1,
            slots=3,
            context=CONTEXT,
            form=form,
            deliver=self.answers.put,
        )

    def run(self, session: bytes, position: int, tokens: list[int], *, prompt: bool = False) -> Any:
        given = np.array(tokens, np.int64)
        self.runtime.submit(Step(session, position, given, None, True, np.copy, prompt=prompt))
        return self.answers.get(timeout=WAIT_S)

    def logits(self, session: bytes, position: int, tokens: list[int], *, prompt: bool = False) -> Floats:
        answer = self.run(session, position, tokens, prompt=prompt)
        assert isinstance(answer, Done), answer
        assert isinstance(answer.finished, np.ndarray)
        return answer.finished

    def copied(self, session: bytes, count: int, names: list[str]) -> Mapping[str, Floats] | None:
        self.runtime.copied(session, count, names, self.answers.put)
        found: Mapping[str, Floats] | None = self.answers.get(timeout=WAIT_S)
        return found

    def put(self, session: bytes, count: int, arrays: Mapping[str, Floats]) -> bool:
        self.runtime.put(session, count, arrays, self.answers.put)
        return bool(self.answers.get(timeout=WAIT_S))


@contextmanager
def stage(manifest: Manifest, store: Store, *, whole: bool = False) -> Iterator[OneStage]:
    """The stage while it is needed. `whole`: as OneStage."""
    made = OneStage(manifest, store, whole=whole)
    try:
        yield made
    finally:
        made.runtime.close()
