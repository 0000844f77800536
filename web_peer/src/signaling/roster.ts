/*
 * Decides what a member believes about the others: who is here, and which offers and answers are real (twin of
 * signaling/roster.py). The server is not trusted; the memory outlives sockets.
 */

import { Admissions, type Grant, originOf, type Revocation, verifyGrant } from './invites';
import { type Base64, keyId, type PublicKey } from './keys';
import { personKey, type Presence, type Side, type Signal, verifyPresence, verifySignal } from './presence';
import { signalingError } from './errors';

const MAX_NONCES = 20_000; // past joins remembered, all peers together
const MAX_CONNECTIONS = 20_000; // connection ids remembered
const MAX_CANDIDATES = 256; // per connection and direction; real ones have about ten

interface Known {
  readonly presence: Presence;
  readonly key: PublicKey;
}

/** The verified members of one mesh, as seen by the peer `own`. */
export class Roster {
  readonly admissions: Admissions;
  private readonly present = new Map<string, Known>();
  private readonly nonces = new Map<Base64, string>(); // join nonce -> peer that used it
  private readonly signals = new Map<string, number>();
  private readonly offers = new Map<string, true>();
  private readonly mesh: string;
  private readonly own: string;

  constructor(mesh: string, own: string) {
    this.mesh = mesh;
    this.own = own;
    this.admissions = new Admissions(mesh);
  }

  /** The others who are here, by peer id. */
  members(): ReadonlyMap<string, Presence> {
    return new Map([...this.present].map(([peer, known]) => [peer, known.presence]));
  }

  /** A member that is here; UnknownPeer otherwise. */
  find(peer: string): Side {
    const known = this.present.get(peer);
    if (known === undefined) {
      throw signalingError('UnknownPeer', `peer ${peer} is not in the room at the moment`);
    }
    return { peer, joinNonce: known.presence.joinNonce };
  }

  /** Takes a member that the server shows, after checking it. False: here with the same proof. */
  async arrived(presence: Presence, nowUnix: number): Promise<boolean> {
    const peer = await keyId(presence.key);
    if (peer === this.own) {
      throw signalingError(
        'ForgedPresence',
        'the server shows this peer’s own key as somebody else: refused',
      );
    }
    const here = this.present.get(peer)?.presence;
    if (here !== undefined && JSON.stringify(here) === JSON.stringify(presence)) return false;
    const person = await keyId(personKey(presence));
    const admitted = this.admissions.wasAdmitted(presence.grant, person);
    const key = await verifyPresence(presence, this.mesh, nowUnix, admitted);
    if (this.nonces.has(presence.joinNonce) && here?.joinNonce !== presence.joinNonce) {
      throw signalingError(
        'ReplayedJoin',
        `the join of peer ${peer} was seen before: the server plays back an old one, refused`,
      );
    }
    this.admissions.check(presence.grant, person, nowUnix, presence.membership);
    this.admissions.admit(presence.grant, person);
    remember(this.nonces, presence.joinNonce, peer, MAX_NONCES);
    this.present.set(peer, { presence, key });
    return true;
  }

  /** The server says that a member is gone. */
  left(peer: string): boolean {
    return this.present.delete(peer);
  }

  /** The founder made a person a lasting member; false when it is for somebody not here. */
  async admitted(membership: Grant): Promise<boolean> {
    await verifyGrant(membership, this.mesh);
    const theirs = [...this.present].filter(([, { presence }]) => personKey(presence) === membership.key);
    const fitting = theirs.filter(([, { presence }]) => presence.grant.key === membership.via);
    if (theirs.length > 0 && fitting.length === 0) {
      throw signalingError('ForgedGrant', 'a membership carries the invite that its peer came with');
    }
    for (const [peer, { presence, key }] of fitting) {
      this.present.set(peer, { presence: { ...presence, membership }, key });
    }
    return fitting.length > 0;
  }

  /** The founder withdrew an invite: returns the members that came with it and are out now. */
  async revoked(revocation: Revocation): Promise<string[]> {
    await this.admissions.revoke(revocation);
    const gone = [...this.present]
      .filter(([, known]) => known.presence.grant.key === revocation.key)
      .map(([peer]) => peer);
    for (const peer of gone) this.present.delete(peer);
    return gone;
  }

  /** This side sent an offer, so one answer may come. */
  offered(peer: string, connection: Base64): void {
    remember(this.offers, `${peer} ${connection}`, true, MAX_CONNECTIONS);
  }

  /** Checks an offer, answer or candidate that the server delivered; raises an error of identity. */
  async accept(signal: Signal, own: Side): Promise<void> {
    const known = this.present.get(signal.sender);
    if (known === undefined) {
      throw signalingError(
        'UnknownPeer',
        `the ${signal.kind} is from ${signal.sender}, who is not a verified member here: refused`,
      );
    }
    if (this.admissions.revocations.has(originOf(known.presence.grant))) {
      throw signalingError(
        'InviteRevoked',
        `peer ${signal.sender} came with an invite that was withdrawn: refused`,
      );
    }
    const sender = { peer: signal.sender, joinNonce: known.presence.joinNonce };
    await verifySignal(signal, this.mesh, sender, own, known.key);
    const seenKey = `${signal.sender} ${signal.kind} ${signal.connection}`;
    const seen = this.signals.get(seenKey) ?? 0;
    if (seen >= (signal.kind === 'candidate' ? MAX_CANDIDATES : 1)) {
      throw signalingError(
        'ReplayedDescription',
        `the ${signal.kind} from peer ${signal.sender} came before: refused`,
      );
    }
    if (signal.kind === 'answer' && !this.offers.has(`${signal.sender} ${signal.connection}`)) {
      throw signalingError(
        'UnexpectedAnswer',
        `peer ${signal.sender} answers an offer that was never made: refused`,
      );
    }
    remember(this.signals, seenKey, seen + 1, MAX_CONNECTIONS);
  }
}

function remember<K, V>(memory: Map<K, V>, key: K, value: V, most: number): void {
  memory.delete(key);
  memory.set(key, value);
  const [oldest] = memory.keys();
  if (memory.size > most && oldest !== undefined) memory.delete(oldest);
}
