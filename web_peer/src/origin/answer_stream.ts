/*
 * Asking the mesh: from words to tokens to words, as an async stream (twin of peer/origin/answer_stream.py).
 *
 * One `Conversation` keeps one session: each next question sends only what the stages do not hold yet.
 */

import type { CalendarDate, Message } from '../model/chat_template';
import { AnswerFailed, ConnectFailed, ContextOverflow, MeshFull, NoPlan, PeerError } from '../errors';
import { type Crossing, Crossings, partsOf } from './arithmetic_changes';
import type { SessionId } from '../wire/generated/frames';
import type { Outcome, SessionHost } from './session_host';
import type { KeptEnds } from './pinned_ends';
import type { Route } from '../session/routes';
import type { GivenRows } from '../session/position_spans';
import { GREEDY, type Sampling } from '../session/sampling';
import { type Ask, type Heard, OriginSession, roomFor } from '../session/origin';
import { StopStrings } from '../model/stop_strings';
import type { Prompts } from '../model/prompts';
import type { Text } from '../model/tokenizer';
import { named, names } from '../state/display_names';
import { OPENS, PICTURES } from '../state/version_negotiation';
import { whyNotReady } from '../state/readiness';
import { AGAIN_MS, called, type Waits } from '../stage/seat_waiting';
import { nowS } from '../transport/ticker';

const CONNECT_WITHIN_S = 8; // to every stage of a route
const REDIAL_S = 0.5;
const SEAT_WAIT_S = 900; // for a session while all of them are in use; people see their place meanwhile
const MAX_DAY_MS = 253402300799999; // the last of the year 9999
const PLAN_WAIT_S = 120; // peers may still be fetching weights; the mesh state says why meanwhile

/** How to answer. `maxTokens` null: as many as the context has room for. */
export interface AskSettings {
  readonly sampling: Sampling;
  readonly maxTokens: number | null;
  readonly stop: readonly string[];
  readonly planWaitS: number;
  readonly ignoreEnd: boolean; // go on after end tokens, for measurements of equal length
  readonly rows: readonly GivenRows[]; // of pictures or sound, in place of tokens of the prompt
  readonly allowed: readonly number[]; // tokens that may be drawn, as a mask (session/ask.ts); none: every token
}

export const ASK_SETTINGS: AskSettings = {
  sampling: GREEDY,
  maxTokens: null,
  stop: [],
  planWaitS: PLAN_WAIT_S,
  ignoreEnd: false,
  rows: [],
  allowed: [],
};

/** One token, and the text that became complete with it (often "", never half a character). */
export interface Delta {
  readonly kind: 'delta';
  readonly text: string;
  readonly token: number;
}

/** The end of an answer. Times in seconds since the question. */
export interface Finished {
  readonly kind: 'finished';
  readonly why: 'end' | 'stop' | 'length' | 'cancelled';
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly tokens: number;
  readonly firstTokenS: number;
  readonly seconds: number;
  readonly route: readonly string[];
  readonly crossed: readonly Crossing[]; // where it went on with other arithmetic
}

/** Decode rate: tokens after the first, over the time they took. */
export function tokensPerS({ tokens, seconds, firstTokenS }: Finished): number {
  return tokens > 1 ? (tokens - 1) / (seconds - firstTokenS) : 0;
}

/** An answer of another peer's, or one that was stopped: its tokens so far, and what is known of its session. */
export interface Begun {
  readonly ids: readonly number[];
  readonly heard: Heard | number;
}

/** One session of this peer as it asks the mesh; one question at a time, each after the answer before. */
export class Conversation {
  private readonly sessions: SessionHost;
  private readonly prompts: Prompts;
  private readonly text: Text;
  private readonly core: OriginSession;
  private readonly ends: KeptEnds | null;
  private readonly outcomes: Outcome[] = [];
  private crossings = new Crossings();
  private wake: (() => void) | null = null;
  private line: AbortController | null = null; // while it waits for a session
  private breakOff: () => void = () => undefined; // while it waits for the ends of the model
  private seating = false; // from the refusal until the answer goes on
  private isStopped = false;
  private running: symbol | null = null; // the answer that runs, or ran last
  private seatUntilS: number | null = null;
  private waits: (waits: Waits | null) => void = () => undefined;
  private readonly closed: () => void;

