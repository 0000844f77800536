/*
 * Answers what the page wants to have of caches, or put into them, in the worker of one runtime. Edge.
 *
 * What others gave is hashed and looked at here, beside the calls of the runtime, and never on the page's thread.
 */

import { toHex } from '../wire/hex';
import type { CacheWork } from './kv_transfer';
import type { CacheOrder, CacheRead, GivenPart } from './worker_messages';

/** `queue` hands work to the stage; `tell` answers an order: what was read, or whether what was given is there. */
export class CacheOrders {
  private readonly queue: (work: CacheWork) => void;
  private readonly tell: (id: number, read: CacheRead | null, isThere: boolean) => void;
  private readonly arriving = new Map<number, string>(); // sessions of what is looked at now

  constructor(
    queue: (work: CacheWork) => void,
    tell: (id: number, read: CacheRead | null, isThere: boolean) => void,
  ) {
    this.queue = queue;
    this.tell = tell;
  }

  take(order: CacheOrder): void {
    const { id, session, count } = order;
    const done = (isThere: boolean): void => this.tell(id, null, isThere);
    switch (order.what) {
      case 'share':
        this.queue({ what: 'share', session, source: order.source, count, done });
        return;
      case 'read': {
        const failed = (): void => this.tell(id, null, false);
        const read = (values: Promise<Float32Array<ArrayBuffer>> | null): void => {
          if (values === null) failed();
          else values.then(async (found) => this.tell(id, await hashed(found), true)).catch(failed);
        };
        this.queue({ what: 'read', session, count, names: order.names, done: read });
        return;
      }
      case 'write': {
        const { parts } = order;
        this.arriving.set(id, session);
        Promise.all(parts.map(isGood))
          .then((good) => {
            const isWanted = this.arriving.delete(id); // nobody would free what is put for a session that is over
            if (!isWanted || good.includes(false)) done(false);
            else this.queue({ what: 'write', session, count, parts, done });
          })
          .catch(() => {
            this.arriving.delete(id);
            done(false);
          });
        return;
      }
      default:
        order satisfies never;
    }
  }

  /** The session is over. */
  released(session: string): void {
    for (const [id, other] of this.arriving) if (other === session) this.arriving.delete(id);
  }
}

async function hashed(values: Float32Array<ArrayBuffer>): Promise<CacheRead> {
  return { values, sha256: toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', values))) };
}

/** Whether these are the bytes that somebody named, and numbers. */
async function isGood({ values, sha256 }: GivenPart): Promise<boolean> {
  if (sha256 !== null && (await hashed(values)).sha256 !== sha256) return false;
  for (let at = 0; at < values.length; at++) if (!Number.isFinite(values[at])) return false;
  return true;
}
