/* What the page says of offered models, from the state that every member has. */

import { expect, test } from 'vitest';

import { flow, manifestOf } from '../../dataflow/flow_vectors';
import type { Member, ModelOffer, RunStage } from '../../../src/state/generated/commands';
import { EMPTY_STATE, type MeshState } from '../../../src/state/mesh_state';
import type { GraphManifest } from '../../../src/planner/graph_manifest';
import { offeredViews } from '../../../ui/models/models_view';

const MODEL = 'a'.repeat(64);
const stage = (first: number, stop: number, primary: string, ...standbys: string[]): RunStage => ({
  ...{ first, stop, primary, standbys, bytes: 1000 },
});

function member(peer: string): Member {
  const profile = {
    ...{ memoryBytes: 1e9, overheadBytes: 0, decodeNs: new Map(), batchNs: new Map(), stepNs: 0 },
    ...{ prefillNs: new Map([['attn', 1000]]), provider: 'cpu', threads: 1 },
  };
  const rest = { profile, held: [], reason: '', headless: false, durable: false, incarnation: 0 };
  return { peer, name: `machine ${peer}`, compute: true, status: 'measured', ...rest };
}

function state(stages: readonly RunStage[], why: readonly string[] = []): MeshState {
  const offer: ModelOffer = { model: MODEL, version: 1, stages, latencyUs: 2500, rateMilli: 400_000, why };
  return {
    ...EMPTY_STATE,
    members: new Map(['p', 'q'].map((peer) => [peer, member(peer)])),
    links: [{ src: 'p', dst: 'q', rttUs: 4000, bytesPerS: 1e6, overheadUs: 0 }],
    offers: new Map([['towers', offer]]),
  };
}

/** The towers, with a millisecond of work in each unit and a thousand bytes in each value. */
function worked(): GraphManifest {
  const { values, units, ...rest } = manifestOf('towers');
  return {
    ...rest,
    values: values.map((value) => ({ ...value, bytes: [{ factor: 1000, sizes: [] }] })),
    units: units.map((unit) => ({ ...unit, flops: [{ factor: 1e6, sizes: [] }] })),
  };
}
const seen = (manifest: GraphManifest | string) => ({
  me: 'q',
  manifests: new Map([[MODEL, manifest]]),
  flops: new Map([['attn', 1e6]]), // a peer does a billion a millisecond
});

test('who holds what, what it takes and gives, and when each peer computes', () => {
  const manifest = worked();
  const count = manifest.units.length;
  const [shown] = offeredViews(state([stage(0, 1, 'p'), stage(1, count, 'q', 'p')]), seen(manifest));
  expect(shown?.places).toEqual([
    { peer: 'machine p', you: false, units: 'unit 0', bytes: 1000, standbys: [] },
    { peer: 'machine q', you: true, units: `units 1–${count - 1}`, bytes: 1000, standbys: ['machine p'] },
  ]);
  expect(shown?.takes.map(({ name }) => name)).toEqual(
    flow.manifests.find(({ name }) => name === 'towers')?.inputs,
  );
  expect(shown?.whyNot).toBe('');
  expect(shown?.takesTexts).toBe(false);
  const text = {
    tokenizer: manifest.units[0]?.graph,
    tokens: 'a',
    mask: null,
    types: null,
    longest: 8,
    pad: 0,
  };
  const says = { ...manifest, text } as GraphManifest;
  expect(offeredViews(state([stage(0, 1, 'p')]), seen(says))[0]?.takesTexts).toBe(true);
  const [first, second] = shown?.times?.lanes ?? [];
  expect(first?.spans).toEqual([{ units: 'unit 0', beginsMs: 0, endsMs: 0.001, critical: true }]);
  const [later] = second?.spans ?? [];
  expect(later?.beginsMs).toBeCloseTo(0.001 + 2 + 1); // half a round trip, and a thousand bytes at 1 MB/s
  expect((later?.endsMs ?? 0) - (later?.beginsMs ?? 0)).toBeCloseTo(0.001 * (count - 1));
  const crossing = { from: 'machine p', to: 'machine q', bytes: 1000, critical: true };
  expect(shown?.times?.crossings).toEqual([crossing]);
  expect(shown?.times?.critical).toEqual([
    'unit 0 on machine p',
    'machine p to machine q',
    `units 1–${count - 1} on this tab`,
  ]);
});

test('a branch that others wait for is on the critical path, one beside it is not', () => {
  const manifest = worked();
  // The left tower on p, the right one and what joins both on q: q waits for p and the link, not for its own tower.
  const placed = [stage(0, 2, 'p'), stage(2, 4, 'q'), stage(4, 5, 'q')];
  const times = offeredViews(state(placed), seen(manifest))[0]?.times;
  const spans = times?.lanes.flatMap((lane) => lane.spans) ?? [];
  expect(spans.map(({ critical }) => critical)).toEqual([true, false, true]);
  expect(times?.crossings.map(({ critical }) => critical)).toEqual([true]);
  const joined = spans.at(-1);
  expect(joined?.beginsMs).toBeCloseTo((spans[0]?.endsMs ?? 0) + 2 + 1); // as soon as the left tower's value is there
  // All on one peer: everything is on it, in order.
  const alone = offeredViews(
    state(placed.map(({ first, stop }) => stage(first, stop, 'q'))),
    seen(manifest),
  )[0]?.times;
  expect(alone?.lanes[0]?.spans.every(({ critical }) => critical)).toBe(true);
  expect(alone?.critical).toHaveLength(3);
});

test('a model that runs nowhere says why, and one whose manifest is not here as well', () => {
  const [nowhere] = offeredViews(state([], ['3 GB are missing']), seen(worked()));
  expect(nowhere?.whyNot).toBe('3 GB are missing');
  expect(nowhere?.times).toBeNull();
  const [unknown] = offeredViews(state([stage(0, 1, 'p')]), seen('no manifest'));
  expect([unknown?.whyNot, unknown?.takes]).toEqual(['no manifest', []]);
});
