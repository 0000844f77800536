/*
 * Decides who may come in: invite links, grants, memberships, revocations, and how often each was used (twin of
 * signaling/invites.py; the founder's part, making grants, is Python's alone).
 */

import {
  type Base64,
  fromText,
  type Identity,
  identityFromSeed,
  isId,
  keyId,
  publicKey,
  SEED_BYTES,
  sha256,
  toText,
  transcript,
} from './keys';
import { type SignalingError, signalingError } from './errors';

const CHECK_BYTES = 4;
const SECRET_CHARS = ((SEED_BYTES + CHECK_BYTES) * 4) / 3;
export const MAX_GRANTS = 1024;
const MAX_ADMITTED = 4096;
export const MAX_USES = 1_000_000;
export const MAX_UNIX = 253_402_300_799;

/** What a member may do: hold the mesh key; lend and ask; ask only. */
export type Role = 'founder' | 'peer' | 'guest';
export const ROLES: readonly Role[] = ['founder', 'peer', 'guest'];

/** What the mesh key allows `key`: an invite (`via` empty), or a membership that came `via` an invite. */
export interface Grant {
  readonly meshKey: Base64;
  readonly key: Base64;
  readonly role: Role;
  readonly expiresUnix: number; // 0: never
  readonly uses: number; // distinct peer keys; 0: unlimited
  readonly via: Base64;
  readonly signature: Base64;
}

/** The mesh key withdraws the invite `key`. */
export interface Revocation {
  readonly meshKey: Base64;
  readonly key: Base64;
  readonly signature: Base64;
}

/** A decoded link: where to meet, which mesh, and the secret that lets one in. */
export interface InviteLink {
  readonly server: string;
  readonly mesh: string;
  readonly seed: Uint8Array<ArrayBuffer>;
}

/** The key pair of the invite, made from the secret of the link. */
export function inviteOf(link: InviteLink): Promise<Identity> {
  return identityFromSeed(link.seed);
}

/** The link itself. It is a secret: show it to the person who asked for it. */
export async function linkUrl(link: InviteLink): Promise<string> {
  const check = await checkOf(link.mesh, link.seed);
  const secret = new Uint8Array([...link.seed, ...check]);
  return `${link.server}/#${link.mesh}.${toText(secret)}`;
}

async function checkOf(mesh: string, seed: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  return (await sha256(transcript('link', mesh, seed))).subarray(0, CHECK_BYTES);
}

/** The invite key that a grant stands or falls with. */
export function originOf(grant: Grant): Base64 {
  return grant.via === '' ? grant.key : grant.via;
}

/** WrongMesh or ForgedGrant unless the key behind the id `mesh` signed this. */
export async function verifyGrant(grant: Grant, mesh: string): Promise<void> {
  const named = await keyId(grant.meshKey);
  if (named !== mesh) {
    throw signalingError(
      'WrongMesh',
      `the grant is for mesh ${named}, the link names mesh ${mesh}: ask for a new link`,
    );
  }
  const signed = transcript(
    'grant',
    fromText(grant.meshKey),
    fromText(grant.key),
    grant.role,
    grant.expiresUnix,
    grant.uses,
    fromText(grant.via),
  );
  if (!(await (await publicKey(grant.meshKey)).verifies(grant.signature, signed))) {
    throw signalingError(
      'ForgedGrant',
      `the grant does not carry the signature of mesh ${mesh}: somebody made it up`,
    );
  }
  if ((grant.role === 'founder') !== (grant.key === grant.meshKey)) {
    throw signalingError('ForgedGrant', 'the role founder belongs to the mesh key and to no other key');
  }
}

/** WrongMesh or ForgedRevocation unless the key behind the id `mesh` signed this. */
export async function verifyRevocation(revocation: Revocation, mesh: string): Promise<void> {
  const named = await keyId(revocation.meshKey);
  if (named !== mesh) {
    throw signalingError('WrongMesh', `the revocation is for mesh ${named}, not for mesh ${mesh}`);
  }
  const signed = transcript('revocation', fromText(revocation.meshKey), fromText(revocation.key));
  if (!(await (await publicKey(revocation.meshKey)).verifies(revocation.signature, signed))) {
    throw signalingError(
      'ForgedRevocation',
      `the revocation does not carry the signature of mesh ${mesh}: somebody made it up`,
    );
  }
}

