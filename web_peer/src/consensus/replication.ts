/*
 * Decides what a leader sends to whom, what a follower takes, and what is committed (twin of
 * peer/consensus/replication.py). Pure.
 *
 * Thesis 3.5 (replication), 3.6.2 (only entries of the own term are committed by counting), 6.2 (contact with a
 * majority), 10.2 (entries go out before they are durable here). A follower is probed until it agrees, then entries are
 * sent ahead, `maxInflight` messages at a time; who needs what is not in the log any more gets the snapshot.
 */

import * as election from './election';
import * as membership from './membership';
import type { Append, AppendReply, Message } from './messages';
import { byBytes } from '../wire/utf8_order';
import { reached } from './quorum';
import * as reads from './reads';
import type { Entry, EntryKind } from './records';
import * as snapshot from './snapshot';
import type { Node, Progress } from './server';
import { MAX_ENTRIES } from './message_codec';

const NOTHING = new Uint8Array(0);

// --- the leader -----------------------------------------------------------------------------------------------

/** A noop of the new term commits what is there (3.6.2, 6.4) and opens membership changes (the barrier). */
export function becomeLeader(node: Node): void {
  const { log } = node;
  if (node.bug === 29) {
    // a configuration that the leader before did not commit is forgotten
    log.configs = log.configs.filter(([at]) => at <= node.commit);
  }
  node.role = 'leader';
  node.leader = node.me;
  node.votes = new Map();
  node.electionAt = null;
  node.incoming = null;
  node.seq = 0;
  node.marks = [[0, node.now]];
  node.progress = new Map();
  node.termStart = log.last + 1;
  node.quorumCheckAt = null;
  membership.followConfig(node);
  append(node, 'noop', NOTHING);
  heartbeat(node);
}

/** What only a leader has goes; so does a transfer, which may have brought this about. */
export function stepDown(node: Node): void {
  if (node.bug !== 45) node.transferTo = '';
  if (node.bug === 10 && node.log.last > node.commit) node.log.truncate(node.commit + 1);
  node.progress = new Map();
  node.marks = [];
  node.quorumCheckAt = null;
}

/** Put one entry behind the leader's log; it is sent at once, and counted here when it is durable (10.2.1). */
export function append(node: Node, kind: EntryKind, data: Uint8Array): Entry {
  const entry = { index: node.log.last + 1, term: node.term, kind, data };
  node.log.append([entry]);
  return entry;
}

/** The progress of everybody, in the order of their ids. */
export function everyone(node: Node): [string, Progress][] {
  return [...node.progress].sort(([a], [b]) => byBytes(a, b));
}

/** What a majority of the voters has reached; this server has `mine`. */
function votersReached(node: Node, mine: number, value: (progress: Progress) => number): number {
  let { voters } = node.config;
  if (node.bug === 30) {
    // a majority of those that were heard lately
    const since = node.now - node.settings.electionMinMs;
    voters = voters.filter((voter) => {
      const progress = node.progress.get(voter);
      return voter === node.me || (progress !== undefined && progress.contactMs >= since);
    });
  }
  // a leader that removed itself goes on counting itself
  if (node.bug === 34 && !voters.includes(node.me)) voters = [...voters, node.me];
  return reached(
    voters.map((voter) => {
      if (voter === node.me) return mine;
      const progress = node.progress.get(voter);
      return progress === undefined ? 0 : value(progress);
    }),
  );
}

/** The latest moment of which it is sure that a majority still followed this leader (6.2). */
export function quorumContact(node: Node): number {
  return votersReached(node, node.now, ({ contactMs }) => contactMs);
}

/** A majority answered a message at least as new as this one. */
export function quorumSeq(node: Node): number {
  return votersReached(node, node.seq + 1, ({ ackedSeq }) => ackedSeq);
}

/** A message to everybody; each tells where the follower's log has to agree, so a gap is found without traffic. */
export function heartbeat(node: Node): void {
  const { heartbeatMs, electionMaxMs } = node.settings;
  node.heartbeatAt = node.now + heartbeatMs;
  const newest = node.marks.at(-1)?.[1] ?? 0;
  if (node.now - newest >= Math.floor(heartbeatMs / 4)) {
    node.marks.push([node.seq, node.now]);
    const oldest = node.now - 2 * electionMaxMs;
    while (node.marks.length > 1 && (node.marks[0]?.[1] ?? 0) < oldest) node.marks.shift();
  }
  for (const [peer, progress] of everyone(node)) ship(node, peer, progress, true);
  if (node.transferTo !== '') tryTransfer(node);
}

