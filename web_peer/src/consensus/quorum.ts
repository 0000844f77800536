/*
 * What a majority of voters has in common: an index, a moment, a verdict on a vote (twin of peer/consensus/quorum.py).
 * Pure.
 *
 * Thesis 3.4, 3.6.2 and 6.2. Learners are never counted (4.2.1).
 */

export type Verdict = 'won' | 'lost' | 'open';

/** Returns how many of so many voters are a majority. */
export function majority(voters: number): number {
  return Math.floor(voters / 2) + 1;
}

/** Returns the greatest value that a majority of these voters has reached; 0 without voters. */
export function reached(values: readonly number[]): number {
  const falling = [...values].sort((a, b) => b - a);
  return falling[majority(values.length) - 1] ?? 0;
}

/** Returns how a vote among `voters` stands; votes of others do not count. */
export function verdict(voters: readonly string[], votes: ReadonlyMap<string, boolean>): Verdict {
  const needed = majority(voters.length);
  const granted = voters.filter((voter) => votes.get(voter) === true).length;
  const refused = voters.filter((voter) => votes.get(voter) === false).length;
  if (voters.length > 0 && granted >= needed) return 'won';
  return voters.length - refused < needed ? 'lost' : 'open';
}
