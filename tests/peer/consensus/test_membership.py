"""Members change one at a time, behind the barrier; another life of an id is another server; and handing over."""

from __future__ import annotations

import pytest

from peer.consensus.events import (
    AddLearner,
    Change,
    ChangeConfig,
    Demote,
    Promote,
    Propose,
    Proposed,
    Reject,
    Remove,
    Transfer,
)
from peer.consensus.messages import Append, AppendReply, TimeoutNow, Vote
from tests.peer.consensus.hands import Group, Peer


def change(group: Group, peer: str, wanted: Change) -> str:
    """ "" when it was taken, else why not."""
    group.answers(peer)
    group.tell(peer, ChangeConfig(wanted, 1))
    answer = group.answers(peer)[-1]
    return answer.reason if isinstance(answer, Reject) else ""


def led(voters: str = "abc", learners: str = "") -> Group:
    group = Group(voters, learners)
    group.elect("a")
    group.settle()
    return group


def test_a_peer_becomes_a_learner_then_a_voter() -> None:
    group = led("a")
    group.propose("a", b"x")
    group.settle()
    group.boot(Peer("b", incarnation=5))
    assert change(group, "a", AddLearner("b", 5)) == ""
    assert group["a"].status.config.voters == ("a",)
    group.settle()
    assert group["a"].status.commit == 4, "a learner is not asked"
    group.pass_ms(600)
    assert group["b"].state == [b"x"]
    assert change(group, "a", Promote("b")) == ""
    assert group["a"].status.config.voters == ("a", "b")
    group.settle()
    group.cut("a", "b")
    group.propose("a", b"y")
    group.settle()
    assert group["a"].state == [b"x"], "now it is"


def test_a_learner_never_campaigns_and_is_never_counted() -> None:
    group = led("ab", "c")
    group["a"].up = group["b"].up = False
    group.pass_ms(20_000)
    assert (group["c"].status.role, group["c"].status.term, group["c"].status.leader) == ("follower", 2, "")
    group = led("ab", "c")
    group["b"].up = False
    group.propose("a", b"x")
    group.pass_ms(500)
    assert group["a"].state == []


def test_nothing_changes_before_an_entry_of_the_own_term_is_committed() -> None:
    group = Group("abc")
    group.cut("a", "c")
    group["a"].writes_end = False
    group.tick("a")
    group.settle()
    group.end_write("a")  # its vote for itself; b's answers make it leader, its noop waits
    group.settle()
    assert group["a"].status.role == "leader"
    assert change(group, "a", AddLearner("d", 1)) == "not_ready"
    group["a"].writes_end = True
    group.settle()
    assert change(group, "a", AddLearner("d", 1)) == ""


def test_one_change_at_a_time() -> None:
    group = led("abc", "d")
    group.cut("a", "bcd")
    assert change(group, "a", AddLearner("e", 1)) == ""
    assert change(group, "a", Remove("b")) == "change_pending"
    group.mend()
    group.pass_ms(500)
    assert change(group, "a", Remove("b")) == ""


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Promote("z"), "unknown_member"),
        (Demote("z"), "unknown_member"),
        (Remove("z"), "unknown_member"),
        (Promote("b"), "already"),
        (Demote("d"), "already"),
        (AddLearner("b", 1), "already"),
        (AddLearner("b", 0), "already"),
        (AddLearner("a", 9), "already"),
        (Promote("d"), "not_caught_up"),
        (Demote("b"), "would_lose_quorum"),
    ],
)
def test_a_change_is_refused_with_a_reason(wanted: Change, reason: str) -> None:
    group = led("abc", "d")
    group["c"].up = group["d"].up = False
    group.pass_ms(2000)
    assert change(group, "a", wanted) == reason


def test_the_last_voter_stays() -> None:
    group = led("a", "b")
    assert change(group, "a", Demote("a")) == "last_voter"
    assert change(group, "a", Remove("a")) == "last_voter"


@pytest.mark.parametrize("wanted", [Remove("a"), Demote("a")])
def test_a_leader_that_goes_leads_until_that_is_committed_and_is_followed_at_once(wanted: Change) -> None:
    group = led("abc")
    group.cut("a", "bc")
    assert change(group, "a", wanted) == ""
    group.settle()
    assert group["a"].status.role == "leader"
    assert group["a"].status.commit == 2, "it does not count itself"
    group.mend()
    group.tick("a")
    group.settle()
    assert group["a"].status.role == "follower"
    assert {group["b"].status.leader} == {group["c"].status.leader} <= {"b", "c"}
    assert group["b"].status.config.voters == ("b", "c")


def test_a_learner_whose_promotion_few_know_has_no_log_that_a_voter_needs() -> None:
    """Of three voters a leads after b, reaches the learner d alone, and is lost. In b's log only, d is a voter.

    So b needs c and d, and neither of them may have a newer log.
    """
    group = Group("abc", "d")
    group.elect("b")
    group.pass_ms(600)
    group.cut("b", "acd")
    assert change(group, "b", Promote("d")) == ""
    group["a"].writes_end = False
    group.tick("a", group.now + 4000)
    group.settle()
    group.tick("a")
    group.settle()
    group.end_write("a")
    (vote,) = group.take("a", "c", Vote)
    group.give("c", vote)
    group.cuts.add(("a", "c"))
    group["a"].writes_end = True
    group.settle()
    group.propose("a", b"x")
    group.pass_ms(600)
    assert (group["a"].status.role, group["a"].status.last) == ("leader", 4)
    assert (group["d"].status.leader, group["d"].status.last) == ("a", 2), "it gets what is committed"
    group["a"].up = False
    group.mend()
    group.pass_ms(12_000)
    assert group["b"].status.role == "leader"
    assert [group[each].status.commit for each in "bcd"] == [group["b"].status.last] * 3
    assert group["d"].status.config.voters == ("a", "b", "c", "d")


