/*
 * One Raft server: hands each event to its part, changes its role, and collects the effects (twin of
 * peer/consensus/core.py). Pure.
 *
 * Only this module changes roles. The parts (election, membership and reads, below them replication, below it snapshot)
 * change the rest of the state; what they return tells whether votes are to be counted or a commit is to follow.
 */

import * as election from './election';
import { BadBoot } from './errors';
import * as stateDigest from './state_digest';
import * as membership from './membership';
import type {
  Append,
  AppendReply,
  Install,
  InstallReply,
  Message,
  ReadIndex,
  ReadIndexReply,
  TimeoutNow,
  VoteReply,
} from './messages';
import * as reads from './reads';
import { MAX_UNCOMMITTED } from './records';
import * as replication from './replication';
import * as snapshot from './snapshot';
import { type Progress, RaftServer } from './server';
import type { Boot, Effect, Event, Propose, Status, Transfer } from './events';
import { MAX_ENTRY_BYTES } from '../limits';

const NOTHING = new Uint8Array(0);

/** One server. `step` takes one event and returns what the edge is to perform, in order. */
export class Core {
  private booted: RaftServer | null = null;

  /** Takes the next event; the first one is boot, and no other one is. Raises BadBoot only then. */
  step(nowMs: number, event: Event): Effect[] {
    if (event.kind === 'boot') {
      const server = new RaftServer(event, nowMs);
      this.booted = server;
      boot(server);
      return finish(server);
    }
    const { server } = this;
    server.now = Math.max(server.now, nowMs); // a clock that goes back stands still here
    resume(server);
    handle(server, event);
    return finish(server);
  }

  private get server(): RaftServer {
    if (this.booted === null) throw new BadBoot('core: expected Boot as the first event, got another one');
    return this.booted;
  }

  /** What people are shown. Raises BadBoot before boot. */
  get status(): Status {
    const { server } = this;
    const matched = new Map(server.sortedProgress().map(([id, { matchIndex }]) => [id, matchIndex]));
    const { role, term, leader, commitIndex, appliedIndex, config, log } = server;
    if (role === 'leader') matched.set(server.id, log.durableIndex);
    return {
      role,
      term,
      leader,
      commit: commitIndex,
      applied: appliedIndex,
      last: log.lastIndex,
      config,
      matched,
    };
  }

  /** Returns 16 hex digits over the whole state: equal in every language for equal states. */
  digest(): string {
    return stateDigest.digest(this.server);
  }
}

function boot(server: RaftServer): void {
  const { log } = server;
  const newest = Math.max(log.lastTerm, log.snapshot?.term ?? 0);
  if (server.term < newest) {
    throw new BadBoot(`term: expected at least ${newest}, the term of the newest entry, got ${server.term}`);
  }
  if (log.snapshot !== null) {
    if (log.stale) server.storeSnapshot(log.snapshot);
    server.effects.push({ kind: 'restore', snapshot: log.snapshot });
  }
  if (server.isVoter && server.config.voters.length === 1)
    server.electionDeadline = server.now; // nobody else could lead
  else if (election.mayCampaign(server)) server.resetElectionTimer();
}

/**
 * Distrusts what is believed of the others, if the process or tab stood still for longer than an election.
 *
 * A follower waits for the leader once more before it campaigns. A leader asks at once who follows it still, and leads
 * on only if a majority says so within one heartbeat; reads wait for answers from after the pause.
 */
function resume(server: RaftServer): void {
  const dueMs = server.reportedDeadline;
  if (dueMs === null || server.now - dueMs <= server.settings.electionMinMs) return;
  if (server.role === 'leader') {
    server.resumedMs = server.now;
    server.checkQuorumDeadline = server.now + server.settings.heartbeatMs;
    server.roundSeq = server.seq;
    replication.broadcastHeartbeat(server);
  } else if (server.electionDeadline !== null) server.resetElectionTimer();
}

