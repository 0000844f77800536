/*
 * Decides what people and the model said to each other, in which order and along which branches (twin of
 * peer/state/conversations.py).
 *
 * Pure. A message of 10,000 is added or changed without copying the others: they stand in chunks that later states
 * share.
 */

import { BadCommand } from '../errors';
import {
  type Codec,
  integer,
  itemsOf,
  list,
  matching,
  maybe,
  oneOf,
  prose,
  record,
  table,
  text,
  uint,
  utf8Bytes,
} from '../wire/json_codec';
import {
  barring,
  type Entry,
  entry,
  type EntryCommand,
  entryCommands,
  given,
  letting,
  offered,
  OPEN_ENTRY,
} from './conversation_entry';
import { role, type Role } from './roles';

export type Form = 'to-model' | 'to-people' | 'answer';
export type Progress = 'running' | 'done' | 'stopped' | 'failed';
const MAX_CONVERSATIONS = 256;
const MAX_PARTICIPANTS = 256;
const MAX_MESSAGES = 16384; // of one conversation
export const MAX_MESSAGE_BYTES = 65536; // of UTF-8
const MAX_CONVERSATION_BYTES = 16 * 2 ** 20; // texts of the messages of one conversation
const MAX_ALL_BYTES = 64 * 2 ** 20; // of all conversations: bounds what a snapshot brings
const MAX_SAMPLING = 32; // integers of an OPEN frame
const FULL = `${MAX_PARTICIPANTS} people take part, which is the most`;
const CHUNK = 128; // messages copied for a change, at most

export interface Participant {
  readonly name: string;
  readonly colour: string;
  readonly role: Role;
}

/** One message. Another with the same parent is another branch: an edited question, or an answer made again. */
export interface Message {
  readonly id: string;
  readonly parent: string; // "": it begins the conversation
  readonly author: string; // of an answer: the peer that asks the model
  readonly form: Form;
  readonly text: string;
  readonly whenMs: number;
  readonly state: Progress;
  readonly tokens: number; // of an answer, so far
  readonly reason: string; // why an answer failed, for people
  readonly session: string; // of an answer, with the model and the settings that whoever adopts it needs
  readonly model: string;
  readonly sampling: readonly number[];
  readonly maxTokens: number;
}

/** Messages in the order of the log: chunks of CHUNK by id, the last one may be shorter. */
export interface Messages {
  readonly chunks: readonly ReadonlyMap<string, Message>[];
  readonly count: number;
  readonly textBytes: number;
}

export const NO_MESSAGES: Messages = { chunks: [], count: 0, textBytes: 0 };

/** `model` "" is the one that the mesh serves; `system` and `sampling` hold for questions from now on. */
export interface Conversation {
  readonly title: string;
  readonly model: string;
  readonly system: string;
  readonly sampling: readonly number[];
  readonly createdMs: number;
  readonly participants: ReadonlyMap<string, Participant>;
  readonly messages: Messages;
  readonly entry: Entry;
}

export type Conversations = ReadonlyMap<string, Conversation>;

/** The message of that id, or undefined. */
export function messageOf({ chunks }: Messages, id: string): Message | undefined {
  return chunks.findLast((chunk) => chunk.has(id))?.get(id);
}

const lists = new WeakMap<Messages, readonly Message[]>(); // of each the list that is asked for again and again

/** All messages in the order of the log. */
export function messagesOf(messages: Messages): readonly Message[] {
  const known = lists.get(messages);
  if (known !== undefined) return known;
  const made = messages.chunks.flatMap((chunk) => [...chunk.values()]);
  lists.set(messages, made);
  return made;
}

/** The messages from the first one to `leaf`: what a model gets to read, less those to people. */
export function thread(messages: Messages, leaf: string): Message[] {
  const known = new Map(messages.chunks.flatMap((chunk) => [...chunk]));
  const found = [];
  for (let message = known.get(leaf); message !== undefined; message = known.get(message.parent)) {
    found.push(message);
  }
  return found.reverse();
}

/** Who asks the answer that runs in `session`; null where none does. Of several, the first one counts. */
export function askerOf(conversations: Conversations, session: string): string | null {
  for (const { messages } of conversations.values()) {
    const found = messagesOf(messages).find((each) => each.session === session && each.state === 'running');
    if (found !== undefined) return found.author;
  }
  return null;
}

function withAdded({ chunks, count, textBytes }: Messages, message: Message): Messages {
  const isFull = count % CHUNK === 0;
  const last = new Map(isFull ? [] : chunks.at(-1)).set(message.id, message);
  return {
    chunks: [...(isFull ? chunks : chunks.slice(0, -1)), last],
    count: count + 1,
    textBytes: textBytes + utf8Bytes(message.text),
  };
}

