/* Who leads and leaves hands the mesh on: it is closed only where nobody is here who could keep it. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { LogPart } from '../../src/replication/log_membership';
import type { MeshView } from '../../src/replication/mesh_view';
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
