"""What `shoal offer` and `shoal withdraw` take on the command line."""

from __future__ import annotations

import argparse

from peer.errors import BadCommand
from peer.member.peer_options import text
from peer.state.generated.commands import ModelWithdrawn
from peer.state.member_commands import check_command

PLACED_S = 30.0  # for the mesh to find a place


def offered_name(value: str) -> str:
    """A name that an offer may have. Raises ArgumentTypeError."""
    try:
        check_command(ModelWithdrawn(value))
    except BadCommand as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None
    return value


def offer_arguments(made: argparse.ArgumentParser) -> None:
    """Which model, and what it is called in the mesh."""
    made.add_argument(
        "model",
        type=text,
        metavar="MODEL",
        help="an .onnx file, or the id of a model that shoal import brought, as shoal models shows it",
    )
    made.add_argument(
        "--name",
        dest="offered",
        type=offered_name,
        metavar="NAME",
        help="what the mesh calls it: letters, digits and _.:+- [the model's own name]",
    )
    made.add_argument(
        "--wait",
        type=float,
        default=PLACED_S,
        help="seconds in which the mesh may find a place for it [%(default)s]",
    )


def withdraw_arguments(made: argparse.ArgumentParser) -> None:
    """Which offer."""
    made.add_argument(
        "offered",
        type=offered_name,
        metavar="NAME",
        help="what the mesh offers it as: shoal status LINK lists it",
    )
