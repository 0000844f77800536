"""The words of `shoal validate`. Imports little: every start of `shoal` waits for it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from peer.launch.defaults import state_folder
from peer.member.peer_options import TRANSPORTS, browsers, positive, size

SCENARIOS: Final = (
    *("connection_lost", "peer_crash", "peer_frozen", "component_timeout", "component_error"),
    *("multi_peer", "cascade", "network_instability", "rolling_restart", "migration", "peer_slowed"),
    *("leader_killed", "leader_frozen", "link_one_way", "leader_bridge"),
    *("liars", "ledger"),
)
DEFAULT_MINUTES: Final = 30.0


def validate_arguments(made: argparse.ArgumentParser, model: str) -> None:
    """Adds them to the command."""
    made.add_argument(
        "what",
        nargs="?",
        choices=("run", "report"),
        default="run",
        help="run scenarios, or report what was kept",
    )
    made.add_argument(
        "--scenario", action="append", choices=SCENARIOS, default=[], help="repeatable [all of them]"
    )
    made.add_argument(
        "--count",
        type=positive,
        default=3,
        help="runs of each scenario; of liars with each kind; kills of ledger [%(default)s]",
    )
    made.add_argument(
        "--first",
        type=int,
        default=0,
        metavar="N",
        help="number of the first run, to repeat one [%(default)s]",
    )
    made.add_argument("--seed", type=int, help="everything is drawn from it [any; it is printed]")
    made.add_argument(
        "--minutes", type=float, default=DEFAULT_MINUTES, help="no run begins later [%(default)s]"
    )
    made.add_argument(
        "--within", type=float, metavar="MS", help="fail when the 95th percentile of recovery is above"
    )
    made.add_argument("--cost", action="store_true", help="measure what protection costs instead")
    made.add_argument("--rounds", type=positive, default=5, help="of --cost, alternating [%(default)s]")
    made.add_argument(
        "--soak", type=positive, metavar="N", help="open, cancel and kill N sessions, and see what is left"
    )
    made.add_argument(
        "--peers",
        type=positive,
        default=6,
        help="that compute; leader_*, ledger: 5, link_*: 5 or 3 [%(default)s]",
    )
    made.add_argument("--stages", type=positive, default=3, help="[%(default)s]")
    made.add_argument("--sessions", type=positive, default=4, help="answers at the same time [%(default)s]")
    made.add_argument("--tokens", type=positive, default=48, help="of each answer [%(default)s]")
    made.add_argument("--model", default=model, help="[%(default)s]")
    made.add_argument(
        "--weights", choices=("8bit", "f32"), help="[8bit; with tabs f32, which all compute alike]"
    )
    made.add_argument("--memory", type=size, help="each peer lends [room for two stages and more]")
    made.add_argument("--transport", choices=TRANSPORTS, default="auto", help="[%(default)s]")
    made.add_argument(
        "--browsers",
        type=browsers,
        default=[],
        metavar="LIST",
        help="tabs among the peers, such as chromium [none]",
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument(
        "--results",
        type=Path,
        default=state_folder() / "validation.duckdb",
        metavar="FILE",
        help="where results are kept [%(default)s]",
    )
    made.add_argument("--no-results", action="store_true", help="keep nothing")
    made.add_argument(
        "--out", type=Path, default=Path(), metavar="FOLDER", help="where report writes its files [here]"
    )
