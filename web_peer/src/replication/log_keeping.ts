/*
 * Decides where this tab keeps its part of the mesh's log, and what it begins with: what is kept, or a new life (twin
 * of peer/replication/log_keeping.py). Edge.
 *
 * A log in IndexedDB for each epoch, the newest counts. A tab whose key nobody keeps, and one whose browser keeps
 * nothing, has its log in memory only, and is another life each time. A log that is damaged, or of an epoch that is
 * over, is set aside: it may hold what nobody else has.
 */

import { founding } from '../consensus/records';
import {
  canKeepLog,
  type ConsensusStore,
  forgetLog,
  logsKept,
  openConsensusStore,
  salvageLog,
  setLogAside,
} from '../storage/log_store';
import { applyEntry, decodeState, EMPTY_STATE, encodeState, type MeshState } from '../state/mesh_state';
import { MeshError } from '../errors';
import type { Salvaged } from '../storage/log_records';
import type { Beginning } from './replica';

const LOG_NAME = /^(\d{1,9})$/;

/** Of peer `me` in `mesh`. `keeps` false: in memory. */
export class LogKeeping {
  store: ConsensusStore | null = null; // the one in use
  salvage: MeshState | null = null; // what the log before knew, where that in use began with nothing
  private readonly mesh: string;
  private readonly me: string;
  private readonly keeps: boolean;
  private readonly notice: (text: string) => void;
  private incarnation = 0; // the last that was used
  private last: { readonly log: string; readonly owner: string | null } | null = null; // what was opened last

  constructor(mesh: string, me: string, keeps: boolean, notice: (text: string) => void) {
    this.mesh = mesh;
    this.me = me;
    this.keeps = keeps;
    this.notice = notice;
  }

  /** Whether what is in use outlives this page. */
  get durable(): boolean {
    return this.store?.durable === true;
  }

  /** Whether what is in use should outlive this page, and does not. */
  get lacks(): boolean {
    return this.keeps && this.store?.owner === null;
  }

  /** Whether the browser would keep the log now, which it refused, and no other tab has taken it over. */
  async canKeep(): Promise<boolean> {
    return this.last !== null && canKeepLog(this.last.log, this.last.owner);
  }

  /** Of which something is kept, rising. */
  async epochs(): Promise<readonly number[]> {
    if (!this.keeps) return [];
    const found = (await logsKept(this.prefix)).map((name) => name.slice(this.prefix.length));
    return found
      .filter((epoch) => LOG_NAME.test(epoch))
      .map(Number)
      .sort((a, b) => a - b);
  }

  /**
   * What is kept of that epoch; a new life where nothing is or it is damaged, of an incarnation higher than `above` and
   * than those of this page before.
   */
  async open(epoch: number, above = 0): Promise<Beginning> {
    this.close();
    const least = Math.max(above, this.incarnation);
    const store = await openConsensusStore(this.keeps ? `${this.prefix}${epoch}` : null, this.notice, least);
    this.store = store;
    this.last = { log: `${this.prefix}${epoch}`, owner: store.owner };
    const { kept } = store;
    const isNew = kept.snapshot === null && kept.entries.length === 0;
    const before = isNew && this.keeps ? await salvageLog(this.prefix) : null;
    this.salvage = before === null ? null : stateOf(before);
    this.incarnation = Math.max(this.incarnation, kept.incarnation);
    return { ...kept, mesh: this.mesh, epoch, me: this.me };
  }

  /**
   * A new life with an empty log, as whoever leads that epoch wants it, who has all of it that was committed, and says
   * above which incarnation. Logs of other epochs are set aside.
   */
  async anew(epoch: number, above = 0): Promise<Beginning> {
    this.close();
    for (const known of await this.epochs()) {
      const log = `${this.prefix}${known}`;
      await (known === epoch ? forgetLog(log) : setLogAside(log));
    }
    return this.open(epoch, above);
  }

  /** Begins another epoch of a mesh, with this peer as its only voter. */
  async found(state: MeshState, epoch: number): Promise<Beginning> {
    this.close();
    const earlier = await this.epochs();
    if (earlier.includes(epoch)) await setLogAside(`${this.prefix}${epoch}`);
    const fresh = await this.open(epoch);
    const snapshot = founding(this.me, fresh.incarnation, encodeState(state));
    const { index, term } = snapshot;
    await this.store?.storeSnapshot({
      kind: 'store_snapshot',
      token: 1,
      snapshot,
      first: index + 1,
      last: index,
    });
    await this.store?.persist({ kind: 'persist', token: 2, term, vote: '', entries: [], truncateFrom: 0 });
    for (const known of earlier) {
      // Only now that all of it is in the new one.
      if (known !== epoch) await setLogAside(`${this.prefix}${known}`);
    }
    return { ...fresh, hardState: { term, vote: '' }, snapshot, entries: [] };
  }

  /** Lets go of what is in use. */
  close(): void {
    this.store?.close();
    this.store = null;
  }

  private get prefix(): string {
    return `${this.mesh}:${this.me}:`;
  }
}

/** What a log builds with all its entries; null where no version of ours wrote it. */
function stateOf({ snapshot, entries }: Salvaged): MeshState | null {
  try {
    const commands = entries.filter(({ kind }) => kind === 'command');
    const before = snapshot === null ? EMPTY_STATE : decodeState(snapshot.data);
    return commands.reduce((state, { data }) => applyEntry(state, data), before);
  } catch (error) {
    if (error instanceof MeshError) return null;
    throw error;
  }
}
