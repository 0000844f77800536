/*
 * Tries members with answers that are known beforehand, while this tab coordinates: soon after a peer came, then about
 * every hour (twin of peer/audit/canaries.py). Edge around canary_policy.ts.
 *
 * Whoever coordinates asks a question like any other, over a route on which the peer in question serves one stage, and
 * has a position of it checked as positions of people's answers are. Nothing in it tells the peer that it is tried.
 */

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
import type { Verdict } from '../session/evidence';
import { SESSION_BYTES } from '../wire/frame_codec';
import { toHex } from '../wire/hex';
import type { Node } from '../member/frame_router';
import { serving } from '../state/mesh_state';
import { holders, type Route } from '../session/routes';
import { OriginSession } from '../session/origin';
import type { Text } from '../model/tokenizer';
import { nowS } from '../transport/ticker';

const LOOK_MS = 5000; // between two looks at who is due
const ANSWER_MS = 60_000;
const STATUS_S = 10;

/** `tried`: verdicts by peer, the last of each. */
export class Canaries {
  readonly tried = new Map<string, Verdict>();
  due: Due;
  private readonly node: Node;
  private readonly checks: Checks;
  private readonly text: () => Text | null; // null: it is not known yet what the model reads
  private readonly signal: AbortSignal;

  constructor(
    node: Node,
    checks: Checks,
    text: () => Text | null,
    signal: AbortSignal,
    times: Times = TIMES,
  ) {
    this.node = node;
    this.checks = checks;
    this.text = text;
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

  /** Tries whoever is due, one after the other. */
  async look(): Promise<void> {
    const { node } = this;
    const leads = node.coordinator === node.me && this.text() !== null;
    for (const peer of this.due.look(nowS(), leads, computing(node.state, node.me))) {
      const { fairness, proposed } = node.state; // each try takes a while
      if (this.signal.aborted || node.coordinator !== node.me) return;
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
  private async try(peer: string): Promise<Verdict | 'busy' | null> {
    const { node } = this;
    const { state } = node;
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
      const others = [...new Set(route.peers)].filter((other) => other !== node.me);
      await Promise.all(others.map((other) => node.links.dial(other)));
      if (!(await this.hasRoom(others.filter((other) => other !== peer)))) return 'busy';
      return await this.ask(route, peer, place);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return null;
    }
  }

  /** Whether a session is free at the `other` stages beside this one; who is tried is not asked right before it. */
  private async hasRoom(others: readonly string[]): Promise<boolean> {
    const { node } = this;
    const { model } = node.state;
    const most = model === null ? 0 : Math.max(1, model.sessions - 1);
    for (const other of others) {
      const { active } = await node.links.call(other, 'status', {}, STATUS_S);
      if (typeof active !== 'number' || !Number.isSafeInteger(active) || active >= most) return false;
    }
    return node.askings.size < most;
  }

  /** Asks over `route` as people do, stops as they do, and has a position of the answer checked. */
  private async ask(route: Route, peer: string, place: number): Promise<Verdict | null> {
    const { node } = this;
    const { model } = node.state;
    const text = this.text();
    if (model === null || text === null) return null;
    const prompt = text.encodeChat([{ role: 'user', content: question(Math.random) }]);
    const maxTokens = roomFor(prompt.length, null, model.context);
    const asked = { prompt, maxTokens, sampling: sampling(Math.random), endTokens: text.endTokens };
    const core = new OriginSession(toHex(crypto.getRandomValues(new Uint8Array(SESSION_BYTES))), node.me);
    const answered = this.answered(core);
    try {
      node.askings.perform(core.session, core.begin(nowS(), route, asked));
      const answer = await within(answered, ANSWER_MS);
      const last = core.tokens.length - 2;
      if (answer?.opening.route[place] !== peer || last < answer.opening.promptTokens) return null;
      const position = wholeBetween([answer.opening.promptTokens, last], Math.random);
      return await this.checks.checkKnown(answer, place, position);
    } finally {
      node.askings.detach(core.session);
    }
  }

  /**
   * Takes the session in, and waits for some tokens, or for the end before them. Null: no answer came, or over no plan
   * that is known.
   */
  private answered(core: OriginSession): Promise<Answer | null> {
    const { askings } = this.node;
    let wanted = tokensWanted(Math.random);
    let answer: Answer | null = null;
    return new Promise((resolve) => {
      askings.attach(core, (outcome) => {
        switch (outcome.kind) {
          case 'emit':
            wanted -= 1;
            answer = this.checks.answerOf(core.session) ?? answer;
            if (wanted === 0) queueMicrotask(() => askings.perform(core.session, core.cancel()));
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
