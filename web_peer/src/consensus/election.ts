/*
 * Decides who may lead: pre-vote, votes, stickiness, check-quorum, and what a pause or a lost connection means (twin of
 * peer/consensus/election.py). Pure.
 *
 * Thesis 3.4 (election), 3.6.1 (whose log is newer), 3.8 (persisted state), 3.10 (transfer), 4.2.3 (a removed or
 * cut-off server disturbs nobody), 6.2 (a leader without a majority steps down), 9.6 (pre-vote).
 */

import type { Message, PreVote, PreVoteReply, Vote, VoteReply } from './messages';
import { byBytes } from '../wire/utf8_order';
import { verdict } from './quorum';
import * as reads from './reads';
import * as replication from './replication';
import type { Node } from './server';

/** A voter; also one whom an entry that is not committed yet makes none: nobody else may have that entry (4.2.2). */
export function mayCampaign(node: Node): boolean {
  if (node.votesHere) return true;
  const { log } = node;
  if (log.configIndex <= node.commit) return false;
  return log.configAt(log.configIndex - 1).votes(node.me, node.incarnation);
}

/** Whether this server has a leader, or is one, that was heard less than an election ago (4.2.3). */
export function sticky(node: Node): boolean {
  const since = node.now - node.settings.electionMinMs;
  if (node.role === 'leader') return replication.quorumContact(node) >= since;
  return node.leader !== '' && node.heardMs !== null && node.heardMs > since;
}

/** Also a leader's or candidate's way back, in the same term or a newer one (3.3). */
export function becomeFollower(node: Node, term: number, leader: string): void {
  const was = node.role;
  const newer = term > node.term;
  const other = leader !== node.leader;
  if (newer || other) reads.dropAll(node);
  if (was === 'leader') replication.stepDown(node);
  if (newer || (node.bug === 5 && was !== 'follower')) node.setTerm(term, '');
  node.role = 'follower';
  node.leader = leader;
  node.votes = new Map();
  if (newer || other) {
    node.verified = node.acked = node.commit;
    node.leaderSeq = 0;
  }
  if (was !== 'follower' || node.electionAt === null) node.resetElection();
}

/** The election time-out of a server that does not lead has passed. */
export function due(node: Node): void {
  if (node.electionAt === null || node.now < node.electionAt) return;
  if (mayCampaign(node)) {
    preCampaign(node);
    return;
  }
  becomeFollower(node, node.term, '');
  node.electionAt = null;
}

/** Ask whether a majority would vote for this server, before it disturbs anyone with a new term (9.6). */
export function preCampaign(node: Node): void {
  becomeFollower(node, node.term, '');
  node.role = 'precandidate';
  node.resetElection();
  if (node.votesHere) node.votes.set(node.me, true);
  const { last, lastTerm } = node.log;
  ask(node, { kind: 'pre_vote', campaignTerm: node.term + 1, lastIndex: last, lastTerm });
  count(node);
}

/** A new term, and a vote for oneself that counts once it is durable (3.4). */
export function campaign(node: Node, byTransfer: boolean): void {
  becomeFollower(node, node.term, '');
  node.role = 'candidate';
  node.byTransfer = byTransfer;
  node.setTerm(node.term + 1, node.bug === 7 ? '' : node.me);
  node.resetElection();
  ask(node, {
    kind: 'vote',
    lastIndex: node.log.last,
    lastTerm: node.log.lastTerm,
    transfer: byTransfer,
  });
}

function ask(node: Node, question: PreVote | Vote): void {
  for (const { id, incarnation, voter } of node.config.servers) {
    if (voter && id !== node.me) node.send(id, incarnation, question);
  }
}

function count(node: Node): void {
  const found = verdict(node.config.voters, node.votes);
  if (found === 'won') {
    if (node.role === 'precandidate') campaign(node, false);
    else if (node.role === 'candidate') replication.becomeLeader(node);
  } else if (found === 'lost' && node.role === 'candidate') {
    becomeFollower(node, node.term, ''); // stays a follower until the next time-out
  }
}

/** Called when something became durable: a candidate's vote for itself counts from then on. */
export function voteIsDurable(node: Node): void {
  if (node.role !== 'candidate' || node.hardToken > node.durableToken || node.hardDirty) return;
  if (node.votesHere) node.votes.set(node.me, true);
  count(node);
}

