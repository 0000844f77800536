/* What of a growing answer is read aloud, and when: whole sentences, without the marks of markdown. Pure. */

const SENTENCE_END = /[.!?…:](?=\s)|\n/g;
const LEAST_CHARS = 40; // a list of short words is not said one by one

/** How much of `rest` can be said now: up to its last whole sentence; everything when the answer is over. */
export function sayable(rest: string, over: boolean): number {
  if (over) return rest.length;
  let end = 0;
  for (const match of rest.matchAll(SENTENCE_END)) end = match.index + 1;
  return end < LEAST_CHARS ? 0 : end;
}

/** `text` as it is said: no fences, stars, hashes, bars; links by their words. */
export function spoken(text: string): string {
  return text
    .replaceAll(/^\s*(?:```|~~~).*$/gm, ' ')
    .replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/^\s*[|\s:-]+$/gm, ' ')
    .replaceAll(/^\s{0,3}(?:#{1,6}|>|[-*+])\s+/gm, '')
    .replaceAll(/\*\*|__|`|~~|\|/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .trim();
}
