"""`shoal join --nearby`: picks one of the meshes that are announced on this network, and asks for its code."""

from __future__ import annotations

import asyncio
import sys

from peer.errors import BadCommand, CannotServe
from peer.launch.nearby import Nearby, look, unseal
from peer.launch.terminal import err, say


def link_nearby() -> str:
    """The invite link of the mesh that a person picks. Raises BadCommand, and CannotServe where there is none."""
    say("looking for meshes on this network")
    return link_of(asyncio.run(look()))


def link_of(found: list[Nearby]) -> str:
    """The same for what was found."""
    if not found:
        raise CannotServe(
            "no mesh is announced on this network: its founder says shoal serve --nearby, on the same network as this "
            "machine; some networks carry no multicast, then use the link"
        )
    for number, each in enumerate(found, start=1):
        say(f"{number}  {each}")
    number = 1
    if len(found) > 1:
        typed = _typed("which one, by number: ")
        number = int(typed) if typed.isascii() and typed.isdigit() else 0
        if not 1 <= number <= len(found):
            raise BadCommand(f"expected a number from 1 to {len(found)}, got {typed!r:.40}")
    return unseal(found[number - 1], _typed(f"the code of {found[number - 1].name}: "))


def _typed(question: str) -> str:
    err.print(question, end="", markup=False)
    return sys.stdin.readline().strip()