/** With `message` in place of `before`, which has its id. */
function withChanged({ chunks, count, textBytes }: Messages, before: Message, message: Message): Messages {
  const changed = chunks.map((chunk) =>
    chunk.has(message.id) ? new Map(chunk).set(message.id, message) : chunk,
  );
  return {
    chunks: changed,
    count,
    textBytes: textBytes - utf8Bytes(before.text) + utf8Bytes(message.text),
  };
}

// --- commands

interface Within {
  readonly conversation: string;
}

interface Settings {
  readonly title: string;
  readonly model: string;
  readonly system: string;
  readonly sampling: readonly number[];
}

/** `peer` becomes its owner. */
export interface ConversationStarted extends Within, Settings {
  readonly kind: 'ConversationStarted';
  readonly whenMs: number;
  readonly peer: string;
  readonly name: string;
  readonly colour: string;
}

export interface ConversationChanged extends Within, Settings {
  readonly kind: 'ConversationChanged';
}

export interface ConversationRemoved extends Within {
  readonly kind: 'ConversationRemoved';
}

/** `peer` comes in, or has another name, colour or role from now on. */
export interface ParticipantSet extends Within, Participant {
  readonly kind: 'ParticipantSet';
  readonly peer: string;
}

export interface ParticipantLeft extends Within {
  readonly kind: 'ParticipantLeft';
  readonly peer: string;
}

/** An answer is running from here on; other messages are done. */
export interface MessageAdded extends Within, Omit<Message, 'state' | 'tokens' | 'reason'> {
  readonly kind: 'MessageAdded';
}

/** `text` follows what a running answer has: it had `after` tokens and has `tokens` now. */
export interface MessageExtended extends Within {
  readonly kind: 'MessageExtended';
  readonly id: string;
  readonly after: number;
  readonly tokens: number;
  readonly text: string;
}

/** `text`: all of the answer, or null for what is there. */
export interface MessageEnded extends Within {
  readonly kind: 'MessageEnded';
  readonly id: string;
  readonly state: Exclude<Progress, 'running'>;
  readonly tokens: number;
  readonly text: string | null;
  readonly reason: string;
}

/** `author` makes an answer go on that `before` asked for: of several peers that try, the first one does. */
export interface AnswerAdopted extends Within {
  readonly kind: 'AnswerAdopted';
  readonly id: string;
  readonly before: string;
  readonly author: string;
  readonly session: string;
}

type Change = MessageExtended | MessageEnded | AnswerAdopted;
export type ConversationCommand =
  | ConversationStarted
  | ConversationChanged
  | ConversationRemoved
  | ParticipantSet
  | ParticipantLeft
  | MessageAdded
  | Change
  | EntryCommand;

/** The conversations after `command`, or why it changes nothing. */
export function converse(conversations: Conversations, command: ConversationCommand): Conversations | string {
  if (command.kind === 'ConversationStarted') return started(conversations, command);
  const conversation = conversations.get(command.conversation);
  if (conversation === undefined) return 'there is no such conversation';
  if (command.kind === 'ConversationRemoved') {
    return new Map([...conversations].filter(([name]) => name !== command.conversation));
  }
  const sizes = [...conversations.values()].map(({ messages }) => messages.textBytes);
  const room = MAX_ALL_BYTES - sizes.reduce((sum, size) => sum + size, 0);
  const changed = within(conversation, command, room);
  return typeof changed === 'string' ? changed : new Map(conversations).set(command.conversation, changed);
}

function started(conversations: Conversations, command: ConversationStarted): Conversations | string {
  if (conversations.has(command.conversation)) return 'this conversation was started before';
  if (conversations.size >= MAX_CONVERSATIONS) {
    return `there are ${MAX_CONVERSATIONS} conversations, which is the most; remove one first`;
  }
  const { title, model, system, sampling, whenMs, peer, name, colour } = command;
  return new Map(conversations).set(command.conversation, {
    ...{ title, model, system, sampling, createdMs: whenMs },
    participants: new Map([[peer, { name, colour, role: 'owner' }]]),
    messages: NO_MESSAGES,
    entry: OPEN_ENTRY,
  });
}

