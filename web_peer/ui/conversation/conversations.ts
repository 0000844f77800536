/*
 * The conversations as the page shows and steers them: which one is open, who reads it, which branches, how it is held.
 */

import { computed, type ReadonlySignal, signal } from '@preact/signals';

import { tokensPerS } from '../../src/origin/answer_stream';
import { crossedText } from '../../src/origin/arithmetic_changes';
import type { EntryLink } from '../../src/conversation/entry_links';
import { comeIn, offer } from '../../src/conversation/invite_links';
import type { MeshMember } from '../../src/member/mesh_member';
import { type Conversation, type Conversations, messageOf } from '../../src/state/conversations';
import type { Given, Message } from '../../src/state/generated/commands';
import { type PictureFiles, promptFor } from '../../src/conversation/answer_in_progress';
import { markedText, toldText, unmarkedText } from '../../src/conversation/picture_marks';
import { OwnWords } from '../../src/conversation/local_conversations';
import { type Manner, type Self, Talking } from '../../src/conversation/conversation_client';
import { branchKey, leafOf, shown, type Shown } from '../../src/conversation/turn_order';
import { textOfWaits } from '../../src/stage/seat_waiting';
import {
  colourFor,
  isAnswering,
  NO_TALK,
  type Place,
  talkLines,
  TalkViews,
  titleOf,
} from './conversation_view';
import type { AskChoices } from './ask_choices';
import { asJson, asMarkdown, type Brought, broughtOf } from './export';
import { readFile } from './import_file';
import { type Passage, passagesOf } from './meaning_search';
import { asPage } from './export_page';
import { PickedPictures } from './picked_pictures';
import { privateShelf } from './private_shelf';
import { keepPins, keptPins } from './saved_choices';
import { samplingOfSettings, settingsOfSampling } from './settings_codec';
import { PerFrame } from '../kit/per_frame';
import type { AnswerFacts, AskSettings, Audience, Offered, Role, Talk, TalkLine } from '../app/view';
import { PeerError, textOf } from '../../src/errors';

const STALLED_MS = 2500; // without a token; the person then reads that the mesh is being waited for
const MAX_TITLE = 200; // characters
const SETTLE_MS = 600; // of a slider, before the conversation has what it says

/** What conversations need of whoever holds the mesh. */
export interface Surroundings {
  readonly choices: AskChoices; // for conversations that begin here
  myName(): string;
  /** Whether private conversations that begin here stay in this tab, with both ends of the model. */
  keepsWords(): boolean;
  /** The link this tab came with. */
  link(): string;
  readonly entry: EntryLink | null; // the conversation that it leads into
  /** Names of the models that answer in words now, the mesh's own ("") first. */
  answering(): readonly string[];
  /** A model that answered, for people; "" where the mesh has only one. */
  modelLabel(name: string): string;
  /** In people's words. */
  readable(text: string): string;
  name(peer: string): string;
  /** A token came for an answer of this tab. */
  token(): void;
  /** Somewhere an answer may have ended. */
  over(): void;
  tell(text: string): void;
}

/** Conversations in one place, and what is said there. */
interface Room {
  readonly place: Place;
  readonly talking: Talking;
  readonly conversations: () => Conversations; // as they are kept, without what is not said yet
}

/** The conversations of the mesh and those of this person alone, as signals for the page. */
export class Talks {
  readonly talk = signal<Talk>(NO_TALK);
  readonly audience = signal<Audience>('private'); // of the conversation that begins with the next message
  readonly model = signal(''); // that answers the next question
  readonly list = signal<readonly TalkLine[]>([]);
  readonly settings: ReadonlySignal<AskSettings>;
  private readonly drafted = signal<AskSettings | null>(null); // of a slider that is moved now
  private changed: Partial<AskSettings> = {}; // of drafted, what the person set
  private readonly held = signal<AskSettings | null>(null); // what the open conversation says
  readonly pictures: PickedPictures;
  private readonly around: Surroundings;
  private rooms: { readonly mesh: Room; readonly browser: Room; readonly tab: Room } | null = null;
  private words = new OwnWords(); // of this tab, as long as the page is open
  private of: MeshMember | null = null;
  private open = ''; // "": one that begins with the next message
  private nextModel = ''; // of the conversation that begins with the next message
  private learnt = ''; // the further model that was fetched last, to be asked
  private invited: EntryLink | null; // until this tab came in with it
  private readonly chosen = new Map<string, string>(); // branches
  private readonly seen = new Map<string, number>(); // messages, by conversation
  private pinned: ReadonlySet<string> = new Set(keptPins());
  private query = ''; // what the person looks for in all of them
  private views = new TalkViews();
  private settling: ReturnType<typeof setTimeout> | undefined;
  private readonly frame = new PerFrame(() => this.look());
  private facts = new Map<string, AnswerFacts>();
  private prompt = { key: '', tokens: 0 }; // of the last question that is shown
  /** To this tab, which knows how long it took. */
  lastAnswer: { readonly route: readonly string[]; readonly tokensPerS: number } | null = null;

