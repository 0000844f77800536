"""Decides who may come into a conversation: anybody, or who was invited; by which links, and who was put out.

Pure; the same in web_peer/src/state/conversation_entry.ts. An invite stands here by its public key and never by its
secret. That who uses one holds its secret is checked by the coordinator, before the log has it
(peer.conversation.entry_links).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from peer.state.generated.commands import (
    MAX_BARRED,
    MAX_OFFERS,
    Entry,
    EntryChosen,
    EntryOffered,
    EntryWithdrawn,
    Offer,
    ParticipantInvited,
)

OPEN: Final = Entry()


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
