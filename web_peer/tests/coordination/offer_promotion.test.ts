/* Who takes over the units of offered models from who is lost: as in Python. */

import { describe, expect, it } from 'vitest';

import { promoted, stands } from '../../src/coordination/offer_promotion';
import { decodeCommand } from '../../src/state/member_commands';
import { apply, EMPTY_STATE } from '../../src/state/mesh_state';
import { vectors } from '../vectors';

interface Vectors {
  readonly peers: readonly string[];
  readonly states: readonly {
    what: string;
    commands: string[];
    stands: string[];
    promoted: string | null;
  }[];
}

const VECTORS = vectors('offer_promotion') as Vectors;
const command = (text: string): ReturnType<typeof decodeCommand> =>
  decodeCommand(new TextEncoder().encode(text));

describe.each(VECTORS.states)('$what', ({ commands, stands: there, promoted: said }) => {
  const state = commands.map(command).reduce(apply, EMPTY_STATE);

  it('who may run units', () => {
    expect(VECTORS.peers.filter((peer) => stands(state, peer))).toEqual(there);
  });

  it('who takes over', () => {
    expect(promoted(state)).toEqual(said === null ? null : command(said));
  });
});
