"""Writes mesh_facts.json: logs of what people say, may and owe, and bytes that are refused, for both languages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tracing import beside, written

from peer.errors import BadCommand
from peer.state.generated.commands import (
    AnswerAdopted,
    CheckFailed,
    ConversationChanged,
    ConversationRemoved,
    ConversationStarted,
    CutsFixed,
    EntryChosen,
    EntryOffered,
    EntryWithdrawn,
    FairnessChosen,
    Group,
    InviteRecorded,
    InviteRevoked,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MessageAdded,
    MessageEnded,
    MessageExtended,
    ModelChosen,
    ParticipantInvited,
    ParticipantLeft,
    ParticipantPutOut,
    ParticipantSet,
    PeerPardoned,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanStage,
    PlanWished,
    Profile,
    RoleGiven,
    RoleTaken,
    SignalingListed,
    StandbyReady,
    TransactionBegun,
    TransactionEnded,
    Work,
    WorkRecorded,
)
from peer.state.member_commands import Command, decode_command, encode_command
from peer.state.mesh_state import MeshState, apply_entry, decode_state, encode_state, refusal, state_digest

PATH = beside(__file__, "mesh_facts.json")
SEED = 20261128
LOGS = 6
OPS = 80
PEERS = ("pb", "pa", "9", "10", "ä😀")
KEY = "AQ" + "x" * 42
SAMPLING = (700_000, 0, 900_000, 0, 1_000_000, -5, 0, 9_007_199_254_740_991)
S = [f"{n:032x}" for n in range(1, 6)]
MODEL = ModelChosen("a" * 64, "toy", 6, 128, 2, "latency")


@dataclass(frozen=True)
class Op:
    """An entry, `times` times: "%" becomes the number of the time in eight digits, "^" the one before."""

    entry: str
    times: int = 1

    def entries(self) -> Iterator[bytes]:
        for number in range(self.times):
            yield self.entry.replace("%", f"{number:08}").replace("^", f"{max(0, number - 1):08}").encode()


def op(command: Command, times: int = 1, *changes: tuple[str, str]) -> Op:
    entry = encode_command(command).decode()
    for old, new in changes:
        assert old in entry
        entry = entry.replace(old, new)
    return Op(entry, times)


def question(name: str, parent: str = "", words: str = "why?", peer: str = "pa") -> MessageAdded:
    return MessageAdded("c1", name, parent, peer, "to-model", words, 1000, "", "", (), 0)


def answer(name: str, parent: str, session: str = S[0], peer: str = "pa") -> MessageAdded:
    return MessageAdded("c1", name, parent, peer, "answer", "", 1001, session, "a" * 64, SAMPLING, 256)


def started(name: str = "c1") -> ConversationStarted:
    return ConversationStarted(name, "größer 😀", "", "be \u2028kind", SAMPLING, 999, "pa", "Ada", "#3366cc")


def work(
    session: int, first: int, stop: int, units: tuple[int, int] = (0, 3), peer: str = "pa", **more: int
) -> Work:
    return Work(
        S[session],
        more.get("started", 5000 + session),
        peer,
        "pb",
        (first, stop),
        units,
        more.get("milli", 7),
    )


CONVERSATION: tuple[Command, ...] = (
    question("m1"),
    started(),
    started(),
    ParticipantSet("c1", "pb", "Bo", "#cc6633", "member"),
    ParticipantSet("c1", "pb", "Bob", "#cc6633", "viewer"),
    ParticipantLeft("c1", "10"),
    question("m1"),
    question("m1"),
    question("m2", "m9"),
    MessageAdded("c1", "m2", "m1", "pb", "to-people", "psst: ä\u2029", 1000, "", "", (), 0),
    MessageAdded("c1", "m3", "m1", "pb", "answer", "", 1000, "", "", (), 0),
    answer("m3", "m1"),
    MessageExtended("c1", "m3", 0, 3, "because "),
    MessageExtended("c1", "m3", 0, 3, "because "),
    MessageExtended("c1", "m3", 3, 2, "no"),
    MessageExtended("c1", "m1", 0, 1, "no"),
    AnswerAdopted("c1", "m3", "pb", "10", S[1]),
    AnswerAdopted("c1", "m3", "pa", "pb", S[1]),
    AnswerAdopted("c1", "m3", "pa", "10", S[2]),
    MessageExtended("c1", "m3", 3, 5, "😀 it "),
    MessageEnded("c1", "m3", "stopped", 5, None, ""),
    MessageExtended("c1", "m3", 5, 6, "is"),
    AnswerAdopted("c1", "m3", "pb", "pb", S[3]),
    MessageEnded("c1", "m3", "done", 7, "because it is so", ""),
    AnswerAdopted("c1", "m3", "pb", "pa", S[3]),
    MessageEnded("c1", "m3", "failed", 7, None, "late"),
    question("m4", "", "why, exactly?"),
    answer("m5", "m4", S[4]),
    answer("m6", "m4", S[4]),
    MessageEnded("c1", "m6", "failed", 0, None, "nobody holds units 3-5"),
    MessageEnded("c1", "m0", "failed", 0, None, ""),
    ConversationChanged("c1", "other", "b" * 64, "", ()),
    ParticipantLeft("c1", "pa"),
    started("c0"),
    ConversationRemoved("c0"),
    ConversationRemoved("c0"),
    MessageExtended("c1", "m5", 0, 1, "x"),
)
ENTRIES: tuple[Command, ...] = (
    started(),
    EntryOffered("c2", KEY, "member", "pa", 5),
    ParticipantInvited("c1", KEY, "pb", "Bo", "#cc6633", "p" * 86),
    EntryOffered("c1", KEY, "member", "pa", 5),
    EntryOffered("c1", KEY, "viewer", "pa", 6),
    EntryOffered("c1", KEY[:-1] + "y", "viewer", "pa", 6),
    EntryChosen("c1", True),
    EntryChosen("c1", True),
    ParticipantInvited("c1", KEY, "pb", "Bo", "#cc6633", "p" * 86),
    ParticipantInvited("c1", KEY[:-1] + "y", "pb", "Bo", "#cc6633", "p" * 86),
    ParticipantInvited("c1", KEY[:-1] + "y", "10", "größer 😀", "#cc6633", "p" * 86),
    ParticipantInvited("c1", KEY[:-1] + "z", "9", "x", "#cc6633", "p" * 86),
    ParticipantPutOut("c1", "9"),
    ParticipantPutOut("c1", "pb"),
    ParticipantInvited("c1", KEY, "pb", "Bo", "#cc6633", "p" * 86),
    ParticipantPutOut("c1", "10"),
    ParticipantSet("c1", "pb", "Bo", "#cc6633", "member"),
    EntryWithdrawn("c1", KEY),
    EntryWithdrawn("c1", KEY),
    ParticipantInvited("c1", KEY, "ä😀", "Cy", "#cc6633", "p" * 86),
    EntryChosen("c1", False),
)
PEOPLE: tuple[Command, ...] = (
    RoleGiven("pa", "owner"),
    RoleGiven("pb", "viewer"),
    RoleGiven("pb", "member"),
    RoleTaken("10"),
    InviteRecorded(KEY, "viewer", 0, 0, "pa", 5, '{"key":"ä"}'),
    InviteRecorded(KEY, "owner", 0, 0, "pb", 6, ""),
    InviteRevoked(KEY, "pa", 7, ""),
    InviteRevoked(KEY, "pb", 8, ""),
    InviteRevoked(KEY[:-1] + "y", "pb", 8, "never recorded"),
    RoleTaken("pb"),
)
WORK: tuple[Command, ...] = (
    WorkRecorded(()),
    WorkRecorded((work(0, 0, 32), work(0, 0, 32, (3, 6), "10"))),
    WorkRecorded((work(0, 0, 32),)),
    WorkRecorded((work(0, 31, 33), work(0, 32, 40), work(0, 32, 40))),
    WorkRecorded((work(0, 44, 48), work(0, 50, 51), work(0, 40, 44), work(0, 48, 50, (0, 2), "9"))),
    WorkRecorded((work(0, 48, 50, (2, 4)), work(0, 48, 50, (2, 3)))),
    WorkRecorded((work(0, 60, 61, started=4),)),
    WorkRecorded((work(1, 0, 1, milli=2**53 - 1),)),
    WorkRecorded((work(2, 0, 1, milli=2**53 - 100),)),
    WorkRecorded((work(2, 0, 1, peer="pb"), work(3, 0, 1, started=0))),
)

PROFILE = Profile(1, 0, {"ffn": 5}, {"ffn": 5}, {"ffn": 5}, 1, "cpu", 2)


def wrong(peer: str, by: str, position: int = 9, units: tuple[int, int] = (0, 3)) -> CheckFailed:
    return CheckFailed(S[0], position, units, peer, by, 70)


FAIR: tuple[Command, ...] = (
    FairnessChosen("open", 2_000_000, 20_000),
    FairnessChosen("fair", 5, 20_000),
    MemberJoined("pa", "tab", True),
    MemberJoined("9", "box", True),
    MemberJoined("10", "guest", False),
    MemberMeasured("pa", PROFILE, ()),
    WorkRecorded((work(0, 0, 32), work(1, 0, 32), work(0, 0, 32, (3, 6), "9"))),
    wrong("pa", "pa"),
    wrong("pa", "9"),
    wrong("pa", "9"),
    wrong("pa", "10", 8),
    wrong("pa", "10", 9, (0, 4)),
    wrong("9", "pa"),
    wrong("pa", "10"),
    wrong("pa", "pb"),
    wrong("9", "pa", 10),
    WorkRecorded((work(2, 0, 32), work(0, 32, 40))),
    WorkRecorded((work(2, 0, 32), work(2, 0, 32, (3, 6), "9"))),
    *(
        WorkRecorded((work(0, 40 + n, 41 + n, (3, 6), "9"), work(n % 5, 90 + n, 91 + n, (4, 6), "9")))
        for n in range(6)
    ),
    MemberMeasured("pa", PROFILE, ()),
    MemberJoined("pa", "tab", True),
    MemberMeasured("pa", PROFILE, ()),
    PeerPardoned("9"),
    PeerPardoned("pa"),
    PeerPardoned("pa"),
    wrong("pa", "9"),
    MemberLeaving("9"),
    wrong("9", "pa"),
    wrong("9", "pb"),
    wrong("pb", "9"),
    wrong("10", "pa"),
    wrong("10", "pb"),
    wrong("gone", "pa"),
    wrong("gone", "pb"),
    FairnessChosen("off", 5, 20_000),
    WorkRecorded((work(2, 32, 33),)),
)


def a_plan(version: int) -> PlanProposed:
    return PlanProposed(PlanRecord(version, (PlanStage(0, 3, "pa", ("pb",)), PlanStage(3, 6, "pa")), 1, 2))


UPKEEP: tuple[Command, ...] = (
    MODEL,
    MemberJoined("pa", "tab", True),
    MemberJoined("pb", "box", True, True, True, 2),
    StandbyReady("pb", 1, ((0, 3),)),
    a_plan(1),
    StandbyReady("pb", 1, ((0, 3),)),
    StandbyReady("10", 1, ((0, 3),)),
    PlanActivated(2),
    PlanActivated(1),
    a_plan(2),
    StandbyReady("pa", 2, ((0, 3), (3, 6))),
    StandbyReady("pb", 1, ()),
    PlanActivated(2),
    StandbyReady("pb", 1, ((0, 3),)),
    MemberLeft("pa", "left"),
    MemberJoined("pb", "box", True, True, True, 1),
    MemberJoined("pb", "box", True),
    MemberLeft("pb", "lost"),
    MemberJoined("pb", "box", True),
    MemberJoined("pb", "box", True, False, True, 3),
    MemberJoined("pb", "box", True, False, True, 3),
    SignalingListed(("https://one.example:8443", "http://[::1]:8080/base")),
    SignalingListed(()),
    CutsFixed((3, 9)),
    CutsFixed(()),
    CutsFixed(None),
    PlanWished("attention-ffn", "latency"),
    PlanWished("component", "memory", (Group("low ä", 0, 2, "pa"), Group("high", 2, 6, ""))),
    SignalingListed(("http://127.0.0.1:8080",)),
    TransactionBegun("t1", "pa", "load", (0, 3), "", "", 10),
    TransactionBegun("t1", "pb", "unload", (0, 3), "", "", 11),
    TransactionBegun("t2", "pa", "migrate", (3, 6), "", "pb", 12),
    TransactionBegun("t3", "pa", "open", None, S[0], "", 13),
    TransactionEnded("t2", "rolled-back", "pb left"),
    TransactionEnded("t2", "committed", ""),
    TransactionEnded("t9", "committed", ""),
    TransactionEnded("t1", "committed", ""),
    MODEL,
)
SKIPPED = (
    Op('{"kind":"VoteOfConfidence","by":["pa",{"weight":-3,"why":"\\ud83d half"}],"when":null}'),
    Op('  {"kind" : "Later"}'),
    Op("not JSON"),
    Op('{"kind":"PlanActivated","version":"one"}'),
    Op('{"kind":"Later","ratio":1.5}'),
    Op('{"kind":"Later","huge":12345678901234567}'),
    Op('{"kind":"MemberLeaving","peer":"pa","since":{"version":3}}'),
    Op('{"kind":"Later","number":"%"}', 70),
    Op('{"kind":"Later","words":"' + "ä" * 15000 + '"}', 3),
    Op('{"kind":"Later","words":"' + "x" * 65536 + '"}'),
)
FULL = (
    op(question("m"), 1),
    op(started(), 300, ('"c1"', '"c%"')),
    op(ConversationRemoved("c00000000")),
    op(started()),
    op(ParticipantSet("c1", "p", "Bo", "#cc6633", "viewer"), 300, ('"p"', '"p%"')),
    op(question("m00000000")),
    op(question("m", "p"), 300, ('"m"', '"m%"'), ('"p"', '"m^"')),
    op(answer("m", "m00000009"), 1),
    op(MessageExtended("c1", "m", 0, 0, "ä" * 20000), 3),
    op(InviteRecorded(KEY, "viewer", 0, 0, "pa", 5, ""), 1100, ("x" * 8, "%"), (":5", ":1%")),
    op(InviteRecorded(KEY, "viewer", 0, 0, "pa", 5, "")),
    op(TransactionBegun("t", "pa", "load", (0, 3), "", "", 1), 10, ('"t"', '"t%"')),
    op(TransactionEnded("t00000003", "committed", "")),
    op(TransactionBegun("u", "pa", "load", (0, 3), "", "", 1), 600, ('"u"', '"u%"')),
    op(WorkRecorded((work(0, 77, 78),)), 70, ("[77,78]", "[1%0,1%1]")),
    op(WorkRecorded((work(0, 1, 10**9), work(0, 1, 2, (3, 4)))), 1),
)
MANY = WorkRecorded(
    tuple(Work(f"{n:024x}" + "7" * 8, 5000, "pa", "pb", (0, 4), (0, 3), 7) for n in range(64))
)
SESSIONS = (
    op(MANY, 70, ("7" * 8, "%"), (":5000", ":1%")),
    op(MANY, 70, ("7" * 8, "%"), (":5000", ":1%")),
    op(MANY, 70, ("7" * 8, "%"), (":5000", ":1%"), ("[0,4]", "[4,8]")),
    op(WorkRecorded((work(0, 0, 4, started=3),))),
)
LONG = (
    op(started()),
    op(question("m00000000")),
    op(question("m", "p", "and then? " * 12), 10_000, ('"m"', '"m%"'), ('"p"', '"m^"')),
    op(answer("a", "m00009999")),
    op(MessageExtended("c1", "a", 0, 1, "so ")),
)


def some_command(rng: random.Random) -> Command:
    peer, other = rng.choice(PEERS), rng.choice(PEERS)
    conversation = rng.choice(("c1", "c1", "c1", "c2"))
    message = f"m{rng.randrange(12)}"
    parent = rng.choice(("", f"m{rng.randrange(12)}"))
    session = rng.choice(S)
    is_answer = rng.random() < 0.5
    tokens = rng.randrange(4)
    words = rng.choice(("", "so", "größer 😀", '"\\\n'))
    entries = tuple(
        work(
            rng.randrange(5),
            first := rng.randrange(20),
            first + rng.randint(1, 5),
            rng.choice(((0, 3), (3, 6), (2, 4))),
            peer,
        )
        for _ in range(rng.randint(0, 4))
    )
    added = MessageAdded(
        conversation,
        message,
        parent,
        peer,
        "answer" if is_answer else rng.choice(("to-model", "to-people")),
        words,
        rng.randrange(10**12),
        session if is_answer else "",
        "",
        SAMPLING if is_answer else (),
        64,
    )
    extended = MessageExtended(conversation, message, tokens, tokens + rng.randrange(3), words)
    ended = MessageEnded(
        conversation, message, rng.choice(("done", "stopped", "failed")), 9, rng.choice((None, words)), words
    )
    begun = TransactionBegun(f"t{rng.randrange(9)}", peer, "unload", rng.choice(((0, 3), None)), "", other, 1)
    key = KEY[:-1] + rng.choice("xyz")
    return rng.choices(
        (
            ConversationStarted(conversation, words, "", words, SAMPLING, 1, peer, "Ada", "#3366cc"),
            ConversationChanged(conversation, words, "", words, ()),
            ConversationRemoved("c2"),
            ParticipantSet(conversation, peer, words, "#000000", rng.choice(("owner", "member", "viewer"))),
            ParticipantLeft(conversation, peer),
            added,
            extended,
            ended,
            AnswerAdopted(conversation, message, peer, other, session),
            WorkRecorded(entries),
            RoleGiven(peer, "member"),
            RoleTaken(peer),
            InviteRecorded(key, "viewer", 1, 2, peer, 3, words),
            InviteRevoked(key, peer, 3, words),
            MemberJoined(peer, "x", True, True, False, rng.randrange(3)),
            MemberLeft(peer, "left"),
            a_plan(rng.randint(1, 3)),
            PlanActivated(rng.randint(1, 3)),
            StandbyReady(peer, rng.randint(1, 3), ((0, 3),)),
            begun,
            TransactionEnded(f"t{rng.randrange(9)}", "committed", words),
            CheckFailed(session, rng.randrange(2), (0, 3), peer, other, 70),
            PeerPardoned(peer),
            SignalingListed(("https://a.example",) * rng.randrange(3)),
            EntryChosen(conversation, is_answer),
            EntryOffered(conversation, key, rng.choice(("member", "viewer")), peer, 4),
            EntryWithdrawn(conversation, key),
            ParticipantInvited(conversation, key, peer, words, "#000000", "p" * 86),
            ParticipantPutOut(conversation, peer),
        ),
        (3, 1, 1, 2, 1, 12, 8, 4, 4, 8, 1, 1, 1, 1, 3, 1, 2, 2, 3, 2, 6, 1, 2, 1, 1, 2, 1, 2, 1),
    )[0]


def logs() -> list[dict[str, Any]]:
    made = [
        logged("a conversation", map(op, CONVERSATION)),
        logged("roles and invites", map(op, PEOPLE)),
        logged("how one comes into a conversation", map(op, ENTRIES)),
        logged("work", map(op, WORK)),
        logged("fairness", map(op, FAIR)),
        logged("upkeep", map(op, UPKEEP)),
        logged("what is not known", SKIPPED),
        logged("everything full", FULL, shown=False),
        logged("sessions that are forgotten", SESSIONS, shown=False),
        logged("a long conversation", LONG, shown=False),
    ]
    for number in range(LOGS):
        rng = random.Random(SEED + number)
        made.append(
            logged(f"random log of seed {SEED + number}", [op(some_command(rng)) for _ in range(OPS)])
        )
    return made


def logged(name: str, ops: Any, shown: bool = True) -> dict[str, Any]:
    state = MeshState(term=3)
    rows = []
    for each in ops:
        reasons = []
        for entry in each.entries():
            reasons.append(why(state, entry))
            state = apply_entry(state, entry)
        rows.append(
            {
                "entry": each.entry,
                "times": each.times,
                "refusal": reasons[-1],
                "refused": sum(map(bool, reasons)),
                "digest": state_digest(state),
            }
        )
    return {"name": name, "term": 3, "ops": rows, "state": encode_state(state).decode() if shown else ""}


def why(state: MeshState, entry: bytes) -> str:
    try:
        return refusal(state, decode_command(entry))
    except BadCommand:
        return "BadCommand"


# --- bytes ------------------------------------------------------------------------------------------------


def grown(*commands: Command) -> dict[str, Any]:
    state = MeshState()
    for command in commands:
        state = apply_entry(state, encode_command(command))
    found: dict[str, Any] = json.loads(encode_state(state))
    return found


def changed(body: dict[str, Any], path: str, value: Any) -> str:
    """`body` as JSON with `value` at `path`, or without what stands there."""
    copy = json.loads(json.dumps(body))
    *way, last = path.split("/")
    at = copy
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if value is GONE:
        del at[last]
    else:
        at[last] = value
    return json.dumps(copy, ensure_ascii=False)


GONE = object()
DEEP = '{"kind":"Later","deep":' + "[" * 31 + "]" * 31 + "}"


def commands() -> Iterator[tuple[str, str]]:
    yield "good, a kind that is not known", '{"kind":"Later"}'
    yield "good, no text of the rules in a field that is not known", '{"kind":"Later","why":"\\ud83d"}'
    yield "good, as deep as may be", DEEP
    yield "good, more deep brackets in a text", '{"kind":"Later","why":"' + "[" * 40 + '\\"{{\\\\"}'
    yield "too deep where nobody looks", DEEP.replace("[]", "[[]]")
    yield "far too deep where nobody looks", '{"kind":"Later","deep":' + "[" * 5000 + "]" * 5000 + "}"
    yield "a fraction where nobody looks", '{"kind":"MemberLeaving","peer":"a","more":[0.5]}'
    yield "an exponent where nobody looks", '{"kind":"MemberLeaving","peer":"a","more":[1E2]}'
    yield "good, 16 digits where nobody looks", '{"kind":"MemberLeaving","peer":"a","more":-9999999999999999}'
    yield "17 digits where nobody looks", '{"kind":"MemberLeaving","peer":"a","more":10000000000000000}'
    yield "not a number where nobody looks", '{"kind":"MemberLeaving","peer":"a","more":NaN}'
    yield "infinity where nobody looks", '{"kind":"MemberLeaving","peer":"a","more":[-Infinity]}'
    yield "good, digits and points in a text", '{"kind":"Later","why":"1.5 12345678901234567 NaN"}'
    yield "good, minus nothing", '{"kind":"PlanActivated","version":-0}'
    yield "good, the last of two", '{"kind":"PlanActivated","version":"x","version":1}'
    yield "a mark of byte order", '\ufeff{"kind":"PlanActivated","version":1}'
    yield "a kind too long", json.dumps({"kind": "x" * 513})
    yield "half a character for a kind", '{"kind":"\\ud83d"}'
    good: dict[str, tuple[Command, list[tuple[str, Any]]]] = {
        "an answer": (
            answer("m1", "m0"),
            [
                ("id", ""),
                ("id", "m 1"),
                ("id", "x" * 65),
                ("id", "m1\n"),
                ("parent", "x" * 65),
                ("form", "system"),
                ("session", "0" * 31),
                ("session", "A" * 32),
                ("session", S[0] + "\n"),
                ("text", "x" * 65537),
                ("text", "😀" * 16385),
                ("text", "\ud83d"),
                ("sampling", [1] * 33),
                ("sampling", [-(2**53)]),
                ("sampling", [True]),
                ("sampling", None),
                ("max_tokens", -1),
                ("when_ms", GONE),
            ],
        ),
        "an end": (
            MessageEnded("c", "m", "done", 1, None, ""),
            [("state", "running"), ("text", 1), ("reason", "x" * 513)],
        ),
        "an adoption": (AnswerAdopted("c", "m", "a", "b", S[0]), [("session", "")]),
        "a start": (
            started(),
            [("colour", "#3366CC"), ("colour", "red"), ("conversation", "ä"), ("system", 5)],
        ),
        "a role": (RoleGiven("pa", "owner"), [("role", "founder"), ("peer", None)]),
        "an invite": (
            InviteRecorded(KEY, "viewer", 0, 0, "pa", 5, ""),
            [("key", "x" * 43), ("key", "A" + "x" * 43), ("key", KEY + "="), ("role", ""), ("uses", "1")],
        ),
        "an invite to a conversation": (
            EntryOffered("c", KEY, "member", "pa", 5),
            [("key", KEY + "x"), ("role", "owner"), ("when_ms", -1), ("conversation", "")],
        ),
        "somebody who was invited": (
            ParticipantInvited("c", KEY, "pa", "Ada", "#3366cc", "p" * 86),
            [("proof", "p" * 85), ("proof", "+" * 86), ("colour", "red"), ("key", GONE)],
        ),
        "a way into a conversation": (EntryChosen("c", True), [("by_invite", 1), ("by_invite", GONE)]),
        "work": (
            WorkRecorded((work(0, 0, 4),)),
            [
                ("entries/0", {}),
                ("entries/0/positions", [4, 4]),
                ("entries/0/units", [0, 1, 2]),
                ("entries/0/milli", -1),
                ("entries/0/session", ""),
                ("entries", {}),
                ("entries", [json.loads(encode_command(WorkRecorded((work(0, 0, 4),))))["entries"][0]] * 257),
            ],
        ),
        "a choice of fairness": (
            FairnessChosen("fair", 5, 20_000),
            [("policy", "none"), ("policy", None), ("allowance_milli", -1), ("checks_ppm", None)],
        ),
        "a finding": (
            wrong("pa", "9"),
            [("session", "x"), ("units", [3, 3]), ("by", 1), ("position", -1), ("when_ms", GONE)],
        ),
        "a pardon": (PeerPardoned("pa"), [("peer", 3)]),
        "a transaction": (
            TransactionBegun("t1", "pa", "load", (0, 3), "", "", 10),
            [("operation", "steal"), ("units", [3, 0]), ("units", 3), ("to", None)],
        ),
        "the end of a transaction": (TransactionEnded("t1", "committed", ""), [("state", "begun")]),
        "addresses": (
            SignalingListed(("https://a.example",)),
            [
                ("addresses", ["ftp://a.example"]),
                ("addresses", ["https://a.example/#secret"]),
                ("addresses", ["https://a b"]),
                ("addresses", ["https://"]),
                ("addresses", ["https://a.example"] * 17),
            ],
        ),
        "a wish": (
            PlanWished("component", "balanced", (Group("all", 0, 6, "pb"),)),
            [
                ("strategy", "best"),
                ("goal", "cost"),
                ("components", None),
                ("components", [{"name": "x", "first": -1, "stop": 2, "prefers": ""}]),
                ("components", [{"name": "x", "first": 0, "stop": 2, "prefers": ""}] * 65),
            ],
        ),
        "a member": (
            MemberJoined("a", "n", True, True, True, 3),
            [("headless", 1), ("durable", None), ("incarnation", -1)],
        ),
    }
    for name, (command, faults) in good.items():
        body = json.loads(encode_command(command))
        yield f"good, {name}", json.dumps(body, ensure_ascii=False)
        for path, value in faults:
            if path.startswith("entries/0"):
                copy = json.loads(json.dumps(body))
                if path == "entries/0":
                    copy["entries"][0] = value
                else:
                    copy["entries"][0][path.rsplit("/", 1)[1]] = value
                yield f"{name}: {path}", json.dumps(copy)
            else:
                yield f"{name}: {path}", changed_ascii(body, path, value)
    member = json.loads(encode_command(MemberJoined("a", "n", True, True, True, 3)))
    for later in ("headless", "durable", "incarnation"):
        yield f"good, a member without {later}", changed(member, later, GONE)


def changed_ascii(body: dict[str, Any], path: str, value: Any) -> str:
    text = changed(body, path, value)
    return text.replace("\ud83d", "\\ud83d")


def states() -> Iterator[tuple[str, str]]:
    body = grown(
        *UPKEEP[:6],
        *CONVERSATION[:14],
        *PEOPLE[:7],
        *WORK[:3],
        wrong("pa", "9"),
        wrong("pa", "10"),
        wrong("9", "10"),
        SignalingListed(("https://a.example",)),
        TransactionBegun("t1", "pa", "load", (0, 3), "", "", 10),
    )
    yield "good", json.dumps(body)
    yield "without cuts", changed(body, "cuts", GONE)
    yield "a map for cuts", changed(body, "cuts", {})
    yield "good, cuts", changed(body, "cuts", [1, 2])
    yield "a negative cut", changed(body, "cuts", [-1])
    later = ("people", "conversations", "ledger", "standbys", "transactions", "signaling", "incarnations")
    for name in (*later, "skipped"):
        yield f"without {name}", changed(body, name, GONE)
        yield (
            f"a list for {name}" if name not in ("transactions", "signaling") else f"a map for {name}",
            changed(body, name, {} if name in ("transactions", "signaling") else []),
        )
    yield "good, a field that is not known", changed(body, "later", {"deep": [1, "x"]})
    for later_field in ("headless", "durable", "incarnation"):
        yield f"good, a member without {later_field}", changed(body, f"members/pa/{later_field}", GONE)
    messages = body["conversations"]["c1"]["messages"]
    at = "conversations/c1/messages"
    entry = "conversations/c1/entry"
    yield "good, a conversation without an entry", changed(body, entry, GONE)
    yield "an entry without offers", changed(body, entry, {"by_invite": True, "barred": []})
    yield "too many put out", changed(body, f"{entry}/barred", ["x"] * 257)
    yield (
        "an owner by invite",
        changed(body, f"{entry}/offers", {KEY: {"role": "owner", "by": "pa", "when_ms": 1}}),
    )
    yield "a message twice", changed(body, at, [*messages, messages[0]])
    yield "a message before the one that it follows", changed(body, at, messages[::-1])
    yield "a message that follows nothing", changed(body, at, messages[1:])
    yield "a message that follows itself", changed(body, at, [{**messages[0], "parent": messages[0]["id"]}])
    yield "a message of another state", changed(body, at, [{**messages[0], "state": "lost"}])
    sessions = "ledger/sessions"
    yield "an area of three", changed(body, f"{sessions}/{S[0]}/areas", [[0, 3, 0]])
    yield "an empty area", changed(body, f"{sessions}/{S[0]}/areas", [[0, 3, 4, 4]])
    yield (
        "too many areas",
        changed(body, f"{sessions}/{S[0]}/areas", [[0, 3, 2 * n, 2 * n + 1] for n in range(65)]),
    )
    yield "a balance below zero", changed(body, "ledger/balances/pa", {"earned": -1, "spent": 0})
    yield "good, without fairness", changed(body, "fairness", GONE)
    yield "good, without a wish", changed(body, "wish", GONE)
    yield "a wish for nothing", changed(body, "wish", {"strategy": "", "goal": "latency", "components": []})
    yield "a policy that nobody knows", changed(body, "fairness/policy", "closed")
    yield "a conviction without words", changed(body, "fairness/quarantined/pa/by", GONE)
    yield "too many sessions served", changed(body, "fairness/served", {"pa": [S[0]] * 9})
    yield "a finding of half a step", changed(body, "fairness/findings", [{"session": S[0]}])
    yield "a role of nobody", changed(body, "people/roles", {"pa": "king"})
    yield "what is kept is no list", changed(body, "skipped/kept", "x")
    yield "too much is kept", changed(body, "skipped/kept", ["x" * 65536, "y"])
    yield "good, as much as may be kept", changed(body, "skipped/kept", ["x" * 65535, "y"])
    yield "too many are kept", changed(body, "skipped/kept", ["x"] * 65)
    yield "an incarnation in words", changed(body, "incarnations", {"pa": "3"})
    yield "a standby that is ready for nothing", changed(body, "standbys", {"pa": {"version": 1}})


def wire() -> list[dict[str, Any]]:
    rows = []
    for what, cases, decode in (("command", commands(), decode_command), ("state", states(), decode_state)):
        for about, body in cases:
            try:
                decode(body.encode())
                error = "none"
            except BadCommand:
                error = "BadCommand"
            assert (error == "none") == about.startswith("good"), about
            rows.append({"why": about, "what": what, "body": body, "error": error})
    return rows


def text() -> str:
    about = (
        "logs: entries applied to an empty state of `term`. An entry is applied `times` times, each time with % as "
        "the number of the time in eight digits and ^ as the one before (0 at first); `refusal` is why the last of "
        "them has no effect, `refused` how many have none, `digest` that of the state after them, `state` the last "
        "state (left out of the longest logs). "
        "wire: bytes and whether decoding them raises BadCommand."
    )
    return written(about, {"wire": wire(), "logs": logs()})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