/** The conversation after `command`. `room`: bytes of text that all conversations may still grow by. */
function within(
  conversation: Conversation,
  command: Exclude<ConversationCommand, ConversationStarted | ConversationRemoved>,
  room: number,
): Conversation | string {
  const { participants, messages } = conversation;
  switch (command.kind) {
    case 'ConversationChanged': {
      const { title, model, system, sampling } = command;
      return { ...conversation, title, model, system, sampling };
    }
    case 'ParticipantSet': {
      const { peer, name, colour, role } = command;
      if (!participants.has(peer) && participants.size >= MAX_PARTICIPANTS) {
        return FULL;
      }
      const known = new Map(participants).set(peer, { name, colour, role });
      return { ...conversation, participants: known, entry: letting(conversation.entry, peer) };
    }
    case 'ParticipantLeft':
      return without(conversation, command.peer);
    case 'ParticipantPutOut': {
      const out = without(conversation, command.peer);
      return typeof out === 'string' ? out : { ...out, entry: barring(out.entry, command.peer) };
    }
    case 'ParticipantInvited': {
      const { peer, name, colour } = command;
      const offer = given(conversation.entry, command);
      if (participants.has(peer)) return 'this peer takes part already';
      if (typeof offer === 'string') return offer;
      if (participants.size >= MAX_PARTICIPANTS) return FULL;
      const { role } = offer;
      return { ...conversation, participants: new Map(participants).set(peer, { name, colour, role }) };
    }
    case 'EntryChosen':
    case 'EntryOffered':
    case 'EntryWithdrawn': {
      const after = offered(conversation.entry, command);
      return typeof after === 'string' ? after : { ...conversation, entry: after };
    }
    case 'MessageAdded':
      return fitting(conversation, added(messages, command), room);
    case 'MessageExtended':
    case 'MessageEnded':
    case 'AnswerAdopted': {
      const before = messageOf(messages, command.id);
      if (before === undefined) return 'there is no such message';
      const after = changed(before, command);
      return fitting(
        conversation,
        typeof after === 'string' ? after : withChanged(messages, before, after),
        room,
      );
    }
    default:
      return command satisfies never;
  }
}

function without(conversation: Conversation, peer: string): Conversation | string {
  const { participants } = conversation;
  if (!participants.has(peer)) return 'this peer takes no part';
  return { ...conversation, participants: new Map([...participants].filter(([each]) => each !== peer)) };
}

/** The conversation with other messages, unless they hold more text than there may be. */
function fitting(
  conversation: Conversation,
  messages: Messages | string,
  room: number,
): Conversation | string {
  if (typeof messages === 'string') return messages;
  const grown = messages.textBytes - conversation.messages.textBytes;
  if (grown > 0 && messages.textBytes > MAX_CONVERSATION_BYTES) {
    return `the conversation has ${MAX_CONVERSATION_BYTES} bytes of text, which is the most; start another`;
  }
  if (grown > Math.max(0, room)) return 'the conversations are full; remove one first';
  return { ...conversation, messages };
}

function added(messages: Messages, command: MessageAdded): Messages | string {
  if (messageOf(messages, command.id) !== undefined) return 'this message was added before';
  if (command.parent !== '' && messageOf(messages, command.parent) === undefined) {
    return 'the message that it follows is not there';
  }
  if (messages.count >= MAX_MESSAGES) {
    return `the conversation has ${MAX_MESSAGES} messages, which is the most; start another`;
  }
  const isAnswer = command.form === 'answer';
  if (isAnswer !== (command.session !== '')) return 'an answer has a session, other messages have none';
  const { id, parent, author, form, text, whenMs, session, model, sampling, maxTokens } = command;
  const state = isAnswer ? 'running' : 'done';
  const rest = { session, model, sampling, maxTokens };
  return withAdded(messages, {
    id,
    parent,
    author,
    form,
    text,
    whenMs,
    state,
    tokens: 0,
    reason: '',
    ...rest,
  });
}

function changed(message: Message, command: Change): Message | string {
  if (command.kind === 'AnswerAdopted') {
    if (message.form !== 'answer' || message.state === 'done') return 'this answer is complete';
    if (message.author !== command.before) return 'another peer has adopted this answer';
    return { ...message, author: command.author, session: command.session, state: 'running', reason: '' };
  }
  if (message.state !== 'running') return 'this answer has ended';
  if (command.kind === 'MessageEnded') {
    const { state, tokens, text, reason } = command;
    return { ...message, state, tokens, text: text ?? message.text, reason };
  }
  if (message.tokens !== command.after || command.tokens < command.after) {
    return `this answer has ${message.tokens} tokens`;
  }
  const words = message.text + command.text;
  if (utf8Bytes(words) > MAX_MESSAGE_BYTES) {
    return `a message has at most ${MAX_MESSAGE_BYTES} bytes; go on in another`;
  }
  return { ...message, tokens: command.tokens, text: words };
}

// --- wire

