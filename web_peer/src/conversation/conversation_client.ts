/*
 * Conversations of the mesh as this tab takes part in them: asking in turn, showing what others' answers say while they
 * are made, making an answer go on whose asker is gone (twin of peer/conversation/conversation_client.py). Edge;
 * turn_order.ts and live_answer.ts decide.
 *
 * The log is the truth. Beside it members send each other hints, which are never trusted or kept (live_hints.ts).
 */

import {
  ASK_SETTINGS,
  type AskSettings,
  type Conversation as Session,
  type Finished,
} from '../origin/answer_stream';
import { PeerError, textOf } from '../errors';
import { Heard, type Stream } from './live_answer';
import { toHex } from '../wire/hex';
import { Hints, pieceOf, TYPING_MS } from './live_hints';
import { begunOf, type End, Making, type PictureFiles, promptFor, roomOf } from './answer_in_progress';
import type { GivenRows } from '../session/position_spans';
import { type Conversation, type Conversations, messageOf, messagesOf } from '../state/conversations';
import type {
  ConversationCommand,
  EntryCommand,
  Form,
  Message,
  MessageAdded,
  Role,
} from '../state/generated/commands';
import { Proposals } from '../replication/proposal_queue';
import { type SamplingDefaults, USUAL } from '../planner/sampling_defaults';
import { samplingFor, samplingFromWire, samplingOf, samplingToWire } from '../session/sampling';
import type { Heard as Standing } from '../session/origin';
import type { Answering, TalkMesh } from './local_conversations';
import { adopters, nextTurn, running } from './turn_order';
import { LIVE, type LiveRequest, TYPING, type TypingRequest } from '../wire/generated/requests';

const ADOPT_STEP_MS = 300; // between those who may make an answer go on
const PLAN_WAIT_S = 60; // a question that finds no plan says so, and can be asked again
const ID_BYTES = 9;
const SESSION_BYTES = 16;
const MAX_SESSIONS = 4; // kept for next questions, each a slot on every stage
const MAX_KEPT = 32; // answers that ended
const COLOURLESS = '#888888';
const MAX_REASON = 400; // characters

export interface TalkingEvents {
  /** Something is to be shown. */
  changed(): void;
  /** A token came for an answer that this tab makes. */
  token(): void;
  /** The mesh did not take something that the person said. */
  refused(why: string): void;
}

/** What a person is called in conversations, and in which colour. */
export interface Self {
  readonly name: string;
  readonly colour: string;
}

/**
 * How a conversation is held. `model`: which one answers, by name ("": the mesh's own). `sampling`: eight integers as in OPEN, the most tokens of an answer (0: as many as fit),
 * and whether the seed holds for every question (1) or is drawn for each (0).
 */
export interface Manner {
  readonly title: string;
  readonly model: string;
  readonly system: string;
  readonly sampling: readonly number[];
}

/** An answer that this tab is to make go on, as soon as the log says so. */
interface Adoption {
  readonly ids: readonly number[];
  readonly standing: Standing | null;
}

/** A session that is kept for the next question, and the model that it is with. */
interface Kept {
  readonly model: string;
  readonly session: Session;
}

/** A question as tokens and rows of pictures, the tokens that its answer may have, and who answers. */
interface Asked {
  readonly of: Answering;
  readonly prompt: readonly number[];
  readonly rows: readonly GivenRows[];
  readonly room: number;
}

