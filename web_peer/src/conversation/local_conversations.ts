/*
 * The mesh as conversations need it, and one like it that only this tab knows: what is said there never enters the log,
 * and its questions are asked without telling anybody token ids. Edge.
 */

import { NoPlan } from '../errors';
import type { Prompts } from '../model/prompts';
import type { Text } from '../model/tokenizer';
import type { Conversation } from '../origin/answer_stream';
import type { KeptEnds } from '../origin/pinned_ends';
import type { MeshView } from '../replication/mesh_view';
import { type Conversations, converse } from '../state/conversations';
import { type ConversationCommand, isConversationCommand } from '../state/generated/commands';
import type { Command } from '../state/member_commands';
import type { MeshState } from '../state/mesh_state';
import type { PeerLinks } from '../transport/peer_links';

/** How hints go to the tabs of others. */
export type TalkLinks = Pick<PeerLinks, 'on' | 'isConnected' | 'prepare' | 'call' | 'speaks'>;

/** What is known of the mesh, and how something is said in it. */
export type TalkView = Pick<MeshView, 'me' | 'state' | 'leader' | 'subscribe' | 'onRole' | 'propose'>;

export interface TalkMesh {
  readonly links: TalkLinks;
  readonly view: TalkView;
  readonly signal: AbortSignal; // aborts when this membership is over
  readonly text: Text | null;
  readonly prompts: Prompts | null;
  /** A session with the model. Raises NoPlan before the model is known. */
  conversation(session?: string): Conversation;
  onEnded(listener: () => void): void;
}

/** A mesh whose questions may be asked with ends of the model that stay here. */
export interface EndsMesh extends TalkMesh {
  readonly ends: KeptEnds | null; // null: the model is not known yet
  conversation(session?: string, ends?: KeptEnds | null): Conversation;
}

/** The conversations of this tab alone, as long as the page is open, whatever becomes of the mesh meanwhile. */
export class OwnWords {
  private said: Conversations = new Map();

  get conversations(): Conversations {
    return this.said;
  }

  /** A mesh like `mesh` whose log these conversations are. */
  of(mesh: EndsMesh): TalkMesh {
    return new OwnMesh(mesh, this);
  }

  /** Says `command` here; it has no effect where it cannot have one (any more). */
  take(command: ConversationCommand): void {
    const after = converse(this.said, command);
    if (typeof after !== 'string') this.said = after;
  }
}

class OwnMesh implements TalkMesh {
  readonly links: TalkLinks;
  readonly view: TalkView;
  private readonly mesh: EndsMesh;

  constructor(mesh: EndsMesh, words: OwnWords) {
    this.mesh = mesh;
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

  get text(): Text | null {
    return this.mesh.text;
  }

  get prompts(): Prompts | null {
    return this.mesh.prompts;
  }

  conversation(session?: string): Conversation {
    const { ends } = this.mesh;
    if (ends === null) throw new NoPlan('the model is not known yet');
    return this.mesh.conversation(session, ends);
  }

  onEnded(listener: () => void): void {
    this.mesh.onEnded(listener);
  }
}

/** This tab keeps the log by itself: what it says is committed at once. */
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
