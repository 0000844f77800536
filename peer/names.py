"""Decides what people read where the mesh says peer ids: names, told apart where two are the same. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from peer.mesh_state import Member

SHORT_CHARS = 4  # of a peer id, behind a name that two members have
_ID = re.compile(r"\b[a-z2-7]{32}\b")


def names(members: Mapping[str, Member]) -> dict[str, str]:
    """The name of every member, by peer id; no two are the same. Who only asks changes no name of who computes."""
    often = Counter(member.name for member in members.values())
    computing = Counter(member.name for member in members.values() if member.compute)
    return {
        peer: member.name
        if (computing if member.compute else often)[member.name] == 1
        else f"{member.name} ({peer[:SHORT_CHARS]})"
        for peer, member in members.items()
    }


def named(text: str, members: Mapping[str, Member]) -> str:
    """`text` with names for the ids of members; ids of others are cut short."""
    table = names(members)
    return _ID.sub(lambda found: table.get(found[0], found[0][: 2 * SHORT_CHARS]), text)
