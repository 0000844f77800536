/*
 * The requests that this peer answers: one handler each, who may send it, how its body is read (twin of
 * peer/transport/request_table.py).
 */

import { BadCommand } from '../errors';
import type { Body } from '../wire/json_codec';

const MAX_SHOWN = 40; // characters of a method that nobody knows

/** Who may send a request: any peer that is connected, members of the mesh, or the member that leads. */
export type Who = 'anyone' | 'members' | 'leader';

/** Answers a request of `peer`. Raises a PeerError to refuse it. */
export type Handler<R = Body> = (peer: string, request: R) => Body | Promise<Body>;

interface Entry {
  readonly who: Who;
  readonly answer: (peer: string, body: Body) => Body | Promise<Body>;
}

/** A table from the method of a request to its handler. */
export class Requests {
  private readonly table = new Map<string, Entry>();
  private readonly isOne: (peer: string, who: Exclude<Who, 'anyone'>) => boolean;

  /** `isOne` tells whether a peer is a member, or the leader. */
  constructor(isOne: (peer: string, who: Exclude<Who, 'anyone'>) => boolean) {
    this.isOne = isOne;
  }

  /**
   * Registers `handler` until the result is called; `read` makes a body what it takes, or raises BadCommand. Raises an
   * Error where `method` has a handler.
   */
  on(method: string, handler: Handler, who: Who): () => void;
  on<R>(method: string, handler: Handler<R>, who: Who, read: (body: Body) => R): () => void;
  on<R>(method: string, handler: Handler<Body | R>, who: Who, read?: (body: Body) => R): () => void {
    if (this.table.has(method)) throw new Error(`the request ${method} has a handler already`);
    const answer: Handler = (peer, body) => handler(peer, read === undefined ? body : read(body));
    const entry = { who, answer };
    this.table.set(method, entry);
    return () => {
      if (this.table.get(method) === entry) this.table.delete(method);
    };
  }

  /** The answer to `method`. Raises BadCommand for an unknown one, and for who may not send it. */
  async answer(peer: string, method: string, body: Body): Promise<Body> {
    const found = this.table.get(method);
    if (found === undefined) throw new BadCommand(`unknown request ${method.slice(0, MAX_SHOWN)}`);
    if (found.who !== 'anyone' && !this.isOne(peer, found.who)) {
      throw new BadCommand(
        `${method}: expected ${found.who === 'members' ? 'a member' : 'it of who coordinates'}`,
      );
    }
    return found.answer(peer, body);
  }
}
