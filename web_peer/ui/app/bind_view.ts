/* Makes the page's `View` of a tab: what the mesh tells becomes plain values in signals, actions go back to the tab. */

import { batch, computed, signal } from '@preact/signals';

import { PieceCache } from '../../src/model/piece_cache';
import type { EntryLink } from '../../src/conversation/entry_links';
import type { LendingState } from '../../src/member/lending';
import type { MeshMember } from '../../src/member/mesh_member';
import type { JoinPhase } from '../../src/member/progress';
import { names } from '../../src/state/display_names';
import { EMPTY_STATE, serving } from '../../src/state/mesh_state';
import { holdersOf, routeOf } from '../../src/state/plan_record';
import type { Member as StateMember } from '../../src/state/generated/commands';
import { NoPlan } from '../../src/errors';
import { awayText } from '../../src/member/reconnect';
import { written, type Written } from '../../src/member/transcription';
import { ASKED, Tab, type TabOptions } from '../../src/member/tab';
import {
  keepLink,
  keepName,
  keepPinEnds,
  keepPledge,
  keepRelayOnly,
  keptLink,
  keptName,
  keptPinEnds,
  keptPledge,
  keptRelayOnly,
  type PledgeRange,
  wasAskedName,
} from '../conversation/saved_choices';
import { meshView, readable, runsOnText, steady } from '../mesh/members_view';
import { NO_PIN, pinEndsOf } from '../join/pinned_ends_switch';
import { PlanWatch } from '../plan/plan_watch';
import { PlanWishing } from '../plan/plan_goal_proposals';
import { embed } from '../models/embedding';
import { ModelRuns } from '../models/model_runs';
import { Recovery } from './recovery';
import type { Report } from '../mesh/reports';
import { allDone, began, firstSteps, progressed } from '../join/join_steps';
import { AskChoices } from '../conversation/ask_choices';
import { Dictation } from '../conversation/dictation';
import { MeaningSearch } from '../conversation/meaning_search';
import { Talks } from '../conversation/conversations';
import { faultOf, LEFT, phaseAfter, STOPPED, troubleOf } from './error_texts';
import { ownReport, Watching } from '../mesh/report_polling';
import type {
  Activity,
  JoinStep,
  Lending,
  MyPart,
  Notice,
  Phase,
  PinEnds,
  Stored,
  Trouble,
  View,
} from './view';
import { nowS } from '../../src/transport/ticker';

const LOOK_MS = 200; // how often what nobody announces is looked at: steps that ran, delays
const BUSY_MS = 700; // after the last token, a member counts as answering
const GONE_SHOWN_MS = 8000; // how long somebody who left stays in the picture
const STORED_MS = 2000; // between looks at what is stored
const CACHE_LIMIT_BYTES = 4e9;

/** What this browser is, and how it computes. */
export interface Device {
  readonly name: string; // for whoever tells none
  readonly named: boolean; // by whoever opened the page: nobody is asked
  readonly pledge: PledgeRange;
  readonly entry: EntryLink | null; // the conversation that the link leads into
  readonly wished: number | null; // memory to lend, by whoever opened the page
  readonly measure: TabOptions['measure'];
}

const NOTHING_STORED: Stored = { bytes: 0, where: 'may-go' };
const NO_PART: MyPart = {
  name: '',
  lending: { kind: 'starting' },
  pledgeBytes: 0,
  pledgeMostBytes: 0,
  usedBytes: 0,
  holds: [],
  runsOn: '',
  tokensHelped: 0,
  tokensPerS: 0,
  stored: NOTHING_STORED,
};

