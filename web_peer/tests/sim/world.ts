/*
 * Runs one schedule and says what was wrong with it: who asks, what goes wrong when, and what must hold.
 *
 * What must hold: every answer's tokens are those of the undisturbed run, each position shown once and in order; every
 * question ends, and fails only when no peer that holds some stage was there for long enough; afterwards no seat, slot
 * or log is left anywhere; logs stay within their bounds.
 */

import { runKey } from '../../src/state/plan_record';
import { LEASE_S } from '../../src/session/stage';
import { type Ask, HOPE_S, OriginSession } from '../../src/session/origin';
import { forged, seatsOf } from './forgery';
import { type Habits, Member, type Outcome, type Say } from './member';
import { Mesh } from './mesh';
import { Network } from './network';
import { Chance } from './random';
import type { Fault, FaultKind, Schedule, Talk } from './schedule';
import { Reference } from './toy';

const TICK_S = 0.25;
const END_S = 400; // of virtual time: every question has ended long before
const MOST_EVENTS = 60_000;
const PLAN_WAIT_S = 20;
const QUIET_S = 0.3; // after an answer, everybody has heard of its end
const GAP_S = 0.2; // without a holder for so long, an answer may fail that hopes for nobody: news take their time
const HOPEFUL_GAP_S = 0.6 * HOPE_S;

/** One session as a person sees it. */
class Speaker {
  core: OriginSession | null = null;
  turn = -1;
  prompt: readonly number[] = [];
  shown: number[] = [];
  expected: readonly number[] = [];
  begunS = 0;
  busy = false;
  ended = false;
  readonly reference = new Reference();
  readonly talk: Talk;

  constructor(talk: Talk) {
    this.talk = talk;
  }
}

export interface Report {
  readonly seed: number;
  readonly problems: readonly string[];
  readonly ended: number;
  readonly failed: number;
  readonly events: number;
}

/** Everything in one run. */
export class World {
  readonly network: Network;
  private readonly problems: string[] = [];
  private readonly schedule: Schedule;
  private readonly chance: Chance;
  private readonly members: ReadonlyMap<string, Member>;
  private readonly mesh: Mesh;
  private readonly speakers: ReadonlyMap<string, Speaker>;
  private readonly gaps: [number, number][] = []; // when some stage had no holder
  private gapFrom: number | null = null;
  private readonly vanished = new Set<string>();
  private readonly stays: boolean;
  private readonly disturbed: boolean;
  private ended = 0;
  private failed = 0;
  private readonly say: Say | null;

  constructor(schedule: Schedule, say: Say | null = null) {
    this.schedule = schedule;
    this.say = say;
    this.chance = new Chance(schedule.seed + 1_000_003);
    const { pace, peers, askers, standbysDo } = schedule;
    this.network = new Network(this.chance, pace);
    const habits: Habits = {
      slots: schedule.slots,
      logSessionBytes: schedule.logBytes,
      logTotalBytes: 2 * schedule.logBytes,
      shadows: standbysDo !== 'nothing',
      keepOnly: standbysDo === 'keep',
      tokenS: pace.tokenS,
      patienceS: pace.patienceS,
      spareLoss: pace.spareLoss,
      hopeful: schedule.hopeful,
    };
    this.stays = schedule.talks.some((talk) => talk.stays);
    const upsets: ReadonlySet<FaultKind> = new Set(['freeze', 'spike', 'full', 'slow', 'drop']);
    this.disturbed = schedule.faults.some((fault) => upsets.has(fault.kind));
    this.members = new Map(
      [...new Set([...peers, ...askers])].map((name) => [name, new Member(this.network, name, habits, say)]),
    );
    this.mesh = new Mesh(this.network, this.chance, this.members, peers, schedule.plan);
    this.speakers = new Map(schedule.talks.map((talk) => [talk.session, new Speaker(talk)]));
    this.mesh.onState = () => {
      this.lookForGaps();
    };
  }

