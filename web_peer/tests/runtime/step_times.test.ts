/* How long a token takes at a run of units: both languages come to the same figures. */

import { expect, it } from 'vitest';

import { StepTimes } from '../../src/runtime/step_times';
import { vectors } from '../vectors';

type Key = readonly [run: readonly [number, number], session: string, epoch: number, position: number];
interface Trace {
  readonly ops: readonly (readonly ['begun' | 'ended' | 'dropped' | 'unloaded', number, Key, boolean])[];
  readonly medians_us: unknown;
}

it.each((vectors('step_times') as { readonly traces: readonly Trace[] }).traces)('trace %#', (trace) => {
  const times = new StepTimes();
  for (const [what, nowUs, [[first, stop], session, epoch, position], flag] of trace.ops) {
    const now = nowUs / 1e6;
    const run = { first, stop };
    const step = { run, session, epoch, position };
    if (what === 'begun') times.begun(now, step, flag);
    else if (what === 'ended') times.ended(now, step, flag);
    else if (what === 'dropped') times.dropped(run, session);
    else times.unloaded(run);
  }
  expect(times.mediansUs()).toEqual(trace.medians_us);
});
