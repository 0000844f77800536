/* What the page shows of a conversation, from what the log says and what is known of its running answer. Pure. */

import { type Conversation, messagesOf } from '../../src/state/conversations';
import type { Message } from '../../src/state/generated/commands';
import { mayComeIn } from '../../src/conversation/invite_links';
import { mayAsk, type Shown, shown, waitsFor } from '../../src/conversation/turn_order';
import type { AnswerFacts, AnswerState, Branch, Person, Talk, TalkLine, Turn, Who } from '../app/view';

const SHORT_CHARS = 4; // of a peer id, behind a name that two people have
const TITLE_CHARS = 60;

/** Colours of people: of one lightness, so that none is louder than the others. */
export const COLOURS: readonly string[] = [
  ...['#2f7ed8', '#c2571a', '#2e9e6b', '#a04cc9', '#c43d6b', '#8a7a12'],
  ...['#17909c', '#6a5bd0', '#5c8a1e', '#b0483c'],
];

/** What is known of an answer beside the log. */
export interface Making {
  readonly text: string;
  readonly tokens: number;
  readonly waits: string; // where its question stands while the mesh is full, else ''
  readonly stalled: boolean;
  readonly facts: AnswerFacts | null;
}

/** What the page knows beyond the conversation itself. */
export interface Around {
  readonly me: string;
  readonly own: boolean; // the conversation is in this tab alone
  readonly ownsMesh: boolean;
  readonly here: ReadonlySet<string>;
  readonly typing: ReadonlySet<string>;
  readonly chosen: ReadonlyMap<string, string>; // branches
  readonly open: (id: string) => boolean; // not in the log yet
  readonly making: (answer: Message) => Making;
  readonly readable: (text: string) => string;
  readonly name: (peer: string) => string | null; // of a member of the mesh
}

export const NO_TALK: Talk = {
  id: '',
  title: '',
  people: [],
  turns: [],
  own: false,
  mayWrite: true,
  mayRule: false,
  byInvite: false,
  offers: [],
  out: [],
  mayTake: false,
  typing: '',
  unsaid: false,
};

/** Whether an answer is being made. */
export function isAnswering(turns: readonly Turn[]): boolean {
  return turns.some(({ state }) => state.kind === 'thinking' || state.kind === 'streaming');
}

/** A colour that nobody of `taken` has, always the same for one peer where it can be. */
export function colourFor(peer: string, taken: readonly string[]): string {
  const start = [...peer].reduce((sum, character) => sum + (character.codePointAt(0) ?? 0), 0);
  const wish = COLOURS.map((_, at) => COLOURS[(start + at) % COLOURS.length] ?? '');
  return wish.find((colour) => !taken.includes(colour)) ?? wish[0] ?? '#2f7ed8';
}

/** A title of what was asked first. */
export function titleOf(text: string): string {
  const line = text.trim().replaceAll(/\s+/g, ' ');
  return line.length <= TITLE_CHARS ? line : `${line.slice(0, TITLE_CHARS - 1).trimEnd()}…`;
}

/** Keeps the turns of the talk before where nothing about them changed, so that they are not drawn again. */
export class TalkViews {
  private turns = new Map<string, { readonly turn: Turn; readonly text: string }>(); // text: to compare them by

  of(id: string, conversation: Conversation, around: Around, unsaid: boolean): Talk {
    const people = peopleOf(conversation, around);
    const known = new Map(people.map((person) => [person.id, person]));
    const rows = shown(conversation.messages, around.chosen);
    const before = this.turns;
    this.turns = new Map();
    const turns = rows.map((row) => {
      const next = turnOf(row, conversation, known, around);
      const text = JSON.stringify(next);
      const old = before.get(next.id);
      const kept = old?.text === text ? old : { turn: next, text };
      this.turns.set(next.id, kept);
      return kept.turn;
    });
    const mine = conversation.participants.get(around.me);
    return {
      id,
      title: conversation.title,
      people,
      turns,
      own: around.own,
      mayWrite: mine === undefined ? mayComeIn(conversation, around.me) : mayAsk(conversation, around.me),
      mayRule: mine?.role === 'owner' || around.ownsMesh,
      byInvite: conversation.entry.byInvite,
      offers: [...conversation.entry.offers].map(([key, { role, by }]) => ({
        key,
        role,
        by: whoIs(by, known, around.me).name,
      })),
      out: conversation.entry.barred.flatMap((peer) => {
        const name = around.name(peer);
        return name === null ? [] : [{ id: peer, name }];
      }),
      mayTake: mine?.role === 'member' && !people.some(({ role, here }) => role === 'owner' && here),
      typing: typingText(people),
      unsaid,
    };
  }
}

