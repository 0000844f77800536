"""The words of `shoal bench`. Imports little: every start of `shoal` waits for it."""

from __future__ import annotations

import argparse

from peer.options import browsers, positive


def bench_arguments(made: argparse.ArgumentParser, model: str) -> None:
    """Adds them to the command."""
    made.add_argument(
        "what",
        choices=("single", "pipeline", "browser", "planner", "wan", "consensus", "checks", "plans"),
        help="one peer against llama.cpp, split against unsplit, one tab against wllama, the planner, far peers, "
        "an idle mesh and a long log, checks of honest and of wrong results, or every plan of a small mesh",
    )
    made.add_argument(
        "--grain", type=positive, default=3, help="plans: parts that borders are at [%(default)s]"
    )
    made.add_argument("--quick", action="store_true", help="plans: two parts, short answers")
    made.add_argument(
        "--part",
        action="append",
        choices=("known", "small", "sizes", "agreement", "losses", "replans", "errors"),
        help="planner: only this, may be said more than once [all]",
    )
    made.add_argument("--checks", type=positive, default=2000, help="checks: of honest results [%(default)s]")
    made.add_argument(
        "--browsers",
        type=browsers,
        default=[],
        metavar="LIST",
        help="checks: of tabs, such as chromium [processes]",
    )
    made.add_argument("--weights", choices=("8bit", "4bit", "f32"), help="checks: of the model [8bit]")
    made.add_argument("--seconds", type=float, default=60.0, help="consensus: idle [%(default)s]")
    made.add_argument("--messages", type=int, default=10_000, help="consensus: in the log [%(default)s]")
    made.add_argument(
        "--delay-ms", type=positive, default=20, help="wan: one way, between all peers [%(default)s]"
    )
    made.add_argument("--loss", type=float, default=0.0, help="wan: share of datagrams lost [%(default)s]")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument(
        "--rounds", type=positive, default=3, help="alternating rounds; medians are shown [%(default)s]"
    )
    made.add_argument("--tokens", type=positive, default=64, help="greedy tokens per answer [%(default)s]")
    made.add_argument("--model", default=model, help="[%(default)s]")