  constructor(around: Surroundings) {
    this.around = around;
    this.pictures = new PickedPictures((text) => around.tell(text));
    this.invited = around.entry;
    this.settings = computed(() => this.drafted.value ?? this.held.value ?? around.choices.settings.value);
  }

  /** Where the conversation is that is shown, or begins with the next message. */
  private get room(): Room | null {
    const { rooms } = this;
    if (rooms === null) return null;
    if (this.open === '') return this.audience.peek() === 'private' ? this.privateRoom(rooms) : rooms.mesh;
    const own = [rooms.browser, rooms.tab].find(({ talking }) => talking.conversations.has(this.open));
    return own ?? rooms.mesh;
  }

  private get talking(): Talking | null {
    return this.room?.talking ?? null;
  }

  private privateRoom({ browser, tab }: { readonly browser: Room; readonly tab: Room }): Room {
    return this.around.keepsWords() ? tab : browser;
  }

  /** The mesh that this tab is in now. */
  follow(mesh: MeshMember | null): void {
    if (mesh === this.of || mesh === null) return;
    const { model } = mesh.view.state;
    if (model === null ? this.around.answering().length === 0 : mesh.text === null) return;
    this.endTalking();
    this.of = mesh;
    const events = {
      changed: () => this.frame.touch(),
      token: () => this.around.token(),
      refused: (why: string) => this.around.tell(why),
    };
    const kept = new OwnWords(privateShelf(mesh.link.mesh, (text) => this.around.tell(text)));
    const { words } = this;
    const files: PictureFiles = (sha256) => this.pictures.file(sha256);
    this.rooms = {
      mesh: {
        place: 'mesh',
        talking: new Talking(mesh, events, files),
        conversations: () => mesh.view.state.conversations,
      },
      browser: {
        place: 'browser',
        talking: new Talking(kept.of(mesh), events, files),
        conversations: () => kept.conversations,
      },
      tab: {
        place: 'tab',
        talking: new Talking(words.of(mesh), events, files),
        conversations: () => words.conversations,
      },
    };
    this.look();
  }

  /** Another mesh is opened: nothing of this one is shown any more. */
  forget(): void {
    this.endTalking();
    this.words = new OwnWords();
    this.of = null;
    this.open = '';
    this.audience.value = 'private';
    this.model.value = this.nextModel = this.learnt = '';
    this.talk.value = NO_TALK;
    this.list.value = [];
    this.held.value = null;
  }

  /** Looks again; called every now and then, too: marks of who writes fade, answers come to a halt. */
  look(): void {
    const { rooms } = this;
    if (rooms === null) return;
    this.followLink(rooms.mesh.talking);
    const found = new Map<string, { readonly room: Room; readonly conversation: Conversation }>();
    for (const room of [rooms.mesh, rooms.browser, rooms.tab]) {
      for (const [id, conversation] of room.talking.conversations) found.set(id, { room, conversation });
    }
    if (this.open !== '' && !found.has(this.open)) this.show('');
    const open = found.get(this.open);
    if (open !== undefined) this.seen.set(this.open, open.conversation.messages.count);
    this.model.value = open === undefined ? this.nextModelNow() : open.conversation.model;
    this.learn(this.model.value);
    const answered = isAnswering(this.talk.value.turns);
    this.talk.value = open === undefined ? NO_TALK : this.viewOf(open.room, open.conversation);
    this.held.value =
      open === undefined ? null : heldBy(open.conversation, this.held.value, this.around.choices.model.value);
    const around = {
      open: this.open,
      seen: this.seen,
      pinned: this.pinned,
      query: this.query,
      me: rooms.mesh.talking.me,
      ownsMesh: this.ownsMesh,
    };
    const lines = talkLines(
      [...found].map(([id, { room, conversation }]) => ({ id, conversation, place: room.place })),
      around,
    );
    if (JSON.stringify(lines) !== JSON.stringify(this.list.value)) this.list.value = lines;
    if (answered && !isAnswering(this.talk.value.turns)) this.around.over();
  }

  private get ownsMesh(): boolean {
    const view = this.of?.view;
    return view?.state.people.roles.get(view.me) === 'owner';
  }

  // --- what a person does

