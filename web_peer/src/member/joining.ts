/*
 * Joining a mesh: the steps from a link to a member that asks and lends (twin of peer/member/joining.py). Edge.
 *
 *     const mesh = await join(link, options, events);
 *     for await (const piece of mesh.conversation().chat([{ role: 'user', content: 'Hello' }], ASK_SETTINGS)) ...
 *
 * No step waits longer than 10 s for another machine.
 */

import { PieceCache } from '../model/piece_cache';
import { Caches } from '../stage/kv_transfer_service';
import { RtcEngine } from '../transport/engines/browser';
import { coordinates, enter, TRY_S } from './mesh_entry';
import { NoRelay, NotAdmitted, textOf } from '../errors';
import { Fetcher, HttpStore, type PieceSource } from '../model/fetcher';
import { makeRoomForFronts } from '../stage/prefix_budget';
import type { KeptIdentity } from '../storage/peer_keys';
import { inviteOf, parseLink } from '../signaling/invites';
import type { IceServer } from '../signaling/generated/messages';
import type { BlobRef } from '../planner/blob_ref';
import type { GraphManifest } from '../planner/graph_manifest';
import { blobsOf, type Decoder, graphsOf, type Manifest } from '../planner/manifest';
import { measureProduct } from '../runtime/self_benchmark';
import { measuresAgain } from './remeasure';
import { MeshMember, type MeshEvents } from './mesh_member';
import { phaseOf } from './progress';
import { AGENT } from './status_report';
import type { Profile } from '../state/generated/commands';
import { PeerLinks } from '../transport/peer_links';
import { PeerParts } from './peer_parts';
import { KeptEnds } from '../origin/pinned_ends';
import { looksAtRows } from '../audit/outlier_reports';
import { drawn, SignalingClient } from '../transport/signaling_client';
import { Around } from './failure_domain_watch';
import { Prompts } from '../model/prompts';
import { Text } from '../model/tokenizer';
import { announced, OLDER, SPOKEN } from '../state/version_negotiation';
import type { Patience } from '../coordination/voter_policy';

const STATE_WAIT_S = 10;
const SOMEBODY_WAIT_S = 10; // a link to a mesh of which nobody is there must say so soon
const CONNECTION_ID_BYTES = 16;

/** How fast this tab computes, by measurement; its memory is for the person to say. */
export type Times = Omit<Profile, 'memoryBytes'>;

/** What a tab brings. */
export interface JoinOptions {
  readonly name: string;
  readonly identity: (mesh: string) => Promise<KeptIdentity>;
  readonly cache: PieceCache;
  readonly lends:
    | {
        readonly memoryBytes: number;
        readonly measure: (decoder: Decoder, signal: AbortSignal) => Promise<Times>;
      }
    | { readonly why: string }; // it only asks
  readonly patience?: Patience; // before members vote, when this tab leads
  readonly older?: boolean; // speaks the older version of the protocol alone, as a page that was not loaded anew yet
  readonly relayOnly?: boolean; // others see the address of the mesh's relay, never that of this device
}

