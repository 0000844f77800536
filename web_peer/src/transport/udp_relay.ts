/*
 * Two peers that cannot connect meet by a third one, which hands their datagrams on and cannot read them (twin of
 * peer/transport/udp_relay.py, without the part that hands on: a tab has no sockets). Edge.
 */

import { BadCommand, PeerError } from '../errors';
import { RELAY, type RelayAnswer } from '../wire/generated/requests';
import type { RequestKind } from '../wire/request_kind';

const ASK_WITHIN_S = 3;
const PRIORITY = 65_535; // below every other kind of candidate
const ADDRESS = /^[0-9a-fA-F:.]{2,45}$/;

/** Candidate lines (`candidate:...`) that lead through a third peer: for the other side, and for this one. */
export interface Way {
  readonly theirs: readonly string[];
  readonly mine: readonly string[];
}

/** The description of one medium, with these candidates behind its own. */
export function withCandidates(sdp: string, candidates: readonly string[]): string {
  const lines = sdp.split(/\r?\n/).filter((line) => line !== '');
  const kept = lines.filter((line) => line !== 'a=end-of-candidates');
  const added = candidates.map((candidate) => `a=${candidate}`);
  const ending = lines.filter((line) => line === 'a=end-of-candidates');
  return `${[...kept, ...added, ...ending].join('\r\n')}\r\n`;
}

/** Who may know a way, and how they are asked. */
interface Near {
  connectedPeers(): readonly string[];
  call<T, A>(peer: string, kind: RequestKind<T, A>, said: T, timeoutS: number): Promise<A>;
}

/** Finds a way to a peer that is not reached: asks those who are connected, first who `stays`. */
export function wayAsked(
  links: Near,
  stays: (peer: string) => boolean,
): (peer: string) => Promise<Way | null> {
  return async (peer) => {
    const near = links.connectedPeers().filter((other) => other !== peer);
    for (const other of [...near].sort((a, b) => Number(stays(b)) - Number(stays(a)))) {
      try {
        return wayOf(await links.call(other, RELAY, { peer }, ASK_WITHIN_S));
      } catch (error) {
        if (!(error instanceof PeerError)) throw error; // it cannot, or is gone: another one may
      }
    }
    return null;
  };
}

/** The way that a third peer answered with. Raises BadCommand. */
export function wayOf({ hosts: addresses, mine, theirs }: RelayAnswer): Way {
  if (addresses.length === 0 || !addresses.every((host) => ADDRESS.test(host)) || mine * theirs === 0) {
    throw new BadCommand('relay: expected an address and two ports');
  }
  const lines = (port: number): readonly string[] =>
    addresses.map((host, at) => `candidate:third${at} 1 udp ${PRIORITY - at * 256} ${host} ${port} typ host`);
  return { theirs: lines(theirs), mine: lines(mine) };
}