  ask(text: string, toPeople: boolean): void {
    const { talking } = this;
    if (talking === null) return;
    const pictures = toPeople ? [] : this.pictures.take();
    if (this.open === '') {
      this.settled();
      const settings = this.settings.value;
      const manner = {
        model: this.nextModelNow(),
        system: settings.instructions,
        sampling: samplingOfSettings(settings),
      };
      this.open = this.begin(talking, {
        title: titleOf(text === '' ? toldText(markedText({ pictures, words: '' })) : text),
        ...manner,
      });
    }
    const conversation = talking.conversations.get(this.open);
    if (conversation === undefined) return;
    const form = toPeople ? 'to-people' : 'to-model';
    talking.add(this.open, form, markedText({ pictures, words: text }), leafOf(this.rows(conversation)));
    this.frame.now();
  }

  /** A conversation for the audience that was chosen; the next one is private again. */
  private begin(talking: Talking, manner: Manner): string {
    const made = talking.start(manner, this.self(talking, null));
    if (this.audience.peek() === 'invited') {
      talking.say({ kind: 'EntryChosen', conversation: made, byInvite: true });
    }
    this.audience.value = 'private';
    return made;
  }

  /** Who reads the conversation that begins with the next message. */
  choose(audience: Audience): void {
    this.audience.value = audience;
    this.frame.touch();
  }

  /** Which model answers the open conversation from the next question on, or those that begin here; "": the mesh's. */
  chooseModel(name: string): void {
    const { of, open } = this;
    this.nextModel = name;
    if (open !== '' && this.talk.peek().mayWrite) this.talking?.change(open, { model: name });
    // Its tokenizer is here by the time that something is asked; whoever asks hears what is wrong.
    of?.answering(name).then(
      () => this.frame.touch(),
      (error: unknown) => this.around.tell(textOf(error)),
    );
    this.frame.now();
  }

  /**
   * The model of the conversation that begins with the next message: one that was withdrawn is chosen no more, and the
   * first is where nobody has chosen.
   */
  private nextModelNow(): string {
    const { nextModel } = this;
    const staysHere = this.audience.peek() === 'private' && this.around.keepsWords(); // with the mesh's own alone
    if (staysHere) return '';
    const answering = this.around.answering();
    return answering.includes(nextModel) ? nextModel : (answering[0] ?? '');
  }

  /** Fetches the tokenizer and the settings of a further model that is asked next, whoever chose it. */
  private learn(name: string): void {
    if (name === this.learnt || name === '') return;
    this.learnt = name;
    this.of?.answering(name).then(
      () => this.frame.touch(),
      () => undefined, // whoever asks hears what is wrong
    );
  }

  /** This person takes part in the open conversation from now on. */
  takePart(): void {
    const { talking } = this;
    const conversation = talking?.conversations.get(this.open);
    if (talking === null || conversation === undefined) return;
    talking.enter(this.open, this.self(talking, conversation));
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
    const { pictures } = unmarkedText(message.text);
    this.talking.add(this.open, form, markedText({ pictures, words: text }), message.parent);
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
    if (talk === '') this.audience.value = 'private';
    this.views = new TalkViews();
    this.drafted.value = null;
    this.held.value = null;
    this.frame.now();
  }

  rename(talk: string, title: string): void {
    this.talkingOf(talk)?.change(talk, { title: title.slice(0, MAX_TITLE) });
    this.frame.now();
  }

  remove(talk: string): void {
    const talking = this.talkingOf(talk);
    if (talk === this.open) this.show('');
    talking?.remove(talk);
    this.pin(talk, false);
  }

  /** Pinned conversations stand first, in this browser. */
  pin(talk: string, on: boolean): void {
    this.pinned = new Set([...this.pinned].filter((each) => each !== talk).concat(on ? [talk] : []));
    keepPins([...this.pinned]);
    this.frame.now();
  }

  /** The list shows only conversations in which `query` is said, until it is "" again. */
  search(query: string): void {
    this.query = query;
    this.frame.now();
  }

  /** What is said in conversations that this person holds alone or takes part in, the newest first. */
  passages(): Passage[] {
    const rooms = Object.values(this.rooms ?? {});
    return passagesOf(
      rooms.flatMap(({ talking }) =>
        [...talking.conversations].filter(([, { participants }]) => participants.has(talking.me)),
      ),
    );
  }

