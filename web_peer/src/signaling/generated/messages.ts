/*
 * Messages between a member and the signaling server, and what each may hold. Pure.
 *
 * Generated from schema/signaling.toml by `make generate`: change that, not this.
 */

import { MAX_GRANTS, MAX_UNIX, MAX_USES, ROLES, type Grant, type Revocation } from '../invites';
import { ED25519_BYTES, P256_BYTES, SIGNATURE_BYTES, type Base64 } from '../keys';
import { NONCE_BYTES, SIGNAL_KINDS, type Vouch, type Presence, type Signal } from '../presence';
import { bytes, flag, id, int, list, maybe, record, text, word, type Read } from '../message_fields';

export const SIGNALING_PROTOCOL = 2; // the version of these messages
export const MAX_CLIENT_BYTES = 256 * 1024; // what a server takes: the largest message is a registration or an SDP
export const MAX_JOIN_BYTES = 16 * 1024; // what a server takes of who has not joined: a join has 1-2 KB
export const MAX_SERVER_BYTES = 1024 * 1024; // what a client takes: a welcome lists every member and revocation
export const MAX_SDP_CHARS = 64 * 1024; // real ones have 1-5 KB
export const MAX_NAME_CHARS = 64;
export const MAX_TEXT_CHARS = 500;
export const MAX_MEMBERS = 512;
export const MAX_ICE_SERVERS = 16;
export const MAX_REQUEST = 2 ** 31 - 1;
export const MAX_BATCH = 64; // grants or revocations in one registration

/** One STUN or TURN server, as WebRTC names it. */
export interface IceServer {
  readonly urls: readonly string[];
  readonly username: string;
  readonly credential: string;
}

/** First message on every socket. The nonce is for one join on this socket. */
export interface Challenge {
  readonly kind: 'challenge';
  readonly protocol: number;
  readonly roomNonce: Base64;
}

/**
 * Prove the link and the own key. A grant or membership that the joiner has comes along: a server that lost
 * its memory then lets it in again.
 */
export interface Join {
  readonly kind: 'join';
  readonly protocol: number;
  readonly mesh: string;
  readonly invite: Base64;
  readonly key: Base64;
  readonly name: string;
  readonly roomNonce: Base64;
  readonly joinNonce: Base64;
  readonly inviteProof: Base64;
  readonly peerProof: Base64;
  readonly grant: Grant | null;
  readonly membership: Grant | null;
  readonly vouch: Vouch | null;
}

/** Signed grants and revocations for the server to keep. `request` comes back with the answer. */
export interface Register {
  readonly kind: 'register';
  readonly request: number;
  readonly grants: readonly Grant[];
  readonly revocations: readonly Revocation[];
}

/** The founder makes a peer a lasting member. */
export interface Admit {
  readonly kind: 'admit';
  readonly membership: Grant;
}

/** The member goes for good; the server closes. */
export interface Leave {
  readonly kind: 'leave';
}

/** The join was taken: the own record as everyone sees it, everyone else's, and how to reach them. */
export interface Welcome {
  readonly kind: 'welcome';
  readonly you: Presence;
  readonly members: readonly Presence[];
  readonly revocations: readonly Revocation[];
  readonly iceServers: readonly IceServer[];
}

/** A member came, or came again with new nonces. */
export interface Joined {
  readonly kind: 'joined';
  readonly member: Presence;
}

/** A member's socket is gone. Its connections to others may well go on. */
export interface Left {
  readonly kind: 'left';
  readonly peer: string;
  readonly reason: string;
}

/** All of registration `request` is kept (on disk, with a state folder), or why not (`code`). */
export interface Registered {
  readonly kind: 'registered';
  readonly request: number;
  readonly code: string;
  readonly text: string;
}

/** The founder withdrew an invite. */
export interface Revoked {
  readonly kind: 'revoked';
  readonly revocation: Revocation;
}

/** A message was not taken, or (`ends`) the socket closes now: an error of signaling by name. */
export interface Refused {
  readonly kind: 'refused';
  readonly code: string;
  readonly text: string;
  readonly ends: boolean;
}

/** The ICE servers from now on: the credentials that came before end soon. */
export interface Ice {
  readonly kind: 'ice';
  readonly iceServers: readonly IceServer[];
}

/** An offer, answer or candidate. The server looks at the receiver only. */
export interface Relay {
  readonly kind: 'relay';
  readonly signal: Signal;
}

