/*
 * Which pieces of model weights this browser keeps, by hash: in IndexedDB, or in memory where the browser refuses.
 *
 * Every piece is checked when it is written and when it is first read; one that fails is forgotten, so that it is
 * fetched again. The least recently used pieces go first when the limit or the browser's quota is reached. Edge.
 */

import { type DBSchema, type IDBPDatabase, openDB } from 'idb';

const DATABASE = 'shoal-pieces';
const VERSION = 1;
const MEMORY_LIMIT_BYTES = 256 << 20; // kept beside the loaded weights when there is no IndexedDB

interface Schema extends DBSchema {
  pieces: { key: string; value: Uint8Array<ArrayBuffer> };
  entries: { key: string; value: Entry; indexes: { used: number } }; // apart, so that sizes are read without bytes
  manifests: { key: string; value: Uint8Array<ArrayBuffer> };
}

interface Entry {
  readonly hash: string;
  readonly bytes: number;
  readonly used: number; // milliseconds of the epoch
}

type Bytes = Uint8Array<ArrayBuffer>;

/** Where pieces lie. `put` gives the error of a full or refusing store to its caller. */
interface Shelf {
  get(hash: string): Promise<Bytes | null>; // a copy of the caller's own
  put(entry: Entry, bytes: Bytes): Promise<void>;
  touch(entry: Entry): Promise<void>;
  remove(hashes: readonly string[]): Promise<void>;
  entries(): Promise<Entry[]>; // least recently used first
  manifest(model: string): Promise<Bytes | null>;
  putManifest(model: string, bytes: Bytes): Promise<void>;
  clear(): Promise<void>;
  close(): void;
}

/** What the page shows of the cache. */
export interface CacheUsage {
  readonly where: 'indexeddb' | 'memory';
  readonly persisted: boolean; // the browser promised not to evict by itself
  readonly pieces: number;
  readonly bytes: number;
  readonly limitBytes: number;
}

export interface CacheSettings {
  readonly limitBytes: number;
  readonly now: () => number;
  /** One sentence for the person when weights cannot be kept. */
  readonly notice: (text: string) => void;
}

/** The pieces of models that this browser keeps: in its database, or in memory where that refuses. */
export class PieceCache {
  private shelf: Shelf;
  private where: CacheUsage['where'];
  private persisted: boolean;
  private readonly settings: CacheSettings;
  private limitBytes: number;
  private readonly checked = new Set<string>(); // pieces whose bytes were checked since this page opened
  private told = false;
  private writing = Promise.resolve();

  private constructor(shelf: Shelf, where: CacheUsage['where'], persisted: boolean, settings: CacheSettings) {
    this.shelf = shelf;
    this.where = where;
    this.persisted = persisted;
    this.settings = settings;
    this.limitBytes = settings.limitBytes;
  }

  /** Opens IndexedDB and asks the browser to keep it; falls back to memory with a notice. */
  static async open(settings: CacheSettings): Promise<PieceCache> {
    try {
      const shelf = await IndexedShelf.open();
      const cache = new PieceCache(shelf, 'indexeddb', false, settings);
      void askToPersist().then((persisted) => {
        cache.persisted = persisted; // not waited for: Firefox asks the person first
      });
      return cache;
    } catch {
      const cache = new PieceCache(new MemoryShelf(), 'memory', false, settings);
      cache.refused('This browser keeps nothing for this page (a private window?)');
      return cache;
    }
  }

  /** The piece, the caller's to give back, or null when it is not here or its bytes are not those of its hash. */
  async read(hash: string): Promise<Bytes | null> {
    let bytes: Bytes | null;
    try {
      bytes = await this.shelf.get(hash);
    } catch {
      return null;
    }
    if (bytes === null) return null;
    if (!this.checked.has(hash)) {
      if ((await sha256(bytes)) !== hash) {
        await this.ignoring(this.shelf.remove([hash]));
        return null;
      }
      this.checked.add(hash);
      await this.ignoring(this.shelf.touch({ hash, bytes: bytes.length, used: this.settings.now() }));
    }
    return bytes;
  }

  /** Keeps a piece when it has its hash and there is room. Gives whether it has its hash. */
  async write(hash: string, bytes: Bytes): Promise<boolean> {
    if ((await sha256(bytes)) !== hash) return false;
    // One after the other, so that each sees the room that the others left.
    const written = this.writing.then(() => this.keep(hash, bytes));
    this.writing = written;
    await written;
    return true;
  }

