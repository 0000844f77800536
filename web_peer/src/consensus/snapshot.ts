/*
 * Snapshots: how one goes to a follower in chunks, when it is taken there, and what compaction keeps (twin of
 * peer/consensus/snapshot.py). Pure.
 *
 * Thesis 5 and figure 5.3. Sending begins with the question how much is there already, so that it goes on after a lost
 * connection, a new leader with the same snapshot, or a restart of the sender. At most `maxInflight` chunks are on
 * their way; what was lost is sent again, chunk by chunk, once nothing moved for as long as an election may take.
 */

import { crc32 } from '../wire/crc32';
import type { Install, InstallReply, Message } from './messages';
import type { Snapshot } from './records';
import type { IncomingSnapshot, Progress, RaftServer } from './server';
import type { Compact } from './events';

const NOTHING = new Uint8Array(0);

// --- the leader -----------------------------------------------------------------------------------------------

/** Offers `peer`, which needs entries that were compacted, the newest snapshot. */
export function start(server: RaftServer, peer: string, progress: Progress): void {
  const { snapshot } = server.log;
  progress.state = 'snapshot';
  progress.inflight = [];
  progress.probeSent = false;
  if (snapshot === null) return;
  progress.snapshot = snapshot;
  progress.snapshotCrc = crc32(snapshot.data);
  progress.ackedBytes = progress.sentBytes = 0;
  progress.offsetUnknown = true;
  progress.stalledHeartbeats = 0;
  sendChunk(server, peer, progress, snapshot, 0, NOTHING);
}

/**
 * Sends chunks ahead. A heartbeat sends only the question how much is there, or one chunk again where long nothing
 * moved: a slow link must not get more to carry.
 */
export function sendChunks(server: RaftServer, peer: string, progress: Progress, heartbeat: boolean): void {
  const { snapshot } = progress;
  if (snapshot === null) return;
  const { electionMinMs, heartbeatMs, maxInflight, snapshotChunkBytes } = server.settings;
  if (progress.offsetUnknown) {
    if (heartbeat) start(server, peer, progress); // with the newest snapshot, in case there is a newer one
    return;
  }
  if (heartbeat) {
    progress.stalledHeartbeats += 1;
    const { ackedBytes } = progress;
    const again = progress.stalledHeartbeats * heartbeatMs >= electionMinMs;
    const chunk = again ? snapshot.data.slice(ackedBytes, ackedBytes + snapshotChunkBytes) : NOTHING;
    sendChunk(server, peer, progress, snapshot, chunk.length > 0 ? ackedBytes : 0, chunk);
    if (chunk.length > 0) {
      progress.sentBytes = ackedBytes + chunk.length;
      progress.stalledHeartbeats = 0;
    }
    return;
  }
  const ahead = progress.ackedBytes + maxInflight * snapshotChunkBytes;
  while (progress.sentBytes < snapshot.data.length && progress.sentBytes < ahead) {
    const chunk = snapshot.data.slice(progress.sentBytes, progress.sentBytes + snapshotChunkBytes);
    sendChunk(server, peer, progress, snapshot, progress.sentBytes, chunk);
    progress.sentBytes += chunk.length;
  }
}

function sendChunk(
  server: RaftServer,
  peer: string,
  { snapshotCrc: crc, incarnation }: Progress,
  snapshot: Snapshot,
  offset: number,
  data: Uint8Array,
): void {
  server.seq += 1;
  server.send(peer, incarnation, {
    kind: 'install',
    seq: server.seq,
    index: snapshot.index,
    snapshotTerm: snapshot.term,
    config: snapshot.config,
    total: snapshot.data.length,
    crc,
    offset,
    data,
  });
}

