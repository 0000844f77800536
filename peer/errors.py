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
├── MeshError                what the mesh as a whole refuses
│   ├── BadCommand           a log entry or snapshot that breaks the rules of mesh_state
│   ├── NotAdmitted          the coordinator did not take this peer in
│   │   └── BeginAnew        ... because its log is of a life that is over
│   ├── NotLeader            the peer that was asked does not coordinate (any more), or nobody does
│   ├── NoPlan               the peers that are here cannot serve the model
│   ├── ContextOverflow      prompt and answer exceed the promised context
│   ├── AnswerFailed         an answer broke off, and why
│   │   ├── GrammarFailed    ... because the grammar that it was held to could not be followed to its end
│   │   ├── MeshFull         ... because all sessions that the mesh promised are in use
│   │   └── MustContribute   ... because this peer asked for more than it may before it contributes
│   ├── RunFailed            an item of a run that no stage can compute, or a run that finds no stages
│   ├── TeamBroken           a stage that several peers compute together lost one of them
│   └── CannotServe          this peer cannot load or run what the plan gave it
├── StateUnusable            the folder with this machine's keys cannot be read, written or shared
│   ├── LogInUse             another process writes the same log
│   ├── DiskRefuses          it cannot be written now; nothing that was stored is lost, and it can be tried again
│   │   └── DiskFull         ... because there is no room
│   └── DamagedStore         a consensus log or snapshot that no peer can have written
├── TransactionError         a step of an operation that does not follow from those before
│   ├── AlreadyBegun         another operation on the same thing is under way
│   ├── NotBegun             the end of an operation that was not begun
│   ├── NotAllowed           the thing does not stand so that the operation can begin, or too many are there
│   └── WrongRecord          a line of the transaction log that no peer can have written
├── MeasuringEnded           a measurement of this machine that had to make room for an answer
├── NoBrowser                a browser or its page that is not there, or a browser that ended by itself
├── Interrupted              Ctrl-C came before there was anything to stop politely
├── SamplingError            settings or logits that no token can be drawn from
│   ├── BadSampling          a setting out of its range
│   └── NotFiniteLogits      NaN or +Inf, or nothing but -Inf
├── TextError                words that cannot become tokens, or tokens words
│   ├── TextTooLong          more characters than may be put into tokens
│   └── ChatTemplateError    the model's chat template fails, or refuses the messages
│       └── TemplateSpent    ... because its budget is spent
├── BadPicture               a picture that cannot be read, or is larger than may be
├── ApiError                 what the gateway answers a program in place of words, with its HTTP status
└── TransportError           the way to another peer
    ├── EngineMissing        the wanted engine is not installed
    ├── BindFailed           an address to bind to that this machine does not have
    ├── SignalingFault       an SDP or candidate that cannot be used
    ├── ConnectFailed        no connection within the time limit
    │   └── NoRelay          ... nor will there be: this peer connects by a relay only, and the mesh has none
    ├── ConnectionLost       it was open, and is not any more
    └── BackpressureExceeded the sender queued more than its bound
"""

from typing import Any


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


class MeshError(PeerError):
    """What the mesh as a whole refuses."""


class BadCommand(MeshError):
    """A log entry, snapshot or request breaks the rules of mesh_state."""


class NotAdmitted(MeshError):
    """The coordinator did not take this peer in."""


class BeginAnew(NotAdmitted):
    """The joiner's log belongs to a life that is over: it joins again with an empty one, as another incarnation, which
    must be higher than `above`; 0: whoever said so did not name it.
    """

    def __init__(self, message: str, above: int = 0) -> None:
        super().__init__(message)
        self.above = above


class NotLeader(MeshError):
    """The peer that was asked does not coordinate (any more); `leader` does, "" where that is not known."""

    def __init__(self, message: str, leader: str = "") -> None:
        super().__init__(message)
        self.leader = leader


class NoPlan(MeshError):
    """The peers that are here cannot serve the model."""


class ContextOverflow(MeshError):
    """Prompt and answer exceed the promised context."""


class AnswerFailed(MeshError):
    """An answer broke off; the message says why and what to do."""


class GrammarFailed(AnswerFailed):
    """The grammar that an answer was held to could not be followed to its end: what came so far is no whole answer."""


class MeshFull(AnswerFailed):
    """All sessions that the mesh promised are in use. `wait_s`: when one may be free, as far as that is known."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class MustContribute(AnswerFailed):
    """This mesh shares fairly, and its ledger says that this peer asked for too much."""


