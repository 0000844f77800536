/* The live picture of the mesh: who is there, what each holds, how far apart they are, and activations on their way. */

import { useSignalEffect } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';

import {
  arcPath,
  HEIGHT,
  hopsOf,
  memberText,
  pictureOf,
  type Picture,
  type Place,
  sameRun,
  WIDTH,
} from './mesh_geometry';
import type { MeshView, View } from '../app/view';

const HOP_MS = 420; // of a dot on one link: slow enough to follow; not the real delay, which the label says
const LEAST_APART_MS = 260; // between dots that start: a fast mesh shows a steady stream, not a blur
const MOST_DOTS = 6;

interface Dot {
  readonly begun: number;
  readonly hops: readonly (readonly [string, string])[];
}

/** Moves dots along the route while tokens come; touches the document once a frame, and only then. */
function useDots(view: View, picture: Picture) {
  const layer = useRef<SVGGElement>(null);
  const dots = useRef<Dot[]>([]);
  const frame = useRef(0);
  const last = useRef({ tokens: view.activity.peek().tokens, begun: 0 });
  const places = useRef<ReadonlyMap<string, Place>>(new Map());
  places.current = useMemo(() => new Map(picture.places.map((place) => [place.member.id, place])), [picture]);

  const move = (now: number): void => {
    const circles = layer.current?.children;
    if (circles === undefined) return;
    dots.current = dots.current.filter((dot) => now - dot.begun < dot.hops.length * HOP_MS);
    for (let at = 0; at < circles.length; at += 1) {
      const circle = circles[at];
      const dot = dots.current[at];
      if (circle === undefined) continue;
      const along = dot === undefined ? -1 : (now - dot.begun) / HOP_MS;
      const hop = dot?.hops[Math.floor(along)];
      const from = hop === undefined ? undefined : places.current.get(hop[0]);
      const to = hop === undefined ? undefined : places.current.get(hop[1]);
      if (from === undefined || to === undefined || along < 0) {
        circle.setAttribute('opacity', '0');
        continue;
      }
      const part = along % 1;
      const eased = part * part * (3 - 2 * part);
      circle.setAttribute('cx', (from.x + (to.x - from.x) * eased).toFixed(1));
      circle.setAttribute('cy', (from.y + (to.y - from.y) * eased).toFixed(1));
      circle.setAttribute('opacity', '1');
    }
    frame.current = dots.current.length > 0 ? requestAnimationFrame(move) : 0;
  };

  useSignalEffect(() => {
    const { tokens, route } = view.activity.value;
    const now = performance.now();
    const fresh = tokens > last.current.tokens;
    last.current.tokens = tokens;
    if (!fresh || now - last.current.begun < LEAST_APART_MS || dots.current.length >= MOST_DOTS) return;
    if (matchMedia('(prefers-reduced-motion: reduce)').matches || document.hidden) return;
    const hops = hopsOf(route);
    if (hops.length === 0) return;
    last.current.begun = now;
    dots.current.push({ begun: now, hops });
    if (frame.current === 0) frame.current = requestAnimationFrame(move);
  });
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return layer;
}

function Peer({ place, units, lit }: { place: Place; units: number; lit: boolean }) {
  const { member, radius } = place;
  const ring = radius - 3.5;
  return (
    <g
      class={`peer is-${member.status}${member.you ? ' is-you' : ''}${lit ? ' is-lit' : ''}`}
      style={{ transform: `translate(${place.x}px, ${place.y}px)` }}
      aria-hidden="true"
    >
      <title>{`${member.name}: ${memberText(member, units)}`}</title>
      <circle class="halo" r={radius + 5} />
      <circle class="disc" r={radius} />
      {member.lends && <circle class="ring" r={ring} />}
      {member.coming.map((run) => (
        <path key={`coming ${run[0]}`} class="arc coming" d={arcPath(run, units, ring)} />
      ))}
      {member.holds.map((run) => {
        const spare = member.standsBy.some((standby) => sameRun(standby.run, run));
        return <path key={run[0]} class={spare ? 'arc spare' : 'arc'} d={arcPath(run, units, ring)} />;
      })}
      <text class="letter" dy="0.35em">
        {firstLetter(member.name)}
      </text>
      {place.label !== '' && (
        <text class="name" y={radius + 17}>
          {place.label}
        </text>
      )}
    </g>
  );
}

const firstLetter = (name: string): string => Array.from(name)[0]?.toUpperCase() ?? '?';

/** The picture; the peer of the id `lit` is marked in it ("": none). */
export function MeshPicture({ view, lit }: { view: View; lit: string }) {
  const mesh: MeshView = view.mesh.value;
  const picture = useMemo(() => pictureOf(mesh), [mesh]);
  const layer = useDots(view, picture);
  return (
    <figure class="picture">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={picture.summary}>
        {picture.lines.map((line) => (
          <line
            key={line.key}
            class={line.onRoute ? 'line on-route' : 'line'}
            x1={line.from.x}
            y1={line.from.y}
            x2={line.to.x}
            y2={line.to.y}
          />
        ))}
        <g ref={layer}>
          {Array.from({ length: MOST_DOTS }, (_, at) => (
            <circle key={at} class="dot" r="4" opacity="0" />
          ))}
        </g>
        {picture.lines.map(
          ({ key, delay, label }) =>
            label !== null && (
              <g key={key} class="delay">
                <rect
                  x={label.x - label.width / 2}
                  y={label.y - label.height / 2}
                  width={label.width}
                  height={label.height}
                  rx="8"
                />
                <text x={label.x} y={label.y} dy="0.34em">
                  {delay}
                </text>
              </g>
            ),
        )}
        {picture.places.map((place) => (
          <Peer key={place.member.id} place={place} units={mesh.units} lit={lit === place.member.id} />
        ))}
      </svg>
      <figcaption>
        <ul class="legend" aria-hidden="true">
          <li class="is-ready">ready</li>
          <li class="is-loading">loading</li>
          <li class="is-busy">answering</li>
          {mesh.members.some(({ standsBy }) => standsBy.length > 0) && <li class="is-standby">stands by</li>}
          {mesh.members.some(({ status }) => status === 'paused') && <li class="is-paused">paused</li>}
          <li class="is-gone">gone</li>
        </ul>
      </figcaption>
    </figure>
  );
}
