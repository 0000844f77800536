/*
 * Has steps of this tab's answers checked, bears witness for others, and checks steps of others with the units that
 * this tab holds (twin of peer/audit/step_checks.py). Edge.
 *
 * Who finds a difference says so in the log in its own name; one word convicts nobody (fairness.ts).
 */

import { type Holder, inOrder, judgesOf, NextCheck, shuffled } from './check_policy';
import { BadCommand, PeerError } from '../errors';
import type { Open } from '../wire/generated/frames';
import { computes, Judge, type Tab } from './judge';
import { Returned, sentOf, ShownEnds } from '../session/pinned_ends_evidence';
import type { CheckFailed, PlanRecord } from '../state/generated/commands';
import { isAway } from '../state/mesh_state';
import { isPinned } from '../session/pinned_ends';
import type { PeerLinks } from '../transport/peer_links';
import { type Place, placeOf, spansUpTo } from './step_place';
import { testimony } from './witness';
import {
  CHECK,
  type CheckAnswer,
  type CheckCounts,
  type CheckReport,
  type CheckRequest,
  type CheckVerdict,
  MAX_CHECKED_POSITIONS,
  MAX_CHECKED_SETTINGS,
  ODD,
  type OddRequest,
  WITNESS,
  type WitnessAnswer,
  type WitnessRequest,
} from '../wire/generated/requests';

const FOUND_LATELY_MS = 600_000; // how long one word against a peer has it checked sooner
const CHECK_S = 60; // for a judge: it computes when nothing else does
const ODD_AGAIN_MS = 10_000; // between two checks that one peer brings about
const ID_DIGITS = 8; // of a session's id count how often its answers moved

/** An answer of this tab: the route that computes it, and the plan of that. */
export interface Answer {
  readonly opening: Open;
  readonly plan: PlanRecord;
}

/** A row that came out of a stage was odd for the next one. */
interface Odd {
  readonly stage: number;
  readonly position: number;
}

/** Who was asked to check a session of this tab, and its tokens then. */
interface Asked {
  readonly tokens: readonly number[];
  readonly ends: ShownEnds | null; // where they stay here: nobody hears the tokens
  readonly peers: Set<string>;
}

type Counts = Record<CheckVerdict, number>;

/** The checks of this tab's answers of one model, and those that others ask of it. */
export class Checks {
  readonly judge: Judge;
  readonly made: Counts = { same: 0, differs: 0, disputed: 0, unable: 0 }; // here, for others and for this tab
  readonly got: Counts = { same: 0, differs: 0, disputed: 0, unable: 0 }; // for answers of this tab
  readonly returned = new Returned(); // of answers whose ends stay here
  private readonly tab: Tab;
  private readonly next = new NextCheck();
  private readonly answers = new Map<string, Answer>();
  private readonly asked = new Map<string, Asked>();
  private readonly oddMs = new Map<string, number>(); // by peer: when it may bring about another check
  private readonly oddDue = new Map<string, Odd>(); // by session: what is checked when its token came
  private running = false; // a check of an answer of this tab

  constructor(tab: Omit<Tab, 'own'>) {
    this.tab = { ...tab, own: (asker, said) => this.witness(asker, said) };
    this.judge = new Judge(this.tab);
  }

  // --- as the asker

  /** A turn of an answer begins. */
  opened(opening: Open, plan: PlanRecord): void {
    this.answers.set(opening.session, { opening, plan });
    this.oddDue.delete(opening.session); // that was of another turn, maybe of other stages
  }

  /** The token for `position` came: the position before it was computed by all stages. */
  emitted(session: string, position: number): void {
    const answer = this.answers.get(session);
    const { checksPpm } = this.tab.view.state.fairness;
    if (answer === undefined || checksPpm === 0) return;
    const odd = this.oddDue.get(session);
    if (odd !== undefined && position > odd.position && !this.running) {
      this.oddDue.delete(session);
      void this.checkOdd(answer, odd);
    }
    const suspects = this.suspects();
    const isSuspected = answer.opening.route.some((peer) => suspects.has(peer));
    if (!this.next.token(checksPpm, Math.random, isSuspected, this.running)) return;
    void this.check(answer, position - 1);
  }

  /** An answer is over, and so are the sessions that it moved from or was to move to. */
  ended(session: string): void {
    const prefix = session.slice(0, -ID_DIGITS);
    for (const known of [this.answers, this.oddDue]) {
      for (const key of known.keys()) if (key.startsWith(prefix)) known.delete(key);
    }
  }

  /** The running answer of this tab in `session`. */
  answerOf(session: string): Answer | null {
    return this.answers.get(session) ?? null;
  }

  /** Has one stage of an answer of this tab checked now, as its tokens are; "unable" where nobody can. */
  async checkKnown(answer: Answer, stage: number, position: number): Promise<CheckVerdict> {
    const { session } = answer.opening;
    if (this.asked.has(session)) return 'unable';
    this.ask(answer);
    try {
      return await this.checkStage(answer, stage, position, 'unable');
    } finally {
      this.asked.delete(session);
    }
  }

