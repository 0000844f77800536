"""Which texts go together, and that a model of a fixed number of texts gets as many each time."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from peer.dataflow.value_codec import Array
from peer.errors import RunFailed
from peer.model.text_inputs import TextReader, TextRow
from peer.origin.run_client import RunClient
from peer.origin.text_vectors import text_vectors
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest

VECTORS: Any = json.loads((Path(__file__).parents[2] / "vectors" / "text_inputs.json").read_text("utf-8"))
ROWS = tuple(map(TextRow, ([2, 5, 3], [2, 6, 7, 3], [2, 3], [2, 9, 9, 9, 3], [2, 8, 3])))


def manifest(texts: int | str) -> GraphManifest:
    """Makes four numbers of each of `texts` rows."""
    document = json.loads(VECTORS["manifests"][0]["manifest"])
    for value in document["values"]:
        value["shape"] = [texts, *value["shape"][1:]]
    document["text"]["vectors"] = "z"
    return decode_graph_manifest(json.dumps(document).encode())


class Summing:
    """In place of a run: a vector is the sum of its row's tokens four times, and `least` at least."""

    def __init__(self, texts: int | str, least: float = 0.0) -> None:
        self.manifest = manifest(texts)
        self.least = least
        self.shapes: list[tuple[int, ...]] = []

    async def map(self, items: Iterable[Mapping[str, Array]]) -> AsyncGenerator[dict[str, Array]]:
        for item in items:
            self.shapes.append(item["tokens"].shape)
            sums = (item["tokens"] * item["mask"]).sum(1, keepdims=True) + self.least
            yield {"z": np.repeat(sums, 4, 1).astype(np.float32)}


@pytest.mark.parametrize(("texts", "counts"), [("texts", [5]), (1, [1] * 5), (2, [2] * 3), (8, [8])])
async def test_a_model_gets_as_many_texts_as_it_takes(texts: int | str, counts: list[int]) -> None:
    run = Summing(texts)
    reader = TextReader(run.manifest, VECTORS["tokenizer"][0].encode())
    told: list[int] = []
    found = await text_vectors(cast(RunClient, run), reader, ROWS, told.append)
    np.testing.assert_array_equal(found, np.repeat([[sum(row.ids)] for row in ROWS], 4, 1))
    assert sum(told) == len(ROWS)
    assert [shape[0] for shape in run.shapes] == counts


async def test_what_is_no_number_is_no_vector() -> None:
    run = Summing("texts", np.inf)
    reader = TextReader(run.manifest, VECTORS["tokenizer"][0].encode())
    with pytest.raises(RunFailed, match="4 finite numbers"):
        await text_vectors(cast(RunClient, run), reader, ROWS)