const id = matching(/^[0-9A-Za-z_.:-]{1,64}$/, 'an id of 1 to 64 letters, digits and _.:-');
const parent = matching(/^[0-9A-Za-z_.:-]{0,64}$/, 'the id of a message, or nothing');
const session = matching(/^([0-9a-f]{32})?$/, 'a session of 16 bytes in hex, or nothing');
const colour = matching(/^#[0-9a-f]{6}$/, 'a colour such as #3366cc');
const words = prose(MAX_MESSAGE_BYTES);
const sampling = list(integer, MAX_SAMPLING);
const settingsFields = { title: text, model: text, system: words, sampling };
const messageFields = {
  id,
  parent,
  author: text,
  form: oneOf<Form>('to-model', 'to-people', 'answer'),
  text: words,
  whenMs: uint,
  session,
  model: text,
  sampling,
  maxTokens: uint,
};

const message = record<Message>('Message', {
  ...messageFields,
  state: oneOf('running', 'done', 'stopped', 'failed'),
  tokens: uint,
  reason: text,
});
const participant = record<Participant>('Participant', { name: text, colour, role });

const messages: Codec<Messages> = {
  decode(value, where) {
    const known = new Map<string, Message>();
    let textBytes = 0;
    for (const item of itemsOf(value, where, MAX_MESSAGES)) {
      const found = message.decode(item, where);
      if (known.has(found.id) || (found.parent !== '' && !known.has(found.parent))) {
        throw new BadCommand(`${where}: expected each message once, and after the one that it follows`);
      }
      known.set(found.id, found);
      textBytes += utf8Bytes(found.text);
    }
    const every = [...known];
    const chunks = Array.from(
      { length: Math.ceil(every.length / CHUNK) },
      (_, at) => new Map(every.slice(at * CHUNK, (at + 1) * CHUNK)),
    );
    return { chunks, count: every.length, textBytes };
  },
  encode: (value) => messagesOf(value).map((each) => message.encode(each)),
};

const every = table(
  record<Conversation>(
    'Conversation',
    {
      ...settingsFields,
      createdMs: uint,
      participants: table(participant, MAX_PARTICIPANTS),
      messages,
      entry,
    },
    { since: { entry: OPEN_ENTRY } },
  ),
  MAX_CONVERSATIONS,
);

export const conversations: Codec<Conversations> = {
  decode(value, where) {
    const found = every.decode(value, where);
    const sizes = [...found.values()].map((each) => each.messages.textBytes);
    if (
      sizes.reduce((sum, size) => sum + size, 0) > MAX_ALL_BYTES ||
      sizes.some((size) => size > MAX_CONVERSATION_BYTES)
    ) {
      throw new BadCommand(`${where}: expected at most ${MAX_CONVERSATION_BYTES} bytes of text each`);
    }
    return found;
  },
  encode: (value) => every.encode(value),
};

const of = { conversation: id };
const inside = { ...of, id };
const who = { peer: text, name: text, colour };

export const CONVERSATION_COMMANDS: {
  readonly [K in ConversationCommand['kind']]: Codec<Extract<ConversationCommand, { kind: K }>>;
} = {
  ConversationStarted: record<ConversationStarted>(
    'ConversationStarted',
    { ...of, ...settingsFields, whenMs: uint, ...who },
    { kind: 'ConversationStarted' },
  ),
  ConversationChanged: record<ConversationChanged>(
    'ConversationChanged',
    { ...of, ...settingsFields },
    { kind: 'ConversationChanged' },
  ),
  ConversationRemoved: record<ConversationRemoved>('ConversationRemoved', of, {
    kind: 'ConversationRemoved',
  }),
  ParticipantSet: record<ParticipantSet>(
    'ParticipantSet',
    { ...of, ...who, role },
    { kind: 'ParticipantSet' },
  ),
  ParticipantLeft: record<ParticipantLeft>(
    'ParticipantLeft',
    { ...of, peer: text },
    { kind: 'ParticipantLeft' },
  ),
  MessageAdded: record<MessageAdded>('MessageAdded', { ...of, ...messageFields }, { kind: 'MessageAdded' }),
  MessageExtended: record<MessageExtended>(
    'MessageExtended',
    { ...inside, after: uint, tokens: uint, text: words },
    { kind: 'MessageExtended' },
  ),
  MessageEnded: record<MessageEnded>(
    'MessageEnded',
    { ...inside, state: oneOf('done', 'stopped', 'failed'), tokens: uint, text: maybe(words), reason: text },
    { kind: 'MessageEnded' },
  ),
  AnswerAdopted: record<AnswerAdopted>(
    'AnswerAdopted',
    { ...inside, before: text, author: text, session: matching(/^[0-9a-f]{32}$/, 'a session in hex') },
    { kind: 'AnswerAdopted' },
  ),
  ...entryCommands(id, colour),
};
