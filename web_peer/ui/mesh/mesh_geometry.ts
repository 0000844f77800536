/* Where each peer stands in the picture of the mesh, which lines join them, and what is said of it. Pure. */

import { delayText, runsText } from '../kit/formatting';
import type { Member, MeshView, Run, Standby } from '../app/view';

export const WIDTH = 360;
export const HEIGHT = 244;
const MIDDLE = { x: WIDTH / 2, y: 111 };
const REACH = 124;
const MOST_REACH_UP = 101; // less the radius of a peer: all stay inside
const MOST_LABELS = 9; // beyond, names would lie over each other

export interface Place {
  readonly member: Member;
  readonly x: number;
  readonly y: number;
  readonly radius: number;
  readonly label: string; // "": no room for names
}

export interface Line {
  readonly key: string;
  readonly from: Place;
  readonly to: Place;
  readonly delay: string;
  readonly onRoute: boolean; // activations cross it
  readonly label: Box | null; // where the delay is written; null: there is no free place
}

/** A rectangle by its middle. */
export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Picture {
  readonly places: readonly Place[];
  readonly lines: readonly Line[];
  readonly summary: string;
}

/** Members on an ellipse, in the order they come, the first at the left; one alone stands in the middle. */
export function pictureOf(mesh: MeshView): Picture {
  const count = mesh.members.length;
  const radius = count <= 4 ? 27 : count <= 7 ? 22 : 15;
  const places = mesh.members.map((member, at): Place => {
    const turn = Math.PI + (2 * Math.PI * at) / Math.max(1, count);
    const alone = count === 1;
    return {
      member,
      x: alone ? MIDDLE.x : MIDDLE.x + REACH * Math.cos(turn),
      y: alone ? MIDDLE.y : MIDDLE.y + (MOST_REACH_UP - radius) * Math.sin(turn) * (count === 2 ? 0 : 1),
      radius: member.lends ? radius : radius * 0.62,
      label: count > MOST_LABELS ? '' : shortened(member.you ? 'you' : member.name, count <= 7 ? 18 : 13),
    };
  });
  const byId = new Map(places.map((place) => [place.member.id, place]));
  const hops = new Set(hopsOf(mesh.route).map(([a, b]) => pairKey(a, b)));
  const lines = new Map<string, Omit<Line, 'label'>>();
  const add = (a: string, b: string, delay: string): void => {
    const [from, to] = [byId.get(a), byId.get(b)];
    const key = pairKey(a, b);
    if (from === undefined || to === undefined || a === b || lines.has(key)) return;
    if (from.member.status === 'gone' || to.member.status === 'gone') return;
    lines.set(key, { key, from, to, delay, onRoute: hops.has(key) });
  };
  for (const link of mesh.links) add(link.a, link.b, delayText(link.delayMs));
  for (const [a, b] of hopsOf(mesh.route)) add(a, b, '');
  return { places, lines: labelled([...lines.values()], places), summary: summaryOf(mesh) };
}

const MOST_LABELLED = 5; // members; beyond, delays would lie over each other
const LABEL_HEIGHT = 16;
const NAME_BELOW = 17; // of a disc's edge
const ALONG = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74]; // of a line, the best places for its label first

/** Lines with places for their labels that no disc, name or other label covers; those on the route choose first. */
function labelled(lines: readonly Omit<Line, 'label'>[], places: readonly Place[]): Line[] {
  const taken = places.flatMap(boxesOf);
  const labels = new Map<string, Box>();
  const wanted = places.length > MOST_LABELLED ? [] : lines.filter(({ delay }) => delay !== '');
  for (const { key, from, to, delay } of [...wanted].sort((a, b) => Number(b.onRoute) - Number(a.onRoute))) {
    const width = delay.length * 5.4 + 10;
    const free = ALONG.map((part) => ({
      ...{ x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part },
      ...{ width, height: LABEL_HEIGHT },
    })).find((box) => !taken.some((other) => overlap(box, other)));
    if (free === undefined) continue;
    taken.push(free);
    labels.set(key, free);
  }
  return lines.map((line) => ({ ...line, label: labels.get(line.key) ?? null }));
}

