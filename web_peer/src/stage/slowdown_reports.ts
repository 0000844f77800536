/*
 * Watches how long this tab's steps take, and tells the mesh when it has become slower or faster (twin of
 * peer/stage/slowdown_reports.py). Edge around slowdown.ts.
 */

import type { FreeSlot, NotRan, Ran, RunStep } from '../session/effects';
import { PeerError } from '../errors';
import type { Manifest } from '../planner/manifest';
import type { MemberMeasured, Profile } from '../state/generated/commands';
import { encodeCommand } from '../state/member_commands';
import type { MeshState } from '../state/mesh_state';
import { runKey } from '../state/plan_record';
import type { MeshView } from '../replication/mesh_view';
import { atPace, CHECK_S, Pace, shouldTake, type Table } from '../runtime/slowdown';
import { nowS } from '../transport/ticker';

const LOST_S = 5; // after which what was told is in the log, or was put back there by a word that crossed it

/** What a tab's steps take, against what it measured of itself. */
export class Pacing {
  private readonly me: string;
  private readonly manifest: Manifest;
  private pace = new Pace();
  private measured: Profile | null = null; // as this tab measured itself
  private told: Profile | null = null; // the same at the pace that was told last
  private toldS = 0; // when that was
  private logged: Profile | null = null; // as the log had it when it was looked at last
  private isFirst = true; // that is as this tab measured itself
  private readonly kinds = new Map<string, Table>(); // how many units of each kind, by run

  constructor(me: string, manifest: Manifest) {
    this.me = me;
    this.manifest = manifest;
  }

  /** Whether this tab is as fast as it measured; not while it may be becoming slower. */
  isSteady(): boolean {
    return this.pace.isSteady(nowS());
  }

  /** A step goes to the model. */
  begun(step: RunStep): void {
    if (this.measured === null || step.behind) return;
    const { decodeNs, prefillNs } = this.measured;
    this.pace.begun(nowS(), step, shouldTake(this.kindsOf(step), decodeNs, prefillNs, step.count));
  }

  /** It came back. */
  ended(result: Ran | NotRan): void {
    this.pace.ended(nowS(), result, 'count' in result);
  }

  /** What still waited of a session does not run. */
  dropped({ run, session }: FreeSlot): void {
    this.pace.dropped(nowS(), run, session);
  }

  /** What the coordinator is to hear now, and what to do when it did not. */
  look(state: MeshState): { readonly command: MemberMeasured; readonly unheard: () => void } | null {
    const member = state.members.get(this.me);
    if (member === undefined || member.profile === null || member.status !== 'measured') return null;
    const { surroundings, ...logged } = member.profile; // what it says of them is no pace
    if (member.profile !== this.logged) {
      this.logged = member.profile;
      this.heard(logged);
    }
    const base = this.measured;
    const now = nowS();
    // What this tab said of its surroundings carries the pace of then, and may come after what it said of its pace.
    if (this.isFirst && this.told !== base && now - this.toldS > LOST_S) {
      this.told = base;
      this.pace.lost();
    }
    const milli = this.pace.look(now);
    if (milli === null || base === null) return null;
    this.toldS = now;
    const before = this.told;
    const profile: Profile = (this.told = {
      ...base,
      decodeNs: atPace(base.decodeNs, milli),
      prefillNs: atPace(base.prefillNs, milli),
      batchNs: atPace(base.batchNs, milli),
      stepNs: Math.floor((base.stepNs * milli) / 1000),
    });
    const { pace } = this;
    const unheard = (): void => {
      this.told = before;
      pace.unheard();
    };
    const said = surroundings === undefined ? profile : { ...profile, surroundings };
    return { command: { kind: 'MemberMeasured', peer: this.me, profile: said, links: [] }, unheard };
  }

  /** The log has another profile: at a pace that was told, or of a new measurement. */
  private heard(logged: Profile): void {
    const { measured, told } = this;
    this.isFirst = measured !== null && isSame(measured, logged);
    if (this.isFirst || (told !== null && isSame(told, logged))) return;
    this.pace = new Pace();
    this.measured = this.told = logged;
    this.isFirst = true;
  }

  private kindsOf({ run }: RunStep): Table {
    const key = runKey(run);
    const known = this.kinds.get(key);
    if (known !== undefined) return known;
    const counts = new Map<string, number>();
    for (const { kind } of this.manifest.units.slice(run.first, run.stop)) {
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
    }
    this.kinds.set(key, counts);
    return counts;
  }
}

/** From here on this tab looks now and then how fast it is, and says so, until `signal` aborts. */
export function followPace(
  view: Pick<MeshView, 'me' | 'state' | 'measured'>,
  manifest: Manifest,
  signal: AbortSignal,
): Pacing {
  const pacing = new Pacing(view.me, manifest);
  if (signal.aborted) return pacing; // the membership ended meanwhile
  const looking = setInterval(
    () => {
      const due = pacing.look(view.state);
      if (due === null) return;
      view.measured(due.command).catch((error: unknown) => {
        due.unheard();
        if (!(error instanceof PeerError)) reportError(error);
      });
    },
    CHECK_S * 1050, // a look that comes sooner than that says nothing
  );
  signal.addEventListener('abort', () => clearInterval(looking));
  return pacing;
}

function isSame(a: Profile, b: Profile): boolean {
  return textOf(a) === textOf(b);
}

/** As the log would have it: entries of a table in one order. */
function textOf(profile: Profile): string {
  const command = { kind: 'MemberMeasured', peer: '', profile, links: [] } as const;
  return new TextDecoder().decode(encodeCommand(command));
}
