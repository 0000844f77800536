/*
 * A server's whole state as canonical JSON, and a short digest of it by which two languages compare themselves (twin of
 * peer/consensus/state_digest.py). Pure.
 *
 * Bytes stand as [length, CRC-32]. The digest is FNV-1a twice over the UTF-8 of that JSON, each in 32 bits, with the
 * offset bases 0x811c9dc5 and 0xcbf29ce4, as 16 hex digits.
 */

import { textOf } from './trace_json';
import { crc32 } from '../wire/crc32';
import type { Config, Snapshot } from './records';
import type { Node, Progress, Waiting } from './server';

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
  return Object.assign({}, progress, {
    crc: undefined,
    snapshot: snapshot && [snapshot.index, snapshot.term],
  });
}

function waiting({ ctx, origin, incarnation, index, expiresMs }: Waiting): unknown {
  return [ctx, origin, incarnation, index, expiresMs];
}

/** What decides how the server goes on. */
export function image(node: Node): unknown {
  const { log, incoming } = node;
  return {
    acked: node.acked,
    applied: node.applied,
    byTransfer: node.byTransfer,
    commit: node.commit,
    durableToken: node.durableToken,
    electionAt: node.electionAt,
    forwarded: [...node.forwarded].sort(([a], [b]) => a - b).map(([number, wait]) => [number, waiting(wait)]),
    handed: node.handed,
    hardToken: node.hardToken,
    heardMs: node.heardMs,
    heartbeatAt: node.heartbeatAt,
    held: node.held.map(([token, { to, message }]) => [token, to, message.term]),
    incarnation: node.incarnation,
    incoming:
      incoming === null
        ? null
        : [incoming.index, incoming.term, incoming.total, incoming.crc, bytes(incoming.data)],
    leader: node.leader,
    leaderIncarnation: node.leaderIncarnation,
    leaderSeq: node.leaderSeq,
    log: {
      configs: log.configs.map(([index, config]) => [index, servers(config)]),
      durable: log.durable,
      entries: log.entries.map(({ term, kind, data }) => [term, kind, ...bytes(data)]),
      first: log.first,
      pending: log.pending,
      snapshot: snapshotOf(log.snapshot),
    },
    marks: node.marks,
    me: node.me,
    now: node.now,
    progress: new Map([...node.progress].map(([peer, progress]) => [peer, progressOf(progress)])),
    quorumCheckAt: node.quorumCheckAt,
    random: node.random,
    readNumber: node.readNumber,
    readQueue: node.readQueue.map(waiting),
    readReady: node.readReady.map(waiting),
    readRound: node.readRound.map(waiting),
    restoreToken: node.restoreToken,
    resumedMs: node.resumedMs,
    role: node.role,
    roundSeq: node.roundSeq,
    seq: node.seq,
    term: node.term,
    termStart: node.termStart,
    token: node.token,
    transfer: [node.transferTo, node.transferCtx, node.transferUntil],
    verified: node.verified,
    vote: node.vote,
    votes: node.votes,
  };
}

export function digest(node: Node): string {
  let first = 0x811c9dc5;
  let second = 0xcbf29ce4;
  for (const byte of TO_UTF8.encode(textOf(image(node)))) {
    first = Math.imul(first ^ byte, 0x01000193);
    second = Math.imul(second ^ byte, 0x01000193);
  }
  return [first, second].map((half) => (half >>> 0).toString(16).padStart(8, '0')).join('');
}