  private suspects(): ReadonlySet<string> {
    const since = Date.now() - FOUND_LATELY_MS;
    const { findings } = this.tab.view.state.fairness;
    return new Set(findings.filter(({ whenMs }) => whenMs > since).map(({ peer }) => peer));
  }

  private async check(answer: Answer, position: number): Promise<void> {
    const { session, route } = answer.opening;
    this.running = true;
    this.ask(answer);
    try {
      const stages = shuffled([...route.keys()], Math.random);
      let isUnable = false;
      for (const stage of inOrder(stages, route, this.suspects())) {
        isUnable = (await this.checkStage(answer, stage, position)) === 'unable' || isUnable;
      }
      this.next.checked(isUnable);
    } catch (error) {
      reportError(error); // a defect in a check must not end this membership
    } finally {
      this.running = false;
      this.asked.delete(session);
    }
  }

  /** From here on judges may ask for the tokens of an answer, as they are now. */
  private ask({ opening }: Answer): void {
    const { session, route } = opening;
    const { sessions } = this.tab;
    const tokens = [...sessions.tokens(session)];
    const own = isPinned(opening) ? sessions.ends(session) : null;
    const sent = own === null ? null : sentOf(own, tokens.slice(0, MAX_CHECKED_POSITIONS));
    const ends = sent === null ? null : new ShownEnds(sent, this.returned.of(session), route.length);
    this.asked.set(session, {
      tokens: isPinned(opening) && ends === null ? [] : tokens,
      ends,
      peers: new Set(),
    });
  }

  /**
   * A peer of a route finds what came to it odd: the stage before it is checked at once, or when the token of that
   * position came. Raises BadCommand.
   */
  odd(peer: string, { session, position }: OddRequest): null {
    const answer = this.answers.get(session);
    const stage = (answer?.opening.route.indexOf(peer) ?? 0) - 1;
    if (answer === undefined || stage < 0) {
      throw new BadCommand('odd: expected a stage of a running answer of this peer, and not the first');
    }
    const isDue = Date.now() >= (this.oddMs.get(peer) ?? 0);
    if (this.running || !isDue || this.tab.view.state.fairness.checksPpm === 0) return null;
    this.oddMs.set(peer, Date.now() + ODD_AGAIN_MS);
    const isDrawn = this.tab.sessions.tokens(session).length >= position + 2;
    if (isDrawn) void this.checkOdd(answer, { stage, position });
    else this.oddDue.set(session, { stage, position });
    return null;
  }

  private async checkOdd(answer: Answer, { stage, position }: Odd): Promise<void> {
    this.running = true;
    try {
      await this.checkKnown(answer, stage, position);
    } catch (error) {
      reportError(error);
    } finally {
      this.running = false;
    }
  }

  /** `lone`: what it is called where nobody else holds the units; "same" is as far as anybody can say. */
  private async checkStage(
    { opening, plan }: Answer,
    stage: number,
    position: number,
    lone: CheckVerdict = 'same',
  ): Promise<CheckVerdict> {
    const { route, session, promptTokens, sampling, spans, generated } = opening;
    const { view } = this.tab;
    const peer = route[stage];
    const run = plan.stages[stage];
    const isTail = stage === route.length - 1;
    const { tokens = [], ends = null } = this.asked.get(session) ?? {};
    if (peer === undefined || run === undefined || peer === view.me) return 'same'; // its own work
    if (position >= MAX_CHECKED_POSITIONS || tokens.length < position + 2) return 'same';
    if (stage === 0 && this.tab.sessions.hasRows(session)) return 'same'; // it computed from rows, others hear of tokens
    const draws = isTail && ends === null;
    if (draws && sampling.length !== MAX_CHECKED_SETTINGS) return 'same'; // held to a form that is known to this tab alone
    const before = isTail && ends !== null ? Math.min(ends.returned.start, position) : 0; // compared: from here on
    const place: Place = {
      session,
      stage,
      position,
      units: { first: run.first, stop: run.stop },
      peer,
      before: stage > 0 ? (route[stage - 1] ?? '') : '',
      after: isTail ? '' : (route[stage + 1] ?? ''),
      spans: spansUpTo(spans, promptTokens, position + 1),
      token: draws ? (tokens[position + 1] ?? -1) : -1,
      sampling: draws ? sampling : [],
      sampled: Math.max(0, position + 1 - promptTokens) + generated,
      also: draws || position === before ? -1 : before + Math.floor(Math.random() * (position - before)),
      pinned: ends !== null,
    };
    let found = 0;
    let last: CheckVerdict = 'unable';
    const judges = this.judges(place);
    if (judges.length === 0) return lone;
    for (const judge of judges) {
      const verdict = await this.verdictOf(judge, place);
      this.got[verdict] += 1;
      if (verdict === 'unable') continue;
      last = verdict;
      found += verdict === 'differs' ? 1 : 0;
      const isConvicted = view.state.fairness.quarantined.has(place.peer);
      if (verdict !== 'differs' || found === 2 || isConvicted) break;
    }
    return last;
  }

