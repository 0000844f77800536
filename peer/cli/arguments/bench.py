"""The words of `shoal bench`. Imports little: every start of `shoal` waits for it."""

from __future__ import annotations

import argparse

from peer.member.peer_options import browsers, cuts, forms, positive, size, words


def bench_arguments(made: argparse.ArgumentParser, model: str) -> None:
    """Adds them to the command."""
    made.add_argument(
        "what",
        choices=(
            "single",
            "pipeline",
            "browser",
            "planner",
            "wan",
            "consensus",
            "checks",
            "plans",
            "memory",
            "run",
            "inside",
            "abuse",
        ),
        help="one peer against llama.cpp, split against unsplit, one tab against wllama, the planner, far peers, "
        "an idle mesh and a long log, checks of honest and of wrong results, every plan of a small mesh, what "
        "peers occupy, other models over two peers against one, a team inside each unit against one peer, or "
        "what others feel of clients that mean harm",
    )
    made.add_argument(
        "--grain", type=positive, default=3, help="plans: parts that borders are at [%(default)s]"
    )
    made.add_argument("--quick", action="store_true", help="plans: two parts, short answers")
    made.add_argument(
        "--part",
        action="append",
        choices=("known", "small", "sizes", "agreement", "losses", "replans", "errors", "placements"),
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
    made.add_argument(
        "--weights",
        type=forms,
        metavar="LIST",
        help="checks: of the model [8bit]; memory: forms, with commas [8bit,4bit,f32,f16]",
    )
    made.add_argument(
        "--shapes", type=words, metavar="LIST", help="memory: such as 135m,4b, with commas [135m to 8b]"
    )
    made.add_argument(
        "--contexts", type=cuts, default=(1024, 4096), metavar="LIST", help="memory: [1024,4096]"
    )
    made.add_argument(
        "--sessions", type=positive, default=2, help="memory: filled at the same time [%(default)s]"
    )
    made.add_argument(
        "--largest", type=size, default=2 << 30, help="memory: a larger model has fewer blocks [2GiB]"
    )
    made.add_argument("--seconds", type=float, default=60.0, help="consensus: idle [%(default)s]")
    made.add_argument("--messages", type=int, default=10_000, help="consensus: in the log [%(default)s]")
    made.add_argument(
        "--delay-ms", type=positive, default=20, help="wan: one way, between all peers [%(default)s]"
    )
    made.add_argument("--loss", type=float, default=0.0, help="wan: share of datagrams lost [%(default)s]")
    made.add_argument("--kinds", type=words, metavar="LIST", help="abuse: such as prompts,plans [all]")
    made.add_argument("--each", type=float, default=8.0, help="abuse: seconds of each kind [%(default)s]")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument(
        "--rounds", type=positive, default=3, help="alternating rounds; medians are shown [%(default)s]"
    )
    made.add_argument("--tokens", type=positive, default=64, help="greedy tokens per answer [%(default)s]")
    made.add_argument("--model", default=model, help="[%(default)s]")
