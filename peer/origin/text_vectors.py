"""Embeddings of texts, and scores of pairs of them, by a model that the mesh offers: batches of like length, several
under way at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

import numpy as np

from peer.dataflow.value_codec import Array
from peer.errors import CannotServe, RunFailed
from peer.model.text_inputs import TextReader, TextRow
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


def text_output(manifest: GraphManifest) -> tuple[str, int] | None:
    """The output that a model makes of texts, vectors, scores or classes, and how many numbers each has; None: none."""
    text = manifest.text
    name = None if text is None else text.vectors or text.scores or text.classes
    if name is None:
        return None
    width = manifest.value(name).shape[1]
    assert isinstance(width, int)  # as its decoder checks
    return name, width


def dimensions_of(manifest: GraphManifest) -> int:
    """Of the embeddings that a model makes of texts; 0 where it makes none."""
    made = text_output(manifest)
    if made is None or manifest.text is None or manifest.text.vectors is None:
        return 0
    return made[1]


def ranks_texts(manifest: GraphManifest) -> bool:
    """Whether the model scores pairs of texts."""
    return manifest.text is not None and manifest.text.scores is not None and not dimensions_of(manifest)


def sorts_texts(manifest: GraphManifest) -> bool:
    """Whether the model says how well each of its labels fits a text."""
    return manifest.text is not None and manifest.text.classes is not None


def fixed_texts(manifest: GraphManifest) -> int:
    """Texts that the model takes at once, no more and no fewer; 0: as many as come."""
    axis = manifest.value(manifest.inputs[0]).shape[0]
    return axis if isinstance(axis, int) else 0


def filled_batch(
    reader: TextReader, rows: Sequence[TextRow], group: Sequence[int], fixed: int
) -> dict[str, Array]:
    """The inputs of the rows at the places `group`, filled up to `fixed` texts where that is not 0."""
    more = [group[-1]] * (fixed - len(group))  # computed for nothing
    return reader.filled([rows[place] for place in (*group, *more)])


def _untold(_: int) -> None:
    pass


async def text_vectors(
    run: RunClient,
    reader: TextReader,
    rows: Sequence[TextRow],
    done: Callable[[int], None] = _untold,
) -> Floats:
    """The embedding of each row of token ids, (rows, dimensions), or its score, (rows, 1); `done` hears how many more
    are there.

    Raises CannotServe for a model that makes neither; RunFailed, also for what is no number; NoPlan.
    """
    made = text_output(run.manifest)
    if made is None:
        raise CannotServe(f"{run.manifest.name} makes no embeddings of texts")
    name, width = made
    fixed = fixed_texts(run.manifest)
    lengths = [len(row) for row in rows]
    groups = batches(lengths, fixed or BATCH_TEXTS)[::-1]  # the longest first, so that all peers end alike
    vectors = np.empty((len(rows), width), np.float32)
    items = (filled_batch(reader, rows, group, fixed) for group in groups)
    async with aclosing(run.map(items)) as outputs:
        at = 0
        async for found in outputs:
            group, numbers = groups[at], found[name]
            if numbers.shape != (fixed or len(group), width) or not np.isfinite(numbers).all():
                raise RunFailed(f"{run.manifest.name} made no {width} finite numbers of each text")
            vectors[group] = numbers[: len(group)]
            done(len(group))
            at += 1
    return vectors
