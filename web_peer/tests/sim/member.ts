/* One simulated peer: hands frames to the cores and performs what they decide, as the node of a real tab does. */

import type {
  Broken,
  Emit,
  Ended,
  NotRan,
  OriginEffect,
  Ran,
  Spare,
  StageEffect,
} from '../../src/session/effects';
import type { Frame, SessionId } from '../../src/wire/generated/frames';
import { EMPTY_STATE, isAway, type MeshState } from '../../src/state/mesh_state';
import type { PlanRecord } from '../../src/state/generated/commands';
import { type Run, runKey } from '../../src/state/plan_record';
import type { Loaded, PlanStages } from '../../src/session/open_checks';
import { StageCore } from '../../src/session/stage';
import { ANY, choose, type Route } from '../../src/session/routes';
import type { OriginSession, Without } from '../../src/session/origin';
import type { Network } from './network';
import { Worker } from './worker';

const REMEMBERED_PLANS = 4;
const SOONEST_S = 0.005; // between two looks at one session
const TOGETHER = 4; // frames to a shadow that go at once
const TOGETHER_S = 0.03; // and no frame waits longer than this
const NOBODY: Without = { gone: new Set(), avoid: new Set() };

export type Outcome = Emit | Ended | Broken;
export type Say = (who: string, what: string) => void;

/** What all peers of a run have in common. Times in seconds. */
export interface Habits {
  readonly slots: number;
  readonly logSessionBytes: number;
  readonly logTotalBytes: number;
  readonly shadows: boolean;
  readonly keepOnly: boolean;
  readonly tokenS: number;
  readonly patienceS: number; // for an answer to WHERE
  readonly spareLoss: number; // chance that frames to a shadow are dropped
  readonly hopeful: boolean; // whether askers think that the coordinator will find somebody
}

/** A peer of the simulated mesh. `listener` hears what comes of this peer's questions. */
export class Member {
  alive = true;
  frozen = false;
  state: MeshState = EMPTY_STATE;
  core: StageCore;
  worker: Worker;
  mostLogBytes = 0;
  askings = new Map<SessionId, OriginSession>();
  listener: (core: OriginSession, outcome: Outcome) => void = () => undefined;
  suspected: (peer: string) => void = () => undefined;
  readonly network: Network;
  readonly name: string;
  private readonly habits: Habits;
  private readonly say: Say | null;
  private readonly plans = new Map<number, PlanRecord>();
  private readonly armed = new Map<SessionId, number>();
  private readonly spares = new Map<string, Frame[]>();
  private readonly full = new Set<string>();
  private backlog: (() => void)[] = [];
  private incarnation = 0;

  constructor(network: Network, name: string, habits: Habits, say: Say | null) {
    this.network = network;
    this.name = name;
    this.habits = habits;
    this.say = say;
    this.core = this.newCore();
    this.worker = this.newWorker();
    network.ends.set(name, this);
  }