  run(): Report {
    for (const member of this.members.values()) {
      member.listener = (core, outcome) => {
        this.heard(core, outcome);
      };
      member.suspected = (peer) => {
        this.mesh.suspected(peer);
      };
    }
    for (const fault of this.schedule.faults) {
      this.network.at(fault.atS, () => {
        this.fault(fault);
      });
    }
    for (const speaker of this.speakers.values()) {
      this.network.at(this.chance.next() * 0.1, () => {
        this.ask(speaker, 0);
      });
    }
    this.tick();
    let events = 0;
    while (this.network.step(END_S)) {
      events += 1;
      if (events > MOST_EVENTS) {
        this.problems.push(`more than ${MOST_EVENTS} events`);
        break;
      }
    }
    this.finish();
    return {
      seed: this.schedule.seed,
      problems: this.problems,
      ended: this.ended,
      failed: this.failed,
      events,
    };
  }

  // --- asking

  private ask(speaker: Speaker, waited: number): void {
    const { talk } = speaker;
    const member = this.member(talk.asker);
    if (!member.alive || speaker.ended) {
      speaker.ended = true;
      return;
    }
    const route = member.route();
    if (member.frozen || route === null) {
      if (waited * 0.1 > PLAN_WAIT_S) {
        speaker.ended = true;
        this.release(speaker);
        return;
      }
      this.network.at(this.network.now + 0.1, () => {
        this.ask(speaker, waited + 1);
      });
      return;
    }
    if (speaker.core === null || !member.askings.has(talk.session)) {
      speaker.core = new OriginSession(talk.session, member.name);
      member.askings.set(talk.session, speaker.core);
    }
    speaker.turn += 1;
    const turn = talk.turns[speaker.turn];
    if (turn === undefined) throw new Error('a turn expected');
    const said = [...speaker.prompt, ...speaker.shown];
    speaker.prompt = [...(turn.keep === null ? said : said.slice(0, turn.keep)), ...turn.fresh];
    speaker.shown = [];
    speaker.expected = speaker.reference.answer(
      speaker.prompt,
      turn.maxTokens,
      turn.sampling,
      turn.endTokens,
    );
    speaker.begunS = this.network.now;
    speaker.busy = true;
    const ask: Ask = {
      prompt: speaker.prompt,
      maxTokens: turn.maxTokens,
      sampling: turn.sampling,
      endTokens: turn.endTokens,
    };
    this.say?.(
      member.name,
      `asks in session ${talk.session.slice(0, 2)}, turn ${speaker.turn}: ${JSON.stringify(ask)}`,
    );
    member.performOrigin(speaker.core, speaker.core.begin(this.network.now, route, ask));
  }

  private heard(core: OriginSession, outcome: Outcome): void {
    const speaker = this.speakers.get(core.session);
    if (speaker === undefined) throw new Error('a session of this run expected');
    this.say?.(core.me, `hears ${JSON.stringify(outcome)}`);
    switch (outcome.kind) {
      case 'emit': {
        const place = speaker.prompt.length + speaker.shown.length;
        const wanted = speaker.expected[speaker.shown.length];
        const { token, position } = outcome;
        if (!speaker.busy) this.wrong(speaker, `token for ${position} after the end`);
        else if (position !== place)
          this.wrong(speaker, `position ${position} shown where ${place} was next`);
        else if (wanted !== token)
          this.wrong(speaker, `token ${token} at ${position}, expected ${wanted ?? 'none'}`);
        speaker.shown.push(token);
        const turn = speaker.talk.turns[speaker.turn];
        if (turn?.stopAfter === speaker.shown.length && speaker.shown.length < turn.maxTokens) {
          const at = speaker.turn;
          this.member(core.me).later(0, () => {
            this.stop(speaker, at);
          });
        }
        break;
      }
      case 'ended':
        this.ended += 1;
        if (!speaker.busy) this.wrong(speaker, 'ended twice');
        if (speaker.shown.length !== speaker.expected.length) {
          const { shown, expected } = speaker;
          this.wrong(speaker, `ended (${outcome.why}) with ${shown.length} of ${expected.length} tokens`);
        }
        this.nextTurn(speaker);
        break;
      case 'broken':
        this.failed += 1;
        if (!this.mayFail(speaker, outcome.text)) {
          this.wrong(speaker, `failed though every stage had a holder: ${outcome.text}`);
        }
        speaker.ended = true;
        speaker.busy = false;
        this.member(core.me).later(0.2, () => {
          this.release(speaker);
        });
        break;
      default:
        outcome satisfies never;
    }
  }