/** The `View` of one tab, kept up to date while the page is open. */
export class Bound {
  readonly view: View;
  private readonly device: Device;
  private readonly phase = signal<Phase>({ kind: 'no-link', trouble: null });
  private readonly steps = signal<readonly JoinStep[]>(firstSteps());
  private readonly told = signal<readonly Notice[]>([]);
  private readonly hidden = signal<ReadonlySet<string>>(new Set());
  private readonly standing = signal<readonly Notice[]>([]);
  private readonly mesh = signal(meshView(EMPTY_STATE, NOBODY));
  private readonly activity = signal<Activity>({ route: [], tokens: 0 });
  private readonly mine = signal<MyPart>(NO_PART);
  private readonly choices = new AskChoices();
  private readonly link = signal('');
  private keepsWords = keptPinEnds(); // of the mesh's own model, as the person set it
  private readonly pinEnds = signal<PinEnds>({ ...NO_PIN, on: this.keepsWords });
  private readonly relayOnly = signal(keptRelayOnly());
  private readonly talks: Talks;
  private readonly recovery = new Recovery(
    () => this.look(),
    (text) => this.tell(text),
  );
  private tab: Tab | null = null;
  private cache: PieceCache | null = null;
  private stored: Stored = NOTHING_STORED;
  private pledge: number;
  private due = false;
  private known = new Map<string, StateMember>(); // by peer id, to show who left
  private left: { readonly member: StateMember; readonly at: number }[] = [];
  private watching = new Watching();
  private readonly plan = new PlanWatch();
  private readonly wishing = new PlanWishing(() => this.look());
  private readonly models = new ModelRuns(() => this.look());
  private readonly meaning = new MeaningSearch();
  private readonly dictation = new Dictation();
  private ranBefore = 0;
  private elsewhere = 0; // tokens of answers that passed others only, not yet shown
  private lastTokenAt = 0;
  private lastStep: { readonly step: string; readonly at: number } = { step: '', at: 0 };

