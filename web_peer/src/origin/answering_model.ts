/*
 * A model of the mesh that answers in words, as this tab asks it: the mesh's own, or a further one (twin of
 * peer/origin/answering_model.py). Edge.
 */

import { BadCommand, CannotServe, NoPlan } from '../errors';
import { SESSION_BYTES } from '../limits';
import type { LocalModel } from '../model/local_model';
import type { Prompts } from '../model/prompts';
import type { Text } from '../model/tokenizer';
import { Conversation } from './answer_stream';
import type { KeptEnds } from './pinned_ends';
import type { SessionHost } from './session_host';
import type { Manifest } from '../planner/manifest';
import type { SamplingDefaults } from '../planner/sampling_defaults';
import type { ModelView } from '../replication/decoder_view';
import { toHex } from '../wire/hex';

/** What an answering model takes of a peer. */
interface Parts {
  readonly view: ModelView;
  readonly model: LocalModel;
  readonly sessions: SessionHost;
}

/** `parts.view` is the mesh as if this model were its own; `mark`: what the ids of its sessions begin with, in hex. */
export class AnsweringModel {
  private readonly parts: Parts;
  private readonly mark: string;
  private readonly open = new Set<Conversation>();

  constructor(parts: Parts, mark = '') {
    this.parts = parts;
    this.mark = mark;
  }

  /** The mesh as if this model were its own. */
  get view(): ModelView {
    return this.parts.view;
  }

  /** Its tokenizer and template; null: they are not here yet. */
  get text(): Text | null {
    return this.parts.model.text;
  }

  /** What makes its prompts tokens; null: the tokenizer is not here yet. */
  get prompts(): Prompts | null {
    return this.parts.model.prompts;
  }

  /** How answers are drawn where whoever asks leaves that out. */
  get samplingDefaults(): SamplingDefaults {
    return this.parts.model.samplingDefaults;
  }

  /** What it is made of; null: that is not known yet. */
  get manifest(): Manifest | null {
    return this.parts.model.manifest;
  }

  /** Whether an answer that this tab asked for is under way. */
  answering(): boolean {
    return [...this.open].some((conversation) => conversation.answering());
  }

  /** The id of a session of this model that nobody has. */
  newSession(): string {
    return (this.mark + toHex(crypto.getRandomValues(new Uint8Array(SESSION_BYTES)))).slice(
      0,
      2 * SESSION_BYTES,
    );
  }

  /**
   * A session with the model. Close it when it is over. Raises NoPlan before the model is known, BadCommand, CannotServe
   * for one that processes alone can ask.
   */
  conversation(session = this.newSession(), ends: KeptEnds | null = null): Conversation {
    const { prompts } = this;
    if (prompts === null) throw new NoPlan('the model’s tokenizer is not here yet');
    if (this.parts.model.manifest?.readsSources === true) {
      throw new CannotServe(
        'this model writes a text of another one: shoal generate asks it, and tabs compute for it',
      );
    }
    if (!session.startsWith(this.mark)) throw new BadCommand('expected a session of the model that answers');
    const closed = (): unknown => this.open.delete(made);
    const made = new Conversation(this.parts.sessions, prompts, session, closed, ends);
    this.open.add(made);
    return made;
  }
}