  /** `ends`: embedding and head, where no other peer is to handle token ids. */
  constructor(
    sessions: SessionHost,
    prompts: Prompts,
    session: SessionId,
    closed: () => void,
    ends: KeptEnds | null = null,
  ) {
    this.sessions = sessions;
    this.ends = ends;
    this.prompts = prompts;
    this.text = prompts.text;
    this.closed = closed;
    this.core = new OriginSession(session, sessions.me);
    sessions.attach(this.core, (outcome) => {
      if (outcome.kind === 'emit') this.look();
      this.outcomes.push(outcome);
      this.wake?.();
    });
  }

  /**
   * Answers the conversation `messages`, once there is a session for it. Raises AnswerFailed (MeshFull), NoPlan,
   * ContextOverflow or ConnectFailed.
   */
  async *chat(messages: readonly Message[], settings: AskSettings): AsyncGenerator<Delta | Finished, void> {
    const { tokens } = await this.prompts.chat(messages, this.context(), dayOf(Date.now()));
    yield* this.tokens(tokens, settings);
  }

  /** Continues plain text, without the chat template. */
  async *complete(prompt: string, settings: AskSettings): AsyncGenerator<Delta | Finished, void> {
    yield* this.tokens((await this.prompts.plain(prompt, this.context())).tokens, settings);
  }

  private context(): number {
    return this.sessions.view.state.model?.context ?? 0;
  }

  /** Answers a prompt of token ids. Returning early stops the answer on every stage. */
  tokens(prompt: readonly number[], settings: AskSettings): AsyncGenerator<Delta | Finished, void> {
    return this.answer(prompt, settings, null);
  }

  /** Goes on with an answer; the first piece has the text of what there was. `maxTokens` counts from its beginning. */
  adopt(
    prompt: readonly number[],
    settings: AskSettings,
    begun: Begun,
  ): AsyncGenerator<Delta | Finished, void> {
    return this.answer(prompt, settings, begun);
  }

  /** Looks at once how a token was computed: its route may change before anybody takes it. */
  private look(): void {
    const { sessions } = this;
    const route = this.core.cameOver;
    const plan = route === null ? null : sessions.plan(route.plan);
    this.crossings.token(
      route === null || plan === null ? null : partsOf(plan, route.peers, sessions.view.state.members),
    );
  }

  /** An answer that moves to another plan may change it. */
  get session(): SessionId {
    return this.core.session;
  }

  /** Whether it can be asked: nobody closed it, and its model is still there. */
  get isOpen(): boolean {
    return this.sessions.attached(this.core.session);
  }

  /** The version of the plan that the last answer went over; 0 before the first. */
  get plan(): number {
    return this.core.current?.plan ?? 0;
  }

  /** What others need to make the answer under way go on. */
  get underWay(): Heard {
    return this.core.underWay;
  }

  private async *answer(
    prompt: readonly number[],
    settings: AskSettings,
    goesOn: Begun | null,
  ): AsyncGenerator<Delta | Finished, void> {
    const { ends } = this;
    if (ends === null) {
      yield* this.answered(prompt, settings, goesOn);
      return;
    }
    const taken = ends.take();
    try {
      this.core.ends = await Promise.race([taken, this.stopped()]);
      yield* this.answered(prompt, settings, goesOn);
    } finally {
      taken.then(
        () => ends.giveBack(),
        () => undefined, // it gave them back itself
      );
    }
  }

  /** Raises AnswerFailed when the answer is stopped before it began: its ends may be long in coming. */
  private stopped(): Promise<never> {
    return new Promise<never>((_, reject) => {
      this.breakOff = () => reject(new AnswerFailed('stopped while the ends of the model were loaded'));
    });
  }

