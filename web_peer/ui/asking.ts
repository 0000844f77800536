/* One conversation with the mesh: sends questions, gathers tokens once a frame, keeps the turns. */

import { signal } from '@preact/signals';

import { ASK_SETTINGS, type Conversation, type Finished, tokensPerS } from '../src/asking';
import { textOf } from '../src/engine';
import type { Mesh } from '../src/mesh';
import { samplingOf } from '../src/sampling';
import {
  asked,
  askedAgain,
  came,
  failed,
  finished,
  isAnswering,
  messagesOf,
  NOTHING_ASKED,
  stalled,
  stopped,
} from './conversation';
import { PerFrame } from './per_frame';
import type { AnswerFacts, AskSettings, Turn } from './view';

const PLAN_WAIT_S = 8; // a question that finds no plan says so soon, and can be asked again
const STALLED_MS = 2500; // without a token; the person then reads that the mesh is being waited for
const STOP_WITHIN_MS = 2000; // for the figures of a stopped answer; then it counts as stopped without them

/** What the conversation needs of whoever holds the mesh. */
export interface Surroundings {
  mesh(): Mesh | null;
  settings(): AskSettings;
  /** In people's words. */
  readable(text: string): string;
  name(peer: string): string;
  /** A token came for an answer of this tab. */
  token(): void;
  over(): void;
}

export class Asking {
  readonly turns = signal<readonly Turn[]>(NOTHING_ASKED);
  private readonly around: Surroundings;
  private conversation: Conversation | null = null;
  private of: Mesh | null = null;
  private waiting = '';
  private lastTokenAt = 0;
  private stopping = new AbortController(); // of the answer under way
  private readonly frame: PerFrame;

  constructor(around: Surroundings) {
    this.around = around;
    this.frame = new PerFrame(() => this.showWaiting());
  }

  ask(question: string): void {
    if (isAnswering(this.turns.value)) return;
    this.turns.value = asked(this.turns.value, question);
    void this.answer();
  }

  again(): void {
    const before = this.turns.value;
    this.turns.value = askedAgain(before);
    if (this.turns.value !== before) void this.answer();
  }

  stop(): void {
    if (!isAnswering(this.turns.value)) return;
    this.stopping.abort();
    const { id } = this;
    this.conversation?.stop();
    setTimeout(() => {
      this.frame.now();
      this.turns.value = stopped(this.turns.value, id, null);
    }, STOP_WITHIN_MS);
  }

  /** Looks whether the answer under way has come to a halt; called every now and then. */
  look(): void {
    if (performance.now() - this.lastTokenAt > STALLED_MS) this.turns.value = stalled(this.turns.value);
  }

  clear(): void {
    this.conversation?.stop();
    this.conversation?.close();
    this.conversation = null;
    this.turns.value = NOTHING_ASKED;
  }

  private get id(): number {
    return this.turns.value.at(-1)?.id ?? 0;
  }

  private showWaiting(): void {
    if (this.waiting === '') return;
    this.turns.value = came(this.turns.value, this.id, this.waiting);
    this.waiting = '';
  }

  private open(): Conversation | null {
    const mesh = this.around.mesh();
    if (mesh === null) return null;
    if (this.conversation === null || this.of !== mesh) {
      this.conversation = mesh.conversation();
      this.of = mesh;
    }
    return this.conversation;
  }

  private async answer(): Promise<void> {
    const { id } = this;
    this.waiting = '';
    const stopping = new AbortController();
    this.stopping = stopping;
    const chosen = this.around.settings();
    let end: Finished | null = null;
    try {
      const conversation = this.open();
      if (conversation === null)
        throw new Error('this tab is not in the mesh: wait until it is back, then ask again');
      const { temperature, topP, topK, minP, repetitionPenalty, maxTokens } = chosen;
      const seed = chosen.seed ?? crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
      const settings = {
        ...ASK_SETTINGS,
        sampling: samplingOf({ temperature, topP, topK, minP, repetitionPenalty, seed }),
        maxTokens,
        planWaitS: PLAN_WAIT_S,
      };
      for await (const piece of conversation.chat(
        messagesOf(this.turns.value, chosen.instructions),
        settings,
      )) {
        if (this.id !== id || (stopping.signal.aborted && piece.kind === 'delta')) break;
        if (piece.kind === 'finished') end = piece;
        else {
          this.waiting += piece.text;
          this.lastTokenAt = performance.now();
          this.around.token();
          this.frame.touch();
        }
      }
      if (this.id !== id) return;
      this.frame.now();
      this.turns.value = this.ended(id, end);
    } catch (error) {
      if (this.id !== id) return;
      this.frame.now();
      this.turns.value = stopping.signal.aborted
        ? stopped(this.turns.value, id, null)
        : failed(this.turns.value, id, this.around.readable(textOf(error)));
    } finally {
      this.around.over();
    }
  }

  private ended(id: number, end: Finished | null): readonly Turn[] {
    if (end === null || end.why === 'cancelled') {
      return stopped(this.turns.value, id, end === null ? null : this.facts(end));
    }
    return finished(this.turns.value, id, end.why === 'length' ? 'length' : 'end', this.facts(end));
  }

  private facts(end: Finished): AnswerFacts {
    return {
      tokens: end.tokens,
      firstTokenS: end.firstTokenS,
      tokensPerS: tokensPerS(end),
      route: end.route.map((peer) => this.around.name(peer)),
    };
  }
}