function handle(server: RaftServer, event: Exclude<Event, Boot>): void {
  switch (event.kind) {
    case 'tick':
      server.reportedDeadline = null; // the next one is reported in any case
      tick(server);
      return;
    case 'received':
      receive(server, event.sender, event.message);
      return;
    case 'propose':
      propose(server, event);
      return;
    case 'change_config':
      membership.onChange(server, event);
      return;
    case 'transfer':
      transfer(server, event);
      return;
    case 'read':
      reads.onRead(server, event.ctx);
      return;
    case 'persisted':
    case 'snapshot_stored':
      durable(server, event.token);
      return;
    case 'applied':
      server.appliedIndex = Math.max(server.appliedIndex, Math.min(event.index, server.applyingIndex));
      return;
    case 'compact':
      snapshot.onCompact(server, event);
      return;
    case 'unreachable':
      unreachable(server, event.id);
      return;
    default:
      return event satisfies never;
  }
}

// --- roles (figure 3.3) ---------------------------------------------------------------------------------------

/** In a newer term (3.3), under another leader ("": none known), or back from a campaign or from leading. */
function becomeFollower(server: RaftServer, term: number, leader: string): void {
  const was = server.role;
  const newer = term > server.term;
  const other = leader !== server.leader;
  if (newer || other) reads.dropUnconfirmed(server);
  if (was === 'leader') replication.stopLeading(server);
  if (newer) server.setHardState(term, '');
  server.role = 'follower';
  server.leader = leader;
  server.votes = new Map();
  if (newer || other) {
    server.verifiedIndex = server.acknowledgedIndex = server.commitIndex;
    server.leaderSeq = 0;
  }
  if (was !== 'follower' || server.electionDeadline === null) server.resetElectionTimer();
}

function becomePrecandidate(server: RaftServer): void {
  becomeFollower(server, server.term, '');
  server.role = 'precandidate';
  election.askForPreVotes(server);
  countVotes(server);
}

function becomeCandidate(server: RaftServer, byTransfer: boolean): void {
  becomeFollower(server, server.term, '');
  server.role = 'candidate';
  election.askForVotes(server, byTransfer);
}

/** A noop of the new term commits what is there (3.6.2, 6.4) and opens membership changes (the barrier). */
function becomeLeader(server: RaftServer): void {
  server.role = 'leader';
  server.leader = server.id;
  server.votes = new Map();
  server.electionDeadline = null;
  server.incomingSnapshot = null;
  replication.startLeading(server);
  membership.followConfig(server);
  replication.append(server, 'noop', NOTHING);
  replication.broadcastHeartbeat(server);
}

function countVotes(server: RaftServer): void {
  const verdict = election.verdict(server);
  if (verdict === 'won') {
    if (server.role === 'precandidate') becomeCandidate(server, false);
    else if (server.role === 'candidate') becomeLeader(server);
  } else if (verdict === 'lost' && server.role === 'candidate') {
    becomeFollower(server, server.term, ''); // until the next election timeout
  }
}

/** Follows the leader of this term, which sent its message number `seq` (3.4). */
function follow(server: RaftServer, message: Message, seq: number): void {
  becomeFollower(server, message.term, message.sender);
  server.leaderIncarnation = message.senderIncarnation;
  server.leaderSeq = Math.max(server.leaderSeq, seq);
  server.leaderContactMs = server.now;
  server.resetElectionTimer();
}

/** Commits what a majority of the voters has; a leader that is no voter any more leads until then (4.2.2). */
function advanceCommit(server: RaftServer): void {
  if (!replication.advanceCommit(server)) return;
  if (membership.leadsNoMore(server)) {
    membership.handOver(server);
    becomeFollower(server, server.term, '');
  } else {
    reads.beginRound(server);
    replication.broadcastCommit(server);
  }
}

// --- events ---------------------------------------------------------------------------------------------------

function tick(server: RaftServer): void {
  reads.expire(server);
  if (server.role === 'leader') tickLeader(server);
  else if (server.electionDeadline !== null && server.now >= server.electionDeadline) {
    if (election.mayCampaign(server)) becomePrecandidate(server);
    else {
      becomeFollower(server, server.term, '');
      server.electionDeadline = null;
    }
  }
}

