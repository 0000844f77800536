/* How far joining and lending are, as people see it (twin of peer/member/progress.py). */

export type JoinStep = 'connect' | 'measure' | 'fetch' | 'ready';

/** Progress of joining. `total` 0: no measure; `leftS` null: cannot be told. Bytes in `fetch`. */
export interface JoinPhase {
  readonly step: JoinStep;
  readonly detail: string;
  readonly done: number;
  readonly total: number;
  readonly perSecond: number;
  readonly leftS: number | null;
}

/** The beginning of a step: nothing is done yet, and neither total, rate nor time left is known. */
export function phaseOf(step: JoinStep, detail = ''): JoinPhase {
  return { step, detail, done: 0, total: 0, perSecond: 0, leftS: null };
}

/** The step that a peer is at; `told` hears of each. */
export class Progress {
  private now: JoinPhase = phaseOf('connect');
  private readonly told: (phase: JoinPhase) => void;

  constructor(told: (phase: JoinPhase) => void) {
    this.told = told;
  }

  get phase(): JoinPhase {
    return this.now;
  }

  at(phase: JoinPhase): void {
    this.now = phase;
    this.told(phase);
  }
}