/** The member that `link` leads to. Raises a SignalingError or PeerError whose text says what to do. */
export async function join(link: string, options: JoinOptions, events: MeshEvents): Promise<MeshMember> {
  events.phase(phaseOf('connect', 'reading the link'));
  const invite = await parseLink(link);
  const own = await options.identity(invite.mesh);
  const inviteKey = await inviteOf(invite);
  let parts: PeerParts | null = null;
  let mesh: MeshMember | null = null;
  events.phase(phaseOf('connect', 'meeting the others'));
  const credentials = {
    identity: own.identity,
    name: options.name,
    mesh: invite.mesh,
    invite: inviteKey,
    membership: own.membership(inviteKey.encoded),
    voucher: own.voucher,
  };
  const client = await SignalingClient.join(invite.server, credentials, {
    described: (from, connection, kind, sdp) => parts?.links.described(from, connection, kind, sdp),
    candidate: (from, connection, text) => parts?.links.candidate(from, connection, text),
    left: (peer, reason) => {
      parts?.sessions.hint(peer); // that is no proof, and a reason to ask it
      if (reason === 'InviteRevoked') parts?.leadership.current?.putOut(peer);
      else parts?.leadership.current?.hinted(peer);
      if (reason === 'InviteRevoked')
        void parts?.links.hangUp(peer, 'the invite this peer came with was withdrawn');
    },
    membership: (grant) => own.keep(grant),
    state: (state, why) => {
      if (why?.code === 'InviteRevoked' || why?.code === 'Replaced') mesh?.end(why.message);
      else if (mesh !== null) {
        if (state === 'joined')
          mesh.lending.fetchAgain().catch((error: unknown) => events.notice(textOf(error)));
        events.changed();
      }
    },
  });
  if (options.relayOnly === true && !client.iceServers.some(isRelay)) {
    client.close();
    throw new NoRelay(
      'this mesh has no relay: ask its founder for one (shoal serve --turn), or join without “Only through the relay”',
    );
  }
  const versions = options.older === true ? OLDER : SPOKEN;
  const hello = announced(versions, client.peer, options.name, AGENT);
  const links = new PeerLinks(
    hello,
    () => new RtcEngine(client.iceServers.map(iceServer), options.relayOnly),
    (kind, peer, connection, text) => client.signal(kind, peer, connection, text),
    () => drawn(CONNECTION_ID_BYTES),
  );
  const asks = asksOnly(client, options.lends);
  const kept = (sha256: string): Promise<Uint8Array | null> => options.cache.read(sha256);
  parts = new PeerParts(links, { patient: asks !== null, kept });
  mesh = new MeshMember(parts, client, invite, options.name, events);
  try {
    await comeIn(mesh, options, asks, events);
  } catch (error) {
    mesh.end(textOf(error));
    throw error;
  }
  return mesh;
}

/** `asks`: why it lends nothing, or null. */
async function comeIn(
  mesh: MeshMember,
  options: JoinOptions,
  asks: string | null,
  events: MeshEvents,
): Promise<void> {
  const { links, view, model, stage } = mesh;
  const { lends } = options;
  mesh.progress.at(phaseOf('connect', 'connecting to the others'));
  if (asks === null) mesh.part.keeps();
  const store = new Store(mesh.link.server);
  const fetcher = new Fetcher(options.cache, {
    sources: () => sourcesOf(mesh, store),
    manifestFrom: (id, signal) => store.manifest(id, signal),
    now: () => performance.now(),
    wrongPiece: (source) => events.notice(`${source} gave wrong bytes; it is not asked again`),
  });
  const recorded = (id: string, signal: AbortSignal): Promise<Uint8Array | null> =>
    store.envelopes(id, signal);
  mesh.fetchBy(fetcher, recorded);
  const learn = async (): Promise<void> => {
    // Whoever is a member came in after the founder had chosen a model, or none.
    await view.until((state) => state.model !== null || state.members.size > 0, STATE_WAIT_S, mesh.signal);
    const { model: chosen, members } = view.state;
    if (chosen === null && members.size === 0) {
      throw new NotAdmitted('the log that this peer kept has no members: begin anew without it');
    }
    const made = chosen === null ? null : await fetcher.manifest(chosen.model, mesh.signal);
    if (made !== null) model.know(made);
    const manifests = {
      decoder: (id: string): Promise<Manifest> => fetcher.manifest(id, mesh.signal),
      graph: (id: string): Promise<GraphManifest> => fetcher.graphManifest(id, mesh.signal),
    };
    if (asks === null) coordinates(mesh, made, manifests, options.patience);
  };
  await enter(mesh, asks === null, SOMEBODY_WAIT_S, learn);
  if (model.manifest === null && !mesh.leadership.isAble) await learn();
  const { manifest } = model;
  const decoder = manifest === null ? null : await readWords(mesh, manifest, fetcher, events);
  if (decoder === null) mesh.runsOnly();
  mesh.watchCoordinator(() => enter(mesh, asks === null, TRY_S));
  if (asks !== null || 'why' in lends) {
    mesh.lending.asksOnly(asks ?? '');
    mesh.progress.at(phaseOf('ready'));
    return;
  }
  mesh.progress.at(phaseOf('measure', 'how fast this browser computes'));
  const times = await (decoder === null ? measureProduct(mesh.signal) : lends.measure(decoder, mesh.signal));
  if (decoder !== null) {
    const pledgeBytes = (): number => mesh.lending.facts().pledgeBytes;
    const lentBytes = (): number => (mesh.lending.state.kind === 'lending' ? pledgeBytes() : 0);
    makeRoomForFronts(stage, view, lentBytes, mesh.signal);
    new Caches(mesh, decoder.manifest, pledgeBytes, mesh.signal).follow();
  }
  const around = new Around(mesh.link.mesh, links, view, {
    relayOnly: options.relayOnly === true,
    says: options.older !== true,
  });
  await mesh.lending.begin(fetcher, { ...times, memoryBytes: lends.memoryBytes }, around);
  if (decoder === null) return;
  measuresAgain(mesh);
  if (stage.units !== null) {
    // A server that is silent holds up nobody.
    void looksAtRows(mesh, decoder.manifest, recorded, mesh.signal);
  }
}

