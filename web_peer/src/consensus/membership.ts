/*
 * Cluster membership: which change is allowed, and what a change means for a leader (twin of
 * peer/consensus/membership.py). Pure.
 *
 * Thesis 4.1 and 4.2, one server at a time. The barrier: a leader changes nothing before an entry of its own term is
 * committed, nor while an earlier change is not (the flaw found after the thesis: two changes by two leaders may leave
 * two majorities without a common member). A server that comes back without its storage is another incarnation: it
 * begins as a learner, and nothing that its earlier incarnation said counts.
 */

import { byBytes, sorted } from '../wire/utf8_order';
import { majority } from './quorum';
import { Config, type Server } from './records';
import * as replication from './replication';
import { Progress, type RaftServer } from './server';
import type { Change, ChangeConfig, Reason } from './events';
import { configBytes, MAX_SERVERS } from './message_codec';

export const CAUGHT_UP_ENTRIES = 64; // that a learner may lack when it becomes a voter (4.2.1)

/** Appends the configuration after the change, which holds at once (4.1), or rejects the change. */
export function onChange(server: RaftServer, { change, ctx }: ChangeConfig): void {
  if (server.role !== 'leader') {
    server.reject(ctx, server.leader === '' ? 'no_leader' : 'not_leader');
    return;
  }
  if (server.transferTarget !== '') {
    server.reject(ctx, 'transferring');
    return;
  }
  if (server.commitIndex < server.termStart) {
    server.reject(ctx, 'not_ready');
    return;
  }
  if (server.log.configIndex > server.commitIndex) {
    server.reject(ctx, 'change_pending');
    return;
  }
  const after = changed(server, change);
  if (typeof after === 'string') {
    server.reject(ctx, after);
    return;
  }
  const { index, term } = replication.append(server, 'config', configBytes(after));
  followConfig(server);
  server.effects.push({ kind: 'proposed', ctx, index, term });
  replication.broadcastAppend(server);
}

/** The configuration after the change, or why not. */
function changed(server: RaftServer, change: Change): Config | Reason {
  const { config } = server;
  const servers = new Map(config.byId);
  const refused = edited(server, change, servers);
  if (refused !== null) return refused;
  const after = new Config(sorted(servers.keys()).flatMap((id) => servers.get(id) ?? []));
  if (after.voters.length === 0) return 'last_voter';
  const same =
    after.voters.length === config.voters.length && after.voters.every((id, at) => id === config.voters[at]);
  if (!same && !reachable(server, after)) return 'would_lose_quorum';
  return after;
}

/** Makes the change in `servers`, or says why not. */
function edited(server: RaftServer, change: Change, servers: Map<string, Server>): Reason | null {
  const { id } = change;
  const known = servers.get(id);
  if (change.kind === 'add_learner') {
    if (id === server.id || (known !== undefined && known.incarnation >= change.incarnation))
      return 'already';
    if (known === undefined && servers.size >= MAX_SERVERS) return 'busy';
    servers.set(id, { id, incarnation: change.incarnation, voter: false });
    return null;
  }
  if (known === undefined) return 'unknown_member';
  switch (change.kind) {
    case 'promote':
      if (known.voter) return 'already';
      if (!caughtUp(server, id)) return 'not_caught_up';
      servers.set(id, { ...known, voter: true });
      return null;
    case 'demote':
      if (!known.voter) return 'already';
      servers.set(id, { ...known, voter: false });
      return null;
    case 'remove':
      servers.delete(id);
      return null;
    default:
      return change satisfies never;
  }
}

function caughtUp(server: RaftServer, peer: string): boolean {
  const progress = server.progress.get(peer);
  return (
    progress !== undefined &&
    progress.matchIndex > 0 &&
    progress.matchIndex + CAUGHT_UP_ENTRIES >= server.log.lastIndex &&
    progress.contactMs >= server.now - server.settings.electionMinMs
  );
}

/** Whether a majority of the new voters answered lately: what cannot be committed blocks every change. */
function reachable(server: RaftServer, after: Config): boolean {
  const since = server.now - server.settings.electionMinMs;
  const found = after.voters.filter((voter) => {
    const progress = server.progress.get(voter);
    return voter === server.id || (progress !== undefined && progress.contactMs >= since);
  });
  return found.length >= majority(after.voters.length);
}

/** Sends to the servers of the newest configuration from now on, and to no others (4.1). */
export function followConfig(server: RaftServer): void {
  const progress = new Map<string, Progress>();
  for (const { id, incarnation } of server.log.config.servers) {
    if (id === server.id) continue;
    const known = server.progress.get(id);
    if (known !== undefined && known.incarnation === incarnation) progress.set(id, known);
    else progress.set(id, new Progress(incarnation, server.log.lastIndex + 1, server.now));
  }
  server.progress = progress;
}

/** Returns whether the leader is no voter any more, and that is committed (4.2.2). */
export function leadsNoMore(server: RaftServer): boolean {
  return server.log.configIndex <= server.commitIndex && !server.isVoter;
}

/** Tells everybody that the change is committed, and lets the best voter campaign (4.2.2). */
export function handOver(server: RaftServer): void {
  for (const [peer, progress] of server.sortedProgress()) {
    replication.replicate(server, peer, progress, true);
  }
  const successor = bestSuccessor(server);
  if (successor !== '') replication.sendTimeoutNow(server, successor);
}

/** The voter that has most of this leader's log, and the newest contact; "" where there is none. */
function bestSuccessor(server: RaftServer): string {
  const { voters } = server.config;
  const known = [...server.progress].filter(([peer]) => voters.includes(peer));
  known.sort(
    ([a, first], [b, second]) =>
      second.matchIndex - first.matchIndex || second.contactMs - first.contactMs || byBytes(b, a),
  );
  return known[0]?.[0] ?? '';
}
