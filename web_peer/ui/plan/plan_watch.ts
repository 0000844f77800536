/* Keeps what the page shows of the plan up to date while somebody looks at it; it is not looked at for nobody. */

import { signal } from '@preact/signals';

import type { MeshMember } from '../../src/member/mesh_member';
import { type PlannerUnit, plannerUnits } from '../../src/coordination/plan_request';
import type { PlanView } from '../app/view';
import { type PlanSeen, planView } from './plan_view';

const AGAIN_MS = 1000; // between two looks: the losses of all peers are thought through each time

/** The plan as the page shows it; looked at every AGAIN_MS at most. */
export class PlanWatch {
  readonly view = signal<PlanView | null>(null);
  private watched = false;
  private lookedAt = Number.NEGATIVE_INFINITY;
  private units: readonly PlannerUnit[] = [];
  private unitsOf = '';

  /** `shown`: somebody looks from now on, or no more. */
  watch(shown: boolean): void {
    this.watched = shown;
    this.lookedAt = Number.NEGATIVE_INFINITY;
  }

  /** Called often. */
  look(mesh: MeshMember, seen: Pick<PlanSeen, 'reports' | 'rttS' | 'answer'>, now: number): void {
    if (!this.watched || now - this.lookedAt < AGAIN_MS) return;
    this.lookedAt = now;
    const { view } = mesh;
    const { manifest } = mesh.model;
    const model = view.state.model?.model ?? '';
    if (manifest !== null && this.unitsOf !== model) {
      this.units = plannerUnits(manifest);
      this.unitsOf = model;
    }
    const next = planView(view.state, {
      ...seen,
      me: view.me,
      coordinator: view.leader,
      voters: view.replica?.config.voters ?? [],
      units: this.units,
    });
    if (JSON.stringify(next) !== JSON.stringify(this.view.value)) this.view.value = next;
  }
}