/** This person in the conversations of the mesh: what they propose, ask and adopt. */
export class Talking {
  conversations: Conversations = new Map(); // as said here, committed or not
  readonly heard = new Heard();
  readonly ends = new Map<string, Finished>(); // of answers that this tab made, by message
  private readonly mesh: TalkMesh;
  private readonly events: TalkingEvents;
  private readonly files: PictureFiles;
  private readonly proposals: Proposals;
  private readonly hints: Hints;
  private readonly subscriptions: (() => void)[];
  private readonly makings = new Map<string, Making>(); // by message
  private readonly sessions = new Map<string, Kept>(); // by conversation, the oldest first
  private readonly kept = new Map<string, readonly number[]>(); // tokens of answers that ended early here, by message
  private readonly preparing = new Set<string>(); // answers that go on here once their prompt is read
  private readonly acted = new Set<string>(); // what is acted upon only once
  private readonly adoptions = new Map<string, Adoption>(); // by session
  private readonly typists = new Map<string, Map<string, number>>(); // by conversation: until when, by peer
  private readonly looked = new Map<
    string,
    { readonly conversation: Conversation; readonly members: unknown }
  >();

  /** `files`: pictures that this tab has. */
  constructor(mesh: TalkMesh, events: TalkingEvents, files: PictureFiles = () => null) {
    this.files = files;
    this.mesh = mesh;
    this.events = events;
    const { links, view } = mesh;
    this.hints = new Hints(links);
    this.proposals = new Proposals(links, view, mesh.signal, {
      changed: () => this.look(),
      refused: (command, why) => this.notTaken(command, why),
    });
    this.subscriptions = [
      links.on(LIVE, (peer, hint) => this.grownElsewhere(peer, hint)),
      links.on(TYPING, (peer, hint) => this.typed(peer, hint)),
      view.subscribe(() => this.look()),
      view.onRole(() => this.look()),
    ];
    mesh.onEnded(() => this.close());
    this.look();
  }

  /** Hears nothing of the mesh any more. */
  close(): void {
    for (const end of this.subscriptions.splice(0)) end();
  }

  get me(): string {
    return this.mesh.view.me;
  }

  /** Commands that nobody has taken yet. */
  get unsaid(): number {
    return this.proposals.count;
  }

  /** Who writes now in a conversation. */
  typing(conversation: string): readonly string[] {
    const now = performance.now();
    return [...(this.typists.get(conversation) ?? [])].flatMap(([peer, until]) =>
      until > now ? [peer] : [],
    );
  }

  /** How an answer is made here now. */
  making(message: string): Making | null {
    return this.makings.get(message) ?? null;
  }

  // --- what a person does

  /** A new conversation; this peer owns it. */
  start({ title, model, system, sampling }: Manner, self: Self): string {
    const conversation = newId();
    const settings = { title, model, system, sampling };
    const when = { whenMs: Date.now(), peer: this.me };
    this.proposals.say({ kind: 'ConversationStarted', conversation, ...settings, ...when, ...self });
    return conversation;
  }

  /** Comes into a conversation, or changes what this peer is called there. */
  enter(conversation: string, self: Self): void {
    const known = this.conversations.get(conversation)?.participants.get(this.me);
    if (known?.name === self.name && known.colour === self.colour) return;
    const mine = this.mesh.view.state.people.roles.get(this.me);
    const role = known?.role ?? (mine === 'viewer' ? 'viewer' : 'member');
    this.proposals.say({ kind: 'ParticipantSet', conversation, peer: this.me, ...self, role });
  }

  setRole(conversation: string, peer: string, role: Role): void {
    const found = this.conversations.get(conversation);
    const member = this.mesh.view.state.members.get(peer);
    const known = found?.participants.get(peer) ?? (member === undefined ? undefined : stranger(member.name));
    if (found === undefined || known === undefined || known.role === role) return;
    const { name, colour } = known;
    this.proposals.say({ kind: 'ParticipantSet', conversation, peer, name, colour, role });
  }

  putOut(conversation: string, peer: string): void {
    const kind = peer === this.me ? 'ParticipantLeft' : 'ParticipantPutOut';
    this.proposals.say({ kind, conversation, peer });
  }

  /** What else a person decides about a conversation. */
  say(command: EntryCommand): void {
    this.proposals.say(command);
  }