  constructor(device: Device) {
    this.device = device;
    this.pledge = device.wished ?? keptPledge(device.pledge);
    this.mine.value = this.myPart(null);
    this.talks = new Talks({
      choices: this.choices,
      myName: () => this.myName(),
      keepsWords: () => this.pinEnds.value.on,
      answering: () => this.mesh.value.models.map(({ name }) => name),
      link: () => this.link.value,
      entry: device.entry,
      modelLabel: (name) => {
        const { models } = this.mesh.value;
        if (models.length < 2 && name === '') return '';
        return models.find((each) => each.name === name)?.label ?? name;
      },
      readable: (text) => this.inWords(text),
      name: (peer) => this.mesh.value.members.find(({ id }) => id === peer)?.name ?? peer.slice(0, 8),
      token: () => this.tokenCame(1, true),
      over: () => this.look(),
      tell: (text) => this.tell(text),
    });
    const { talks } = this;
    this.view = {
      phase: this.phase,
      steps: this.steps,
      notices: computed(() =>
        [...this.standing.value, ...this.told.value].filter(({ id }) => !this.hidden.value.has(id)),
      ),
      mesh: this.mesh,
      plan: this.plan.view,
      wish: this.wishing.view,
      offered: this.models.offered,
      modelRun: this.models.run,
      activity: this.activity,
      mine: this.mine,
      talk: talks.talk,
      dictation: this.dictation.view,
      dictated: this.dictation.dictated,
      picked: talks.pictures.picked,
      audience: talks.audience,
      model: talks.model,
      talks: talks.list,
      meaning: this.meaning.view,
      meaningModel: this.models.embedder,
      settings: talks.settings,
      modelSettings: this.choices.model,
      link: this.link,
      isInvited: device.entry !== null,
      lastLink: keptLink(),
      relayOnly: this.relayOnly,
      pinEnds: this.pinEnds,
      actions: {
        open: (link) => this.goTo(link),
        join: (name) => {
          keepName(name);
          void this.open(this.link.value);
        },
        retry: () => void this.retry(),
        setRelayOnly: (only) => this.setRelayOnly(only),
        setPinEnds: (on) => {
          keepPinEnds(on);
          this.keepsWords = on;
          this.pinEnds.value = { ...this.pinEnds.value, on };
          this.talks.look();
          this.look();
        },
        ask: (text, toPeople) => talks.ask(text, toPeople),
        addPictures: (files) => void talks.pictures.add(files),
        dictate: () => void this.dictation.start((samples, ended) => this.transcribed(samples, ended)),
        stopDictating: () => this.dictation.stop(),
        dropDictation: () => this.dictation.drop(),
        removePicture: (id) => talks.pictures.remove(id),
        describePicture: (id, alt) => talks.pictures.describe(id, alt),
        stop: () => talks.stop(false),
        stopMine: () => talks.stop(true),
        regenerate: (turn) => talks.again(turn),
        goOn: (turn) => talks.goOn(turn),
        edit: (turn, text) => talks.edit(turn, text),
        takeBack: (turn) => talks.takeBack(turn),
        turnTo: (turn, of, by) => talks.turnTo(turn, of, by),
        writes: (now) => talks.writes(now),
        clear: () => talks.show(''),
        show: (talk) => talks.show(talk),
        choose: (audience) => talks.choose(audience),
        chooseModel: (name) => talks.chooseModel(name),
        takePart: () => talks.takePart(),
        rename: (talk, title) => talks.rename(talk, title),
        remove: (talk) => talks.remove(talk),
        pin: (talk, on) => talks.pin(talk, on),
        search: (query) => {
          talks.search(query);
          const mesh = this.tab?.mesh ?? null;
          if (mesh !== null && query !== '') this.models.lookAtAll(mesh);
          this.meaning.stop(); // what was found is of other words
        },
        searchMeaning: (query) => this.searchMeaning(query.trim()),
        shareCopy: (audience) => talks.shareCopy(audience),
        setRole: (person, role) => talks.setRole(person, role),
        putOut: (person) => talks.putOut(person),
        offerEntry: (role) => talks.offerEntry(role),
        withdrawEntry: (key) => talks.withdrawEntry(key),
        chooseEntry: (byInvite) => talks.chooseEntry(byInvite),
        callMe: (name) => {
          keepName(name);
          this.tab?.rename(this.myName());
          talks.renamed();
          this.look();
        },
        exported: (form) => talks.exported(form),
        importFile: (file) => void talks.importFile(file),
        pause: () => this.tab?.pause(),
        resume: () => this.tab?.resume(),
        leave: () => void this.leave(),
        setPledge: (bytes) => {
          this.pledge = bytes;
          keepPledge(bytes);
          this.tab?.setPledge(bytes);
          this.look();
        },
        deleteStored: () => void this.deleteStored(),
        setSettings: (change) => talks.setSettings(change),
        resetSettings: () => talks.resetSettings(),
        dismiss: (id) => {
          this.hidden.value = new Set([...this.hidden.value, id]);
          this.told.value = this.told.value.filter((notice) => notice.id !== id);
        },
        watchPlan: (shown) => {
          this.plan.watch(shown);
          this.look();
        },
        wishPlan: (strategy, goal) => {
          const mesh = this.tab?.mesh ?? null;
          if (mesh !== null) this.wishing.wish(mesh, { strategy, goal });
        },
        lookAtModel: (name) => {
          const mesh = this.tab?.mesh ?? null;
          if (mesh !== null) void this.models.lookAt(mesh, name);
        },
        runModel: (name, inputs) => {
          const mesh = this.tab?.mesh ?? null;
          if (mesh !== null) void this.models.ask(mesh, name, inputs);
        },
        stopModel: () => this.models.stop(),
      },
    };
  }

  private transcribed(samples: Float32Array, ended: AbortSignal): AsyncGenerator<Written, void> {
    const mesh = this.tab?.mesh ?? null;
    const name = this.mesh.value.writes;
    if (mesh === null || name === '') throw new NoPlan('no model of this mesh writes what is said any more');
    return written(mesh, name, samples, AbortSignal.any([ended, mesh.signal]));
  }

  private searchMeaning(query: string): void {
    const mesh = this.tab?.mesh ?? null;
    const name = this.models.embedder.value;
    const id = mesh?.view.state.offers.get(name)?.model;
    if (query === '' || mesh === null || id === undefined) this.meaning.stop();
    else {
      void this.meaning.look(query, this.talks.passages(), {
        name,
        id,
        embed: (texts, ended) => embed(mesh, name, texts, AbortSignal.any([ended, mesh.signal])),
      });
    }
  }

  /** Joins by `link`, or shows where to put one when it is empty. Follows the mesh until the page goes. */
  start(link: string): void {
    setInterval(() => this.lookAround(), LOOK_MS);
    setInterval(() => void this.lookAtStored(), STORED_MS);
    addEventListener('online', () => this.look());
    addEventListener('offline', () => this.look());
    if (link !== '') this.enter(link);
  }

