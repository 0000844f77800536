/*
 * Decides how a snapshot goes to a follower in pieces, when it is taken there, and what compaction keeps (twin of
 * peer/consensus/snapshot.py). Pure.
 *
 * Thesis 5 and figure 5.3. A transfer begins with the question how much is there already, so that it goes on after a
 * lost connection, a new leader with the same snapshot, or a restart of the sender. At most `maxInflight` pieces are on
 * their way; what was lost is sent again, piece by piece, once nothing moved for as long as an election may take.
 */

import { crc32 } from '../wire/crc32';
import type { Install, InstallReply, Message } from './messages';
import type { Snapshot } from './records';
import * as replication from './replication';
import type { Incoming, Node, Progress } from './server';
import type { Compact } from './events';

const NOTHING = new Uint8Array(0);

// --- the leader -----------------------------------------------------------------------------------------------

/** `peer` needs entries that are not in the log any more. */
export function begin(node: Node, peer: string, progress: Progress): void {
  const { log } = node;
  progress.state = 'snapshot';
  progress.inflight = [];
  progress.paused = false;
  if (log.snapshot === null || (node.bug === 27 && log.base < node.termStart)) return;
  progress.snapshot = log.snapshot;
  progress.crc = crc32(log.snapshot.data);
  progress.offset = progress.sent = 0;
  progress.asked = true;
  progress.stalled = 0;
  sendPiece(node, peer, progress, log.snapshot, 0, NOTHING);
}

/**
 * Send pieces ahead. A heartbeat sends the question only, or one piece again where long nothing moved: what is slow
 * must not get more to carry.
 */
export function ship(node: Node, peer: string, progress: Progress, beat: boolean): void {
  const { snapshot } = progress;
  if (snapshot === null || (beat && node.bug === 26)) return;
  const { electionMinMs, heartbeatMs, maxInflight, snapshotChunkBytes } = node.settings;
  if (progress.asked) {
    if (beat) begin(node, peer, progress); // with the newest snapshot, in case it moved on
    return;
  }
  if (beat) {
    progress.stalled += 1;
    const { offset } = progress;
    const again = progress.stalled * heartbeatMs >= electionMinMs;
    const piece = again ? snapshot.data.slice(offset, offset + snapshotChunkBytes) : NOTHING;
    sendPiece(node, peer, progress, snapshot, piece.length > 0 ? offset : 0, piece);
    if (piece.length > 0) {
      progress.sent = offset + piece.length;
      progress.stalled = 0;
    }
    return;
  }
  const ahead = progress.offset + maxInflight * snapshotChunkBytes;
  while (progress.sent < snapshot.data.length && progress.sent < ahead) {
    const piece = snapshot.data.slice(progress.sent, progress.sent + snapshotChunkBytes);
    sendPiece(node, peer, progress, snapshot, progress.sent, piece);
    progress.sent += piece.length;
  }
}

function sendPiece(
  node: Node,
  peer: string,
  { crc, incarnation }: Progress,
  snapshot: Snapshot,
  offset: number,
  data: Uint8Array,
): void {
  node.seq += 1;
  node.send(peer, incarnation, {
    kind: 'install',
    seq: node.seq,
    index: snapshot.index,
    snapshotTerm: snapshot.term,
    config: snapshot.config,
    total: snapshot.data.length,
    crc,
    offset,
    data,
  });
}

export function onInstallReply(node: Node, message: Message, body: InstallReply): void {
  const progress = node.progress.get(message.sender);
  if (node.role !== 'leader' || message.term !== node.term || progress === undefined) return;
  replication.answered(node, progress, body.seq);
  const { snapshot } = progress;
  if (snapshot?.index !== body.index || snapshot.term !== body.snapshotTerm) return;
  const { offset } = body;
  if (offset > snapshot.data.length || (offset < progress.offset && body.seq <= progress.okSeq)) {
    return; // cannot be, or was overtaken
  }
  progress.okSeq = Math.max(progress.okSeq, body.seq);
  if (offset === progress.offset && !progress.asked) return; // nothing moved
  if (offset < progress.offset) progress.sent = offset; // it began anew
  progress.asked = false;
  progress.stalled = 0;
  progress.offset = offset;
  progress.sent = Math.max(progress.sent, offset);
  ship(node, message.sender, progress, false);
}

/** An AppendReply came from who gets a snapshot: it is stored there, or is not needed any more. */
export function agreed(node: Node, progress: Progress): void {
  const { snapshot, match } = progress;
  if (snapshot !== null && match < snapshot.index && node.log.termAt(match) === null) return;
  progress.state = 'replicate';
  progress.next = match + 1;
  progress.snapshot = null;
}

// --- the follower ---------------------------------------------------------------------------------------------

/** Pieces are taken in order; the whole replaces the log unless the log has that entry already (figure 5.3). */
export function onInstall(node: Node, message: Message, body: Install): void {
  if (node.role === 'leader' || (node.bug === 47 && node.role !== 'follower')) return;
  replication.heard(node, message, body.seq);
  const { sender, senderIncarnation } = message;
  const { seq, index, snapshotTerm } = body;
  if (index <= node.commit && node.bug !== 22) {
    // it has that already, and commits never go back
    node.incoming = null;
    node.acked = Math.min(node.verified, node.log.durable);
    replication.acknowledge(node, sender, senderIncarnation, seq);
    return;
  }
  const has = (offset: number): void =>
    node.send(sender, senderIncarnation, { kind: 'install_reply', seq, index, snapshotTerm, offset });
  let { incoming } = node;
  if (incoming === null || !isOf(incoming, body)) {
    if (body.offset !== 0) {
      has(0);
      return;
    }
    const { config, total, crc } = body;
    incoming = { index, term: snapshotTerm, config, total, crc, data: NOTHING };
    node.incoming = incoming;
  }
  if (body.offset === incoming.data.length) incoming.data = joined(incoming.data, body.data);
  if (incoming.data.length === incoming.total) {
    node.incoming = null;
    const { data, term, config, crc } = incoming;
    if (crc32(data) === crc) {
      install(node, { index: incoming.index, term, config, data });
      return; // the answer comes once it is stored
    }
    incoming.data = NOTHING;
  }
  has(incoming.data.length);
}

function isOf(incoming: Incoming, { index, snapshotTerm, total, crc }: Install): boolean {
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

function install(node: Node, snapshot: Snapshot): void {
  node.log.install(snapshot, node.commit);
  node.commit = snapshot.index;
  node.verified = Math.max(node.verified, snapshot.index);
  node.restoreToken = node.storeSnapshot(snapshot);
}

/** Called when something became durable: the state machine is replaced once its new state cannot be lost. */
export function stored(node: Node): void {
  const { snapshot } = node.log;
  if (node.restoreToken === 0 || node.restoreToken > node.durableToken || snapshot === null) return;
  node.restoreToken = 0;
  node.handed = node.log.base;
  node.effects.push({ kind: 'restore', snapshot });
}

// --- every server ---------------------------------------------------------------------------------------------

/** Keep this state instead of the entries before it, but for a tail; an older one than there is says nothing new. */
export function onCompact(node: Node, { index, data }: Compact): void {
  const { log, bug } = node;
  if (index > node.applied || (index <= log.base && bug !== 25)) return;
  const term = log.termAt(index) ?? (bug === 25 ? 1 : null);
  if (term === null) return;
  const snapshot = { index, term, config: log.configAt(index), data };
  log.compact(snapshot, index - node.settings.keepTail + 1);
  node.storeSnapshot(snapshot);
}
