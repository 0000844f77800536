/* Decides who gets which event when in a simulated group, and what the effects of its cores do there. */

import { Core } from '../../src/consensus/core';
import type { Message } from '../../src/consensus/messages';
import { Config } from '../../src/consensus/records';
import type { Boot, Deadline, Effect, Event, Persist, Send, StoreSnapshot } from '../../src/consensus/events';
import { decode, encode } from '../../src/consensus/message_codec';
import { Chance } from '../sim/random';
import { Clock } from './clock';
import { Log, Machine, Wrong } from './disk';
import { Invariants } from './invariants';
import { type AnyCore, Member } from './member';
import type { Pace, Schedule } from './schedule';

const MESH = 'mesh';
const MOST_STEPS = 30_000;
const TO_UTF8 = new TextEncoder();

/** What was asked of a core and not answered yet. */
interface Open {
  readonly what: 'read' | 'entry' | 'transfer';
  readonly member: Member;
  readonly boots: number;
  readonly floor: number; // what was applied anywhere when it was asked
}

export type Say = (now: number, who: string, what: string) => void;
export type Record = (member: Member, now: number, event: Event, effects: readonly Effect[]) => void;

/** What a run is made with, beside its schedule. */
export interface Options {
  readonly say?: Say;
  readonly record?: Record;
  readonly makeCore?: () => AnyCore;
}

/** Everything in one run. Raises Wrong when something is. */
export class World {
  readonly schedule: Schedule;
  readonly clock = new Clock();
  readonly chance: Chance;
  readonly invariants: Invariants;
  readonly members = new Map<string, Member>();
  readonly blocked = new Map<string, number>(); // links, until when
  readonly held = new Map<string, number>();
  readonly done = new Map<string, number>(); // how often what happened
  pace: Pace;
  steps = 0;
  private readonly open = new Map<number, Open>();
  private readonly options: Options;
  private ctx = 0;

  constructor(schedule: Schedule, options: Options = {}) {
    this.schedule = schedule;
    this.options = options;
    this.pace = schedule.pace;
    this.chance = new Chance(schedule.seed + 0x51ed);
    this.invariants = new Invariants(schedule.settings);
    const { voters, learners, spares } = schedule;
    const config = new Config(
      [...voters, ...learners].map((id) => ({ id, incarnation: 1, voter: voters.includes(id) })),
    );
    for (const id of [...voters, ...learners, ...spares]) {
      const member = new Member(id);
      this.members.set(id, member);
      if (!voters.includes(id)) continue;
      const machine = new Machine();
      machine.index = 1;
      member.disk.term = 1;
      member.disk.snapshot = { index: 1, term: 1, config, data: machine.data };
      member.disk.log = new Log(2);
    }
    for (const member of this.members.values()) this.boot(member);
  }

  get now(): number {
    return this.clock.now;
  }

  note(what: string): void {
    this.done.set(what, (this.done.get(what) ?? 0) + 1);
  }

  // --- steps

  /** Hands the core of `member` one event and does what it wants. */
  step(member: Member, event: Event): void {
    const { core, boots } = member;
    if (core === null) return;
    this.steps += 1;
    if (this.steps > MOST_STEPS) throw new Wrong(`more than ${MOST_STEPS} steps`);
    const clock = this.now + member.clockMs;
    const coreClock = member.coreClock(this.now);
    const { say, record } = this.options;
    if (event.kind !== 'tick') say?.(this.now, member.id, `<- ${shown(event)}`);
    const effects = core.step(clock, event);
    record?.(member, clock, event, effects);
    for (const effect of effects) {
      if (effect.kind !== 'deadline') say?.(this.now, member.id, `   ${shown(effect)}`);
      this.perform(member, effect);
      if (member.boots !== boots || member.core === null) return; // it crashed while it did that
    }
    if (event.kind === 'tick') this.invariants.ticked(member, coreClock);
  }

  /** The event comes as soon as what goes on now is over, unless the server is down by then. */
  private soon(member: Member, wait: number, event: Event): void {
    const { boots } = member;
    const run = (): void => {
      if (member.boots !== boots || member.core === null) return;
      if (member.pausedUntil > this.now) this.clock.at(member.pausedUntil, run);
      else this.step(member, event);
    };
    this.clock.at(this.now + wait, run);
  }

  private perform(member: Member, effect: Effect): void {
    switch (effect.kind) {
      case 'persist':
        this.invariants.persist(member, effect);
        {
          this.write(member, effect);
          return;
        }
      case 'store_snapshot':
        this.invariants.stores(member, effect);
        {
          this.write(member, effect);
          return;
        }
      case 'send':
        this.send(member, effect);
        return;
      case 'apply':
        this.invariants.applies(member, effect);
        {
          this.sayApplied(member);
          return;
        }
      case 'restore':
        this.invariants.restores(member, effect);
        {
          this.sayApplied(member);
          return;
        }
      case 'read_ready':
        this.invariants.read(member, effect, this.answer(member, effect.ctx, 'read').floor);
        {
          this.note('read');
          return;
        }
      case 'proposed':
        this.answer(member, effect.ctx, 'entry');
        return;
      case 'reject':
        this.answer(member, effect.ctx, null);
        {
          this.note(`rejected: ${effect.reason}`);
          return;
        }
      case 'role':
        this.invariants.became(member, effect, member.coreClock(this.now));
        if (effect.role === 'leader' && member.role !== 'leader') this.note('elected');
        member.role = effect.role;
        member.term = effect.term;
        return;
      case 'deadline':
        this.wakeFor(member, effect);
        return;
      default:
        return effect satisfies never;
    }
  }

