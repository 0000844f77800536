"""Manifests whose units compute nothing real: what takes what from where is all that matters."""

from __future__ import annotations

from collections.abc import Iterable

from planner.model.graph_manifest import GraphManifest, GraphUnit, Value
from planner.model.store import BlobRef

RUN = b"r" * 16
NOTHING = BlobRef("0" * 64, 1, ("0" * 64,))


def manifest_of(
    units: Iterable[tuple[tuple[str, ...], tuple[str, ...]]], outputs: tuple[str, ...]
) -> GraphManifest:
    """Units as (inputs, outputs); what no unit makes is an input of the model. All values are one int64."""
    units = list(units)
    made = {name for _, gives in units for name in gives}
    inputs = tuple(dict.fromkeys(name for needs, _ in units for name in needs if name not in made))
    values = tuple(Value(name, "int64", (), ()) for name in (*inputs, *sorted(made)))
    return GraphManifest(
        "made up",
        inputs,
        outputs,
        {},
        values,
        tuple(
            GraphUnit(f"unit.{place}", "graph", NOTHING, (), (), needs, gives, 0, 0, (), ())
            for place, (needs, gives) in enumerate(units)
        ),
    )


CHAIN = manifest_of([(("a",), ("b",)), (("b",), ("c",)), (("c",), ("d",))], ("d",))
TOWERS = manifest_of(
    [
        (("a",), ("b",)),
        (("b",), ("c",)),
        (("x",), ("y",)),
        (("y", "a"), ("z",)),
        (("c", "z", "b"), ("end", "more")),
    ],
    ("end", "y"),
)
