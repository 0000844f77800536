"""The error tree of peer. Every message says what was expected, what came, and what to do.

PeerError
├── FrameError               bytes from another peer break docs/protocol.md; that connection is closed
│   ├── TruncatedFrame       ends before its header or payload does
│   ├── OversizeFrame        longer than its channel or kind allows
│   ├── UnknownKind          a kind number that this protocol version does not have
│   ├── WrongField           a header field of the wrong type, length or range, or a wrong number of them
│   ├── WrongTensor          data type, shape and payload bytes do not agree
│   ├── WrongPiece           a piece breaks the rules of cutting and reassembly
│   ├── WrongChannel         a kind that belongs on the other channel
│   ├── CreditExceeded       more bytes than this side granted
│   └── VersionMismatch      the other side speaks another protocol version
└── TransportError           the way to another peer
    ├── EngineMissing        the wanted engine is not installed
    ├── SignalingFault       an SDP or candidate that cannot be used
    ├── ConnectFailed        no connection within the time limit
    ├── ConnectionLost       it was open, and is not any more
    └── BackpressureExceeded the sender queued more than its bound
"""


class PeerError(Exception):
    """Root of peer's errors."""


class FrameError(PeerError):
    """Bytes from another peer break the protocol."""


class TruncatedFrame(FrameError):
    """A frame ends before its header or payload does."""


class OversizeFrame(FrameError):
    """A frame is longer than its channel or kind allows."""


class UnknownKind(FrameError):
    """A frame's kind number is not one of this protocol version."""


class WrongField(FrameError):
    """A header field has the wrong type, length or range, or there are too few or too many fields."""


class WrongTensor(FrameError):
    """The data type, shape and payload of a tensor do not agree."""


class WrongPiece(FrameError):
    """A piece breaks the rules of cutting and reassembly."""


class WrongChannel(FrameError):
    """A frame came on a channel that its kind does not belong to."""


class CreditExceeded(FrameError):
    """The other side sent more bytes than it was granted."""


class VersionMismatch(FrameError):
    """The other side speaks another version of the protocol."""


class TransportError(PeerError):
    """The way to another peer failed."""


class EngineMissing(TransportError):
    """The wanted transport engine is not installed, or not known."""


class SignalingFault(TransportError):
    """An SDP or ICE candidate cannot be used."""


class ConnectFailed(TransportError):
    """No connection came about within the time limit."""


class ConnectionLost(TransportError):
    """The connection is not open (any more)."""


class BackpressureExceeded(TransportError):
    """More bytes were queued for a peer than the sender's bound allows."""