  // --- the disk

  private write(member: Member, effect: Persist | StoreSnapshot): void {
    member.disk.waiting.push(effect);
    const { trap, boots } = member;
    if (trap !== null) {
      member.trap = null;
      const crash = (): void => {
        if (member.boots === boots && member.core !== null) this.crash(member, trap.downMs, trap.number >> 1);
      };
      if (trap.number % 2 === 1) crash();
      else this.clock.at(this.now, crash);
      return;
    }
    const { diskMs } = this.pace;
    const wait = (diskMs > 0 ? this.chance.whole(1, diskMs) : 0) + Math.max(0, member.slowUntil - this.now);
    member.diskFreeAt = Math.max(this.now + wait, member.diskFreeAt);
    this.clock.at(member.diskFreeAt, () => {
      if (member.boots === boots && member.core !== null) this.written(member, effect.token);
    });
  }

  private written(member: Member, token: number): void {
    const effect = member.disk.waiting.shift();
    if (effect?.token !== token) throw new Wrong(`${member.id} gives a token out of its order`);
    member.disk.write(effect);
    this.invariants.durable(member, effect);
    this.soon(member, 0, { kind: effect.kind === 'persist' ? 'persisted' : 'snapshot_stored', token });
  }

  private sayApplied(member: Member): void {
    const { index } = member.machine;
    const { boots } = member;
    const { applyMs } = this.pace;
    const wait = applyMs > 0 ? this.chance.whole(0, applyMs) : 0;
    this.clock.at(this.now + wait, () => {
      if (member.boots !== boots || member.core === null || index <= member.saidApplied) return;
      member.saidApplied = index;
      this.soon(member, 0, { kind: 'applied', index });
    });
  }

  // --- the network

  private send(member: Member, { to, message }: Send): void {
    this.invariants.sends(member, to, message);
    if (to === member.id) throw new Wrong(`${to} sends to itself`);
    const { pace, chance, now } = this;
    const link = `${member.id}>${to}`;
    if ((this.blocked.get(link) ?? 0) > now) return;
    if (pace.loss > 0 && chance.next() < pace.loss) return;
    let wait = pace.delayMs + (pace.jitterMs > 0 ? chance.whole(0, pace.jitterMs) : 0);
    if (pace.late > 0 && chance.next() < pace.late) wait += chance.whole(0, pace.lateMs);
    wait += Math.max(0, (this.held.get(link) ?? 0) - now);
    const { id } = member;
    this.clock.at(now + wait, () => this.arrive(id, to, message));
    if (pace.duplicates > 0 && chance.next() < pace.duplicates) {
      this.clock.at(now + wait + chance.whole(0, 500), () => this.arrive(id, to, message));
    }
  }

  private arrive(sender: string, to: string, message: Message): void {
    const member = this.members.get(to);
    if (member === undefined) throw new Wrong(`${sender} sends to ${to}, whom nobody knows`);
    if (member.core === null || (this.blocked.get(`${sender}>${to}`) ?? 0) > this.now) return;
    if (member.pausedUntil > this.now) {
      member.inbox.push({ sender, message });
      return;
    }
    const came = this.schedule.wire ? decode(encode(message)) : message;
    if (came.toIncarnation === member.incarnation) {
      this.invariants.hears(member, came, member.coreClock(this.now));
    }
    this.step(member, { kind: 'received', sender, message: came });
  }

  // --- time

  private wakeFor(member: Member, { atMs }: Deadline): void {
    member.deadline = atMs;
    const when = Math.max(this.now, atMs - member.clockMs);
    if (member.wakeAt !== -1 && when >= member.wakeAt) return;
    const { boots } = member;
    member.wakeAt = when;
    this.clock.at(when, () => {
      if (member.boots !== boots || member.core === null || member.wakeAt !== when) return;
      member.wakeAt = -1;
      if (member.pausedUntil > this.now) return; // it ticks when it goes on
      if (this.now + member.clockMs < member.deadline) {
        this.wakeFor(member, { kind: 'deadline', atMs: member.deadline });
      } else this.step(member, { kind: 'tick' });
    });
  }

