/*
 * What the page shows of the models that the mesh offers beside its own: what each takes and gives, who holds which
 * units, and when they compute. Pure: from the state that every member has, and the manifests that are here.
 */

import { flowRoute } from '../../src/dataflow/flow_route';
import type { GraphManifest, Term } from '../../src/planner/graph_manifest';
import { named, nameOf, names as namesIn } from '../../src/state/display_names';
import type { LinkFacts, ModelOffer } from '../../src/state/generated/commands';
import type { MeshState } from '../../src/state/mesh_state';
import type { OfferedView, PortView, TimesView } from '../app/view';
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
  const thereMs = new Map<string, number>(); // when a value is on a peer
  const freeMs = new Map<string, number>();
  const lanes = new Map<string, { beginsMs: number; endsMs: number; units: string }[]>();
  const crossings = new Map<string, { from: string; to: string; bytes: number }>();
  const bytesOf = (place: number): number => amount(manifest.values[place]?.bytes ?? [], manifest.sizes);
  placed.forEach(({ first, stop, peer }, at) => {
    let readyMs = freeMs.get(peer) ?? 0;
    for (const place of needs[at] ?? []) {
      const maker = makers.get(place) ?? '';
      const made = thereMs.get(`${place} ${maker}`) ?? 0;
      const key = `${place} ${peer}`;
      if (maker !== '' && maker !== peer && !thereMs.has(key)) {
        const bytes = bytesOf(place);
        thereMs.set(key, made + hopMs(state.links, maker, peer, bytes));
        const [from, to] = [nameOf(maker, names), nameOf(peer, names)];
        const crossed = crossings.get(`${from} ${to}`)?.bytes ?? 0;
        crossings.set(`${from} ${to}`, { from, to, bytes: crossed + bytes });
      }
      readyMs = Math.max(readyMs, thereMs.get(key) ?? 0);
    }
    const work = manifest.units
      .slice(first, stop)
      .reduce((sum, unit) => sum + amount(unit.flops, manifest.sizes), 0);
    const endsMs = readyMs + (1000 * work) / speedOf(state, peer, flops);
    freeMs.set(peer, endsMs);
    for (const place of gives[at] ?? []) thereMs.set(`${place} ${peer}`, endsMs);
    const span = { beginsMs: readyMs, endsMs, units: unitsText({ first, stop }) };
    lanes.set(peer, [...(lanes.get(peer) ?? []), span]);
  });
  return {
    lanes: [...lanes].map(([peer, spans]) => ({ peer: nameOf(peer, names), you: peer === me, spans })),
    crossings: [...crossings.values()],
    endsMs: Math.max(0, ...freeMs.values()),
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
