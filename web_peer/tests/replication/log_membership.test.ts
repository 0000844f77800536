/*
 * Who leads and leaves hands the mesh on: it is closed only where nobody is here who could keep it. A log that the
 * browser refuses is kept once it takes it.
 */

import 'fake-indexeddb/auto';

import { IDBFactory } from 'fake-indexeddb';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { LogKeeping } from '../../src/replication/log_keeping';
import { LogPart } from '../../src/replication/log_membership';
import type { MeshView } from '../../src/replication/mesh_view';
import type { Replica } from '../../src/replication/replica';
import type { PeerLinks } from '../../src/transport/peer_links';

const [ME, OTHER] = ['me', 'other'];

/** As much of a mesh, and of a turn to lead it, as handing over looks at. */
class Leader {
  readonly me = ME;
  leader: string | null = ME;
  tended = 0;
  alone = false;
  readonly whenRole = new Set<() => void>();
  readonly whenState = new Set<() => void>();
  readonly whenGone = new Set<() => void>();
  readonly current = {
    tend: (): void => {
      this.tended += 1;
    },
    isAlone: (): boolean => this.alone,
    get alone(): boolean {
      return this.isAlone();
    },
  };

  part(): LogPart {
    const until = (listeners: Set<() => void>) => (listener: () => void) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    };
    const subscribing = { subscribe: until(this.whenState), onRole: until(this.whenRole) };
    const leader = (): string | null => this.leader;
    const view = {
      ...{ me: ME, ...subscribing, onLogRefused: () => () => undefined, onLogLost: () => () => undefined },
      get leader() {
        return leader();
      },
    };
    const lead = { isAble: true, current: this.current, untilLeads: () => Promise.resolve(true) };
    const links = { onGone: until(this.whenGone) } as unknown as PeerLinks;
    return new LogPart(links, view as unknown as MeshView, lead, 'mesh', () => undefined);
  }

  listeners(): number {
    return this.whenRole.size + this.whenState.size + this.whenGone.size;
  }
}

const tell = (listeners: Set<() => void>): void => {
  for (const listener of [...listeners]) listener();
};