  private async keep(hash: string, bytes: Bytes): Promise<void> {
    const entry = { hash, bytes: bytes.length, used: this.settings.now() };
    try {
      if (!(await this.makeRoom(bytes.length))) {
        this.refused(`The model is larger than the ${mebibytes(this.limitBytes)} MiB set for stored weights`);
        return;
      }
      await this.shelf.put(entry, bytes);
      this.checked.add(hash);
    } catch (error) {
      await this.afterRefusal(error, entry, bytes);
    }
  }

  async has(hash: string): Promise<boolean> {
    return (await this.read(hash)) !== null;
  }

  /** Whether entries of all of them are here. Their bytes are checked when they are read. */
  async hasAll(hashes: readonly string[]): Promise<boolean> {
    const entries = await this.shelf.entries().catch(() => []);
    const here = new Set(entries.map(({ hash }) => hash));
    return hashes.every((hash) => here.has(hash));
  }

  /** A manifest as it was stored, unchecked; its hash is its id, which the reader checks. */
  async manifest(model: string): Promise<Bytes | null> {
    return this.shelf.manifest(model).catch(() => null);
  }

  async putManifest(model: string, bytes: Bytes): Promise<void> {
    await this.ignoring(this.shelf.putManifest(model, bytes));
  }

  async usage(): Promise<CacheUsage> {
    const entries = await this.shelf.entries().catch((): Entry[] => []);
    return {
      where: this.where,
      persisted: this.persisted,
      pieces: entries.length,
      bytes: entries.reduce((sum, entry) => sum + entry.bytes, 0),
      limitBytes: this.limitBytes,
    };
  }

  /** Deletes everything that is stored. */
  async clear(): Promise<void> {
    this.checked.clear();
    await this.ignoring(this.shelf.clear());
  }

  close(): void {
    this.shelf.close();
  }

  /** Evicts until `bytes` more fit under the limit; false when they never will. */
  private async makeRoom(bytes: number): Promise<boolean> {
    const limit = this.where === 'memory' ? Math.min(this.limitBytes, MEMORY_LIMIT_BYTES) : this.limitBytes;
    if (bytes > limit) return false;
    const entries = await this.shelf.entries();
    let total = entries.reduce((sum, entry) => sum + entry.bytes, 0);
    const gone: string[] = [];
    for (const entry of entries) {
      if (total + bytes <= limit) break;
      if (bytes > 0 && this.checked.has(entry.hash)) return false; // in use: a model larger than the limit
      total -= entry.bytes;
      gone.push(entry.hash);
    }
    if (gone.length > 0) await this.shelf.remove(gone);
    return true;
  }

  /** The quota is reached: room is made of the oldest pieces that are not in use, once; then memory takes over. */
  private async afterRefusal(error: unknown, entry: Entry, bytes: Bytes): Promise<void> {
    if (error instanceof DOMException && error.name === 'QuotaExceededError') {
      try {
        const old = (await this.shelf.entries()).filter(({ hash }) => !this.checked.has(hash));
        if (old.length > 0) {
          await this.shelf.remove(old.map(({ hash }) => hash));
          await this.shelf.put(entry, bytes);
          this.checked.add(entry.hash);
          return;
        }
      } catch {
        // The same notice as below.
      }
      this.refused('This browser has no more room for stored weights');
      return;
    }
    this.shelf.close();
    this.shelf = new MemoryShelf();
    this.where = 'memory';
    this.persisted = false;
    this.refused('This browser stopped keeping weights');
  }

  private refused(what: string): void {
    if (this.told) return;
    this.told = true;
    this.settings.notice(`${what}: they stay in memory, and the next visit fetches them again.`);
  }

  /** A store that fails at bookkeeping is no reason to stop: at worst a piece is fetched again. */
  private async ignoring(work: Promise<void>): Promise<void> {
    await work.catch(() => undefined);
  }
}

/** Lower-case hex of the SHA-256; off the page's thread. */
export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Whether the browser promises to keep what this page stores; old browsers have no say in it. */
async function askToPersist(): Promise<boolean> {
  try {
    return await navigator.storage.persist();
  } catch {
    return false;
  }
}