  change(conversation: string, change: Partial<Manner>): void {
    const found = this.conversations.get(conversation);
    if (found === undefined) return;
    const { title, model, system, sampling } = found;
    const settings = { title, model, system, sampling, ...change };
    this.proposals.say({ kind: 'ConversationChanged', conversation, ...settings });
  }

  remove(conversation: string): void {
    this.proposals.say({ kind: 'ConversationRemoved', conversation });
  }

  /** A question, or a message to people. Its id. */
  add(conversation: string, form: Exclude<Form, 'answer'>, text: string, parent: string): string {
    const id = newId();
    this.proposals.say(this.added(conversation, { id, parent, form, text }));
    this.write(conversation, false);
    return id;
  }

  /** Another answer to a question that has one. */
  again(conversation: string, question: string): void {
    const found = this.conversations.get(conversation);
    const message = found === undefined ? undefined : messageOf(found.messages, question);
    if (found === undefined || message === undefined || running(found) !== null) return;
    this.acted.add(question);
    this.ask(conversation, found, message, true).catch(reportError);
  }

  /** An answer that was stopped, failed or was cut goes on. */
  goOn(conversation: string, answer: string): void {
    const found = this.messageIn(conversation, answer);
    if (found === null || found.state === 'running' || found.state === 'done') return;
    this.adopt(conversation, found, null).catch(reportError);
  }

  /** Ends an answer, anybody's. */
  stop(conversation: string, answer: string): void {
    const found = this.messageIn(conversation, answer);
    if (found?.state !== 'running') return;
    const making = this.makings.get(answer);
    if (making === undefined) this.end(conversation, found, 'stopped', '');
    else making.stop();
  }

  /** A question that waits is taken back. */
  withdraw(conversation: string, question: string): void {
    const id = newId();
    const answer = { id, parent: question, form: 'answer', text: '', session: newSession() } as const;
    const end = { state: 'stopped', tokens: 0, text: null, reason: 'taken back' } as const;
    this.proposals.say(this.added(conversation, answer), { kind: 'MessageEnded', conversation, id, ...end });
  }

  /** Whole messages, as of a conversation that was kept in a file. */
  bring(conversation: string, messages: readonly Pick<Message, 'form' | 'text'>[]): void {
    let parent = '';
    const ended = { state: 'done', tokens: 0, text: null, reason: '' } as const;
    const commands = messages.flatMap(({ form, text }): ConversationCommand[] => {
      const id = newId();
      const isAnswer = form === 'answer';
      const said = this.added(conversation, {
        id,
        parent,
        form,
        text,
        session: isAnswer ? newSession() : '',
      });
      parent = id;
      return isAnswer ? [said, { kind: 'MessageEnded', conversation, id, ...ended }] : [said];
    });
    this.proposals.say(...commands);
  }

  /** This person writes, or has stopped writing. */
  write(conversation: string, typing: boolean): void {
    this.hints.typing(conversation, this.others(conversation), typing);
  }

  // --- looking

  /** Does what the log asks of this peer. */
  look(): void {
    const { state } = this.mesh.view;
    this.conversations = this.proposals.over(state.conversations);
    const under = new Set<string>();
    for (const [id, conversation] of this.conversations) {
      const answer = running(conversation);
      if (answer !== null) under.add(answer.id);
      const before = this.looked.get(id);
      const isLogged = conversation === state.conversations.get(id);
      if (isLogged && before?.conversation === conversation && before.members === state.members) continue;
      this.looked.set(id, { conversation, members: state.members });
      this.lookAt(id, conversation, answer);
    }
    for (const gone of this.looked.keys()) {
      if (this.conversations.has(gone)) continue;
      this.looked.delete(gone);
      this.typists.delete(gone);
    }
    for (const [id, making] of this.makings) {
      const message = this.messageIn(making.conversation, id);
      if (message?.state !== 'running' || message.author !== this.me) making.stop();
    }
    this.heard.keepOnly(under);
    this.events.changed();
  }

