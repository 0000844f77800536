"""How far wrong results are from right ones, for the benchmarks of checks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from peer.session.evidence import Floats, distance
from peer.validation.world.wrong_results import Lie, wrong


def wrongs(
    least: dict[Lie, float], rng: np.random.Generator, inputs: Floats | None, results: Floats, again: Floats
) -> None:
    """The smallest distance of each kind of wrong result. `inputs` None: a first stage has no rows to hand on."""
    earlier: Callable[[int], Floats] = lambda at: results[at - 1 : at]  # noqa: E731
    for at in range(1, len(results), 7):
        for lie in Lie:
            if inputs is None and lie is Lie.IDLE:
                continue
            given = None if inputs is None else inputs[at : at + 1]
            false = wrong(lie, rng, given, results[at : at + 1], earlier(at))
            least[lie] = min(least.get(lie, float("inf")), distance(false[0], again[at]))
