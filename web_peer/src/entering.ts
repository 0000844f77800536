/*
 * How a peer gets into a mesh, and back into it: who leads, which epoch, being let in, having the log (twin of
 * peer/entering.py). Edge; whoever leads lets in.
 */

import { textOf } from './engine';
import { BadCommand, BeginAnew, ConnectFailed, NotAdmitted, PeerError, VersionMismatch } from './errors';
import { PROTOCOL_VERSION } from './frames';
import type { Mesh } from './mesh';
import type { Node } from './node';
import { type Beginning, Replica } from './replica';

export const TRY_S = 5; // to find the mesh again, before a person reads of the next try
const STATE_WAIT_S = 8;
const STAGGER_MS = 500; // between members that are asked who leads: the first may be frozen
const LIKELY: readonly string[] = ['founder', 'peer', 'guest']; // to be members, and to stay
const LIVES_PER_MS = 2 ** 11; // incarnations are milliseconds and a drawn part, and stay below 2^53

/** Finds who leads, asks to be let in, and waits for the log. Raises ConnectFailed, NotAdmitted, NotLeader. */
export async function enter(mesh: Mesh, compute: boolean, waitS: number): Promise<void> {
  const { node } = mesh;
  const { leader, epoch } = await whoLeads(mesh, waitS);
  let index: number | null = null;
  for (let tries = 0; index === null && tries < 2; tries += 1) {
    const replica = withEpoch(mesh, epoch);
    replica.trusted = leader;
    try {
      index = wholeOf(await node.line.ask('join', asking(mesh, replica, compute), waitS * 1000, leader));
    } catch (error) {
      if (!(error instanceof BeginAnew)) throw versionNamed(error);
      node.leaveLog();
    }
  }
  if (index === null) throw new NotAdmitted('this peer was told twice to begin anew; try again');
  const from = index;
  const whole = await node.until((state) => {
    const known = node.replica !== null && node.replica.order[1] >= from;
    return known && state.model !== null && state.members.has(node.me);
  }, STATE_WAIT_S);
  if (!whole) throw new NotAdmitted('this peer was let in but got no state of the mesh; try again');
}

/** This peer's log of `epoch`; that of another one is void. */
function withEpoch({ node, link }: Mesh, epoch: number): Replica {
  if (node.replica?.begin.epoch === epoch) return node.replica;
  node.leaveLog();
  const begin: Beginning = {
    mesh: link.mesh,
    epoch,
    me: node.me,
    incarnation: Date.now() * LIVES_PER_MS + Math.floor(Math.random() * LIVES_PER_MS),
    hardState: { term: 0, vote: '' },
    snapshot: null,
    entries: [],
  };
  const replica = new Replica(begin, null, (peer, message) => node.sendMessage(peer, message), node);
  node.keepLog(replica);
  return replica;
}

/** A tab has a window that somebody can close, and keeps no log: it learns, and does not vote. */
function asking({ name }: Mesh, { begin, fresh }: Replica, compute: boolean): Record<string, unknown> {
  return {
    name,
    compute,
    protocol: PROTOCOL_VERSION,
    incarnation: begin.incarnation,
    fresh,
    epoch: begin.epoch,
    headless: false,
    durable: false,
  };
}

interface Leader {
  readonly leader: string;
  readonly epoch: number;
}

/** The leader and epoch, as the first member says who knows. Raises ConnectFailed when nobody does in time. */
async function whoLeads(mesh: Mesh, waitS: number): Promise<Leader> {
  const { node, client } = mesh;
  const deadline = performance.now() + waitS * 1000;
  const mine = node.replica?.begin.epoch ?? 0;
  const asked = new Set<string>();
  const heard: { found: Leader | null; refused: unknown } = { found: null, refused: null };
  const ask = async (peer: string): Promise<void> => {
    while (heard.found === null && performance.now() < deadline) {
      try {
        const said = await askWhoLeads(node, peer);
        if (said.leader !== '' && said.epoch >= mine) heard.found ??= said;
      } catch (error) {
        if (!(error instanceof PeerError)) throw error;
        if (isOfAnotherVersion(error)) heard.refused = error;
      }
      if (heard.found === null) await pause(STAGGER_MS);
    }
  };
  for (;;) {
    const present = [...client.members()].filter(([peer]) => peer !== node.me);
    const next = present
      .filter(([peer]) => !asked.has(peer))
      .sort(
        ([a, one], [b, other]) =>
          LIKELY.indexOf(one.grant.role) - LIKELY.indexOf(other.grant.role) || (a < b ? -1 : 1),
      )[0]?.[0];
    if (next !== undefined) {
      asked.add(next);
      void ask(next).catch(reportError);
    }
    const until = performance.now() + STAGGER_MS;
    while (heard.found === null && performance.now() < until && heard.refused === null) await pause(20);
    if (heard.found !== null) return heard.found;
    if (heard.refused !== null) throw versionNamed(heard.refused);
    if (performance.now() > deadline) {
      throw new ConnectFailed(
        present.length === 0
          ? `nobody of this mesh has been there for ${waitS} s; ask whoever sent the link`
          : 'nobody coordinates this mesh now: too few of its voters are there; try again',
      );
    }
  }
}

async function askWhoLeads(node: Node, peer: string): Promise<Leader> {
  await node.dialer.dial(peer);
  const { leader, epoch } = await node.calls.call(peer, 'leader', {});
  if (typeof leader !== 'string' || typeof epoch !== 'number' || !Number.isSafeInteger(epoch) || epoch < 0) {
    throw new BadCommand('leader: expected a peer and an epoch');
  }
  return { leader: epoch === 0 ? '' : leader, epoch };
}

function wholeOf(body: Readonly<Record<string, unknown>>): number {
  const { index } = body;
  if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0) {
    throw new BadCommand('join: expected the index of an entry');
  }
  return index;
}

function isOfAnotherVersion(error: unknown): boolean {
  const text = textOf(error);
  return (
    error instanceof VersionMismatch || text.includes('VersionMismatch') || text.includes('speaks protocol')
  );
}

function versionNamed(error: unknown): unknown {
  if (!isOfAnotherVersion(error)) return error;
  return new VersionMismatch(
    `this page and the mesh are of different versions: reload the page; if that does not help, the others ` +
      `have to update shoal (${textOf(error)})`,
  );
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
