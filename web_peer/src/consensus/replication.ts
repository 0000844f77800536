/*
 * Log replication: what a leader sends to whom, what a follower takes, and what is committed (twin of
 * peer/consensus/replication.py). Pure.
 *
 * Thesis 3.5 (replication), 3.6.2 (only entries of the own term are committed by counting), 3.10 (transfer), 6.2
 * (contact with a majority), 10.2 (entries go out before they are durable here). A follower is probed until its log
 * agrees, then entries are sent ahead, `maxInflight` messages at a time; a follower that needs compacted entries gets
 * the snapshot.
 */

import type { Append, AppendReply, Message } from './messages';
import * as quorum from './quorum';
import type { Entry, EntryKind } from './records';
import * as snapshot from './snapshot';
import type { Progress, RaftServer } from './server';
import { MAX_ENTRIES } from './message_codec';

// --- the leader -----------------------------------------------------------------------------------------------

/** Begins a leader's term: nothing is sent yet, and nothing known of the others. */
export function startLeading(server: RaftServer): void {
  server.seq = 0;
  server.sendTimes = [[0, server.now]];
  server.progress = new Map();
  server.termStart = server.log.lastIndex + 1;
  server.checkQuorumDeadline = null;
}

/** Drops what only a leader has; also a transfer, which may have brought this about. */
export function stopLeading(server: RaftServer): void {
  server.transferTarget = '';
  server.progress = new Map();
  server.sendTimes = [];
  server.checkQuorumDeadline = null;
}

/** Appends one entry to the leader's log; it is counted here when it is durable (10.2.1). */
export function append(server: RaftServer, kind: EntryKind, data: Uint8Array): Entry {
  const entry = { index: server.log.lastIndex + 1, term: server.term, kind, data };
  server.log.append([entry]);
  return entry;
}

/** What a majority of the voters has reached; this server has `own`. */
function votersReached(server: RaftServer, own: number, value: (progress: Progress) => number): number {
  const { voters } = server.config;
  return quorum.reached(
    voters.map((voter) => {
      if (voter === server.id) return own;
      const progress = server.progress.get(voter);
      return progress === undefined ? 0 : value(progress);
    }),
  );
}

/** Returns the latest moment at which a majority certainly followed this leader (6.2). */
export function quorumContactMs(server: RaftServer): number {
  return votersReached(server, server.now, ({ contactMs }) => contactMs);
}

/** Returns the newest `seq` such that a majority answered that message or a newer one. */
export function quorumAckedSeq(server: RaftServer): number {
  return votersReached(server, server.seq + 1, ({ ackedSeq }) => ackedSeq);
}

/** Sends everybody a message. Each tells where the follower's log has to agree, so an idle gap is found, too. */
export function broadcastHeartbeat(server: RaftServer): void {
  const { heartbeatMs, electionMaxMs } = server.settings;
  server.heartbeatDeadline = server.now + heartbeatMs;
  const newest = server.sendTimes.at(-1)?.[1] ?? 0;
  if (server.now - newest >= Math.floor(heartbeatMs / 4)) {
    server.sendTimes.push([server.seq, server.now]);
    const oldest = server.now - 2 * electionMaxMs;
    while (server.sendTimes.length > 1 && (server.sendTimes[0]?.[1] ?? 0) < oldest) server.sendTimes.shift();
  }
  for (const [peer, progress] of server.sortedProgress()) replicate(server, peer, progress, true);
  if (server.transferTarget !== '') continueTransfer(server);
}

/** Sends new entries to everybody who may get them now. */
export function broadcastAppend(server: RaftServer): void {
  for (const [peer, progress] of server.sortedProgress()) replicate(server, peer, progress, false);
}

/** Tells the followers at once that the commit index rose. */
export function broadcastCommit(server: RaftServer): void {
  for (const [peer, progress] of server.sortedProgress()) {
    if (progress.state === 'replicate') replicate(server, peer, progress, true);
  }
}

