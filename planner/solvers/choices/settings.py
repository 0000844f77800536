"""Names and settings of the placements that people choose. Pure; imports no solver, for every command reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from planner.errors import RequestError

Placement = Literal["auto", "exact", "hungarian", "annealing", "genetic", "cp-sat", "greedy"]
PLACEMENTS: Final[tuple[Placement, ...]] = get_args(Placement)
ITERATIONS: Final = {"annealing": 20_000, "genetic": 8_000}
SLOWER: Final = 20  # times fewer where a plan takes milliseconds to value, as for throughput
MOST_ITERATIONS: Final = 1_000_000
MOST_POPULATION: Final = 1_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the searches. `iterations`: changes that annealing tries, children that breeding makes, None: as many as
    ITERATIONS says; `population`: paths that breed; `seed`: of all draws, so that the same seed gives the same plan.
    """

    iterations: int | None = None
    population: int = 48
    seed: int = 1

    def __post_init__(self) -> None:
        if self.iterations is not None and not 1 <= self.iterations <= MOST_ITERATIONS:
            raise RequestError(f"iterations: expected 1 to {MOST_ITERATIONS}, got {self.iterations}")
        if not 2 <= self.population <= MOST_POPULATION:
            raise RequestError(f"population: expected 2 to {MOST_POPULATION}, got {self.population}")
