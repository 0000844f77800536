"""Elections: who may campaign, who votes for whom, and how votes stand.

Thesis 3.4 (election), 3.6.1 (the log that is more up to date), 3.8 (persisted state), 3.10 (transfer), 4.2.3 (a removed
or cut-off server disrupts nobody), 9.6 (pre-vote). The core changes the role; what is returned here tells it when.
"""

from __future__ import annotations

from peer.consensus import quorum, replication
from peer.consensus.messages import Message, PreVote, PreVoteReply, Vote, VoteReply
from peer.consensus.server import RaftServer


def may_campaign(server: RaftServer) -> bool:
    """Returns whether this server is a voter, or was one before a configuration that is not committed yet.

    Nobody else may have that entry (4.2.2).
    """
    if server.is_voter:
        return True
    log = server.log
    return log.config_index > server.commit_index and log.config_at(log.config_index - 1).votes(
        server.id, server.incarnation
    )


def has_active_leader(server: RaftServer) -> bool:
    """Returns whether this server leads, or follows a leader, with contact less than an election ago (4.2.3)."""
    since = server.now - server.settings.election_min_ms
    if server.role == "leader":
        return replication.quorum_contact_ms(server) >= since
    contact_ms = server.leader_contact_ms
    return server.leader != "" and contact_ms is not None and contact_ms > since


# --- the one that campaigns -------------------------------------------------------------------------------


def ask_for_pre_votes(server: RaftServer) -> None:
    """Asks whether a majority would vote for this server, before it disturbs anyone with a new term (9.6)."""
    server.reset_election_timer()
    if server.is_voter:
        server.votes[server.id] = True
    _ask_voters(server, PreVote(server.term + 1, server.log.last_index, server.log.last_term))


def ask_for_votes(server: RaftServer, by_transfer: bool) -> None:
    """Begins a new term with a vote for itself, which counts once it is durable (3.4)."""
    server.by_transfer = by_transfer
    server.set_hard_state(server.term + 1, server.id)
    server.reset_election_timer()
    _ask_voters(server, Vote(server.log.last_index, server.log.last_term, by_transfer))


def _ask_voters(server: RaftServer, question: PreVote | Vote) -> None:
    for peer in server.config.servers:
        if peer.voter and peer.id != server.id:
            server.send(peer.id, peer.incarnation, question)


def verdict(server: RaftServer) -> quorum.Verdict:
    """Returns how the vote of a precandidate or candidate stands."""
    return quorum.verdict(server.config.voters, server.votes)


def on_durable(server: RaftServer) -> bool:
    """Counts a candidate's vote for itself once it is durable; returns whether the votes are to be looked at."""
    if server.role != "candidate" or server.hard_state_token > server.durable_token:
        return False
    if server.hard_state_changed:
        return False
    if server.is_voter:
        server.votes[server.id] = True
    return True


def on_pre_vote_reply(server: RaftServer, message: Message, body: PreVoteReply) -> bool:
    """Counts an answer by the question it repeats, whatever the term of the server that gives it.

    Returns whether it counted.
    """
    if server.role != "precandidate" or body.campaign_term != server.term + 1:
        return False
    server.votes[message.sender] = body.granted
    return True


def on_vote_reply(server: RaftServer, message: Message, body: VoteReply) -> bool:
    """Counts a vote of this term; returns whether it counted."""
    if server.role != "candidate":
        return False
    server.votes[message.sender] = body.granted
    return True


def takes_over(server: RaftServer, message: Message) -> bool:
    """Returns whether this server campaigns at once, as its leader hands over (3.10)."""
    return server.role == "follower" and message.sender == server.leader and server.is_voter


def on_leader_unreachable(server: RaftServer) -> None:
    """Waits a short random time before campaigning: others notice that the leader's connection closed, too."""
    server.leader_contact_ms = None
    if may_campaign(server):
        server.election_deadline = server.now + server.next_random() % (2 * server.settings.heartbeat_ms)


# --- those that vote --------------------------------------------------------------------------------------


def _up_to_date(server: RaftServer, last_term: int, last_index: int) -> bool:
    """Whether a log that ends like this has all that this one may know to be committed (3.6.1)."""
    return (last_term, last_index) >= (server.log.last_term, server.log.last_index)


def on_pre_vote(server: RaftServer, message: Message, body: PreVote) -> None:
    """Answers a pre-vote, which changes nothing here.

    Both kinds of candidate must be able to win: one with the longer log and an old term (this server tells it the
    newer one), and one with a newer term (the core has taken that over before, unless there is an active leader).
    """
    free = server.voted_for in ("", message.sender) and server.leader == ""
    fits = body.campaign_term > server.term or (body.campaign_term == server.term and free)
    granted = not has_active_leader(server) and fits and _up_to_date(server, body.last_term, body.last_index)
    server.send(message.sender, message.sender_incarnation, PreVoteReply(body.campaign_term, granted))


def on_vote(server: RaftServer, message: Message, body: Vote) -> None:
    """Gives one vote in a term, stored before it is sent (3.4, 3.8), to a log that is up to date."""
    granted = (
        message.term == server.term
        and server.voted_for in ("", message.sender)
        and server.leader == ""
        and _up_to_date(server, body.last_term, body.last_index)
    )
    if granted:
        server.set_hard_state(server.term, message.sender)
        server.reset_election_timer()
    server.send(message.sender, message.sender_incarnation, VoteReply(granted))
