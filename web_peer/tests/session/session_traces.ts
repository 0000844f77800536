/* How traces of an asker are replayed: what it is told, and what it answers, as the vectors write it. */

import { expect } from 'vitest';

import { type OriginEffect, REASONS } from '../../src/session/effects';
import type { Feed, Here, Refuse, Token } from '../../src/wire/generated/frames';
import type { Route } from '../../src/session/routes';
import { samplingOf } from '../../src/session/sampling';
import type { Ask, Heard, OriginSession } from '../../src/session/origin';
import { deepCamel, frameOf, type Row, shown } from '../traces';

export interface Op extends Row {
  readonly do: string;
  readonly now: number;
  readonly gives: Row[];
  readonly after: unknown[];
}

export interface SessionTrace {
  readonly name: string;
  readonly session: string;
  readonly me: string;
  readonly ops: readonly Op[];
}

/** What a trace says of a session after each step. */
export function stateOf(core: OriginSession): unknown[] {
  const { gone, avoid } = core.without;
  return [
    ...[core.phase, core.turn, core.start, core.tokens.length, core.reroutes],
    core.deadline === Infinity ? null : Math.round(core.deadline * 1e6),
    [shown(gone), shown(avoid)],
  ];
}

export function perform(core: OriginSession, op: Op): OriginEffect[] {
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
    case 'move':
      return core.move(now, op['route'] === null ? null : routeOf(op['route'] as Row));
    case 'second':
      return core.secondFrame(now, sender, frame as Token | Refuse | Here | Feed);
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

export function effect(item: OriginEffect): unknown {
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