/** What this tab needs to ask the model that answers in words, and to measure itself with it. */
async function readWords(
  mesh: MeshMember,
  manifest: Manifest,
  fetcher: Fetcher,
  events: MeshEvents,
): Promise<Decoder> {
  const { model } = mesh;
  const graphRefs = graphsOf(manifest);
  const files = await fetcher.blobs([manifest.tokenizer, ...graphRefs], mesh.signal);
  const tokenizerJson = files.get(manifest.tokenizer.sha256) ?? new Uint8Array();
  const graphs = new Map(graphRefs.map(({ sha256 }) => [sha256, files.get(sha256) ?? new Uint8Array()]));
  const decoder: Decoder = { manifest, graphs };
  model.knowGraphs(graphs);
  const { chatTemplate, bosToken, endTokens, addBos } = manifest;
  const ends = new KeptEnds(decoder, fetcher, mesh.signal, () => events.changed());
  const words = { tokenizerJson, chatTemplate, bosToken, endTokens, addBos };
  mesh.read(new Prompts(words, new Text(words, manifest.sight)), ends);
  return decoder;
}

/** The store of the link's server, which remembers whether it was away when it was asked last. */
class Store implements PieceSource {
  away = false;
  readonly name: string;
  private readonly http: HttpStore;

  constructor(server: string) {
    this.http = new HttpStore(server);
    this.name = this.http.name;
  }

  manifest(model: string, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    return this.http.manifest(model, signal);
  }

  envelopes(model: string, signal: AbortSignal): Promise<Uint8Array | null> {
    return this.http.envelopes(model, signal);
  }

  async piece(ref: BlobRef, index: number, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    try {
      const bytes = await this.http.piece(ref, index, signal);
      this.away = false;
      return bytes;
    } catch (error) {
      this.away = true;
      throw error;
    }
  }
}

/** Those who hold a unit of a model have its pieces. The store, which has all, is asked last: it is one for everybody. */
function sourcesOf(mesh: MeshMember, store: Store): readonly PieceSource[] {
  const { pieces } = mesh.model;
  const models = mesh.heldUnits();
  const peers = mesh.links.connectedPeers().flatMap((peer) => {
    const blobs = new Set(
      models.flatMap(({ manifest, held }) =>
        manifest === null
          ? []
          : (held.get(peer) ?? []).flatMap(({ first, stop }) =>
              blobsOf(manifest, first, stop).map(({ sha256 }) => sha256),
            ),
      ),
    );
    if (blobs.size === 0) return [];
    return [
      pieces.source(
        peer,
        ({ sha256 }) => blobs.has(sha256),
        () => store.away,
      ),
    ];
  });
  return [...peers, store];
}

function iceServer({ urls, username, credential }: IceServer): RTCIceServer {
  return username === '' ? { urls: [...urls] } : { urls: [...urls], username, credential };
}

function isRelay({ urls }: IceServer): boolean {
  return urls.some((url) => url.startsWith('turn'));
}

/** Why this tab only asks, or null: it lends. */
function asksOnly(client: SignalingClient, lends: JoinOptions['lends']): string | null {
  if ('why' in lends) return lends.why;
  return client.role === 'guest' ? 'this invite is for asking only' : null;
}