  /** Asks what the person is called where nobody has told, then joins. */
  private enter(link: string): void {
    if (this.device.named || wasAskedName()) {
      void this.open(link);
      return;
    }
    this.link.value = link;
    this.phase.value = { kind: 'asking' };
  }

  /** A link that a person typed: of another server, that server's page opens it. */
  private goTo(link: string): void {
    const url = URL.parse(link);
    const isWeb = url?.protocol === 'https:' || url?.protocol === 'http:';
    const isMore = url?.hash.includes('&') === true; // read when the page is loaded
    if (url !== null && isWeb && (url.origin !== location.origin || isMore)) {
      location.assign(url);
      return;
    }
    if (url !== null && isWeb) history.replaceState(null, '', url);
    this.enter(link);
  }

  private async open(link: string): Promise<void> {
    this.tab?.close();
    this.talks.forget();
    this.wishing.forget();
    this.models.forget();
    this.meaning.forget();
    this.dictation.drop();
    this.link.value = link;
    this.steps.value = firstSteps();
    this.phase.value = { kind: 'joining' };
    this.cache ??= await PieceCache.open({
      limitBytes: CACHE_LIMIT_BYTES,
      now: () => Date.now(),
      notice: (text) => this.tell(text),
    });
    const { measure } = this.device;
    const tab = new Tab(
      link,
      {
        name: this.myName(),
        memoryBytes: this.pledge,
        lends: true,
        relayOnly: this.relayOnly.value,
        cache: this.cache,
        measure,
      },
      { changed: () => this.changed(), notice: (text) => this.tell(text) },
    );
    this.tab = tab;
    await tab.start();
    if (this.tab !== tab)
      await tab.leave(); // cancelled meanwhile
    else if (tab.state.kind === 'in') keepLink(link);
    await this.lookAtStored();
    this.look();
  }

  private myName(): string {
    return keptName() ?? this.device.name;
  }

  private async retry(): Promise<void> {
    if (this.tab === null) return this.open(this.link.value);
    this.steps.value = firstSteps();
    await this.tab.retry();
    this.look();
    return undefined;
  }

  private setRelayOnly(only: boolean): void {
    this.relayOnly.value = only;
    keepRelayOnly(only);
    const kind = this.tab?.state.kind;
    if (kind === 'joining' || kind === 'waiting') this.stopJoining(STOPPED);
    else if (kind === 'out') {
      this.tab?.close();
      this.tab = null; // whoever joins again joins so
    }
  }

  private stopJoining(trouble: Trouble): void {
    this.tab?.close();
    this.tab = null;
    this.phase.value = { kind: 'out', trouble };
  }

  private async leave(): Promise<void> {
    const { tab } = this;
    if (tab?.state.kind === 'joining' || tab?.state.kind === 'waiting') {
      this.stopJoining(LEFT);
      return;
    }
    await tab?.leave();
    this.look();
  }

  private async deleteStored(): Promise<void> {
    await this.cache?.clear();
    await this.lookAtStored();
    this.look();
  }

  private tell(text: string): void {
    const words = this.inWords(text);
    const notice: Notice = { id: words, tone: 'warn', text: words, act: null };
    this.hidden.value = new Set([...this.hidden.value].filter((id) => id !== words));
    this.told.value = [...this.told.value.filter(({ id }) => id !== words), notice].slice(-3);
  }

  private inWords(text: string): string {
    const state = this.tab?.mesh?.view.state ?? EMPTY_STATE;
    return readable(text, names(state.members.values()), state.model?.units ?? 0);
  }

  // --- looking

  /** Something changed: looks once, after everything that happens in the same moment. */
  private changed(): void {
    if (this.due) return;
    this.due = true;
    queueMicrotask(() => {
      this.due = false;
      this.look();
    });
  }

