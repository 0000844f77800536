"""Decides which version of the protocol two peers speak, and what a mesh with older voters may not say.

Pure; the same in web_peer/src/state/version_negotiation.ts. HELLO carries the lowest version in its first field, where
every version reads it. The highest stands behind the agent's name, since version 3 has no field for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from peer.errors import VersionMismatch
from peer.limits import HIGHEST_VERSION, LOWEST_VERSION
from peer.state.conversation_entry import OPEN
from peer.state.generated.commands import SINCE, PlanProposed, PlanWished, UnitsHeld
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState
from peer.wire.generated.frames import Hello

ENTRIES: Final = 4  # conversations that one is invited to, and is put out of, came with it
OFFERS: Final = 5  # models beside the mesh's own came with it
DECODERS: Final = 6  # those of them that answer in words
PICTURES: Final = 7  # prompts with rows in place of token ids
TEAMS: Final = 8  # stages that several peers compute, each a slice
SHARES: Final = 8  # peers of it load equal weights of models that answer in words once
OPENS: Final = 4  # and so did OPENs that name a front, or have no settings since their asker keeps its ends
_SPEAKS: Final = re.compile(r"(.*) speaks ([0-9]{1,4})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Versions:
    """What one side speaks, both included."""

    lowest: int = LOWEST_VERSION
    highest: int = HIGHEST_VERSION


SPOKEN: Final = Versions()
OLDER: Final = Versions(LOWEST_VERSION, LOWEST_VERSION)  # as a peer that was not updated yet


def announced(versions: Versions, peer: str, name: str, agent: str) -> Hello:
    """The HELLO of a side that speaks these."""
    more = f" speaks {versions.highest}" if versions.highest > versions.lowest else ""
    return Hello(versions.lowest, peer, name, f"{agent}{more}")


def told(hello: Hello) -> tuple[Versions, Hello]:
    """What the sender of a HELLO speaks, and that HELLO with nothing but the agent's name in `agent`."""
    found = _SPEAKS.fullmatch(hello.agent)
    if found is None:
        return Versions(hello.protocol, hello.protocol), hello
    highest = max(hello.protocol, int(found[2]))
    return Versions(hello.protocol, highest), replace(hello, agent=found[1])


def common(own: Versions, other: Versions) -> int:
    """The highest version of both. Raises VersionMismatch where there is none."""
    if other.lowest > own.highest or other.highest < own.lowest:
        raise VersionMismatch(
            f"expected protocol {own.lowest} to {own.highest}, the other peer speaks {other.lowest} to "
            f"{other.highest}; update the older one"
        )
    return min(own.highest, other.highest)


# --- the log ----------------------------------------------------------------------------------------------


def needed_by(command: Command) -> int:
    """The version that every voter must speak before the log may have `command`."""
    if isinstance(command, PlanProposed) and any(stage.helpers for stage in command.plan.stages):
        return TEAMS
    if isinstance(command, UnitsHeld) and command.slices:
        return TEAMS
    if isinstance(command, PlanWished) and command.strategy == "tensor":
        return TEAMS
    return SINCE.get(type(command), LOWEST_VERSION)


def needed_to_lead(state: MeshState) -> int:
    """The version that a peer must speak to vote: a snapshot of an older one would lose a part of this state."""
    plans = [plan for plan in (state.plan, state.proposed) if plan is not None]
    teams = any(stage.helpers for plan in plans for stage in plan.stages)
    teams = teams or (state.wish is not None and state.wish.strategy == "tensor")
    if teams or any(member.slices for member in state.members.values()):
        return TEAMS
    if state.decoders:
        return DECODERS
    if state.offers:
        return OFFERS
    entries = any(each.entry != OPEN for each in state.conversations.values())
    return ENTRIES if entries else LOWEST_VERSION


def too_new(command: Command, voters: Iterable[str], speaks: Callable[[str], int]) -> str:
    """Why the log may not have `command` yet; "" when it may."""
    needed = needed_by(command)
    older = [speaks(peer) for peer in voters if speaks(peer) < needed]
    if not older:
        return ""
    return (
        f"a peer that keeps the mesh speaks protocol {min(older)}, and this needs {needed}: update it first"
    )
