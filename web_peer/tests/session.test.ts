/* The asker's traces, step by step as Python took them. */

import { describe, expect, it } from 'vitest';

import { type OriginEffect, REASONS } from '../src/effects';
import { ContextOverflow } from '../src/errors';
import { type Feed, type Here, MAX_SPANS, type Open, type Refuse, type Token } from '../src/frames';
import type { Route } from '../src/routes';
import { samplingOf } from '../src/sampling';
import { type Ask, type Heard, OriginSession, roomFor } from '../src/session';
import { deepCamel, frameOf, type Row, shown } from './traces';
import { vectors } from './vectors';

interface Op extends Row {
  readonly do: string;
  readonly now: number;
  readonly gives: Row[];
  readonly after: unknown[];
}
interface Vectors {
  readonly rooms: { given: [number, number | null, number]; gives: number | string }[];
  readonly traces: { name: string; session: string; me: string; ops: Op[] }[];
}

const VECTORS = vectors('session') as Vectors;

it.each(VECTORS.rooms)('room for $given', ({ given, gives }) => {
  if (typeof gives === 'number') expect(roomFor(...given)).toBe(gives);
  else expect(() => roomFor(...given)).toThrow(new ContextOverflow(gives));
});

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ session, me, ops }) => {
    const core = new OriginSession(session, me);
    ops.forEach((op, at) => {
      const gives = perform(core, op).map(effect);
      const { gone, avoid } = core.without;
      const after = [
        ...[core.phase, core.turn, core.start, core.tokens.length, core.reroutes],
        core.deadline === Infinity ? null : Math.round(core.deadline * 1e6),
        [shown(gone), shown(avoid)],
      ];
      expect({ at, op: op.do, gives, after }).toEqual({ at, op: op.do, gives: op.gives, after: op.after });
    });
  });
});

function perform(core: OriginSession, op: Op): OriginEffect[] {
  const { now } = op;
  const sender = op['sender'] as string;
  const peer = op['peer'] as string;
  const frame = op['frame'] === undefined ? undefined : frameOf(op['frame'] as Row);
  switch (op.do) {
    case 'begin':
      return core.begin(now, routeOf(op['route'] as Row), askOf(op['ask'] as Row));
    case 'adopt': {
      const heard = op['heard'] as Heard | number;
      return core.adopt(
        now,
        routeOf(op['route'] as Row),
        askOf(op['ask'] as Row),
        op['ids'] as number[],
        heard,
      );
    }
    case 'under_way':
      expect(core.underWay).toEqual(op['is']);
      return [];
    case 'token':
      return core.token(now, sender, frame as Token);
    case 'refused':
      return core.refused(now, sender, frame as Refuse);
    case 'feed':
      return core.feed(now, sender, frame as Feed);
    case 'here':
      return core.here(now, sender, frame as Here);
    case 'hint':
      return core.hint(now, peer);
    case 'patience':
      core.patienceS.set(peer, op['seconds'] as number);
      return [];
    case 'peer_gone':
      return core.peerGone(now, peer, op['why'] as string);
    case 'peer_back':
      core.peerBack(peer);
      return [];
    case 'reroute':
      return core.reroute(now, routeOf(op['route'] as Row));
    case 'hope':
      core.hope(op['hopeful'] as boolean);
      return [];
    case 'tick':
      return core.tick(now);
    case 'cancel':
      return core.cancel();
    case 'release':
      return core.release();
    default:
      throw new Error(`unknown operation ${op.do}`);
  }
}

function routeOf({ plan, peers, shadows }: Row): Route {
  return {
    plan: plan as number,
    peers: peers as string[],
    shadows: (shadows as [number, string][]).map(([stage, peer]) => ({ stage, peer })),
  };
}

function askOf(row: Row): Ask {
  const ask = deepCamel(row) as Ask;
  return { ...ask, sampling: samplingOf(ask.sampling) };
}

function effect(item: OriginEffect): unknown {
  switch (item.kind) {
    case 'send':
      return { send: item.peer, frame: shown(item.frame) };
    case 'spare':
      return { spare: item.peer, frame: shown(item.frame) };
    case 'suspect':
      return { suspect: item.peer, why: item.why };
    case 'emit':
      return { emit: item.token, position: item.position };
    case 'ended':
      return { ended: item.why };
    case 'broken':
      return { broken: item.text, reason: REASONS[item.reason] };
    case 'findRoute':
      return { find_route: [shown(item.gone), shown(item.avoid)], soon: item.soon };
    default:
      return item satisfies never;
  }
}

const ROUTE: Route = { plan: 1, peers: ['p0'], shadows: [] };

function askFor(prompt: readonly number[]): Ask {
  return { prompt, maxTokens: 2, sampling: samplingOf({}), endTokens: [] };
}

it('an active session cannot be asked', () => {
  const core = new OriginSession('00'.repeat(16), 'asker');
  core.begin(0, ROUTE, askFor([1]));
  expect(() => core.begin(0, ROUTE, askFor([1]))).toThrow('cancel it before it is asked again');
});

it('a talk with more spans than an OPEN holds is begun anew', () => {
  const core = new OriginSession('00'.repeat(16), 'asker');
  let prompt = [1];
  const opened: Open[] = [];
  for (let answer = 0; answer < MAX_SPANS / 2 + 2; answer++) {
    for (const item of core.begin(0, ROUTE, askFor(prompt))) {
      if (item.kind === 'send' && item.frame.kind === 'OPEN') opened.push(item.frame);
    }
    const { session, turn } = core;
    for (const finish of [0, 2]) {
      core.token(0, 'p0', { kind: 'TOKEN', session, turn, position: core.tokens.length, token: 7, finish });
    }
    prompt = [...core.tokens, 5];
  }
  expect(Math.max(...opened.map(({ spans }) => spans.length))).toBe(MAX_SPANS - 1);
  expect(opened.filter(({ keep }) => keep === 0)).toHaveLength(2); // the first one, and the one that begins anew
});
