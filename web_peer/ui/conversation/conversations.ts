/* The conversations as the page shows and steers them: which one is open, which branches, how it is held. */

import { computed, type ReadonlySignal, signal } from '@preact/signals';

import { tokensPerS } from '../../src/origin/answer_stream';
import { crossedText } from '../../src/origin/arithmetic_changes';
import type { EntryLink } from '../../src/conversation/entry_links';
import { comeIn, mayComeIn, offer } from '../../src/conversation/invite_links';
import type { MeshMember } from '../../src/member/mesh_member';
import { type Conversation, messageOf } from '../../src/state/conversations';
import type { Given } from '../../src/state/generated/commands';
import { OwnWords } from '../../src/conversation/local_conversations';
import { type Self, Talking } from '../../src/conversation/conversation_client';
import { branchKey, leafOf, shown, type Shown } from '../../src/conversation/turn_order';
import { textOfWaits } from '../../src/stage/seat_waiting';
import { colourFor, isAnswering, NO_TALK, talkLines, TalkViews, titleOf } from './conversation_view';
import { asJson, asMarkdown, broughtOf } from './export';
import { samplingOfSettings, settingsOfSampling } from './settings_codec';
import { PerFrame } from '../kit/per_frame';
import type { AnswerFacts, AskSettings, Offered, Role, Talk, TalkLine } from '../app/view';
import { textOf } from '../../src/errors';

const STALLED_MS = 2500; // without a token; the person then reads that the mesh is being waited for
const SETTLE_MS = 600; // of a slider, before the conversation has what it says

/** What conversations need of whoever holds the mesh. */
export interface Surroundings {
  /** What is kept for conversations that begin here. */
  settings(): AskSettings;
  keepSettings(settings: AskSettings): void;
  myName(): string;
  /** Whether conversations that begin here stay in this tab. */
  keepsWords(): boolean;
  /** The link this tab came with. */
  link(): string;
  readonly entry: EntryLink | null; // the conversation that it leads into
  /** In people's words. */
  readable(text: string): string;
  name(peer: string): string;
  /** A token came for an answer of this tab. */
  token(): void;
  /** Somewhere an answer may have ended. */
  over(): void;
  tell(text: string): void;
}

/** The conversations of the mesh and those of this tab alone, as signals for the page. */
export class Talks {
  readonly talk = signal<Talk>(NO_TALK);
  readonly list = signal<readonly TalkLine[]>([]);
  readonly settings: ReadonlySignal<AskSettings>;
  private readonly drafted = signal<AskSettings | null>(null); // of a slider that is moved now
  private readonly held = signal<AskSettings | null>(null); // what the open conversation says
  private readonly around: Surroundings;
  private shared: Talking | null = null; // the conversations of the mesh
  private own: Talking | null = null; // and those of this tab alone
  private words = new OwnWords();
  private of: MeshMember | null = null;
  private open = ''; // "": one that begins with the next message
  private invited: EntryLink | null; // until this tab came in with it
  private chose = false; // this person said which conversation is shown
  private readonly chosen = new Map<string, string>(); // branches
  private readonly entered = new Set<string>();
  private readonly seen = new Map<string, number>(); // messages, by conversation
  private views = new TalkViews();
  private settling: ReturnType<typeof setTimeout> | undefined;
  private readonly frame = new PerFrame(() => this.look());
  private facts = new Map<string, AnswerFacts>();
  /** To this tab, which knows how long it took. */
  lastAnswer: { readonly route: readonly string[]; readonly tokensPerS: number } | null = null;

  constructor(around: Surroundings, kept: ReadonlySignal<AskSettings>) {
    this.around = around;
    this.invited = around.entry;
    this.settings = computed(() => this.drafted.value ?? this.held.value ?? kept.value);
  }

  /** Where the conversation is that is shown, or begins with the next message. */
  private get talking(): Talking | null {
    const stays = this.open === '' ? this.around.keepsWords() : this.words.conversations.has(this.open);
    return stays || this.own?.conversations.has(this.open) === true ? this.own : this.shared;
  }

