"""Decides who may lead: pre-vote, votes, stickiness, check-quorum, and what a pause or a lost connection means.

Thesis 3.4 (election), 3.6.1 (whose log is newer), 3.8 (persisted state), 3.10 (transfer), 4.2.3 (a removed or cut-off
server disturbs nobody), 6.2 (a leader without a majority steps down), 9.6 (pre-vote).
"""

from __future__ import annotations

from peer.consensus import quorum, reads, replication
from peer.consensus.messages import Message, PreVote, PreVoteReply, TimeoutNow, Vote, VoteReply
from peer.consensus.server import Node


def may_campaign(node: Node) -> bool:
    """A voter; also one whom an entry that is not committed yet makes none: nobody else may have that entry (4.2.2)."""
    if node.votes_here:
        return True
    log = node.log
    return log.config_index > node.commit and log.config_at(log.config_index - 1).votes(
        node.me, node.incarnation
    )


def sticky(node: Node) -> bool:
    """Whether this server has a leader, or is one, that was heard less than an election ago (4.2.3)."""
    since = node.now - node.settings.election_min_ms
    if node.role == "leader":
        return replication.quorum_contact(node) >= since
    return node.leader != "" and node.heard_ms is not None and node.heard_ms > since


def become_follower(node: Node, term: int, leader: str) -> None:
    """Also a leader's or candidate's way back, in the same term or a newer one (3.3)."""
    was, newer, other = node.role, term > node.term, leader != node.leader
    if newer or other:
        reads.drop_all(node)
    if was == "leader":
        replication.step_down(node)
    if newer or (node.bug == 5 and was != "follower"):
        node.set_term(term, "")
    node.role, node.leader, node.votes = "follower", leader, {}
    if newer or other:
        node.verified = node.acked = node.commit
        node.leader_seq = 0
    if was != "follower" or node.election_at is None:
        node.reset_election()


def due(node: Node) -> None:
    """The election time-out of a server that does not lead has passed."""
    if node.election_at is None or node.now < node.election_at:
        return
    if may_campaign(node):
        pre_campaign(node)
        return
    become_follower(node, node.term, "")
    node.election_at = None


def pre_campaign(node: Node) -> None:
    """Ask whether a majority would vote for this server, before it disturbs anyone with a new term (9.6)."""
    become_follower(node, node.term, "")
    node.role = "precandidate"
    node.reset_election()
    if node.votes_here:
        node.votes[node.me] = True
    question = PreVote(node.term + 1, node.log.last, node.log.last_term)
    _ask(node, question)
    _count(node)


def campaign(node: Node, by_transfer: bool) -> None:
    """A new term, and a vote for oneself that counts once it is durable (3.4)."""
    become_follower(node, node.term, "")
    node.role, node.by_transfer = "candidate", by_transfer
    node.set_term(node.term + 1, "" if node.bug == 7 else node.me)
    node.reset_election()
    _ask(node, Vote(node.log.last, node.log.last_term, by_transfer))


def _ask(node: Node, question: PreVote | Vote) -> None:
    for server in node.config.servers:
        if server.voter and server.id != node.me:
            node.send(server.id, server.incarnation, question)


def _count(node: Node) -> None:
    match quorum.verdict(node.config.voters, node.votes):
        case "won" if node.role == "precandidate":
            campaign(node, by_transfer=False)
        case "won" if node.role == "candidate":
            replication.become_leader(node)
        case "lost" if node.role == "candidate":
            become_follower(node, node.term, "")  # stays a follower until the next time-out
        case _:
            pass


def vote_is_durable(node: Node) -> None:
    """Called when something became durable: a candidate's vote for itself counts from then on."""
    if node.role == "candidate" and node.hard_token <= node.durable_token and not node.hard_dirty:
        if node.votes_here:
            node.votes[node.me] = True
        _count(node)


def _newer_or_equal(node: Node, last_term: int, last_index: int) -> bool:
    """Whether a log that ends like this has all that this one may know to be committed (3.6.1)."""
    return (last_term, last_index) >= (node.log.last_term, node.log.last)


def on_pre_vote(node: Node, message: Message, body: PreVote) -> None:
    """Nothing changes here by answering; only a term that the asker is really in is adopted.

    Both halves must be able to win: one with the longer log and an old term, and one with a newer term (it is told in
    the answer, and by the asker's own term). Whoever has a leader adopts nothing.
    """
    granted = False
    if not sticky(node):
        if message.term > node.term and node.bug != 41:
            become_follower(node, message.term, "")
        free = node.vote in ("", message.sender) and node.leader == ""
        fits = body.campaign_term > node.term or (body.campaign_term == node.term and free)
        granted = fits and _newer_or_equal(node, body.last_term, body.last_index)
    reply = PreVoteReply(body.campaign_term, granted)
    node.send(message.sender, message.sender_incarnation, reply)


def on_pre_vote_reply(node: Node, message: Message, body: PreVoteReply) -> None:
    """An answer counts by the question it repeats, not by the term of who gives it, which may be lower (or higher)."""
    if not body.granted and message.term > node.term:
        if node.bug != 41 and not sticky(node):
            become_follower(node, message.term, "")
        return
    if node.bug == 43 and message.term < node.term:
        return
    if node.role == "precandidate" and body.campaign_term == node.term + 1:
        node.votes[message.sender] = body.granted
        _count(node)


def on_vote(node: Node, message: Message, body: Vote) -> None:
    """One vote in a term, stored before it is given (3.4, 3.8). Who has a leader does not even look (4.2.3)."""
    if message.term > node.term:
        if sticky(node) and not body.transfer:
            return
        become_follower(node, message.term, "")
    granted = (
        message.term == node.term
        and (node.vote in ("", message.sender) or node.bug == 6)
        and (node.leader == "" or node.bug == 6)
        and _newer_or_equal(node, body.last_term, body.last_index)
    )
    if granted:
        node.set_term(node.term, message.sender)
        node.reset_election()
    node.send(message.sender, message.sender_incarnation, VoteReply(granted))


def on_vote_reply(node: Node, message: Message, body: VoteReply) -> None:
    if node.role == "candidate" and message.term == node.term:
        node.votes[message.sender] = body.granted
        _count(node)


def on_timeout_now(node: Node, message: Message) -> None:
    """The leader hands over: no pre-vote, and voters do not mind that they have a leader (3.10)."""
    if node.role == "follower" and message.sender == node.leader and node.votes_here:
        campaign(node, by_transfer=True)


def on_unreachable(node: Node, peer: str) -> None:
    """The leader's connection closed: ask at once, a little apart from the others who noticed it too."""
    if node.role == "follower" and peer == node.leader:
        become_follower(node, node.term, "")
        node.heard_ms = None
        if may_campaign(node):
            node.election_at = node.now + node.next_random() % (2 * node.settings.heartbeat_ms)


def best_successor(node: Node) -> str:
    """The voter that has most of this leader's log, and was heard last; "" where there is none."""
    known = [
        (progress.match, progress.contact_ms, peer)
        for peer, progress in sorted(node.progress.items())
        if peer in node.config.voters
    ]
    return max(known, default=(0, 0, ""))[2]


def hand_over_to(node: Node, peer: str) -> None:
    server = node.config.by_id.get(peer)
    if server is not None:
        node.send(peer, server.incarnation, TimeoutNow())