@pytest.mark.parametrize("moved", ["promoted", "demoted"])
def test_who_becomes_a_voter_or_a_learner_gets_entries_as_one(moved: str) -> None:
    group = led("abd" if moved == "demoted" else "ab", "" if moved == "demoted" else "d")
    group.pass_ms(600)
    assert change(group, "a", Promote("d") if moved == "promoted" else Demote("d")) == ""
    group["b"].up = False
    group.propose("a", b"x")
    group.pass_ms(600)
    assert group["a"].status.last == 4
    assert group["d"].status.last == (4 if moved == "promoted" else 2)
    group["b"].up = True
    group.pass_ms(600)
    assert [group[each].status.commit for each in "abd"] == [4] * 3
    assert group["d"].state == [b"x"]


def test_a_new_leader_takes_over_an_uncommitted_configuration() -> None:
    group = led("abcd")
    group.cut("a", "cd")
    assert change(group, "a", Remove("d")) == ""
    group["a"].writes_end = False
    group.settle()
    group["a"].up = False
    assert group["b"].status.config.voters == ("a", "b", "c")
    group.pass_ms(20_000)
    assert group["b"].status.leader == "b"
    assert group["c"].status.config.voters == ("a", "b", "c")
    assert group["c"].status.commit == group["b"].status.last


def test_another_life_of_an_id_begins_as_a_learner_and_old_words_do_not_count() -> None:
    group = led("abc")
    group["c"].up = False
    group.propose("a", b"x")
    group.settle()
    late = AppendReply(1, True, 3, 0, 0)
    assert change(group, "a", AddLearner("c", 2)) == ""
    assert group["a"].status.config.voters == ("a", "b")
    group.say("c", "a", late, 2)
    assert group["a"].status.matched["c"] == 0
    group.say("c", "b", Vote(99, 2, True), 9)
    group.settle()
    assert group["b"].status.term == 9, "it may not know of the other life yet"
    group = led("abc")
    assert change(group, "a", AddLearner("c", 2)) == ""
    group.settle()
    group.say("c", "b", Vote(99, 2, True), 9)
    assert group["b"].status.term == 2
    group.boot(Peer("c", incarnation=2))
    group.pass_ms(1500)
    assert group["c"].status.commit == group["a"].status.commit
    assert change(group, "a", Promote("c")) == ""


def test_a_follower_behind_its_leaders_change_of_lives_still_follows() -> None:
    """It knows the leader's earlier life only."""
    group = led("abc")
    group["b"].incarnation = 2
    group.say("b", "c", Append(1, 2, 2, 2, ()), 3)
    assert group["c"].status.leader == "b"


# --- transfer -----------------------------------------------------------------------------------------------


def test_leadership_is_handed_over_without_waiting_for_an_election() -> None:
    group = led()
    group.propose("a", b"x")
    before = group.now
    group.tell("a", Transfer("c", 5))
    group.settle()
    assert group.now == before
    assert {peer.status.leader for peer in group.peers.values()} == {"c"}
    assert not [each for each in group.answers("a") if isinstance(each, Reject)]


def test_proposals_wait_outside_while_leadership_is_handed_over_and_it_ends() -> None:
    group = led()
    group.cut("a", "c")
    group.tell("a", Transfer("c", 5))
    group.tell("a", Propose(b"x", 6))
    group.tell("a", Transfer("b", 7))
    assert change(group, "a", Remove("b")) == "transferring"
    group.tell("a", Propose(b"x", 6))
    assert group.answers("a") == [Reject(6, "transferring", "a")]
    group.pass_ms(1600)
    assert Reject(5, "timeout", "a") in group.answers("a")
    group.tell("a", Propose(b"x", 8))
    assert isinstance(group.answers("a")[0], Proposed)


def test_a_transfer_is_forgotten_by_stepping_down() -> None:
    group = led()
    group.cut("a", "c")
    group.tell("a", Transfer("c", 5))
    group.say("b", "a", Append(1, 2, 2, 2, ()), 3)
    assert group["a"].status.leader == "b"
    group.mend()
    group.say("b", "a", TimeoutNow(), 3)
    group.settle()
    assert group["a"].status.role == "leader"
    group.tell("a", Propose(b"x", 8))
    assert isinstance(group.answers("a")[-1], Proposed)


@pytest.mark.parametrize(("to", "reason"), [("a", "already"), ("d", "not_a_voter"), ("z", "unknown_member")])
def test_a_transfer_is_refused_with_a_reason(to: str, reason: str) -> None:
    group = led("abc", "d")
    group.tell("a", Transfer(to, 5))
    assert group.answers("a")[-1] == Reject(5, reason, "a")


def test_only_the_leader_can_ask_to_campaign() -> None:
    group = led()
    group.say("c", "b", TimeoutNow(), 2)
    assert (group["b"].status.role, group["b"].status.term) == ("follower", 2)
