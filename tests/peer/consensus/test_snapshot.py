"""Snapshots in pieces, resumed, refused, lost; compaction; and what of the log stays beside them."""

from __future__ import annotations

from zlib import crc32

import pytest

from peer.consensus.events import (
    Compact,
    Entry,
    HardState,
    Restore,
    Send,
    SnapshotStored,
    StoreSnapshot,
    Unreachable,
)
from peer.consensus.messages import Append, AppendReply, Install, InstallReply
from tests.peer.consensus.hands import SMALL, Group, Peer, config_of

WORDS = [b"word%02d" % at for at in range(12)]


def behind(voters: str = "abc", learners: str = "") -> Group:
    """c lacks twelve entries of which the leader a has only two left."""
    group = Group(voters, learners)
    group.elect("a")
    group.settle()
    group.cut("c", "ab")
    group.propose("a", *WORDS)
    group.settle()
    for each in "ab":
        group.compact(each)
    group.settle()
    assert [each.index for each in group["a"].entries] == [13, 14]
    group.mend()
    group.tell("a", Unreachable("c"))
    return group


def piece(
    index: int, term: int, data: bytes, offset: int, length: int, total: bytes | None = None
) -> Install:
    whole = data if total is None else total
    part = whole[offset : offset + length]
    return Install(1, index, term, config_of("abc"), len(whole), crc32(whole), offset, part)


def said(effects: list, kind: type) -> list:
    return [
        each.message.body
        for each in effects
        if isinstance(each, Send) and isinstance(each.message.body, kind)
    ]


def test_who_is_far_behind_gets_a_snapshot_then_entries() -> None:
    group = behind()
    group.pass_ms(1000)
    assert group["c"].state == WORDS
    group.propose("a", b"more")
    group.pass_ms(600)
    assert group["c"].state == [*WORDS, b"more"]
    assert group["c"].snapshot == group["a"].snapshot


@pytest.mark.parametrize("lost", range(8))
def test_a_lost_piece_is_sent_again(lost: int) -> None:
    group = behind()
    group.tick("a")
    seen = 0
    for _ in range(5000):
        keep = []
        for each in group.mail:
            if isinstance(each[2].body, Install | InstallReply) and not getattr(group, "done", False):
                seen += each is group.mail[0]
                if seen == lost + 1 and each is group.mail[0]:
                    group.done = True  # type: ignore[attr-defined]
                    continue
            keep.append(each)
        group.mail = keep
        if not group._one():
            break
    group.pass_ms(3000)
    assert group["c"].state == WORDS


def test_a_transfer_goes_on_after_the_connection_broke_and_after_a_new_leader() -> None:
    group = behind()
    group.tick("a")
    for _ in range(12):
        group._one()
    incoming = group["c"].core.server.incoming_snapshot
    assert incoming is not None
    have = len(incoming.data)
    assert 0 < have < incoming.total
    group.mail = []
    group.cut("a", "bc")
    group.tell("b", Unreachable("a"))
    before = group.now
    offsets: list[int] = []
    while group.now < before + 9000:
        group.settle_watching = None  # type: ignore[attr-defined]
        progressed = True
        while progressed:
            offsets += [
                message.body.offset
                for sender, to, message in group.mail
                if (sender, to) == ("b", "c") and isinstance(message.body, Install) and message.body.data
            ]
            progressed = group._one()
        due = min((group[each].deadline or 10**9, each) for each in "abc")
        group.tick(due[1], due[0])
    assert group["b"].status.role == "leader"
    assert group["c"].state[: len(WORDS)] == WORDS
    assert min(offsets) == have, "what was there already did not come again"


def test_a_follower_that_starts_anew_during_a_transfer_gets_all_of_it() -> None:
    group = behind()
    group.tick("a")
    for _ in range(12):
        group._one()
    group.restart("c")
    group.pass_ms(3000)
    assert group["c"].state == WORDS


def test_the_answer_to_the_last_piece_waits_for_the_disk() -> None:
    group = Group("abc")
    group["c"].writes_end = False
    whole = b"p|q|r"
    group.say("a", "c", piece(7, 2, whole, 0, 0), 2)
    group.end_write("c")
    assert group.take("c", "a", InstallReply)[-1].body.offset == 0
    done = group.say("a", "c", piece(7, 2, whole, 0, 9), 2)
    stored = [each for each in done if isinstance(each, StoreSnapshot)]
    assert [(each.snapshot.index, each.first, each.last) for each in stored] == [(7, 8, 7)]
    assert not said(done, AppendReply)
    assert not [each for each in done if isinstance(each, Restore)]
    assert group["c"].status.commit == 7
    assert not said(group.say("a", "c", piece(7, 2, whole, 0, 0), 2), InstallReply)
    group["c"].writes.clear()
    after = group.tell("c", SnapshotStored(stored[0].token))
    assert [each.snapshot.data for each in after if isinstance(each, Restore)] == [whole]
    assert [(each.ok, each.index) for each in said(after, AppendReply)] == [(True, 7)]


