/* Who leads and leaves hands the mesh on: it is closed only where nobody is here who could keep it. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { LogPart } from '../src/replication/log_membership';
import type { Node } from '../src/member/frame_router';

const [ME, OTHER] = ['me', 'other'];

/** As much of a node as handing over looks at. */
class Leader {
  readonly me = ME;
  coordinator: string | null = ME;
  tended = 0;
  alone = false;
  readonly onRole = new Set<() => void>();
  readonly onState = new Set<() => void>();
  readonly onGone = new Set<() => void>();
  readonly links = {
    onGone: (listener: () => void) => {
      this.onGone.add(listener);
      return () => this.onGone.delete(listener);
    },
  };
  readonly onLogLost = new Set<() => void>();
  readonly leading = {
    coordinating: {
      tend: (): void => {
        this.tended += 1;
      },
      isAlone: (): boolean => this.alone,
      get alone(): boolean {
        return this.isAlone();
      },
    },
  };

  part(): LogPart {
    return new LogPart(this as unknown as Node, 'mesh', () => undefined);
  }

  listeners(): number {
    return this.onRole.size + this.onState.size + this.onGone.size;
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
    leader.coordinator = null; // between two leaders
    tell(leader.onRole);
    leader.coordinator = OTHER;
    tell(leader.onRole);
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
    tell(leader.onGone);
    await expect(handed).resolves.toBe('alone');
    expect(leader.listeners()).toBe(0);
  });

  it('that takes too long does not make the mesh a closed one', async () => {
    const leader = new Leader();
    const handed = leader.part().handOver();
    tell(leader.onState);
    await vi.runAllTimersAsync();
    await expect(handed).resolves.toBe('late');
    expect(leader.listeners()).toBe(0);
  });
});
