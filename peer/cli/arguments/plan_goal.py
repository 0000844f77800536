"""`--strategy`, `--goal` and `--component` of the command line."""

from __future__ import annotations

import argparse
import re

from peer.errors import BadCommand
from peer.state.generated.commands import Group, PlanStrategy, PlanWished
from peer.state.plan_goal import GOALS, STRATEGIES

MIB = 2**20
_COMPONENT = re.compile(r"([^=]{1,64})=(\d{1,6})-(\d{1,6})(?:@(.{1,128}))?")


def component(text: str) -> Group:
    """Units of "decoder=0-29@laptop", the last one included. Raises ArgumentTypeError."""
    match = _COMPONENT.fullmatch(text)
    if match is None or int(match[2]) > int(match[3]):
        raise argparse.ArgumentTypeError(
            f"expected NAME=FIRST-LAST or NAME=FIRST-LAST@PEER in units, such as low=0-29@laptop; got {text!r:.80}"
        )
    return Group(match[1], int(match[2]), int(match[3]) + 1, match[4] or "")


def mib(text: str) -> int:
    """Bytes of "12.5" MiB. Raises ArgumentTypeError."""
    if re.fullmatch(r"[0-9]{1,9}([.][0-9]{1,6})?", text) is None:
        raise argparse.ArgumentTypeError(f"expected MiB such as 64 or 12.5; got {text!r:.80}")
    return round(float(text) * MIB)


def wish_arguments(made: argparse.ArgumentParser) -> None:
    """How plans are made."""
    made.add_argument(
        "--strategy",
        choices=STRATEGIES,
        help="where units may be cut: anywhere (optimal), between blocks (layer), into equal stages (pipeline), "
        "between named groups (component), attention from feed-forward (attention-ffn), peers may come back (hybrid), "
        "a team computes units together, each member a slice (tensor) "
        "[as before; at first optimal]",
    )
    made.add_argument(
        "--goal",
        choices=GOALS,
        help="what plans are to be good at [as before; at first latency, or --objective]",
    )
    made.add_argument(
        "--min-tensor",
        type=mib,
        metavar="MIB",
        help="with --strategy tensor, units with fewer MiB of weights are computed whole [0]",
    )
    made.add_argument(
        "--component",
        type=component,
        action="append",
        default=[],
        metavar="NAME=FIRST-LAST[@PEER]",
        help="a group of units, and the peer that is to hold it; all groups together hold all units, in order",
    )


def wish_of(args: argparse.Namespace) -> PlanWished | None:
    """What the arguments of wish_arguments say; None: nothing."""
    if args.strategy is None and args.goal is None and not args.component and args.min_tensor is None:
        return None
    if args.min_tensor is not None and args.strategy != "tensor":
        raise BadCommand("--min-tensor: expected --strategy tensor with it")
    strategy: PlanStrategy = args.strategy or ("component" if args.component else "optimal")
    return PlanWished(
        strategy,
        args.goal or getattr(args, "objective", "latency"),
        tuple(args.component),
        args.min_tensor or 0,
    )