  /** The open private conversation once more, for others to read as well. */
  shareCopy(audience: Exclude<Audience, 'private'>): void {
    const text = this.exported('json');
    this.show('');
    this.choose(audience);
    this.bring(broughtOf(text));
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

  exported(form: 'markdown' | 'json' | 'page'): string {
    const { instructions } = this.settings.value;
    const written = { markdown: asMarkdown, json: asJson, page: asPage }[form];
    return written(this.talk.value, instructions);
  }

  /** The conversation of a file; what is wrong with it is told. */
  async importFile(file: Blob): Promise<void> {
    this.bring(await readFile(file));
  }

  /** It begins for whom new conversations do, whatever is shown now. */
  private bring(brought: Brought | string): void {
    const { rooms } = this;
    if (typeof brought === 'string') this.around.tell(brought);
    else if (rooms !== null) {
      this.settled();
      const room = this.audience.peek() === 'private' ? this.privateRoom(rooms) : rooms.mesh;
      const { title, system, messages } = brought;
      const sampling = samplingOfSettings(this.around.choices.settings.value);
      const made = this.begin(room.talking, { title, model: this.nextModelNow(), system, sampling });
      room.talking.bring(made, messages);
      this.show(made);
    }
  }

  /** The open conversation is held so from the next question on, and those that begin here. */
  setSettings(change: Partial<AskSettings>): void {
    this.changed = { ...this.changed, ...change };
    this.draft({ ...this.settings.value, ...change });
  }

  /** The same with what the model has; nothing stays chosen. */
  resetSettings(): void {
    this.changed = {};
    this.around.choices.forget();
    this.draft(this.around.choices.model.value);
  }

  private draft(settings: AskSettings): void {
    this.drafted.value = settings;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.settled(), SETTLE_MS);
  }

  private settled(): void {
    clearTimeout(this.settling);
    const settings = this.drafted.peek();
    if (settings === null) return;
    this.around.choices.choose(this.changed);
    this.changed = {};
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
    if (!conversation.participants.has(talking.me)) {
      const self = this.self(talking, conversation);
      comeIn(talking, of.link.mesh, invited, self).catch((error: unknown) => this.around.tell(textOf(error)));
    }
    this.open = invited.conversation;
    this.views = new TalkViews();
  }

  // --- inner moves

  private endTalking(): void {
    for (const { talking } of Object.values(this.rooms ?? {})) talking.close();
    this.rooms = null;
  }

  private talkingOf(talk: string): Talking | null {
    const rooms = Object.values(this.rooms ?? {});
    return rooms.find(({ talking }) => talking.conversations.has(talk))?.talking ?? null;
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

  private viewOf({ place, talking, conversations }: Room, conversation: Conversation): Talk {
    const { me } = talking;
    const { view } = this.of ?? {};
    const members = view?.state.members ?? new Map<string, unknown>();
    const log = conversations().get(this.open);
    const now = performance.now();
    const around = {
      me,
      place,
      ownsMesh: this.ownsMesh,
      here: new Set(members.keys()),
      typing: new Set(talking.typing(this.open)),
      chosen: this.chosen,
      picture: (sha256: string) => this.pictures.urlOf(sha256),
      open: (id: string) => log === undefined || messageOf(log.messages, id) === undefined,
      readable: (text: string) => this.around.readable(text),
      name: (peer: string) => (members.has(peer) ? this.around.name(peer) : null),
      model: (name: string) => this.around.modelLabel(name),
      usedTokens: this.usedTokens(talking, conversation),
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
    const waits = place === 'mesh' && view?.leader === null && talking.unsaid > 0;
    return this.views.of(this.open, conversation, around, waits);
  }

  /** Tokens of the last question with all before it, and of its answer so far. */
  private usedTokens(talking: Talking, conversation: Conversation): number {
    const row = this.rows(conversation).findLast(({ message }) => message.form === 'to-model');
    if (row === undefined || this.of === null) return 0;
    const key = `${this.open} ${row.message.id} ${conversation.model} ${conversation.system}`;
    if (this.prompt.key !== key) {
      this.prompt = { key, tokens: 0 };
      void this.countPrompt(
        key,
        promptTokens(this.of, conversation, row.message, (sha256) => this.pictures.file(sha256)),
      );
    }
    const { answer } = row;
    const made = answer === null ? 0 : (talking.making(answer.id)?.tokens ?? answer.tokens);
    return this.prompt.tokens + made;
  }

  /** Shows how long the prompt `key` is, once a worker has rendered it. */
  private async countPrompt(key: string, counted: Promise<number>): Promise<void> {
    const tokens = await counted;
    if (this.prompt.key !== key) return; // another question is shown by now
    this.prompt = { key, tokens };
    this.frame.touch();
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

/** 0 where it cannot become tokens. */
async function promptTokens(
  mesh: MeshMember,
  conversation: Conversation,
  question: Message,
  files: PictureFiles,
): Promise<number> {
  try {
    const of = await mesh.answering(conversation.model);
    return (await promptFor(of, conversation, question, files)).tokens.length;
  } catch (error) {
    if (!(error instanceof PeerError)) throw error;
    return 0;
  }
}

function heldBy(
  { sampling, system }: Conversation,
  before: AskSettings | null,
  model: AskSettings,
): AskSettings {
  const held = settingsOfSampling(sampling, system, model);
  return before !== null && JSON.stringify(before) === JSON.stringify(held) ? before : held;
}
