/*
 * A server's whole state as canonical JSON, and a short digest of it by which two languages compare themselves (twin of
 * peer/consensus/state_digest.py). Pure.
 *
 * Keys are those of the recorded traces, whatever the fields are called. Bytes stand as [length, CRC-32]. The digest is
 * FNV-1a twice over the UTF-8 of that JSON, each in 32 bits, with the offset bases 0x811c9dc5 and 0xcbf29ce4, as 16 hex
 * digits.
 */

import { textOf } from './trace_json';
import { crc32 } from '../wire/crc32';
import type { Config, Snapshot } from './records';
import type { PendingRead, Progress, RaftServer } from './server';

const TO_UTF8 = new TextEncoder();

const checksums = new WeakMap<Uint8Array, readonly number[]>(); // bytes of entries and snapshots never change

function bytes(value: Uint8Array): readonly number[] {
  let found = checksums.get(value);
  if (found === undefined) {
    found = [value.length, crc32(value)];
    checksums.set(value, found);
  }
  return found;
}

function servers(config: Config): unknown {
  return config.servers.map(({ id, incarnation, voter }) => [id, incarnation, voter]);
}

function snapshotOf(snapshot: Snapshot | null): unknown {
  if (snapshot === null) return null;
  const { index, term, config, data } = snapshot;
  return [index, term, servers(config), bytes(data)];
}

function progressOf(progress: Progress): unknown {
  const { snapshot } = progress;
  return {
    ackedSeq: progress.ackedSeq,
    asked: progress.offsetUnknown,
    contactMs: progress.contactMs,
    incarnation: progress.incarnation,
    inflight: progress.inflight,
    match: progress.matchIndex,
    next: progress.nextIndex,
    offset: progress.ackedBytes,
    okSeq: progress.acceptedSeq,
    paused: progress.probeSent,
    sent: progress.sentBytes,
    snapshot: snapshot && [snapshot.index, snapshot.term],
    stalled: progress.stalledHeartbeats,
    state: progress.state,
  };
}

function pending({ ctx, origin, incarnation, index, expiresMs }: PendingRead): unknown {
  return [ctx, origin, incarnation, index, expiresMs];
}

/** Returns what determines how the server goes on. */
export function image(server: RaftServer): unknown {
  const { log, incomingSnapshot: incoming } = server;
  return {
    acked: server.acknowledgedIndex,
    applied: server.appliedIndex,
    byTransfer: server.byTransfer,
    commit: server.commitIndex,
    durableToken: server.durableToken,
    electionAt: server.electionDeadline,
    forwarded: [...server.readsForwarded]
      .sort(([a], [b]) => a - b)
      .map(([number, read]) => [number, pending(read)]),
    handed: server.applyingIndex,
    hardToken: server.hardStateToken,
    heardMs: server.leaderContactMs,
    heartbeatAt: server.heartbeatDeadline,
    held: server.heldSends.map(([token, { to, message }]) => [token, to, message.term]),
    incarnation: server.incarnation,
    incoming:
      incoming === null
        ? null
        : [incoming.index, incoming.term, incoming.total, incoming.crc, bytes(incoming.data)],
    leader: server.leader,
    leaderIncarnation: server.leaderIncarnation,
    leaderSeq: server.leaderSeq,
    log: {
      configs: log.configs.map(([index, config]) => [index, servers(config)]),
      durable: log.durableIndex,
      entries: log.entries.map(({ term, kind, data }) => [term, kind, ...bytes(data)]),
      first: log.firstIndex,
      pending: log.pendingWrites,
      snapshot: snapshotOf(log.snapshot),
    },
    marks: server.sendTimes,
    me: server.id,
    now: server.now,
    progress: new Map([...server.progress].map(([peer, progress]) => [peer, progressOf(progress)])),
    quorumCheckAt: server.checkQuorumDeadline,
    random: server.random,
    readNumber: server.lastReadNumber,
    readQueue: server.readsQueued.map(pending),
    readReady: server.readsConfirmed.map(pending),
    readRound: server.readsInRound.map(pending),
    restoreToken: server.restoreToken,
    resumedMs: server.resumedMs,
    role: server.role,
    roundSeq: server.roundSeq,
    seq: server.seq,
    term: server.term,
    termStart: server.termStart,
    token: server.lastToken,
    transfer: [server.transferTarget, server.transferCtx, server.transferDeadline],
    verified: server.verifiedIndex,
    vote: server.votedFor,
    votes: server.votes,
  };
}

/** Returns the 16 hex digits. */
export function digest(server: RaftServer): string {
  let first = 0x811c9dc5;
  let second = 0xcbf29ce4;
  for (const byte of TO_UTF8.encode(textOf(image(server)))) {
    first = Math.imul(first ^ byte, 0x01000193);
    second = Math.imul(second ^ byte, 0x01000193);
  }
  return [first, second].map((half) => (half >>> 0).toString(16).padStart(8, '0')).join('');
}