  private lookAt(id: string, conversation: Conversation, answer: Message | null): void {
    for (const message of messagesOf(conversation.messages)) {
      if (message.form === 'answer') this.heard.follow(message);
    }
    const { view } = this.mesh;
    const present = new Set(view.state.members.keys());
    if (!present.has(this.me)) return;
    if (answer !== null) this.follow(id, conversation, answer, present);
    const next = nextTurn(conversation, present);
    if (next?.asker !== this.me || this.acted.has(next.question.id)) return;
    // Its place in the queue is the log's to say; while nobody keeps the log, this tab goes on by itself.
    const isLogged = this.inLog(id, next.question.id) !== undefined;
    if (isLogged || view.leader === null) {
      this.acted.add(next.question.id);
      this.ask(id, conversation, next.question).catch(reportError);
    }
  }

  /** An answer under way: this tab makes it, or another does, or its author is gone. */
  private follow(
    id: string,
    conversation: Conversation,
    answer: Message,
    present: ReadonlySet<string>,
  ): void {
    const { author, session } = answer;
    if (author === this.me) {
      const logged = this.inLog(id, answer.id);
      if (this.makings.has(answer.id) || this.preparing.has(answer.id)) return;
      if (logged?.author !== this.me || logged.session !== session) return;
      const adoption = this.adoptions.get(session);
      this.adoptions.delete(session);
      if (adoption !== undefined) this.resume(id, conversation, answer, adoption).catch(reportError);
      // This peer asked before its page was loaded anew: what came is known to the log alone.
      else if (this.once(`${answer.id} ${session}`)) this.adopt(id, answer, null).catch(reportError);
      return;
    }
    const place = adopters(conversation, answer, present).indexOf(this.me);
    if (place < 0 || !this.once(`${answer.id} of ${author}`)) return;
    setTimeout(() => {
      this.acted.delete(`${answer.id} of ${author}`);
      const now = this.messageIn(id, answer.id);
      if (now?.state !== 'running' || now.author !== author || this.mesh.signal.aborted) return;
      if (this.mesh.view.state.members.has(author)) return;
      const heard = this.heard.of(now.id);
      this.adopt(id, now, heard?.sure === true ? heard.standing : null).catch(reportError);
    }, place * ADOPT_STEP_MS);
  }

  private once(what: string): boolean {
    if (this.acted.has(what)) return false;
    this.acted.add(what);
    return true;
  }

  private inLog(conversation: string, id: string): Message | undefined {
    const logged = this.mesh.view.state.conversations.get(conversation);
    return logged === undefined ? undefined : messageOf(logged.messages, id);
  }

  private messageIn(conversation: string, id: string): Message | null {
    const found = this.conversations.get(conversation);
    return (found === undefined ? undefined : messageOf(found.messages, id)) ?? null;
  }

  // --- answers of this tab

  private async ask(
    id: string,
    conversation: Conversation,
    question: Message,
    isAgain = false,
  ): Promise<void> {
    const { model } = conversation;
    const made = await this.asked(conversation, question, model, conversation.sampling[8] ?? 0);
    const now = this.conversations.get(id);
    if (now === undefined || !this.isAsked(now, question, isAgain)) {
      this.acted.delete(question.id); // the conversation changed while its prompt was read
      if (!this.mesh.signal.aborted) this.look();
      return;
    }
    const answer = { id: newId(), parent: question.id, form: 'answer', text: '', model } as const;
    if (typeof made === 'string') {
      const sampling = seeded(conversation.sampling, USUAL);
      this.proposals.say(this.added(id, { ...answer, session: newSession(), sampling, maxTokens: 0 }));
      const message = this.messageIn(id, answer.id);
      if (message !== null) this.end(id, message, 'failed', made);
      return;
    }
    const session = this.sessionFor(id, now, model, made.of);
    const sampling = seeded(conversation.sampling, made.of.samplingDefaults);
    const said = { session: session.session, sampling, maxTokens: made.room };
    this.proposals.say(this.added(id, { ...answer, ...said }));
    const making = new Making(id, session, []);
    const settings = settingsOf(sampling, made.room, made.rows);
    this.make(
      answer.id,
      making,
      making.run(session.tokens(made.prompt, settings), this.grown(answer.id, making), () =>
        this.events.changed(),
      ),
    );
  }

