/* What a stage decides is done in order; who waits for its answers to end is woken. */

import { expect, it } from 'vitest';

import type { RunStep, StageEffect } from '../../src/session/effects';
import { StageHost } from '../../src/stage/stage_host';
import type { Serving } from '../../src/stage/unit_host';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import type { Journal } from '../../src/storage/journal';
import type { Frame } from '../../src/wire/generated/frames';

const SESSION = '01'.repeat(16);
const RUN = { first: 0, stop: 2 };
const PROBE: Frame = { kind: 'PROBE', nonce: 1, body: new Uint8Array() };
const STEP = { kind: 'runStep', run: RUN, session: SESSION } as unknown as RunStep & StageEffect;

class Host {
  readonly done: string[] = [];
  state: MeshState = EMPTY_STATE;
  private readonly looks = new Set<() => void>();
  readonly stage: StageHost;

  constructor() {
    const state = (): MeshState => this.state;
    const view = {
      get state() {
        return state();
      },
      subscribe: (look: () => void) => {
        this.looks.add(look);
        return () => this.looks.delete(look);
      },
    };
    const links = {
      me: 'me',
      sendOrLose: (peer: string, { kind }: Frame) => void this.done.push(`${kind} to ${peer}`),
      spare: (peer: string, { kind }: Frame) => void this.done.push(`${kind} for ${peer}`),
    };
    this.stage = new StageHost(links, view);
  }

  /** Lends units of which `loaded` tells whether they are here. */
  lend(loaded: boolean): void {
    const units = {
      runtime: () => (loaded ? {} : null),
      submit: () => this.done.push('a step runs'),
      free: () => this.done.push('a slot is free'),
      positionBytes: () => 12,
    } as unknown as Serving;
    const journal = { tokens: () => undefined, opened: () => undefined } as unknown as Journal;
    this.stage.lend(units, journal);
  }

  become(state: Partial<MeshState>): void {
    this.state = { ...EMPTY_STATE, ...state };
    for (const look of this.looks) look();
  }
}

it('frames of one peer go together, and before anything runs', () => {
  const host = new Host();
  host.lend(true);
  host.stage.perform([
    STEP,
    { kind: 'send', peer: 'ann', frame: PROBE },
    { kind: 'spare', peer: 'bob', frame: PROBE },
    { kind: 'send', peer: 'ann', frame: PROBE },
    { kind: 'freeSlot', run: RUN, session: SESSION },
  ]);
  expect(host.done).toEqual(['BUNDLE to ann', 'a step runs', 'PROBE for bob', 'a slot is free']);
});

it('a peer that lends nothing runs nothing', () => {
  expect(() => new Host().stage.perform([STEP])).toThrow('runs no units');
});

it.each([
  [true, ['a look', 'a step runs']],
  [false, ['a step runs']], // which refuses it
])('a step of units that are loaded (%s) is looked at before it runs', (loaded, done) => {
  const host = new Host();
  host.lend(loaded);
  const end = host.stage.onStep(() => host.done.push('a look'));
  host.stage.perform([STEP]);
  expect(host.done).toEqual(done);
  end();
  host.stage.perform([STEP]);
  expect(host.done).toEqual([...done, 'a step runs']);
});

it('keeps to what the mesh knows', () => {
  const host = new Host();
  const { rules } = host.stage.core;
  expect(rules.positionBytes(RUN)).toBe(0);
  host.lend(true);
  expect(rules.positionBytes(RUN)).toBe(12);
  expect(rules.bring({} as never)).toBe(false);
  host.stage.copyBy({ bring: () => true, lend: () => Promise.resolve({ have: 0, sha256: '' }) });
  expect(rules.bring({} as never)).toBe(true);
  host.become({
    protection: { ...EMPTY_STATE.protection, shadow: 'log', logSessionBytes: 5, logTotalBytes: 6 },
  });
  const { keepOnly, logSessionBytes, logTotalBytes } = host.stage.core;
  expect([keepOnly, logSessionBytes, logTotalBytes]).toEqual([true, 5, 6]);
});

it('waits until no answer runs here', async () => {
  const host = new Host();
  let active = 1;
  host.stage.core.active = () => active;
  let isIdle = false;
  const idle = host.stage.idle().then(() => (isIdle = true));
  host.stage.perform([]);
  await Promise.resolve();
  expect(isIdle).toBe(false);
  active = 0;
  host.stage.perform([]);
  await idle;
  expect(isIdle).toBe(true);
});
