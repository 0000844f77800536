/*
 * One kind of request between peers: its method, who may send it, and how its body stands in JSON (twin of
 * peer/wire/request_kind.py). Pure. generated/requests.ts has all of them.
 */

import type { Codec } from './json_codec';

/** Who may send a request: any peer that is connected, members of the mesh, or the member that leads. */
export type Sender = 'anyone' | 'members' | 'leader';

/** `codec` is of its bodies. */
export interface RequestKind<T> {
  readonly method: string;
  readonly sender: Sender;
  readonly codec: Codec<T>;
}

/** Of a request that says only its method. */
export const nothing: Codec<null> = { decode: () => null, encode: () => ({}) };
