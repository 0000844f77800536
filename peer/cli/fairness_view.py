"""`--fairness` and `--check` of `shoal serve`, and what `shoal status` tells of balances and checked work."""

from __future__ import annotations

import argparse
from typing import Any, Final

from peer.state.display_names import name_of
from peer.state.generated.commands import ALLOWANCE_MILLI, CHECKS_PPM, FairnessChosen
from peer.state.mesh_state import MeshState

PPM: Final = 1_000_000
POLICIES: Final = ("open", "fair", "off")


def share(text: str) -> int:
    """Millionths of "0.02". Raises ArgumentTypeError."""
    try:
        ppm = round(float(text) * PPM)
    except (ValueError, OverflowError):
        ppm = -1
    if not 0 <= ppm <= PPM:
        raise argparse.ArgumentTypeError(
            f"expected a share of steps from 0 to 1, such as 0.02; got {text!r:.60}"
        )
    return ppm


def credits_of(text: str) -> int:
    """Thousandths of credits. Raises ArgumentTypeError."""
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"expected a number of tokens such as 2000, got {text!r:.60}")
    return int(text) * 1000


def fairness_arguments(made: argparse.ArgumentParser) -> None:
    """How work is shared in the mesh that is founded."""
    made.add_argument(
        "--fairness",
        choices=POLICIES,
        default="open",
        help="open: everybody may ask, balances are shown; fair: who asks beyond the allowance must lend; "
        "off: nothing is counted [%(default)s]",
    )
    made.add_argument(
        "--allowance",
        type=credits_of,
        default=ALLOWANCE_MILLI,
        metavar="TOKENS",
        help="with fair: what anybody may ask for before lending [2000]",
    )
    made.add_argument(
        "--check",
        type=share,
        default=CHECKS_PPM,
        metavar="SHARE",
        help="share of steps that a second peer computes again, 0: none [0.02]",
    )


def fairness_of(args: argparse.Namespace) -> FairnessChosen:
    """What the arguments of fairness_arguments say."""
    return FairnessChosen(args.fairness, args.allowance, args.check)


def snapshot_of(state: MeshState) -> dict[str, Any]:
    """Balances, who is convicted, and how work is shared, as plain data."""
    fairness = state.fairness
    return {
        "policy": fairness.policy,
        "allowance_milli": fairness.allowance_milli,
        "checks_ppm": fairness.checks_ppm,
        "balances": {
            peer: {"earned_milli": balance.earned, "spent_milli": balance.spent}
            for peer, balance in sorted(state.ledger.balances.items())
        },
        "quarantined": {
            peer: {"when_ms": each.when_ms, "by": list(each.by), "lost_milli": each.lost_milli}
            for peer, each in sorted(fairness.quarantined.items())
        },
    }


def lines_of(shares: dict[str, Any], called: dict[str, str]) -> list[str]:
    """The same for people."""
    if shares["policy"] == "off":
        return ["work is not counted"]
    named = [
        f"{name_of(peer, called)} +{balance['earned_milli'] // 1000} -{balance['spent_milli'] // 1000}"
        for peer, balance in shares["balances"].items()
    ]
    lines = (
        [f"credits ({shares['policy']}; a token of the whole model is 1): {', '.join(named)}"]
        if named
        else []
    )
    for peer, each in shares["quarantined"].items():
        by = ", ".join(name_of(other, called) for other in each["by"])
        lines.append(
            f"{name_of(peer, called)} is convicted of wrong results by {by}, and lost "
            f"{each['lost_milli'] // 1000} credits"
        )
    return lines
