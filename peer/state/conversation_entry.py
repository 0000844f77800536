"""Decides who may come into a conversation: anybody, or who was invited; by which links, and who was put out.

Pure; the same in web_peer/src/state/conversation_entry.ts. An invite stands here by its public key and never by its
secret. That who uses one holds its secret is checked by the coordinator, before the log has it
(peer.conversation.entry_links).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from peer.wire.json_codec import Codec, Fields, flag, listed, matching, one_of, record, table, text, uint

Given = Literal["member", "viewer"]
MAX_OFFERS: Final = 64
MAX_BARRED: Final = 256  # beyond that the first one put out is forgotten


@dataclass(frozen=True, slots=True)
class Offer:
    """A link that lets into one conversation."""

    role: Given
    by: str
    when_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """`by_invite`: nobody comes in by themselves. `barred`: who was put out, the first one first."""

    by_invite: bool = False
    offers: Mapping[str, Offer] = field(default_factory=dict)  # by public key
    barred: tuple[str, ...] = ()


OPEN: Final = Entry()


# --- commands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntryChosen:
    """Who may enter a conversation: with `by_invite` only invited members, else every member."""

    conversation: str
    by_invite: bool


@dataclass(frozen=True, slots=True)
class EntryOffered:
    """A link into a conversation: its public key, and the role that it gives."""

    conversation: str
    key: str
    role: Given
    by: str
    when_ms: int


@dataclass(frozen=True, slots=True)
class EntryWithdrawn:
    """Nobody comes in with that link any more; who came with it stays."""

    conversation: str
    key: str


@dataclass(frozen=True, slots=True)
class ParticipantInvited:
    """`peer` comes in with what the link gives. `proof`: its signature by the link's key."""

    conversation: str
    key: str
    peer: str
    name: str
    colour: str
    proof: str


@dataclass(frozen=True, slots=True)
class ParticipantPutOut:
    """`peer` takes part no more and does not come back, unless an owner sets its role."""

    conversation: str
    peer: str


EntryCommand = EntryChosen | EntryOffered | EntryWithdrawn | ParticipantInvited | ParticipantPutOut


def offered(entry: Entry, command: EntryChosen | EntryOffered | EntryWithdrawn) -> Entry | str:
    """How one comes in after `command`, or why it changes nothing."""
    match command:
        case EntryChosen(_, by_invite):
            if entry.by_invite is by_invite:
                return "it is so already"
            return replace(entry, by_invite=by_invite)
        case EntryOffered(_, key, role, by, when_ms):
            if key in entry.offers:
                return "this invite was offered before"
            if len(entry.offers) >= MAX_OFFERS:
                return f"there are {MAX_OFFERS} invites to this conversation, which is the most; withdraw one"
            return replace(entry, offers={**entry.offers, key: Offer(role, by, when_ms)})
        case EntryWithdrawn(_, key):
            if key not in entry.offers:
                return "there is no such invite to this conversation"
            return replace(entry, offers={each: offer for each, offer in entry.offers.items() if each != key})


def given(entry: Entry, command: ParticipantInvited) -> Offer | str:
    """What comes with an invite, or why nobody comes in with it."""
    if command.peer in entry.barred:
        return "this peer was put out of the conversation"
    return entry.offers.get(command.key, "this invite was withdrawn, or never was one")


def barring(entry: Entry, peer: str) -> Entry:
    """With `peer` among those who were put out."""
    others = tuple(each for each in entry.barred if each != peer)
    return replace(entry, barred=(*others, peer)[-MAX_BARRED:])


def letting(entry: Entry, peer: str) -> Entry:
    """With `peer` no more among those who were put out."""
    if peer not in entry.barred:
        return entry
    return replace(entry, barred=tuple(each for each in entry.barred if each != peer))


# --- wire -------------------------------------------------------------------------------------------------

_key: Final = matching("A[Q-Za-f][0-9A-Za-z_-]{42}", "the public key of an invite")
_proof: Final = matching("[0-9A-Za-z_-]{86}", "a signature of 64 bytes")
_role: Final = one_of("member", "viewer")
_offer: Final[Fields] = {"role": _role, "by": text, "when_ms": uint}
entry_codec: Final = record(
    Entry,
    {
        "by_invite": flag,
        "offers": table(record(Offer, _offer), MAX_OFFERS),
        "barred": listed(text, MAX_BARRED),
    },
)


def entry_commands(conversation: Codec[str], colour: Codec[str]) -> Mapping[type[Any], Codec[Any]]:
    """The codecs of the commands; how ids and colours are spelled is peer.state.conversations' to say."""
    of: Fields = {"conversation": conversation}
    return {
        EntryChosen: record(EntryChosen, {**of, "by_invite": flag}),
        EntryOffered: record(EntryOffered, {**of, "key": _key, **_offer}),
        EntryWithdrawn: record(EntryWithdrawn, {**of, "key": _key}),
        ParticipantInvited: record(
            ParticipantInvited,
            {**of, "key": _key, "peer": text, "name": text, "colour": colour, "proof": _proof},
        ),
        ParticipantPutOut: record(ParticipantPutOut, {**of, "peer": text}),
    }