export function shipAll(node: Node): void {
  for (const [peer, progress] of everyone(node)) ship(node, peer, progress, false);
}

/** Send what `peer` may get now; with `beat` at least something. */
export function ship(node: Node, peer: string, progress: Progress, beat: boolean): void {
  if (progress.state === 'snapshot') {
    snapshot.ship(node, peer, progress, beat);
    return;
  }
  if (node.log.termAt(progress.next - 1) === null) {
    snapshot.begin(node, peer, progress);
    return;
  }
  if (progress.state === 'probe') {
    if (beat || !progress.paused) {
      const asked = progress.paused || (beat && node.bug === 48); // entries go once: a slow link has them still
      progress.paused = true;
      sendAppend(node, peer, progress, asked ? [] : batch(node, progress.next));
    }
    return;
  }
  let sent = false;
  while (progress.next <= node.log.last && progress.inflight.length < node.settings.maxInflight) {
    const entries = batch(node, progress.next);
    sendAppend(node, peer, progress, entries);
    progress.next += entries.length;
    progress.inflight.push(progress.next - 1);
    sent = true;
  }
  if (beat && !sent) sendAppend(node, peer, progress, []);
}

function batch(node: Node, start: number): Entry[] {
  return node.log.batch(start, node.settings.maxAppendBytes, MAX_ENTRIES);
}

function sendAppend(node: Node, peer: string, progress: Progress, entries: readonly Entry[]): void {
  node.seq += 1;
  const { seq, commit } = node;
  // #48: a heartbeat that says nothing of the log
  const prevIndex = node.bug === 48 && entries.length === 0 ? 0 : progress.next - 1;
  const prevTerm = node.log.termAt(prevIndex) ?? 0;
  node.send(peer, progress.incarnation, { kind: 'append', seq, prevIndex, prevTerm, commit, entries });
}

/** Someone follows this leader still, as of when the answered message was sent, however late the answer comes. */
export function answered(node: Node, progress: Progress, seq: number): void {
  if (seq > node.seq) return;
  progress.ackedSeq = Math.max(progress.ackedSeq, seq);
  const mark = node.marks.findLast(([before]) => before < seq);
  if (mark !== undefined) progress.contactMs = Math.max(progress.contactMs, mark[1]);
  reads.settle(node);
}

export function onAppendReply(node: Node, message: Message, body: AppendReply): void {
  const progress = node.progress.get(message.sender);
  if (node.role !== 'leader' || message.term !== node.term || progress === undefined) return;
  answered(node, progress, body.seq);
  if (body.ok) {
    progress.okSeq = Math.max(progress.okSeq, body.seq);
    agreed(node, message.sender, progress, body.index);
  } else refused(node, message.sender, progress, body);
}

function agreed(node: Node, peer: string, progress: Progress, index: number): void {
  if (index > node.log.last) return; // nobody can have said this
  progress.match = Math.max(progress.match, index);
  progress.next = Math.max(progress.next, progress.match + 1);
  progress.inflight = progress.inflight.filter((last) => last > progress.match);
  if (progress.state === 'snapshot') snapshot.agreed(node, progress);
  else if (progress.state === 'probe' && node.bug !== 48) {
    progress.state = 'replicate';
    progress.next = progress.match + 1;
    progress.inflight = [];
  }
  progress.paused = false;
  advance(node);
  if (node.role === 'leader') {
    ship(node, peer, progress, false);
    if (node.transferTo === peer) tryTransfer(node);
  }
}

/** Go back to where the logs may agree: past all entries here that are newer than the hint allows (3.5). */
function refused(node: Node, peer: string, progress: Progress, body: AppendReply): void {
  if (progress.state === 'snapshot') return;
  if (body.index <= progress.match) {
    if (body.seq <= progress.okSeq) return; // overtaken by a newer answer
    progress.match = Math.min(progress.match, body.hintIndex); // it lost what it had: only probing tells what is left
  } else if (progress.state === 'probe' && body.index !== progress.next - 1) return;
  let found = Math.min(body.hintIndex, node.log.last);
  while (found > progress.match && (node.log.termAt(found) ?? 0) > body.hintTerm) found -= 1;
  progress.state = 'probe';
  progress.next = Math.max(found, progress.match) + 1;
  progress.inflight = [];
  progress.paused = false;
  ship(node, peer, progress, false);
}