def start(entries: list[Entry], term: int = 3) -> Group:
    group = Group("abc")
    old = group["c"].snapshot
    group.boot(Peer("c", hard_state=HardState(term, ""), snapshot=old, entries=entries))
    return group


def test_a_suffix_that_agrees_with_the_snapshot_stays() -> None:
    group = start([Entry(index, 2, "command", b"") for index in range(2, 9)])
    group.say("a", "c", piece(5, 2, b"x", 0, 1), 3)
    group.settle()
    assert (group["c"].status.last, group["c"].status.commit) == (8, 5)
    assert [each.index for each in group["c"].entries] == [6, 7, 8]


def test_a_suffix_that_does_not_agree_goes() -> None:
    group = start([Entry(index, 2, "command", b"old") for index in range(2, 9)])
    group.say("a", "c", piece(5, 3, b"x", 0, 1), 3)
    group.settle()
    assert (group["c"].status.last, group["c"].status.commit) == (5, 5)
    assert group["c"].entries == []
    group.say("a", "c", Append(2, 5, 3, 6, (Entry(6, 3, "command", b"new"),)), 3)
    group.settle()
    assert group["c"].state == [b"x", b"new"]


def test_a_snapshot_older_than_what_is_committed_is_not_taken() -> None:
    group = start([Entry(index, 2, "command", b"%d" % index) for index in range(2, 9)])
    group.say("a", "c", Append(1, 8, 2, 8, ()), 3)
    group.settle()
    answers = said(group.say("a", "c", piece(5, 2, b"x", 0, 1), 3), AppendReply)
    assert [(each.ok, each.index) for each in answers] == [(True, 8)]
    assert len(group["c"].state) == 7


def test_wrong_bytes_are_asked_for_again() -> None:
    group = Group("abc")
    wrong = Install(1, 7, 2, config_of("abc"), 3, 12345, 0, b"abc")
    group.say("a", "c", wrong, 2)
    group.settle()
    assert group["c"].status.commit == 1
    group.say("a", "c", piece(7, 2, b"abc", 0, 3), 2)
    group.settle()
    assert group["c"].state == [b"abc"]


def test_an_empty_snapshot_arrives_with_the_question() -> None:
    group = Group("abc")
    group.say("a", "c", piece(7, 2, b"", 0, 0), 2)
    group.settle()
    assert (group["c"].status.commit, group["c"].applied) == (7, 7)


def test_a_candidate_takes_the_snapshot_of_its_terms_leader() -> None:
    group = behind()
    group.cut("c", "ab")
    group.tick("c")
    group.settle()
    assert group["c"].status.role == "precandidate"
    group.mend()
    group.pass_ms(3000)
    assert group["c"].state == WORDS


def test_compaction_keeps_a_tail_and_never_goes_back() -> None:
    group = Group("a")
    group.elect("a")
    group.propose("a", *WORDS)
    group.settle()
    group.compact("a")
    group.settle()
    snapshot = group["a"].snapshot
    assert snapshot is not None
    assert (snapshot.index, snapshot.data) == (14, b"|".join(WORDS))
    assert [each.index for each in group["a"].entries] == [13, 14]
    for index in (14, 10, 99):
        assert not group.tell("a", Compact(index, b"wrong"))
    group.restart("a")
    group.pass_ms(10)
    assert group["a"].state == WORDS


def test_a_local_snapshot_that_was_overtaken_by_an_installed_one_is_dropped() -> None:
    group = Group("abc")
    some = tuple(Entry(index, 2, "command", b"%d" % index) for index in range(2, 6))
    group.say("a", "c", Append(1, 1, 1, 5, some), 2)
    group.settle()
    group["c"].writes_end = False
    group.say("a", "c", piece(9, 2, b"later", 0, 5), 2)
    assert not [each for each in group.tell("c", Compact(5, b"now")) if isinstance(each, StoreSnapshot)]
    group["c"].writes_end = True
    group.settle()
    assert group["c"].state == [b"later"]


def test_entries_behind_a_snapshot_that_is_being_stored_wait_for_it() -> None:
    group = Group("abc")
    group["c"].writes_end = False
    group.say("a", "c", piece(7, 2, b"base", 0, 4), 2)
    group.say("a", "c", Append(2, 7, 2, 8, (Entry(8, 2, "command", b"next"),)), 2)
    assert group["c"].state == []
    group["c"].writes_end = True
    group.settle()
    assert group["c"].state == [b"base", b"next"]


def test_the_configuration_comes_with_the_snapshot() -> None:
    group = Group("ab")
    group.boot(Peer("c", incarnation=1))
    group.say("a", "c", piece(7, 2, b"x", 0, 1), 2)
    group.settle()
    assert group["c"].status.config == config_of("abc")
    group.restart("c")
    assert group["c"].status.config == config_of("abc")


def test_a_large_snapshot_needs_few_turns() -> None:
    group = behind("ab", "c")
    turns = 0
    while group["c"].state != WORDS:
        group.tick("a")
        group.settle()
        turns += 1
    assert turns <= 2
    assert SMALL.snapshot_chunk_bytes * SMALL.max_inflight < len(b"|".join(WORDS))
