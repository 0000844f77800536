/*
 * Decides, event by event, what a server does next: each event goes to its part, then effects are collected (twin of
 * peer/consensus/core.py). Pure.
 */

import * as election from './election';
import { BadBoot } from './errors';
import * as image from './state_digest';
import * as membership from './membership';
import type { Message } from './messages';
import { sorted } from '../wire/utf8_order';
import * as reads from './reads';
import { MAX_ENTRY_BYTES, MAX_UNCOMMITTED } from './records';
import * as replication from './replication';
import * as snapshot from './snapshot';
import { Node } from './server';
import type { Boot, Effect, Event, Propose, Status, Transfer } from './events';

/** One server. `step` takes one event and returns what the edge is to perform, in order. */
export class Core {
  private held: Node | null = null;

  /** The first event is boot, and no other one is. Raises BadBoot only then. */
  step(nowMs: number, event: Event): Effect[] {
    if (event.kind === 'boot') {
      const node = new Node(event, nowMs);
      this.held = node;
      boot(node);
      return finish(node);
    }
    const { node } = this;
    node.now = Math.max(node.now, nowMs); // a clock that goes back stands still here
    resume(node);
    handle(node, event);
    return finish(node);
  }

  private get node(): Node {
    if (this.held === null) throw new BadBoot('core: expected Boot as the first event, got another one');
    return this.held;
  }

  get status(): Status {
    const { node } = this;
    const matched = new Map(
      sorted(node.progress.keys()).map((id) => [id, node.progress.get(id)?.match ?? 0]),
    );
    if (node.role === 'leader') matched.set(node.me, node.log.durable);
    const { role, term, leader, commit, applied, config, log } = node;
    return { role, term, leader, commit, applied, last: log.last, config, matched };
  }

  /** 16 hex digits over canonical JSON of the whole state: equal in every language for equal states. */
  digest(): string {
    return image.digest(this.node);
  }
}

function boot(node: Node): void {
  const { log } = node;
  const newest = Math.max(log.lastTerm, log.snapshot?.term ?? 0);
  if (node.term < newest && node.bug !== 24) {
    throw new BadBoot(`term: expected at least ${newest}, the term of the newest entry, got ${node.term}`);
  }
  if (log.snapshot !== null) {
    if (log.stale) node.storeSnapshot(log.snapshot);
    node.effects.push({ kind: 'restore', snapshot: log.snapshot });
  }
  if (node.votesHere && node.config.voters.length === 1)
    node.electionAt = node.now; // nobody else could lead
  else if (election.mayCampaign(node)) node.resetElection();
}

/**
 * The process or tab stood still for longer than an election: what it believes of the others is old.
 *
 * A follower waits for the leader once more before it campaigns. A leader asks at once who follows it still, and leads
 * on only if a majority says so within one heartbeat; reads wait for answers from after the pause.
 */
function resume(node: Node): void {
  const due = node.saidDeadline;
  if (due === null || node.now - due <= node.settings.electionMinMs || node.bug === 50) return;
  if (node.role === 'leader') {
    node.resumedMs = node.now;
    node.quorumCheckAt = node.now + node.settings.heartbeatMs;
    node.roundSeq = node.seq;
    replication.heartbeat(node);
  } else if (node.electionAt !== null) node.resetElection();
}

function handle(node: Node, event: Exclude<Event, Boot>): void {
  switch (event.kind) {
    case 'tick':
      node.saidDeadline = null; // the next one is said in any case
      tick(node);
      return;
    case 'received':
      receive(node, event.sender, event.message);
      return;
    case 'propose':
      propose(node, event);
      return;
    case 'change_config':
      membership.onChange(node, event);
      return;
    case 'transfer':
      transfer(node, event);
      return;
    case 'read':
      reads.onRead(node, event.ctx);
      return;
    case 'persisted':
    case 'snapshot_stored':
      durable(node, event.token);
      return;
    case 'applied':
      node.applied = Math.max(node.applied, Math.min(event.index, node.handed));
      return;
    case 'compact':
      snapshot.onCompact(node, event);
      return;
    case 'unreachable':
      replication.onUnreachable(node, event.id);
      {
        election.onUnreachable(node, event.id);
        return;
      }
    default:
      return event satisfies never;
  }
}

function tick(node: Node): void {
  reads.expire(node);
  if (node.role !== 'leader') {
    election.due(node);
    return;
  }
  if (node.transferTo !== '' && node.now >= node.transferUntil && node.bug !== 45) {
    node.reject(node.transferCtx, 'timeout');
    node.transferTo = '';
  }
  let heardSince = node.now - node.settings.electionMaxMs;
  const check = node.quorumCheckAt !== null && node.now >= node.quorumCheckAt;
  if (node.quorumCheckAt !== null) heardSince = check ? node.resumedMs : 0;
  if (replication.quorumContact(node) < heardSince && node.bug !== 44) {
    election.becomeFollower(node, node.term, '');
    return; // it reaches no majority (6.2)
  }
  if (check) node.quorumCheckAt = null;
  if (node.now >= node.heartbeatAt) replication.heartbeat(node);
}

