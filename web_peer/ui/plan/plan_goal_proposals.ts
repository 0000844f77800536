/* Says in the log how this person wishes plans to be made, and keeps what the page shows of that up to date. Edge. */

import { signal } from '@preact/signals';

import type { MeshMember } from '../../src/member/mesh_member';
import { checkWish } from '../../src/state/plan_goal';
import type { Group, PlanWished } from '../../src/state/generated/commands';
import type { WishView } from '../app/view';
import { type Asked, changed, refusedText, sameWish, wished, wishView } from './plan_goal_view';
import { textOf } from '../../src/errors';

type Wisher = Pick<MeshMember, 'signal'> & {
  readonly view: Pick<MeshMember['view'], 'me' | 'state' | 'propose'>;
};

/** The wish of one person, from saying it to the plan that follows. */
export class PlanWishing {
  readonly view = signal<WishView | null>(null);
  private asked: Asked = { kind: 'nothing' };
  private last: readonly Group[] = []; // that the mesh had while this page was open
  private readonly looked: () => void;

  /** `looked`: what is shown may have changed between two looks. */
  constructor(looked: () => void) {
    this.looked = looked;
  }

  /** Called often. */
  look({ view }: Wisher, nowMs: number): void {
    const { components } = wished(view.state);
    if (components.length > 0) this.last = components;
    const next = wishView(view.state, view.me, this.last, this.asked, nowMs);
    if (JSON.stringify(next) !== JSON.stringify(this.view.value)) this.view.value = next;
  }

  /** Another mesh is opened. */
  forget(): void {
    this.asked = { kind: 'nothing' };
    this.last = [];
    this.view.value = null;
  }

  /** Has the mesh plan so from now on; `view` tells what comes of it. */
  wish(mesh: Wisher, to: Pick<PlanWished, 'strategy' | 'goal'>): void {
    if (this.asked.kind === 'saying') return;
    const { state } = mesh.view;
    const before = wished(state);
    const wish = changed(before, to, this.last);
    const why = checkWish(wish, state.model?.units ?? 0);
    if (why !== '') this.become({ kind: 'refused', text: refusedText({ name: '', text: why }) });
    else void this.say(mesh, wish, !sameWish(wish, before));
  }

  private async say({ view, signal: over }: Wisher, wish: PlanWished, anew: boolean): Promise<void> {
    const { lastVersion: version, refused } = view.state;
    const said = (): Asked => ({ kind: 'said', wish, version, refused, sinceMs: performance.now(), anew });
    if (!anew) {
      this.become(said());
      return;
    }
    this.become({ kind: 'saying', wish });
    let next: Asked;
    try {
      await view.propose(wish);
      next = said();
    } catch (error) {
      const name = error instanceof Error ? error.name : '';
      next = { kind: 'refused', text: refusedText({ name, text: textOf(error) }) };
    }
    if (!over.aborted) this.become(next);
  }

  private become(asked: Asked): void {
    this.asked = asked;
    this.looked();
  }
}
