"""Who leads: votes are stored before they are given, nobody with a leader is disturbed, both halves can win."""

from __future__ import annotations

import pytest

from peer.consensus.events import ChangeConfig, Demote, Entry, HardState, Persist, Send, Tick, Unreachable
from peer.consensus.messages import Append, PreVote, PreVoteReply, Vote, VoteReply
from tests.peer.consensus.hands import Group, Peer


def bodies(effects: list[object], kind: type) -> list[object]:
    return [
        each.message.body
        for each in effects
        if isinstance(each, Send) and isinstance(each.message.body, kind)
    ]


@pytest.mark.parametrize("voters", ["a", "ab", "abc", "abcde"])
def test_a_group_of_any_size_finds_a_leader_that_commits(voters: str) -> None:
    group = Group(voters)
    group.elect("a")
    group.propose("a", b"x")
    group.pass_ms(600)
    assert all(peer.state == [b"x"] and peer.status.leader == "a" for peer in group.peers.values())


def test_a_vote_waits_for_the_disk_and_is_not_given_twice() -> None:
    group = Group("abc")
    group["c"].writes_end = False
    asked = group.say("a", "c", Vote(1, 1, False), 2)
    assert bodies(asked, VoteReply) == []
    persist = next(each for each in asked if isinstance(each, Persist))
    assert (persist.term, persist.vote) == (2, "a")
    group.end_write("c")
    assert [each[2].body for each in group.mail] == [VoteReply(True)]
    group.restart("c")
    assert bodies(group.say("b", "c", Vote(9, 1, False), 2), VoteReply) == [VoteReply(False)]
    assert bodies(group.say("a", "c", Vote(1, 1, False), 2), VoteReply) == [VoteReply(True)]


def test_a_vote_that_was_not_written_was_not_given() -> None:
    group = Group("abc")
    group["c"].writes_end = False
    group.say("a", "c", Vote(1, 1, False), 2)
    group.restart("c")
    group["c"].writes_end = False
    group.say("b", "c", Vote(1, 1, False), 2)
    group.end_write("c")
    assert [(to, message.body) for _, to, message in group.mail] == [("b", VoteReply(True))]


def test_a_candidate_asks_only_once_its_term_is_written() -> None:
    group = Group("abc")
    group["a"].writes_end = False
    group.tick("a")
    group.settle()
    assert group["a"].status.role == "candidate"
    assert group["b"].status.term == 1
    group["a"].writes_end = True
    group.settle()
    assert group["a"].status.role == "leader"


def test_a_follower_with_a_leader_refuses_others_and_keeps_its_term() -> None:
    group = Group("abc")
    group.elect("a")
    group.cut("c", "ab")
    group.pass_ms(9000)
    assert group["c"].status.term == 2, "without a majority for its pre-vote a term does not rise"
    assert group["a"].status.role == "leader"
    assert bodies(group.say("c", "b", PreVote(3, 99, 2), 2), PreVoteReply) == [PreVoteReply(3, False)]
    assert group.say("c", "b", Vote(99, 2, False), 7) == []
    assert group["b"].status.term == 2
    group.mend()
    group.pass_ms(1000)
    assert {peer.status.leader for peer in group.peers.values()} == {"a"}


def test_a_leader_that_reaches_no_majority_steps_down() -> None:
    group = Group("abc")
    group.elect("a")
    group.cut("a", "bc")
    group.pass_ms(9000)
    assert group["a"].status.role != "leader"
    assert {"b", "c"} >= {group["b"].status.leader} == {group["c"].status.leader}


@pytest.mark.parametrize("hears", [True, False])
def test_a_link_that_works_one_way_costs_nothing(hears: bool) -> None:
    group = Group("abc")
    group.elect("a")
    group.cuts = {("a", "c")} if hears else {("c", "a")}
    group.pass_ms(10_000)
    group.propose("a", b"x")
    group.pass_ms(600)
    assert (group["a"].status.role, group["a"].status.term) == ("leader", 2)
    assert group["b"].state == [b"x"]


def test_a_leader_that_alone_reaches_everybody_keeps_leading() -> None:
    group = Group("abcde")
    group.elect("a")
    for each in "bcde":
        group.cut(each, "bcde")
    group.pass_ms(10_000)
    group.propose("a", b"x")
    group.pass_ms(600)
    assert all(peer.state == [b"x"] for peer in group.peers.values())
    assert group["a"].status.term == 2


