"""Decides what people read where the mesh says peer ids: names, told apart where two are the same. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not at run time: whatever only prints needs no mesh
    from peer.state.generated.commands import Member

SHORT_CHARS = 4  # of a peer id, behind a name that two members have
MAX_NAME_CHARS = 64  # of a member
NAMELESS = "no name"
GONE = "somebody who left"
_APART = re.compile(r" \([a-z2-7]{4,}\)$")
_SPACES = re.compile(" +")
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


def name_fault(name: str) -> str:
    """Why no member may be called `name`, when it joins or later; "" when it may."""
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        return f"expected a name of 1 to {MAX_NAME_CHARS} characters, got {len(name)}"
    return "" if plain(name) == name else "expected a name without control characters"


def names(members: Mapping[str, Member]) -> dict[str, str]:
    """The name of every member, by peer id; no two are alike. Who only asks changes no name of who computes."""
    computing = {peer for peer, member in members.items() if member.compute}
    return told_apart({peer: member.name for peer, member in members.items()}, computing)


def told_apart(called: Mapping[str, str], first: Collection[str] = ()) -> dict[str, str]:
    """Names by peer id, of which no two are alike: those that are have a part of the id behind them, and so has a name
    that ends as if it had one. Peers of `first` are told apart from each other alone.
    """
    groups: dict[str, list[str]] = {}
    for peer, name in called.items():
        groups.setdefault(_alike(name), []).append(peer)
    found = {}
    for peer, name in called.items():
        group = groups[_alike(name)]
        rivals = [each for each in group if each in first] if peer in first else group
        shown = plain(name).strip(" ") or NAMELESS
        apart = len(rivals) > 1 or not plain(name).strip(" ") or _APART.search(shown)
        found[peer] = f"{shown} ({_short(peer, group)})" if apart else shown
    return found


def name_of(peer: str, called: Mapping[str, str]) -> str:
    """What people read for `peer`; `called` is of `names`, or of `told_apart`."""
    return called.get(peer) or f"{GONE} ({peer[:SHORT_CHARS]})"


def _alike(name: str) -> str:
    """What is the same for names that people take for the same."""
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", plain(name)).lower()).strip(" ")


def _short(peer: str, group: Collection[str]) -> str:
    """The beginning of an id, as long as it takes to tell it from the others of `group`."""
    count = SHORT_CHARS
    while count < len(peer) and any(other != peer and other.startswith(peer[:count]) for other in group):
        count += 1
    return peer[:count]


def named(text: str, members: Mapping[str, Member]) -> str:
    """`text`, fit to be shown, with names for the ids of members; ids of others are cut short."""
    table = names(members)
    return _ID.sub(lambda found: name_of(found[0], table), plain(text))
