/*
 * Decides whether a member is who it says, and whether an offer, answer or candidate is its own (twin of
 * signaling/presence.py, docs/protocol.md).
 */

import { type Grant, verifyGrant } from './invites';
import {
  type Base64,
  fromText,
  type Identity,
  keyId,
  type PublicKey,
  publicKey,
  sha256,
  transcript,
  utf8,
} from './keys';
import { SignalingError, signalingError } from './errors';

export const NONCE_BYTES = 16;

/** The counted key of the person that a viewer belongs to, and its signature of this very join. */
export interface Vouch {
  readonly key: Base64;
  readonly proof: Base64;
}
const FINGERPRINT = /^a=fingerprint:\s*(\S+)\s+(\S+)\s*$/gim;
const SHA256_HEX = /^(?:[0-9A-F]{2}:){31}[0-9A-F]{2}$/;

/** A member as it proved itself; every other member checks it again. */
export interface Presence {
  readonly key: Base64;
  readonly name: string;
  readonly roomNonce: Base64;
  readonly joinNonce: Base64;
  readonly inviteProof: Base64;
  readonly peerProof: Base64;
  readonly grant: Grant;
  readonly membership: Grant | null;
  readonly vouch: Vouch | null;
}

/** The key by which places of an invite are counted, and which a membership is for. */
export function personKey({ key, vouch }: Pick<Presence, 'key' | 'vouch'>): Base64 {
  return vouch?.key ?? key;
}

/** The person's counted key vouches for the join whose transcript is `joined`. */
export async function makeVouch(voucher: Identity, joined: Uint8Array<ArrayBuffer>): Promise<Vouch> {
  const key = voucher.encoded;
  return { key, proof: await voucher.sign(vouchTranscript(key, joined)) };
}

/** What the counted key `key` signs for the join of another one. */
export function vouchTranscript(key: Base64, joined: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return transcript('vouch', fromText(key), joined);
}

export type SignalKind = 'offer' | 'answer' | 'candidate';
export const SIGNAL_KINDS: readonly SignalKind[] = ['offer', 'answer', 'candidate'];

/** An offer, an answer or one ICE candidate, on its way from member to member. */
export interface Signal {
  readonly kind: SignalKind;
  readonly connection: Base64; // 16 bytes, drawn by the side that offers
  readonly sender: string;
  readonly receiver: string;
  readonly senderNonce: Base64;
  readonly receiverNonce: Base64;
  readonly text: string;
  readonly signature: Base64;
}

/** What both proofs of a join sign. */
export function joinTranscript(
  mesh: string,
  inviteKey: Base64,
  key: Base64,
  name: string,
  nonces: { readonly room: Base64; readonly join: Base64 },
): Uint8Array<ArrayBuffer> {
  return transcript(
    'join',
    mesh,
    fromText(inviteKey),
    fromText(key),
    name,
    fromText(nonces.room),
    fromText(nonces.join),
  );
}

/** The peer's checked key, or the reason why this is no member of `mesh`. */
export async function verifyPresence(
  presence: Presence,
  mesh: string,
  nowUnix: number,
  admitted = false,
): Promise<PublicKey> {
  const { grant, membership } = presence;
  await verifyGrant(grant, mesh);
  if (grant.via !== '') {
    throw signalingError(
      'ForgedGrant',
      'a member comes in with an invite; a membership only lets it come back',
    );
  }
  if (membership !== null) {
    await verifyGrant(membership, mesh);
    const same = membership.key === personKey(presence) && membership.via === grant.key;
    if (!same || membership.role !== grant.role) {
      throw signalingError('ForgedGrant', 'the membership was signed for another peer, invite or role');
    }
  }
  const peer = await keyId(presence.key);
  const signed = joinTranscript(mesh, grant.key, presence.key, presence.name, {
    room: presence.roomNonce,
    join: presence.joinNonce,
  });
  let keys: readonly [PublicKey, PublicKey];
  try {
    keys = [await publicKey(grant.key), await publicKey(presence.key)];
  } catch (error) {
    if (error instanceof SignalingError && error.code === 'BadKey') {
      throw signalingError('ForgedPresence', `peer ${peer} shows a key that is none`);
    }
    throw error;
  }
  if (!(await keys[0].verifies(presence.inviteProof, signed))) {
    throw signalingError(
      'ForgedPresence',
      `peer ${peer} did not prove that it holds the invite link: refused`,
    );
  }
  if (!(await keys[1].verifies(presence.peerProof, signed))) {
    throw signalingError('ForgedPresence', `peer ${peer} did not prove that it holds its own key: refused`);
  }
  if (presence.vouch !== null) await verifyVouch(presence, peer, presence.vouch, signed);
  if (membership === null && !admitted && grant.expiresUnix !== 0 && nowUnix > grant.expiresUnix) {
    throw signalingError('InviteExpired', `the invite of peer ${peer} has expired: it needs a new link`);
  }
  return keys[1];
}

