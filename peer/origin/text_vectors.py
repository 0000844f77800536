"""Embeddings of texts by a model that the mesh offers: batches of like length, several under way at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

import numpy as np

from peer.dataflow.value_codec import Array
from peer.errors import CannotServe, RunFailed
from peer.model.text_inputs import TextReader
from peer.origin.run_client import RunClient
from peer.session.evidence import Floats
from planner.model.graph_manifest import GraphManifest

# Of texts that are computed together, places that are filled up included: more is no faster on a CPU and takes memory.
BATCH_TOKENS: Final = 1024
BATCH_TEXTS: Final = 32


def batches(lengths: Sequence[int], most_texts: int = BATCH_TEXTS) -> list[list[int]]:
    """Places of texts that are computed together, each place once: of like length, because all are filled up to one."""
    found: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: (lengths[place], place)):
        batch = found[-1] if found else []
        if not batch or len(batch) == most_texts or (len(batch) + 1) * lengths[place] > BATCH_TOKENS:
            found.append(batch := [])
        batch.append(place)
    return found


def dimensions_of(manifest: GraphManifest) -> int:
    """Of the embeddings that a model makes of texts; 0 where it makes none."""
    if manifest.text is None or manifest.text.vectors is None:
        return 0
    width = manifest.value(manifest.text.vectors).shape[1]
    assert isinstance(width, int)  # as its decoder checks
    return width


def _untold(_: int) -> None:
    pass


async def text_vectors(
    run: RunClient,
    reader: TextReader,
    rows: Sequence[Sequence[int]],
    done: Callable[[int], None] = _untold,
) -> Floats:
    """The embedding of each row of token ids, (rows, dimensions); `done` hears how many more are there.

    Raises CannotServe for a model that makes none; RunFailed, also for what is no number; NoPlan.
    """
    text, width = run.manifest.text, dimensions_of(run.manifest)
    if text is None or text.vectors is None:
        raise CannotServe(f"{run.manifest.name} makes no embeddings of texts")
    axis = run.manifest.value(text.tokens).shape[0]
    fixed = axis if isinstance(axis, int) else 0  # texts that the model takes at once, no more and no fewer
    lengths = [len(row) for row in rows]
    groups = batches(lengths, fixed or BATCH_TEXTS)[::-1]  # the longest first, so that all peers end alike
    vectors = np.empty((len(rows), width), np.float32)

    def item(group: Sequence[int]) -> dict[str, Array]:
        more = [group[-1]] * (fixed - len(group))  # computed for nothing
        return reader.filled([rows[place] for place in (*group, *more)])

    items = (item(group) for group in groups)
    async with aclosing(run.map(items)) as outputs:
        at = 0
        async for found in outputs:
            group, made = groups[at], found[text.vectors]
            if made.shape != (fixed or len(group), width) or not np.isfinite(made).all():
                raise RunFailed(f"{run.manifest.name} made no vector of {width} finite numbers of each text")
            vectors[group] = made[: len(group)]
            done(len(group))
            at += 1
    return vectors