function tickLeader(server: RaftServer): void {
  if (server.transferTarget !== '' && server.now >= server.transferDeadline) {
    server.reject(server.transferCtx, 'timeout');
    server.transferTarget = '';
  }
  let contactSince = server.now - server.settings.electionMaxMs;
  const check = server.checkQuorumDeadline !== null && server.now >= server.checkQuorumDeadline;
  if (server.checkQuorumDeadline !== null) contactSince = check ? server.resumedMs : 0;
  if (replication.quorumContactMs(server) < contactSince) {
    becomeFollower(server, server.term, ''); // it reaches no majority (6.2)
    return;
  }
  if (check) server.checkQuorumDeadline = null;
  if (server.now >= server.heartbeatDeadline) replication.broadcastHeartbeat(server);
}

function propose(server: RaftServer, { data, ctx }: Propose): void {
  if (server.role !== 'leader') server.reject(ctx, server.leader === '' ? 'no_leader' : 'not_leader');
  else if (server.transferTarget !== '') server.reject(ctx, 'transferring');
  else if (data.length > MAX_ENTRY_BYTES) server.reject(ctx, 'too_large');
  else if (server.log.lastIndex - server.commitIndex >= MAX_UNCOMMITTED) server.reject(ctx, 'busy');
  else {
    const { index, term } = replication.append(server, 'command', data);
    server.effects.push({ kind: 'proposed', ctx, index, term });
    replication.broadcastAppend(server);
  }
}

/** New proposals wait until the target has the whole log and campaigns, or an election's time is over (3.10). */
function transfer(server: RaftServer, { to, ctx }: Transfer): void {
  if (server.role !== 'leader') server.reject(ctx, server.leader === '' ? 'no_leader' : 'not_leader');
  else if (server.transferTarget !== '') server.reject(ctx, 'transferring');
  else if (to === server.id) server.reject(ctx, 'already');
  else if (!server.config.voters.includes(to)) {
    server.reject(ctx, server.config.byId.has(to) ? 'not_a_voter' : 'unknown_member');
  } else {
    server.transferTarget = to;
    server.transferCtx = ctx;
    server.transferDeadline = server.now + server.settings.electionMinMs;
    replication.broadcastHeartbeat(server);
  }
}

function durable(server: RaftServer, token: number): void {
  server.durableToken = Math.max(server.durableToken, Math.min(token, server.lastToken));
  server.log.writeEnded(server.durableToken);
  server.releaseSends();
  snapshot.onDurable(server);
  if (election.onDurable(server)) countVotes(server);
  if (server.role === 'leader') advanceCommit(server);
  else replication.acknowledgeDurable(server);
}

function unreachable(server: RaftServer, peer: string): void {
  replication.onUnreachable(server, peer);
  if (server.role === 'follower' && peer === server.leader) {
    becomeFollower(server, server.term, '');
    election.onLeaderUnreachable(server);
  }
}

// --- messages -------------------------------------------------------------------------------------------------

/** Looks at the term of a message first (3.3); who asks for votes must not end the term of an active leader. */
function receive(server: RaftServer, sender: string, message: Message): void {
  if (!isForHere(server, sender, message)) return;
  const { body, term } = message;
  switch (body.kind) {
    case 'pre_vote':
      if (term > server.term && !election.hasActiveLeader(server)) becomeFollower(server, term, '');
      election.onPreVote(server, message, body);
      return;
    case 'pre_vote_reply':
      if (!body.granted && term > server.term) {
        if (!election.hasActiveLeader(server)) becomeFollower(server, term, '');
      } else if (election.onPreVoteReply(server, message, body)) countVotes(server);
      return;
    case 'vote':
      if (term > server.term) {
        if (election.hasActiveLeader(server) && !body.transfer) return; // it does not even look (4.2.3)
        becomeFollower(server, term, '');
      }
      election.onVote(server, message, body);
      return;
    default:
      if (term > server.term) {
        const leads = body.kind === 'append' || body.kind === 'install';
        becomeFollower(server, term, leads ? sender : '');
      }
      if (term < server.term) receiveFromOlderTerm(server, message);
      else receiveInTerm(server, message, body);
  }
}