  private look(): void {
    const { tab } = this;
    if (tab === null) return;
    batch(() => {
      const { mesh } = tab;
      if (tab.state.kind !== 'waiting') this.step(tab.phase, mesh);
      else if (this.phase.value.kind !== 'waiting') this.steps.value = firstSteps();
      const phase = this.phaseNow(tab);
      if (JSON.stringify(phase) !== JSON.stringify(this.phase.value)) this.phase.value = phase;
      this.standing.value = [...standingNotices(tab), ...this.recovery.notices(mesh)];
      this.mine.value = this.myPart(mesh);
      this.talks.follow(mesh);
      const asked = mesh?.asked(this.talks.model.value) ?? null;
      if (asked !== null) this.choices.follow(asked.samplingDefaults);
      this.lookAtEnds(mesh);
      if (mesh !== null) {
        this.noteWhoLeft(mesh);
        this.lookAtMesh(mesh);
      }
    });
  }

  private phaseNow(tab: Tab): Phase {
    const { state } = tab;
    switch (state.kind) {
      case 'joining':
        return whileJoining(this.phase.value, tab.phase.step);
      case 'waiting': {
        const leftS = Math.max(1, Math.ceil((state.untilMs - performance.now()) / 1000));
        return { kind: 'waiting', trouble: troubleOf(faultOf(state.error)), leftS };
      }
      case 'in':
        return { kind: 'in' };
      case 'out':
        return state.left ? { kind: 'out', trouble: LEFT } : phaseAfter(faultOf(state.error));
    }
  }

  private step(phase: JoinPhase, mesh: MeshMember | null): void {
    const now = performance.now();
    const again = this.lastStep.step === phase.step;
    const elapsedS = again ? (now - this.lastStep.at) / 1000 : 0;
    let steps = began(this.steps.value, phase.step, this.inWords(phase.detail).replace(/\.$/, ''));
    if (phase.total > 0) {
      steps = progressed(steps, phase.step, phase.done, phase.total, elapsedS);
      steps = steps.map((step) =>
        step.name === phase.step && phase.perSecond > 0 ? { ...step, perSecond: phase.perSecond } : step,
      );
    }
    if (phase.total > 0 && phase.done >= phase.total) steps = began(steps, 'ready', 'Loading it into memory');
    if (mesh !== null && isReady(mesh, phase)) steps = allDone(steps);
    this.lastStep = { step: phase.step, at: now };
    this.steps.value = steps;
  }

  /** Has the ends of the model here as long as the person wants that, and says how far they are. */
  private lookAtEnds(mesh: MeshMember | null): void {
    const on = this.keepsWords && this.mesh.value.hasOwn;
    const ends = mesh?.ends ?? null;
    ends?.wish(on);
    const next = ends === null ? { ...NO_PIN, on } : pinEndsOf(ends, on);
    if (JSON.stringify(next) !== JSON.stringify(this.pinEnds.value)) this.pinEnds.value = next;
  }

  private noteWhoLeft(mesh: MeshMember): void {
    const now = performance.now();
    const { members } = mesh.view.state;
    if (members.size === 0) return; // coming back: the state is on its way
    for (const [peer, member] of this.known) {
      if (!members.has(peer) && peer !== mesh.view.me) this.left.push({ member, at: now });
    }
    this.left = this.left.filter(({ member, at }) => !members.has(member.peer) && now - at < GONE_SHOWN_MS);
    this.known = new Map(members);
  }

  private lookAtMesh(mesh: MeshMember): void {
    const { links, view } = mesh;
    if (view.state.members.size === 0) return; // before it is in the mesh, and while it comes back
    const plan = serving(view.state);
    const { reports } = this.watching;
    const now = nowS();
    const route = plan === null ? [] : routeOf(plan);
    const busy = new Set(reports.working(now));
    const answers = performance.now() - this.lastTokenAt < BUSY_MS || mesh.isAnswering();
    // A token crosses every stage: who sees one at work knows that all are.
    if (answers || route.some((peer) => busy.has(peer))) route.forEach((peer) => busy.add(peer));
    const rttS = new Map<string, number>();
    for (const peer of links.connectedPeers()) {
      rttS.set(peer, steady(links.connection(peer)?.rttS ?? 0));
    }
    const mine = mesh.lending.facts();
    const seen = {
      me: view.me,
      coordinator: view.leader,
      consensus: view.replica?.status ?? null,
      busy,
      rttS,
      reports: new Map([...reports.all(), [view.me, ownReport(mesh)]]),
      stepsPerS: new Map([
        ...[...busy].map((peer) => [peer, tenths(reports.stepsPerS(peer, now))] as const),
        [view.me, busy.has(view.me) ? tenths(mine.tokensPerS) : 0] as const,
      ]),
      left: this.left.map(({ member }) => member),
      online: navigator.onLine,
      lost: mesh.away?.needed ?? false,
      unreached: links.unreached,
      askable: new Set(
        [...mesh.decoders].filter(({ takesQuestions }) => takesQuestions === true).map(({ name }) => name),
      ),
      ...mesh.kinds(),
    };
    this.wishing.look(mesh, performance.now());
    this.models.look(mesh);
    this.plan.look(mesh, { ...seen, answer: this.talks.lastAnswer }, performance.now());
    const next = meshView(view.state, seen);
    const { models, inWords } = this.mesh.value;
    if (JSON.stringify(next) !== JSON.stringify(this.mesh.value)) this.mesh.value = next;
    if (inWords && !next.inWords && models.length > 0) {
      const gone = models.map(({ label }) => label).join(', ');
      this.tell(`No model of this mesh answers in words any more: ${gone} was withdrawn`);
    }
  }

