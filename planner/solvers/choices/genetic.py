"""A genetic search over paths: the better ones breed, children are changed now and then, the best always stay. Pure.

A child has the stages of one parent up to a border and those of the other behind it, without peers that it has already;
what is missing then goes to the stage before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.solvers.choices.energy import NEVER, Energy
from planner.solvers.choices.neighbours import neighbour
from planner.solvers.network import Path
from planner.solvers.seeded_random import Draws

ELITE: Final = 8  # one of so many stays as it is
FIGHT: Final = 3  # of whom the best becomes a parent
CHANGES: Final = 3  # of a child, at most
CUTS: Final = 4  # of the best of a generation get the best borders


def bred(energy: Energy, starts: Sequence[Path], iterations: int, population: int, seed: int) -> Path:
    """The best path after about `iterations` children of `population` paths that begin with `starts`."""
    draws = Draws(seed)
    alive = list(dict.fromkeys(starts))[:population]
    while len(alive) < population:
        alive.append(_changed(energy, draws.choice(starts), draws))
    alive.sort(key=energy.key)
    kept = max(1, population // ELITE)
    for _ in range(max(1, iterations // max(1, population - kept))):
        children = [
            _changed(
                energy,
                _child(energy, _parent(energy, alive, draws), _parent(energy, alive, draws), draws),
                draws,
            )
            for _ in range(population - kept)
        ]
        alive = sorted([*alive[:kept], *children], key=energy.key)
        alive[:CUTS] = [energy.cut(path) if energy.of(path) < NEVER else path for path in alive[:CUTS]]
        alive.sort(key=energy.key)
    return energy.cut(alive[0])


def _parent(energy: Energy, alive: Sequence[Path], draws: Draws) -> Path:
    return min((draws.choice(alive) for _ in range(FIGHT)), key=energy.key)


def _child(energy: Energy, one: Path, other: Path, draws: Draws) -> Path:
    """Stages of `one` up to one of its borders, then those of `other`."""
    at = draws.below(len(one)) + 1
    made = list(one[:at])
    used = {peer for peer, _ in made}
    for peer, stop in other:
        if stop > made[-1][1]:
            if peer in used:
                made[-1] = made[-1][0], stop
            else:
                made.append((peer, stop))
                used.add(peer)
    return tuple(made)


def _changed(energy: Energy, path: Path, draws: Draws) -> Path:
    for _ in range(draws.below(CHANGES + 1)):
        tried = neighbour(energy.view, path, draws)
        path = tried if energy.of(tried) < NEVER else path
    return path
