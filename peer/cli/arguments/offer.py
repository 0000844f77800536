"""What `shoal offer` and `shoal withdraw` take on the command line."""

from __future__ import annotations

import argparse

from peer.errors import BadCommand
from peer.member.peer_options import positive, text
from peer.state.generated.commands import ModelWithdrawn
from peer.state.member_commands import check_command

PLACED_S = 30.0  # for the mesh to find a place
SESSIONS = 4  # as shoal serve promises


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
        help="an .onnx file, a model that answers in words, or an id of shoal models",
    )
    made.add_argument(
        "--name",
        dest="offered",
        type=offered_name,
        metavar="NAME",
        help="what the mesh calls it: letters, digits and _.:+- [the model's own name]",
    )
    made.add_argument(
        "--weights",
        choices=("8bit", "4bit", "f32", "f16"),
        default="8bit",
        help="of a model that answers in words and is imported [%(default)s]",
    )
    made.add_argument(
        "--context",
        type=positive,
        metavar="TOKENS",
        help="of each conversation, where it answers in words [2048, or the model's if that is less]",
    )
    made.add_argument(
        "--sessions", type=positive, default=SESSIONS, help="at once, where it answers in words [%(default)s]"
    )
    made.add_argument(
        "--wait",
        type=float,
        default=PLACED_S,
        help="seconds in which the mesh may find a place for it, and load it [%(default)s]",
    )


def withdraw_arguments(made: argparse.ArgumentParser) -> None:
    """Which offer."""
    made.add_argument(
        "offered",
        type=offered_name,
        metavar="NAME",
        help="what the mesh offers it as: shoal status LINK lists it",
    )
