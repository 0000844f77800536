/*
 * Runs one schedule and says what was wrong with it: during the schedule what must never happen, after it, once
 * everything healed, what must happen: a leader, and an entry of its term applied by everybody it counts.
 */

import { Wrong } from './disk';
import { Happenings } from './happenings';
import { makeSchedule, type Schedule } from './schedule';
import { type Options, World } from './world';

const LIVELY_ELECTIONS = 12; // until everything must be well again
const LOOK_MS = 250;

export interface Report {
  readonly problem: string | null;
  readonly steps: number;
  readonly healedMs: number; // how long it took until all was well
  readonly done: ReadonlyMap<string, number>;
}

export function runSeed(seed: number, options: Options = {}): Report {
  return runSchedule(makeSchedule(seed), options);
}

export function runSchedule(schedule: Schedule, options: Options = {}): Report {
  const world = new World(schedule, options);
  new Happenings(world);
  let problem: string | null = null;
  let healedMs = 0;
  try {
    world.clock.runUntil(schedule.endsMs);
    heal(world);
    healedMs = untilWell(world);
  } catch (error) {
    const known = error instanceof Wrong || options.makeCore !== undefined;
    if (!(error instanceof Error) || !known) throw error;
    problem = error.message;
  }
  return { problem, steps: world.steps, healedMs, done: world.done };
}

/** All links, disks and servers work from now on. */
function heal(world: World): void {
  const { diskMs } = world.pace;
  world.pace = { delayMs: 5, jitterMs: 0, loss: 0, duplicates: 0, late: 0, lateMs: 0, diskMs, applyMs: 0 };
  world.blocked.clear();
  world.held.clear();
  for (const member of world.members.values()) {
    member.slowUntil = 0;
    member.trap = null;
    if (member.core === null) world.boot(member);
  }
}

/** How long it takes. Raises Wrong when it takes too long. */
function untilWell(world: World): number {
  const healed = world.now;
  const latest = healed + LIVELY_ELECTIONS * world.schedule.settings.electionMaxMs;
  const all = [...world.members.values()];
  while (world.now < latest) {
    world.clock.runUntil(world.now + LOOK_MS);
    const { leader, view } = world;
    if (!hopeful(world)) return 0;
    if (leader === undefined) continue;
    if (leader.log.last < 1000) world.propose(leader);
    world.clock.runUntil(world.now + LOOK_MS);
    const counted = all.filter(({ id, incarnation }) => view.byId.get(id)?.incarnation === incarnation);
    const well =
      world.leader === leader &&
      world.invariants.committedTermAt(world.invariants.committed) === leader.term &&
      counted.every(({ machine }) => machine.index === world.invariants.committed) &&
      leader.log.last === world.invariants.committed;
    if (well && world.unanswered === 0) return world.now - healed;
  }
  const stuck = all.map(
    ({ id, role, term, machine, log }) => `${id}:${role}@${term} ${machine.index}/${log.last}`,
  );
  throw new Wrong(
    `not well again long after everything healed: ${stuck.join(' ')}, ${world.unanswered} open`,
  );
}

/** Whether a majority of the voters kept its storage. */
function hopeful(world: World): boolean {
  const voters = world.view.servers.filter(({ voter }) => voter);
  const sound = voters.filter(({ id, incarnation }) => world.members.get(id)?.incarnation === incarnation);
  return 2 * sound.length > voters.length;
}