/** Whether a log that ends like this has all that this one may know to be committed (3.6.1). */
function newerOrEqual(node: Node, lastTerm: number, lastIndex: number): boolean {
  const own = node.log.lastTerm;
  return lastTerm > own || (lastTerm === own && lastIndex >= node.log.last);
}

function free(node: Node, candidate: string): boolean {
  return node.vote === '' || node.vote === candidate;
}

/**
 * Nothing changes here by answering; only a term that the asker is really in is adopted.
 *
 * Both halves must be able to win: one with the longer log and an old term, and one with a newer term (it is told in
 * the answer, and by the asker's own term). Whoever has a leader adopts nothing.
 */
export function onPreVote(node: Node, message: Message, body: PreVote): void {
  let granted = false;
  const { campaignTerm } = body;
  if (!sticky(node)) {
    if (message.term > node.term && node.bug !== 41) becomeFollower(node, message.term, '');
    const fits =
      campaignTerm > node.term ||
      (campaignTerm === node.term && free(node, message.sender) && node.leader === '');
    granted = fits && newerOrEqual(node, body.lastTerm, body.lastIndex);
  }
  node.send(message.sender, message.senderIncarnation, { kind: 'pre_vote_reply', campaignTerm, granted });
}

/** An answer counts by the question it repeats, not by the term of who gives it, which may be lower (or higher). */
export function onPreVoteReply(node: Node, message: Message, body: PreVoteReply): void {
  if (!body.granted && message.term > node.term) {
    if (node.bug !== 41 && !sticky(node)) becomeFollower(node, message.term, '');
    return;
  }
  if (node.bug === 43 && message.term < node.term) return;
  if (node.role === 'precandidate' && body.campaignTerm === node.term + 1) {
    node.votes.set(message.sender, body.granted);
    count(node);
  }
}

/** One vote in a term, stored before it is given (3.4, 3.8). Who has a leader does not even look (4.2.3). */
export function onVote(node: Node, message: Message, body: Vote): void {
  if (message.term > node.term) {
    if (sticky(node) && !body.transfer) return;
    becomeFollower(node, message.term, '');
  }
  const granted =
    message.term === node.term &&
    (free(node, message.sender) || node.bug === 6) &&
    (node.leader === '' || node.bug === 6) &&
    newerOrEqual(node, body.lastTerm, body.lastIndex);
  if (granted) {
    node.setTerm(node.term, message.sender);
    node.resetElection();
  }
  node.send(message.sender, message.senderIncarnation, { kind: 'vote_reply', granted });
}

export function onVoteReply(node: Node, message: Message, body: VoteReply): void {
  if (node.role !== 'candidate' || message.term !== node.term) return;
  node.votes.set(message.sender, body.granted);
  count(node);
}

/** The leader hands over: no pre-vote, and voters do not mind that they have a leader (3.10). */
export function onTimeoutNow(node: Node, message: Message): void {
  if (node.role === 'follower' && message.sender === node.leader && node.votesHere) campaign(node, true);
}

/** The leader's connection closed: ask at once, a little apart from the others who noticed it too. */
export function onUnreachable(node: Node, peer: string): void {
  if (node.role !== 'follower' || peer !== node.leader) return;
  becomeFollower(node, node.term, '');
  node.heardMs = null;
  if (mayCampaign(node)) {
    node.electionAt = node.now + (node.nextRandom() % (2 * node.settings.heartbeatMs));
  }
}

/** The voter that has most of this leader's log, and was heard last; "" where there is none. */
export function bestSuccessor(node: Node): string {
  const { voters } = node.config;
  const known = [...node.progress].filter(([peer]) => voters.includes(peer));
  known.sort(
    ([a, first], [b, second]) =>
      second.match - first.match || second.contactMs - first.contactMs || byBytes(b, a),
  );
  return known[0]?.[0] ?? '';
}

export function handOverTo(node: Node, peer: string): void {
  const server = node.config.byId.get(peer);
  if (server !== undefined) node.send(peer, server.incarnation, { kind: 'timeout_now' });
}
