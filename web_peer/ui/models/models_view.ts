/*
 * What the page shows of the models that the mesh offers beside its own: what each takes and gives, who holds which
 * units, and when they compute. Pure: from the state that every member has, and the manifests that are here.
 */

import { flowRoute } from '../../src/dataflow/flow_route';
import type { GraphManifest, Term } from '../../src/planner/graph_manifest';
import { named, nameOf, names as namesIn } from '../../src/state/display_names';
import type { LinkFacts, ModelOffer } from '../../src/state/generated/commands';
import type { MeshState } from '../../src/state/mesh_state';
import type { OfferedView, PortView, SpanView, TimesView } from '../app/view';
import { offeredUnitsText as unitsText } from '../kit/formatting';
import { formsOfMedia } from './media';

/** What this tab knows beyond the state. */
export interface ModelsSeen {
  readonly me: string;
  /** By id of the model: its manifest, or why it is not here. Absent: nobody looked. */
  readonly manifests: ReadonlyMap<string, GraphManifest | string>;
  readonly flops: ReadonlyMap<string, number>; // of a token in a unit of each kind of the mesh's own model
}

const UNTIMED_FLOPS_PER_S = 1e9; // of a member that measured nothing of the kind: a slow processor
const ELSEWHERE = 'webgpu'; // a provider that computes no offered model: its tab does that on WebAssembly
const TIMED = ['attn', 'ffn', 'head'] as const; // kinds of units by which speed is known, the most telling one first

/** All offered models, by name. */
export function offeredViews(state: MeshState, seen: ModelsSeen): readonly OfferedView[] {
  const names = namesIn(state.members.values());
  return [...state.offers]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, offer]) => {
      const found = seen.manifests.get(offer.model);
      const manifest = typeof found === 'object' ? found : null;
      const why =
        offer.stages.length > 0
          ? ''
          : named(offer.why[0] ?? 'The mesh has found no place for it yet.', names);
      return {
        name,
        places: offer.stages.map((stage) => ({
          peer: nameOf(stage.primary, names),
          you: stage.primary === seen.me,
          units: unitsText(stage),
          bytes: stage.bytes,
          standbys: stage.standbys.map((peer) => nameOf(peer, names)),
        })),
        runMs: offer.latencyUs / 1000,
        perS: offer.rateMilli / 1000,
        whyNot: typeof found === 'string' ? found : why,
        takesTexts: manifest !== null && manifest.text !== null,
        takes: manifest === null ? [] : portsOf(manifest, manifest.inputs, true),
        gives: manifest === null ? [] : portsOf(manifest, manifest.outputs, false),
        times: manifest === null ? null : timesOf(state, offer, manifest, seen),
      };
    });
}

function portsOf({ values }: GraphManifest, names: readonly string[], isInput: boolean): readonly PortView[] {
  return names.flatMap((name) => {
    const value = values.find((each) => each.name === name);
    if (value === undefined) return [];
    return [
      { name, type: value.dtype, shape: shapeText(value.shape), forms: isInput ? formsOfMedia(value) : [] },
    ];
  });
}

/** "1 × 3 × height × width". */
export function shapeText(shape: readonly (number | string)[]): string {
  return shape.length === 0 ? 'one value' : shape.join(' × ');
}

// --- when

/** A stage at work, and what it waited for: the stage before it, over a link where `over` says which. */
interface Step {
  readonly peer: string;
  readonly beginsMs: number;
  readonly endsMs: number;
  readonly units: string;
  readonly after: { readonly step: number; readonly over: string } | null; // null: for nothing
}

/** Places in `steps` of the critical path, the first one first. */
function criticalOf(steps: readonly Step[]): readonly number[] {
  const endsMs = Math.max(0, ...steps.map((step) => step.endsMs));
  const found: number[] = [];
  let at: number | null = steps.findLastIndex((step) => step.endsMs === endsMs);
  while (at !== null && at >= 0) {
    found.unshift(at);
    at = steps[at]?.after?.step ?? null;
  }
  return found;
}