/** The room that a peer's disc and its name take. */
export function boxesOf({ x, y, radius, label }: Place): Box[] {
  const disc = { x, y, width: 2 * radius, height: 2 * radius };
  const name = { x, y: y + radius + NAME_BELOW - 4, width: label.length * 6.2, height: LABEL_HEIGHT };
  return label === '' ? [disc] : [disc, name];
}

/** Whether two boxes cover a common place. */
export function overlap(a: Box, b: Box): boolean {
  return 2 * Math.abs(a.x - b.x) < a.width + b.width && 2 * Math.abs(a.y - b.y) < a.height + b.height;
}

function shortened(name: string, most: number): string {
  const letters = Array.from(name);
  return letters.length > most ? `${letters.slice(0, most - 1).join('')}…` : name;
}

/** The links an activation crosses for one token, the way back to the first stage last. */
export function hopsOf(route: readonly string[]): readonly (readonly [string, string])[] {
  const hops: (readonly [string, string])[] = [];
  route.forEach((peer, at) => {
    const next = route[(at + 1) % route.length];
    if (next !== undefined && next !== peer) hops.push([peer, next]);
  });
  return hops;
}

/** One name for two peers, in either order. */
export function pairKey(a: string, b: string): string {
  return a < b ? `${a} ${b}` : `${b} ${a}`;
}

/** SVG path of the arc that a run takes of the whole model, drawn as a ring around (0, 0) from the top clockwise. */
export function arcPath(run: Run, units: number, radius: number): string {
  const gap = 0.02;
  const from = Math.min(1, run[0] / Math.max(1, units));
  const to = Math.min(1, run[1] / Math.max(1, units));
  if (to - from >= 1 - gap) {
    return `M 0 ${-radius} A ${radius} ${radius} 0 1 1 0 ${radius} A ${radius} ${radius} 0 1 1 0 ${-radius}`;
  }
  const point = (share: number): string => {
    const angle = 2 * Math.PI * share;
    return `${(radius * Math.sin(angle)).toFixed(2)} ${(0 - radius * Math.cos(angle)).toFixed(2)}`;
  };
  return `M ${point(from)} A ${radius} ${radius} 0 ${to - from > 0.5 ? 1 : 0} 1 ${point(to)}`;
}

export const STATUS_WORDS = {
  ready: 'ready',
  loading: 'loading',
  busy: 'answering',
  paused: 'paused',
  gone: 'gone',
} as const;

/** One sentence a member, as the list and screen readers say it. */
export function memberText(member: Member, units: number): string {
  if (member.status === 'gone') return 'left';
  if (!member.lends) return 'asks only';
  const parts = [runsText(runsOf(member), units), ...member.standsBy.map(standbyText), member.doing];
  const said = parts.filter((part) => part !== '').join(' · ');
  if (said !== '') return said;
  return member.status === 'ready' ? 'spare, holds nothing yet' : STATUS_WORDS[member.status];
}

/** What a member runs: all that it holds and does not merely stand by for. */
export function runsOf({ holds, standsBy }: Member): readonly Run[] {
  return holds.filter((run) => !standsBy.some((one) => sameRun(one.run, run)));
}

/** Whether two runs hold the same units. */
export const sameRun = (a: Run, b: Run): boolean => a[0] === b[0] && a[1] === b[1];

function standbyText({ of, ready }: Standby): string {
  return `${ready ? 'stands by' : 'loading to stand by'}${of === '' ? '' : ` for ${of}`}`;
}

function summaryOf(mesh: MeshView): string {
  if (mesh.members.length === 0) return 'Nobody is here yet.';
  const each = mesh.members.map(
    (member) =>
      `${member.name}${member.you ? ' (you)' : ''}: ${STATUS_WORDS[member.status]}, ${memberText(member, mesh.units)}`,
  );
  return `The mesh: ${each.join('. ')}.`;
}