function mebibytes(bytes: number): number {
  return Math.round(bytes / (1 << 20));
}

/** Not `instanceof`: a clone may come from another realm. */
function bytesOrNull(value: unknown): Bytes | null {
  const are = ArrayBuffer.isView(value) && Object.prototype.toString.call(value) === '[object Uint8Array]';
  return are ? (value as Bytes) : null;
}

class IndexedShelf implements Shelf {
  private readonly database: IDBPDatabase<Schema>;

  private constructor(database: IDBPDatabase<Schema>) {
    this.database = database;
  }

  static async open(): Promise<IndexedShelf> {
    const database = await openDB<Schema>(DATABASE, VERSION, {
      upgrade(fresh) {
        fresh.createObjectStore('pieces');
        fresh.createObjectStore('entries', { keyPath: 'hash' }).createIndex('used', 'used');
        fresh.createObjectStore('manifests');
      },
      blocking: (_current, _blocked, event) => (event.target as IDBDatabase).close(),
    });
    return new IndexedShelf(database);
  }

  async get(hash: string): Promise<Bytes | null> {
    return bytesOrNull(await this.database.get('pieces', hash));
  }

  async put(entry: Entry, bytes: Bytes): Promise<void> {
    const transaction = this.database.transaction(['pieces', 'entries'], 'readwrite');
    // The entry last: what is listed is there. Both or none.
    await Promise.all([
      transaction.objectStore('pieces').put(bytes, entry.hash),
      transaction.objectStore('entries').put(entry),
      transaction.done,
    ]);
  }

  async touch(entry: Entry): Promise<void> {
    await this.database.put('entries', entry);
  }

  async remove(hashes: readonly string[]): Promise<void> {
    const transaction = this.database.transaction(['pieces', 'entries'], 'readwrite');
    await Promise.all([
      ...hashes.map((hash) => transaction.objectStore('entries').delete(hash)),
      ...hashes.map((hash) => transaction.objectStore('pieces').delete(hash)),
      transaction.done,
    ]);
  }

  async entries(): Promise<Entry[]> {
    const found = await this.database.getAllFromIndex('entries', 'used');
    return found.map((entry) => (Number.isSafeInteger(entry.bytes) ? entry : { ...entry, bytes: 0 }));
  }

  async manifest(model: string): Promise<Bytes | null> {
    return bytesOrNull(await this.database.get('manifests', model));
  }

  async putManifest(model: string, bytes: Bytes): Promise<void> {
    await this.database.put('manifests', bytes, model);
  }

  async clear(): Promise<void> {
    await Promise.all([
      this.database.clear('entries'),
      this.database.clear('pieces'),
      this.database.clear('manifests'),
    ]);
  }

  close(): void {
    this.database.close();
  }
}

class MemoryShelf implements Shelf {
  private readonly pieces = new Map<string, { entry: Entry; bytes: Bytes }>();
  private readonly manifests = new Map<string, Bytes>();

  get(hash: string): Promise<Bytes | null> {
    return Promise.resolve(this.pieces.get(hash)?.bytes.slice() ?? null);
  }

  put(entry: Entry, bytes: Bytes): Promise<void> {
    this.pieces.set(entry.hash, { entry, bytes: bytes.slice() });
    return Promise.resolve();
  }

  touch(entry: Entry): Promise<void> {
    const found = this.pieces.get(entry.hash);
    if (found !== undefined) found.entry = entry;
    return Promise.resolve();
  }

  remove(hashes: readonly string[]): Promise<void> {
    for (const hash of hashes) this.pieces.delete(hash);
    return Promise.resolve();
  }

  entries(): Promise<Entry[]> {
    const found = [...this.pieces.values()].map(({ entry }) => entry);
    return Promise.resolve(found.sort((a, b) => a.used - b.used));
  }

  manifest(model: string): Promise<Bytes | null> {
    return Promise.resolve(this.manifests.get(model) ?? null);
  }

  putManifest(model: string, bytes: Bytes): Promise<void> {
    this.manifests.set(model, bytes);
    return Promise.resolve();
  }

  clear(): Promise<void> {
    this.pieces.clear();
    this.manifests.clear();
    return Promise.resolve();
  }

  close(): void {
    this.pieces.clear();
  }
}
