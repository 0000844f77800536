/*
 * What a person reads, and can do, when too few voters are left to choose a coordinator: going on without those who are
 * gone, after a warning.
 */

import type { MeshMember } from '../../src/member/mesh_member';
import { isStuck } from '../../src/member/reconnect';
import type { Notice } from './view';
import { textOf } from '../../src/errors';

export const OFFER =
  'If they are gone for good, this tab can go on without them: with the members, the plan, the conversations and the ' +
  'balances that it knows.';
export const WARNING =
  'Do this only when they never come back. What only they knew is lost, and whoever comes back later gives up what it ' +
  'kept and takes over what is here. When two people do this at two places, there are two meshes.';

/** Asks twice before it does what cannot be undone. */
export class Recovery {
  private sure = false;
  private going = false;
  private readonly changed: () => void;
  private readonly tell: (text: string) => void;

  constructor(changed: () => void, tell: (text: string) => void) {
    this.changed = changed;
    this.tell = tell;
  }

  /** Of a tab that could go on by itself; nothing where somebody coordinates, or enough are here to choose. */
  notices(mesh: MeshMember | null): readonly Notice[] {
    const away = mesh?.away ?? null;
    if (mesh === null || away === null || away.attempt < 1 || !isStuck(away) || !mesh.part.canRecover) {
      this.sure = false;
      return [];
    }
    if (this.going) return [];
    if (!this.sure) {
      const act = { label: 'Go on without them', run: () => this.ask() };
      return [{ id: 'recover', tone: 'calm', text: OFFER, act }];
    }
    const act = { label: 'Yes, go on without them', run: () => this.go(mesh) };
    return [{ id: 'recover-sure', tone: 'bad', text: WARNING, act }];
  }

  private ask(): void {
    this.sure = true;
    this.changed();
  }

  private go(mesh: MeshMember): void {
    this.going = true;
    this.changed();
    mesh.part
      .recover()
      .then(
        (epoch) => this.tell(`Epoch ${epoch} of the mesh begins here. Others join it as they come back.`),
        (error: unknown) => this.tell(textOf(error)),
      )
      .finally(() => {
        this.going = false;
        this.sure = false;
        this.changed();
      });
  }
}
