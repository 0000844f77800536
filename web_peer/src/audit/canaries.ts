/*
 * Tries members with answers that are known beforehand, while this tab coordinates: soon after a peer came, then about
 * every hour (twin of peer/audit/canaries.py). Edge around canary_policy.ts.
 *
 * Whoever coordinates asks a question like any other, over a route on which the peer in question serves one stage, and
 * has a position of it checked as positions of people's answers are. Nothing in it tells the peer that it is tried.
 */

import { dayOf } from '../origin/answer_stream';
import { roomFor } from '../session/ask';
import {
  computing,
  Due,
  oneOf,
  question,
  routeOver,
  sampling,
  TIMES,
  type Times,
  tokensWanted,
  wholeBetween,
} from './canary_policy';
import type { Answer, Checks } from './step_checks';
import { PeerError } from '../errors';
import type { LocalModel } from '../model/local_model';
import type { SessionHost } from '../origin/session_host';
import type { MeshView } from '../replication/mesh_view';
import type { PeerLinks } from '../transport/peer_links';
import { serving } from '../state/mesh_state';
import { holders, type Route } from '../session/routes';
import { OriginSession } from '../session/origin';
import { nowS } from '../transport/ticker';
import { type CheckVerdict, STATUS } from '../wire/generated/requests';

const LOOK_MS = 5000; // between two looks at who is due
const ANSWER_MS = 60_000;
const STATUS_S = 10;

/** What trying members takes of the peer that coordinates. */
interface Parts {
  readonly links: Pick<PeerLinks, 'dial' | 'call'>;
  readonly view: Pick<MeshView, 'me' | 'state' | 'leader'>;
  readonly model: Pick<LocalModel, 'prompts'>; // null while it is not known what the model reads
  readonly sessions: Pick<SessionHost, 'attach' | 'detach' | 'perform' | 'size'>;
  /** The id of a session of the model that nobody has. */
  newSession(): string;
}

/** `tried`: verdicts by peer, the last of each. */
export class Canaries {
  readonly tried = new Map<string, CheckVerdict>();
  private due: Due;
  private readonly parts: Parts;
  private readonly checks: Checks;
  private readonly signal: AbortSignal;

  constructor(parts: Parts, checks: Checks, signal: AbortSignal, times: Times = TIMES) {
    this.parts = parts;
    this.checks = checks;
    this.signal = signal;
    this.due = new Due(times, Math.random);
  }

  /** From here on, until the membership is over. */
  start(): void {
    let isLooking = false;
    const looking = setInterval(() => {
      if (isLooking) return;
      isLooking = true;
      const over = (): void => {
        isLooking = false;
      };
      this.look().catch(reportError).then(over, over); // a defect here must not end this membership
    }, LOOK_MS);
    this.signal.addEventListener('abort', () => clearInterval(looking));
  }

  /** From here on everybody who computes counts as come just now, and is tried after other times. */
  begin(times: Times): void {
    this.due = new Due(times, Math.random);
    this.due.look(0, true, []); // it leads already
  }

  /** Tries whoever is due, one after the other. */
  async look(): Promise<void> {
    const { view, model } = this.parts;
    const leads = view.leader === view.me && model.prompts !== null;
    for (const peer of this.due.look(nowS(), leads, computing(view.state, view.me))) {
      const { fairness, proposed } = view.state; // each try takes a while
      if (this.signal.aborted || view.leader !== view.me) return;
      if (fairness.checksPpm === 0 || proposed !== null) return; // nobody wants checks, or stages are about to change
      const found = await this.try(peer);
      if (found === 'busy') {
        this.due.busy(nowS(), peer);
        continue;
      }
      this.due.tried(nowS(), peer);
      if (found !== null) this.tried.set(peer, found);
    }
  }

  /** Has `peer` compute something at one of its stages; null where no answer came of it. */
  private async try(peer: string): Promise<CheckVerdict | 'busy' | null> {
    const { links, view } = this.parts;
    const { state } = view;
    const plan = serving(state);
    if (plan === null) return null;
    const stages = [...plan.stages.entries()].flatMap(([at, stage]) =>
      holders(state, stage).includes(peer) ? [at] : [],
    );
    if (stages.length === 0) return null;
    const place = oneOf(stages, Math.random);
    const route = routeOver(state, plan, place, peer);
    if (route?.peers[place] !== peer) return null;
    try {
      const others = [...new Set(route.peers)].filter((other) => other !== view.me);
      await Promise.all(others.map((other) => links.dial(other)));
      if (!(await this.hasRoom(others.filter((other) => other !== peer)))) return 'busy';
      return await this.ask(route, peer, place);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return null;
    }
  }

  /** Whether a session is free at the `other` stages beside this one; who is tried is not asked right before it. */
  private async hasRoom(others: readonly string[]): Promise<boolean> {
    const { links, view, sessions } = this.parts;
    const { model } = view.state;
    const most = model === null ? 0 : Math.max(1, model.sessions - 1);
    for (const other of others) {
      const { active } = await links.call(other, STATUS, null, STATUS_S);
      if (active >= most) return false;
    }
    return sessions.size < most;
  }

  /** Asks over `route` as people do, stops as they do, and has a position of the answer checked. */
  private async ask(route: Route, peer: string, place: number): Promise<CheckVerdict | null> {
    const { view, sessions } = this.parts;
    const { model } = view.state;
    const { prompts } = this.parts.model;
    if (model === null || prompts === null) return null;
    const said = [{ role: 'user', content: question(Math.random) }] as const;
    const { tokens: prompt } = await prompts.chat(said, model.context, dayOf(Date.now()));
    const maxTokens = roomFor(prompt.length, null, model.context);
    const { endTokens } = prompts.text;
    const asked = { prompt, maxTokens, sampling: sampling(Math.random), endTokens };
    const core = new OriginSession(this.parts.newSession(), view.me);
    const answered = this.answered(core);
    try {
      sessions.perform(core.session, core.begin(nowS(), route, asked));
      const answer = await within(answered, ANSWER_MS);
      const last = core.tokens.length - 2;
      if (answer?.opening.route[place] !== peer || last < answer.opening.promptTokens) return null;
      const position = wholeBetween([answer.opening.promptTokens, last], Math.random);
      return await this.checks.checkKnown(answer, place, position);
    } finally {
      sessions.detach(core.session);
    }
  }

  /**
   * Takes the session in, and waits for some tokens, or for the end before them. Null: no answer came, or over no plan
   * that is known.
   */
  private answered(core: OriginSession): Promise<Answer | null> {
    const { sessions } = this.parts;
    let wanted = tokensWanted(Math.random);
    let answer: Answer | null = null;
    return new Promise((resolve) => {
      sessions.attach(core, (outcome) => {
        switch (outcome.kind) {
          case 'emit':
            wanted -= 1;
            answer = this.checks.answerOf(core.session) ?? answer;
            if (wanted === 0) queueMicrotask(() => sessions.perform(core.session, core.cancel()));
            break;
          case 'ended':
            resolve(answer);
            break;
          case 'broken':
            resolve(null);
            break;
          default:
            outcome satisfies never;
        }
      });
    });
  }
}

function within<T>(promise: Promise<T>, ms: number): Promise<T | null> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => resolve(null), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(late));
  });
}