  /** What nobody announces: steps of others' answers that ran here, delays, who has been gone long enough. */
  private lookAround(): void {
    const mesh = this.tab?.mesh ?? null;
    if (this.tab?.state.kind === 'waiting') this.look(); // its seconds pass
    if (mesh === null) return;
    this.watching.look(mesh, performance.now());
    const ran = mesh.stage.core.stepsRun;
    if (ran > this.ranBefore) this.tokenCame(ran - this.ranBefore, false);
    else this.lookElsewhere(mesh);
    this.ranBefore = ran;
    this.talks.look();
    this.look();
  }

  /** Tokens of answers that neither ask here nor cross this tab, as the peers they cross report them. */
  private lookElsewhere(mesh: MeshMember): void {
    const plan = serving(mesh.view.state);
    if (plan === null || performance.now() - this.lastTokenAt < BUSY_MS) return;
    const route = routeOf(plan);
    const now = nowS();
    const perS = Math.max(0, ...route.map((peer) => this.watching.reports.stepsPerS(peer, now)));
    this.elsewhere = perS === 0 ? 0 : this.elsewhere + (perS * LOOK_MS) / 1000;
    const whole = Math.floor(this.elsewhere);
    if (whole === 0) return;
    this.elsewhere -= whole;
    this.activity.value = { route, tokens: this.activity.value.tokens + whole };
  }

  /** `own`: of an answer to this tab, which the last stage sends the token to. */
  private tokenCame(count: number, own: boolean): void {
    const view = this.tab?.mesh?.view;
    const plan = view === undefined ? null : serving(view.state);
    const route = plan === null ? [] : routeOf(plan);
    const asks = own && view !== undefined && !route.includes(view.me) ? [view.me] : [];
    this.lastTokenAt = performance.now();
    this.activity.value = {
      route: [...asks, ...route],
      tokens: this.activity.value.tokens + count,
    };
  }

  private async lookAtStored(): Promise<void> {
    if (this.cache === null) return;
    const { where, persisted, bytes } = await this.cache.usage();
    const next: Stored = { bytes, where: where === 'memory' ? 'memory' : persisted ? 'kept' : 'may-go' };
    if (next.bytes === this.stored.bytes && next.where === this.stored.where) return;
    this.stored = next;
    this.look();
  }

  private myPart(mesh: MeshMember | null): MyPart {
    const facts = mesh?.lending.facts();
    const next: MyPart = {
      name: this.myName(),
      lending: mesh === null ? { kind: 'starting' } : lendingOf(mesh, this.tab),
      pledgeBytes: this.pledge,
      pledgeMostBytes: this.device.pledge.most,
      usedBytes: (facts?.weightBytes ?? 0) + (facts?.kvBytes ?? 0),
      holds: facts?.runs.map(({ first, stop }) => [first, stop] as const) ?? [],
      runsOn: facts === undefined || facts.provider === '' ? '' : runsOnText(facts.provider, facts.threads),
      tokensHelped: facts?.tokensHelped ?? 0,
      tokensPerS: tenths(facts?.tokensPerS ?? 0),
      stored: this.stored,
    };
    const before = this.mine.value;
    return JSON.stringify(before) === JSON.stringify(next) ? before : next;
  }
}