def test_a_bridge_does_not_keep_a_leader_that_lost_its_majority() -> None:
    group = Group("abcde")
    group.elect("a")
    group.cut("a", "cde")  # b hears both sides
    group.pass_ms(12_000)
    leaders = [each for each, peer in group.peers.items() if peer.status.role == "leader"]
    assert len(leaders) == 1
    assert leaders != ["a"]


def longer(group: Group, peer: str, term: int, log_term: int, length: int) -> None:
    entries = [Entry(2 + at, log_term, "command", b"%d" % at) for at in range(length)]
    snapshot = group[peer].snapshot
    group.boot(Peer(peer, hard_state=HardState(term, ""), snapshot=snapshot, entries=entries))


@pytest.mark.parametrize("first", "abcd")
def test_halves_with_the_longer_log_and_with_the_newer_term_join(first: str) -> None:
    group = Group("abcd")
    for each in "ab":
        longer(group, each, 5, 5, 3)
    for each in "cd":
        longer(group, each, 9, 4, 1)
    group.tick(first)
    group.settle()
    group.pass_ms(15_000)
    leader = {peer.status.leader for peer in group.peers.values()}
    assert leader <= {"a", "b"}
    assert len(leader) == 1
    assert len({tuple(peer.state) for peer in group.peers.values()}) == 1


def test_the_answer_of_a_server_with_an_older_term_counts() -> None:
    group = Group("abc")
    longer(group, "a", 7, 5, 2)
    group.cut("c", "ab")
    group.elect("a")  # b is in term 1


def test_a_closed_connection_brings_a_pre_vote_soon() -> None:
    group = Group("abc")
    group.elect("a")
    group.pass_ms(300)
    group["a"].up = False
    before = group.now
    for each in "bc":
        group.tell(each, Unreachable("a"))
    group.pass_ms(1000)
    assert group.now == before + 1000
    assert {group["b"].status.leader, group["c"].status.leader} in ({"b"}, {"c"})


def test_a_wrong_hint_of_a_closed_connection_costs_nothing() -> None:
    group = Group("abc")
    group.elect("a")
    group.tell("c", Unreachable("a"))
    group.pass_ms(3000)
    assert (group["c"].status.leader, group["c"].status.term) == ("a", 2)


def test_who_was_suspended_waits_for_the_leader_once_more() -> None:
    group = Group("abc")
    group.elect("a")
    group.pass_ms(500)
    for peer in "ab":
        group[peer].up = False
    due = group["c"].deadline
    assert due is not None
    assert not bodies(group.tick("c", due + 1600), PreVote)
    assert bodies(group.tick("c"), PreVote)


@pytest.mark.parametrize("answered", [True, False])
def test_a_leader_that_was_suspended_asks_before_it_leads_on(answered: bool) -> None:
    group = Group("abc")
    group.elect("a")
    if not answered:
        group.cut("a", "bc")
    group.now += 10_000
    sent = group.tell("a", Tick())
    assert len(bodies(sent, Append)) == 2
    assert group["a"].status.role == "leader"
    group.settle()
    group.tick("a")
    assert group["a"].status.role == ("leader" if answered else "follower")


def test_a_late_answer_from_before_a_pause_is_no_contact() -> None:
    group = Group("abc")
    group.elect("a")
    group.tick("a")
    late = list(group.mail)
    group.mail = []
    for _, to, message in late:
        group.give(to, message)
    answers = group.take("b", "a") + group.take("c", "a")
    group.now += 10_000
    group.tell("a", Tick())
    for message in answers:
        group.give("a", message)
    group.mail = []
    group.tick("a")
    assert group["a"].status.role == "follower"


def test_restart_of_all_keeps_what_was_committed() -> None:
    group = Group("abc")
    group.elect("a")
    group.propose("a", b"x", b"y")
    group.pass_ms(600)
    for each in "abc":
        group.restart(each)
    group.pass_ms(8000)
    assert all(peer.state == [b"x", b"y"] and peer.status.term >= 3 for peer in group.peers.values())


def test_a_voter_whose_demotion_only_it_knows_can_still_lead() -> None:
    """Of four, the leader demotes itself by an entry that nobody else got, and another one is gone for good."""
    group = Group("abcd")
    group.elect("a")
    group.pass_ms(300)
    group.cut("a", "bcd")
    group.tell("a", ChangeConfig(Demote("a"), 1))
    group.settle()
    assert group["a"].status.config.voters == ("b", "c", "d")
    group["d"].up = False
    group.pass_ms(5000)
    group.mend()
    group.pass_ms(15_000)
    assert group["b"].status.leader == group["c"].status.leader != ""
    assert group["b"].status.config.voters == ("b", "c", "d")
