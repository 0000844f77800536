"""Writes speaking.json: who may say what in a conversation, by roles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tracing import beside, written

from peer.state.conversation_rights import may_converse
from peer.state.conversations import conversations_codec
from peer.state.generated.commands import (
    AnswerAdopted,
    ConversationChanged,
    ConversationCommand,
    ConversationRemoved,
    ConversationStarted,
    EntryChosen,
    EntryOffered,
    EntryWithdrawn,
    MemberJoined,
    MessageAdded,
    MessageEnded,
    MessageExtended,
    ParticipantInvited,
    ParticipantLeft,
    ParticipantPutOut,
    ParticipantSet,
    RoleGiven,
)
from peer.state.member_commands import Command, encode_command
from peer.state.mesh_state import MeshState, apply

PATH = beside(__file__, "speaking.json")
PEERS = ("boss", "ann", "bob", "cho", "dee", "eve", "fay")
NAME = "c"
GREY = "#888888"
KEY = "AQ" + "x" * 42
PROOF = "p" * 86
DONE, RUNS, GONE, FRESH = (f"{number:032x}" for number in (1, 2, 3, 4))


def added(number: str, parent: str, author: str, form: Any = "to-model", session: str = "") -> MessageAdded:
    return MessageAdded(NAME, number, parent, author, form, "hello", 5, session, "", (), 9)


def state(*, owner_here: bool, by_invite: bool = False) -> MeshState:
    """Boss owns the mesh; Ann the conversation, with Bob (member), Cho (viewer) and Dee (viewer of the mesh) in it. Eve
    is a member that takes no part; Fay, who asked, is gone. `by_invite`: nobody comes in by themselves, and Bob was put
    out.
    """
    here = [peer for peer in PEERS if peer != "fay" and (owner_here or peer != "ann")]
    said: list[Command] = [MemberJoined(peer, peer, False) for peer in here]
    said += [RoleGiven("boss", "owner"), RoleGiven("dee", "viewer")]
    said += [ConversationStarted(NAME, "t", "", "", (), 1, "ann", "Ann", GREY)]
    for peer, role in (("bob", "member"), ("cho", "viewer"), ("dee", "viewer"), ("fay", "member")):
        said.append(ParticipantSet(NAME, peer, peer, GREY, role))  # type: ignore[arg-type]
    said += [added("q1", "", "ann"), added("a1", "q1", "ann", "answer", DONE)]
    said += [MessageEnded(NAME, "a1", "stopped", 3, "yes", "")]
    said += [added("p1", "a1", "bob", "to-people")]
    said += [added("q2", "a1", "bob"), added("a2", "q2", "bob", "answer", RUNS)]
    said += [added("q3", "a1", "fay"), added("a3", "q3", "fay", "answer", GONE)]
    if by_invite:
        said += [EntryChosen(NAME, True), ParticipantPutOut(NAME, "bob")]
    made = MeshState()
    for command in said:
        made = apply(made, command)
    return made


def commands(peer: str) -> Iterator[ConversationCommand]:
    for other in (peer, "bob"):
        yield ConversationStarted("new", "t", "", "", (), 1, other, "x", GREY)
        yield ParticipantLeft(NAME, other)
        for role in ("owner", "member", "viewer"):
            yield ParticipantSet(NAME, other, "x", GREY, role)  # type: ignore[arg-type]
        yield EntryOffered(NAME, KEY, "member", other, 1)
        yield ParticipantInvited(NAME, KEY, other, "x", GREY, PROOF)
        yield ParticipantPutOut(NAME, other)
    yield EntryChosen(NAME, True)
    yield EntryWithdrawn(NAME, KEY)
    yield ConversationChanged(NAME, "t2", "", "", ())
    yield ConversationRemoved(NAME)
    yield ConversationRemoved("none")
    yield added("m", "a1", peer)
    yield added("m", "a1", peer, "to-people")
    yield added("m", "a1", "ann" if peer != "ann" else "bob")
    for parent, session in product(("q1", "a1", "p1", "none"), (DONE, RUNS, FRESH)):
        yield added("m", parent, peer, "answer", session)
    for answer in ("a1", "a2", "a3", "none"):
        yield MessageExtended(NAME, answer, 0, 1, "x")
        for ended in ("done", "stopped", "failed"):
            yield MessageEnded(NAME, answer, ended, 1, None, "")  # type: ignore[arg-type]
        yield MessageEnded(NAME, answer, "stopped", 1, "other words", "")
        before = {"a1": "ann", "a2": "bob"}.get(answer, "fay")
        for session in (DONE, RUNS, GONE, FRESH):
            yield AnswerAdopted(NAME, answer, before, peer, session)
    yield AnswerAdopted(NAME, "a3", "fay", "boss", GONE)


def cases(known: MeshState) -> list[dict[str, Any]]:
    made = []
    for peer in PEERS[:-1]:
        said = [(encode_command(each).decode(), may_converse(known, peer, each)) for each in commands(peer)]
        made.append({"peer": peer, "says": said})
    return made


def text() -> str:
    rows = [
        {
            "members": sorted(known.members),
            "roles": dict(known.people.roles),
            "conversations": conversations_codec.encode(known.conversations),
            "cases": cases(known),
        }
        for known in (
            state(owner_here=True),
            state(owner_here=False),
            state(owner_here=True, by_invite=True),
        )
    ]
    return written("commands of peer/state/conversations.py, and why each may not be said", {"states": rows})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
