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
  prose,
  record,
  table,
  text,
  uint,
  utf8Bytes,
} from '../wire/json_codec';
import { barring, given, letting, offered, OPEN_ENTRY } from './conversation_entry';
import {
  type AnswerAdopted,
  type ConversationCommand,
  type ConversationRemoved,
  type ConversationStarted,
  type Entry,
  MAX_ALL_BYTES,
  MAX_CONVERSATIONS,
  MAX_CONVERSATION_BYTES,
  MAX_MESSAGES,
  MAX_MESSAGE_BYTES,
  MAX_PARTICIPANTS,
  type Message,
  type MessageAdded,
  type MessageEnded,
  type MessageExtended,
  type Participant,
  entryCodec,
  messageCodec,
  participantCodec,
} from './generated/commands';
import { MAX_SAMPLING } from '../limits';

const FULL = `${MAX_PARTICIPANTS} people take part, which is the most`;
const CHUNK = 128; // messages copied for a change, at most

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

// --- what commands change

type Change = MessageExtended | MessageEnded | AnswerAdopted;
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

const messagesCodec: Codec<Messages> = {
  decode(value, where) {
    const known = new Map<string, Message>();
    let textBytes = 0;
    for (const item of itemsOf(value, where, MAX_MESSAGES)) {
      const found = messageCodec.decode(item, where);
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
  encode: (value) => messagesOf(value).map((each) => messageCodec.encode(each)),
};

const every = table(
  record<Conversation>(
    'Conversation',
    {
      title: text,
      model: text,
      system: prose(MAX_MESSAGE_BYTES),
      sampling: list(integer, MAX_SAMPLING),
      createdMs: uint,
      participants: table(participantCodec, MAX_PARTICIPANTS),
      messages: messagesCodec,
      entry: entryCodec,
    },
    { since: { entry: OPEN_ENTRY } },
  ),
  MAX_CONVERSATIONS,
);

export const conversationsCodec: Codec<Conversations> = {
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