  private stop(speaker: Speaker, turn: number): void {
    const { core } = speaker;
    if (core === null || !speaker.busy || speaker.turn !== turn) return;
    speaker.expected = speaker.expected.slice(0, speaker.shown.length);
    speaker.reference.stopped(speaker.prompt.length + speaker.shown.length);
    this.member(core.me).performOrigin(core, core.cancel());
  }

  private nextTurn(speaker: Speaker): void {
    speaker.busy = false;
    const member = this.member(speaker.talk.asker);
    const { turns } = speaker.talk;
    if (speaker.turn + 1 < turns.length) {
      member.later(turns[speaker.turn]?.pauseS ?? 0, () => {
        this.ask(speaker, 0);
      });
      return;
    }
    speaker.ended = true;
    member.later(QUIET_S, () => {
      this.release(speaker);
    });
  }

  private release(speaker: Speaker): void {
    const { core } = speaker;
    if (core === null || speaker.talk.stays) return;
    if (this.network.lostFrames === 0 && !this.disturbed) this.nobodyAnswers(speaker);
    const member = this.member(core.me);
    member.performOrigin(core, core.release());
    member.askings.delete(core.session);
  }

  // --- what goes wrong

  private fault(fault: Fault): void {
    this.say?.(fault.peer, `FAULT ${JSON.stringify(fault)}`);
    const member = this.member(fault.peer);
    const { now } = this.network;
    switch (fault.kind) {
      case 'crash':
      case 'crashRestart':
      case 'vanish':
        if (!member.alive) return;
        this.die(member);
        if (fault.kind === 'crashRestart') {
          this.network.at(now + fault.lastsS, () => {
            this.restart(member);
          });
        }
        break;
      case 'freeze':
        if (!member.alive || member.frozen) return;
        member.freeze();
        this.lookForGaps();
        this.network.at(now + fault.lastsS, () => {
          if (!member.alive || !member.frozen) return;
          this.say?.(member.name, 'thaws');
          member.thaw();
          this.lookForGaps();
        });
        break;
      case 'drop':
        this.network.cut(fault.peer, fault.other, this.schedule.pace.noticeS);
        this.gaps.push([now, now + this.schedule.pace.noticeS]); // until then nobody knows that it must be made anew
        break;
      case 'slow':
        member.worker.slow = true;
        this.network.at(now + fault.lastsS, () => {
          member.worker.slow = false;
        });
        break;
      case 'spike':
        this.network.slowLink(fault.peer, fault.other, now + fault.lastsS);
        break;
      case 'leave':
        if (!member.alive || member.frozen) return;
        member.perform(member.core.leave());
        this.mesh.leaving(fault.peer);
        break;
      case 'replan':
        this.mesh.shuffle();
        break;
      case 'full':
        if (!member.alive || member.frozen) return;
        member.congestion(fault.other, true);
        member.later(fault.lastsS, () => {
          member.congestion(fault.other, false);
        });
        break;
      case 'stranger':
        for (const { to, frame } of forged(this.chance, this.members, fault.peer)) {
          this.network.send(fault.peer, to, frame);
        }
        break;
      default:
        fault.kind satisfies never;
    }
  }

  private die(member: Member): void {
    member.alive = false;
    if (this.schedule.askers.includes(member.name)) this.vanished.add(member.name);
    for (const speaker of this.speakers.values()) {
      if (speaker.talk.asker !== member.name || speaker.core === null) continue;
      speaker.ended = true; // a person who asks again asks in another session
      speaker.busy = false;
    }
    const { noticeS, logS, hintS } = this.schedule.pace;
    const { now } = this.network;
    this.gaps.push([now, now + noticeS]); // frames to it, or to who takes its name, are lost until then
    for (const [name, other] of this.members) {
      if (other === member) continue;
      this.network.cut(member.name, name, noticeS);
      if (hintS === 0) continue;
      other.later(hintS * this.chance.next(), () => {
        other.hint(member.name);
      });
    }
    this.network.at(this.network.now + 0.05 + logS * this.chance.next(), () => {
      this.mesh.left(member.name);
    });
    this.lookForGaps();
  }

  private restart(member: Member): void {
    if (member.alive) return;
    this.mesh.left(member.name);
    member.born();
    this.network.reborn(member.name);
    this.mesh.joined(member.name);
  }