/** Revocations and uses of one mesh, as a member keeps them for itself. */
export class Admissions {
  readonly revocations = new Map<Base64, Revocation>(); // by invite key
  private readonly admitted = new Map<Base64, Set<string>>(); // invite key -> peer ids, oldest first
  private readonly mesh: string;

  constructor(mesh: string) {
    this.mesh = mesh;
  }

  /** Withdraws an invite for good; false when that was known already. */
  async revoke(revocation: Revocation): Promise<boolean> {
    await verifyRevocation(revocation, this.mesh);
    if (this.revocations.has(revocation.key)) return false;
    if (this.revocations.size >= MAX_GRANTS) {
      throw signalingError('TooManyGrants', `a mesh keeps at most ${MAX_GRANTS} revocations`);
    }
    this.revocations.set(revocation.key, revocation);
    return true;
  }

  wasAdmitted(grant: Grant, peer: string): boolean {
    return this.admitted.get(grant.key)?.has(peer) ?? false;
  }

  /** Whether `peer` may come in with this verified grant now; raises the reason why not. */
  check(grant: Grant, peer: string, nowUnix: number, membership: Grant | null): void {
    if (this.revocations.has(originOf(grant))) {
      throw signalingError('InviteRevoked', 'this invite was withdrawn by the founder: ask for a new link');
    }
    const admitted = this.admitted.get(grant.key);
    if (membership !== null || admitted?.has(peer) === true) return;
    if (grant.expiresUnix !== 0 && nowUnix > grant.expiresUnix) {
      throw signalingError('InviteExpired', 'this invite has expired: ask for a new link');
    }
    if (grant.uses !== 0 && (admitted?.size ?? 0) >= grant.uses) {
      throw signalingError(
        'InviteUsedUp',
        `this invite was for ${grant.uses} peer(s), who have all come: ask for a new link`,
      );
    }
  }

  /** Counts `peer` as a user of this invite. */
  admit(grant: Grant, peer: string): void {
    const admitted = this.admitted.get(grant.key) ?? new Set<string>();
    this.admitted.set(grant.key, admitted);
    if (admitted.has(peer)) return;
    const [oldest] = admitted;
    if (admitted.size >= MAX_ADMITTED && oldest !== undefined) admitted.delete(oldest);
    admitted.add(peer);
  }
}

/** Decodes a link that a person gave or opened; WrongLink says what is wrong with it. */
export async function parseLink(link: string): Promise<InviteLink> {
  const text = link.trim();
  const mark = text.indexOf('#');
  const server = originOfAddress(mark < 0 ? text : text.slice(0, mark));
  const fragment = mark < 0 ? '' : text.slice(mark + 1);
  if (fragment === '') {
    throw wrong(
      'the link ends before its secret part: it looks like https://host/#<mesh>.<invite>, copy all of it',
    );
  }
  const dot = fragment.indexOf('.');
  if (dot < 0) {
    throw wrong('the part behind # has the form <mesh>.<invite>, this one has no dot: copy the whole link');
  }
  const mesh = fragment.slice(0, dot);
  const secret = fragment.slice(dot + 1);
  if (!isId(mesh)) {
    throw wrong(
      `the mesh id behind # has 32 characters a-z and 2-7, this one has ${mesh.length}: copy it again`,
    );
  }
  if (secret.length !== SECRET_CHARS) {
    throw wrong(
      `the invite at the end of the link has ${SECRET_CHARS} characters, this one has ${secret.length}: copy it again`,
    );
  }
  let raw: Uint8Array<ArrayBuffer>;
  try {
    raw = fromText(secret);
  } catch {
    throw wrong('the invite at the end of the link has a character it cannot have: copy it again');
  }
  const seed = raw.slice(0, SEED_BYTES);
  const check = await checkOf(mesh, seed);
  if (raw.subarray(SEED_BYTES).some((byte, index) => byte !== check[index])) {
    throw wrong('the link is mistyped (its checksum does not fit): copy it again');
  }
  return { server, mesh, seed };
}

function originOfAddress(address: string): string {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    throw wrong('the link’s host or port cannot be read: copy it again');
  }
  if ((url.protocol !== 'http:' && url.protocol !== 'https:') || url.username !== '' || url.password !== '') {
    throw wrong('a link starts with https://host/ (or http:// on this machine or a private network)');
  }
  if (url.pathname !== '/' || url.search !== '') {
    throw wrong('a link has nothing between the host and /#');
  }
  return url.origin;
}

function wrong(text: string): SignalingError {
  return signalingError('WrongLink', text);
}
