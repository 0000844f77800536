/*
 * Decides whose turn it is in a conversation, what the model gets to read, who makes an answer go on whose asker is
 * gone, and which branches are shown (twin of peer/conversation/turn_order.py; what is shown is the page's alone).
 *
 * Pure, over the log alone: everybody decides the same. Siblings are branches of one another when both answer one
 * question, or when one person said both (an edit); what two people say at once is no branch.
 */

import { type Conversation, type Messages, messagesOf, thread } from '../state/conversations';
import type { Message } from '../state/generated/commands';
import { byBytes } from '../wire/utf8_order';
import { sha256Hex } from '../wire/sha256';

/** Owners and members ask; viewers read. */
export function mayAsk({ participants }: Conversation, peer: string): boolean {
  const role = participants.get(peer)?.role;
  return role === 'owner' || role === 'member';
}

/** The answer under way, the first one in the log if there are several. */
export function running({ messages }: Conversation): Message | null {
  return messagesOf(messages).find(({ form, state }) => form === 'answer' && state === 'running') ?? null;
}

/** Questions that nobody has begun to answer, in the order of the log. */
export function waiting({ messages }: Conversation): Message[] {
  const all = messagesOf(messages);
  const answered = new Set(all.filter(({ form }) => form === 'answer').map(({ parent }) => parent));
  return all.filter(({ id, form }) => form === 'to-model' && !answered.has(id));
}

/** `peers` in an order that is another one for each message and the same for everybody. */
export function rank(id: string, peers: Iterable<string>): string[] {
  const keyed = [...peers].map((peer) => [sha256Hex(id + peer), peer] as const);
  return keyed.sort(([a, one], [b, other]) => byBytes(a, b) || byBytes(one, other)).map(([, peer]) => peer);
}

/** The question to be answered next, and by whom it is asked: by its author, else by somebody who is there. */
export function nextTurn(
  conversation: Conversation,
  present: ReadonlySet<string>,
): { readonly question: Message; readonly asker: string } | null {
  if (running(conversation) !== null) return null;
  const [question] = waiting(conversation);
  if (question === undefined) return null;
  const { author, id } = question;
  if (present.has(author) && mayAsk(conversation, author)) return { question, asker: author };
  const [asker] = rank(id, able(conversation, present));
  return asker === undefined ? null : { question, asker };
}

/** Who may make a running answer go on, the first one first; nobody while its author is there. */
export function adopters(
  conversation: Conversation,
  answer: Message,
  present: ReadonlySet<string>,
): string[] {
  return present.has(answer.author) ? [] : rank(answer.id, able(conversation, present));
}

function able(conversation: Conversation, present: ReadonlySet<string>): string[] {
  return [...conversation.participants.keys()].filter(
    (peer) => present.has(peer) && mayAsk(conversation, peer),
  );
}

/** A turn as a model reads it. */
export interface Read {
  readonly role: string;
  readonly content: string;
}

/** What the model reads for `question`: the same for whoever asks first and whoever goes on later. */
export function promptOf({ messages, system }: Conversation, question: string): Read[] {
  const all = messagesOf(messages);
  const path = thread(messages, question);
  const read: Read[] = system.trim() === '' ? [] : [{ role: 'system', content: system.trim() }];
  path.forEach((asked, at) => {
    if (asked.form !== 'to-model') return;
    if (asked.id === question) {
      read.push({ role: 'user', content: asked.text });
      return;
    }
    const next = path[at + 1];
    const answer =
      next?.form === 'answer'
        ? next
        : all.find(({ form, parent }) => form === 'answer' && parent === asked.id);
    if (answer === undefined || answer.state === 'failed' || answer.text === '') return;
    read.push({ role: 'user', content: asked.text }, { role: 'assistant', content: answer.text });
  });
  return read;
}

// --- what is shown

/** One message as it stands in the conversation, with its answer; all branches by id, in the order of the log. */
export interface Shown {
  readonly message: Message;
  readonly branches: readonly string[];
  readonly answer: Message | null;
  readonly answers: readonly string[];
}

/** What `message` is one branch of. */
export function branchKey({ parent, form, author }: Message): string {
  return form === 'answer' ? `${parent} answers` : `${parent} by ${author}`;
}

/** Messages in order with the chosen branch of each (by branchKey); where none was chosen, that of the last message. */
export function shown(messages: Messages, chosen: ReadonlyMap<string, string>): Shown[] {
  const all = messagesOf(messages);
  const place = new Map(all.map(({ id }, at) => [id, at]));
  const last = all.map((_, at) => at); // the last message of each one's branch
  for (let at = all.length - 1; at >= 0; at -= 1) {
    const parent = place.get(all[at]?.parent ?? '');
    if (parent !== undefined) last[parent] = Math.max(last[parent] ?? 0, last[at] ?? 0);
  }
  const groups = new Map<string, Message[]>();
  for (const message of all) {
    const key = branchKey(message);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [message]);
    else group.push(message);
  }
  const picked = new Map<string, Message>();
  for (const [key, group] of groups) {
    const wanted = group.find(({ id }) => id === chosen.get(key));
    const newest = group.reduce((best, each) =>
      (last[place.get(each.id) ?? 0] ?? 0) > (last[place.get(best.id) ?? 0] ?? 0) ? each : best,
    );
    picked.set(key, wanted ?? newest);
  }
  const seen = new Set<string>(['']);
  const found: Shown[] = [];
  for (const message of all) {
    const key = branchKey(message);
    if (!seen.has(message.parent) || picked.get(key) !== message) continue;
    seen.add(message.id);
    if (message.form === 'answer') continue;
    const answers = `${message.id} answers`;
    found.push({
      message,
      branches: (groups.get(key) ?? []).map(({ id }) => id),
      answer: picked.get(answers) ?? null,
      answers: (groups.get(answers) ?? []).map(({ id }) => id),
    });
  }
  return found;
}

/** What a new message follows. */
export function leafOf(turns: readonly Shown[]): string {
  const last = turns.at(-1);
  return last?.answer?.id ?? last?.message.id ?? '';
}

/** The answers of others before a waiting question: whose question it waits for, oldest first. */
export function waitsFor(conversation: Conversation, question: Message): string[] {
  const before: Message[] = [];
  const under = running(conversation);
  if (under !== null) before.push(under);
  for (const each of waiting(conversation)) {
    if (each.id === question.id) break;
    before.push(each);
  }
  return before.map(({ author }) => author);
}