/** One run alone, as the placement has it: stages in order on each peer, values over links as they were measured. */
function timesOf(
  state: MeshState,
  { stages }: ModelOffer,
  manifest: GraphManifest,
  { me, flops }: ModelsSeen,
): TimesView | null {
  if (stages.length === 0 || stages.at(-1)?.stop !== manifest.units.length) return null;
  const names = namesIn(state.members.values());
  const placed = stages.map(({ first, stop, primary }) => ({ first, stop, peer: primary }));
  const { needs, gives, makers } = flowRoute(manifest, placed, '');
  const there = new Map<string, { readonly ms: number; readonly step: number; readonly over: string }>(); // values on peers
  const last = new Map<string, number>(); // of each peer, its last step
  const steps: Step[] = [];
  const crossings = new Map<string, { from: string; to: string; bytes: number }>();
  const bytesOf = (place: number): number => amount(manifest.values[place]?.bytes ?? [], manifest.sizes);
  placed.forEach(({ first, stop, peer }, at) => {
    const before = last.get(peer);
    let readyMs = before === undefined ? 0 : (steps[before]?.endsMs ?? 0);
    let after: Step['after'] = before === undefined ? null : { step: before, over: '' };
    for (const place of needs[at] ?? []) {
      const maker = makers.get(place) ?? '';
      const made = there.get(`${place} ${maker}`);
      const key = `${place} ${peer}`;
      if (made !== undefined && maker !== peer && !there.has(key)) {
        const bytes = bytesOf(place);
        const [from, to] = [nameOf(maker, names), nameOf(peer, names)];
        const over = `${from} ${to}`;
        there.set(key, { ms: made.ms + hopMs(state.links, maker, peer, bytes), step: made.step, over });
        const crossed = crossings.get(over)?.bytes ?? 0;
        crossings.set(over, { from, to, bytes: crossed + bytes });
      }
      const value = there.get(key);
      if (value === undefined || value.ms <= readyMs) continue;
      readyMs = value.ms;
      after = { step: value.step, over: value.over };
    }
    const work = manifest.units
      .slice(first, stop)
      .reduce((sum, unit) => sum + amount(unit.flops, manifest.sizes), 0);
    const endsMs = readyMs + (1000 * work) / speedOf(state, peer, flops);
    const step =
      steps.push({ peer, beginsMs: readyMs, endsMs, units: unitsText({ first, stop }), after }) - 1;
    last.set(peer, step);
    for (const place of gives[at] ?? []) there.set(`${place} ${peer}`, { ms: endsMs, step, over: '' });
  });
  const critical = criticalOf(steps);
  const overs = critical.map((at) => steps[at]?.after?.over ?? '');
  const spansOf = (peer: string): SpanView[] =>
    steps.flatMap(({ peer: of, beginsMs, endsMs, units }, at) =>
      of === peer ? [{ units, beginsMs, endsMs, critical: critical.includes(at) }] : [],
    );
  return {
    lanes: [...last.keys()].map((peer) => ({
      peer: nameOf(peer, names),
      you: peer === me,
      spans: spansOf(peer),
    })),
    crossings: [...crossings].map(([over, crossing]) => ({ ...crossing, critical: overs.includes(over) })),
    critical: critical.flatMap((at) => {
      const step = steps[at];
      if (step === undefined) return [];
      const { peer, units, after } = step;
      const crossing = crossings.get(after?.over ?? '');
      const who = peer === me ? 'this tab' : nameOf(peer, names);
      const way = crossing === undefined ? [] : [`${crossing.from} to ${crossing.to}`];
      return [...way, `${units} on ${who}`];
    }),
    endsMs: Math.max(0, ...steps.map(({ endsMs }) => endsMs)),
  };
}

function amount(terms: readonly Term[], sizes: ReadonlyMap<string, number>): number {
  return terms.reduce(
    (sum, { factor, sizes: by }) => sum + by.reduce((made, name) => made * (sizes.get(name) ?? 1), factor),
    0,
  );
}

function hopMs(links: readonly LinkFacts[], src: string, dst: string, bytes: number): number {
  const link = links.find((each) => each.src === src && each.dst === dst);
  if (link === undefined) return 0;
  return link.rttUs / 2000 + link.overheadUs / 1000 + (1000 * bytes) / Math.max(1, link.bytesPerS);
}

/** As planner/cost/graph_peers.py takes it: by what it measured of the mesh's own model with a prompt. */
function speedOf({ members }: MeshState, peer: string, flops: ReadonlyMap<string, number>): number {
  const profile = members.get(peer)?.profile ?? null;
  if (profile === null || profile.provider === ELSEWHERE) return UNTIMED_FLOPS_PER_S;
  for (const kind of TIMED) {
    const work = flops.get(kind) ?? 0;
    const tookNs = profile.prefillNs.get(kind) ?? 0;
    if (work > 0 && tookNs > 0) return (work / tookNs) * 1e9;
  }
  return UNTIMED_FLOPS_PER_S;
}
