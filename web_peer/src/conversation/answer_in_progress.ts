/* One answer while this tab makes it: its tokens and words so far, and how it ended. Edge around answer_stream.ts. */

import {
  type Begun,
  type Conversation as Session,
  dayOf,
  type Delta,
  type Finished,
} from '../origin/answer_stream';
import { BadPicture, CannotServe, PeerError, textOf } from '../errors';
import type { Content, Part } from '../model/chat_template';
import { keptForm } from '../model/picture_parts';
import type { PictureFile } from '../model/pictures';
import type { Conversation } from '../state/conversations';
import type { Message, ModelChosen } from '../state/generated/commands';
import { type Heard, roomFor } from '../session/origin';
import type { Prompts } from '../model/prompts';
import type { Text } from '../model/tokenizer';
import { toldText, unmarkedText } from './picture_marks';
import { promptOf, type Read } from './turn_order';
import type { Waits } from '../stage/seat_waiting';

const LOG_MS = 2000; // the log gets what came at the latest after that,
const LOG_TOKENS = 64; // or so many tokens
const MAX_EXTENSION = 16384; // characters in one command

export type End =
  | { readonly kind: 'finished'; readonly finished: Finished }
  | { readonly kind: 'stopped' }
  | { readonly kind: 'failed'; readonly text: string };

/** One answer that this tab makes: its text as it comes, told to the others and to the log. */
export class Making {
  readonly conversation: string;
  readonly session: Session;
  readonly begunAt: number; // tokens that another peer, or an earlier try, has made
  readonly ids: number[];
  text = '';
  lastTokenAt = performance.now();
  stopped = false;
  waits: Waits | null = null; // where it stands while the mesh is full
  private readonly ends: number[]; // length of the text after each number of tokens
  private loggedAt = performance.now();
  private loggedTokens: number;

  constructor(conversation: string, session: Session, ids: readonly number[]) {
    this.conversation = conversation;
    this.session = session;
    this.ids = [...ids];
    this.begunAt = ids.length;
    this.loggedTokens = ids.length;
    this.ends = Array.from({ length: ids.length + 1 }, () => 0);
  }

  get tokens(): number {
    return this.ids.length;
  }

  get standing(): Heard {
    return this.session.underWay;
  }

  /** Goes through `pieces`; `grown` is called after each, `moved` when its place in line is another. */
  async run(
    pieces: AsyncGenerator<Delta | Finished, void>,
    grown: () => void,
    moved: () => void,
  ): Promise<End> {
    this.session.onWait((waits) => {
      this.waits = waits;
      moved();
    });
    try {
      for await (const piece of pieces) {
        if (piece.kind === 'finished') return { kind: 'finished', finished: piece };
        if (this.stopped) return { kind: 'stopped' };
        this.text += piece.text;
        if (piece.token >= 0) {
          this.ids.push(piece.token);
          this.ends.push(this.text.length);
          this.lastTokenAt = performance.now();
        } else this.ends[this.ends.length - 1] = this.text.length;
        grown();
      }
      return { kind: 'stopped' };
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return this.stopped ? { kind: 'stopped' } : { kind: 'failed', text: textOf(error) };
    }
  }

  /** Ends it on every stage; what came so far stays. */
  stop(): void {
    this.stopped = true;
    this.session.stop();
  }

  /** What follows the first `after` tokens, `most` tokens of it. */
  from(after: number, most: number): { readonly ids: readonly number[]; readonly text: string } {
    const stop = Math.min(this.tokens, after + most);
    const end = stop < this.tokens ? this.ends[stop] : this.text.length;
    return {
      ids: this.ids.slice(after, stop),
      text: this.text.slice(this.ends[after] ?? this.text.length, end),
    };
  }

  private endOf(tokens: number): number {
    return this.ends[tokens] ?? this.text.length;
  }