/** Server to members: the founder made a peer a lasting member. */
export interface Admitted {
  readonly kind: 'admitted';
  readonly membership: Grant;
}

export type ClientMessage =
  | Join
  | Register
  | Admit
  | Leave
  | Relay;

export type ServerMessage =
  | Challenge
  | Welcome
  | Joined
  | Left
  | Registered
  | Revoked
  | Refused
  | Ice
  | Relay
  | Admitted;

const GRANT = record({
  meshKey: bytes(ED25519_BYTES),
  key: bytes(ED25519_BYTES, P256_BYTES),
  role: word(ROLES),
  expiresUnix: int(MAX_UNIX),
  uses: int(MAX_USES),
  via: bytes(0, ED25519_BYTES),
  signature: bytes(SIGNATURE_BYTES),
});
const REVOCATION = record({
  meshKey: bytes(ED25519_BYTES),
  key: bytes(ED25519_BYTES),
  signature: bytes(SIGNATURE_BYTES),
});
const VOUCH = record({
  key: bytes(ED25519_BYTES, P256_BYTES),
  proof: bytes(SIGNATURE_BYTES),
});
const PRESENCE = record({
  key: bytes(ED25519_BYTES, P256_BYTES),
  name: text(MAX_NAME_CHARS, 1),
  roomNonce: bytes(NONCE_BYTES),
  joinNonce: bytes(NONCE_BYTES),
  inviteProof: bytes(SIGNATURE_BYTES),
  peerProof: bytes(SIGNATURE_BYTES),
  grant: GRANT,
  membership: maybe(GRANT),
  vouch: maybe(VOUCH),
});
const SIGNAL = record({
  kind: word(SIGNAL_KINDS),
  connection: bytes(NONCE_BYTES),
  sender: id,
  receiver: id,
  senderNonce: bytes(NONCE_BYTES),
  receiverNonce: bytes(NONCE_BYTES),
  text: text(MAX_SDP_CHARS, 0, true),
  signature: bytes(SIGNATURE_BYTES),
});
const ICE_SERVER = record({
  urls: list(text(200, 1), 8),
  username: text(MAX_TEXT_CHARS),
  credential: text(MAX_TEXT_CHARS),
});

export const CLIENT: Readonly<Record<ClientMessage['kind'], Read>> = {
  join: record({
  protocol: int(2 ** 31),
  mesh: id,
  invite: bytes(ED25519_BYTES),
  key: bytes(ED25519_BYTES, P256_BYTES),
  name: text(MAX_NAME_CHARS, 1),
  roomNonce: bytes(NONCE_BYTES),
  joinNonce: bytes(NONCE_BYTES),
  inviteProof: bytes(SIGNATURE_BYTES),
  peerProof: bytes(SIGNATURE_BYTES),
  grant: maybe(GRANT),
  membership: maybe(GRANT),
  vouch: maybe(VOUCH),
}),
  register: record({
  request: int(MAX_REQUEST),
  grants: list(GRANT, MAX_BATCH),
  revocations: list(REVOCATION, MAX_BATCH),
}),
  admit: record({
  membership: GRANT,
}),
  leave: record({}),
  relay: record({
  signal: SIGNAL,
}),
};

export const SERVER: Readonly<Record<ServerMessage['kind'], Read>> = {
  challenge: record({
  protocol: int(2 ** 31),
  roomNonce: bytes(NONCE_BYTES),
}),
  welcome: record({
  you: PRESENCE,
  members: list(PRESENCE, MAX_MEMBERS),
  revocations: list(REVOCATION, MAX_GRANTS),
  iceServers: list(ICE_SERVER, MAX_ICE_SERVERS),
}),
  joined: record({
  member: PRESENCE,
}),
  left: record({
  peer: id,
  reason: text(MAX_TEXT_CHARS),
}),
  registered: record({
  request: int(MAX_REQUEST),
  code: text(40),
  text: text(MAX_TEXT_CHARS),
}),
  revoked: record({
  revocation: REVOCATION,
}),
  refused: record({
  code: text(40, 1),
  text: text(MAX_TEXT_CHARS),
  ends: flag,
}),
  ice: record({
  iceServers: list(ICE_SERVER, MAX_ICE_SERVERS),
}),
  relay: record({
  signal: SIGNAL,
}),
  admitted: record({
  membership: GRANT,
}),
};
