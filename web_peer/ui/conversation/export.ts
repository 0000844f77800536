/* A conversation as a file: Markdown for people, JSON for programs and to be brought in again. Pure. */

import { utf8Bytes } from '../../src/wire/json_codec';
import { type Form, MAX_MESSAGE_BYTES } from '../../src/state/generated/commands';
import { markedText, toldText } from '../../src/conversation/picture_marks';
import type { Talk, Turn } from '../app/view';

const FORMAT = 'shoal conversation 1';
const MAX_MESSAGES = 600; // said one after the other

export interface Brought {
  readonly title: string;
  readonly system: string;
  readonly messages: readonly { readonly form: Form; readonly text: string }[];
}

/** What the log has of a question: its pictures as marks, and its words. */
export function saidIn({ question, pictures }: Turn): string {
  const marks = pictures.map(({ id, alt }) => ({ sha256: id, alt }));
  return markedText({ pictures: marks, words: question });
}

/** What is shown of it, branch by branch as chosen. */
export function asMarkdown({ title, turns }: Talk, system: string): string {
  const parts = [`# ${title === '' ? 'Conversation' : title}`];
  if (system.trim() !== '') parts.push(`> ${system.trim().replaceAll('\n', '\n> ')}`);
  for (const turn of turns) {
    const { who, toPeople, answer, state } = turn;
    parts.push(`**${who.name}**${toPeople ? ' (to people)' : ''}\n\n${toldText(saidIn(turn))}`);
    if (answer !== '') parts.push(`**Model**${state.kind === 'stopped' ? ' (stopped)' : ''}\n\n${answer}`);
  }
  return `${parts.join('\n\n')}\n`;
}

/** The conversation as indented JSON, with a line feed at its end. */
export function asJson({ title, turns, people }: Talk, system: string): string {
  const messages = turns.flatMap((turn) => [
    { form: turn.toPeople ? 'to-people' : 'to-model', by: turn.who.name, text: saidIn(turn) },
    ...(turn.answer === '' ? [] : [{ form: 'answer', by: 'model', text: turn.answer }]),
  ]);
  const names = people.map(({ name, role }) => ({ name, role }));
  return `${JSON.stringify({ format: FORMAT, title, system, people: names, messages }, null, 2)}\n`;
}

/** What `asJson` wrote, or why it is none. */
export function broughtOf(text: string): Brought | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return 'This file is no JSON: choose one that was exported from a conversation.';
  }
  const found = value as { format?: unknown; title?: unknown; system?: unknown; messages?: unknown } | null;
  if (found?.format !== FORMAT || !Array.isArray(found.messages)) {
    return `This file is no conversation: expected one with the format “${FORMAT}”.`;
  }
  const { length } = found.messages;
  if (length > MAX_MESSAGES) {
    return `This conversation is too long: it has ${length} messages, at most ${MAX_MESSAGES} can be brought in.`;
  }
  const messages: { form: Form; text: string }[] = [];
  const speakers = new Set(
    found.messages.map((each: { by?: unknown } | null) => each?.by).filter((by) => by !== 'model'),
  );
  for (const each of found.messages as ({ form?: unknown; text?: unknown; by?: unknown } | null)[]) {
    const { form, text, by } = each ?? {};
    const isForm = form === 'to-model' || form === 'to-people' || form === 'answer';
    if (!isForm || typeof text !== 'string') {
      return 'This file is damaged: one of its messages cannot be read.';
    }
    // Whoever brings it in says it all: who said what stays readable.
    const named = speakers.size > 1 && typeof by === 'string' && form !== 'answer' ? `${by}: ${text}` : text;
    if (utf8Bytes(named) > MAX_MESSAGE_BYTES) {
      return `One message of this file is too long: at most ${MAX_MESSAGE_BYTES} bytes can be brought in.`;
    }
    const isAnswer = form === 'answer' && messages.at(-1)?.form === 'to-model';
    messages.push({ form: isAnswer ? 'answer' : form === 'answer' ? 'to-people' : form, text: named });
  }
  const string = (part: unknown, most: number): string =>
    typeof part === 'string' ? part.slice(0, most) : '';
  return { title: string(found.title, 200), system: string(found.system, 4000), messages };
}
