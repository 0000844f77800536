/*
 * What a log holds: entries, configurations, snapshots, and the term and vote beside them (twin of
 * peer/consensus/records.py). Pure.
 */

export const MAX_UNCOMMITTED = 4096; // entries that a leader lets wait for a majority

export type EntryKind = 'noop' | 'command' | 'config';

/** A member of the group. `incarnation` rises whenever its storage was lost or it comes back after a removal. */
export interface Server {
  readonly id: string;
  readonly incarnation: number;
  readonly voter: boolean;
}

/** The members of the group, ordered by id, each id once. The newest in a log holds as soon as it is there (4.1). */
export class Config {
  readonly servers: readonly Server[];
  readonly voters: readonly string[];
  readonly byId: ReadonlyMap<string, Server>;

  constructor(servers: readonly Server[] = []) {
    this.servers = servers;
    this.voters = servers.filter(({ voter }) => voter).map(({ id }) => id);
    this.byId = new Map(servers.map((server) => [server.id, server]));
  }

  votes(peer: string, incarnation: number): boolean {
    const server = this.byId.get(peer);
    return server?.voter === true && server.incarnation === incarnation;
  }
}

/** `data` of a "config" is that of `configBytes`; of a "noop" it is empty. */
export interface Entry {
  readonly index: number;
  readonly term: number;
  readonly kind: EntryKind;
  readonly data: Uint8Array;
}

export interface HardState {
  readonly term: number;
  readonly vote: string;
}

/** The state machine after `index`, whose entry had `term`, and the configuration that held then. */
export interface Snapshot {
  readonly index: number;
  readonly term: number;
  readonly config: Config;
  readonly data: Uint8Array;
}

/**
 * Returns what a peer stores that begins a mesh, or a new groupEpoch of one from its applied state: it alone votes.
 *
 * Boot it with the term given here and no vote.
 */
export function founding(
  me: string,
  incarnation: number,
  data: Uint8Array = new Uint8Array(0),
  index = 1,
  term = 1,
): Snapshot {
  return { index, term, config: new Config([{ id: me, incarnation, voter: true }]), data };
}
