/* Decides where an answer ends at a stop string, and what must be held back while one could still complete. */

import { TextError } from '../errors';

export const MAX_STOP_STRINGS = 16;
export const MAX_STOP_CHARACTERS = 256; // what may be held back while a stop string could still complete

/**
 * Watches streamed text for stop strings, in whatever pieces the text arrives.
 *
 * The stop string that completes first ends the answer; of several that complete at the same character, the
 * longest. It is not shown, nor is what follows it. A control token counts by its name, which is not shown either: a
 * stop string may be in the text with the names, or in what is shown of it.
 */
export class StopStrings {
  private readonly stops: readonly string[];
  private held: readonly Spelled[] = [];
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

  /**
   * What can be shown now, and whether a stop string ended the answer.
   *
   * `control`: the name of a control token that came behind `text`.
   */
  push(text: string, control = ''): { readonly shown: string; readonly stopped: boolean } {
    if (this.stopped) return { shown: '', stopped: true };
    if (this.stops.length === 0) return { shown: text, stopped: false };
    const spelled = [
      ...this.held,
      ...text.split('').map((unit) => ({ unit, isShown: true })),
      ...control.split('').map((unit) => ({ unit, isShown: false })),
    ];
    const all = spelled.map((_, at) => at);
    const shown = all.filter((at) => spelled[at]?.isShown);
    let end = Infinity;
    let begin = Infinity; // of the stop string that ends first, places in `spelled`
    let hold = spelled.length;
    for (const view of shown.length < all.length ? [all, shown] : [shown]) {
      const seen = view.map((at) => spelled[at]?.unit ?? '').join('');
      for (const stop of this.stops) {
        const place = seen.indexOf(stop);
        const keep = place < 0 ? overlap(seen, stop) : 0;
        if (keep > 0) hold = Math.min(hold, view[view.length - keep] ?? 0);
        if (place < 0) continue;
        const last = view[place + stop.length - 1] ?? 0;
        const first = view[place] ?? 0;
        if (last < end || (last === end && first < begin)) [end, begin] = [last, first];
      }
    }
    this.stopped = begin !== Infinity;
    const cut = this.stopped ? begin : hold;
    this.held = this.stopped ? [] : spelled.slice(cut);
    return { shown: shownOf(spelled.slice(0, cut)), stopped: this.stopped };
  }

  /** What was held back, when the answer ends without completing a stop string. */
  flush(): string {
    const { held } = this;
    this.held = [];
    return shownOf(held);
  }
}

/** A unit of an answer's text, or of the name of a control token, which is not shown. */
interface Spelled {
  readonly unit: string;
  readonly isShown: boolean;
}

function shownOf(spelled: readonly Spelled[]): string {
  return spelled.map(({ unit, isShown }) => (isShown ? unit : '')).join('');
}

/** Length of the longest end of `text` that is a beginning of `stop`, and not all of it. */
function overlap(text: string, stop: string): number {
  for (let length = Math.min(stop.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(stop.slice(0, length))) return length;
  }
  return 0;
}
