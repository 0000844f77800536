/*
 * What other plans there would be, beside the one in force: those that its planner compared it with, as the log has
 * them; where that has none, one peer alone, a stage on somebody else, one peer less. Pure.
 *
 * The latter are reckoned here, from what the peers measured of themselves: no search, but figures that compare.
 */

import type { ChoiceView } from '../app/view';
import { type Held, heldPlan, planOf } from '../../src/coordination/held_plan';
import type { MeshState } from '../../src/state/mesh_state';
import type { PlanRecord } from '../../src/state/generated/commands';
import { planRequest, type PlannerUnit, type PlanRequest } from '../../src/coordination/plan_request';
import { runText } from '../kit/formatting';

const MOST_PEERS = 12; // whose places are tried; in larger meshes only those who stand by
const MOST_SHOWN = 10;
const NOTHING_HELD: Held = new Map();

type Found = Pick<PlanRecord, 'stages' | 'predictedTokenUs' | 'predictedRateMilli'>;
type Places = readonly Pick<PlanRecord['stages'][number], 'first' | 'stop' | 'primary'>[];

const PLACE = /^(\S{1,128}) (\d{1,6})-(\d{1,6})$/;
const BETWEEN = ' > ';

/** What the planner compared, as the record has it: fastest first, then what cannot run; [] where it has nothing. */
export function comparedChoices(
  { choices }: PlanRecord,
  units: number,
  called: (peer: string) => string,
  readable: (text: string) => string,
): readonly ChoiceView[] {
  const front = choices.filter(({ best }) => best);
  return choices.map((choice) => {
    const places = choice.name.split(BETWEEN).map((part) => PLACE.exec(part));
    const stages = places.flatMap((found) =>
      found === null
        ? []
        : [{ peer: called(found[1] ?? ''), run: [Number(found[2]), Number(found[3])] as const }],
    );
    const whole = stages.length === places.length;
    const route = stages.map(({ peer, run }) => `${peer} (${runText(run, units)})`).join(' → ');
    const [only] = stages;
    const alone = stages.length === 1 && only !== undefined ? `${only.peer} alone` : '';
    const words = (): string => {
      if (choice.chosen) return 'this plan';
      if (choice === front[0]) return 'fastest for one';
      if (choice === front.at(-1)) return 'most for all';
      if (choice.knee) return 'a bit of both';
      return alone === '' ? 'another one' : alone;
    };
    const able = choice.tokenUs > 0;
    return {
      words: able ? words() : readable(choice.name),
      route: able ? (whole ? route : readable(choice.name)) : '',
      tokenMs: choice.tokenUs / 1000,
      perS: choice.rateMilli / 1000,
      chosen: choice.chosen,
      onFront: choice.best,
      knee: choice.knee,
      able,
      promptMs: choice.prefillUs / 1000,
      memoryBytes: choice.memoryBytes,
      whyNot: readable(choice.whyNot),
    };
  });
}

/** Fastest first; [] where the plan in force cannot be reckoned here, or nothing else could be. */
export function choicesOf(
  state: MeshState,
  units: readonly PlannerUnit[],
  plan: PlanRecord,
  called: (peer: string) => string,
): readonly ChoiceView[] {
  const request = planRequest(state, units);
  const known = new Map<
    string,
    { readonly words: string; readonly found: Found; readonly chosen: boolean }
  >();
  const add = (words: string, found: Found | null, chosen = false): void => {
    const key = found?.stages.map(({ first, stop, primary }) => `${first}-${stop} ${primary}`).join();
    if (found !== null && key !== undefined && !known.has(key)) known.set(key, { words, found, chosen });
  };
  const reckon = (places: Places): Found | null => planOf(request, places, NOTHING_HELD, []);
  const now = units.length === 0 ? null : reckon(plan.stages);
  if (now === null) return [];
  add('this plan', now, true);
  for (const { peer } of request.peers.slice(0, MOST_PEERS)) {
    add(`${called(peer)} alone`, reckon([{ first: 0, stop: units.length, primary: peer }]));
  }
  for (const [at, { first, stop, standbys }] of plan.stages.entries()) {
    for (const peer of takersOf(request, standbys)) {
      if (plan.stages.some(({ primary }) => primary === peer)) continue; // it would have two of them
      const places = plan.stages.map((stage, place) =>
        place === at ? { first, stop, primary: peer } : stage,
      );
      add(`${runText([first, stop], units.length)} on ${called(peer)}`, reckon(places));
    }
  }
  for (const peer of new Set(plan.stages.map(({ primary }) => primary))) {
    const held = new Map([...state.members].map(([id, member]) => [id, id === peer ? [] : member.held]));
    const less = planRequest(state, units, new Set([peer]));
    add(`without ${called(peer)}`, heldPlan(less, held, plan.stages));
  }
  if (known.size < 2) return [];
  return shown([...known.values()], called);
}

function takersOf({ peers }: PlanRequest, standbys: readonly string[]): readonly string[] {
  return peers.length > MOST_PEERS ? standbys : peers.map(({ peer }) => peer);
}

function shown(
  known: readonly { readonly words: string; readonly found: Found; readonly chosen: boolean }[],
  called: (peer: string) => string,
): readonly ChoiceView[] {
  const all = known.map(({ words, found, chosen }) => ({
    words,
    route: found.stages.map(({ primary }) => called(primary)).join(' → '),
    tokenMs: found.predictedTokenUs / 1000,
    perS: found.predictedRateMilli / 1000,
    chosen,
    ...{ knee: false, able: true, promptMs: 0, memoryBytes: 0, whyNot: '' },
  }));
  const beats = (a: (typeof all)[number], b: (typeof all)[number]): boolean =>
    a.tokenMs <= b.tokenMs && a.perS >= b.perS && (a.tokenMs < b.tokenMs || a.perS > b.perS);
  const marked = all
    .map((one) => ({ ...one, onFront: !all.some((other) => beats(other, one)) }))
    .sort((a, b) => a.tokenMs - b.tokenMs || b.perS - a.perS || (a.words < b.words ? -1 : 1));
  const kept = marked.filter(({ chosen, onFront }) => chosen || onFront);
  const rest = marked.filter((one) => !kept.includes(one)).slice(0, Math.max(0, MOST_SHOWN - kept.length));
  return marked.filter((one) => kept.includes(one) || rest.includes(one));
}
