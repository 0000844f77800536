/*
 * The mesh as conversations need it, and one like it that only this person knows: what is said there never enters the
 * log. It ends with the tab, and its questions are asked without telling anybody token ids; or it is kept in this
 * browser. Edge.
 */

import { BadCommand, NoPlan } from '../errors';
import type { Prompts } from '../model/prompts';
import type { Text } from '../model/tokenizer';
import type { Manifest } from '../planner/manifest';
import type { SamplingDefaults } from '../planner/sampling_defaults';
import type { Conversation } from '../origin/answer_stream';
import type { KeptEnds } from '../origin/pinned_ends';
import type { PictureFile } from '../model/pictures';
import type { GivenRows } from '../session/position_spans';
import type { MeshView } from '../replication/mesh_view';
import { type Conversation as Talk, type Conversations, converse } from '../state/conversations';
import { type ConversationCommand, isConversationCommand } from '../state/generated/commands';
import type { Command } from '../state/member_commands';
import type { MeshState } from '../state/mesh_state';
import type { PeerLinks } from '../transport/peer_links';

/** How hints go to the tabs of others. */
export type TalkLinks = Pick<PeerLinks, 'on' | 'isConnected' | 'prepare' | 'call' | 'speaks'>;

/** What is known of the mesh, and how something is said in it. */
export type TalkView = Pick<MeshView, 'me' | 'state' | 'leader' | 'subscribe' | 'onRole' | 'propose'>;

/** A model that answers in words, as conversations ask it. */
export interface Answering {
  readonly view: { readonly state: MeshState }; // whose model is this one
  readonly text: Text | null;
  readonly prompts: Prompts | null;
  readonly manifest: Manifest | null;
  readonly samplingDefaults: SamplingDefaults; // where a conversation says nothing
  /** The id of a session of this model that nobody has. */
  newSession(): string;
  /** A session with the model. Raises NoPlan before the model is known, BadCommand for one of another model. */
  conversation(session?: string, ends?: KeptEnds | null): Conversation;
}

export interface TalkMesh {
  readonly links: TalkLinks;
  readonly view: TalkView;
  readonly signal: AbortSignal; // aborts when this membership is over
  /** The model of that name once it can be asked; "": the mesh's own. Raises NoPlan, CannotServe, BadCommand. */
  answering(model: string): Promise<Answering>;
  /**
   * Rows of pictures for that model, from `firsts` on in a prompt. Raises BadPicture, NoPlan, RunFailed, CannotServe.
   */
  rowsOf(
    of: Answering,
    pictures: readonly PictureFile[],
    firsts: readonly number[],
  ): Promise<readonly GivenRows[]>;
  onEnded(listener: () => void): void;
}

/** A mesh whose questions may be asked with ends of the model that stay here. */
export interface EndsMesh extends TalkMesh {
  readonly ends: KeptEnds | null; // null: the model is not known yet
}

/** Where private conversations of one mesh outlive the page; all tabs of this browser share it. */
export interface Shelf {
  read(): Conversations;
  /** Keeps `conversation`, or forgets it where it is null. */
  write(id: string, conversation: Talk | null): void;
  /** `changed` is called when another tab has written. */
  watch(changed: () => void, signal: AbortSignal): void;
}

/** Conversations of this person alone: as long as the page is open, or as long as `shelf` keeps them. */
export class OwnWords {
  private said: Conversations;
  private readonly shelf: Shelf | null;

  constructor(shelf: Shelf | null = null) {
    this.shelf = shelf;
    this.said = shelf?.read() ?? new Map();
  }

  get conversations(): Conversations {
    return this.said;
  }

