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
  readonly answer: (peer: string, body: Body) => Promise<Body>;
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
  on<T, A>({ method, sender, codec, answer }: RequestKind<T, A>, handler: Handler<T, A>): () => void {
    if (this.table.has(method)) throw new Error(`the request ${method} has a handler already`);
    const entry: Entry = {
      sender,
      answer: async (peer, body) => answer.encode(await handler(peer, codec.decode(body, method))) as Body,
    };
    this.table.set(method, entry);
    return () => {
      if (this.table.get(method) === entry) this.table.delete(method);
    };
  }

  /** The answer to `method`. Raises BadCommand for an unknown one, and for who may not send it. */
  async answer(peer: string, method: string, body: Body): Promise<Body> {
    const found = this.table.get(method);
    if (found === undefined) throw new BadCommand(`unknown request ${method.slice(0, MAX_SHOWN)}`);
    if (found.sender !== 'anyone' && !this.isOne(peer, found.sender)) {
      throw new BadCommand(
        `${method}: expected ${found.sender === 'members' ? 'a member' : 'it of who coordinates'}`,
      );
    }
    return found.answer(peer, body);
  }
}
