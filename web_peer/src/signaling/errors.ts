/*
 * The error tree of signaling, as signaling/errors.py draws it. Class names are codes on the wire, so they are written
 * out: a minifier renames classes.
 */

/** Root of signaling's errors; `code` is its name on the wire. */
export class SignalingError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = code;
    this.code = code;
  }
}

/** Groups of codes, as the tree of signaling/errors.py has them. */
export const INVITE_ERRORS = [
  'WrongLink',
  'WrongMesh',
  'UnknownInvite',
  'InviteExpired',
  'InviteUsedUp',
  'InviteRevoked',
] as const;
export const IDENTITY_ERRORS = [
  'BadKey',
  'ForgedGrant',
  'ForgedRevocation',
  'ForgedPresence',
  'ReplayedJoin',
  'UnknownPeer',
  'BadDescription',
  'SwappedDescription',
  'ReplayedDescription',
  'UnexpectedAnswer',
] as const;
export const MESSAGE_ERRORS = [
  'MessageTooLarge',
  'MalformedMessage',
  'UnknownMessage',
  'OutOfOrder',
  'ProtocolMismatch',
] as const;

/** Codes after which a peer must not try again by itself: the same join would be refused again. */
const FINAL: ReadonlySet<string> = new Set([
  ...INVITE_ERRORS,
  ...IDENTITY_ERRORS,
  'ProtocolMismatch',
  'Replaced',
  'OriginRefused',
]);
const MESSAGE: ReadonlySet<string> = new Set(MESSAGE_ERRORS);

export type SignalingCode =
  | (typeof INVITE_ERRORS)[number]
  | (typeof IDENTITY_ERRORS)[number]
  | (typeof MESSAGE_ERRORS)[number]
  | 'Replaced'
  | 'Stopping'
  | 'TooManyGrants'
  | 'BadName'
  | 'NoWebCrypto'
  | 'ServerUnreachable'
  | 'NotConnected';

/** The error for a code of the wire. */
export function signalingError(code: SignalingCode, message: string): SignalingError {
  return new SignalingError(code, message);
}

/** The error that the server named. */
export function fromWire(code: string, text: string): SignalingError {
  return new SignalingError(code, text);
}

/** Whether trying again is of no use. */
export function isFinal(error: SignalingError): boolean {
  return FINAL.has(error.code);
}

/** Whether it says that a message broke the protocol. */
export function isMessageError(error: unknown): error is SignalingError {
  return error instanceof SignalingError && MESSAGE.has(error.code);
}
