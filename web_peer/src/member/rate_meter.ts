/* How fast tokens came lately, while any came (twin of peer/member/rate_meter.py). Pure: handed `now`. */

const WINDOW_S = 10; // long enough to be readable, short enough to follow a conversation

interface Reading {
  readonly atS: number;
  readonly total: number;
}

/** A rate from readings of a counter over the last WINDOW_S. Time in which nothing came does not count. */
export class Meter {
  private readings: readonly Reading[] = [];

  /** The counter shows `total`. */
  read(atS: number, total: number): void {
    this.readings = [...this.recent(atS), { atS, total }];
  }

  /** 0 when nothing came within the window. */
  perSecond(nowS: number): number {
    let count = 0;
    let seconds = 0;
    let before: Reading | null = null;
    for (const later of this.recent(nowS)) {
      if (before !== null && later.total > before.total) {
        count += later.total - before.total;
        seconds += later.atS - before.atS;
      }
      before = later;
    }
    return seconds > 0 ? count / seconds : 0;
  }

  private recent(nowS: number): readonly Reading[] {
    return this.readings.filter(({ atS }) => atS >= nowS - WINDOW_S);
  }
}
