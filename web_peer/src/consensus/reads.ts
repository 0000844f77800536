/*
 * Linearizable reads by read index, for the leader itself and for the others (twin of peer/consensus/reads.py). Pure.
 *
 * Thesis 6.4. A read takes the commit index of the moment, once an entry of the leader's own term is committed; then a
 * majority must answer a message sent after that moment; then the entry must be applied where the read is served. Reads
 * come in rounds: those that arrive while one is under way share the next.
 */

import type { Message, ReadIndex, ReadIndexReply } from './messages';
import * as replication from './replication';
import type { PendingRead, RaftServer } from './server';

export const MAX_READS = 4096; // that wait at one server

/** Queues a read of this edge at the leader, asks the leader for its index, or rejects it. */
export function onRead(server: RaftServer, ctx: number): void {
  const expiresMs = server.now + server.settings.electionMaxMs;
  const read = { ctx, origin: '', incarnation: 0, index: -1, expiresMs };
  if (waiting(server) >= MAX_READS) server.reject(ctx, 'busy');
  else if (server.role === 'leader') {
    server.readsQueued.push(read);
    beginRound(server);
  } else if (server.leader === '') server.reject(ctx, 'no_leader');
  else {
    server.lastReadNumber += 1;
    server.readsForwarded.set(server.lastReadNumber, read);
    server.send(server.leader, server.leaderIncarnation, { kind: 'read_index', read: server.lastReadNumber });
  }
}

function waiting({ readsQueued, readsInRound, readsConfirmed, readsForwarded }: RaftServer): number {
  return readsQueued.length + readsInRound.length + readsConfirmed.length + readsForwarded.size;
}

/** Queues the read of another server, which wants its index; refuses it where this is not the leader. */
export function onReadIndex(server: RaftServer, message: Message, { read }: ReadIndex): void {
  const { sender, senderIncarnation } = message;
  if (server.role !== 'leader' || message.term !== server.term || server.readsQueued.length >= MAX_READS) {
    server.send(sender, senderIncarnation, { kind: 'read_index_reply', read, ok: false, index: 0 });
    return;
  }
  server.readsQueued.push({
    ctx: read,
    origin: sender,
    incarnation: senderIncarnation,
    index: -1,
    expiresMs: server.now + server.settings.electionMaxMs,
  });
  beginRound(server);
}

/** Takes the index of a read that was forwarded to the leader. */
export function onReadIndexReply(server: RaftServer, message: Message, body: ReadIndexReply): void {
  if (message.sender !== server.leader) return;
  const read = server.readsForwarded.get(body.read);
  if (read === undefined) return;
  server.readsForwarded.delete(body.read);
  if (!body.ok) {
    server.reject(read.ctx, 'leader_changed');
    return;
  }
  read.index = body.index;
  server.readsConfirmed.push(read);
}

/** Gives the queued reads their index, and asks everybody whether this is the leader still. */
export function beginRound(server: RaftServer): void {
  if (server.readsQueued.length === 0 || server.readsInRound.length > 0) return;
  if (server.commitIndex < server.termStart) return; // what earlier leaders committed is not known yet
  server.readsInRound = server.readsQueued;
  server.readsQueued = [];
  for (const read of server.readsInRound) read.index = server.commitIndex;
  server.roundSeq = server.seq;
  if (!endRound(server)) replication.broadcastHeartbeat(server);
}

/** Ends the round, if a majority answered something that was sent after it began; returns whether it did. */
export function endRound(server: RaftServer): boolean {
  if (server.readsInRound.length === 0 || replication.quorumAckedSeq(server) <= server.roundSeq) return false;
  const done = server.readsInRound;
  server.readsInRound = [];
  for (const read of done) {
    const { ctx, origin, incarnation, index } = read;
    if (origin !== '')
      server.send(origin, incarnation, { kind: 'read_index_reply', read: ctx, ok: true, index });
    else server.readsConfirmed.push(read);
  }
  beginRound(server);
  return true;
}

/** Serves the reads whose index is applied here. */
export function serve(server: RaftServer): void {
  const unapplied: PendingRead[] = [];
  for (const read of server.readsConfirmed) {
    const { ctx, index } = read;
    if (server.appliedIndex >= index) server.effects.push({ kind: 'read_ready', ctx, index });
    else unapplied.push(read);
  }
  server.readsConfirmed = unapplied;
}

/** Rejects the reads without an index, as the leader changed; whoever asked can ask again. */
export function dropUnconfirmed(server: RaftServer): void {
  for (const { ctx, origin, incarnation } of [...server.readsInRound, ...server.readsQueued]) {
    if (origin !== '') {
      server.send(origin, incarnation, { kind: 'read_index_reply', read: ctx, ok: false, index: 0 });
    } else server.reject(ctx, 'leader_changed');
  }
  for (const [, { ctx }] of byNumber(server.readsForwarded)) server.reject(ctx, 'leader_changed');
  server.readsInRound = [];
  server.readsQueued = [];
  server.readsForwarded = new Map();
}

function byNumber(reads: ReadonlyMap<number, PendingRead>): [number, PendingRead][] {
  return [...reads].sort(([a], [b]) => a - b);
}

/** Rejects reads that have waited for as long as an election may take. */
export function expire(server: RaftServer): void {
  for (const [number, { ctx, expiresMs }] of byNumber(server.readsForwarded)) {
    if (expiresMs > server.now) continue;
    server.readsForwarded.delete(number);
    server.reject(ctx, 'timeout');
  }
  server.readsQueued = unexpired(server, server.readsQueued);
  server.readsInRound = unexpired(server, server.readsInRound);
  server.readsConfirmed = unexpired(server, server.readsConfirmed);
}

function unexpired(server: RaftServer, reads: readonly PendingRead[]): PendingRead[] {
  for (const { ctx, origin, expiresMs } of reads) {
    if (expiresMs <= server.now && origin === '') server.reject(ctx, 'timeout');
  }
  return reads.filter(({ expiresMs }) => expiresMs > server.now);
}

/** Returns when the first read expires; null where none waits. */
export function deadlineMs(server: RaftServer): number | null {
  let earliest: number | null = null;
  const reads = [
    ...server.readsForwarded.values(),
    ...server.readsQueued,
    ...server.readsInRound,
    ...server.readsConfirmed,
  ];
  for (const { expiresMs } of reads) earliest = Math.min(earliest ?? expiresMs, expiresMs);
  return earliest;
}
