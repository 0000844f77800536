/*
 * What the card of a peer says beyond its one line: for whom it stands by, what it did, how far it is. Pure.
 *
 * Only what is known: from the log of the mesh, and from what the peer reports of itself. Each fact is one line of the
 * card, so that a mesh which tells more of its peers gets more lines.
 */

import { nameOf } from '../../src/state/display_names';
import type { Member as StateMember, PlanRecord } from '../../src/state/generated/commands';
import type { MeshState } from '../../src/state/mesh_state';
import type { Report } from './reports';
import type { Fact, Standby } from '../app/view';
import { bytesText, countText, delayText, rateText, runText } from '../kit/formatting';

/** What `peer` stands by for in the plan in force; ready when it reported these units as held. */
export function standbysOf(
  plan: PlanRecord | null,
  member: StateMember,
  names: ReadonlyMap<string, string>,
): readonly Standby[] {
  const stages = plan?.stages.filter(({ standbys }) => standbys.includes(member.peer)) ?? [];
  return stages.map(({ first, stop, primary }) => ({
    run: [first, stop],
    of: names.get(primary) ?? '',
    ready: member.held.some((held) => held.first === first && held.stop === stop),
  }));
}

/** Everything known that goes into one card. */
export interface Known {
  readonly standsBy: readonly Standby[];
  readonly report: Report | null;
  readonly stepsPerS: number;
  readonly delayMs: number; // from this tab; 0: not known, or this tab itself
  readonly lentBytes: number;
  readonly runsOn: string;
  readonly breakers: readonly BreakerSaid[];
  readonly units: number;
  readonly inWords: boolean; // whether a model of the mesh answers in words
}

/** What `by` said of this peer, or of the link `from` another one to it. Names. */
export interface BreakerSaid {
  readonly by: string;
  readonly from: string; // "": of the peer itself
  readonly state: 'open' | 'half-open';
}

/** The lines of the card of one peer, without those that nothing is known of. */
export function factsOf(known: Known): readonly Fact[] {
  const { report, units } = known;
  const facts: Fact[] = [];
  const say = (label: string, value: string, tone: Fact['tone'] = 'plain'): void => {
    if (value !== '') facts.push({ label, value, tone });
  };
  for (const { run, of, ready } of known.standsBy) {
    const whose = of === '' ? '' : ` of ${of}`;
    const value = `${runText(run, units)}${whose}: ${ready ? 'ready' : 'still loading'}`;
    say('Stands by for', value, ready ? 'good' : 'warn');
  }
  for (const { by, from, state } of known.breakers) {
    const what = state === 'open' ? 'left alone' : 'tried again with little';
    say(from === '' ? 'After failures' : `Link from ${from}`, `${what}, says ${by}`, 'warn');
  }
  say('Runs on', known.runsOn);
  const usedBytes = report === null ? 0 : report.weightBytes + report.kvBytes;
  if (known.lentBytes > 0) {
    say(
      'Memory',
      `${usedBytes > 0 ? `${bytesText(usedBytes)} in use of ` : ''}${bytesText(known.lentBytes)}`,
    );
  }
  if (report !== null && known.inWords) {
    say('Tokens helped', countText(report.steps));
    say('Now', known.stepsPerS > 0 ? rateText(known.stepsPerS) : 'rests');
    if (report.sessions > 0) say('Conversations', `${report.active} now, ${report.sessions} kept`);
  }
  if (known.delayMs > 0) say('From you', delayText(known.delayMs));
  return facts;
}

/** What the peers around say of `peer`. */
export function breakersSaid(
  peer: string,
  reports: ReadonlyMap<string, Report>,
  names: ReadonlyMap<string, string>,
): readonly BreakerSaid[] {
  const called = (id: string): string => nameOf(id, names);
  return [...reports].flatMap(([by, { breakers }]) =>
    breakers.flatMap(({ of, state }) => {
      const [first = '', to] = of.split('>');
      if ((to ?? first) !== peer) return [];
      return [{ by: called(by), from: to === undefined ? '' : called(first), state }];
    }),
  );
}

/** Links between others, as those at their ends measure them now: in milliseconds by "a b". */
export function delaysAmong(
  state: MeshState,
  reports: ReadonlyMap<string, Report>,
): readonly (readonly [a: string, b: string, ms: number])[] {
  return [...reports].flatMap(([peer, { rttS }]) =>
    [...rttS]
      .filter(([other, s]) => s > 0 && other !== peer && state.members.has(other) && state.members.has(peer))
      .map(([other, s]) => [peer, other, s * 1000] as const),
  );
}
