/*
 * Decides what a majority of voters has in common: an index, a moment, a verdict on a vote (twin of
 * peer/consensus/quorum.py). Pure.
 *
 * Thesis 3.4, 3.6.2 and 6.2. Learners are never counted (4.2.1).
 */

export function majority(voters: number): number {
  return Math.floor(voters / 2) + 1;
}

/** The greatest value that a majority of these voters has reached; 0 without voters. */
export function reached(values: readonly number[]): number {
  const falling = [...values].sort((a, b) => b - a);
  return falling[majority(values.length) - 1] ?? 0;
}

/** How a vote among `voters` stands. */
export function verdict(
  voters: readonly string[],
  votes: ReadonlyMap<string, boolean>,
): 'won' | 'lost' | 'open' {
  const needed = majority(voters.length);
  const granted = voters.filter((voter) => votes.get(voter) === true).length;
  const refused = voters.filter((voter) => votes.get(voter) === false).length;
  if (voters.length > 0 && granted >= needed) return 'won';
  return voters.length - refused < needed ? 'lost' : 'open';
}