  /** The mesh that this tab is in now. */
  follow(mesh: MeshMember | null): void {
    if (mesh === this.of || mesh === null || mesh.text === null) return;
    this.endTalking();
    this.of = mesh;
    this.entered.clear();
    const events = {
      changed: () => this.frame.touch(),
      token: () => this.around.token(),
      refused: (why: string) => this.around.tell(why),
    };
    this.shared = new Talking(mesh, events);
    this.own = new Talking(this.words.of(mesh), events);
    this.look();
  }

  /** Another mesh is opened: nothing of this one is shown any more. */
  forget(): void {
    this.endTalking();
    this.words = new OwnWords();
    this.of = null;
    this.open = '';
    this.chose = false;
    this.talk.value = NO_TALK;
    this.list.value = [];
    this.held.value = null;
  }

  /** Looks again; called every now and then, too: marks of who writes fade, answers come to a halt. */
  look(): void {
    const { shared, own } = this;
    if (shared === null || own === null) return;
    const all = new Map([...shared.conversations, ...own.conversations]);
    this.followLink(shared);
    if (!this.chose && this.open === '') {
      const first = this.around.keepsWords() ? own.conversations : all;
      this.open = talkLines(first, '', this.seen)[0]?.id ?? '';
    }
    if (this.open !== '' && !all.has(this.open)) this.show('');
    const conversation = all.get(this.open);
    const talking = this.talking ?? shared;
    if (conversation !== undefined) {
      this.comeIn(talking, conversation);
      this.seen.set(this.open, conversation.messages.count);
    }
    const answered = isAnswering(this.talk.value.turns);
    this.talk.value = conversation === undefined ? NO_TALK : this.viewOf(talking, conversation);
    this.held.value = conversation === undefined ? null : heldBy(conversation, this.held.value);
    const lines = talkLines(all, this.open, this.seen, (id) => own.conversations.has(id));
    if (JSON.stringify(lines) !== JSON.stringify(this.list.value)) this.list.value = lines;
    if (answered && !isAnswering(this.talk.value.turns)) this.around.over();
  }

  // --- what a person does

  ask(text: string, toPeople: boolean): void {
    const { talking } = this;
    if (talking === null) return;
    if (this.open === '') {
      this.settled();
      const settings = this.settings.value;
      const manner = { system: settings.instructions, sampling: samplingOfSettings(settings) };
      this.open = talking.start({ title: titleOf(text), ...manner }, this.self(talking, null));
      this.entered.add(this.open);
      this.chose = true;
    }
    const conversation = talking.conversations.get(this.open);
    if (conversation === undefined) return;
    const form = toPeople ? 'to-people' : 'to-model';
    talking.add(this.open, form, text, leafOf(this.rows(conversation)));
    this.frame.now();
  }

  /** `mine`: only an answer to this person. */
  stop(mine: boolean): void {
    const { talking } = this;
    const conversation = talking?.conversations.get(this.open);
    if (talking === null || conversation === undefined) return;
    for (const { answer } of this.rows(conversation)) {
      if (answer?.state !== 'running' || (mine && answer.author !== talking.me)) continue;
      talking.stop(this.open, answer.id);
    }
    this.frame.now();
  }

  again(turn: string): void {
    this.chosen.delete(`${turn} answers`);
    this.talking?.again(this.open, turn);
    this.frame.now();
  }

  goOn(turn: string): void {
    const answer = this.row(turn)?.answer;
    if (answer !== null && answer !== undefined) this.talking?.goOn(this.open, answer.id);
    this.frame.now();
  }

  edit(turn: string, text: string): void {
    const row = this.row(turn);
    if (row === null || this.talking === null) return;
    const { message } = row;
    this.chosen.delete(branchKey(message));
    const form = message.form === 'to-people' ? 'to-people' : 'to-model';
    this.talking.add(this.open, form, text, message.parent);
    this.frame.now();
  }