  /** Whether a question is still this tab's to ask. */
  private isAsked(conversation: Conversation, { id }: Message, isAgain: boolean): boolean {
    if (this.mesh.signal.aborted || running(conversation) !== null) return false;
    if (messageOf(conversation.messages, id) === undefined) return false;
    const next = nextTurn(conversation, new Set(this.mesh.view.state.members.keys()));
    return isAgain || (next?.asker === this.me && next.question.id === id);
  }

  /** Makes an answer go on: in its session where the stages may still hold it, else in a new one. */
  private async adopt(
    conversation: string,
    { id, author: before, session, model }: Message,
    standing: Standing | null,
  ): Promise<void> {
    const of = await this.answering(model);
    const ends = typeof of === 'string' ? [] : (of.text?.endTokens ?? []);
    const ids = knownOf(this.kept.get(id) ?? [], this.heard.of(id), ends);
    const fresh = typeof of === 'string' ? newSession() : of.newSession(); // which says why it cannot go on
    const next = standing === null ? fresh : session;
    this.adoptions.set(next, { ids, standing });
    const { me: author } = this;
    this.proposals.say({ kind: 'AnswerAdopted', conversation, id, before, author, session: next });
  }

  /** The model that is asked, or why it cannot be. */
  private async answering(model: string): Promise<Answering | string> {
    try {
      return await this.mesh.answering(model);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return textOf(error);
    }
  }

  private async resume(
    id: string,
    conversation: Conversation,
    answer: Message,
    adoption: Adoption,
  ): Promise<void> {
    this.preparing.add(answer.id);
    const question = messageOf(conversation.messages, answer.parent);
    // One that was cut at its length goes on as long as there is room.
    const most = answer.maxTokens > answer.tokens ? answer.maxTokens : 0;
    const made =
      question === undefined
        ? 'its question is gone'
        : await this.asked(conversation, question, answer.model, most);
    this.preparing.delete(answer.id);
    const now = this.messageIn(id, answer.id);
    const isMine = now?.author === this.me && now.session === answer.session;
    if (this.mesh.signal.aborted || now?.state !== 'running' || !isMine) return; // another makes it, or it ended
    if (typeof made === 'string') {
      this.end(id, answer, 'failed', made);
      return;
    }
    const ids = adoption.ids.slice(0, made.room - 1);
    const session = sessionOf(made.of, answer.session);
    if (typeof session === 'string') {
      this.end(id, answer, 'failed', session);
      return;
    }
    const making = new Making(id, session, ids);
    const settings = settingsOf(answer.sampling, made.room, made.rows);
    const pieces = session.adopt(made.prompt, settings, begunOf(ids, adoption.standing, made.prompt.length));
    this.make(
      answer.id,
      making,
      making.run(pieces, this.grown(answer.id, making), () => this.events.changed()),
      true,
    );
  }

  private keep(id: string, ids: readonly number[]): void {
    this.kept.set(id, ids);
    forget(this.kept);
  }

  /** A question as its model is to be asked, or why it cannot be. */
  private async asked(
    conversation: Conversation,
    question: Message,
    model: string,
    most: number,
  ): Promise<Asked | string> {
    try {
      const of = await this.mesh.answering(model);
      const { tokens: prompt, pictures, firsts } = await promptFor(of, conversation, question, this.files);
      const room = roomOf(of, prompt, most);
      const rows = pictures.length === 0 ? [] : await this.mesh.rowsOf(of, pictures, firsts);
      return { of, prompt, rows, room };
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return textOf(error);
    }
  }