const NOBODY = {
  me: '',
  coordinator: null,
  consensus: null,
  busy: new Set<string>(),
  rttS: new Map<string, number>(),
  reports: new Map<string, Report>(),
  stepsPerS: new Map<string, number>(),
  left: [],
  online: true,
  lost: false,
  sees: new Set<string>(),
  hears: new Set<string>(),
  unreached: new Set<string>(),
  askable: new Set<string>(),
};

/** The phase of a tab that joins at `step`, after the phase `before`. */
function whileJoining(before: Phase, step: JoinPhase['step']): Phase {
  switch (before.kind) {
    case 'in': // a tab that changes its role is still in the mesh for whoever looks at it
      return before;
    case 'waiting': // another try that fails like the last one changes nothing on the page
      return step === 'connect' ? { ...before, leftS: 0 } : { kind: 'joining' };
    case 'no-link':
    case 'asking':
    case 'joining':
    case 'out':
      return { kind: 'joining' };
  }
}

const tenths = (value: number): number => Math.round(value * 10) / 10;

/** Whether this tab does all that it is asked to do: a spare one waits for nothing. */
function isReady(mesh: MeshMember, phase: JoinPhase): boolean {
  if (phase.step === 'ready' || mesh.lending.state.kind === 'asks') return true;
  const { state, me } = mesh.view;
  if (state.model === null) return false; // it says so when it has measured itself
  const wanted = [state.plan, state.proposed].flatMap((plan) =>
    plan === null ? [] : (holdersOf(plan).get(me) ?? []),
  );
  const held = mesh.lending.facts().runs;
  const has = wanted.every((run) => held.some(({ first, stop }) => first === run.first && stop === run.stop));
  return has && (wanted.length > 0 || (serving(state) !== null && state.proposed === null));
}

function lendingOf(mesh: MeshMember, tab: Tab | null): Lending {
  const lending = mesh.lending.state;
  switch (lending.kind) {
    case 'lending':
      return tab !== null && !isReady(mesh, tab.phase) ? { kind: 'starting' } : { kind: 'lending' };
    case 'starting':
      return { kind: 'starting' };
    case 'paused':
      return { kind: 'paused', why: lending.why === ASKED ? '' : lending.why };
    case 'asks':
      return { kind: 'asks', why: asksText(lending, tab) };
  }
}

function asksText(lending: Extract<LendingState, { kind: 'asks' }>, tab: Tab | null): string {
  if (tab?.viewer === true) {
    return 'Another tab of this browser lends already. This one asks, and takes over when the other closes.';
  }
  return readable(lending.why === '' ? 'this tab only asks' : lending.why, new Map(), 0);
}

function standingNotices(tab: Tab): readonly Notice[] {
  const notices: Notice[] = [];
  const note = (id: string, tone: Notice['tone'], text: string, act: Notice['act'] = null): void => {
    notices.push({ id, tone, text, act });
  };
  const { mesh } = tab;
  const away = mesh?.away ?? null;
  if (!navigator.onLine) {
    note(
      'offline',
      'bad',
      'This machine is offline. The mesh goes on without it; this tab comes back by itself.',
    );
  } else if (away !== null) {
    const act = { label: 'Try now', run: () => mesh?.tryNow() };
    note('coordinator', 'bad', readable(awayText(away), new Map(), 0), act);
  } else if (mesh?.client.state === 'lost') {
    note(
      'server',
      'calm',
      'The server that introduces people is away. Everyone who is here goes on; nobody new can join until it is back.',
    );
  }
  if (tab.viewer && mesh !== null) {
    note('viewer', 'calm', 'Another tab of this browser already computes. You can ask here all the same.');
  }
  const lending = mesh?.lending ?? null;
  const standing = lending?.state;
  if (standing?.kind === 'paused' && standing.why !== ASKED && navigator.onLine) {
    const how =
      (lending?.facts().runs.length ?? 0) > 0
        ? 'serves on only while nobody else can'
        : 'lends nothing for now';
    note('paused', 'calm', `This tab ${how}: ${standing.why.replace(/[.?!]$/, '')}.`);
  }
  return notices;
}
