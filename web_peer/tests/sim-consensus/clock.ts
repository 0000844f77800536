/* Decides what happens next in virtual time: the earliest, and of those of one moment what was asked for first. */

interface Due {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
}

function before(a: Due, b: Due): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}

/** A heap of what is to be done. */
export class Clock {
  now = 0;
  private order = 0;
  private readonly heap: Due[] = [];

  at(when: number, run: () => void): void {
    const due = { at: when, order: this.order++, run };
    const { heap } = this;
    let place = heap.length;
    heap.push(due);
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = heap[above];
      if (parent === undefined || before(parent, due)) break;
      heap[place] = parent;
      place = above;
    }
    heap[place] = due;
  }

  /** Does what is due up to and with `until`. */
  runUntil(until: number): void {
    for (;;) {
      const next = this.heap[0];
      if (next === undefined || next.at > until) break;
      this.drop();
      this.now = Math.max(this.now, next.at);
      next.run();
    }
    this.now = Math.max(this.now, until);
  }

  private drop(): void {
    const { heap } = this;
    const due = heap.pop();
    if (due === undefined || heap.length === 0) return;
    let place = 0;
    for (;;) {
      let below = 2 * place + 1;
      let child = heap[below];
      if (child === undefined) break;
      const other = heap[below + 1];
      if (other !== undefined && before(other, child)) {
        below += 1;
        child = other;
      }
      if (before(due, child)) break;
      heap[place] = child;
      place = below;
    }
    heap[place] = due;
  }
}
