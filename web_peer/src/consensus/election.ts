/*
 * Elections: who may campaign, who votes for whom, and how votes stand (twin of peer/consensus/election.py). Pure.
 *
 * Thesis 3.4 (election), 3.6.1 (the log that is more up to date), 3.8 (persisted state), 3.10 (transfer), 4.2.3 (a
 * removed or cut-off server disrupts nobody), 9.6 (pre-vote). The core changes the role; what is returned here tells it
 * when.
 */

import type { Message, PreVote, PreVoteReply, Vote, VoteReply } from './messages';
import * as quorum from './quorum';
import * as replication from './replication';
import type { RaftServer } from './server';

/**
 * Returns whether this server is a voter, or was one before a configuration that is not committed yet.
 *
 * Nobody else may have that entry (4.2.2).
 */
export function mayCampaign(server: RaftServer): boolean {
  if (server.isVoter) return true;
  const { log } = server;
  if (log.configIndex <= server.commitIndex) return false;
  return log.configAt(log.configIndex - 1).votes(server.id, server.incarnation);
}

/** Returns whether this server leads, or follows a leader, with contact less than an election ago (4.2.3). */
export function hasActiveLeader(server: RaftServer): boolean {
  const since = server.now - server.settings.electionMinMs;
  if (server.role === 'leader') return replication.quorumContactMs(server) >= since;
  const { leaderContactMs } = server;
  return server.leader !== '' && leaderContactMs !== null && leaderContactMs > since;
}

// --- the one that campaigns -----------------------------------------------------------------------------------

/** Asks whether a majority would vote for this server, before it disturbs anyone with a new term (9.6). */
export function askForPreVotes(server: RaftServer): void {
  server.resetElectionTimer();
  if (server.isVoter) server.votes.set(server.id, true);
  const { lastIndex, lastTerm } = server.log;
  askVoters(server, { kind: 'pre_vote', campaignTerm: server.term + 1, lastIndex, lastTerm });
}

/** Begins a new term with a vote for itself, which counts once it is durable (3.4). */
export function askForVotes(server: RaftServer, byTransfer: boolean): void {
  server.byTransfer = byTransfer;
  server.setHardState(server.term + 1, server.id);
  server.resetElectionTimer();
  const { lastIndex, lastTerm } = server.log;
  askVoters(server, { kind: 'vote', lastIndex, lastTerm, transfer: byTransfer });
}

function askVoters(server: RaftServer, question: PreVote | Vote): void {
  for (const { id, incarnation, voter } of server.config.servers) {
    if (voter && id !== server.id) server.send(id, incarnation, question);
  }
}

/** Returns how the vote of a precandidate or candidate stands. */
export function verdict(server: RaftServer): quorum.Verdict {
  return quorum.verdict(server.config.voters, server.votes);
}

/** Counts a candidate's vote for itself once it is durable; returns whether the votes are to be looked at. */
export function onDurable(server: RaftServer): boolean {
  if (server.role !== 'candidate' || server.hardStateToken > server.durableToken) return false;
  if (server.hardStateChanged) return false;
  if (server.isVoter) server.votes.set(server.id, true);
  return true;
}

/**
 * Counts an answer by the question it repeats, whatever the term of the server that gives it.
 *
 * Returns whether it counted.
 */
export function onPreVoteReply(server: RaftServer, message: Message, body: PreVoteReply): boolean {
  if (server.role !== 'precandidate' || body.campaignTerm !== server.term + 1) return false;
  server.votes.set(message.sender, body.granted);
  return true;
}

/** Counts a vote of this term; returns whether it counted. */
export function onVoteReply(server: RaftServer, message: Message, body: VoteReply): boolean {
  if (server.role !== 'candidate') return false;
  server.votes.set(message.sender, body.granted);
  return true;
}

/** Returns whether this server campaigns at once, as its leader hands over (3.10). */
export function takesOver(server: RaftServer, message: Message): boolean {
  return server.role === 'follower' && message.sender === server.leader && server.isVoter;
}

/** Waits a short random time before campaigning: others notice that the leader's connection closed, too. */
export function onLeaderUnreachable(server: RaftServer): void {
  server.leaderContactMs = null;
  if (mayCampaign(server)) {
    server.electionDeadline = server.now + (server.nextRandom() % (2 * server.settings.heartbeatMs));
  }
}

// --- those that vote ------------------------------------------------------------------------------------------

/** Whether a log that ends like this has all that this one may know to be committed (3.6.1). */
function upToDate(server: RaftServer, lastTerm: number, lastIndex: number): boolean {
  const own = server.log.lastTerm;
  return lastTerm > own || (lastTerm === own && lastIndex >= server.log.lastIndex);
}

/** Whether this server has given no vote in its term, or gave it to `candidate`. */
function mayVoteFor(server: RaftServer, candidate: string): boolean {
  return server.votedFor === '' || server.votedFor === candidate;
}

/**
 * Answers a pre-vote, which changes nothing here.
 *
 * Both kinds of candidate must be able to win: one with the longer log and an old term (this server tells it the newer
 * one), and one with a newer term (the core has taken that over before, unless there is an active leader).
 */
export function onPreVote(server: RaftServer, message: Message, body: PreVote): void {
  const { campaignTerm } = body;
  const free = mayVoteFor(server, message.sender) && server.leader === '';
  const fits = campaignTerm > server.term || (campaignTerm === server.term && free);
  const granted = !hasActiveLeader(server) && fits && upToDate(server, body.lastTerm, body.lastIndex);
  server.send(message.sender, message.senderIncarnation, { kind: 'pre_vote_reply', campaignTerm, granted });
}

/** Gives one vote in a term, stored before it is sent (3.4, 3.8), to a log that is up to date. */
export function onVote(server: RaftServer, message: Message, body: Vote): void {
  const granted =
    message.term === server.term &&
    mayVoteFor(server, message.sender) &&
    server.leader === '' &&
    upToDate(server, body.lastTerm, body.lastIndex);
  if (granted) {
    server.setHardState(server.term, message.sender);
    server.resetElectionTimer();
  }
  server.send(message.sender, message.senderIncarnation, { kind: 'vote_reply', granted });
}
