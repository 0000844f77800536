/*
 * The mesh as conversations need it, and one like it that only this tab knows: what is said there never enters the log,
 * and its questions are asked without telling anybody token ids. Edge.
 */

import { NoPlan } from '../errors';
import type { Mesh } from '../member/mesh_member';
import {
  CONVERSATION_COMMANDS,
  type ConversationCommand,
  type Conversations,
  converse,
} from '../state/conversations';
import type { Command, MeshState } from '../state/mesh_state';
import type { PeerLinks } from '../transport/peer_links';
import type { Node } from '../member/frame_router';

type Parts = 'me' | 'onState' | 'onRole';
type Says = 'state' | 'coordinator' | 'tellCoordinator';

/** How hints go to the tabs of others. */
export type TalkLinks = Pick<PeerLinks, 'on' | 'isConnected' | 'prepare' | 'call' | 'speaks'>;

export type TalkNode = Pick<Node, Parts | Says> & { readonly links: TalkLinks };

export interface TalkMesh extends Pick<Mesh, 'signal' | 'text' | 'conversation' | 'onEnded'> {
  readonly node: TalkNode;
}

/** The conversations of this tab alone, as long as the page is open, whatever becomes of the mesh meanwhile. */
export class OwnWords {
  conversations: Conversations = new Map();

  /** A mesh like `mesh` whose log these conversations are. */
  of(mesh: Mesh): TalkMesh {
    return new OwnMesh(mesh, this);
  }
}

class OwnMesh implements TalkMesh {
  readonly node: TalkNode;
  private readonly mesh: Mesh;

  constructor(mesh: Mesh, words: OwnWords) {
    this.mesh = mesh;
    this.node = new OwnNode(mesh, words);
  }

  get signal(): AbortSignal {
    return this.mesh.signal;
  }

  get text(): Mesh['text'] {
    return this.mesh.text;
  }

  conversation(session?: string): ReturnType<Mesh['conversation']> {
    const { ends } = this.mesh;
    if (ends === null) throw new NoPlan('the model is not known yet');
    return this.mesh.conversation(session, ends);
  }

  onEnded(listener: () => void): void {
    this.mesh.onEnded(listener);
  }
}

/** This tab keeps the log by itself: what it says is committed at once. */
class OwnNode implements TalkNode {
  readonly me: string;
  readonly onState = new Set<() => void>();
  readonly onRole = new Set<() => void>();
  readonly links: TalkLinks;
  private readonly node: Node;
  private readonly words: OwnWords;

  constructor({ node, signal }: Mesh, words: OwnWords) {
    this.node = node;
    this.words = words;
    this.me = node.me;
    const { links } = node;
    this.links = {
      on: () => () => undefined, // nobody asks about what nobody knows of
      isConnected: (peer) => links.isConnected(peer),
      prepare: (peer) => links.prepare(peer),
      call: (peer, method, body) => links.call(peer, method, body),
      speaks: (peer) => links.speaks(peer),
    };
    const look = (): void => this.changed();
    node.onState.add(look);
    signal.addEventListener('abort', () => node.onState.delete(look));
  }

  get state(): MeshState {
    return { ...this.node.state, conversations: this.words.conversations };
  }

  get coordinator(): string {
    return this.me;
  }

  tellCoordinator(_: string, command: Command | null): Promise<void> {
    const { conversations } = this.words;
    const after = isSaid(command) ? converse(conversations, command) : conversations;
    if (typeof after !== 'string') this.words.conversations = after; // else it has no effect (any more)
    this.changed();
    return Promise.resolve();
  }

  private changed(): void {
    for (const listener of [...this.onState]) listener();
  }
}

function isSaid(command: Command | null): command is ConversationCommand {
  return command !== null && Object.hasOwn(CONVERSATION_COMMANDS, command.kind);
}
