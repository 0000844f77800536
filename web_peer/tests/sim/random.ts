/* Decides what chance brings in a simulated run: numbers that depend on the seed alone. */

/** A small generator (mulberry32): quick, and good enough to stir schedules with. */
export class Chance {
  private state: number;

  constructor(seed: number) {
    this.state = Math.imul(seed + 1, 0x9e3779b1) >>> 0;
    this.next();
  }

  /** From 0 to 1, without 1. */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `low` to `high`, both included. */
  whole(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  /** One of `choices`. */
  pick<T>(choices: readonly T[]): T {
    const chosen = choices[this.whole(0, choices.length - 1)];
    if (chosen === undefined) throw new Error('at least one choice expected');
    return chosen;
  }

  /** `count` different ones of `choices`, in their order. */
  some<T>(choices: readonly T[], count: number): T[] {
    const left = choices.map((choice, at) => ({ choice, at, key: this.next() }));
    left.sort((a, b) => a.key - b.key);
    return left
      .slice(0, count)
      .sort((a, b) => a.at - b.at)
      .map(({ choice }) => choice);
  }
}
