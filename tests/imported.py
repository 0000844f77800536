"""The real model in a store: each format is imported when a test first asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.importers.architecture import SourceModel
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from planner.types import WeightFormat


class Imported(dict[WeightFormat, str]):
    """The ids of one model, by its formats. Asking for one that is not there imports it, which takes seconds."""

    def __init__(self, source: SourceModel, store: Store) -> None:
        super().__init__()
        self._source = source
        self._store = store

    def __missing__(self, weights: WeightFormat) -> str:
        self[weights] = build_model(self._source, weights, self._store)
        return self[weights]


@contextmanager
def imported(gguf: Path, folder: Path) -> Iterator[tuple[Store, Imported]]:
    """A store in `folder` and the ids of the model in it; in the end its files are removed."""
    store = Store(folder)
    yield store, Imported(open_gguf(gguf, "smollm2-135m"), store)
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()  # pytest keeps the last folders; a gigabyte of weights need not stay