  private tick(): void {
    for (const member of this.members.values()) if (member.alive && !member.frozen) member.tick();
    if ([...this.speakers.values()].some(({ busy, ended }) => busy || !ended)) {
      this.network.at(this.network.now + TICK_S, () => {
        this.tick();
      });
    }
  }

  // --- what must hold

  private wrong(speaker: Speaker, what: string): void {
    this.problems.push(`session ${speaker.talk.session.slice(0, 2)}, turn ${speaker.turn}: ${what}`);
  }

  /** Whether every stage of the plan has a holder who is here and awake, from now on. */
  private lookForGaps(): void {
    const { plan, members } = this.mesh.state;
    const holds = (peer: string, key: string): boolean => {
      const [member, listed] = [this.members.get(peer), members.get(peer)];
      if (!member?.alive || member.frozen || listed?.status !== 'measured') return false;
      return listed.held.some((run) => runKey(run) === key);
    };
    const whole = plan?.stages.every((stage) =>
      [stage.primary, ...stage.standbys].some((peer) => holds(peer, runKey(stage))),
    );
    const { now } = this.network;
    if (whole === true && this.gapFrom !== null) {
      this.gaps.push([this.gapFrom, now]);
      this.gapFrom = null;
    } else if (whole !== true) this.gapFrom ??= now;
  }

  private mayFail(speaker: Speaker, text: string): boolean {
    if (text.includes('in use') && this.speakers.size > this.schedule.slots) return true;
    const { now } = this.network;
    const gaps = this.gapFrom === null ? this.gaps : [...this.gaps, [this.gapFrom, now] as const];
    const enoughS = this.schedule.hopeful ? HOPEFUL_GAP_S : GAP_S;
    return gaps.some(([begin, end]) => Math.min(end, now) - Math.max(begin, speaker.begunS) >= enoughS);
  }

  /** Nothing moves any more: every question has ended, and nothing is left of any session. */
  private finish(): void {
    for (const speaker of this.speakers.values()) {
      if (speaker.busy && this.member(speaker.talk.asker).alive) {
        this.wrong(speaker, `did not end: ${speaker.core?.phase ?? 'not begun'}`);
      }
    }
    for (const [name, { mostLogBytes }] of this.members) {
      if (mostLogBytes > 2 * this.schedule.logBytes) {
        this.problems.push(`${name} kept ${mostLogBytes} bytes of logs`);
      }
    }
    if (this.network.lostFrames === 0 && this.vanished.size === 0 && !this.stays) {
      this.nothingLeft('after every session was released');
    }
    this.network.now += LEASE_S + 1;
    for (const member of this.members.values()) if (member.alive) member.tick();
    while (this.network.step(Infinity));
    this.nothingLeft('after the leases');
  }

  /** An answer that is over is over everywhere. */
  private nobodyAnswers(speaker: Speaker): void {
    for (const [name, member] of this.members) {
      if (!member.alive) continue;
      const mine = seatsOf(member.core).filter((seat) => seat.session === speaker.talk.session);
      if (mine.some((seat) => seat.active && seat.serves))
        this.wrong(speaker, `${name} still answers after the end`);
    }
  }

  private nothingLeft(when: string): void {
    for (const [name, { alive, core, worker }] of this.members) {
      if (!alive) continue;
      if (core.logBytes > 0) this.problems.push(`${name} keeps ${core.logBytes} bytes of logs ${when}`);
      if (core.sessions() > 0) this.problems.push(`${name} keeps ${core.sessions()} seats ${when}`);
      for (const [run, { sessions }] of worker.caches) {
        if (sessions.size > 0) this.problems.push(`${name} keeps ${sessions.size} slots of ${run} ${when}`);
      }
    }
  }

  private member(name: string): Member {
    const member = this.members.get(name);
    if (member === undefined) throw new Error(`${name} is no member`);
    return member;
  }
}

/** One run. `trace` hears of everything that happens. */
export function runSchedule(
  schedule: Schedule,
  trace?: (now: number, who: string, what: string) => void,
): Report {
  if (trace === undefined) return new World(schedule).run();
  const world = new World(schedule, (who, what) => {
    trace(world.network.now, who, what);
  });
  return world.run();
}
