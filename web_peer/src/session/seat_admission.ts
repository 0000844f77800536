/*
 * Decides which answers occupy the seats of a stage, and which OPENs must wait since others were called before (twin of
 * peer/session/seat_admission.py). Pure: between the seats of stage.ts and the line of admission_queue.ts.
 */

import { type Busy, Line, type Room } from './admission_queue';
import type { Ran } from './effects';
import { type Cancel, type Open, ROLE } from '../wire/generated/frames';
import { type Run, runKey } from '../state/plan_record';
import type { Loaded } from './open_checks';
import { LEFT_S, pauses, type Seat } from './seat';

const MOST = 2 ** 20; // positions: no context is longer

/** `seats` and `loaded()` are those of the stage core. */
export class Admitting {
  readonly line = new Line();
  private readonly seats: ReadonlyMap<string, Seat>;
  private readonly loaded: () => ReadonlyMap<string, Loaded>;
  private readonly rules: { owedMilli(asker: string): number };

  /** `rules` tell what an asker spent beyond what it earned, in thousandths of a credit. */
  constructor(
    seats: ReadonlyMap<string, Seat>,
    loaded: () => ReadonlyMap<string, Loaded>,
    rules: { owedMilli(asker: string): number },
  ) {
    this.seats = seats;
    this.loaded = loaded;
    this.rules = rules;
  }

  /** Calls whoever is next, where there is a seat. */
  look(now: number): void {
    if (this.line.size === 0) return;
    const rooms = new Map<string, Room>();
    for (const run of this.line.runs) {
      const loaded = this.loaded().get(runKey(run));
      if (loaded === undefined) continue;
      const busy = this.busyOn(now, run).map((seat) => [seat.opening.origin, busyOf(seat)] as const);
      rooms.set(runKey(run), { seats: loaded.slots, busy });
    }
    this.line.look(Math.floor(now * 1000), rooms, (asker) => this.rules.owedMilli(asker));
  }

  /** Whether `frame` begins an answer, and every seat of its units is taken, or kept for somebody who came before. */
  mustWait(now: number, { origin, session, role, turn, answer }: Open, { run, slots }: Loaded): boolean {
    if (this.line.size === 0 || role !== ROLE.serve || turn !== answer) return false;
    this.look(now);
    const used = this.busyOn(now, run).filter((seat) => seat.session !== session).length;
    return slots - used - this.line.kept(run, origin, session) < 1;
  }

  /** There is no seat for an OPEN: who was called stands in line again. A shadow's says nothing of that. */
  calledInVain({ origin, session, role }: Open): void {
    if (role === ROLE.serve) this.line.putBack(origin, session);
  }

  /** A turn begins on `seat`. */
  taken(now: number, seat: Seat): void {
    seat.ranAt = now;
    if (seat.serves) this.line.leave(seat.opening.origin, seat.session);
  }

  /** A step of `seat` was computed. */
  ran(now: number, seat: Seat, { count, position }: Ran): void {
    if (seat.serves && !seat.warms && seat.active) {
      this.line.pace.ran(Math.trunc((now - seat.ranAt) * 1e6), count, count > 1 || seat.isGiven(position));
    }
    seat.ranAt = now;
  }

  /** The asker ends turns of a session with `seats` here: it waits no more, and an answer had so many tokens. */
  cancelled(sender: string, { session, turn, keep }: Cancel, [seat]: readonly Seat[]): void {
    this.line.leave(sender, session);
    if (seat === undefined || keep === 0 || !seat.serves || seat.warms || seat.isMasked) return;
    const { origin, promptTokens, generated, maxTokens, turn: open } = seat.opening;
    if (origin !== sender || open !== turn) return; // the other seats are of the same answer
    this.line.pace.ended(Math.min(keep - promptTokens + generated, maxTokens + generated));
  }

  private busyOn(now: number, run: Run): Seat[] {
    return [...this.seats.values()].filter((seat) => runKey(seat.run) === runKey(run) && isInUse(seat, now));
  }
}

/** Whether an answer is under way on this seat that does not make room for another. */
function isInUse(seat: Seat, now: number): boolean {
  if (seat.warms || !seat.serves) return false;
  if (!seat.active) return pauses(seat, now);
  return now - seat.touched <= LEFT_S || seat.inFlight > 0;
}

/** What its answer has still to do. */
function busyOf({ opening, computed }: Seat): Busy {
  const { promptTokens, generated, maxTokens } = opening;
  const bounded = (count: number): number => Math.min(Math.max(count, 0), MOST);
  return {
    positions: bounded(promptTokens - computed),
    made: bounded(generated + Math.max(computed - promptTokens, 0)),
    most: bounded(generated + maxTokens),
  };
}
