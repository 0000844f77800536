"""Where the tensors of one model lie in its file: names, shapes and rows, of its family and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from planner.importers.architecture import Architecture
from planner.importers.families.family import Place, Source
from planner.importers.rotary import Order, row_orders


@dataclass(frozen=True, slots=True)
class Placed:
    """The tensors of a model in a file of its family."""

    source: Source
    architecture: Architecture

    def place(self, ours: str) -> Place:
        """Where a tensor of ours lies."""
        return self.source.place(ours, self.architecture)[0]

    def file_name(self, ours: str) -> str:
        """How the file calls a tensor of ours."""
        return self.source.place(ours, self.architecture)[1]

    def file_shape(self, ours: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that the file's tensor must have for one of ours of `shape`."""
        place = self.place(ours)
        whole = shape if place.part is None else (place.part.height(self.architecture), *shape[1:])
        if place.by_head:
            heads = self.architecture.heads
            one = (whole[0] // heads, *whole[1:])
            return (heads, *(one[::-1] if place.transposed else one))
        turned = whole[::-1] if place.transposed else whole
        return (self.architecture.experts, *turned) if place.stacked else turned

    def expert(self, ours: str) -> int | None:
        """Which of the experts of the file's tensor a tensor of ours has; None where it has none or all."""
        return int(ours.rpartition("_e")[2]) if self.place(ours).stacked else None

    def order(self, ours: str) -> Order | None:
        """Which rows of the file's tensor are ours; None for all of them in their order. Of experts that are stacked:
        which rows of the expert's.
        """
        place = self.place(ours)
        turned = row_orders(self.architecture, self.source.interleaved).get(ours.rpartition(".")[2])
        if place.part is None:
            return turned if ours.startswith("attn.") else None
        rows = place.part.order(self.architecture)
        return rows if turned is None else rows[turned]