  takeBack(turn: string): void {
    this.talking?.withdraw(this.open, turn);
    this.frame.now();
  }

  turnTo(turn: string, of: 'message' | 'answer', by: number): void {
    const row = this.row(turn);
    if (row === null) return;
    const ids = of === 'message' ? row.branches : row.answers;
    const now = of === 'message' ? row.message : row.answer;
    const next = ids[ids.indexOf(now?.id ?? '') + by];
    if (now === null || next === undefined) return;
    this.chosen.set(branchKey(now), next);
    this.frame.now();
  }

  writes(now: boolean): void {
    if (this.open !== '') this.talking?.write(this.open, now);
  }

  /** Another conversation; "": a new one. */
  show(talk: string): void {
    this.settled();
    this.open = talk;
    this.chose = true;
    this.views = new TalkViews();
    this.drafted.value = null;
    this.held.value = null;
    this.frame.now();
  }

  rename(title: string): void {
    if (this.open !== '') this.talking?.change(this.open, { title: title.slice(0, 200) });
  }

  remove(): void {
    const { open: gone, talking } = this;
    this.show('');
    if (gone !== '') talking?.remove(gone);
  }

  setRole(person: string, role: Role): void {
    this.talking?.setRole(this.open, person, role);
  }

  putOut(person: string): void {
    this.talking?.putOut(this.open, person);
  }

  /** This person is called otherwise from now on, in the open conversation at once. */
  renamed(): void {
    const { talking } = this;
    const conversation = talking?.conversations.get(this.open);
    if (talking !== null && conversation?.participants.has(talking.me) === true) {
      talking.enter(this.open, this.self(talking, conversation));
    }
  }

  exported(form: 'markdown' | 'json'): string {
    const { instructions } = this.settings.value;
    return (form === 'markdown' ? asMarkdown : asJson)(this.talk.value, instructions);
  }

  imported(text: string): void {
    const talking = this.around.keepsWords() ? this.own : this.talking; // it begins here, whatever is shown now
    const brought = broughtOf(text);
    if (typeof brought === 'string') this.around.tell(brought);
    else if (talking !== null) {
      this.settled();
      const { title, system, messages } = brought;
      const sampling = samplingOfSettings(this.around.settings());
      const made = talking.start({ title, system, sampling }, this.self(talking, null));
      talking.bring(made, messages);
      this.entered.add(made);
      this.show(made);
    }
  }

