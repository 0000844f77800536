/*
 * How a peer gets into a mesh, and back into it: who leads, which epoch, being let in, having the log (twin of
 * peer/member/mesh_entry.py). Edge; whoever leads lets in.
 */

import { BadBoot } from '../consensus/errors';
import { Coordinating } from '../coordination/coordinator_service';
import { Coordinator } from '../coordination/coordinator';
import {
  BeginAnew,
  ConnectFailed,
  NotAdmitted,
  NotLeader,
  PeerError,
  textOf,
  VersionMismatch,
} from '../errors';
import { LOWEST_VERSION } from '../limits';
import { PATIENCE_MS } from '../replication/leader_client';
import type { Manifest } from '../planner/manifest';
import type { MeshMember } from './mesh_member';
import type { PeerLinks } from '../transport/peer_links';
import { type Planned, plannerUnits, type PlanRequest, YARDSTICK_UNITS } from '../coordination/plan_request';
import type { PlacementsAsked } from '../coordination/offer_placement_service';
import { askPlacements, askPlanner } from '../coordination/planning_client';
import type { GraphManifest } from '../planner/graph_manifest';
import type { Replica } from '../replication/replica';
import type { SignalingClient } from '../transport/signaling_client';
import type { Patience } from '../coordination/voter_policy';
import { JOIN, type JoinRequest, LEADER } from '../wire/generated/requests';

export const TRY_S = 5; // to find the mesh again, before a person reads of the next try
const STATE_WAIT_S = 10;
const LED_MS = 5000; // whoever is said to lead answers within this, or the others are asked again
const STAGGER_MS = 500; // between members that are asked who leads: the first may be frozen
const LEAST_PATIENCE_S = 0.1; // for a peer that may be gone to answer the coordinator
const MOST_PATIENCE_S = 1;
const LIKELY: readonly string[] = ['founder', 'peer', 'guest']; // to be members, and to stay

/** Manifests of models that others offer, by id. Both raise a PeerError. */
export interface Manifests {
  decoder(model: string): Promise<Manifest>;
  graph(model: string): Promise<GraphManifest>;
}

/** From here on this peer coordinates whenever it leads: it knows the model that answers, or that there is none. */
export function coordinates(
  mesh: MeshMember,
  manifest: Manifest | null,
  manifests: Manifests,
  patience?: Patience,
): void {
  const { links, view, leadership, client } = mesh;
  const units = manifest === null ? YARDSTICK_UNITS : plannerUnits(manifest);
  const reach = {
    answers: (peer: string, times: number) => answers(links, peer, times),
    present: (peer: string) => client.members().has(peer),
  };
  leadership.enable((state) => {
    const { replica, me } = view;
    if (replica === null) throw new NotAdmitted('this peer has no log');
    const plan = (request: PlanRequest): Promise<Planned | null> =>
      askPlanner(mesh.link.server, request, mesh.signal);
    const speaks = (peer: string): number => links.speaks(peer);
    const around = {
      decoders: {
        manifestOf: (model: string) => manifests.decoder(model),
        own: units,
        answering: manifest,
        speaks,
        plan,
      },
      mayCompute: (peer: string) => peer === me || mayCompute(client, peer),
      connected: (peer: string) => links.isConnected(peer),
      placing: {
        unitsOf: async (model: string) => (await manifests.graph(model)).units.length,
        flops: new Map<string, number>(units.map(({ kind, flopsPerToken }) => [kind, flopsPerToken])),
        speaks,
        place: (asked: PlacementsAsked) => askPlacements(mesh.link.server, asked, mesh.signal),
      },
      speaks,
      reach,
      plan,
      failed: () => leadership.again(),
    };
    return new Coordinating(new Coordinator(me, units, state), replica, around, patience);
  });
}

/** Whether `peer` answers within so many times what its link usually takes, with room for a busy machine. */
function answers(links: PeerLinks, peer: string, times: number): Promise<boolean> {
  const connection = links.connection(peer);
  if (connection === null) return Promise.resolve(false);
  const { rttS } = connection;
  const patienceS = rttS === null ? MOST_PATIENCE_S : Math.min(MOST_PATIENCE_S, LEAST_PATIENCE_S + 4 * rttS);
  return links.prober.answers(peer, times * patienceS);
}

function mayCompute(client: SignalingClient, peer: string): boolean {
  const presence = client.members().get(peer);
  return presence !== undefined && presence.vouch === null && presence.grant.role !== 'guest';
}

/**
 * Finds who leads, asks to be let in, and waits for the log. Raises ConnectFailed, NotAdmitted, NotLeader.
 *
 * Who kept a log takes part with it at once: without its vote there may be nobody to ask. `learn`: what this peer does
 * to be able to coordinate, if it finds that it leads.
 */