  /** Who holds the units and may check it, the best first. */
  private judges(place: Place): string[] {
    const { members } = this.tab.view.state;
    const { first, stop } = place.units;
    const able = [...members.values()]
      .filter((member) => member.peer !== place.peer && !isAway(member))
      .filter(({ held }) => held.some((run) => run.first === first && run.stop === stop))
      .map((member): Holder => ({ peer: member.peer, ...computes(member) }));
    const weights = this.tab.model.manifest?.weights ?? '4bit';
    const theirs = computes(members.get(place.peer));
    const near = new Set([place.before, place.after]);
    return judgesOf(shuffled(able, Math.random), weights, theirs, this.tab.view.me, near);
  }

  private async verdictOf(judge: string, place: Place): Promise<CheckVerdict> {
    const { links, view } = this.tab;
    const asked = this.asked.get(place.session);
    asked?.peers.add(judge);
    asked?.ends?.asked(judge, place.stage);
    try {
      if (judge === view.me) return await this.judged(judge, place);
      const { verdict } = await links.ask(judge, CHECK, place, CHECK_S);
      return verdict;
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return 'unable';
    }
  }

  // --- for others

  /** Computes what `peer` asks about. Raises BadCommand. */
  async checked(peer: string, said: CheckRequest): Promise<CheckAnswer> {
    const { members } = this.tab.view.state;
    const place = placeOf(said);
    if (![place.peer, place.before, place.after].every((each) => each === '' || members.has(each))) {
      throw new BadCommand('check: expected a step of members');
    }
    return { verdict: await this.judged(peer, place) };
  }

  /** What was checked here and for this tab, as the answer to `status` has it. */
  report(): CheckReport {
    const { judge, made, got } = this;
    const worstPpm = Math.round(judge.worst * 1e6);
    return { made, got, kept: judge.kept, positions: judge.again.positions, worstPpm };
  }

  /** What this tab knows of a step that `peer` checks. Raises BadCommand where it is none of its business. */
  async witness(peer: string, said: WitnessRequest): Promise<WitnessAnswer> {
    const { side, first, stop } = said;
    if (side !== 'tokens' && side !== 'sent' && side !== 'back') return testimony(this.tab, peer, said);
    const asked = this.asked.get(said.session);
    if (first >= stop || stop > first + MAX_CHECKED_POSITIONS) {
      throw new BadCommand(`witness: expected at most ${MAX_CHECKED_POSITIONS} positions`);
    }
    if (asked?.peers.has(peer) !== true) {
      throw new BadCommand('witness: expected a peer that was asked to check this session');
    }
    if (asked.ends !== null) return asked.ends.shown(peer, side, first, stop);
    return { tokens: side === 'tokens' ? asked.tokens.slice(first, stop) : null };
  }

  /** Computes the place again. A difference is said in the log, in this tab's name. */
  private async judged(asker: string, place: Place): Promise<CheckVerdict> {
    let verdict: CheckVerdict = 'unable';
    const { view } = this.tab;
    try {
      verdict = await this.judge.compare(asker, place);
      if (verdict === 'differs') {
        const { session, position, units, peer } = place;
        const said = { session, position, units, peer, by: view.me, whenMs: Date.now() };
        const command: CheckFailed = { kind: 'CheckFailed', ...said };
        await view.propose(command);
      }
    } catch (error) {
      if (!(error instanceof PeerError)) throw error; // it cannot be checked, or was said already
    }
    this.made[verdict] += 1;
    return verdict;
  }
}

/** What others ask about steps, answered by the checks of the model whose session it is. */
export class CheckRequests {
  private readonly judging = new Set<string>(); // peers for which a check is under way here, of whatever model
  private readonly of: (session: string) => Checks;

  /** `of(session)`: the checks of its model. */
  constructor(links: Pick<PeerLinks, 'on'>, of: (session: string) => Checks) {
    this.of = of;
    links.on(CHECK, (peer, said) => this.checked(peer, said));
    links.on(WITNESS, (peer, said) => of(said.session).witness(peer, said));
    links.on(ODD, (peer, said) => of(said.session).odd(peer, said));
  }

  private async checked(peer: string, said: CheckRequest): Promise<CheckAnswer> {
    if (this.judging.has(peer)) throw new BadCommand('check: expected one at a time');
    this.judging.add(peer);
    try {
      return await this.of(said.session).checked(peer, said);
    } finally {
      this.judging.delete(peer);
    }
  }
}

/** What was checked of several models together. */
export function addedUp(reports: readonly CheckReport[]): CheckReport {
  const sum = (of: (report: CheckReport) => number): number =>
    reports.reduce((total, report) => total + of(report), 0);
  const counted = (of: (report: CheckReport) => CheckCounts): CheckCounts => ({
    same: sum((report) => of(report).same),
    differs: sum((report) => of(report).differs),
    disputed: sum((report) => of(report).disputed),
    unable: sum((report) => of(report).unable),
  });
  return {
    made: counted(({ made }) => made),
    got: counted(({ got }) => got),
    kept: sum(({ kept }) => kept),
    positions: sum(({ positions }) => positions),
    worstPpm: Math.max(0, ...reports.map(({ worstPpm }) => worstPpm)),
  };
}
