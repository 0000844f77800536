"""The error tree of peer.consensus.

ConsensusError
├── BadMessage    bytes or values from another peer that are no message of this protocol; the field is named
└── BadBoot       a term, vote, snapshot and log that no correct store can have kept: begin anew as another incarnation
"""


class ConsensusError(Exception):
    """Root of the consensus core's errors."""


class BadMessage(ConsensusError):
    """Not a message of this protocol; the text names the field, what was expected and what came."""


class BadBoot(ConsensusError):
    """What the store gave back does not fit together."""
