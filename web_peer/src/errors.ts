/*
 * The error tree of the tab. Every message says what was expected, what came, and what to do.
 *
 * PeerError
 * ├── FrameError               bytes from another peer break docs/protocol.md; that connection is closed
 * │   ├── TruncatedFrame       ends before its header or payload does
 * │   ├── OversizeFrame        longer than its channel or kind allows
 * │   ├── UnknownKind          a kind number that this protocol version does not have
 * │   ├── WrongField           a header field of the wrong type, length or range, or a wrong number of them
 * │   ├── WrongTensor          data type, shape and payload bytes do not agree
 * │   ├── WrongPiece           a piece breaks the rules of cutting and reassembly
 * │   ├── WrongChannel         a kind that belongs on the other channel
 * │   ├── CreditExceeded       more bytes than this side granted
 * │   └── VersionMismatch      the other side speaks another protocol version
 * ├── MeshError                what the mesh as a whole refuses
 * │   ├── BadCommand           a log entry or snapshot that breaks the rules of mesh_state
 * │   ├── NotAdmitted          the coordinator did not take this peer in
 * │   │   └── BeginAnew        ... because its log is of a life that is over
 * │   ├── NotLeader            the peer that was asked does not coordinate (any more), or nobody does
 * │   ├── NoPlan               the peers that are here cannot serve the model
 * │   ├── ContextOverflow      prompt and answer exceed the promised context
 * │   ├── AnswerFailed         an answer broke off, and why
 * │   │   └── MeshFull         ... because all sessions that the mesh promised are in use
 * │   ├── RunFailed            an item of a run that no stage can compute, or a run that finds no stages
 * │   ├── CannotServe          this peer cannot load or run what the plan gave it
 * │   │   └── NotNow           ... because others, or this machine, were too slow: later it may
 * │   └── DeviceLost           the GPU device is gone: nothing that runs on it answers any more
 * ├── StateUnusable            what this browser keeps for this peer cannot be read or written any more
 * │   ├── LogInUse             another tab uses the same log
 * │   └── DiskFull             no room; nothing was changed, and the same can be tried again
 * ├── TransactionError         a step of an operation that does not follow from those before
 * │   ├── AlreadyBegun         another operation on the same thing is under way
 * │   ├── NotBegun             the end of an operation that was not begun
 * │   ├── NotAllowed           the thing does not stand so that the operation can begin, or too many are there
 * │   └── WrongRecord          a line of the transaction log that no peer can have written
 * ├── SamplingError            settings or logits that no token can be drawn from
 * │   ├── BadSampling          a setting out of its range
 * │   └── NotFiniteLogits      NaN or +Inf, or nothing but -Inf
 * ├── TextError                words that cannot become tokens, or tokens words
 * │   └── ChatTemplateError    the model's chat template fails, or refuses the messages
 * ├── BadPicture               a picture that cannot be read, or is larger than may be
 * └── TransportError           the way to another peer
 *     ├── SignalingFault       an SDP or candidate that cannot be used
 *     ├── ConnectFailed        no connection within the time limit
 *     │   └── NoRelay          ... nor will there be: this peer connects by a relay only, and the mesh has none
 *     ├── ConnectionLost       it was open, and is not any more
 *     └── BackpressureExceeded the sender queued more than its bound
 *
 * Names are written out: they go into BYE frames, and a minifier renames classes.
 */

/** What an error says, or the value itself as text. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The root of the tab's errors. */
export class PeerError extends Error {
  override readonly name: string = 'PeerError';
}

export class FrameError extends PeerError {
  override readonly name: string = 'FrameError';
}
export class TruncatedFrame extends FrameError {
  override readonly name = 'TruncatedFrame';
}
export class OversizeFrame extends FrameError {
  override readonly name = 'OversizeFrame';
}
export class UnknownKind extends FrameError {
  override readonly name = 'UnknownKind';
}
export class WrongField extends FrameError {
  override readonly name = 'WrongField';
}
export class WrongTensor extends FrameError {
  override readonly name = 'WrongTensor';
}
export class WrongPiece extends FrameError {
  override readonly name = 'WrongPiece';
}
export class WrongChannel extends FrameError {
  override readonly name = 'WrongChannel';
}
export class CreditExceeded extends FrameError {
  override readonly name = 'CreditExceeded';
}
export class VersionMismatch extends FrameError {
  override readonly name = 'VersionMismatch';
}

