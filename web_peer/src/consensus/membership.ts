/*
 * Decides which change of members is allowed, and what a change means for a leader (twin of
 * peer/consensus/membership.py). Pure.
 *
 * Thesis 4.1 and 4.2, one server at a time. The barrier: a leader changes nothing before an entry of its own term is
 * committed, nor while an earlier change is not (the flaw found after the thesis: two changes by two leaders may leave
 * two majorities without a common member). A server that comes back without its storage is another incarnation: its old
 * life is replaced by a learner, and nothing that the old life said counts.
 */

import * as election from './election';
import { sorted } from '../wire/utf8_order';
import { majority } from './quorum';
import { Config, type Server } from './records';
import * as replication from './replication';
import { type Node, Progress } from './server';
import type { Change, ChangeConfig, Reason } from './events';
import { configBytes, MAX_SERVERS } from './message_codec';

const CAUGHT_UP = 64; // entries that a learner may lack when it becomes a voter (4.2.1)

export function onChange(node: Node, { change, ctx }: ChangeConfig): void {
  if (node.role !== 'leader') {
    node.reject(ctx, node.leader === '' ? 'no_leader' : 'not_leader');
    return;
  }
  if (node.transferTo !== '') {
    node.reject(ctx, 'transferring');
    return;
  }
  if (node.commit < node.termStart && node.bug !== 28) {
    node.reject(ctx, 'not_ready');
    return;
  }
  if (node.log.configIndex > node.commit) {
    node.reject(ctx, 'change_pending');
    return;
  }
  const after = changed(node, change);
  if (typeof after === 'string') {
    node.reject(ctx, after);
    return;
  }
  const { index, term } = replication.append(node, 'config', configBytes(after));
  followConfig(node);
  node.effects.push({ kind: 'proposed', ctx, index, term });
  replication.shipAll(node);
}

/** The configuration after the change, or why not. */
function changed(node: Node, change: Change): Config | Reason {
  const { config } = node;
  const servers = new Map(config.byId);
  const refused = edited(node, change, servers);
  if (refused !== null) return refused;
  const after = new Config(sorted(servers.keys()).flatMap((id) => servers.get(id) ?? []));
  if (after.voters.length === 0) return 'last_voter';
  const same =
    after.voters.length === config.voters.length && after.voters.every((id, at) => id === config.voters[at]);
  if (!same && !reachable(node, after)) return 'would_lose_quorum';
  return after;
}

/** Makes the change in `servers`, or says why not. */
function edited(node: Node, change: Change, servers: Map<string, Server>): Reason | null {
  const { id } = change;
  const known = servers.get(id);
  if (change.kind === 'add_learner') {
    if (id === node.me || (known !== undefined && known.incarnation >= change.incarnation)) return 'already';
    if (known === undefined && servers.size >= MAX_SERVERS) return 'busy';
    servers.set(id, { id, incarnation: change.incarnation, voter: false });
    return null;
  }
  if (known === undefined) return 'unknown_member';
  switch (change.kind) {
    case 'promote':
      if (known.voter) return 'already';
      if (!caughtUp(node, id)) return 'not_caught_up';
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

function caughtUp(node: Node, peer: string): boolean {
  const progress = node.progress.get(peer);
  return (
    progress !== undefined &&
    progress.match > 0 &&
    progress.match + CAUGHT_UP >= node.log.last &&
    progress.contactMs >= node.now - node.settings.electionMinMs
  );
}

/** Whether a majority of the new voters was heard lately: what cannot be committed would block every change. */
function reachable(node: Node, after: Config): boolean {
  const since = node.now - node.settings.electionMinMs;
  const heard = after.voters.filter((voter) => {
    const progress = node.progress.get(voter);
    return voter === node.me || (progress !== undefined && progress.contactMs >= since);
  });
  return heard.length >= majority(after.voters.length);
}

/** A leader's list of whom it sends to follows the newest configuration at once (4.1). */
export function followConfig(node: Node): void {
  const progress = new Map<string, Progress>();
  for (const { id, incarnation } of node.log.config.servers) {
    if (id === node.me) continue;
    const known = node.progress.get(id);
    if (known !== undefined && (known.incarnation === incarnation || node.bug === 31)) {
      known.incarnation = incarnation;
      progress.set(id, known);
    } else progress.set(id, new Progress(incarnation, node.log.last + 1, node.now));
  }
  node.progress = progress;
}

/** A leader that is no voter any more leads until that is committed, then lets the best voter campaign (4.2.2). */
export function committed(node: Node): void {
  if (node.log.configIndex > node.commit || node.votesHere) return;
  for (const [peer, progress] of replication.everyone(node)) {
    replication.ship(node, peer, progress, true); // they learn that the change is committed
  }
  const successor = election.bestSuccessor(node);
  if (successor !== '') election.handOverTo(node, successor);
  election.becomeFollower(node, node.term, '');
}
