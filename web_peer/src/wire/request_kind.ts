/*
 * One kind of request between peers: its method, who may send it, and how it and its answer stand in JSON (twin of
 * peer/wire/request_kind.py). Pure. generated/requests.ts has all of them.
 */

import type { Body, Codec } from './json_codec';

/** Who may send a request: any peer that is connected, members of the mesh, or the member that leads. */
export type Sender = 'anyone' | 'members' | 'leader';

/** `codec` is of its bodies, `answer` of the answers to it; each with how many bytes of JSON it may have. */
export interface RequestKind<T, A> {
  readonly method: string;
  readonly sender: Sender;
  readonly codec: Codec<T>;
  readonly maxBodyBytes: number;
  readonly answer: Codec<A>;
  readonly maxAnswerBytes: number;
}

/** What the answer `body` says. Raises BadCommand for one that is no answer to this. */
export function readAnswer<A>(
  { method, answer }: Pick<RequestKind<never, A>, 'method' | 'answer'>,
  body: Body,
): A {
  return answer.decode(body, `the answer to ${method}`);
}

/** Of what says no more than its method. */
export const nothing: Codec<null> = { decode: () => null, encode: () => ({}) };