function propose(node: Node, { data, ctx }: Propose): void {
  if (node.role !== 'leader') {
    node.reject(ctx, node.leader === '' ? 'no_leader' : 'not_leader');
    return;
  }
  if (node.transferTo !== '') {
    node.reject(ctx, 'transferring');
    return;
  }
  if (data.length > MAX_ENTRY_BYTES) {
    node.reject(ctx, 'too_large');
    return;
  }
  if (node.log.last - node.commit >= MAX_UNCOMMITTED) {
    node.reject(ctx, 'busy');
    return;
  }
  const { index, term } = replication.append(node, 'command', data);
  node.effects.push({ kind: 'proposed', ctx, index, term });
  replication.shipAll(node);
}

/** New proposals wait until the target has the whole log and campaigns, or an election's time is over (3.10). */
function transfer(node: Node, { to, ctx }: Transfer): void {
  if (node.role !== 'leader') {
    node.reject(ctx, node.leader === '' ? 'no_leader' : 'not_leader');
    return;
  }
  if (node.transferTo !== '') {
    node.reject(ctx, 'transferring');
    return;
  }
  if (to === node.me) {
    node.reject(ctx, 'already');
    return;
  }
  if (!node.config.voters.includes(to)) {
    node.reject(ctx, node.config.byId.has(to) ? 'not_a_voter' : 'unknown_member');
    return;
  }
  node.transferTo = to;
  node.transferCtx = ctx;
  node.transferUntil = node.now + node.settings.electionMinMs;
  replication.heartbeat(node);
}

function durable(node: Node, token: number): void {
  node.durableToken = Math.max(node.durableToken, Math.min(token, node.token));
  node.log.settled(node.durableToken);
  node.release();
  snapshot.stored(node);
  election.voteIsDurable(node);
  replication.entriesAreDurable(node);
}

/** Drop what is not from whom it says, or of another mesh, epoch or life; then look at the term (3.3). */
function receive(node: Node, sender: string, message: Message): void {
  if (message.sender !== sender || sender === node.me) return;
  if (message.meshId !== node.meshId || message.groupEpoch !== node.groupEpoch) return;
  const { body, term } = message;
  if (node.bug !== 31 && isOfAnotherLife(node, message)) return;
  if (body.kind === 'pre_vote') {
    election.onPreVote(node, message, body);
    return;
  }
  if (body.kind === 'pre_vote_reply') {
    election.onPreVoteReply(node, message, body);
    return;
  }
  if (body.kind === 'vote') {
    election.onVote(node, message, body);
    return;
  }
  if (term > node.term) {
    const leads = body.kind === 'append' || body.kind === 'install';
    election.becomeFollower(node, term, leads ? sender : '');
  } else if (term < node.term) {
    if (body.kind === 'append' || body.kind === 'install') replication.refuseOld(node, message);
    else if (body.kind === 'read_index') reads.onReadIndex(node, message, body);
    return;
  }
  switch (body.kind) {
    case 'append':
      replication.onAppend(node, message, body);
      return;
    case 'append_reply':
      replication.onAppendReply(node, message, body);
      return;
    case 'install':
      snapshot.onInstall(node, message, body);
      return;
    case 'install_reply':
      snapshot.onInstallReply(node, message, body);
      return;
    case 'vote_reply':
      election.onVoteReply(node, message, body);
      return;
    case 'timeout_now':
      election.onTimeoutNow(node, message);
      return;
    case 'read_index':
      reads.onReadIndex(node, message, body);
      return;
    case 'read_index_reply':
      reads.onReadIndexReply(node, message, body);
      return;
    default:
      return body satisfies never;
  }
}

function isOfAnotherLife(node: Node, { sender, senderIncarnation, toIncarnation, body }: Message): boolean {
  if (toIncarnation !== node.incarnation) return true;
  const known = node.config.byId.get(sender);
  if (known !== undefined && senderIncarnation < known.incarnation) return true; // an earlier one
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

/** What is to be durable, then what may be said, then what is committed, then what may be read. */
function finish(node: Node): Effect[] {
  node.flushPersist();
  node.flushSends();
  node.sayRole();
  const upto = Math.min(node.commit, node.log.durable);
  if (upto > node.handed && node.restoreToken === 0) {
    const entries = node.log.span(node.handed + 1, upto);
    node.handed = upto;
    node.effects.push({ kind: 'apply', entries });
  }
  reads.serve(node);
  node.sayDeadline(deadline(node));
  const { effects } = node;
  node.effects = [];
  return effects;
}

function deadline(node: Node): number | null {
  const due = [reads.deadline(node)];
  if (node.role === 'leader') {
    due.push(node.heartbeatAt, node.quorumCheckAt);
    if (node.transferTo !== '' && node.bug !== 45) due.push(node.transferUntil);
  } else due.push(node.electionAt);
  const known = due.filter((at) => at !== null);
  return known.length === 0 ? null : Math.min(...known);
}