  /** It does nothing for a while; what comes meanwhile waits. */
  pause(member: Member, lastsMs: number): void {
    const { boots } = member;
    member.pausedUntil = Math.max(member.pausedUntil, this.now + lastsMs);
    this.clock.at(member.pausedUntil, () => {
      if (member.boots !== boots || member.core === null || member.pausedUntil > this.now) return;
      this.excuse(member);
      const came = member.inbox;
      member.inbox = [];
      const read = (): void => {
        for (const { sender, message } of came) {
          if (member.boots === boots) this.arrive(sender, member.id, message);
        }
      };
      if (this.chance.next() < 0.5) {
        read();
        this.soon(member, 0, { kind: 'tick' });
      } else {
        this.step(member, { kind: 'tick' });
        this.clock.at(this.now, read);
      }
    });
  }

  /** Its clock jumps ahead. */
  jump(member: Member, byMs: number): void {
    member.clockMs += byMs;
    this.excuse(member);
  }

  /** It stood still, or seems to have: a leader may take a heartbeat to find out that it leads no more. */
  private excuse(member: Member): void {
    const { heartbeatMs } = this.schedule.settings;
    member.excusedUntil = member.coreClock(this.now) + 2 * heartbeatMs;
  }

  // --- servers that come and go

  /** Begins anew from the disk. */
  boot(member: Member): void {
    const { disk, id, incarnation } = member;
    member.reborn();
    member.core = this.options.makeCore?.() ?? new Core();
    const place = id.charCodeAt(0);
    const event: Boot = {
      kind: 'boot',
      hardState: disk.hardState,
      snapshot: disk.snapshot,
      entries: [...disk.log.entries],
      meshId: MESH,
      groupEpoch: 1,
      me: id,
      incarnation,
      seed: ((this.schedule.seed * 40503 + place * 9973 + member.boots * 31) % 0xfffffffe) + 1,
      settings: this.schedule.settings,
    };
    this.step(member, event);
  }

  /** All that was not written is lost, but for the first of it; after `downMs` it comes back. */
  crash(member: Member, downMs: number, number: number): void {
    if (member.core === null) return;
    const { disk } = member;
    const survive = number % (disk.waiting.length + 1);
    disk.crash(survive, number % 3 === 0, (effect) => this.invariants.durable(member, effect));
    this.stop(member);
    this.note('crash');
    this.options.say?.(this.now, member.id, `crashes for ${downMs} ms`);
    const { boots } = member;
    this.clock.at(this.now + downMs, () => {
      if (member.core === null && member.boots === boots) this.boot(member);
    });
    for (const other of this.members.values()) {
      if (!other.live(this.now) || this.chance.next() >= 0.3) continue;
      this.soon(other, this.chance.whole(0, 200), { kind: 'unreachable', id: member.id });
    }
  }

  /** It runs no more, and what was asked of it will not be answered. */
  stop(member: Member): void {
    member.core = null;
    member.trap = null;
    for (const [ctx, asked] of this.open) if (asked.member === member) this.open.delete(ctx);
  }

  /** Its storage is lost: it begins as somebody new. */
  wipe(member: Member): void {
    this.stop(member);
    member.disk = new Member(member.id).disk;
    member.incarnation += 1;
    this.note('wipe');
    this.boot(member);
  }

  // --- questions

  /** Asks something of a live server. */
  ask(member: Member, what: Open['what'], make: (ctx: number) => Event): void {
    this.ctx += 1;
    const { boots } = member;
    this.open.set(this.ctx, { what, member, boots, floor: this.invariants.applied });
    this.step(member, make(this.ctx));
  }

  /** A command that no other has. */
  propose(member: Member): Uint8Array {
    const data = TO_UTF8.encode(String(this.ctx + 1));
    this.ask(member, 'entry', (ctx) => ({ kind: 'propose', data, ctx }));
    return data;
  }

  private answer(member: Member, ctx: number, what: Open['what'] | null): Open {
    const asked = this.open.get(ctx);
    this.open.delete(ctx);
    if (asked === undefined || asked.member !== member || asked.boots !== member.boots) {
      throw new Wrong(`${member.id} answers ${ctx}, which nobody asks`);
    }
    if (what !== null && asked.what !== what)
      throw new Wrong(`${member.id} takes a ${asked.what} for a ${what}`);
    return asked;
  }

  /** Reads that were never answered. */
  get unanswered(): number {
    return [...this.open.values()].filter(({ what }) => what === 'read').length;
  }

  // --- who is who

  /** The live leader of the highest term. */
  get leader(): Member | undefined {
    let best: Member | undefined;
    for (const member of this.members.values()) {
      if (
        member.role === 'leader' &&
        member.core !== null &&
        (best === undefined || member.term > best.term)
      ) {
        best = member;
      }
    }
    return best;
  }

  /** The configuration as most would see it now. */
  get view(): Config {
    let best = this.leader;
    if (best !== undefined) return best.config;
    for (const member of this.members.values()) {
      if (member.configs.length === 0) continue;
      const newer =
        best === undefined ||
        member.term > best.term ||
        (member.term === best.term && member.log.last > best.log.last);
      if (newer) best = member;
    }
    return best?.config ?? new Config();
  }
}

function shown(value: unknown): string {
  return JSON.stringify(value, (_, held: unknown) =>
    held instanceof Uint8Array ? `${held.length} bytes` : held,
  );
}