/** Sends what `peer` may get now; with `heartbeat` at least one message. */
export function replicate(server: RaftServer, peer: string, progress: Progress, heartbeat: boolean): void {
  if (progress.state === 'snapshot') {
    snapshot.sendChunks(server, peer, progress, heartbeat);
    return;
  }
  if (server.log.termAt(progress.nextIndex - 1) === null) {
    snapshot.start(server, peer, progress);
    return;
  }
  const last = lastToSend(server, peer);
  if (progress.state === 'probe') {
    if (heartbeat || !progress.probeSent) {
      // Entries go with the first probe only: they are on their way still where a link is slow.
      const entries = progress.probeSent ? [] : batch(server, progress.nextIndex, last);
      progress.probeSent = true;
      sendAppend(server, peer, progress, entries);
    }
    return;
  }
  let sent = false;
  while (progress.nextIndex <= last && progress.inflight.length < server.settings.maxInflight) {
    const entries = batch(server, progress.nextIndex, last);
    sendAppend(server, peer, progress, entries);
    progress.nextIndex += entries.length;
    progress.inflight.push(progress.nextIndex - 1);
    sent = true;
  }
  if (heartbeat && !sent) sendAppend(server, peer, progress, []);
}

/**
 * The last index that `peer` may get. A learner gets committed entries only.
 *
 * So nobody needs the vote of a learner whose log is newer than a majority's, to whom a promotion is unknown.
 */
function lastToSend(server: RaftServer, peer: string): number {
  return server.config.voters.includes(peer) ? server.log.lastIndex : server.commitIndex;
}

function batch(server: RaftServer, start: number, last: number): Entry[] {
  const most = Math.max(0, Math.min(MAX_ENTRIES, last - start + 1));
  return server.log.batch(start, server.settings.maxAppendBytes, most);
}

function sendAppend(server: RaftServer, peer: string, progress: Progress, entries: readonly Entry[]): void {
  server.seq += 1;
  const { seq, commitIndex: commit } = server;
  const prevIndex = progress.nextIndex - 1;
  const prevTerm = server.log.termAt(prevIndex) ?? 0;
  server.send(peer, progress.incarnation, { kind: 'append', seq, prevIndex, prevTerm, commit, entries });
}

/**
 * Takes an answer as contact from when the answered message was sent, however late the answer comes.
 *
 * Returns whether this leader has sent that message.
 */
export function onContact(server: RaftServer, progress: Progress, seq: number): boolean {
  if (seq > server.seq) return false;
  progress.ackedSeq = Math.max(progress.ackedSeq, seq);
  const sent = server.sendTimes.findLast(([sentSeq]) => sentSeq < seq);
  if (sent !== undefined) progress.contactMs = Math.max(progress.contactMs, sent[1]);
  return true;
}

/** Takes what `peer` says of its log; returns whether more of it agrees, so that more may be committed. */
export function onAppendReply(
  server: RaftServer,
  peer: string,
  progress: Progress,
  body: AppendReply,
): boolean {
  if (!body.ok) {
    onRefusal(server, peer, progress, body);
    return false;
  }
  progress.acceptedSeq = Math.max(progress.acceptedSeq, body.seq);
  if (body.index > server.log.lastIndex) return false; // nobody can have said this
  progress.matchIndex = Math.max(progress.matchIndex, body.index);
  progress.nextIndex = Math.max(progress.nextIndex, progress.matchIndex + 1);
  progress.inflight = progress.inflight.filter((last) => last > progress.matchIndex);
  if (progress.state === 'snapshot') snapshot.onAgreement(server, progress);
  else if (progress.state === 'probe') {
    progress.state = 'replicate';
    progress.nextIndex = progress.matchIndex + 1;
    progress.inflight = [];
  }
  progress.probeSent = false;
  return true;
}

/** Goes back to where the logs may agree: past all entries here that are newer than the hint allows (3.5). */
function onRefusal(server: RaftServer, peer: string, progress: Progress, body: AppendReply): void {
  if (progress.state === 'snapshot') return;
  if (body.index <= progress.matchIndex) {
    if (body.seq <= progress.acceptedSeq) return; // overtaken by a newer answer
    // It lost what it had: only probing tells what is left.
    progress.matchIndex = Math.min(progress.matchIndex, body.hintIndex);
  } else if (progress.state === 'probe' && body.index !== progress.nextIndex - 1) return;
  let found = Math.min(body.hintIndex, server.log.lastIndex);
  while (found > progress.matchIndex && (server.log.termAt(found) ?? 0) > body.hintTerm) found -= 1;
  progress.state = 'probe';
  progress.nextIndex = Math.max(found, progress.matchIndex) + 1;
  progress.inflight = [];
  progress.probeSent = false;
  replicate(server, peer, progress, false);
}

/** Sends `peer`, which has just agreed, what it may get now, and the word to campaign if it takes over. */
export function sendMore(server: RaftServer, peer: string, progress: Progress): void {
  replicate(server, peer, progress, false);
  if (server.transferTarget === peer) continueTransfer(server);
}