  /** The open conversation is held so from the next question on, and those that begin here. */
  setSettings(settings: AskSettings): void {
    this.drafted.value = settings;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.settled(), SETTLE_MS);
  }

  private settled(): void {
    clearTimeout(this.settling);
    const settings = this.drafted.peek();
    if (settings === null) return;
    this.around.keepSettings(settings);
    this.drafted.value = null;
    if (this.open === '' || !this.talk.peek().mayWrite) return;
    const manner = { system: settings.instructions, sampling: samplingOfSettings(settings) };
    this.held.value = settings;
    this.talking?.change(this.open, manner);
  }

  // --- who comes in

  async offerEntry(role: Given): Promise<Offered | null> {
    const { talking } = this;
    return talking === null ? null : offer(talking, this.around.link(), this.open, role);
  }

  withdrawEntry(key: string): void {
    this.talking?.say({ kind: 'EntryWithdrawn', conversation: this.open, key });
  }

  chooseEntry(byInvite: boolean): void {
    this.talking?.say({ kind: 'EntryChosen', conversation: this.open, byInvite });
  }

  /** Into the conversation that this tab's link leads to, once it is known. */
  private followLink(talking: Talking): void {
    const { invited, of } = this;
    const conversation = invited === null ? undefined : talking.conversations.get(invited.conversation);
    if (invited === null || conversation === undefined || of?.view.state.members.has(talking.me) !== true)
      return;
    this.invited = null;
    this.entered.add(invited.conversation); // with what the link gives, not by itself
    if (!conversation.participants.has(talking.me)) {
      const self = this.self(talking, conversation);
      comeIn(talking, of.link.mesh, invited, self).catch((error: unknown) => this.around.tell(textOf(error)));
    }
    this.open = invited.conversation;
    this.chose = true;
    this.views = new TalkViews();
  }

  // --- inner moves

  private endTalking(): void {
    this.shared?.close();
    this.own?.close();
    this.shared = this.own = null;
  }

  /** Whoever looks at a conversation takes part in it; once, so that who was put out stays out. */
  private comeIn(talking: Talking, { participants }: Conversation): void {
    const { of, open } = this;
    if (this.entered.has(open) || of?.view.state.members.has(talking.me) !== true) return;
    this.entered.add(open);
    const conversation = talking.conversations.get(open);
    if (participants.has(talking.me) || conversation === undefined || !mayComeIn(conversation, talking.me))
      return;
    talking.enter(open, this.self(talking, conversation));
  }

  private self({ me }: Talking, conversation: Conversation | null): Self {
    const known = conversation?.participants.get(me);
    const taken = [...(conversation?.participants.values() ?? [])].map(({ colour }) => colour);
    return { name: this.around.myName(), colour: known?.colour ?? colourFor(me, taken) };
  }

  private rows(conversation: Conversation): Shown[] {
    return shown(conversation.messages, this.chosen);
  }

  private row(turn: string): Shown | null {
    const conversation = this.talking?.conversations.get(this.open);
    if (conversation === undefined) return null;
    return this.rows(conversation).find(({ message }) => message.id === turn) ?? null;
  }

  private viewOf(talking: Talking, conversation: Conversation): Talk {
    const { me } = talking;
    const { view } = this.of ?? {};
    const members = view?.state.members ?? new Map<string, unknown>();
    const isOwn = talking === this.own;
    const log = (isOwn ? this.words : view?.state)?.conversations.get(this.open);
    const now = performance.now();
    const around = {
      me,
      own: isOwn,
      ownsMesh: view?.state.people.roles.get(me) === 'owner',
      here: new Set(members.keys()),
      typing: new Set(talking.typing(this.open)),
      chosen: this.chosen,
      open: (id: string) => log === undefined || messageOf(log.messages, id) === undefined,
      readable: (text: string) => this.around.readable(text),
      name: (peer: string) => view?.state.members.get(peer)?.name ?? null,
      making: (answer: Parameters<typeof talking.heard.text>[0]) => {
        const mine = talking.making(answer.id);
        const said = talking.heard.text(answer);
        const isAhead = mine !== null && mine.tokens >= said.tokens;
        return {
          text: isAhead ? mine.text : said.text,
          tokens: isAhead ? mine.tokens : said.tokens,
          waits: textOfWaits(mine?.waits ?? null),
          stalled: mine !== null && now - mine.lastTokenAt > STALLED_MS,
          facts: this.factsOf(talking, answer.id),
        };
      },
    };
    const waits = !isOwn && view?.leader === null && talking.unsaid > 0;
    return this.views.of(this.open, conversation, around, waits);
  }

  private factsOf(talking: Talking, answer: string): AnswerFacts | null {
    const known = this.facts.get(answer);
    if (known !== undefined) return known;
    const end = talking.ends.get(answer);
    if (end === undefined) return null;
    const route = end.route.map((peer) => this.around.name(peer));
    const { tokens, firstTokenS } = end;
    const crossed = crossedText(end.crossed);
    const told = crossed === '' ? {} : { crossed };
    const facts = { tokens, firstTokenS, tokensPerS: tokensPerS(end), route, ...told };
    this.facts = new Map(this.facts).set(answer, facts);
    this.lastAnswer = { route: end.route, tokensPerS: facts.tokensPerS };
    return facts;
  }
}

function heldBy({ sampling, system }: Conversation, before: AskSettings | null): AskSettings {
  const held = settingsOfSampling(sampling, system);
  return before !== null && JSON.stringify(before) === JSON.stringify(held) ? before : held;
}
