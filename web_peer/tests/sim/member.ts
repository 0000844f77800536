/* One simulated peer: hands frames to the cores and performs what they decide, as the node of a real tab does. */

import type { Frame, SessionId } from '../../src/frames';
import {
  EMPTY_STATE,
  isAway,
  type MeshState,
  type PlanRecord,
  type Run,
  runKey,
  serving,
} from '../../src/mesh_state';
import {
  type Loaded,
  type NotRan,
  pick,
  type PlanStages,
  type Ran,
  type RunStep,
  StageCore,
  type StageEffect,
} from '../../src/pipeline';
import type { Broken, Emit, Ended, OriginEffect, OriginSession } from '../../src/session';
import type { Network } from './network';
import { Cache, fromHidden, logitsOf, toHidden } from './toy';

const REMEMBERED_PLANS = 4;
export type Outcome = Emit | Ended | Broken;
export type Say = (who: string, what: string) => void;

/** The sessions that a peer's units hold, by `runKey`. */
type Caches = Map<string, { readonly run: Run; readonly sessions: Map<SessionId, Cache> }>;

/** What a peer computes, one step after the other, in virtual time. */
export class Worker {
  slowUntil = 0;
  readonly caches: Caches = new Map();
  private readonly member: Member;
  private readonly tokenS: number;
  private waiting: RunStep[] = [];
  private running: RunStep | null = null;
  private released = false;

  constructor(member: Member, tokenS: number) {
    this.member = member;
    this.tokenS = tokenS;
  }

  submit(step: RunStep): void {
    this.waiting.push(step);
    this.next();
  }

  /** Forgets the session; what waits of it is dropped without an answer. */
  free(run: Run, session: SessionId): void {
    const mine = (step: RunStep): boolean => step.session === session && runKey(step.run) === runKey(run);
    this.caches.get(runKey(run))?.sessions.delete(session);
    this.waiting = this.waiting.filter((step) => !mine(step));
    if (this.running !== null && mine(this.running)) this.released = true;
  }

  private next(): void {
    if (this.running !== null) return;
    const step = this.waiting.shift();
    if (step === undefined) return;
    this.running = step;
    this.released = false;
    const slow = this.member.network.now < this.slowUntil ? 10 : 1;
    this.member.later(this.tokenS * (1 + step.count / 8) * slow, () => {
      this.running = null;
      const result = this.run(step);
      if (this.released) this.caches.get(runKey(step.run))?.sessions.delete(step.session);
      this.member.result(result);
      this.next();
    });
  }

  private run(step: RunStep): Ran | NotRan {
    const { session, turn, position } = step;
    const mine = this.caches.get(runKey(step.run));
    if (mine === undefined) {
      return { session, turn, position, have: 0, reason: 'unknown_plan', text: 'not loaded' };
    }
    let cache = mine.sessions.get(session);
    const have = cache?.rows.length ?? 0;
    if (position > have) {
      return { session, turn, position, have, reason: 'missing_position', text: `has ${have} positions` };
    }
    if (cache === undefined) {
      cache = new Cache(step.run);
      mine.sessions.set(session, cache);
    }
    const values =
      step.tokens !== null
        ? Array.from(step.tokens, (token) => token + 1)
        : fromHidden(step.hidden ?? new Float32Array());
    const numbers = cache.take(position, values, step.prompt || values.length > 1);
    const token = step.pick === null ? null : pick(step.pick, logitsOf(numbers.at(-1) ?? 0));
    return { session, turn, position, count: values.length, hidden: toHidden(numbers), token };
  }
}

/** A peer of the simulated mesh. `listener` hears what comes of this peer's questions. */
export class Member {
  alive = true;
  frozen = false;
  state: MeshState = EMPTY_STATE;
  core: StageCore;
  worker: Worker;
  askings = new Map<SessionId, OriginSession>();
  listener: (core: OriginSession, outcome: Outcome) => void = () => undefined;
  readonly network: Network;
  readonly name: string;
  private readonly slots: number;
  private readonly tokenS: number;
  private readonly say: Say | null;
  private readonly plans = new Map<number, PlanRecord>();
  private backlog: (() => void)[] = [];
  private incarnation = 0;

  constructor(network: Network, name: string, slots: number, tokenS: number, say: Say | null) {
    this.network = network;
    this.name = name;
    this.slots = slots;
    this.tokenS = tokenS;
    this.say = say;
    this.core = new StageCore(name);
    this.worker = new Worker(this, tokenS);
    network.ends.set(name, this);
  }

  /** A process that knows nothing. */
  born(): void {
    this.incarnation += 1;
    this.alive = true;
    this.frozen = false;
    this.backlog = [];
    this.core = new StageCore(this.name);
    this.worker = new Worker(this, this.tokenS);
    this.askings = new Map();
    this.plans.clear();
    this.state = EMPTY_STATE;
  }

  // --- time

  /** `call` after so long, unless this process is gone by then; a frozen one does it when it thaws. */
  later(afterS: number, call: () => void): void {
    const { incarnation } = this;
    this.network.at(this.network.now + afterS, () => {
      if (this.alive && incarnation === this.incarnation) this.awake(call);
    });
  }