/** Goes on from as many bytes as are there. */
export function onInstallReply(
  server: RaftServer,
  peer: string,
  progress: Progress,
  body: InstallReply,
): void {
  const { snapshot } = progress;
  if (snapshot?.index !== body.index || snapshot.term !== body.snapshotTerm) return;
  const { offset } = body;
  const overtaken = offset < progress.ackedBytes && body.seq <= progress.acceptedSeq;
  if (offset > snapshot.data.length || overtaken) return;
  progress.acceptedSeq = Math.max(progress.acceptedSeq, body.seq);
  if (offset === progress.ackedBytes && !progress.offsetUnknown) return; // nothing moved
  if (offset < progress.ackedBytes) progress.sentBytes = offset; // it began anew
  progress.offsetUnknown = false;
  progress.stalledHeartbeats = 0;
  progress.ackedBytes = offset;
  progress.sentBytes = Math.max(progress.sentBytes, offset);
  sendChunks(server, peer, progress, false);
}

/** Goes back to sending entries once the snapshot is stored there, or is not needed any more. */
export function onAgreement(server: RaftServer, progress: Progress): void {
  const { snapshot, matchIndex } = progress;
  if (snapshot !== null && matchIndex < snapshot.index && server.log.termAt(matchIndex) === null) return;
  progress.state = 'replicate';
  progress.nextIndex = matchIndex + 1;
  progress.snapshot = null;
}

// --- the follower ---------------------------------------------------------------------------------------------

/** Takes chunks in order; the whole replaces the log unless the log has that entry already (figure 5.3). */
export function onInstall(server: RaftServer, message: Message, body: Install): void {
  const { sender, senderIncarnation } = message;
  const { seq, index, snapshotTerm } = body;
  if (index <= server.commitIndex) {
    // it is there already, and commits never go back
    server.incomingSnapshot = null;
    server.acknowledgedIndex = Math.min(server.verifiedIndex, server.log.durableIndex);
    server.acknowledge(sender, senderIncarnation, seq);
    return;
  }
  const reply = (offset: number): void =>
    server.send(sender, senderIncarnation, { kind: 'install_reply', seq, index, snapshotTerm, offset });
  let incoming = server.incomingSnapshot;
  if (incoming === null || !isChunkOf(incoming, body)) {
    if (body.offset !== 0) {
      reply(0);
      return;
    }
    const { config, total, crc } = body;
    incoming = { index, term: snapshotTerm, config, total, crc, data: NOTHING };
    server.incomingSnapshot = incoming;
  }
  if (body.offset === incoming.data.length) incoming.data = joined(incoming.data, body.data);
  if (incoming.data.length === incoming.total) {
    server.incomingSnapshot = null;
    const { data, term, config, crc } = incoming;
    if (crc32(data) === crc) {
      install(server, { index: incoming.index, term, config, data });
      return; // the answer comes once it is stored
    }
    incoming.data = NOTHING;
  }
  reply(incoming.data.length);
}

function isChunkOf(incoming: IncomingSnapshot, { index, snapshotTerm, total, crc }: Install): boolean {
  return (
    incoming.index === index &&
    incoming.term === snapshotTerm &&
    incoming.total === total &&
    incoming.crc === crc
  );
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array {
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}

function install(server: RaftServer, snapshot: Snapshot): void {
  server.log.install(snapshot, server.commitIndex);
  server.commitIndex = snapshot.index;
  server.verifiedIndex = Math.max(server.verifiedIndex, snapshot.index);
  server.restoreToken = server.storeSnapshot(snapshot);
}

/** Replaces the state machine once the snapshot that was installed cannot be lost any more. */
export function onDurable(server: RaftServer): void {
  const { snapshot } = server.log;
  if (server.restoreToken === 0 || server.restoreToken > server.durableToken || snapshot === null) return;
  server.restoreToken = 0;
  server.applyingIndex = server.log.snapshotIndex;
  server.effects.push({ kind: 'restore', snapshot });
}

// --- every server ---------------------------------------------------------------------------------------------

/** Keeps this state instead of the entries before it, but for a tail; nothing happens where a newer one is kept. */
export function onCompact(server: RaftServer, { index, data }: Compact): void {
  const { log } = server;
  if (index > server.appliedIndex || index <= log.snapshotIndex) return;
  const term = log.termAt(index);
  if (term === null) return;
  const snapshot = { index, term, config: log.configAt(index), data };
  log.compact(snapshot, index - server.settings.keepTail + 1);
  server.storeSnapshot(snapshot);
}
