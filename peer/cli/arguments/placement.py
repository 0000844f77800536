"""`--placement`, its settings, and `--compare` of the command line."""

from __future__ import annotations

import argparse

from planner.solvers.choices.settings import ITERATIONS, PLACEMENTS, Settings


def placement_arguments(made: argparse.ArgumentParser) -> None:
    """By which algorithm the plan that would be made is found."""
    defaults = Settings()
    made.add_argument(
        "--placement",
        choices=PLACEMENTS,
        default="auto",
        help="by which algorithm peers get their units: what suits the size (auto), all orders (exact), assignment "
        "(hungarian), annealing, genetic, cp-sat, or simple rules (greedy) [%(default)s]",
    )
    made.add_argument(
        "--compare",
        action="store_true",
        help="run every placement, and say how long each takes and how good it is",
    )
    made.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help=f"annealing, genetic: plans that are tried [{ITERATIONS['annealing']}, {ITERATIONS['genetic']}; "
        "a twentieth for other goals than latency]",
    )
    made.add_argument(
        "--population",
        type=int,
        default=defaults.population,
        metavar="N",
        help="genetic: plans that breed [%(default)s]",
    )
    made.add_argument(
        "--seed",
        type=int,
        default=defaults.seed,
        metavar="N",
        help="annealing, genetic: of all draws [%(default)s]",
    )


def settings_of(args: argparse.Namespace) -> Settings:
    """Raises RequestError for settings out of bounds."""
    return Settings(args.iterations, args.population, args.seed)
