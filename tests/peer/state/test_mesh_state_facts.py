"""What people say, may and owe: each command has its effect or says why not, and nothing counts twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from peer.errors import BadCommand
from peer.state.conversations import CHUNK, Messages, thread
from peer.state.generated.commands import (
    MAX_KEPT,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGES,
    AnswerAdopted,
    CheckFailed,
    ConversationChanged,
    ConversationRemoved,
    ConversationStarted,
    CutsFixed,
    DecoderActivated,
    DecoderHeld,
    DecoderOffered,
    DecoderPlanned,
    DecoderRefused,
    EntryChosen,
    EntryOffered,
    EntryWithdrawn,
    FairnessChosen,
    Group,
    InviteRecorded,
    InviteRevoked,
    MemberCommand,
    MemberJoined,
    MessageAdded,
    MessageEnded,
    MessageExtended,
    ModelOffered,
    ModelPlaced,
    ModelWithdrawn,
    ParticipantInvited,
    ParticipantLeft,
    ParticipantPutOut,
    ParticipantSet,
    PeerPardoned,
    PlanRecord,
    PlanStage,
    PlanWished,
    RoleGiven,
    RoleTaken,
    RunStage,
    SignalingListed,
    StandbyReady,
    TransactionBegun,
    TransactionEnded,
    Work,
    WorkRecorded,
)
from peer.state.member_commands import (
    COMMANDS,
    Command,
    UnknownCommand,
    check_command,
    decode_command,
    encode_command,
)
from peer.state.mesh_state import (
    MeshState,
    apply,
    apply_entry,
    decode_state,
    encode_state,
    refusal,
    state_digest,
)
from peer.state.work_ledger import Ledger, tally

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "mesh_facts.json").read_text(encoding="utf-8"))
SESSION = "0" * 31 + "1"
KEY = "AQ" + "x" * 42
WORK = Work(SESSION, 5000, "a", "b", (0, 8), (0, 3), 24)
EXAMPLES: tuple[Command, ...] = (
    ConversationStarted("c", "Lunch", "", "be kind", (700_000, -5), 1, "a", "Ada", "#3366cc"),
    ConversationChanged("c", "Dinner", "m" * 64, "", ()),
    ParticipantSet("c", "b", "Bo", "#cc6633", "member"),
    MessageAdded("c", "m1", "", "a", "to-model", "why? ä\n", 2, "", "", (), 0),
    MessageAdded("c", "m2", "m1", "a", "answer", "", 3, SESSION, "m" * 64, (1, 2), 64),
    MessageExtended("c", "m2", 0, 1, "be"),
    AnswerAdopted("c", "m2", "a", "b", SESSION),
    MessageEnded("c", "m2", "done", 2, "because", ""),
    EntryChosen("c", True),
    EntryOffered("c", "AQ" + "x" * 42, "viewer", "pa", 7),
    EntryWithdrawn("c", "AQ" + "x" * 42),
    ParticipantInvited("c", "AQ" + "x" * 42, "pb", "Bo", "#cc6633", "p" * 86),
    ParticipantPutOut("c", "pb"),
    ParticipantLeft("c", "b"),
    RoleGiven("a", "owner"),
    InviteRecorded(KEY, "viewer", 0, 3, "a", 4, "{}"),
    InviteRevoked(KEY, "a", 5, ""),
    WorkRecorded((WORK,)),
    FairnessChosen("fair", 5, 20_000),
    CheckFailed("0" * 32, 7, (0, 3), "pa", "pb", 9),
    PeerPardoned("pa"),
    StandbyReady("a", 1, ((0, 3),)),
    TransactionBegun("t", "a", "migrate", (0, 3), "", "b", 6),
    TransactionEnded("t", "rolled-back", "b left"),
    SignalingListed(("https://one.example", "http://[::1]:8080")),
    RoleTaken("a"),
    ConversationRemoved("c"),
    CutsFixed((3, 9)),
    PlanWished("component", "memory", (Group("low", 0, 2, "pa"), Group("high", 2, 6, ""))),
    ModelOffered("b" * 64, "pp-ocr"),
    ModelPlaced("pp-ocr", 7, (RunStage(0, 2, "pa", ("pb",), 5), RunStage(2, 3, "pb")), 1, 2, ("because",)),
    ModelWithdrawn("pp-ocr"),
    DecoderOffered("more", "c" * 64, 6, 128, 2, "throughput"),
    DecoderPlanned("more", PlanRecord(7, (PlanStage(0, 6, "pa", ("pb",), 1, 2, 3),), 4, 5, ("because",))),
    DecoderActivated("more", 7),
    DecoderRefused("more", "5 MiB are missing"),
    DecoderHeld("more", "pa", ((0, 6),)),
)


def grown(*commands: Command, state: MeshState | None = None) -> MeshState:
    state = state or MeshState(term=1)
    for command in commands:
        state = apply(state, command)
    return state


def added(name: str, parent: str = "", words: str = "") -> MessageAdded:
    return MessageAdded("c", name, parent, "a", "to-model", words, 2, "", "", (), 0)


def messages(state: MeshState) -> Messages:
    return state.conversations["c"].messages


def test_every_command_of_these_has_an_example() -> None:
    assert {type(command) for command in EXAMPLES} == set(COMMANDS) - set(get_args(MemberCommand))


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: type(command).__name__)
def test_commands_survive_the_wire(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize("row", VECTORS["logs"], ids=lambda row: row["name"])
def test_a_restored_snapshot_goes_on_as_the_log_does(row: dict[str, Any]) -> None:
    """A learner that starts from a snapshot at any entry ends where those are that saw all of them."""
    entries = [op["entry"].encode() for op in row["ops"] if op["times"] == 1]
    state = restored = MeshState(term=row["term"])
    for entry in entries:
        state, restored = apply_entry(state, entry), apply_entry(restored, entry)
        snapshot = encode_state(restored)
        restored = decode_state(snapshot)
        assert restored == state
        assert encode_state(restored) == snapshot


def test_whatever_changes_in_bytes_nothing_but_bad_command_comes_of_it() -> None:
    rng = random.Random(11)
    bodies = [encode_command(command) for command in EXAMPLES]
    for cut in range(1, len(EXAMPLES)):
        bodies.append(encode_state(grown(*EXAMPLES[:cut])))
    state = grown(*EXAMPLES[:8])
    for _ in range(10_000):
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(body))
            match rng.randrange(3):
                case 0:
                    body[place] = rng.randrange(256)
                case 1:
                    del body[place : place + rng.randint(1, 9)]
                    body += b" "
                case _:
                    body.insert(place, rng.choice(b'0123456789"{}[],:-.eN\\'))
        after = apply_entry(state, bytes(body))
        assert after.index == state.index + 1
        try:
            read = decode_state(bytes(body))
        except BadCommand:
            continue
        assert decode_state(encode_state(read)) == read


# --- what a newer version says ----------------------------------------------------------------------------


def test_what_a_newer_version_says_is_kept_and_skipped() -> None:
    later = b' {"kind":"Later","more":[{"deep":null}]}'
    command = decode_command(later)
    assert command == UnknownCommand("Later", later)
    assert encode_command(command) == later
    state = grown(*EXAMPLES[:4])
    after = apply(state, command)
    assert after.skipped.count == 1
    assert after.skipped.kept == (later.decode(),)
    assert replace(after, index=state.index, skipped=state.skipped) == state
    assert decode_state(encode_state(after)) == after
    for number in range(MAX_KEPT):
        after = apply_entry(after, b'{"kind":"Later","number":%d}' % number)
    assert after.skipped.count == MAX_KEPT + 1
    assert len(after.skipped.kept) == MAX_KEPT
    assert later.decode() not in after.skipped.kept


def test_an_entry_that_is_no_command_is_skipped_alike() -> None:
    state = MeshState()
    for number, entry in enumerate(
        (b"", b"\xff", b"[]", b'{"kind":"PlanActivated","version":null}'), start=1
    ):
        state = apply_entry(state, entry)
        assert (state.index, state.skipped.broken, state.skipped.count) == (number, number, 0)


def test_a_state_of_an_older_version_is_read() -> None:
    body = json.loads(encode_state(grown(MemberJoined("a", "Ada", True))))
    for name in ("headless", "durable", "incarnation"):
        del body["members"]["a"][name]
    body["of a newer version"] = {"what": [1, None]}
    assert decode_state(json.dumps(body).encode()) == grown(MemberJoined("a", "Ada", True))


# --- conversations ----------------------------------------------------------------------------------------


def test_edited_questions_are_branches() -> None:
    state = grown(EXAMPLES[0], added("a"), added("b", "a"), added("c", "b"), added("d", "a"))
    assert [message.id for message in thread(messages(state), "c")] == ["a", "b", "c"]
    assert [message.id for message in thread(messages(state), "d")] == ["a", "d"]
    assert thread(messages(state), "x") == ()


def test_a_message_of_many_shares_all_chunks_but_one_with_the_state_before() -> None:
    state = grown(EXAMPLES[0], *(added(f"m{number}") for number in range(5 * CHUNK + 7)))
    answer = MessageAdded("c", "answer", "m0", "a", "answer", "", 3, SESSION, "", (), 64)
    state = apply(state, answer)
    for command in (added("last"), MessageExtended("c", "answer", 0, 1, "x")):
        after = apply(state, command)
        new = [
            one for one in messages(after).chunks if all(one is not other for other in messages(state).chunks)
        ]
        assert len(new) == 1
        assert len(new[0]) <= CHUNK
        assert after.members is state.members
    before = list(messages(state))
    assert [message.id for message in before] == [
        *(f"m{number}" for number in range(5 * CHUNK + 7)),
        "answer",
    ]
    assert len(messages(state)) == len(before)


def test_of_all_who_adopt_an_answer_the_first_one_does() -> None:
    state = grown(*EXAMPLES[:6])
    first, second = AnswerAdopted("c", "m2", "a", "b", SESSION), AnswerAdopted("c", "m2", "a", "x", SESSION)
    assert refusal(state, first) == refusal(state, second) == ""
    after = apply(state, first)
    assert "another peer" in refusal(after, second)
    assert replace(apply(after, second), index=after.index) == after


def test_a_message_too_long_is_refused_by_name() -> None:
    check_command(added("m", words="x" * MAX_MESSAGE_BYTES))
    check_command(added("m", words="ä" * (MAX_MESSAGE_BYTES // 2)))
    for words in ("x" * (MAX_MESSAGE_BYTES + 1), "ä" * (MAX_MESSAGE_BYTES // 2 + 1)):
        with pytest.raises(BadCommand, match=r"MessageAdded\.text: .*at most 65536 bytes.*in parts"):
            check_command(added("m", words=words))


def test_a_conversation_of_more_messages_than_there_may_be_is_no_snapshot() -> None:
    body = json.loads(encode_state(grown(EXAMPLES[0], added("m"))))
    one = body["conversations"]["c"]["messages"][0]
    body["conversations"]["c"]["messages"] = [{**one, "id": f"m{n}"} for n in range(MAX_MESSAGES)]
    full = decode_state(json.dumps(body).encode())
    assert len(messages(full)) == MAX_MESSAGES
    assert "the most" in refusal(full, added("one more"))
    assert refusal(full, added("one-more")).endswith("start another")
    body["conversations"]["c"]["messages"].append({**one, "id": "more"})
    with pytest.raises(BadCommand, match="messages"):
        decode_state(json.dumps(body).encode())


def test_texts_of_all_conversations_are_bounded() -> None:
    """By numbers that a snapshot cannot be brought to: its texts are counted."""
    state = grown(EXAMPLES[0], added("m", words="x" * 100))
    for most in ("MAX_CONVERSATION_BYTES", "MAX_ALL_BYTES"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"peer.state.conversations.{most}", 150)
            assert refusal(state, added("n", words="x" * 51)) != ""
            assert refusal(state, added("n", words="x" * 50)) == ""
            with pytest.raises(BadCommand, match="bytes of text"):
                decode_state(encode_state(grown(added("n", words="x" * 51), state=uncounted(state))))


def uncounted(state: MeshState) -> MeshState:
    """`state`, which thinks that its texts are empty."""
    conversation = state.conversations["c"]
    empty = replace(conversation, messages=replace(conversation.messages, text_bytes=0))
    return replace(state, conversations={"c": empty})


# --- the ledger -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_nothing_counts_twice_whatever_is_claimed(seed: int) -> None:
    """Against a set of single (session, position, unit)s: exactly what is new in all of its parts counts."""
    rng = random.Random(seed)
    ledger = Ledger()
    seen: set[tuple[str, int, int]] = set()
    earned: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    claimed: list[Work] = []
    for _ in range(60):
        batch = [some_work(rng) for _ in range(rng.randint(1, 6))]
        batch += rng.sample(
            claimed, min(len(claimed), rng.randint(0, 3))
        )  # a leader that was cut off says it again
        claimed += batch
        ledger, why = tally(ledger, tuple(batch))
        for work, reason in zip(batch, why, strict=True):
            parts = {(work.session, at, unit) for at in range(*work.positions) for unit in range(*work.units)}
            assert (reason == "") == parts.isdisjoint(seen)
            if not reason:
                seen |= parts
                earned[work.peer] += work.milli
                spent[work.asker] += work.milli
        assert {
            peer: balance.earned for peer, balance in ledger.balances.items() if balance.earned
        } == +earned
        assert {peer: balance.spent for peer, balance in ledger.balances.items() if balance.spent} == +spent
        for session, counted in ledger.sessions.items():
            areas = [
                {(at, unit) for at in range(*area.positions) for unit in range(*area.units)}
                for area in counted.areas
            ]
            assert sum(map(len, areas)) == sum(each[0] == session for each in seen)
    assert seen


def some_work(rng: random.Random) -> Work:
    session = rng.randrange(4)
    first, unit = rng.randrange(30), rng.randrange(4)
    return Work(
        f"{session:032x}",
        100 + session,
        rng.choice("ab"),
        rng.choice("bc"),
        (first, first + rng.randint(1, 6)),
        (unit, unit + rng.randint(1, 3)),
        rng.randint(1, 9),
    )


def test_work_of_one_stage_side_by_side_is_one_area() -> None:
    ledger = Ledger()
    for first in (0, 16, 8, 24):
        ledger, why = tally(ledger, (replace(WORK, positions=(first, first + 8)),))
        assert why == ("",)
    assert [area.positions for area in ledger.sessions[SESSION].areas] == [(0, 32)]


# --- others -----------------------------------------------------------------------------------------------


def test_a_former_life_of_a_peer_does_not_join_again() -> None:
    state = grown(MemberJoined("a", "Ada", True, False, True, 3))
    assert state.members["a"].incarnation == state.incarnations["a"] == 3
    stale = MemberJoined("a", "Ada", True, False, True, 2)
    assert "over" in refusal(state, stale)
    assert apply(state, stale).members == state.members
    assert apply(state, replace(stale, incarnation=4)).members["a"].incarnation == 4


def test_the_digest_is_that_of_equal_states_only() -> None:
    states = [grown(*EXAMPLES[:cut]) for cut in range(len(EXAMPLES))]
    assert len({state_digest(state) for state in states}) == len(states)
    assert state_digest(decode_state(encode_state(states[-1]))) == state_digest(states[-1])
