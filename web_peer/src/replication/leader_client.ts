/*
 * Takes a member's requests to whoever coordinates: follows it when it changes, waits while there is nobody (twin of
 * peer/replication/leader_client.py). Edge.
 *
 * Every request may be sent twice: the leader may be gone before its answer comes.
 */

import { ConnectFailed, ConnectionLost, NotLeader, textOf } from '../errors';
import { type Command, encodeCommand } from '../state/member_commands';
import type { RequestKind } from '../wire/request_kind';

export const PATIENCE_MS = 30_000; // several elections, and a coordinator that has only just begun
const AGAIN_MS = 250; // after a refusal that names nobody, unless somebody leads before that

type Ask = <T, A>(peer: string, kind: RequestKind<T, A>, said: T) => Promise<A>;

/** `leader()` is who leads as far as this peer knows, or ''; `ask` asks one peer. */
export class LeaderLine {
  private readonly leader: () => string;
  private readonly asks: Ask;
  private readonly waiting = new Set<() => void>();

  constructor(leader: () => string, ask: Ask) {
    this.leader = leader;
    this.asks = ask;
  }

  /** Somebody else leads, or nobody. */
  changed(): void {
    for (const wake of [...this.waiting]) wake();
  }

  /** The leader's answer. `first`: whom to ask first. Raises its refusal, or NotLeader when patience ends. */
  async ask<T, A>(kind: RequestKind<T, A>, said: T, patienceMs = PATIENCE_MS, first = ''): Promise<A> {
    const until = performance.now() + patienceMs;
    let hint = first;
    for (;;) {
      const leader = hint === '' ? this.leader() : hint;
      let why = 'nobody coordinates now';
      hint = '';
      if (leader !== '') {
        try {
          return await this.with(leader, kind, said, until);
        } catch (error) {
          if (error instanceof NotLeader) {
            why = error.message;
            if (error.leader !== leader) hint = error.leader;
          } else if (error instanceof ConnectFailed || error instanceof ConnectionLost) {
            why = `the coordinator cannot be reached: ${textOf(error)}`;
          } else throw error;
        }
      }
      const left = until - performance.now();
      if (left <= 0) throw new NotLeader(why);
      if (hint === '') await this.pause(Math.min(AGAIN_MS, left));
    }
  }

  /** One try, given up as soon as another leader is known: this one may be frozen. */
  private async with<T, A>(leader: string, kind: RequestKind<T, A>, said: T, until: number): Promise<A> {
    const over = new AbortController();
    try {
      return await Promise.race([
        this.asks(leader, kind, said),
        this.otherThan(leader, Math.max(until - performance.now(), 10), over.signal),
      ]);
    } finally {
      over.abort();
    }
  }

  private async otherThan(leader: string, ms: number, over: AbortSignal): Promise<never> {
    const until = performance.now() + ms;
    while (!over.aborted && ['', leader].includes(this.leader()) && performance.now() < until) {
      await this.pause(until - performance.now(), over);
    }
    throw new ConnectionLost('it does not answer');
  }

  private pause(ms: number, over?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        over?.removeEventListener('abort', end);
        this.waiting.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      over?.addEventListener('abort', end);
      this.waiting.add(end);
    });
  }
}

/** A command as requests carry it: its JSON. */
export function spelled(command: Command): string {
  return new TextDecoder().decode(encodeCommand(command));
}