  private grown(id: string, making: Making): () => void {
    const { conversation } = making;
    return () => {
      this.hints.live(conversation, id, this.others(conversation), making);
      const message = this.messageIn(conversation, id);
      const isFree = message?.state === 'running' && !this.proposals.holds('MessageExtended', id);
      const more = isFree && !this.hasMoved(conversation, message, making) ? making.due(message) : null;
      if (message !== null && more !== null) {
        this.proposals.say({ kind: 'MessageExtended', conversation, id, after: message.tokens, ...more });
      }
      this.events.token();
      this.events.changed();
    };
  }

  /** Whether the log has an answer in another session than it is in since it moved to another plan; then it says so. */
  private hasMoved(conversation: string, message: Message, { session: { session } }: Making): boolean {
    const { me: author } = this;
    const { id, author: before } = message;
    if (session === message.session || before !== author) return false;
    if (!this.proposals.holds('AnswerAdopted', id)) {
      this.proposals.say({ kind: 'AnswerAdopted', conversation, id, before, author, session });
    }
    return true;
  }

  private make(id: string, making: Making, running: Promise<End>, own = false): void {
    const { conversation } = making;
    this.makings.set(id, making);
    this.events.changed();
    running
      .catch((error: unknown): End => {
        reportError(error);
        return { kind: 'failed', text: 'a defect of this page, please report it' };
      })
      .then((end) => {
        this.hints.live(conversation, id, this.others(conversation), making, true);
        if (end.kind === 'finished') this.ends.set(id, end.finished);
        forget(this.ends);
        const message = this.messageIn(conversation, id);
        this.makings.delete(id);
        if (end.kind !== 'finished' || end.finished.why !== 'end') this.keep(id, making.ids);
        if (own) making.session.close();
        if (message?.state === 'running' && message.author === this.me && !this.mesh.signal.aborted) {
          const ended = endOf(end);
          // Stopped while it was being made again: the log has more of it.
          const isBehind = ended.state !== 'done' && making.tokens < message.tokens;
          const text = isBehind || making.text === message.text ? null : making.text;
          const tokens = isBehind ? message.tokens : making.tokens;
          this.proposals.say({ kind: 'MessageEnded', conversation, id, tokens, text, ...ended });
        }
        this.look();
      })
      .catch(reportError);
  }

  /**
   * One session for this tab's answers in a conversation: stages keep what they read. Another one if it was adopted.
   */
  private sessionFor(id: string, { messages }: Conversation, model: string, of: Answering): Session {
    const kept = this.sessions.get(id);
    const before = kept?.session;
    const isMine =
      kept?.session.isOpen === true &&
      kept.model === model &&
      !kept.session.answering() &&
      messagesOf(messages).every(
        ({ session, author }) => session !== kept.session.session || author === this.me,
      );
    this.sessions.delete(id);
    if (before !== undefined && !isMine && !before.answering()) before.close();
    const session = before !== undefined && isMine ? before : of.conversation();
    this.sessions.set(id, { model, session });
    for (const [other, { session: idle }] of [...this.sessions].slice(0, -MAX_SESSIONS)) {
      if (idle.answering()) continue;
      idle.close();
      this.sessions.delete(other);
    }
    return session;
  }

  private end(conversation: string, message: Message, state: 'stopped' | 'failed', why: string): void {
    const { id, tokens } = message;
    const reason = why.slice(0, MAX_REASON);
    this.proposals.say({ kind: 'MessageEnded', conversation, id, state, tokens, text: null, reason });
  }

  private added(
    conversation: string,
    message: Partial<MessageAdded> & Pick<Message, 'id' | 'parent' | 'form' | 'text'>,
  ): MessageAdded {
    const bare = { session: '', model: '', sampling: [], maxTokens: 0 };
    const said = { author: this.me, whenMs: Date.now() };
    return { kind: 'MessageAdded', conversation, ...said, ...bare, ...message };
  }

  // --- between peers

