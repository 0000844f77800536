/* Decides where an answer ends at a stop string, and what must be held back while one could still complete. */

import { TextError } from '../errors';

export const MAX_STOP_STRINGS = 16;
export const MAX_STOP_CHARACTERS = 256; // what may be held back while a stop string could still complete

/**
 * Watches streamed text for stop strings, in whatever pieces the text arrives.
 *
 * The stop string that completes first ends the answer; of several that complete at the same character, the
 * longest. It is not shown, nor is what follows it.
 */
export class StopStrings {
  private readonly stops: readonly string[];
  private held = '';
  private stopped = false;

  constructor(stops: readonly string[]) {
    if (stops.length > MAX_STOP_STRINGS) {
      throw new TextError(`at most ${MAX_STOP_STRINGS} stop strings, got ${stops.length}`);
    }
    for (const stop of stops) {
      const { length } = Array.from(stop);
      if (length < 1 || length > MAX_STOP_CHARACTERS) {
        throw new TextError(`a stop string has 1 to ${MAX_STOP_CHARACTERS} characters, got ${length}`);
      }
    }
    this.stops = [...stops];
  }

  /** What can be shown now, and whether a stop string ended the answer. */
  push(piece: string): { readonly shown: string; readonly stopped: boolean } {
    if (this.stopped) return { shown: '', stopped: true };
    const text = this.held + piece;
    let end = Infinity;
    let cut = Infinity;
    for (const stop of this.stops) {
      const place = text.indexOf(stop);
      if (place < 0) continue;
      if (place + stop.length < end || (place + stop.length === end && place < cut)) {
        end = place + stop.length;
        cut = place;
      }
    }
    if (cut !== Infinity) {
      this.stopped = true;
      this.held = '';
      return { shown: text.slice(0, cut), stopped: true };
    }
    const keep = Math.max(0, ...this.stops.map((stop) => overlap(text, stop)));
    this.held = text.slice(text.length - keep);
    return { shown: text.slice(0, text.length - keep), stopped: false };
  }

  /** What was held back, when the answer ends without completing a stop string. */
  flush(): string {
    const { held } = this;
    this.held = '';
    return held;
  }
}

/** Length of the longest end of `text` that is a beginning of `stop`, and not all of it. */
function overlap(text: string, stop: string): number {
  for (let length = Math.min(stop.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(stop.slice(0, length))) return length;
  }
  return 0;
}
