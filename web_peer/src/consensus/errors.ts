/*
 * The error tree of the consensus core (twin of peer/consensus/errors.py).
 *
 * ConsensusError
 * ├── BadMessage    bytes or values from another peer that are no message of this protocol; the field is named
 * └── BadBoot       a term, vote, snapshot and log that no correct store can have kept: begin anew as another incarnation
 */

/** The root of the tree: whatever goes wrong in the consensus core is one of its kinds. */
export class ConsensusError extends Error {
  override readonly name: string = 'ConsensusError';
}

/** Not a message of this protocol; the text names the field, what was expected and what came. */
export class BadMessage extends ConsensusError {
  override readonly name = 'BadMessage';
}

/** What the store gave back does not fit together. */
export class BadBoot extends ConsensusError {
  override readonly name = 'BadBoot';
}