export class MeshError extends PeerError {
  override readonly name: string = 'MeshError';
}
export class BadCommand extends MeshError {
  override readonly name = 'BadCommand';
}
export class NotAdmitted extends MeshError {
  override readonly name: string = 'NotAdmitted';
}
/** It joins again with an empty log, as another incarnation, higher than `above`; 0: that was not named. */
export class BeginAnew extends NotAdmitted {
  override readonly name = 'BeginAnew';
  readonly above: number;

  constructor(message: string, above = 0) {
    super(message);
    this.above = above;
  }
}
/** `leader` coordinates, '' where that is not known. */
export class NotLeader extends MeshError {
  override readonly name = 'NotLeader';
  readonly leader: string;

  constructor(message: string, leader = '') {
    super(message);
    this.leader = leader;
  }
}
export class NoPlan extends MeshError {
  override readonly name = 'NoPlan';
}
export class ContextOverflow extends MeshError {
  override readonly name = 'ContextOverflow';
}
export class AnswerFailed extends MeshError {
  override readonly name: string = 'AnswerFailed';
}
export class MeshFull extends AnswerFailed {
  override readonly name = 'MeshFull';
}
export class RunFailed extends MeshError {
  override readonly name = 'RunFailed';
}
export class CannotServe extends MeshError {
  override readonly name: string = 'CannotServe';
}
export class NotNow extends CannotServe {
  override readonly name = 'NotNow';
}
export class DeviceLost extends MeshError {
  override readonly name = 'DeviceLost';
}

export class StateUnusable extends PeerError {
  override readonly name: string = 'StateUnusable';
}
export class LogInUse extends StateUnusable {
  override readonly name = 'LogInUse';
}
export class DiskFull extends StateUnusable {
  override readonly name = 'DiskFull';
}

export class TransactionError extends PeerError {
  override readonly name: string = 'TransactionError';
}
export class AlreadyBegun extends TransactionError {
  override readonly name = 'AlreadyBegun';
}
export class NotBegun extends TransactionError {
  override readonly name = 'NotBegun';
}
export class NotAllowed extends TransactionError {
  override readonly name = 'NotAllowed';
}
export class WrongRecord extends TransactionError {
  override readonly name = 'WrongRecord';
}

export class SamplingError extends PeerError {
  override readonly name: string = 'SamplingError';
}
export class BadSampling extends SamplingError {
  override readonly name = 'BadSampling';
}
export class NotFiniteLogits extends SamplingError {
  override readonly name = 'NotFiniteLogits';
}

export class TextError extends PeerError {
  override readonly name: string = 'TextError';
}
/** A text has more `characters` than may be put into tokens. */
export class TextTooLong extends TextError {
  override readonly name = 'TextTooLong';
  readonly characters: number;

  constructor(characters: number) {
    super(`the text has ${characters} characters, more than may be put into tokens`);
    this.characters = characters;
  }
}
export class ChatTemplateError extends TextError {
  override readonly name = 'ChatTemplateError';
}

export class BadPicture extends PeerError {
  override readonly name = 'BadPicture';
}

export class TransportError extends PeerError {
  override readonly name: string = 'TransportError';
}
export class SignalingFault extends TransportError {
  override readonly name = 'SignalingFault';
}
export class ConnectFailed extends TransportError {
  override readonly name: string = 'ConnectFailed';
}
export class NoRelay extends ConnectFailed {
  override readonly name = 'NoRelay';
}
export class ConnectionLost extends TransportError {
  override readonly name = 'ConnectionLost';
}
export class BackpressureExceeded extends TransportError {
  override readonly name = 'BackpressureExceeded';
}