describe('handing over', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('is done when another peer leads', async () => {
    const leader = new Leader();
    const handed = leader.part().handOver();
    expect(leader.tended).toBe(1); // it is begun at once
    leader.leader = null; // between two leaders
    tell(leader.whenRole);
    leader.leader = OTHER;
    tell(leader.whenRole);
    await expect(handed).resolves.toBe('taken');
    expect(leader.listeners()).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('is over at once where nobody could keep the mesh, also when the last one goes meanwhile', async () => {
    const leader = new Leader();
    leader.alone = true;
    await expect(leader.part().handOver()).resolves.toBe('alone');
    leader.alone = false;
    const handed = leader.part().handOver();
    leader.alone = true;
    tell(leader.whenGone);
    await expect(handed).resolves.toBe('alone');
    expect(leader.listeners()).toBe(0);
  });

  it('that takes too long does not make the mesh a closed one', async () => {
    const leader = new Leader();
    const handed = leader.part().handOver();
    tell(leader.whenState);
    await vi.runAllTimersAsync();
    await expect(handed).resolves.toBe('late');
    expect(leader.listeners()).toBe(0);
  });
});

/** A part in the log of a tab that is in, which does not lead. */
class Follower {
  readonly told: string[] = [];
  readonly part: LogPart;
  looked = 0; // for the mesh
  leader: string | null = OTHER;
  voters: readonly string[] = [OTHER];
  readonly reached = new Set<string>();
  lose: (why: string) => void = () => undefined;

  constructor() {
    const now = (): Pick<MeshView, 'leader' | 'replica'> => ({
      leader: this.leader,
      replica: { fresh: false, config: { voters: this.voters } } as unknown as Replica,
    });
    const view = {
      me: ME,
      get leader() {
        return now().leader;
      },
      get replica() {
        return now().replica;
      },
      onLogRefused: () => () => undefined,
      onLogLost: (lost: (why: string) => void) => (this.lose = lost),
      takePart: () => ({}),
      leaveLog: () => undefined,
      roleChanged: () => (this.looked += 1),
    };
    const lead = { isAble: true, current: null, untilLeads: () => Promise.resolve(true) };
    const links = {
      onGone: () => () => undefined,
      isConnected: (peer: string) => this.reached.has(peer),
    } as unknown as PeerLinks;
    this.part = new LogPart(links, view as unknown as MeshView, lead, 'mesh', (text) => this.told.push(text));
    this.part.keeps();
    this.part.entered(() => Promise.resolve());
  }

  async enter(): Promise<number> {
    const begin = await this.part.log.open(1);
    this.part.take(begin);
    return begin.incarnation;
  }
}

describe('a log that the browser does not keep', () => {
  const refusing = {
    open: () => {
      throw new DOMException('no room', 'QuotaExceededError');
    },
  };
  const database = new IDBFactory();
  const soon = (look: () => void): Promise<void> => vi.waitFor(look, { timeout: 20_000 });

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    vi.stubGlobal('reportError', (error: unknown) => expect.unreachable(String(error)));
    vi.stubGlobal('indexedDB', new IDBFactory());
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  it('from the beginning is kept once it does, as another life', async () => {
    vi.stubGlobal('indexedDB', refusing);
    const tab = new Follower();
    const first = await tab.enter();
    expect(tab.told).toEqual([expect.stringContaining('keeps no consensus log')]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(tab.looked).toBe(0);
    vi.stubGlobal('indexedDB', database);
    await vi.advanceTimersByTimeAsync(15_000);
    await soon(() => expect(tab.looked).toBe(1));
    expect(tab.told.slice(1)).toEqual(['the log of the mesh is kept here again']);
    expect(await tab.enter()).toBeGreaterThan(first);
    expect(tab.part.log.durable).toBe(true);
    tab.part.close();
    expect(vi.getTimerCount()).toBe(0);
  });

  it('is not taken back while the vote of this life may be what the next leader needs', async () => {
    vi.stubGlobal('indexedDB', refusing);
    const tab = new Follower();
    await tab.enter();
    vi.stubGlobal('indexedDB', database);
    const keeps = vi.spyOn(LogKeeping.prototype, 'canKeep');
    const looks = async (): Promise<void> => {
      await vi.advanceTimersByTimeAsync(15_000);
      await expect(keeps.mock.results.at(-1)?.value).resolves.toBe(true);
      await new Promise((resolve) => setImmediate(resolve)); // what follows from it is done
    };
    tab.voters = [ME, OTHER, 'third'];
    for (const [leader, reached] of [
      [null, [OTHER, 'third']], // an election is on
      [OTHER, [OTHER]], // the third is away: this one is half of the majority
      [ME, [OTHER, 'third']],
    ] as const) {
      tab.leader = leader;
      tab.reached.clear();
      for (const peer of reached) tab.reached.add(peer);
      await looks();
      expect(tab.looked).toBe(0);
    }
    tab.leader = OTHER;
    await looks();
    expect(tab.looked).toBe(1);
    expect(keeps).toHaveBeenCalledTimes(4);
    tab.part.close();
  });

  it('any more is kept once it does, unless another tab is this peer now', async () => {
    const tab = new Follower();
    const first = await tab.enter();
    tab.lose('broken');
    expect(tab.told).toEqual([expect.stringMatching(/cannot be kept here: broken; goes on without it/)]);
    expect(tab.looked).toBe(1);
    await tab.enter();
    expect(tab.part.log.durable).toBe(false);
    await vi.advanceTimersByTimeAsync(15_000);
    await soon(() => expect(tab.looked).toBe(2));
    expect(await tab.enter()).toBe(first); // whoever leads tells it to begin anew
    expect(tab.part.log.durable).toBe(true);

    const other = new LogKeeping('mesh', ME, true, () => undefined);
    await other.open(1);
    tab.lose('another tab is this peer');
    await tab.enter();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(tab.looked).toBe(3);
    other.close();
    tab.part.close();
  });
});