  /** A mesh like `mesh` whose log these conversations are. */
  of(mesh: EndsMesh): TalkMesh {
    const { me, state } = mesh.view;
    for (const [conversation, { participants }] of this.said) {
      if (participants.has(me)) continue;
      const [before = { name: '', colour: '' }] = participants.values(); // an earlier visit of the same person
      const self = { name: before.name, colour: before.colour, role: 'owner' as const };
      for (const peer of participants.keys()) {
        if (!state.members.has(peer)) this.take({ kind: 'ParticipantLeft', conversation, peer });
      }
      this.take({ kind: 'ParticipantSet', conversation, peer: me, ...self });
    }
    return new OwnMesh(mesh, this, this.shelf === null);
  }

  /** Says `command` here; it has no effect where it cannot have one (any more). */
  take(command: ConversationCommand): void {
    const after = converse(this.said, command);
    if (typeof after === 'string') return;
    this.said = after;
    this.shelf?.write(command.conversation, after.get(command.conversation) ?? null);
  }

  /** `changed` is called after another tab of this browser has said something. */
  watch(changed: () => void, signal: AbortSignal): void {
    this.shelf?.watch(() => {
      this.said = this.shelf?.read() ?? this.said;
      changed();
    }, signal);
  }
}

class OwnMesh implements TalkMesh {
  readonly links: TalkLinks;
  readonly view: TalkView;
  private readonly mesh: EndsMesh;
  private readonly pins: boolean; // its questions are asked with ends of the model that stay here

  constructor(mesh: EndsMesh, words: OwnWords, pins: boolean) {
    this.mesh = mesh;
    this.pins = pins;
    this.view = new OwnView(mesh, words);
    const { links } = mesh;
    this.links = {
      on: () => () => undefined, // nobody asks about what nobody knows of
      isConnected: (peer) => links.isConnected(peer),
      prepare: (peer) => links.prepare(peer),
      call: (peer, kind, said) => links.call(peer, kind, said),
      speaks: (peer) => links.speaks(peer),
    };
  }

  get signal(): AbortSignal {
    return this.mesh.signal;
  }

  async answering(model: string): Promise<Answering> {
    const found = await this.mesh.answering(model);
    if (!this.pins) return found;
    const { ends, view } = this.mesh;
    const own = view.state.model?.name ?? '';
    if (model !== '' && model !== own) {
      throw new BadCommand(
        `words stay in this tab with ${own} alone: choose it, or ask ${model} in another one`,
      );
    }
    if (ends === null) throw new NoPlan('the model is not known yet');
    return {
      view: found.view,
      text: found.text,
      prompts: found.prompts,
      samplingDefaults: found.samplingDefaults,
      newSession: () => found.newSession(),
      conversation: (session) => found.conversation(session, ends),
      manifest: found.manifest,
    };
  }

  rowsOf(
    of: Answering,
    pictures: readonly PictureFile[],
    firsts: readonly number[],
  ): Promise<readonly GivenRows[]> {
    return this.mesh.rowsOf(of, pictures, firsts);
  }

  onEnded(listener: () => void): void {
    this.mesh.onEnded(listener);
  }
}

/** This person keeps the log alone: what is said is committed at once. */
class OwnView implements TalkView {
  readonly me: string;
  private readonly view: TalkView;
  private readonly words: OwnWords;
  private readonly listeners = new Set<() => void>();

  constructor({ view, signal }: EndsMesh, words: OwnWords) {
    this.view = view;
    this.words = words;
    this.me = view.me;
    signal.addEventListener(
      'abort',
      view.subscribe(() => this.changed()),
    );
    words.watch(() => this.changed(), signal);
  }

  get state(): MeshState {
    return { ...this.view.state, conversations: this.words.conversations };
  }

  get leader(): string {
    return this.me;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** It never changes who leads. */
  onRole(): () => void {
    return () => undefined;
  }

  propose(command: Command): Promise<void> {
    if (isSaid(command)) this.words.take(command);
    this.changed();
    return Promise.resolve();
  }

  private changed(): void {
    for (const listener of [...this.listeners]) listener();
  }
}

function isSaid(command: Command): command is ConversationCommand {
  return isConversationCommand(command);
}
