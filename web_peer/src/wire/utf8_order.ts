/* Decides in which order ids stand: that of their UTF-8 bytes, which is the order of Python's strings. Pure. */

const SURROGATES = /[\ud800-\udfff]/;

/** Negative, 0 or positive, as sort wants it. */
export function byBytes(a: string, b: string): number {
  if (a === b) return 0;
  if (SURROGATES.test(a) || SURROGATES.test(b)) {
    const left = Array.from(a);
    const right = Array.from(b);
    for (let at = 0; at < left.length && at < right.length; at++) {
      const difference = (left[at]?.codePointAt(0) ?? 0) - (right[at]?.codePointAt(0) ?? 0);
      if (difference !== 0) return difference;
    }
    return left.length - right.length;
  }
  return a < b ? -1 : 1;
}

/** `ids` in order, as a new array. */
export function sorted(ids: Iterable<string>): string[] {
  return [...ids].sort(byBytes);
}