  private async *answered(
    prompt: readonly number[],
    settings: AskSettings,
    goesOn: Begun | null,
  ): AsyncGenerator<Delta | Finished, void> {
    if (!this.sessions.attached(this.core.session)) {
      throw new AnswerFailed('this conversation was closed; begin another one');
    }
    if (this.answering()) {
      throw new AnswerFailed('this conversation is being answered; stop that answer, or wait for its end');
    }
    const begun = nowS();
    this.isStopped = false;
    this.seatUntilS = null;
    const route = await this.findRoute(settings.planWaitS);
    const { model } = this.sessions.view.state;
    if (model === null || prompt.length === 0)
      throw new ContextOverflow('the prompt is empty; ask something');
    const ask: Ask = {
      prompt,
      maxTokens: roomFor(prompt.length, settings.maxTokens, model.context),
      sampling: settings.sampling,
      endTokens: settings.ignoreEnd ? [] : this.text.endTokens,
      rows: settings.rows,
      allowed: settings.allowed,
    };
    await this.connect(route);
    this.refuseOlder(route, settings.rows.length > 0);
    if (!this.sessions.attached(this.core.session)) {
      throw new AnswerFailed('this conversation was closed; begin another one');
    }
    if (!this.isWanted()) throw new AnswerFailed('stopped before it began');
    this.outcomes.length = 0;
    this.crossings = new Crossings(goesOn?.ids.length ?? 0);
    const effects =
      goesOn === null
        ? this.core.begin(nowS(), route, ask)
        : this.core.adopt(nowS(), route, ask, goesOn.ids, goesOn.heard);
    this.sessions.perform(this.core.session, effects);
    const running = (this.running = Symbol('answer'));
    try {
      yield* this.stream(begun, ask, goesOn?.ids ?? [], new StopStrings(settings.stop));
    } finally {
      if (this.running === running) this.stop(); // one that is closed late ends no answer but its own
    }
  }

  /** Raises AnswerFailed where a peer of the route cannot do without token ids, or take rows in place of some. */
  private refuseOlder({ peers }: Route, hasRows: boolean): void {
    const { links, me, view } = this.sessions;
    const older = (version: number): string =>
      peers
        .filter((peer) => peer !== me && links.speaks(peer) < version)
        .map((peer) => view.nameOf(peer))
        .join(', ');
    const noEnds = this.ends === null ? '' : older(OPENS);
    if (noEnds !== '') {
      throw new AnswerFailed(
        `${noEnds} cannot answer without token ids yet: update it, or ask in a conversation of the mesh`,
      );
    }
    const noRows = hasRows ? older(PICTURES) : '';
    if (noRows !== '') {
      throw new AnswerFailed(`${noRows} cannot take pictures yet: update it, or ask in words alone`);
    }
  }

  /** Whether an answer is under way. */
  answering(): boolean {
    return this.seating || !['idle', 'done', 'failed'].includes(this.core.phase);
  }

  /** Ends the answer under way; what came so far stays. */
  stop(): void {
    this.leaveLine();
    this.sessions.perform(this.core.session, this.core.cancel());
  }

  /** From here on `listener` is told where it stands while the mesh is full; null: its turn has come. */
  onWait(listener: (waits: Waits | null) => void): void {
    this.waits = listener;
  }

  /** Frees the session's slots on every stage. */
  close(): void {
    this.leaveLine();
    this.sessions.detach(this.core.session);
    this.closed();
  }

  /** Whether nobody stopped it while it waited, or closed its conversation. */
  private isWanted(): boolean {
    return !this.isStopped && this.sessions.attached(this.core.session);
  }

  private leaveLine(): void {
    this.isStopped = true;
    this.breakOff();
    this.line?.abort();
  }

  private async *stream(
    begun: number,
    ask: Ask,
    before: readonly number[],
    stops: StopStrings,
  ): AsyncGenerator<Delta | Finished, void> {
    const words = this.text.stream();
    const cachedTokens = this.core.start;
    const made = [...before];
    let tokens = before.length;
    let firstTokenS = 0;
    const known = before.map((token) => words.push(token)).join('');
    if (known !== '') yield { kind: 'delta', text: stops.push(known).shown, token: -1 };
    const finished = (why: Finished['why']): Finished => ({
      kind: 'finished',
      why,
      promptTokens: ask.prompt.length,
      cachedTokens,
      tokens,
      firstTokenS,
      seconds: nowS() - begun,
      route: this.core.route,
      crossed: this.crossings.found,
    });
    for (;;) {
      const outcome = await this.next();
      switch (outcome.kind) {
        case 'emit': {
          if (tokens === before.length) firstTokenS = nowS() - begun;
          tokens += 1;
          const { token } = outcome;
          made.push(token);
          const said = ask.endTokens.includes(token) ? '' : words.push(token);
          const { shown: text, stopped } = stops.push(said, this.text.controlName(token));
          yield { kind: 'delta', text, token };
          if (stopped) {
            yield finished('stop');
            return;
          }
          break;
        }
        case 'ended': {
          const { shown: text, stopped } = stops.push(words.flush());
          const tail = stopped ? text : text + stops.flush();
          if (tail !== '') yield { kind: 'delta', text: tail, token: -1 };
          yield finished(stopped ? 'stop' : (outcome.why as Finished['why']));
          return;
        }
        case 'broken':
          if (outcome.reason !== 'no_slot' || this.core.full.size === 0) throw new AnswerFailed(outcome.text);
          this.seating = true;
          try {
            if (!(await this.seat(ask, made))) {
              yield finished('cancelled');
              return;
            }
          } finally {
            this.seating = false;
          }
          break;
        default:
          outcome satisfies never;
      }
    }
  }

