/* Who votes and who leads: the situations that both languages replay. */

import { describe, expect, it } from 'vitest';

import { Config, type Server } from '../../src/consensus/records';
import {
  type Candidate,
  nextMove,
  type Sight,
  type Situation,
  Watch,
  wantedVoters,
} from '../../src/coordination/voter_policy';
import { camel, vectors } from '../vectors';

type Row = Readonly<Record<string, unknown>>;
interface Op {
  readonly now: number;
  readonly peer: string;
  readonly left?: true;
  readonly connected: boolean;
  readonly ailing: boolean;
  readonly sights: readonly Row[];
}
interface Vectors {
  readonly situations: readonly (Row & {
    config: { servers: Server[] };
    candidates: (Row & { sight: Row })[];
    wanted: string[];
    move: unknown;
  })[];
  readonly traces: readonly { peers: string[]; ops: Op[] }[];
}

const VECTORS = vectors('voting') as Vectors;

function camels(row: Row): Row {
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [camel(name), value]));
}

describe('situations', () => {
  it.each(VECTORS.situations.map((row, number) => ({ row, number })))('$number', ({ row }) => {
    const situation = {
      ...camels(row),
      config: new Config(row.config.servers),
      candidates: row.candidates.map(
        (each) => ({ ...camels(each), sight: camels(each.sight) }) as unknown as Candidate,
      ),
    } as unknown as Situation;
    expect(wantedVoters(situation)).toEqual(row.wanted);
    expect(nextMove(situation)).toEqual(row.move);
  });
});

describe('what a watch tells', () => {
  it.each(VECTORS.traces.map((trace, number) => ({ ...trace, number })))('$number', ({ peers, ops }) => {
    const watch = new Watch();
    for (const { now, peer, left, connected, ailing, sights } of ops) {
      if (left === true) watch.keep((each) => each !== peer);
      else watch.see(now, peer, connected, ailing);
      const told: Sight[] = peers.map((each) => watch.sight(now, each));
      expect(told).toEqual(sights.map(camels));
    }
  });
});
