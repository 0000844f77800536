/*
 * The requests that this peer answers: one handler each, by the kind of request that the schema has (twin of
 * peer/transport/request_table.py).
 */

import { BadCommand } from '../errors';
import type { Body } from '../wire/json_codec';
import type { RequestKind, Sender } from '../wire/request_kind';

const MAX_SHOWN = 40; // characters of a method that nobody knows

/** Answers a request of `peer`. Raises a PeerError to refuse it. */
export type Handler<T, A> = (peer: string, said: T) => A | Promise<A>;

interface Entry {
  readonly sender: Sender;
  readonly admitted: (peer: string) => Admitted;
}

/** A request that its sender may send: how long its body and its answer may be, and what answers it. */
export interface Admitted {
  readonly maxBodyBytes: number;
  readonly maxAnswerBytes: number;
  readonly answer: (body: Body) => Promise<Body>;
}

/** A table from the method of a request to its handler. */
export class Requests {
  private readonly table = new Map<string, Entry>();
  private readonly isOne: (peer: string, sender: Exclude<Sender, 'anyone'>) => boolean;

  /** `isOne` tells whether a peer is a member, or the leader. */
  constructor(isOne: (peer: string, sender: Exclude<Sender, 'anyone'>) => boolean) {
    this.isOne = isOne;
  }

  /** Registers `handler` until the result is called. Raises an Error where the method has a handler. */
  on<T, A>(kind: RequestKind<T, A>, handler: Handler<T, A>): () => void {
    const { method, sender, codec, maxBodyBytes, answer, maxAnswerBytes } = kind;
    if (this.table.has(method)) throw new Error(`the request ${method} has a handler already`);
    const entry: Entry = {
      sender,
      admitted: (peer) => ({
        maxBodyBytes,
        maxAnswerBytes,
        answer: async (body) => answer.encode(await handler(peer, codec.decode(body, method))) as Body,
      }),
    };
    this.table.set(method, entry);
    return () => {
      if (this.table.get(method) === entry) this.table.delete(method);
    };
  }

  /**
   * What a request of `peer` may hold and what answers it, which raises BadCommand for a wrong body, and what the
   * handler raises. Raises BadCommand for an unknown method and for a peer without the right.
   */
  admit(peer: string, method: string): Admitted {
    const found = this.table.get(method);
    if (found === undefined) throw new BadCommand(`unknown request ${method.slice(0, MAX_SHOWN)}`);
    if (found.sender !== 'anyone' && !this.isOne(peer, found.sender)) {
      throw new BadCommand(
        `${method}: expected ${found.sender === 'members' ? 'a member' : 'it of who coordinates'}`,
      );
    }
    return found.admitted(peer);
  }

  /** The answer to a request whose body is read already; raises as `admit` and what it returns do. */
  async answer(peer: string, method: string, body: Body): Promise<Body> {
    return this.admit(peer, method).answer(body);
  }
}
