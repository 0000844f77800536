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
import { ConnectFailed, NotAdmitted, PeerError, textOf } from '../errors';
import { Fetcher, HttpStore, type PieceSource } from '../model/fetcher';
import { makeRoomForFronts } from '../stage/prefix_budget';
import type { KeptIdentity } from '../storage/peer_keys';
import { inviteOf, parseLink } from '../signaling/invites';
import type { IceServer } from '../signaling/messages';
import { type BlobRef, blobsOf, type Manifest } from '../planner/manifest';
import { measuresAgain } from './remeasure';
import { type Lending, AGENT, Mesh, type MeshEvents, phaseOf } from './mesh_member';
import type { Profile } from '../state/mesh_state';
import { Node } from './frame_router';
import { KeptEnds } from '../origin/pinned_ends';
import { looksAtRows } from '../audit/outlier_reports';
import { Pieces } from '../model/piece_exchange';
import { drawn, SignalingClient } from '../transport/signaling_client';
import { SignalingError } from '../signaling/errors';
import { Around } from './failure_domain_watch';
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
        readonly measure: (manifest: Manifest, signal: AbortSignal) => Promise<Times>;
      }
    | { readonly why: string }; // it only asks
  readonly patience?: Patience; // before members vote, when this tab leads
  readonly older?: boolean; // speaks the older version of the protocol alone, as a page that was not loaded anew yet
  readonly relayOnly?: boolean; // others see the address of the mesh's relay, never that of this device
}

/** The member that `link` leads to. Raises a SignalingError or PeerError whose text says what to do. */
export async function join(link: string, options: JoinOptions, events: MeshEvents): Promise<Mesh> {
  events.phase(phaseOf('connect', 'reading the link'));
  const invite = await parseLink(link);
  const own = await options.identity(invite.mesh);
  const inviteKey = await inviteOf(invite);
  let node: Node | null = null;
  let mesh: Mesh | null = null;
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
    described: (from, connection, kind, sdp) => node?.links.described(from, connection, kind, sdp),
    candidate: (from, connection, text) => node?.links.candidate(from, connection, text),
    left: (peer, reason) => {
      node?.hinted(peer);
      if (reason === 'InviteRevoked') node?.leading.coordinating?.putOut(peer);
      else node?.leading.coordinating?.hinted(peer);
      if (reason === 'InviteRevoked')
        void node?.links.hangUp(peer, 'the invite this peer came with was withdrawn');
    },
    membership: (grant) => own.keep(grant),
    state: (_, why) => {
      if (why?.code === 'InviteRevoked' || why?.code === 'Replaced') mesh?.end(why.message);
      else if (mesh !== null) events.changed();
    },
  });
  if (options.relayOnly === true && !client.iceServers.some(isRelay)) {
    client.close();
    throw new ConnectFailed(
      'this mesh has no relay: ask its founder for one (shoal serve --turn), or join without “Only through the relay”',
    );
  }
  const versions = options.older === true ? OLDER : SPOKEN;
  const hello = announced(versions, client.peer, options.name, AGENT);
  node = new Node(
    hello,
    () => new RtcEngine(client.iceServers.map(iceServer), options.relayOnly),
    (kind, peer, connection, text) => client.signal(kind, peer, connection, text),
    () => drawn(CONNECTION_ID_BYTES),
  );
  node.start();
  mesh = new Mesh(node, client, invite, options.name, events);
  try {
    await comeIn(mesh, options, events);
  } catch (error) {
    mesh.end(textOf(error));
    throw error;
  }
  return mesh;
}

