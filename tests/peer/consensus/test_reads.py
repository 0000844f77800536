"""When a read may be served, on the leader and elsewhere, and that none is ever dropped in silence."""

from __future__ import annotations

import pytest

from peer.consensus.events import Read, ReadReady, Reject, Transfer, Unreachable
from peer.consensus.messages import Append, AppendReply, ReadIndex, ReadIndexReply
from tests.peer.consensus.hands import Group


def led(voters: str = "abc", learners: str = "") -> Group:
    group = Group(voters, learners)
    group.elect("a")
    group.propose("a", b"x")
    group.pass_ms(600)
    for each in group.peers:
        group.answers(each)
    return group


@pytest.mark.parametrize("peer", "abcd")
def test_a_read_sees_what_was_committed_before_it(peer: str) -> None:
    group = led("abc", "d")
    group.tell(peer, Read(5))
    group.settle()
    assert group.answers(peer) == [ReadReady(5, 3)]


def test_a_leader_alone_needs_nobody() -> None:
    group = Group("a")
    group.elect("a")
    assert ReadReady(5, 2) in group.tell("a", Read(5))


def test_a_leader_that_was_overtaken_serves_nothing() -> None:
    group = led()
    group.cut("a", "bc")
    group.tell("b", Unreachable("a"))
    group.now += 2000
    group.tell("a", Read(5))
    group.pass_ms(9000)
    assert [each for each in group.answers("a") if isinstance(each, ReadReady)] == []


def test_a_read_waits_for_an_entry_of_the_leaders_own_term() -> None:
    group = Group("abc")
    group["a"].writes_end = False
    group.tick("a")
    group.settle()
    group.cut("a", "c")
    group.end_write("a")
    group.settle()
    assert group["a"].status.role == "leader"
    assert group["a"].status.commit == 1
    group.tell("a", Read(5))
    group.settle()
    assert group.answers("a") == []
    group["a"].writes_end = True
    group.settle()
    assert group.answers("a") == [ReadReady(5, 2)]


def test_answers_to_earlier_messages_do_not_confirm_a_read() -> None:
    group = led()
    group.tick("a")
    for message in group.take("a", "b", Append):
        group.give("b", message)
    early = group.take("b", "a", AppendReply)
    group.mail = []
    group.tell("a", Read(5))
    for message in (*early, *early):
        group.give("a", message)
    assert group.answers("a") == []
    group.settle()
    assert group.answers("a") == [ReadReady(5, 3)]


def test_a_read_is_served_when_its_index_is_applied_here() -> None:
    group = led()
    group["c"].applies = False
    group.propose("a", b"y")
    group.pass_ms(600)
    group.tell("c", Read(5))
    group.settle()
    assert group.answers("c") == []
    group["c"].applies = True
    group.settle()
    assert group.answers("c") == [ReadReady(5, 4)]


def test_the_index_is_that_of_when_it_was_asked() -> None:
    group = led()
    group.tell("a", Read(5))
    group.propose("a", b"y")
    group.settle()
    assert ReadReady(5, 3) in group.answers("a")


def test_reads_during_a_round_share_the_next() -> None:
    group = led()
    for ctx in range(50):
        group.tell("a", Read(ctx))
    assert len(group.mail) == 2
    group.settle()
    assert [each.ctx for each in group.answers("a") if isinstance(each, ReadReady)] == list(range(50))


@pytest.mark.parametrize("peer", "abc")
def test_reads_are_refused_when_the_leader_changes(peer: str) -> None:
    group = led()
    group.cut("a", "bc")
    group.tell(peer, Read(5))
    group.pass_ms(9000)
    answers = [each for each in group.answers(peer) if isinstance(each, Reject)]
    assert [each.ctx for each in answers] == [5]
    assert answers[0].reason in ("leader_changed", "timeout")


def test_a_transfer_refuses_reads_that_wait() -> None:
    group = led()
    group.tell("a", Transfer("b", 6))
    group.cut("a", "c")
    group.tell("a", Read(5))
    group.settle()
    ready = [each for each in group.answers("a") if isinstance(each, ReadReady | Reject)]
    assert [each.ctx for each in ready] == [5]


def test_without_a_leader_reads_are_refused_at_once() -> None:
    group = Group("abc")
    group.tell("b", Read(5))
    assert group.answers("b") == [Reject(5, "no_leader", "")]


def test_an_answer_to_an_earlier_life_of_a_reader_is_not_taken_for_one_now() -> None:
    group = led()
    group.tell("c", Read(5))
    old = group.take("c", "a", ReadIndex)[0].body
    assert isinstance(old, ReadIndex)
    group.restart("c")
    group.pass_ms(600)
    group.tell("c", Read(5))
    group.say("a", "c", ReadIndexReply(old.read, True, 1), 2)
    assert group.answers("c") == []
    group.settle()
    assert group.answers("c") == [ReadReady(5, 3)]


def test_a_question_that_is_lost_is_refused_in_the_end() -> None:
    group = led()
    group.tell("c", Read(5))
    group.mail = []
    group.pass_ms(3100)
    assert group.answers("c") == [Reject(5, "timeout", "a")]


def test_a_follower_is_told_that_it_asked_the_wrong_one() -> None:
    group = led()
    group.say("c", "b", ReadIndex(9), 2)
    assert group.take("b", "c", ReadIndexReply)[0].body == ReadIndexReply(9, False, 0)
