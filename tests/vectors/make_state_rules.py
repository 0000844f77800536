"""Writes state_rules.json: who may propose what, who may ask, what a mesh with older voters may not say, and whose
answer a session is, each in states that commands build.
"""

from __future__ import annotations

from typing import Any

from tracing import beside, written

from peer.state.conversations import asker_of, thread
from peer.state.decoders import mark_of
from peer.state.fairness import counted_milli, may_ask
from peer.state.generated.commands import (
    AnswerAdopted,
    CheckFailed,
    ConversationStarted,
    CutsFixed,
    DecoderOffered,
    DecoderRefused,
    EntryChosen,
    EntryOffered,
    FairnessChosen,
    HeldSlice,
    InviteRecorded,
    InviteRevoked,
    MemberJoined,
    MemberLeft,
    MemberRenamed,
    MessageAdded,
    MessageEnded,
    ModelChosen,
    ModelOffered,
    ModelPlaced,
    ModelWithdrawn,
    ParticipantPutOut,
    ParticipantSet,
    PeerPardoned,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    PlanStage,
    PlanWished,
    Protection,
    ProtectionChosen,
    RoleGiven,
    RoleTaken,
    SignalingListed,
    StandbyReady,
    TransactionBegun,
    TransactionEnded,
    UnitsHeld,
    Work,
    WorkRecorded,
)
from peer.state.member_commands import Command, encode_command
from peer.state.mesh_state import MeshState, apply
from peer.state.proposal_rights import may_say
from peer.state.protection import PRESETS, level_of
from peer.state.version_negotiation import needed_by, needed_to_lead, too_new

PATH = beside(__file__, "state_rules.json")
GREY = "#888888"
KEY = "AQ" + "x" * 42
PEERS = ("boss", "ann", "bob", "tab", "gone")
SESSIONS = tuple(f"{number:032x}" for number in range(1, 5))


def said(number: str, parent: str, author: str, form: Any = "to-model", session: str = "") -> MessageAdded:
    return MessageAdded("c", number, parent, author, form, number * 3, 5, session, "", (), 9)


def begun(number: str, peer: str) -> TransactionBegun:
    return TransactionBegun(number, peer, "load", (0, 2), "", "", 7)


BASE: tuple[Command, ...] = (
    ModelChosen("a" * 64, "toy", 6, 128, 2, "latency"),
    MemberJoined("boss", "Boss", True, True, True),
    MemberJoined("ann", "Ann", True, True, False),
    MemberJoined("bob", "Bob", True),
    MemberJoined("tab", "Tab", False),
    RoleGiven("boss", "owner"),
    begun("1" * 32, "ann"),
    begun("2" * 32, "bob"),
    TransactionEnded("2" * 32, "committed", ""),
)
TALK: tuple[Command, ...] = (
    ConversationStarted("c", "t", "", "", (), 1, "ann", "Ann", GREY),
    ParticipantSet("c", "bob", "Bob", GREY, "member"),
    said("q1", "", "ann"),
    said("a1", "q1", "ann", "answer", SESSIONS[0]),
    MessageEnded("c", "a1", "done", 3, "yes", ""),
    said("q2", "a1", "bob"),
    said("a2", "q2", "bob", "answer", SESSIONS[1]),
    said("q3", "a1", "ann", "to-people"),
    said("q4", "q3", "ann"),
    said("a4", "q4", "ann", "answer", SESSIONS[2]),
    AnswerAdopted("c", "a4", "ann", "bob", SESSIONS[3]),
)
INVITED: tuple[Command, ...] = (*TALK, EntryChosen("c", True))
OFFERED: tuple[Command, ...] = (*TALK, EntryOffered("c", KEY, "member", "ann", 1))
BARRED: tuple[Command, ...] = (*TALK, ParticipantPutOut("c", "bob"))


def worked(session: str, peer: str, asker: str, milli: int) -> WorkRecorded:
    return WorkRecorded((Work(session, 1, peer, asker, (0, 8), (0, 6), milli),))


def owing(policy: Any, allowance_milli: int) -> tuple[Command, ...]:
    """Ann owes 90.5 credits, Bob has as many, the tab owes nothing."""
    return (
        *BASE,
        FairnessChosen(policy, allowance_milli, 0),
        worked(SESSIONS[0], "bob", "ann", 60_000),
        worked(SESSIONS[1], "bob", "ann", 30_500),
    )


DECODER = DecoderOffered("more", "c" * 64, 6, 128, 2, "latency")
PLANNED = PlanProposed(PlanRecord(1, (PlanStage(0, 6, "ann"),), 5, 9))
TEAMED = PlanProposed(PlanRecord(1, (PlanStage(0, 6, "ann", helpers=("bob",), shares=(2, 1)),), 5, 9))
SLICED = UnitsHeld("ann", (), (HeldSlice(0, 6, 0, (2, 1)),))