/** ForgedPresence unless the other key of `vouch` signed this very join. */
async function verifyVouch(
  { key, grant }: Presence,
  peer: string,
  vouch: Vouch,
  joined: Uint8Array<ArrayBuffer>,
): Promise<void> {
  if (grant.role === 'founder' || vouch.key === key) {
    throw signalingError(
      'ForgedPresence',
      `peer ${peer} comes by itself: nobody vouches for a founder or for their own key`,
    );
  }
  let voucher: PublicKey;
  try {
    voucher = await publicKey(vouch.key);
  } catch (error) {
    if (error instanceof SignalingError && error.code === 'BadKey') {
      throw signalingError('ForgedPresence', `the key that vouches for peer ${peer} is none`);
    }
    throw error;
  }
  if (!(await voucher.verifies(vouch.proof, vouchTranscript(vouch.key, joined)))) {
    throw signalingError(
      'ForgedPresence',
      `the key that vouches for peer ${peer} did not sign this join: refused`,
    );
  }
}

/** The SHA-256 DTLS fingerprint of an SDP as upper-case hex with colons; BadDescription unless it has just one. */
export function fingerprintOf(sdp: string): string {
  const found = new Set<string>();
  for (const [, kind, value] of sdp.matchAll(FINGERPRINT)) {
    if (kind?.toLowerCase() === 'sha-256' && value !== undefined) found.add(value.toUpperCase());
  }
  const [value] = found;
  if (value === undefined) {
    throw signalingError(
      'BadDescription',
      'the SDP has no a=fingerprint line by sha-256, so nothing ties it to its sender',
    );
  }
  if (found.size > 1) {
    throw signalingError(
      'BadDescription',
      `the SDP has ${found.size} different sha-256 fingerprints, one was expected`,
    );
  }
  if (!SHA256_HEX.test(value)) {
    throw signalingError(
      'BadDescription',
      'the sha-256 fingerprint of the SDP is not 32 hex bytes with colons',
    );
  }
  return value;
}

async function signalTranscript(
  signal: Omit<Signal, 'signature'>,
  mesh: string,
): Promise<Uint8Array<ArrayBuffer>> {
  return transcript(
    'signal',
    mesh,
    signal.kind,
    fromText(signal.connection),
    signal.sender,
    signal.receiver,
    fromText(signal.senderNonce),
    fromText(signal.receiverNonce),
    signal.kind === 'candidate' ? '' : fingerprintOf(signal.text),
    await sha256(utf8(signal.text)),
  );
}

/** A side of a signal: its id and the nonce of its present join. */
export interface Side {
  readonly peer: string;
  readonly joinNonce: Base64;
}

/** A signed offer, answer or candidate from `own` to `receiver`, two members of `mesh`. */
export async function makeSignal(
  identity: Identity,
  mesh: string,
  own: Side,
  receiver: Side,
  said: { readonly kind: SignalKind; readonly connection: Base64; readonly text: string },
): Promise<Signal> {
  const unsigned = {
    ...said,
    sender: own.peer,
    receiver: receiver.peer,
    senderNonce: own.joinNonce,
    receiverNonce: receiver.joinNonce,
  };
  return { ...unsigned, signature: await identity.sign(await signalTranscript(unsigned, mesh)) };
}

/** ReplayedDescription or SwappedDescription unless `sender` made this for this join of `receiver`. */
export async function verifySignal(
  signal: Signal,
  mesh: string,
  sender: Side,
  receiver: Side,
  senderKey: PublicKey,
): Promise<void> {
  if (signal.receiverNonce !== receiver.joinNonce || signal.senderNonce !== sender.joinNonce) {
    throw signalingError(
      'ReplayedDescription',
      `the ${signal.kind} from peer ${signal.sender} belongs to an earlier join: refused, a new one is needed`,
    );
  }
  if (
    signal.sender !== sender.peer ||
    signal.receiver !== receiver.peer ||
    !(await senderKey.verifies(signal.signature, await signalTranscript(signal, mesh)))
  ) {
    throw signalingError(
      'SwappedDescription',
      `the ${signal.kind} from peer ${signal.sender} was changed on the way (its signature does not fit): refused`,
    );
  }
}