  /** Stands in line where there was no seat, until there is one, and asks again. False: somebody stopped it. */
  private async seat(ask: Ask, made: readonly number[]): Promise<boolean> {
    const { core, sessions } = this;
    const { links } = sessions;
    const full = new Map(core.full);
    const prompt = [...ask.prompt, ...made];
    const wanted = {
      session: core.session,
      positions: prompt.length,
      tokens: ask.maxTokens - made.length,
    };
    // Called in vain: no loop at the speed of the link.
    if (this.seatUntilS !== null) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    if (!this.isWanted()) return false;
    this.seatUntilS ??= nowS() + SEAT_WAIT_S; // all lines of this answer together
    const line = (this.line = new AbortController());
    const late = setTimeout(
      () =>
        line.abort(new MeshFull('all sessions of this mesh are in use for long already; try again later')),
      (this.seatUntilS - nowS()) * 1000,
    );
    let who = '';
    try {
      who = await called(
        (peer, kind, said) => links.ask(peer, kind, said),
        full,
        wanted,
        (waits) => this.waits(waits),
        line.signal,
      );
    } catch (error) {
      if (error instanceof PeerError) throw error;
      if (line.signal.aborted) return false;
      throw error;
    } finally {
      clearTimeout(late);
      this.line = null;
      this.waits(null);
      for (const peer of full.keys()) {
        const { session, turn } = core;
        const reason = 'waits no more';
        if (peer === who || !links.isConnected(peer)) continue; // nobody dials a peer to tell it that
        links.sendOrLose(peer, { kind: 'CANCEL', session, turn, keep: 0, reason });
      }
    }
    const avoid = new Set([...full.keys()].filter((peer) => peer !== who));
    const route =
      (who === '' ? null : sessions.route({ gone: new Set(), avoid })) ?? (await this.findRoute(PLAN_WAIT_S));
    await this.connect(route);
    if (!this.isWanted()) return false;
    sessions.perform(core.session, core.begin(nowS(), route, { ...ask, prompt, sampled: made.length }));
    return true;
  }

  private async next(): Promise<Outcome> {
    for (;;) {
      const outcome = this.outcomes.shift();
      if (outcome !== undefined) return outcome;
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
      this.wake = null;
    }
  }

  private async findRoute(waitS: number): Promise<Route> {
    const { sessions } = this;
    await sessions.view.until(() => sessions.route() !== null, waitS);
    const route = sessions.route();
    if (route === null) {
      const reason = whyNotReady(sessions.view.state);
      throw new NoPlan(`the mesh cannot answer yet: ${reason}`);
    }
    return route;
  }

  /**
   * Connects to every stage at once, so that a token or a refusal finds its way from any of them, and begins to connect
   * to those that stand by.
   */
  private async connect(route: Route): Promise<void> {
    const { me, links } = this.sessions;
    const others = [...new Set(route.peers)].filter((peer) => peer !== me);
    for (const { peer } of route.shadows) if (peer !== me) links.prepare(peer);
    const deadline = nowS() + CONNECT_WITHIN_S;
    for (;;) {
      try {
        await Promise.all(others.map((peer) => links.dial(peer)));
        return;
      } catch (error) {
        if (!(error instanceof PeerError)) throw error;
        if (nowS() + REDIAL_S > deadline) {
          const why = named(error.message, names(this.sessions.view.state.members.values()));
          throw new ConnectFailed(`cannot reach every stage of the mesh: ${why}`);
        }
        // A stage whose way to the signaling server broke is back there within seconds.
        await new Promise((resolve) => setTimeout(resolve, REDIAL_S * 1000));
      }
    }
  }
}

/** The UTC day of a question. */
export function dayOf(whenMs: number): CalendarDate {
  const date = new Date(Math.min(whenMs, MAX_DAY_MS));
  return { year: date.getUTCFullYear(), month: date.getUTCMonth() + 1, day: date.getUTCDate() };
}
