/* Decides what an action of a schedule does, and to whom: roles become servers when the action happens. */

import type { Change } from '../../src/consensus/events';
import type { Member } from './member';
import type { Action, Who } from './schedule';
import type { World } from './world';

const HINT_MS = 40; // until a cut link is noticed, where it is

/** Makes things happen in a world. */
export class Happenings {
  private readonly world: World;
  private oldLeader: Member | undefined; // whom the last action on a leader meant
  private last: Member | undefined; // whom the last action on anybody else meant

  constructor(world: World) {
    this.world = world;
    for (const action of world.schedule.actions) world.clock.at(action.atMs, () => this.happen(action));
  }

  private find(who: Who, number: number): Member | undefined {
    const { world } = this;
    if (who === 'leader') {
      const { leader } = world;
      if (leader !== undefined) this.oldLeader = leader;
      return leader;
    }
    if (who === 'old_leader') return this.oldLeader;
    if (who === 'last') return this.last;
    const { byId } = world.view;
    const fitting = [...world.members.values()].filter((member) => {
      const listed = byId.get(member.id);
      switch (who) {
        case 'any':
          return true;
        case 'voter':
          return listed?.voter === true;
        case 'follower':
          return listed?.voter === true && member !== world.leader;
        case 'learner':
          return listed?.voter === false;
        case 'outside':
          return listed === undefined;
        default:
          return who satisfies never;
      }
    });
    this.last = fitting[number % fitting.length] ?? this.last;
    return fitting[number % fitting.length];
  }

  private happen(action: Action): void {
    const { kind, who, other, lastsMs, number } = action;
    const { world } = this;
    const member = this.find(who, number);
    if (member === undefined) return;
    const live = member.live(world.now);
    switch (kind) {
      case 'propose':
        if (live) world.propose(member);
        break;
      case 'read':
        if (live) world.ask(member, 'read', (ctx) => ({ kind: 'read', ctx }));
        break;
      case 'crash':
        world.crash(member, Math.max(1, lastsMs), number);
        break;
      case 'crash_at_write':
        if (live) member.trap = { downMs: Math.max(1, lastsMs), number };
        break;
      case 'restart_all':
        for (const each of world.members.values()) world.crash(each, Math.max(1, lastsMs), number);
        break;
      case 'wipe':
        if (this.mayWipe(member)) world.wipe(member);
        break;
      case 'pause':
        if (live) world.pause(member, lastsMs);
        break;
      case 'jump':
        world.jump(member, lastsMs);
        break;
      case 'slow_disk':
        member.slowUntil = Math.max(member.slowUntil, world.now + lastsMs);
        break;
      case 'compact':
        if (live && member.saidApplied > 0 && member.machine.index === member.saidApplied) {
          const { index, data } = member.machine;
          world.step(member, { kind: 'compact', index, data });
        }
        break;
      case 'transfer': {
        const to = this.find(other === 'any' ? 'voter' : other, number + 1);
        if (live && to !== undefined) {
          world.ask(member, 'transfer', (ctx) => ({ kind: 'transfer', to: to.id, ctx }));
        }
        break;
      }
      case 'unreachable': {
        const gone = this.find(other, number + 1);
        if (live && gone !== undefined) world.step(member, { kind: 'unreachable', id: gone.id });
        break;
      }
      case 'add':
      case 'promote':
      case 'demote':
      case 'remove':
        this.change(kind, member, other);
        break;
      default:
        this.cut(kind, member, action);
    }
  }

  private change(kind: 'add' | 'promote' | 'demote' | 'remove', { id, incarnation }: Member, by: Who): void {
    const leader = this.find(by === 'old_leader' ? by : 'leader', 0);
    if (leader?.live(this.world.now) !== true) return;
    const change: Change = kind === 'add' ? { kind: 'add_learner', id, incarnation } : { kind, id };
    this.world.ask(leader, 'entry', (ctx) => ({ kind: 'change_config', change, ctx }));
  }

  /** A majority of every configuration that somebody may believe in keeps its storage. */
  private mayWipe(victim: Member): boolean {
    const { members } = this.world;
    const sound = (id: string, incarnation: number): boolean =>
      id !== victim.id && members.get(id)?.incarnation === incarnation;
    return [...members.values()].every(({ configs }) =>
      configs.every(({ config }) => {
        const voters = config.servers.filter(({ voter }) => voter);
        return 2 * voters.filter(({ id, incarnation }) => sound(id, incarnation)).length > voters.length;
      }),
    );
  }

  private cut(
    kind: 'isolate' | 'cut' | 'cut_to' | 'cut_from' | 'cut_but_one' | 'bridge' | 'stall',
    member: Member,
    { other, lastsMs, number }: Action,
  ): void {
    const { world } = this;
    const names = [...world.members.keys()].filter((name) => name !== member.id);
    const until = world.now + lastsMs;
    const on = (links: Map<string, number>, from: string, to: string): void => {
      links.set(`${from}>${to}`, Math.max(until, links.get(`${from}>${to}`) ?? 0));
    };
    const both = (from: string, to: string): void => {
      on(world.blocked, from, to);
      on(world.blocked, to, from);
      if (number % 3 === 0) this.hint(from, to);
    };
    switch (kind) {
      case 'isolate':
        for (const name of names) both(member.id, name);
        break;
      case 'cut_but_one':
        for (const [at, name] of names.entries()) if (at !== number % names.length) both(member.id, name);
        break;
      case 'cut': {
        const end = this.find(other, number + 1);
        if (end !== undefined && end !== member) both(member.id, end.id);
        break;
      }
      case 'cut_to':
        for (const name of names) on(world.blocked, name, member.id);
        break;
      case 'cut_from':
        for (const name of names) on(world.blocked, member.id, name);
        break;
      case 'bridge': {
        const half = names.filter((_, at) => at % 2 === number % 2);
        for (const a of half) for (const b of names) if (!half.includes(b)) both(a, b);
        break;
      }
      case 'stall':
        for (const name of names) {
          on(world.held, member.id, name);
          if (number % 2 === 0) on(world.held, name, member.id);
        }
        break;
      default:
        kind satisfies never;
    }
  }

  /** Both ends hear that their connection closed. */
  private hint(one: string, two: string): void {
    const { world } = this;
    for (const [id, gone] of [
      [one, two],
      [two, one],
    ] as const) {
      world.clock.at(world.now + HINT_MS, () => {
        const member = world.members.get(id);
        if (member?.live(world.now) === true) world.step(member, { kind: 'unreachable', id: gone });
      });
    }
  }
}
