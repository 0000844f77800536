"""An opened folder of an encoder as an ONNX file, so that its import cuts and proves it like any other one. Edge."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.importers.encoders.folder import OpenedEncoder
from planner.importers.encoders.shape import RowsEnding
from planner.importers.onnx.asked import SourceGraph
from planner.model.store import Store

MADE: Final = "encoder 1"  # which changes with the graph that is written
TEXTS: Final = 2  # of the sample
SAMPLE_TOKENS: Final = 16  # of the longest of them
WEIGHTS: Final = "encoder.weights"
TOKENIZER: Final = "tokenizer.json"
SEED: Final = 7


@contextmanager
def encoder_file(source: OpenedEncoder, store: Store) -> Iterator[SourceGraph]:
    """The file, as long as the block lasts. Raises CorruptModel."""
    from planner.importers.encoders import graphs  # with onnx, which takes time

    with tempfile.TemporaryDirectory(prefix="encoder-", dir=store.root / "tmp") as name:
        folder = Path(name)
        with (folder / WEIGHTS).open("wb") as weights:
            encoded = graphs.write_graph(source, weights, WEIGHTS)
        file, sample = folder / "encoder.onnx", folder / "sample.npz"
        file.write_bytes(encoded)
        inputs = sample_inputs(source)
        np.savez(sample, allow_pickle=False, **inputs)
        tokenizer = source.tokenizer
        if isinstance(tokenizer, bytes):
            (folder / TOKENIZER).write_bytes(tokenizer)
            tokenizer = folder / TOKENIZER
        yield SourceGraph(
            file,
            source.name,
            sample=sample,
            tokenizer=tokenizer,
            longest=source.longest,
            named=True,
            made=how_written(source),
            fused=False,
            labels=source.labels,
        )


def how_written(source: OpenedEncoder) -> str:
    """How the file is written, for the index of imports."""
    ending = "rows" if isinstance(source.ending, RowsEnding) else "vectors"
    return f"{MADE} {'scores' if source.scores else 'classes' if source.labels else ending}"


def sample_inputs(source: OpenedEncoder) -> dict[str, npt.NDArray[Any]]:
    """Two texts, or pairs of them, of which the second one is shorter."""
    wide = min(SAMPLE_TOKENS, source.longest)
    random = np.random.default_rng(SEED)
    mask = np.ones((TEXTS, wide), np.float32)
    mask[1:, (wide + 1) // 2 :] = 0
    found: dict[str, npt.NDArray[Any]] = {
        "tokens": random.integers(0, source.shape.vocab, (TEXTS, wide)),
        "mask": mask,
    }
    if source.scores and source.shape.kinds > 1:
        types = np.zeros((TEXTS, wide), np.int64)
        types[:, wide // 2 :] = 1
        found["types"] = types
    return found