  /** A process that knows nothing. */
  born(): void {
    this.incarnation += 1;
    this.alive = true;
    this.frozen = false;
    this.backlog = [];
    this.mostLogBytes = 0;
    this.core = this.newCore();
    this.worker = this.newWorker();
    this.askings = new Map();
    this.plans.clear();
    this.armed.clear();
    this.spares.clear();
    this.full.clear();
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
      this.spares.delete(peer);
      this.perform(this.core.peerGone(this.network.now, peer));
      for (const core of [...this.askings.values()]) {
        this.performOrigin(core, core.peerGone(this.network.now, peer, `peer ${peer} was lost`));
      }
    });
  }

  connected(peer: string): void {
    this.awake(() => {
      this.say?.(this.name, `is connected to ${peer} again`);
      for (const core of [...this.askings.values()]) {
        core.peerBack(peer);
        if (core.phase !== 'rerouting') continue;
        this.find(core);
        this.arm(core);
      }
    });
  }

  private frame(sender: string, frame: Frame): void {
    const { now } = this.network;
    this.say?.(this.name, `<- ${sender}: ${shown(frame)}`);
    switch (frame.kind) {
      case 'STEP':
        this.perform(this.core.step(now, sender, frame));
        break;
      case 'TOKEN': {
        const effects = this.core.token(now, sender, frame);
        this.asking(frame.session, (core) => core.token(now, sender, frame));
        this.perform(effects);
        break;
      }
      case 'OPEN':
        this.perform(this.core.open(now, sender, frame));
        break;
      case 'FEED': {
        const effects = this.core.feed(now, sender, frame);
        if (frame.stage === 0) this.asking(frame.session, (core) => core.feed(now, sender, frame));
        this.perform(effects);
        break;
      }
      case 'WHERE':
        this.perform(this.core.where(sender, frame));
        break;
      case 'CANCEL':
        this.perform(this.core.cancel(sender, frame));
        break;
      case 'RELEASE':
        this.perform(this.core.release(sender, frame));
        break;
      case 'REFUSE':
        this.asking(frame.session, (core) => core.refused(now, sender, frame));
        break;
      case 'HERE':
        this.asking(frame.session, (core) => core.here(now, sender, frame));
        break;
      default:
        throw new Error(`${frame.kind} is no frame of a session`);
    }
  }

  private asking(session: SessionId, decide: (core: OriginSession) => OriginEffect[]): void {
    const core = this.askings.get(session);
    if (core !== undefined) this.performOrigin(core, decide(core));
  }

  private result(result: Ran | NotRan): void {
    const { now } = this.network;
    this.say?.(this.name, `ran: ${shown(result)}`);
    this.perform('reason' in result ? this.core.notRan(now, result) : this.core.ran(now, result));
    this.mostLogBytes = Math.max(this.mostLogBytes, this.core.logBytes);
  }

  // --- what is done

  perform(effects: readonly StageEffect[]): void {
    const spares: Spare[] = [];
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          this.network.send(this.name, effect.peer, effect.frame);
          break;
        case 'spare':
          spares.push(effect);
          break;
        case 'runStep':
          this.worker.submit(effect);
          break;
        case 'freeSlot':
          this.worker.free(effect.run, effect.session);
          break;
        case 'prefixWork':
          throw new Error('nobody names the front of a prompt here');
        default:
          effect satisfies never;
      }
    }
    for (const { peer, frame } of spares) this.spare(peer, frame);
  }

  performOrigin(core: OriginSession, effects: readonly OriginEffect[]): void {
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          this.network.send(this.name, effect.peer, effect.frame);
          break;
        case 'spare':
          this.spare(effect.peer, effect.frame);
          break;
        case 'emit':
        case 'ended':
        case 'broken':
          this.listener(core, effect);
          break;
        case 'findRoute':
          if (!effect.soon) this.find(core);
          break;
        case 'suspect':
          this.suspected(effect.peer);
          this.later(0, () => {
            this.hint(effect.peer);
          });
          break;
        default:
          effect satisfies never;
      }
    }
    this.arm(core);
  }

  /** The best route now, if there is one. */
  route({ gone, avoid }: Without = NOBODY): Route | null {
    const { plan } = this.state;
    return plan === null
      ? null
      : choose(this.state, plan, { ...ANY, gone, avoid, shadows: this.habits.shadows });
  }

  /** Somebody thinks that `peer` is lost. */
  hint(peer: string): void {
    for (const core of [...this.askings.values()])
      this.performOrigin(core, core.hint(this.network.now, peer));
  }

  congestion(peer: string, full: boolean): void {
    if (full) this.full.add(peer);
    else this.full.delete(peer);
    this.perform(this.core.congestion(peer, full));
  }

  private find(core: OriginSession): void {
    if (!asking(core)) return;
    const route = this.route(core.without);
    if (route === null) core.hope(this.habits.hopeful);
    else this.performOrigin(core, core.reroute(this.network.now, route));
  }

  private arm(core: OriginSession): void {
    const due = core.deadline;
    const armed = this.armed.get(core.session);
    if (due === Infinity || (armed !== undefined && armed <= due)) return;
    const when = Math.max(due, this.network.now + SOONEST_S);
    this.armed.set(core.session, when);
    this.later(when - this.network.now, () => {
      this.fire(core, when);
    });
  }

  private fire(core: OriginSession, when: number): void {
    if (this.armed.get(core.session) !== when) return;
    this.armed.delete(core.session);
    if (this.askings.get(core.session) !== core) return;
    if (this.network.now >= core.deadline) {
      for (const peer of core.route) core.patienceS.set(peer, this.habits.patienceS);
      this.performOrigin(core, core.tick(this.network.now));
    }
    this.arm(core);
  }

  private spare(peer: string, frame: Frame): void {
    const waiting = this.spares.get(peer) ?? [];
    waiting.push(frame);
    this.spares.set(peer, waiting);
    if (waiting.length >= TOGETHER) this.flush(peer, waiting);
    else if (waiting.length === 1) {
      this.later(TOGETHER_S, () => {
        this.flush(peer, waiting);
      });
    }
  }

  private flush(peer: string, waiting: readonly Frame[]): void {
    if (this.spares.get(peer) !== waiting) return;
    this.spares.delete(peer);
    if (this.full.has(peer) || this.network.luck() < this.habits.spareLoss) return;
    for (const frame of waiting) this.network.send(this.name, peer, frame);
  }

  // --- what the mesh knows

  /** The log went on. */
  know(state: MeshState): void {
    if (state.index <= this.state.index) return;
    const fresh = [...state.members.keys()].filter((peer) => !this.state.members.has(peer));
    this.state = state;
    for (const plan of [state.plan, state.proposed]) if (plan !== null) this.plans.set(plan.version, plan);
    for (const version of [...this.plans.keys()].sort((a, b) => a - b).slice(0, -REMEMBERED_PLANS)) {
      this.plans.delete(version);
    }
    this.hold();
    for (const core of [...this.askings.values()]) {
      const lacked = lacks(core);
      for (const peer of fresh) core.peerBack(peer);
      for (const peer of asking(core) ? core.route : []) {
        const member = state.members.get(peer);
        if (member === undefined || isAway(member)) {
          this.performOrigin(core, core.peerGone(this.network.now, peer, `peer ${peer} left the mesh`));
        }
      }
      if (!lacked && !lacks(core)) continue;
      this.find(core);
      this.arm(core);
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
    this.perform(this.core.tick(this.network.now));
  }

  private hold(): void {
    const plans = new Map<number, PlanStages>();
    for (const [version, plan] of this.plans) {
      plans.set(
        version,
        plan.stages.map(({ primary, standbys, first, stop }) => ({
          peers: [primary, ...standbys],
          run: { first, stop },
        })),
      );
    }
    const { slots } = this.habits;
    const loaded: Loaded[] = [...this.worker.caches.values()].map(({ run }) => ({ run, slots }));
    this.core.serve(plans, loaded);
  }

  private awake(call: () => void): void {
    if (this.frozen) this.backlog.push(call);
    else call();
  }

  private newCore(): StageCore {
    const core = new StageCore(this.name);
    core.protect(this.habits.keepOnly, this.habits.logSessionBytes, this.habits.logTotalBytes);
    return core;
  }

  private newWorker(): Worker {
    return new Worker(
      (afterS, call) => {
        this.later(afterS, call);
      },
      (result) => {
        this.result(result);
      },
      this.habits.tokenS,
    );
  }
}

function asking({ phase }: OriginSession): boolean {
  return phase === 'prefill' || phase === 'decode' || phase === 'rerouting';
}

/** Whether there are peers that this session does without. */
function lacks({ without: { gone, avoid } }: OriginSession): boolean {
  return gone.size + avoid.size > 0;
}

/** A frame or result for the trace. */
function shown(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    ArrayBuffer.isView(inner) ? [...new Uint8Array(inner.buffer, inner.byteOffset, inner.byteLength)] : inner,
  );
}
