"""Decides what people read where the mesh says peer ids: names, told apart where two are the same. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not at run time: whatever only prints needs no mesh
    from peer.state.generated.commands import Member

SHORT_CHARS = 4  # of a peer id, behind a name that two members have
_ID = re.compile(r"\b[a-z2-7]{32}\b")
# Control characters, line separators, what turns the direction of writing, and halves of characters.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def plain(text: str) -> str:
    """`text` of another peer as a terminal may have it: nothing in it moves the cursor, colours or hides."""
    return _UNSHOWN.sub("\ufffd", text)


def plain_lines(text: str) -> str:
    """The same for an answer, which has lines and tabs of its own."""
    return _CONTROLS.sub("\ufffd", text)


def names(members: Mapping[str, Member]) -> dict[str, str]:
    """The name of every member, by peer id; no two are the same. Who only asks changes no name of who computes."""
    called = {peer: plain(member.name) for peer, member in members.items()}
    often = Counter(called.values())
    computing = Counter(called[peer] for peer, member in members.items() if member.compute)
    return {
        peer: called[peer]
        if (computing if member.compute else often)[called[peer]] == 1
        else f"{called[peer]} ({peer[:SHORT_CHARS]})"
        for peer, member in members.items()
    }


def named(text: str, members: Mapping[str, Member]) -> str:
    """`text`, fit to be shown, with names for the ids of members; ids of others are cut short."""
    table = names(members)
    return _ID.sub(lambda found: table.get(found[0], found[0][: 2 * SHORT_CHARS]), plain(text))