  private notTaken(command: ConversationCommand, why: string): void {
    if (command.kind === 'MessageExtended' || command.kind === 'AnswerAdopted') return; // another was first
    this.events.refused(why);
  }

  /** Everybody else who takes part and is here. */
  private others(conversation: string): readonly string[] {
    const { members } = this.mesh.view.state;
    const participants = this.conversations.get(conversation)?.participants.keys() ?? [];
    return [...participants].filter((peer) => peer !== this.me && members.has(peer));
  }

  /** An answer of another peer has grown. */
  private grownElsewhere(peer: string, hint: LiveRequest): null {
    this.heard.came(peer, hint.message, pieceOf(hint));
    const known = this.messageIn(hint.conversation, hint.message);
    if (known !== null) this.heard.follow(known);
    this.events.changed();
    return null;
  }

  /** Another person writes, or has stopped writing. */
  private typed(peer: string, { conversation, typing }: TypingRequest): null {
    if (this.conversations.get(conversation)?.participants.has(peer) !== true) return null;
    const typists = this.typists.get(conversation) ?? new Map<string, number>();
    if (typing) typists.set(peer, performance.now() + TYPING_MS);
    else typists.delete(peer);
    this.typists.set(conversation, typists);
    this.events.changed();
    return null;
  }
}

/** The tokens with which an answer goes on: those that were made here, else those that its author said. */
export function knownOf(
  kept: readonly number[],
  heard: Pick<Stream, 'sure' | 'ids'> | null,
  endTokens: readonly number[],
): readonly number[] {
  const known = kept.length > 0 ? kept : heard?.sure === true ? heard.ids : [];
  // Whoever was last may have gone just before it said the end.
  return known.slice(0, known.findLastIndex((token) => !endTokens.includes(token)) + 1);
}

/** A session of that id with this model, or why there is none. */
function sessionOf(of: Answering, session: string): Session | string {
  try {
    return of.conversation(session);
  } catch (error) {
    if (!(error instanceof PeerError)) throw error;
    return textOf(error);
  }
}

/** All but the last ones. */
function forget(byMessage: Map<string, unknown>): void {
  for (const old of [...byMessage.keys()].slice(0, -MAX_KEPT)) byMessage.delete(old);
}

function endOf(end: End): { readonly state: 'done' | 'stopped' | 'failed'; readonly reason: string } {
  if (end.kind === 'failed') return { state: 'failed', reason: end.text.slice(0, MAX_REASON) };
  if (end.kind === 'stopped' || end.finished.why === 'cancelled') return { state: 'stopped', reason: '' };
  return end.finished.why === 'length'
    ? { state: 'stopped', reason: 'length' }
    : { state: 'done', reason: '' };
}

/**
 * Eight integers, those of the model where the conversation says none, with a seed: that of the conversation where it
 * holds for every question, else another one.
 */
function seeded(sampling: readonly number[], defaults: SamplingDefaults): number[] {
  const said = sampling.slice(0, 8);
  const eight = said.length < 8 ? samplingToWire(samplingFor(defaults, {})) : said;
  return sampling[9] === 1
    ? eight
    : [...eight.slice(0, 7), crypto.getRandomValues(new Uint32Array(1))[0] ?? 0];
}

function settingsOf(wire: readonly number[], maxTokens: number, rows: readonly GivenRows[]): AskSettings {
  const sampling = wire.length === 8 ? samplingFromWire(wire) : samplingOf({});
  return { ...ASK_SETTINGS, sampling, maxTokens, planWaitS: PLAN_WAIT_S, rows };
}

function newSession(): string {
  return toHex(crypto.getRandomValues(new Uint8Array(SESSION_BYTES)));
}

function newId(): string {
  return toHex(crypto.getRandomValues(new Uint8Array(ID_BYTES)));
}

/** Somebody who takes no part yet. */
const stranger = (name: string) => ({ name, colour: COLOURLESS, role: null });
