/* What the page shows of a conversation, from what the log says and what is known of its running answer. Pure. */

import { toldText, unmarkedText } from '../../src/conversation/picture_marks';
import { type Conversation, messagesOf } from '../../src/state/conversations';
import { nameOf, toldApart } from '../../src/state/display_names';
import type { Message } from '../../src/state/generated/commands';
import { mayComeIn } from '../../src/conversation/invite_links';
import { mayAsk, type Shown, shown, waitsFor } from '../../src/conversation/turn_order';
import type {
  AnswerFacts,
  AnswerState,
  Branch,
  Person,
  Readers,
  Talk,
  TalkLine,
  Turn,
  Who,
} from '../app/view';

const TITLE_CHARS = 60;

/** Colours of people: of one lightness, so that none is louder than the others. */
export const COLOURS: readonly string[] = [
  ...['#2f7ed8', '#c2571a', '#2e9e6b', '#a04cc9', '#c43d6b', '#8a7a12'],
  ...['#17909c', '#6a5bd0', '#5c8a1e', '#b0483c'],
];

/** Where a conversation is: in the log of the mesh, in this browser, or in this tab. */
export type Place = 'mesh' | 'browser' | 'tab';

function readersOf(place: Place, { entry }: Conversation): Readers {
  if (place !== 'mesh') return place;
  return entry.byInvite ? 'invited' : 'mesh';
}

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
  readonly place: Place;
  readonly ownsMesh: boolean;
  readonly here: ReadonlySet<string>;
  readonly typing: ReadonlySet<string>;
  readonly chosen: ReadonlyMap<string, string>; // branches
  readonly open: (id: string) => boolean; // not in the log yet
  readonly picture: (sha256: string) => string; // its address in this page; "" where it is not here
  readonly making: (answer: Message) => Making;
  readonly usedTokens: number;
  readonly readable: (text: string) => string;
  readonly name: (peer: string) => string | null; // of a member of the mesh
  readonly model: (name: string) => string; // that answered, for people; "" where there is only one
}

export const NO_TALK: Talk = {
  id: '',
  title: '',
  people: [],
  turns: [],
  usedTokens: 0,
  readers: 'browser',
  takesPart: true,
  mayEnter: false,
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
      usedTokens: around.usedTokens,
      readers: readersOf(around.place, conversation),
      takesPart: mine !== undefined,
      mayEnter: mine === undefined && mayComeIn(conversation, around.me),
      mayWrite: mine !== undefined && mayAsk(conversation, around.me),
      mayRule: mine?.role === 'owner' || around.ownsMesh,
      byInvite: conversation.entry.byInvite,
      offers: [...conversation.entry.offers].map(([key, { role, by }]) => ({
        key,
        role,
        by: whoIs(by, known, around).name,
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

function peopleOf({ participants }: Conversation, { me, place, here, typing }: Around): Person[] {
  const shownHere = place === 'mesh' ? [...participants] : [...participants].filter(([id]) => id === me);
  const called = toldApart(new Map(shownHere.map(([id, { name }]) => [id, name])));
  const people = shownHere.map(([id, { colour, role }]) => ({
    id,
    name: nameOf(id, called),
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

const GONE_COLOUR = '#8a979e';
const NOBODY: ReadonlyMap<string, string> = new Map();

function whoIs(
  peer: string,
  people: ReadonlyMap<string, Person>,
  { me, place }: Pick<Around, 'me' | 'place'>,
): Who {
  // Private ones are this person's own, also where an earlier visit had another id.
  const known = people.get(place === 'mesh' ? peer : me);
  if (known === undefined)
    return { id: peer, name: nameOf(peer, NOBODY), colour: GONE_COLOUR, you: peer === me };
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
  const { pictures, words } = unmarkedText(message.text);
  const asker = answer === null || answer.author === message.author ? null : answer.author;
  return {
    id: message.id,
    who: whoIs(message.author, people, around),
    toPeople: message.form === 'to-people',
    question: words,
    pictures: pictures.map(({ sha256, alt }) => ({ id: sha256, alt, url: around.picture(sha256) })),
    branch: branchOf(branches, message.id),
    answer: made?.text ?? '',
    model: answer === null ? '' : around.model(answer.model),
    asker: asker === null ? null : whoIs(asker, people, around),
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
  around: Around,
): AnswerState {
  if (message.form === 'to-people') return { kind: 'none' };
  const before = waitsFor(conversation, message);
  const last = before.at(-1);
  if (last === undefined) return { kind: 'thinking' };
  const { name, you } = whoIs(last, people, around);
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

/** What the list of conversations depends on beside themselves. */
export interface ListAround {
  readonly open: string;
  readonly seen: ReadonlyMap<string, number>; // messages of each that this person has seen
  readonly pinned: ReadonlySet<string>;
  readonly query: string; // what must be said in each that is shown; ""
  readonly me: string;
  readonly ownsMesh: boolean;
}

/** The list of conversations: pinned ones first, then the newest. */
export function talkLines(
  all: Iterable<{ readonly id: string; readonly conversation: Conversation; readonly place: Place }>,
  { open, seen, pinned, query, me, ownsMesh }: ListAround,
): TalkLine[] {
  const wanted = query.trim().toLowerCase();
  const lines = [...all].flatMap(({ id, conversation, place }) => {
    const excerpt = wanted === '' ? '' : excerptOf(conversation, wanted);
    if (excerpt === null) return [];
    const { title, participants, messages, createdMs } = conversation;
    const every = messagesOf(messages);
    const role = participants.get(me)?.role;
    const line = {
      id,
      title: title === '' ? 'Untitled' : title,
      people: participants.size,
      answering: every.some(({ form, state }) => form === 'answer' && state === 'running'),
      fresh: id !== open && messages.count > (seen.get(id) ?? 0),
      readers: readersOf(place, conversation),
      takesPart: role !== undefined,
      pinned: pinned.has(id),
      mayRename: role === 'owner' || role === 'member' || ownsMesh,
      mayRemove: role === 'owner' || ownsMesh,
      excerpt,
    };
    return [{ lastMs: every.at(-1)?.whenMs ?? createdMs, line }];
  });
  return lines
    .sort(
      (a, b) =>
        Number(b.line.pinned) - Number(a.line.pinned) ||
        b.lastMs - a.lastMs ||
        (a.line.id < b.line.id ? -1 : 1),
    )
    .map(({ line }) => line);
}

const EXCERPT_CHARS = 40; // around what was looked for

/** Where `wanted`, in small letters, is said: "" in the title; null nowhere. */
function excerptOf({ title, messages }: Conversation, wanted: string): string | null {
  if (title.toLowerCase().includes(wanted)) return '';
  for (const { text: said } of messagesOf(messages)) {
    const text = toldText(said);
    const at = text.toLowerCase().indexOf(wanted);
    if (at < 0) continue;
    const from = Math.max(0, at - EXCERPT_CHARS / 2);
    const cut = text.slice(from, at + wanted.length + EXCERPT_CHARS).replaceAll(/\s+/g, ' ');
    return `${from > 0 ? '…' : ''}${cut}…`;
  }
  return null;
}
