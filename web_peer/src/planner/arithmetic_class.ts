/*
 * The class of a peer's arithmetic: whose results are equal to the bit, and how a class is shown to people (twin of
 * planner/model/arithmetic_class.py). Pure.
 */

const SHOWN_DIGEST = 4; // hex digits of the digest that people see: two machines of a mesh hardly share them by chance

/** Whether peers of these classes compute equal bits from equal inputs, in the same order of additions. */
export function sameBits(one: string, other: string): boolean {
  return one !== '' && one === other;
}

/** Whether they are known to be of different classes: their results differ in the last digits. */
export function otherBits(one: string, other: string): boolean {
  return one !== '' && other !== '' && one !== other;
}

/**
 * How little a peer of the one class is wanted in the place of one of the other: 0 for equal bits, 1 where nobody
 * knows, 2 for other ones.
 */
export function unlike(one: string, other: string): number {
  if (sameBits(one, other)) return 0;
  return otherBits(one, other) ? 2 : 1;
}

/**
 * Whether an answer that goes from a peer of the one class to one of the other may go on with other words than without
 * that. Not between two unknown classes: then nothing is known to have changed.
 */
export function isCrossed(before: string, after: string): boolean {
  return before !== after;
}

/** For people: `cpu avx512_vnni rows-1 9f3a`; '' for an unknown one. */
export function shownClass(arithmetic: string): string {
  const parts = arithmetic.split('/');
  const digest = parts.pop() ?? '';
  if (parts.length === 0) return arithmetic;
  return [...parts.filter((part) => part !== ''), digest.slice(0, SHOWN_DIGEST)].join(' ');
}