export async function enter(
  mesh: MeshMember,
  compute: boolean,
  waitS: number,
  learn: (() => Promise<void>) | null = null,
): Promise<void> {
  const { view, leadership } = mesh;
  if (view.replica === null) {
    const newest = (await mesh.part.log.epochs()).at(-1);
    if (newest !== undefined) await withEpoch(mesh, newest);
  }
  const until = performance.now() + (learn === null ? waitS * 1000 : PATIENCE_MS);
  let from: number | null = null;
  for (let anew = 0; from === null;) {
    const { leader, epoch } = await whoLeads(mesh, waitS);
    if (leader === view.me && !leadership.isAble) await learn?.();
    const replica = await withEpoch(mesh, epoch);
    replica.trust(leader);
    try {
      from = (await view.askLeader(JOIN, asking(mesh, replica, compute), LED_MS, leader)).index;
    } catch (error) {
      if (error instanceof NotLeader && performance.now() < until) continue; // the others know soon who leads
      if (!(error instanceof BeginAnew)) throw versionNamed(error);
      anew += 1;
      if (anew > 1) throw new NotAdmitted('this peer was told twice to begin anew; try again');
      view.leaveLog();
      mesh.part.take(await mesh.part.log.anew(epoch, error.above));
    }
  }
  const index = from;
  const whole = await view.until((state) => {
    const known = view.replica !== null && view.replica.order[1] >= index;
    return known && state.members.has(view.me);
  }, STATE_WAIT_S);
  if (!whole) throw new NotAdmitted('this peer was let in but got no state of the mesh; try again');
}

/** This peer's log of `epoch`; that of another one is void. */
async function withEpoch(mesh: MeshMember, epoch: number): Promise<Replica> {
  const { view } = mesh;
  if (view.replica?.begin.epoch === epoch) return view.replica;
  view.leaveLog();
  const known = await mesh.part.log.epochs();
  const begin = await (known.every((each) => each === epoch)
    ? mesh.part.log.open(epoch)
    : mesh.part.log.anew(epoch));
  try {
    return mesh.part.take(begin);
  } catch (error) {
    if (!(error instanceof BadBoot)) throw error;
    view.leaveLog();
    return mesh.part.take(await mesh.part.log.anew(epoch));
  }
}

/** A tab has a window that somebody can close. */
function asking({ name, part }: MeshMember, { begin, fresh }: Replica, compute: boolean): JoinRequest {
  return {
    name,
    compute,
    protocol: LOWEST_VERSION,
    incarnation: begin.incarnation,
    fresh,
    epoch: begin.epoch,
    headless: false,
    durable: compute && part.log.durable,
  };
}

interface Leader {
  readonly leader: string;
  readonly epoch: number;
}

/** The leader and epoch, as the first member says who knows. Raises ConnectFailed when nobody does in time. */
async function whoLeads(mesh: MeshMember, waitS: number): Promise<Leader> {
  const { links, view, client } = mesh;
  const deadline = performance.now() + waitS * 1000;
  const mine = view.replica?.begin.epoch ?? 0;
  const asked = new Set<string>();
  const answered = new Set<string>(); // or they cannot be reached
  const heard: { found: Leader | null; refused: unknown } = { found: null, refused: null };
  const ask = async (peer: string): Promise<void> => {
    while (heard.found === null && performance.now() < deadline) {
      try {
        const said = await askWhoLeads(links, peer);
        if (said.leader !== '' && said.leader !== view.me && said.epoch >= mine) heard.found ??= said;
      } catch (error) {
        if (!(error instanceof PeerError)) throw error;
        if (isOfAnotherVersion(error)) heard.refused = error;
      }
      answered.add(peer);
      if (heard.found === null) await pause(STAGGER_MS);
    }
  };
  for (;;) {
    const present = [...client.members()].filter(([peer]) => peer !== view.me);
    // Nobody knows of a later epoch.
    const late = performance.now() > deadline;
    if (view.replica?.leads === true && (late || present.every(([peer]) => answered.has(peer)))) {
      heard.found = { leader: view.me, epoch: mine };
      return heard.found;
    }
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
    if (late) {
      throw new ConnectFailed(
        present.length === 0
          ? `nobody of this mesh has been there for ${waitS} s; ask whoever sent the link`
          : 'nobody coordinates this mesh now: too few of its voters are there; try again',
      );
    }
  }
}

async function askWhoLeads(links: PeerLinks, peer: string): Promise<Leader> {
  const { leader, epoch } = await links.ask(peer, LEADER, null);
  return { leader: epoch === 0 ? '' : leader, epoch };
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