class RunFailed(MeshError):
    """An item of a run that no stage can compute, or a run that finds no stages."""


class TeamBroken(MeshError):
    """A stage that several peers compute together lost one of them, or got from it what is no part."""


class CannotServe(MeshError):
    """This peer cannot load or run what the plan gave it."""


class StateUnusable(PeerError):
    """The folder with this machine's keys cannot be read, written or shared."""


class LogInUse(StateUnusable):
    """Another process writes the same log."""


class DiskRefuses(StateUnusable):
    """Something cannot be written now. Nothing that was stored is lost, and the same can be tried again."""


class DiskFull(DiskRefuses):
    """The disk has no room."""


class DamagedStore(StateUnusable):
    """A consensus log or snapshot that no peer can have written."""


class TransactionError(PeerError):
    """A step of an operation does not follow from those before."""


class AlreadyBegun(TransactionError):
    """Another operation on the same thing is under way."""


class NotBegun(TransactionError):
    """The end of an operation that was not begun."""


class NotAllowed(TransactionError):
    """The thing does not stand so that the operation can begin, or too many are there."""


class WrongRecord(TransactionError):
    """A line of the transaction log that no peer can have written."""


class MeasuringEnded(PeerError):
    """A measurement of this machine had to make room for something else."""


class NoBrowser(PeerError):
    """A browser or its page that is not there, or a browser that ended by itself."""


class Interrupted(PeerError):
    """A person pressed Ctrl-C while the command was still getting ready."""


class SamplingError(PeerError):
    """Settings or logits that no token can be drawn from."""


class BadSampling(SamplingError):
    """A sampling setting is out of its range."""


class NotFiniteLogits(SamplingError):
    """The logits hold NaN or +Inf, or nothing but -Inf."""


class TextError(PeerError):
    """The tokenizer cannot be used, or the text cannot be put into tokens."""


class ChatTemplateError(TextError):
    """The model's chat template cannot be used, or refuses these messages."""


class TemplateSpent(ChatTemplateError):
    """The model's chat template took more turns, or made larger values, than it may."""


class TextTooLong(TextError):
    """A text has more `characters` than may be put into tokens."""

    def __init__(self, characters: int) -> None:
        super().__init__(characters)
        self.characters = characters

    def __str__(self) -> str:
        return f"the text has {self.characters} characters, more than may be put into tokens"


class BadPicture(PeerError):
    """A picture cannot be read, or is larger than may be."""


class ApiError(PeerError):
    """What a program that asked over HTTP gets: `status`, and the fields of OpenAI's error object."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        kind: str = "invalid_request_error",
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        return _api_error, (str(self), self.__dict__)


def _api_error(message: str, fields: dict[str, Any]) -> ApiError:
    """One that came from another process."""
    error = ApiError(message)
    error.__dict__.update(fields)
    return error


class TransportError(PeerError):
    """The way to another peer failed."""


class EngineMissing(TransportError):
    """The wanted transport engine is not installed, or not known."""


class BindFailed(TransportError):
    """An address to bind to is not one of this machine."""


class SignalingFault(TransportError):
    """An SDP or ICE candidate cannot be used."""


class ConnectFailed(TransportError):
    """No connection came about within the time limit."""


class NoRelay(ConnectFailed):
    """This peer connects by a relay only, and the mesh has none."""


class ConnectionLost(TransportError):
    """The connection is not open (any more)."""


class BackpressureExceeded(TransportError):
    """More bytes were queued for a peer than the sender's bound allows."""
