"""What is committed, what is acknowledged, and what happens to entries that another leader overwrites."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peer.consensus.errors import BadBoot
from peer.consensus.events import (
    Apply,
    Entry,
    HardState,
    Persist,
    Persisted,
    Propose,
    Proposed,
    Received,
    Reject,
    Send,
    Settings,
    Snapshot,
    founding,
)
from peer.consensus.message_codec import config_bytes
from peer.consensus.messages import Append, AppendReply, Vote, VoteReply
from tests.peer.consensus.hands import Group, Peer, config_of


def said(effects: list, kind: type) -> list:
    return [
        each.message.body
        for each in effects
        if isinstance(each, Send) and isinstance(each.message.body, kind)
    ]


def entry(index: int, term: int, data: bytes = b"") -> Entry:
    return Entry(index, term, "command", data)


def test_entries_of_an_older_term_are_not_committed_by_counting() -> None:
    """Figure 3.7 (8 in the paper): a majority has the entry of term 2, and still it is not committed."""
    group = Group("abc")
    old = [entry(2, 2, b"old")]
    for each in "ab":
        start = group[each].snapshot
        group.boot(Peer(each, hard_state=HardState(2, ""), snapshot=start, entries=list(old)))
    for each in "ab":
        group[each].writes_end = False
    group.tick("a")
    group.settle()  # pre-vote
    group.end_write("a")
    group.give("b", group.take("a", "b", Vote)[0])
    group.end_write("b")
    group.give("a", group.take("b", "a", VoteReply)[0])
    assert group["a"].status.role == "leader"
    group.mail = []  # its noop of term 3 reaches nobody
    group.say("b", "a", AppendReply(1, True, 2, 0, 0), 3)
    assert group["a"].status.commit == 1
    group["a"].writes_end = group["b"].writes_end = True
    group.pass_ms(600)
    assert group["a"].status.commit == 3
    assert group["c"].state == [b"old"]


def test_a_follower_acknowledges_what_is_on_its_disk_only() -> None:
    group = Group("abc")
    group.elect("a")
    group["b"].writes_end = False
    replies = said(group.say("a", "b", Append(99, 2, 2, 2, (entry(3, 2, b"x"),)), 2), AppendReply)
    assert [(each.ok, each.index) for each in replies] == [(True, 2)]
    group.mail = []
    group.end_write("b")
    assert [message.body.index for message in group.take("b", "a", AppendReply)] == [3]


def test_a_leader_counts_itself_only_after_its_own_write() -> None:
    group = Group("abc")
    group.elect("a")
    group.settle()
    group["a"].writes_end = False
    group.cut("a", "c")
    group.propose("a", b"x")
    group.settle()
    assert group["a"].status.matched == {"a": 2, "b": 3, "c": 2}
    assert group["a"].status.commit == 2
    group["a"].writes_end = True
    group.settle()
    assert group["a"].status.commit == 3


def test_what_was_being_written_when_it_was_overwritten_is_not_acknowledged() -> None:
    """Append ABA: the write of the old entries ends after the new ones took their place."""
    group = Group("abc")
    b = group["b"]
    b.writes_end = False
    group.say("a", "b", Append(1, 1, 1, 1, (entry(2, 2, b"old"), entry(3, 2, b"old"))), 2)
    group.end_write("b") if b.writes[0].entries == () else None
    first = b.writes[-1]
    group.say("c", "b", Append(1, 1, 1, 1, (entry(2, 3, b"new"), entry(3, 3, b"new"))), 3)
    second = b.writes[-1]
    assert isinstance(second, Persist)
    assert (second.truncate_from, second.term) == (2, 3)
    replies = said(group.tell("b", Persisted(first.token)), AppendReply)
    assert all(each.index <= 1 for each in replies)
    replies = said(group.tell("b", Persisted(second.token)), AppendReply)
    assert replies[-1].index == 3


def test_a_late_answer_of_an_earlier_leadership_does_not_count() -> None:
    group = Group("abc")
    group.elect("a")
    group.settle()
    group.cut("a", "bc")
    group.propose("a", b"x")
    group.settle()
    late = AppendReply(5, True, 3, 0, 0)
    group.pass_ms(9000)
    group.mend()
    group.cut("b", "ac")
    group.say("b", "a", late, 2)
    assert group["a"].status.commit == 2


def test_a_follower_commits_no_further_than_it_compared() -> None:
    group = Group("abc")
    start = group["b"].snapshot
    group.boot(
        Peer(
            "b",
            hard_state=HardState(2, ""),
            snapshot=start,
            entries=[entry(2, 2, b"not"), entry(3, 2, b"so")],
        )
    )
    group.say("a", "b", Append(1, 1, 1, 9, ()), 3)
    assert group["b"].status.commit == 1
    group.say("a", "b", Append(2, 2, 2, 9, ()), 3)
    assert group["b"].status.commit == 2


def test_a_delayed_append_does_not_cut_what_came_after_it() -> None:
    group = Group("abc")
    first = Append(1, 1, 1, 1, (entry(2, 2, b"1"),))
    both = Append(2, 1, 1, 1, (entry(2, 2, b"1"), entry(3, 2, b"2")))
    for each in (both, first):
        group.say("a", "b", each, 2)
        group.settle()
    assert group["b"].status.last == 3
    assert [each.data for each in group["b"].entries] == [b"1", b"2"]


def test_an_append_that_begins_before_the_commit_index_is_taken_from_there() -> None:
    group = Group("abc")
    some = tuple(entry(index, 2, b"%d" % index) for index in range(2, 8))
    group.say("a", "b", Append(1, 1, 1, 5, some[:4]), 2)
    group.settle()
    assert group["b"].status.commit == 5
    replies = said(group.say("a", "b", Append(2, 1, 1, 5, some), 2), AppendReply)
    assert replies[-1].ok
    group.settle()
    assert [each.data for each in group["b"].entries] == [b"2", b"3", b"4", b"5", b"6", b"7"]


def test_a_leader_finds_where_a_long_and_different_log_agrees() -> None:
    group = Group("abc")
    start = group["a"].snapshot
    mine = [entry(2, 2)] + [entry(index, 5, b"mine") for index in range(3, 30)]
    other = [entry(2, 2)] + [entry(index, 3, b"other") for index in range(3, 60)]
    group.boot(Peer("a", hard_state=HardState(5, ""), snapshot=start, entries=mine))
    group.boot(Peer("b", hard_state=HardState(5, ""), snapshot=start, entries=other))
    group.elect("a")
    group.pass_ms(1200)
    assert [each.data for each in group["b"].entries] == [each.data for each in group["a"].entries]
    assert group["b"].status.commit == group["a"].status.commit


def test_what_a_cut_off_leader_took_is_lost_and_says_so_by_another_entry() -> None:
    group = Group("abc")
    group.elect("a")
    group.settle()
    group.cut("a", "bc")
    group.propose("a", b"lost")
    taken = [each for each in group.answers("a") if isinstance(each, Proposed)]
    assert taken == [Proposed(0, 3, 2)]
    group.pass_ms(9000)
    leader = group["b"].status.leader
    group.propose(leader, b"kept")
    group.mend()
    group.pass_ms(3000)
    assert all(peer.state == [b"kept"] for peer in group.peers.values())


def test_lost_messages_are_found_by_heartbeats() -> None:
    group = Group("abc")
    group.elect("a")
    group.settle()
    group.propose("a", b"x", b"y")
    group.mail = [each for each in group.mail if each[1] != "c"]
    group.pass_ms(1000)
    assert group["c"].state == [b"x", b"y"]


def test_a_server_that_lost_everything_catches_up_while_nothing_else_happens() -> None:
    group = Group("ab", "c")
    group.elect("a")
    group.propose("a", b"x", b"y")
    group.pass_ms(600)
    group.boot(Peer("c"))
    group.pass_ms(1500)
    assert group["c"].state == [b"x", b"y"]


def test_sixty_four_entries_go_in_few_messages() -> None:
    group = Group("abc", settings=Settings())
    group.elect("a")
    group.settle()
    for at in range(64):
        group.tell("a", Propose(b"x" * 100, at))
    appends = [message for _, to, message in group.mail if to == "b" and message.body.entries]
    assert len(appends) <= group.settings.max_inflight
    group.pass_ms(300)
    assert len(group["b"].state) == 64


def test_a_long_backlog_goes_in_pieces_of_the_agreed_size() -> None:
    group = Group("abc", settings=Settings(max_append_bytes=1000))
    group.cut("c", "ab")
    group.elect("a")
    group.settle()
    for at in range(100):
        group.tell("a", Propose(b"x" * 100, at))
        group.settle()
    group.mend()
    sizes = []
    group.tick("a")
    for _ in range(5000):
        sizes += [
            sum(len(each.data) for each in message.body.entries)
            for _, to, message in group.mail
            if to == "c" and isinstance(message.body, Append)
        ]
        if not group._one():
            break
    group.pass_ms(600)
    assert len(group["c"].state) == 100
    assert max(sizes) <= 1000


@pytest.mark.parametrize(("peer", "reason"), [("b", "not_leader"), ("d", "no_leader"), ("a", "too_large")])
def test_a_proposal_is_refused_with_a_reason(peer: str, reason: str) -> None:
    group = Group("abc")
    group.elect("a")
    group.boot(Peer("d"))
    group.tell(peer, Propose(b"x" * (300_000 if reason == "too_large" else 1), 7))
    answer = group.answers(peer)[-1]
    assert isinstance(answer, Reject)
    assert (answer.ctx, answer.reason, answer.leader) == (7, reason, "" if peer == "d" else "a")


def test_a_leader_takes_only_so_many_entries_without_a_majority() -> None:
    group = Group("ab")
    group.elect("a")
    group.settle()
    group.cut("a", "b")
    effects = [group["a"].core.step(group.now, Propose(b"", at))[0] for at in range(4100)]
    assert isinstance(effects[4090], Proposed)
    assert isinstance(effects[4099], Reject)
    assert effects[4099].reason == "busy"


def test_messages_of_another_mesh_epoch_sender_or_life_are_dropped() -> None:
    group = Group("abc")
    group.elect("a")
    group.propose("a", b"x")
    message = group.take("a", "b", Append)[0]
    before = group["b"].core.digest()
    for wrong in ({"mesh_id": "other"}, {"group_epoch": 1}, {"to_incarnation": 2}, {"sender_incarnation": 0}):
        group.give("b", replace(message, **wrong))
    group.tell("b", Received("c", message))
    assert group["b"].core.digest() == before


# --- boot ---------------------------------------------------------------------------------------------------

START = Snapshot(5, 2, config_of("abc"), b"s")


@pytest.mark.parametrize(
    ("hard_state", "snapshot", "entries", "wrong"),
    [
        (HardState(1, ""), START, (), "term"),
        (HardState(3, ""), START, (entry(7, 3),), "begin at 6"),
        (HardState(3, ""), START, (entry(6, 3), entry(8, 3)), "expected entry 7"),
        (HardState(3, ""), START, (entry(6, 3), entry(7, 2)), "expected entry 7"),
        (HardState(3, ""), None, (entry(2, 1),), "begin at 1"),
        (HardState(2, ""), None, (entry(1, 3),), "term"),
        (HardState(3, ""), START, (Entry(6, 3, "config", b"{}"),), "configuration"),
    ],
)
def test_a_store_that_cannot_be_is_refused(hard_state: Any, snapshot: Any, entries: Any, wrong: str) -> None:
    group = Group("a")
    with pytest.raises(BadBoot, match=wrong):
        group.boot(Peer("z", hard_state=hard_state, snapshot=snapshot, entries=list(entries)))


@pytest.mark.parametrize(
    ("entries", "last"),
    [
        ((), 5),
        ((entry(4, 2), entry(5, 2), entry(6, 2)), 6),
        ((entry(6, 2),), 6),
        (
            (entry(4, 1), entry(5, 1), entry(6, 1)),
            5,
        ),  # a crash came between an installed snapshot and the cut
        ((entry(2, 1), entry(3, 1)), 5),
    ],
)
def test_a_log_beside_a_snapshot_is_kept_where_it_agrees(entries: tuple[Entry, ...], last: int) -> None:
    group = Group("a")
    group.boot(Peer("z", hard_state=HardState(3, ""), snapshot=START, entries=list(entries)))
    group.settle()
    assert group["z"].status.last == last
    assert all(each.term == 2 for each in group["z"].entries)
    assert group["z"].state == [b"s"]


def test_founding_and_recovering() -> None:
    group = Group("a")
    group.boot(Peer("z", 7, hard_state=HardState(4, ""), snapshot=founding("z", 7, b"p|q", 90, 4)))
    group.pass_ms(1)
    group.propose("z", b"r")
    group.pass_ms(10)
    assert group["z"].state == [b"p", b"q", b"r"]
    assert group["z"].status.config.voters == ("z",)


def test_committed_entries_are_applied_once_and_only_when_durable() -> None:
    group = Group("a")
    group.elect("a")
    group["a"].writes_end = False
    group.propose("a", b"x")
    group.settle()
    assert group["a"].state == []
    before = group["a"].applied
    group["a"].writes_end = True
    group.settle()
    assert group["a"].state == [b"x"]
    assert group["a"].applied == before + 1
    assert not any(isinstance(each, Apply) for each in group.tick("a"))


def test_a_configuration_in_an_overwritten_entry_is_no_longer_in_force() -> None:
    group = Group("abc")
    config = Entry(2, 2, "config", config_bytes(config_of("abcd")))
    group.say("a", "b", Append(1, 1, 1, 1, (config,)), 2)
    assert group["b"].status.config.voters == ("a", "b", "c", "d")
    group.say("c", "b", Append(1, 1, 1, 1, (Entry(2, 3, "noop", b""),)), 3)
    assert group["b"].status.config.voters == ("a", "b", "c")
