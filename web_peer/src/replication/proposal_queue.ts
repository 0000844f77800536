/*
 * What this tab says in the log: kept in order until it is committed, and shown as said meanwhile. Edge.
 *
 * While nobody leads, it waits; what was said counts here from the first moment.
 */

import {
  BadCommand,
  ConnectFailed,
  ConnectionLost,
  MeshError,
  NotLeader,
  PeerError,
  textOf,
} from '../errors';
import type { ConversationCommand } from '../state/generated/commands';
import { type Conversations, converse } from '../state/conversations';
import type { PeerLinks } from '../transport/peer_links';
import type { MeshView } from './mesh_view';
import { tooNew } from '../state/version_negotiation';

const AGAIN_MS = 500; // after nobody could take it
const MAX_WAITING = 4096; // commands; beyond that the oldest would be forgotten, so nothing more is taken

export interface ProposalEvents {
  changed(): void;
  /** The mesh did not take it. */
  refused(command: ConversationCommand, why: string): void;
}

interface Waiting {
  readonly command: ConversationCommand;
  said: boolean; // committed, though this tab may not know it by its log yet
}

type Links = Pick<PeerLinks, 'speaks'>;
type View = Pick<MeshView, 'state' | 'leader' | 'propose'>;

/** The commands of this tab that wait for their place in the log, oldest first. */
export class Proposals {
  private readonly links: Links;
  private readonly view: View;
  private readonly events: ProposalEvents;
  private readonly signal: AbortSignal;
  private waiting: readonly Waiting[] = [];
  private running = false;

  /** `signal` aborts when this membership is over. */
  constructor(links: Links, view: View, signal: AbortSignal, events: ProposalEvents) {
    this.links = links;
    this.view = view;
    this.events = events;
    this.signal = signal;
  }

  /** Says `command` once, as soon as somebody takes it. */
  say(...commands: readonly ConversationCommand[]): void {
    if (this.waiting.length + commands.length > MAX_WAITING) {
      for (const command of commands) this.events.refused(command, 'too much waits for the coordinator');
      return;
    }
    this.waiting = [...this.waiting, ...commands.map((command) => ({ command, said: false }))];
    this.events.changed();
    void Promise.resolve().then(() => this.run()); // whoever coordinates applies it at once: not within this call
  }

  /** Whether something of this tab about that message is not in the log yet. */
  holds(kind: ConversationCommand['kind'], id: string): boolean {
    return this.waiting.some(({ command }) => command.kind === kind && 'id' in command && command.id === id);
  }

  get count(): number {
    return this.waiting.filter(({ said }) => !said).length;
  }

  /** The conversations as the log has them, and what this tab said on top. */
  over(log: Conversations): Conversations {
    let all = log;
    this.waiting = this.waiting.filter(({ command, said }) => {
      const after = converse(all, command);
      if (typeof after === 'string') return !said; // it has no effect (any more): it is in the log, or void
      all = after;
      return true;
    });
    return all;
  }

  private async run(): Promise<void> {
    if (this.running) return;
    this.running = true;
    try {
      for (let next = this.next(); next !== undefined && !this.signal.aborted; next = this.next()) {
        await this.propose(next);
      }
    } finally {
      this.running = false;
    }
  }

  private next(): Waiting | undefined {
    return this.waiting.find(({ said }) => !said);
  }

  private async propose(next: Waiting): Promise<void> {
    const { command } = next;
    try {
      const { leader } = this.view;
      const why = leader === null ? '' : tooNew(command, [leader], (peer) => this.links.speaks(peer));
      if (why !== '') throw new BadCommand(why);
      await this.view.propose(command);
      next.said = true;
      if (repeats(command)) this.drop(next);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      if (error instanceof NotLeader || error instanceof ConnectFailed || error instanceof ConnectionLost) {
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        return;
      }
      this.drop(next);
      const known = typeof converse(this.view.state.conversations, command) === 'string';
      // Said before the answer to it was lost, or overtaken: as good as done.
      if (!(error instanceof MeshError) || !known) this.events.refused(command, textOf(error));
    }
    this.events.changed();
  }

  private drop(gone: Waiting): void {
    this.waiting = this.waiting.filter((each) => each !== gone);
  }
}

/** Whether saying it again would always seem to change something. */
function repeats({ kind }: ConversationCommand): boolean {
  return kind === 'ConversationChanged' || kind === 'ParticipantSet';
}