/** Commits what a majority has, if its last entry is of this term (3.6.2); returns whether the index rose. */
export function advanceCommit(server: RaftServer): boolean {
  const index = votersReached(server, server.log.durableIndex, ({ matchIndex }) => matchIndex);
  if (index <= server.commitIndex || server.log.termAt(index) !== server.term) return false;
  server.commitIndex = index;
  return true;
}

/** Lets the target campaign once it has the whole log (3.10); again with every heartbeat, as messages get lost. */
function continueTransfer(server: RaftServer): void {
  const progress = server.progress.get(server.transferTarget);
  if (progress?.matchIndex === server.log.lastIndex) sendTimeoutNow(server, server.transferTarget);
}

/** Tells `peer` to campaign at once (3.10). */
export function sendTimeoutNow(server: RaftServer, peer: string): void {
  const known = server.config.byId.get(peer);
  if (known !== undefined) server.send(peer, known.incarnation, { kind: 'timeout_now' });
}

/** Takes everything on its way to `peer` for lost; the next heartbeat asks what is there. */
export function onUnreachable(server: RaftServer, peer: string): void {
  const progress = server.progress.get(peer);
  if (progress === undefined) return;
  if (progress.state === 'replicate') {
    progress.state = 'probe';
    progress.nextIndex = progress.matchIndex + 1;
    progress.inflight = [];
  }
  progress.probeSent = progress.offsetUnknown = true;
}

// --- the follower ---------------------------------------------------------------------------------------------

/**
 * Lets a leader of an older term learn the newer one from an answer.
 *
 * It is numbered 0: the leader of the newer term counts anew, and must not take it for an answer to its own message.
 */
export function refuseOlderTerm(server: RaftServer, message: Message): void {
  server.send(message.sender, message.senderIncarnation, {
    kind: 'append_reply',
    seq: 0,
    ok: false,
    index: 0,
    hintIndex: 0,
    hintTerm: 0,
  });
}

/** Takes entries that follow on an entry of this log, drops what conflicts with them, and commits (3.5). */
export function onAppend(server: RaftServer, message: Message, body: Append): void {
  const { log } = server;
  let { entries, prevIndex } = body;
  if (prevIndex < server.commitIndex) {
    // what is committed here agrees with every leader (3.6.3)
    const known = server.commitIndex - prevIndex;
    prevIndex = Math.min(server.commitIndex, prevIndex + entries.length);
    entries = entries.slice(known);
  } else if (log.termAt(prevIndex) !== body.prevTerm) {
    refuse(server, message, body);
    return;
  }
  for (const [place, { index, term }] of entries.entries()) {
    if (log.termAt(index) === term) continue;
    if (index <= log.lastIndex) log.truncate(index);
    log.append(entries.slice(place));
    break;
  }
  server.verifiedIndex = Math.max(server.verifiedIndex, prevIndex + entries.length);
  server.commitIndex = Math.max(server.commitIndex, Math.min(body.commit, server.verifiedIndex));
  const incoming = server.incomingSnapshot;
  if (incoming !== null && incoming.index <= server.commitIndex) server.incomingSnapshot = null; // entries were faster
  server.acknowledgedIndex = Math.min(server.verifiedIndex, log.durableIndex);
  server.acknowledge(message.sender, message.senderIncarnation, body.seq);
}

/** Says how far the logs can agree at most: no newer term than the leader had at `prevIndex`. */
function refuse(server: RaftServer, message: Message, { seq, prevIndex, prevTerm }: Append): void {
  const { log } = server;
  let found = Math.min(log.lastIndex, prevIndex - 1);
  while (found > server.commitIndex && (log.termAt(found) ?? 0) > prevTerm) found -= 1;
  server.send(message.sender, message.senderIncarnation, {
    kind: 'append_reply',
    seq,
    ok: false,
    index: prevIndex,
    hintIndex: found,
    hintTerm: log.termAt(found) ?? 0,
  });
}

/** Tells the leader, where there is one, if more of its entries have become durable here. */
export function acknowledgeDurable(server: RaftServer): void {
  const durableIndex = Math.min(server.verifiedIndex, server.log.durableIndex);
  if (server.leader === '' || durableIndex <= server.acknowledgedIndex) return;
  server.acknowledgedIndex = durableIndex;
  server.acknowledge(server.leader, server.leaderIncarnation, server.leaderSeq);
}
