/*
 * Decides when a read may be served: ReadIndex, for the leader itself and for the others (twin of
 * peer/consensus/reads.py). Pure.
 *
 * Thesis 6.4. A read takes the commit index of the moment, once an entry of the leader's own term is committed; then a
 * majority must answer a message sent after that moment; then the entry must be applied where the read is served. Reads
 * come in rounds: those that arrive while one is under way share the next.
 */

import type { Message, ReadIndex, ReadIndexReply } from './messages';
import * as replication from './replication';
import type { Node, Waiting } from './server';

const MAX_READS = 4096; // that wait at one server

export function onRead(node: Node, ctx: number): void {
  const wait = {
    ctx,
    origin: '',
    incarnation: 0,
    index: -1,
    expiresMs: node.now + node.settings.electionMaxMs,
  };
  const waiting = node.readQueue.length + node.readRound.length + node.readReady.length + node.forwarded.size;
  if (waiting >= MAX_READS) node.reject(ctx, 'busy');
  else if (node.role === 'leader') {
    node.readQueue.push(wait);
    beginRound(node);
  } else if (node.leader === '') node.reject(ctx, 'no_leader');
  else {
    node.readNumber += 1;
    node.forwarded.set(node.readNumber, wait);
    node.send(node.leader, node.leaderIncarnation, { kind: 'read_index', read: node.readNumber });
  }
}

export function onReadIndex(node: Node, message: Message, { read }: ReadIndex): void {
  const { sender, senderIncarnation } = message;
  if (node.role !== 'leader' || message.term !== node.term || node.readQueue.length >= MAX_READS) {
    node.send(sender, senderIncarnation, { kind: 'read_index_reply', read, ok: false, index: 0 });
    return;
  }
  node.readQueue.push({
    ctx: read,
    origin: sender,
    incarnation: senderIncarnation,
    index: -1,
    expiresMs: node.now + node.settings.electionMaxMs,
  });
  beginRound(node);
}

export function onReadIndexReply(node: Node, message: Message, body: ReadIndexReply): void {
  if (message.sender !== node.leader || message.term !== node.term) return;
  const wait = node.forwarded.get(body.read);
  if (wait === undefined) return;
  node.forwarded.delete(body.read);
  if (!body.ok) {
    node.reject(wait.ctx, 'leader_changed');
    return;
  }
  wait.index = body.index;
  node.readReady.push(wait);
}

/** Give the waiting reads their index, and ask everybody whether this is the leader still. */
export function beginRound(node: Node): void {
  if (node.readQueue.length === 0 || node.readRound.length > 0) return;
  if (node.commit < node.termStart && node.bug !== 35 && node.bug !== 38) return; // what earlier leaders committed is not known yet
  node.readRound = node.readQueue;
  node.readQueue = [];
  for (const wait of node.readRound) wait.index = node.commit;
  node.roundSeq = node.seq;
  if (!settle(node)) replication.heartbeat(node);
}

/** Finish the round when a majority answered something that was sent after it began. */
export function settle(node: Node): boolean {
  if (node.readRound.length === 0 || !isConfirmed(node)) return false;
  const done = node.readRound;
  node.readRound = [];
  for (const wait of done) {
    const { ctx, origin, incarnation } = wait;
    if (node.bug === 37) wait.index = node.applied;
    const { index } = wait;
    if (origin !== '')
      node.send(origin, incarnation, { kind: 'read_index_reply', read: ctx, ok: true, index });
    else node.readReady.push(wait);
  }
  beginRound(node);
  return true;
}

function isConfirmed(node: Node): boolean {
  switch (node.bug) {
    case 36: // any answer will do, also of a message sent before
      return replication.quorumSeq(node) > 0;
    case 38:
      return true;
    case 39: // a lease: who was heard lately cannot have another leader
      return replication.quorumContact(node) >= node.now - node.settings.electionMaxMs;
    default:
      return replication.quorumSeq(node) > node.roundSeq;
  }
}

/** Reads whose entry is applied. */
export function serve(node: Node): void {
  const still: Waiting[] = [];
  for (const wait of node.readReady) {
    const { ctx, index } = wait;
    if (node.applied >= index || node.bug === 40) node.effects.push({ kind: 'read_ready', ctx, index });
    else still.push(wait);
  }
  node.readReady = still;
}

/** The leader changed: reads without an index are refused, so that who asked can ask again. */
export function dropAll(node: Node): void {
  for (const { ctx, origin, incarnation } of [...node.readRound, ...node.readQueue]) {
    if (origin !== '') {
      node.send(origin, incarnation, { kind: 'read_index_reply', read: ctx, ok: false, index: 0 });
    } else if (node.bug !== 49) node.reject(ctx, 'leader_changed');
  }
  for (const [, { ctx }] of byNumber(node.forwarded)) if (node.bug !== 49) node.reject(ctx, 'leader_changed');
  node.readRound = [];
  node.readQueue = [];
  node.forwarded = new Map();
}

function byNumber(waits: ReadonlyMap<number, Waiting>): [number, Waiting][] {
  return [...waits].sort(([a], [b]) => a - b);
}

/** Nothing waits longer than an election. */
export function expire(node: Node): void {
  for (const [number, { ctx, expiresMs }] of byNumber(node.forwarded)) {
    if (expiresMs > node.now) continue;
    node.forwarded.delete(number);
    node.reject(ctx, 'timeout');
  }
  node.readQueue = unexpired(node, node.readQueue);
  node.readRound = unexpired(node, node.readRound);
  node.readReady = unexpired(node, node.readReady);
}

function unexpired(node: Node, waits: readonly Waiting[]): Waiting[] {
  for (const { ctx, origin, expiresMs } of waits) {
    if (expiresMs <= node.now && origin === '') node.reject(ctx, 'timeout');
  }
  return waits.filter(({ expiresMs }) => expiresMs > node.now);
}

export function deadline(node: Node): number | null {
  let earliest: number | null = null;
  const waits = [...node.forwarded.values(), ...node.readQueue, ...node.readRound, ...node.readReady];
  for (const { expiresMs } of waits) earliest = Math.min(earliest ?? expiresMs, expiresMs);
  return earliest;
}