async function comeIn(mesh: Mesh, options: JoinOptions, events: MeshEvents): Promise<void> {
  const { node, client } = mesh;
  const { lends } = options;
  const asks = asksOnly(client, lends);
  node.patient = asks !== null;
  mesh.setPhase(phaseOf('connect', 'connecting to the others'));
  if (asks === null) mesh.part.keeps();
  const store = new Store(mesh.link.server);
  const pieces = new Pieces(
    (peer, frame) => node.links.send(peer, frame),
    (peer) => node.links.connection(peer),
    (sha256) => options.cache.read(sha256),
  );
  node.pieces = pieces;
  const fetcher = new Fetcher(options.cache, {
    sources: () => sourcesOf(mesh, pieces, store),
    manifestFrom: (id, signal) => store.manifest(id, signal),
    now: () => performance.now(),
    wrongPiece: (source) => events.notice(`${source} gave wrong bytes; it is not asked again`),
  });
  const learn = async (): Promise<void> => {
    await node.until(({ model }) => model !== null, STATE_WAIT_S, mesh.signal);
    const { model } = node.state;
    if (model === null) throw new NotAdmitted('this peer was let in, but the mesh serves no model');
    mesh.manifest = await fetcher.manifest(model.model, mesh.signal);
    if (asks === null) coordinates(mesh, mesh.manifest, options.patience);
  };
  await enter(mesh, asks === null, SOMEBODY_WAIT_S, learn);
  if (mesh.manifest === null) await learn();
  const { manifest } = mesh;
  if (manifest === null) throw new NotAdmitted('this peer was let in, but the mesh serves no model');
  const files = await fetcher.blobs([manifest.tokenizer], mesh.signal);
  const tokenizerJson = files.get(manifest.tokenizer.sha256) ?? new Uint8Array();
  const { chatTemplate, bosToken, endTokens, addBos } = manifest;
  mesh.ends = new KeptEnds(manifest, fetcher, mesh.signal, () => events.changed());
  mesh.know(manifest, new Text({ tokenizerJson, chatTemplate, bosToken, endTokens, addBos }));
  mesh.watchCoordinator(() => enter(mesh, asks === null, TRY_S));
  if (asks !== null || 'why' in lends) {
    mesh.setLending(asks ?? { kind: 'asks', why: '' });
    mesh.setPhase(phaseOf('ready'));
    return;
  }
  mesh.setPhase(phaseOf('measure', 'how fast this browser computes'));
  const times = await lends.measure(manifest, mesh.signal);
  makeRoomForFronts(mesh);
  new Caches(node, pieces, manifest, () => mesh.mine().pledgeBytes, mesh.signal).follow();
  mesh.around = new Around(mesh.link.mesh, node, {
    relayOnly: options.relayOnly === true,
    says: options.older !== true,
  });
  await mesh.compute(fetcher, { ...times, memoryBytes: lends.memoryBytes });
  measuresAgain(mesh);
  if (node.serving !== null) {
    const recorded = (id: string, signal: AbortSignal): Promise<Uint8Array | null> =>
      store.envelopes(id, signal);
    void looksAtRows(node, node.serving, manifest, recorded, mesh.signal); // a server that is silent holds up nobody
  }
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

/** Those who hold a unit have its pieces. The store, which has all, is asked last: it is one for everybody. */
function sourcesOf({ node, manifest }: Mesh, pieces: Pieces, store: Store): readonly PieceSource[] {
  const peers = node.links.connectedPeers().flatMap((peer) => {
    const runs = node.state.members.get(peer)?.held ?? [];
    if (runs.length === 0 || manifest === null) return [];
    const blobs = new Set(
      runs.flatMap(({ first, stop }) => blobsOf(manifest, first, stop).map(({ sha256 }) => sha256)),
    );
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

function asksOnly(client: SignalingClient, lends: JoinOptions['lends']): Lending | null {
  if ('why' in lends) return { kind: 'asks', why: lends.why };
  return client.role === 'guest' ? { kind: 'asks', why: 'this invite is for asking only' } : null;
}

/** An error that a person should read, and nothing of the program's own making. */
export function isKnown(error: unknown): error is PeerError | SignalingError {
  return error instanceof PeerError || error instanceof SignalingError;
}
