/* What people read where the mesh says peer ids: names, told apart where two are alike. Pure. */

import type { Member } from './generated/commands';

export const SHORT_CHARS = 4; // of a peer id, behind a name that two members have
export const MAX_NAME_CHARS = 64; // of a member
export const NAMELESS = 'no name';
export const GONE = 'somebody who left';

const PEER_ID = /\b[a-z2-7]{32}\b/g;
const APART = / \([a-z2-7]{4,}\)$/;
// Control characters, line separators, what turns the direction of writing, and halves of characters.
const UNSHOWN = /[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|\p{Surrogate}/gu;

/** `text` of another peer: nothing in it hides, or turns the direction of writing. */
export const plain = (text: string): string => text.replace(UNSHOWN, '\ufffd');

/** Why no member may be called `name`, when it joins or later; "" when it may. */
export function nameFault(name: string): string {
  const { length } = [...name];
  if (length < 1 || length > MAX_NAME_CHARS) {
    return `expected a name of 1 to ${MAX_NAME_CHARS} characters, got ${length}`;
  }
  return plain(name) === name ? '' : 'expected a name without control characters';
}

/** The name of every member, by peer id; no two are alike. Who only asks changes no name of who computes. */
export function names(members: Iterable<Member>): ReadonlyMap<string, string> {
  const all = [...members];
  const computing = new Set(all.filter(({ compute }) => compute).map(({ peer }) => peer));
  return toldApart(new Map(all.map(({ peer, name }) => [peer, name])), computing);
}

/**
 * Names by peer id, of which no two are alike: those that are have a part of the id behind them, and so has a name that
 * ends as if it had one. Peers of `first` are told apart from each other alone.
 */
export function toldApart(
  called: ReadonlyMap<string, string>,
  first: ReadonlySet<string> = new Set(),
): ReadonlyMap<string, string> {
  const groups = new Map<string, string[]>();
  for (const [peer, name] of called) {
    const group = groups.get(alike(name));
    if (group === undefined) groups.set(alike(name), [peer]);
    else group.push(peer);
  }
  const found = new Map<string, string>();
  for (const [peer, name] of called) {
    const group = groups.get(alike(name)) ?? [];
    const rivals = first.has(peer) ? group.filter((each) => first.has(each)) : group;
    const bare = trimmed(plain(name));
    const shown = bare === '' ? NAMELESS : bare;
    const apart = rivals.length > 1 || bare === '' || APART.test(shown);
    found.set(peer, apart ? `${shown} (${short(peer, group)})` : shown);
  }
  return found;
}

/** What people read for `peer`; `called` is of `names`, or of `toldApart`. */
export const nameOf = (peer: string, called: ReadonlyMap<string, string>): string =>
  called.get(peer) ?? `${GONE} (${peer.slice(0, SHORT_CHARS)})`;

/** `text`, fit to be shown, with names for the ids of members. */
export const named = (text: string, called: ReadonlyMap<string, string>): string =>
  plain(text).replace(PEER_ID, (id) => nameOf(id, called));

const trimmed = (text: string): string => text.replaceAll(/^ +| +$/g, '');

/** What is the same for names that people take for the same. */
const alike = (name: string): string =>
  trimmed(plain(name).normalize('NFKC').toLowerCase().replaceAll(/ +/g, ' '));

/** The beginning of an id, as long as it takes to tell it from the others of `group`. */
function short(peer: string, group: readonly string[]): string {
  let count = SHORT_CHARS;
  const twin = (): boolean => group.some((other) => other !== peer && other.startsWith(peer.slice(0, count)));
  while (count < peer.length && twin()) count += 1;
  return peer.slice(0, count);
}