/** Commit what a majority has, if its last entry is of this term (3.6.2, figure 3.7). */
export function advance(node: Node): void {
  const index = votersReached(node, node.log.durable, ({ match }) => match);
  if (index <= node.commit || (node.log.termAt(index) !== node.term && node.bug !== 1)) return;
  node.commit = index;
  membership.committed(node);
  if (node.role !== 'leader') return;
  reads.beginRound(node);
  for (const [peer, progress] of everyone(node)) {
    if (progress.state === 'replicate') ship(node, peer, progress, true); // the others learn of it now
  }
}

/** The target has everything: it may campaign (3.10). Repeated with every heartbeat, as messages get lost. */
function tryTransfer(node: Node): void {
  const progress = node.progress.get(node.transferTo);
  if (progress?.match === node.log.last) election.handOverTo(node, node.transferTo);
}

/** What was on its way to `peer` is lost. */
export function onUnreachable(node: Node, peer: string): void {
  const progress = node.progress.get(peer);
  if (progress === undefined) return;
  if (progress.state === 'replicate') {
    progress.state = 'probe';
    progress.next = progress.match + 1;
    progress.inflight = [];
  }
  progress.paused = progress.asked = true; // the next heartbeat asks what is there
}

// --- the follower ---------------------------------------------------------------------------------------------

/** The leader of this term spoke (3.4). */
export function heard(node: Node, message: Message, seq: number): void {
  election.becomeFollower(node, message.term, message.sender);
  node.leaderIncarnation = message.senderIncarnation;
  node.leaderSeq = Math.max(node.leaderSeq, seq);
  node.heardMs = node.now;
  node.resetElection();
}

/**
 * A leader of an older term learns the newer one from the answer. It is numbered 0: who leads the newer term, too,
 * counts its messages anew, and must not take it for an answer of that.
 */
export function refuseOld(node: Node, message: Message): void {
  node.send(message.sender, message.senderIncarnation, {
    kind: 'append_reply',
    seq: 0,
    ok: false,
    index: 0,
    hintIndex: 0,
    hintTerm: 0,
  });
}

export function onAppend(node: Node, message: Message, body: Append): void {
  if (node.role === 'leader') return; // two leaders of one term cannot be
  heard(node, message, body.seq);
  const { log, bug } = node;
  let { entries, prevIndex: before } = body;
  if (before < node.commit && bug !== 23) {
    // what is committed here agrees with every leader (3.6.3)
    const known = node.commit - before;
    before = Math.max(before, Math.min(node.commit, before + entries.length));
    entries = entries.slice(known);
  } else if (before >= node.commit && log.termAt(before) !== body.prevTerm) {
    refuse(node, message, body);
    return;
  } else if (before < node.commit) {
    before += entries.length;
    entries = [];
  }
  for (const [place, { index, term }] of entries.entries()) {
    if (log.termAt(index) === term) continue;
    if (index <= log.last) log.truncate(index);
    log.append(entries.slice(place));
    break;
  }
  node.verified = Math.max(node.verified, before + entries.length);
  node.commit = Math.max(node.commit, Math.min(body.commit, bug === 11 ? log.last : node.verified));
  if (node.incoming !== null && node.incoming.index <= node.commit) node.incoming = null; // entries were faster
  node.acked = Math.min(node.verified, bug === 23 ? log.last : log.durable);
  acknowledge(node, message.sender, message.senderIncarnation, body.seq);
}

export function acknowledge(node: Node, to: string, incarnation: number, seq: number): void {
  const index = node.acked;
  node.send(to, incarnation, { kind: 'append_reply', seq, ok: true, index, hintIndex: 0, hintTerm: 0 });
}

/** Say how far the logs can agree at most: no newer term than the leader had at `prevIndex`. */
function refuse(node: Node, message: Message, { seq, prevIndex, prevTerm }: Append): void {
  let found = Math.min(node.log.last, prevIndex - 1);
  while (found > node.commit && (node.log.termAt(found) ?? 0) > prevTerm) found -= 1;
  node.send(message.sender, message.senderIncarnation, {
    kind: 'append_reply',
    seq,
    ok: false,
    index: prevIndex,
    hintIndex: found,
    hintTerm: node.log.termAt(found) ?? 0,
  });
}

/** Called when something became durable: tell the leader, or count it as the leader (10.2.1). */
export function entriesAreDurable(node: Node): void {
  if (node.role === 'leader') {
    advance(node);
    return;
  }
  const durable = Math.min(node.verified, node.log.durable);
  if (node.leader === '' || durable <= node.acked) return;
  node.acked = durable;
  acknowledge(node, node.leader, node.leaderIncarnation, node.leaderSeq);
}