  /** What the log is to get, which knows `logged`; null: nothing yet. */
  due({ tokens, text }: Message): { readonly tokens: number; readonly text: string } | null {
    const now = performance.now();
    if (this.tokens - this.loggedTokens < LOG_TOKENS && now - this.loggedAt < LOG_MS) return null;
    if (this.tokens <= tokens || !this.text.startsWith(text)) return null; // it is made again up to there
    let stop = this.tokens;
    while (stop > tokens + 1 && this.endOf(stop) - text.length > MAX_EXTENSION) stop -= 1;
    this.loggedAt = now;
    this.loggedTokens = stop;
    return { tokens: stop, text: this.text.slice(text.length, this.endOf(stop)) };
  }
}

/** What is read of a mesh. */
interface Reads {
  readonly prompts: Prompts | null;
  readonly text: Text | null;
  readonly view: { readonly state: { readonly model: ModelChosen | null } };
}

/** A question as its model reads it: token ids, and pictures whose rows stand there from `firsts` on. */
export interface QuestionRead {
  readonly tokens: readonly number[];
  readonly pictures: readonly PictureFile[];
  readonly firsts: readonly number[];
}

/** The picture file of that SHA-256, where this tab has it. */
export type PictureFiles = (sha256: string) => PictureFile | null;

/**
 * A question as tokens, the same for whoever asks it: the day is that of the question. Of earlier pictures that are not
 * here the model reads the description. Raises TextError; BadPicture where one of the question is not here, CannotServe
 * where the model sees none, or pictures as they are.
 */
export async function promptFor(
  mesh: Reads,
  conversation: Conversation,
  question: Message,
  files: PictureFiles,
): Promise<QuestionRead> {
  const { prompts, text, view } = mesh;
  if (prompts === null) return { tokens: [], pictures: [], firsts: [] };
  const context = view.state.model?.context ?? 0;
  const sight = text?.sight ?? null;
  const sees = sight !== null && sight.square === 0;
  const turns = promptOf(conversation, question.id);
  const asked = unmarkedText(turns.at(-1)?.content ?? '').pictures;
  if (asked.length > 0 && !sees) {
    const name = view.state.model?.name ?? 'this model';
    if (sight !== null) throw new CannotServe(keptForm(name));
    throw new CannotServe(`${name} sees no pictures: ask it in words alone, or choose a model that does`);
  }
  if (asked.some(({ sha256 }) => files(sha256) === null)) {
    throw new BadPicture(
      'the picture of this question is in the tab that asked with it alone: ask again with the picture',
    );
  }
  const pictures: PictureFile[] = [];
  const messages = turns.map(({ role, content }) => ({
    role,
    content: sees ? withPictures(content, files, pictures) : toldText(content),
  }));
  const { tokens, pictures: firsts } = await prompts.chat(messages, context, dayOf(question.whenMs));
  return { tokens, pictures, firsts };
}

/** A content with the pictures that are here, which are added to `found`. */
function withPictures(content: Read['content'], files: PictureFiles, found: PictureFile[]): Content {
  const { pictures, words } = unmarkedText(content);
  const here = pictures.map(({ sha256 }) => files(sha256)).filter((file) => file !== null);
  if (here.length === 0 || here.length < pictures.length) return toldText(content);
  found.push(...here);
  const shown = here.map((): Part => ({ type: 'image' }));
  return words === '' ? shown : [...shown, { type: 'text', text: words }];
}

/** Tokens that the answer may have; `most` 0: as many as fit. Raises ContextOverflow. */
export function roomOf(mesh: Reads, prompt: readonly number[], most: number): number {
  const { model } = mesh.view.state;
  const room = roomFor(prompt.length, null, model?.context ?? 0);
  return most === 0 ? room : Math.min(most, room);
}

/**
 * What is known of an answer that goes on: nothing is begun in a session of its own. What was heard of another prompt
 * than one of `prompt` tokens says nothing; the answer is then another one of its session.
 */
export function begunOf(ids: readonly number[], heard: Heard | null, prompt: number): Begun {
  if (heard === null) return { ids, heard: 1 };
  const fits = heard.spans.reduce((sum, span) => sum + span, 0) === prompt;
  return { ids, heard: fits ? heard : Date.now() };
}