  freeze(): void {
    this.frozen = true;
  }

  thaw(): void {
    this.frozen = false;
    const waited = this.backlog;
    this.backlog = [];
    for (const call of waited) call();
  }

  // --- what comes

  take(sender: string, frame: Frame): void {
    this.awake(() => {
      this.frame(sender, frame);
    });
  }

  lost(peer: string): void {
    this.awake(() => {
      this.say?.(this.name, `lost the connection to ${peer}`);
      this.perform(this.core.peerGone(peer));
      for (const core of [...this.askings.values()]) {
        this.performOrigin(core, core.peerGone(this.network.now, peer, `peer ${peer} was lost`));
      }
    });
  }

  result(result: Ran | NotRan): void {
    this.say?.(this.name, `ran: ${shown(result)}`);
    this.perform('reason' in result ? this.core.notRan(result) : this.core.ran(this.network.now, result));
  }

  private frame(sender: string, frame: Frame): void {
    const { now } = this.network;
    this.say?.(this.name, `<- ${sender}: ${shown(frame)}`);
    switch (frame.kind) {
      case 'STEP':
        this.perform(this.core.step(now, sender, frame));
        break;
      case 'TOKEN': {
        this.perform(this.core.token(now, sender, frame));
        const asking = this.askings.get(frame.session);
        if (asking !== undefined) this.performOrigin(asking, asking.token(now, sender, frame));
        break;
      }
      case 'OPEN':
        this.perform(this.core.open(now, sender, frame));
        break;
      case 'CANCEL':
        this.perform(this.core.cancel(sender, frame));
        break;
      case 'RELEASE':
        this.perform(this.core.release(sender, frame));
        break;
      case 'REFUSE': {
        const asking = this.askings.get(frame.session);
        if (asking !== undefined) this.performOrigin(asking, asking.refused(now, sender, frame));
        break;
      }
      default:
        throw new Error(`${frame.kind} is no frame of a session`);
    }
  }

  // --- what is done

  perform(effects: readonly StageEffect[]): void {
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          this.network.send(this.name, effect.peer, effect.frame);
          break;
        case 'runStep':
          this.worker.submit(effect);
          break;
        case 'freeSlot':
          this.worker.free(effect.run, effect.session);
          break;
        default:
          effect satisfies never;
      }
    }
  }

  performOrigin(core: OriginSession, effects: readonly OriginEffect[]): void {
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          this.network.send(this.name, effect.peer, effect.frame);
          break;
        case 'emit':
        case 'ended':
        case 'broken':
          this.listener(core, effect);
          break;
        case 'findRoute':
          if (!effect.soon) this.tryRoute(core);
          break;
        default:
          effect satisfies never;
      }
    }
  }

  private tryRoute(core: OriginSession): void {
    const plan = serving(this.state);
    if (plan !== null && core.phase === 'rerouting') {
      this.performOrigin(core, core.reroute(this.network.now, plan));
    }
  }

  // --- what the mesh knows

  /** The log went on. */
  know(state: MeshState): void {
    if (state.index <= this.state.index) return;
    this.state = state;
    for (const plan of [state.plan, state.proposed]) if (plan !== null) this.plans.set(plan.version, plan);
    for (const version of [...this.plans.keys()].sort((a, b) => a - b).slice(0, -REMEMBERED_PLANS)) {
      this.plans.delete(version);
    }
    this.hold();
    for (const core of [...this.askings.values()]) {
      for (const peer of core.route) {
        const member = state.members.get(peer);
        if (member === undefined || isAway(member)) {
          this.performOrigin(core, core.peerGone(this.network.now, peer, `peer ${peer} left`));
        }
      }
      this.tryRoute(core);
    }
  }

  load(run: Run): void {
    if (!this.worker.caches.has(runKey(run)))
      this.worker.caches.set(runKey(run), { run, sessions: new Map() });
    this.hold();
  }

  unload(run: Run): void {
    this.perform(this.core.drop(run));
    this.worker.caches.delete(runKey(run));
    this.hold();
  }

  tick(): void {
    const { now } = this.network;
    this.perform(this.core.tick(now));
    for (const core of [...this.askings.values()]) {
      this.tryRoute(core);
      this.performOrigin(core, core.tick(now));
    }
  }

  private hold(): void {
    const plans = new Map<number, PlanStages>();
    for (const [version, plan] of this.plans) {
      plans.set(
        version,
        plan.stages.map(({ primary, first, stop }) => ({ peer: primary, run: { first, stop } })),
      );
    }
    const loaded: Loaded[] = [...this.worker.caches.values()].map(({ run }) => ({ run, slots: this.slots }));
    this.core.serve(plans, loaded);
  }

  private awake(call: () => void): void {
    if (this.frozen) this.backlog.push(call);
    else call();
  }
}

/** A frame or result for the trace. */
function shown(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    ArrayBuffer.isView(inner) ? [...new Uint8Array(inner.buffer, inner.byteOffset, inner.byteLength)] : inner,
  );
}