/** Whether it is from the one that it names, and of this mesh, epoch and incarnation. */
function isForHere(server: RaftServer, sender: string, message: Message): boolean {
  if (message.sender !== sender || sender === server.id) return false;
  if (message.meshId !== server.meshId || message.groupEpoch !== server.groupEpoch) return false;
  return !isOfAnotherIncarnation(server, message);
}

/** Whether it is to or from an earlier incarnation, or an answer of one that the configuration does not name. */
function isOfAnotherIncarnation(
  server: RaftServer,
  { sender, senderIncarnation, toIncarnation, body }: Message,
): boolean {
  if (toIncarnation !== server.incarnation) return true;
  const known = server.config.byId.get(sender);
  if (known !== undefined && senderIncarnation < known.incarnation) return true;
  switch (body.kind) {
    case 'pre_vote_reply':
    case 'vote_reply':
    case 'append_reply':
    case 'install_reply':
      return known?.incarnation !== senderIncarnation;
    default:
      return false;
  }
}

function receiveFromOlderTerm(server: RaftServer, message: Message): void {
  const { body } = message;
  if (body.kind === 'append' || body.kind === 'install') replication.refuseOlderTerm(server, message);
  else if (body.kind === 'read_index') reads.onReadIndex(server, message, body);
}

function receiveInTerm(
  server: RaftServer,
  message: Message,
  body: Append | AppendReply | Install | InstallReply | VoteReply | TimeoutNow | ReadIndex | ReadIndexReply,
): void {
  switch (body.kind) {
    case 'append':
      if (server.role === 'leader') return; // two leaders of one term cannot be
      follow(server, message, body.seq);
      replication.onAppend(server, message, body);
      return;
    case 'append_reply':
    case 'install_reply': {
      const progress = server.progress.get(message.sender);
      if (server.role === 'leader' && progress !== undefined) {
        receiveReply(server, message.sender, progress, body);
      }
      return;
    }
    case 'install':
      if (server.role === 'leader') return;
      follow(server, message, body.seq);
      snapshot.onInstall(server, message, body);
      return;
    case 'vote_reply':
      if (election.onVoteReply(server, message, body)) countVotes(server);
      return;
    case 'timeout_now':
      if (election.takesOver(server, message)) becomeCandidate(server, true);
      return;
    case 'read_index':
      reads.onReadIndex(server, message, body);
      return;
    case 'read_index_reply':
      reads.onReadIndexReply(server, message, body);
      return;
    default:
      return body satisfies never;
  }
}

/** Any answer is contact, which may end a round of reads; then it is looked at what it says. */
function receiveReply(
  server: RaftServer,
  peer: string,
  progress: Progress,
  body: AppendReply | InstallReply,
): void {
  if (replication.onContact(server, progress, body.seq)) reads.endRound(server);
  if (body.kind === 'install_reply') snapshot.onInstallReply(server, peer, progress, body);
  else if (replication.onAppendReply(server, peer, progress, body)) {
    advanceCommit(server);
    if (server.role === 'leader') replication.sendMore(server, peer, progress);
  }
}

// --- effects --------------------------------------------------------------------------------------------------

/** What is to be durable, then what may be sent, then what is committed, then what may be read. */
function finish(server: RaftServer): Effect[] {
  server.flushPersist();
  server.flushSends();
  server.reportRole();
  const index = Math.min(server.commitIndex, server.log.durableIndex);
  if (index > server.applyingIndex && server.restoreToken === 0) {
    const entries = server.log.span(server.applyingIndex + 1, index);
    server.applyingIndex = index;
    server.effects.push({ kind: 'apply', entries });
  }
  reads.serve(server);
  server.reportDeadline(deadlineMs(server));
  const { effects } = server;
  server.effects = [];
  return effects;
}

function deadlineMs(server: RaftServer): number | null {
  const deadlines = [reads.deadlineMs(server)];
  if (server.role === 'leader') {
    deadlines.push(server.heartbeatDeadline, server.checkQuorumDeadline);
    if (server.transferTarget !== '') deadlines.push(server.transferDeadline);
  } else deadlines.push(server.electionDeadline);
  const known = deadlines.filter((at) => at !== null);
  return known.length === 0 ? null : Math.min(...known);
}