function peopleOf({ participants }: Conversation, { me, here, typing }: Around): Person[] {
  const often = new Map<string, number>();
  for (const { name } of participants.values()) often.set(name, (often.get(name) ?? 0) + 1);
  const people = [...participants].map(([id, { name, colour, role }]) => ({
    id,
    name: (often.get(name) ?? 0) > 1 ? `${name} (${id.slice(0, SHORT_CHARS)})` : name,
    colour,
    role,
    you: id === me,
    here: here.has(id),
    typing: typing.has(id) && id !== me,
  }));
  const order = ({ you, here: isHere }: Person): number => (you ? 0 : isHere ? 1 : 2);
  return people.sort((a, b) => order(a) - order(b));
}

function typingText(people: readonly Person[]): string {
  const names = people.filter(({ typing }) => typing).map(({ name }) => name);
  const [first, second] = names;
  if (first === undefined) return '';
  if (second === undefined) return `${first} writes…`;
  return names.length === 2 ? `${first} and ${second} write…` : `${names.length} people write…`;
}

const GONE = '#8a979e';
function whoIs(peer: string, people: ReadonlyMap<string, Person>, me: string): Who {
  const known = people.get(peer);
  if (known === undefined) return { id: peer, name: peer.slice(0, 8), colour: GONE, you: peer === me };
  const { id, name, colour, you } = known;
  return { id, name, colour, you };
}

const branchOf = (ids: readonly string[], id: string): Branch => ({
  at: Math.max(0, ids.indexOf(id)) + 1,
  of: Math.max(1, ids.length),
});

function turnOf(
  { message, branches, answer, answers }: Shown,
  conversation: Conversation,
  people: ReadonlyMap<string, Person>,
  around: Around,
): Turn {
  const made = answer === null ? null : around.making(answer);
  const asker = answer === null || answer.author === message.author ? null : answer.author;
  return {
    id: message.id,
    who: whoIs(message.author, people, around.me),
    toPeople: message.form === 'to-people',
    question: message.text,
    branch: branchOf(branches, message.id),
    answer: made?.text ?? '',
    asker: asker === null ? null : whoIs(asker, people, around.me),
    answers: branchOf(answers, answer?.id ?? ''),
    state:
      answer === null || made === null
        ? unanswered(message, conversation, people, around)
        : stateOf(answer, made, around),
    open: around.open(message.id),
  };
}

function unanswered(
  message: Message,
  conversation: Conversation,
  people: ReadonlyMap<string, Person>,
  { me }: Around,
): AnswerState {
  if (message.form === 'to-people') return { kind: 'none' };
  const before = waitsFor(conversation, message);
  const last = before.at(-1);
  if (last === undefined) return { kind: 'thinking' };
  const { name, you } = whoIs(last, people, me);
  const whose = you ? 'your question' : `${name}’s question`;
  const rest = before.length - 1;
  return { kind: 'queued', text: `Waits for ${whose}${rest > 0 ? ` and ${rest} more` : ''}` };
}

function stateOf(answer: Message, made: Making, { readable }: Around): AnswerState {
  const facts = made.facts ?? (answer.tokens > 0 ? bare(answer.tokens) : null);
  switch (answer.state) {
    case 'running':
      if (made.waits !== '') return { kind: 'thinking', waits: made.waits };
      return made.text === '' ? { kind: 'thinking' } : { kind: 'streaming', stalled: made.stalled };
    case 'done':
      return { kind: 'done', facts: facts ?? bare(answer.tokens) };
    case 'stopped':
      return { kind: 'stopped', why: answer.reason === 'length' ? 'length' : 'hand', facts };
    case 'failed':
      return { kind: 'failed', text: readable(answer.reason) };
  }
}

const bare = (tokens: number): AnswerFacts => ({ tokens, firstTokenS: 0, tokensPerS: 0, route: [] });

/** The list of conversations, the newest first. `seen`: how many messages of each this person has seen. */
export function talkLines(
  all: ReadonlyMap<string, Conversation>,
  shownNow: string,
  seen: ReadonlyMap<string, number>,
  own: (id: string) => boolean = () => false,
): TalkLine[] {
  const lines = [...all].map(([id, { title, participants, messages, createdMs }]) => {
    const every = messagesOf(messages);
    const lastMs = every.at(-1)?.whenMs ?? createdMs;
    return {
      lastMs,
      line: {
        id,
        title: title === '' ? 'Untitled' : title,
        people: participants.size,
        answering: every.some(({ form, state }) => form === 'answer' && state === 'running'),
        fresh: id !== shownNow && messages.count > (seen.get(id) ?? 0),
        own: own(id),
      },
    };
  });
  return lines
    .sort((a, b) => b.lastMs - a.lastMs || (a.line.id < b.line.id ? -1 : 1))
    .map(({ line }) => line);
}
