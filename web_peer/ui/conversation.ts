/* How a conversation changes: questions, tokens, ends. Pure; the last turn is the only one that ever changes. */

import type { AnswerFacts, AnswerState, Turn } from './view';

export const NOTHING_ASKED: readonly Turn[] = [];

/** Whether an answer is being made. */
export function isAnswering(turns: readonly Turn[]): boolean {
  const kind = turns.at(-1)?.state.kind;
  return kind === 'thinking' || kind === 'streaming';
}

export function asked(turns: readonly Turn[], question: string): readonly Turn[] {
  const id = (turns.at(-1)?.id ?? 0) + 1;
  return [...turns, { id, question, answer: '', state: { kind: 'thinking' } }];
}

/** The last question once more, its answer thrown away. */
export function askedAgain(turns: readonly Turn[]): readonly Turn[] {
  const last = turns.at(-1);
  if (last === undefined || isAnswering(turns)) return turns;
  return [...turns.slice(0, -1), { ...last, id: last.id + 1, answer: '', state: { kind: 'thinking' } }];
}

/** Text that came for turn `id`; for any other than the running one it is late and changes nothing. */
export function came(turns: readonly Turn[], id: number, text: string): readonly Turn[] {
  return changed(turns, id, (turn) => ({
    ...turn,
    answer: turn.answer + text,
    state: { kind: 'streaming', stalled: false },
  }));
}

/** No token came for a while. */
export function stalled(turns: readonly Turn[]): readonly Turn[] {
  const last = turns.at(-1);
  if (last?.state.kind !== 'streaming' || last.state.stalled) return turns;
  return [...turns.slice(0, -1), { ...last, state: { kind: 'streaming', stalled: true } }];
}

export function finished(
  turns: readonly Turn[],
  id: number,
  why: 'end' | 'length',
  facts: AnswerFacts,
): readonly Turn[] {
  return ended(turns, id, { kind: 'done', why, facts });
}

export function stopped(turns: readonly Turn[], id: number, facts: AnswerFacts | null): readonly Turn[] {
  return ended(turns, id, { kind: 'stopped', facts });
}

export function failed(turns: readonly Turn[], id: number, text: string): readonly Turn[] {
  return ended(turns, id, { kind: 'failed', text });
}

function ended(turns: readonly Turn[], id: number, state: AnswerState): readonly Turn[] {
  return changed(turns, id, (turn) => ({ ...turn, state }));
}

function changed(turns: readonly Turn[], id: number, change: (turn: Turn) => Turn): readonly Turn[] {
  const last = turns.at(-1);
  if (last?.id !== id || !isAnswering(turns)) return turns;
  return [...turns.slice(0, -1), change(last)];
}

export type ChatRole = 'system' | 'user' | 'assistant';

/** What the model is shown: instructions, then every turn; a failed answer's words stay out, with its question. */
export function messagesOf(
  turns: readonly Turn[],
  instructions: string,
): { role: ChatRole; content: string }[] {
  const messages: { role: ChatRole; content: string }[] = [];
  if (instructions.trim() !== '') messages.push({ role: 'system', content: instructions.trim() });
  turns.forEach((turn, at) => {
    const isLast = at === turns.length - 1;
    if (!isLast && (turn.state.kind === 'failed' || turn.answer === '')) return;
    messages.push({ role: 'user', content: turn.question });
    if (!isLast) messages.push({ role: 'assistant', content: turn.answer });
  });
  return messages;
}