STATES: dict[str, tuple[Command, ...]] = {
    "nobody": (),
    "a mesh": BASE,
    "people talk": (*BASE, *TALK),
    "by invitation": (*BASE, *INVITED),
    "a link is out": (*BASE, *OFFERED),
    "somebody was put out": (*BASE, *BARRED),
    "a model is offered": (*BASE, *INVITED, ModelOffered("b" * 64, "other")),
    "it was withdrawn": (*BASE, ModelOffered("b" * 64, "other"), ModelWithdrawn("other")),
    "a model for words is offered": (*BASE, *INVITED, ModelOffered("b" * 64, "other"), DECODER),
    "a plan has no team": (*BASE, PLANNED),
    "a team is planned": (*BASE, DECODER, TEAMED),
    "a team serves": (
        *BASE,
        TEAMED,
        SLICED,
        UnitsHeld("bob", (), (HeldSlice(0, 6, 1, (2, 1)),)),
        PlanActivated(1),
    ),
    "a slice is held": (*BASE, SLICED),
    "a team is wished for": (*BASE, PlanWished("tensor", "latency")),
    "who owes much may not ask": owing("fair", 90_000),
    "as much as is allowed": owing("fair", 90_500),
    "balances order": owing("open", 0),
    "nothing is counted": owing("off", 0),
    "an owner left": (*BASE, MemberLeft("boss", "left")),
}


def proposals(peer: str) -> tuple[Command, ...]:
    """One of each command that somebody may propose, in the name of `peer` where it has one."""
    return (
        StandbyReady(peer, 1, ((0, 2),)),
        begun("3" * 32, peer),
        TransactionEnded("1" * 32, "committed", ""),
        TransactionEnded("2" * 32, "rolled-back", "no room"),
        TransactionEnded("9" * 32, "committed", ""),
        CheckFailed(SESSIONS[0], 4, (0, 2), "bob", peer, 9),
        SignalingListed(("https://example.org",)),
        CutsFixed((3,)),
        PlanWished("layer", "latency"),
        ProtectionChosen(PRESETS["high"]),
        RoleGiven("bob", "viewer"),
        RoleTaken("bob"),
        InviteRecorded(KEY, "member", 0, 1, peer, 5, ""),
        InviteRevoked(KEY, peer, 5, ""),
        FairnessChosen("off", 0, 0),
        PeerPardoned("bob"),
        ModelOffered("b" * 64, "other"),
        ModelWithdrawn("other"),
        ModelPlaced("other", 9, (), 0, 0, ()),
        DECODER,
        DecoderRefused("more", "no"),
        MemberJoined(peer, "x", True),
        MemberRenamed("bob", "x"),
        PlanRefused("no"),
        worked(SESSIONS[0], peer, "ann", 5),
        said("m", "a1", peer),
        ParticipantSet("c", peer, "x", GREY, "member"),
    )


def spelled(command: Command) -> str:
    return encode_command(command).decode()


def row(name: str, commands: tuple[Command, ...]) -> dict[str, Any]:
    state = MeshState()
    for command in commands:
        state = apply(state, command)
    talk = state.conversations.get("c")
    messages = talk.messages if talk is not None else ()
    says = [
        [peer, spelled(command), may_say(state, peer, command)]
        for peer in PEERS
        for command in proposals(peer)
    ]
    return {
        "name": name,
        "commands": [spelled(command) for command in commands],
        "may_say": says,
        "may_ask": {peer: may_ask(state.fairness, state.ledger, peer) for peer in PEERS},
        "counted_milli": {peer: counted_milli(state.fairness, state.ledger, peer) for peer in PEERS},
        "needed_to_lead": needed_to_lead(state),
        "marks": {name: mark_of(name, each.model).hex() for name, each in state.decoders.items()},
        "asker_of": {session: asker_of(state.conversations, session) for session in SESSIONS},
        "thread": {
            leaf: [message.id for message in thread(messages, leaf)]
            for leaf in ("a2", "a4", "q3", "none", "")
        },
    }


def versions() -> list[dict[str, Any]]:
    speak = {"old": 3, "new": 4, "newer": 5}
    offer = ModelOffered("b" * 64, "other")
    commands: tuple[Command, ...] = (
        *(EntryChosen("c", True), said("m", "", "ann"), *BASE[:1], offer, DECODER),
        *(PlanWished("hybrid", "latency"), PlanWished("tensor", "latency", (), 5)),
        *(PLANNED, TEAMED, UnitsHeld("ann", ((0, 1),)), SLICED),
    )
    voters: tuple[tuple[str, ...], ...] = ((), ("old",), ("new",), ("new", "old", "newer"), ("new", "newer"))
    return [
        {
            "command": spelled(command),
            "needed": needed_by(command),
            "voters": list(group),
            "speaks": {peer: speak[peer] for peer in group},
            "why": too_new(command, group, speak.__getitem__),
        }
        for command in commands
        for group in voters
    ]


def levels() -> list[dict[str, Any]]:
    other = Protection(1750, False, "log", "simple", True, ("head",), False, 1, 2)
    chosen = [*PRESETS.values(), other]
    return [
        {"command": spelled(ProtectionChosen(protection)), "level": level_of(protection)}
        for protection in chosen
    ]


def text() -> str:
    tables = {
        "states": [row(name, commands) for name, commands in STATES.items()],
        "versions": versions(),
        "levels": levels(),
    }
    return written("rules of peer/state in states that commands build", tables)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
