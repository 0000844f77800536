/* Keys, links, transcripts and messages against the vectors that Python wrote; forgeries refused by name. */

import { describe, expect, it } from 'vitest';

import { fromHex, toHex } from '../../src/wire/hex';
import { inviteOf, linkUrl, parseLink } from '../../src/signaling/invites';
import {
  fromText,
  identityFromSeed,
  identityOf,
  newKeyPair,
  type Part,
  publicKey,
  toText,
  transcript,
} from '../../src/signaling/keys';
import { decodeClient, decodeServer, encode } from '../../src/signaling/messages';
import type { Welcome } from '../../src/signaling/generated/messages';
import {
  fingerprintOf,
  joinTranscript,
  makeSignal,
  makeVouch,
  personKey,
  verifyPresence,
  vouchTranscript,
} from '../../src/signaling/presence';
import { Roster } from '../../src/signaling/roster';
import { SignalingError } from '../../src/signaling/errors';
import { parseStrict } from '../../src/wire/json_codec';
import { vectors } from '../vectors';

interface Vectors {
  readonly keys: readonly { name: string; seed: string; public: string; id: string }[];
  readonly p256: { public: string; id: string; message: string; signature: string };
  readonly transcript: { parts: readonly (string | number)[]; bytes: string };
  readonly join_transcript: string;
  readonly vouch_transcript: string;
  readonly link: { server: string; mesh: string; seed: string; url: string };
  readonly client: readonly string[];
  readonly server: readonly string[];
  readonly reject: readonly { side: 'client' | 'server'; text: string; error: string }[];
}

const VECTORS = vectors('signaling') as Vectors;

function bytes(hex: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(fromHex(hex));
}

async function codeOf(step: () => unknown): Promise<string> {
  try {
    await step();
  } catch (error) {
    return error instanceof SignalingError ? error.code : String(error);
  }
  return 'nothing raised';
}

function welcome(): Welcome {
  const found = VECTORS.server.map(decodeServer).find((message) => message.kind === 'welcome');
  if (found === undefined) throw new Error('the vectors hold a welcome');
  return found;
}

describe('keys', () => {
  it.each(VECTORS.keys)('$name: public key and id of a seed', async ({ seed, public: encoded, id }) => {
    const identity = await identityFromSeed(bytes(seed));
    expect(toHex(fromText(identity.encoded))).toBe(encoded);
    expect(identity.id).toBe(id);
    const signature = await identity.sign(bytes('00ff'));
    const key = await publicKey(identity.encoded);
    expect(await key.verifies(signature, bytes('00ff'))).toBe(true);
    expect(await key.verifies(signature, bytes('00fe'))).toBe(false);
  });

  it('takes a P-256 signature', async () => {
    const { public: encoded, id, message, signature } = VECTORS.p256;
    const key = await publicKey(toText(bytes(encoded)));
    expect(key.id).toBe(id);
    expect(await key.verifies(toText(bytes(signature)), bytes(message))).toBe(true);
    expect(await key.verifies(toText(bytes(signature)), bytes(`${message}00`))).toBe(false);
  });

  it('makes keys that cannot be read out', async () => {
    const pair = await newKeyPair();
    expect(pair.privateKey.extractable).toBe(false);
    const identity = await identityOf(pair);
    const key = await publicKey(pair.encoded);
    expect(await key.verifies(await identity.sign(bytes('01')), bytes('01'))).toBe(true);
  });

  it.each(['', '01', '02'.padEnd(132, '0'), '03'.padEnd(66, '0')])('refuses the key %s', async (hex) => {
    expect(await codeOf(() => publicKey(toText(bytes(hex))))).toBe('BadKey');
  });

  it('writes transcripts', () => {
    const parts = VECTORS.transcript.parts.map((part): Part =>
      typeof part === 'string' && part.startsWith('hex:') ? bytes(part.slice(4)) : part,
    );
    expect(toHex(transcript('text', ...parts.slice(1)))).toBe(VECTORS.transcript.bytes);
  });

  it.each(['A', 'AB==', 'AA+A', 'AB'])('refuses base64url %s', (text) => {
    expect(() => fromText(text)).toThrow(RangeError);
  });
});

describe('links', () => {
  it('reads and writes the vector', async () => {
    const { server, mesh, seed, url } = VECTORS.link;
    const link = await parseLink(` ${url}\n`);
    expect({ ...link, seed: toHex(link.seed) }).toEqual({ server, mesh, seed });
    expect(await linkUrl(link)).toBe(url);
    expect((await inviteOf(link)).id).toBe(VECTORS.keys[1]?.id);
  });

  it.each(['', 'x', '#', '/a#'])('refuses a link with %j in the middle', async (middle) => {
    const { url } = VECTORS.link;
    expect(await codeOf(() => parseLink(`${url.slice(0, 70)}${middle}${url.slice(71)}`))).toBe('WrongLink');
  });
});

describe('messages', () => {
  it.each(VECTORS.client)('client %#', (text) => {
    expect(JSON.parse(encode(decodeClient(text)))).toEqual(JSON.parse(text));
  });

  it.each(VECTORS.server)('server %#', (text) => {
    expect(JSON.parse(encode(decodeServer(text)))).toEqual(JSON.parse(text));
  });

  it.each(VECTORS.reject)('refuses $side %#: $error', async ({ side, text, error }) => {
    expect(await codeOf(() => (side === 'client' ? decodeClient(text) : decodeServer(text)))).toBe(error);
  });

  it.each(['[1,]', '{"a":1,}', '01', '1.0', '1e3', '"\u0001"', '[1] 2', '{"__proto__":1,"__proto__":2}', ''])(
    'refuses JSON %j',
    (text) => {
      expect(() => parseStrict(text)).toThrow(SyntaxError);
    },
  );

  it('reads JSON as JSON.parse does', () => {
    const text = ' {"a":[1,-2,true,null,"\\u00e9\\n\u{1f600}"],"b":{}} ';
    expect(parseStrict(text)).toEqual(JSON.parse(text));
  });
});

describe('members', () => {
  it('are who they say', async () => {
    const { you } = welcome();
    const mesh = VECTORS.keys[0]?.id ?? '';
    const signed = joinTranscript(mesh, you.grant.key, you.key, you.name, {
      room: you.roomNonce,
      join: you.joinNonce,
    });
    expect(toHex(signed)).toBe(VECTORS.join_transcript);
    await verifyPresence(you, mesh, 0);
    expect(await codeOf(() => verifyPresence({ ...you, name: 'Mallory' }, mesh, 0))).toBe('ForgedPresence');
    expect(await codeOf(() => verifyPresence({ ...you, grant: { ...you.grant, uses: 99 } }, mesh, 0))).toBe(
      'ForgedGrant',
    );
    expect(await codeOf(() => verifyPresence(you, 'a'.repeat(32), 0))).toBe('WrongMesh');
  });

  it('are one person where one key vouches for another', async () => {
    const mesh = VECTORS.keys[0]?.id ?? '';
    const viewer = VECTORS.server
      .map(decodeServer)
      .flatMap((message) => (message.kind === 'joined' ? [message.member] : []))
      .find(({ vouch }) => vouch !== null);
    if (viewer === undefined || viewer.vouch === null) throw new Error('the vectors hold a viewer');
    const { vouch } = viewer;
    const joined = joinTranscript(mesh, viewer.grant.key, viewer.key, viewer.name, {
      room: viewer.roomNonce,
      join: viewer.joinNonce,
    });
    expect(toHex(vouchTranscript(vouch.key, joined))).toBe(VECTORS.vouch_transcript);
    await verifyPresence(viewer, mesh, 0);
    const { you } = welcome();
    expect(personKey(viewer)).toBe(you.key);
    const peer = await identityFromSeed(bytes(VECTORS.keys[2]?.seed ?? ''));
    expect(await makeVouch(peer, joined)).toEqual(vouch);
    const forged = [
      { ...viewer, vouch: { key: you.key, proof: you.peerProof } },
      { ...viewer, vouch: { key: viewer.key, proof: vouch.proof } },
      { ...viewer, vouch: { ...vouch, key: you.grant.key } },
      { ...you, vouch },
    ];
    for (const each of forged) {
      const strict = { ...each, membership: null };
      expect(await codeOf(() => verifyPresence(strict, mesh, 0))).toBe('ForgedPresence');
    }
    expect(await codeOf(() => verifyPresence({ ...viewer, vouch: null }, mesh, 0))).toBe('ForgedGrant');

    const roster = new Roster(mesh, 'a'.repeat(32));
    await roster.arrived(viewer, 0);
    await roster.arrived(you, 0);
    expect(roster.members().size).toBe(2);
    expect(roster.admissions.wasAdmitted(you.grant, peer.id)).toBe(true);
    expect(roster.admissions.wasAdmitted(you.grant, VECTORS.p256.id)).toBe(false);
    if (you.membership === null) throw new Error('the vectors hold a membership');
    expect(await roster.admitted(you.membership)).toBe(true);
  });

  it('cannot be passed off, replayed or swapped', async () => {
    const { you } = welcome();
    const mesh = VECTORS.keys[0]?.id ?? '';
    const peer = await identityFromSeed(bytes(VECTORS.keys[2]?.seed ?? ''));
    const me = { peer: VECTORS.p256.id, joinNonce: toText(new Uint8Array(16).fill(9)) };
    const roster = new Roster(mesh, me.peer);
    expect(await roster.arrived(you, 0)).toBe(true);
    expect(await roster.arrived(you, 0)).toBe(false);
    expect(roster.left(peer.id)).toBe(true);
    expect(await codeOf(() => roster.arrived(you, 0))).toBe('ReplayedJoin');

    const here = new Roster(mesh, me.peer);
    await here.arrived(you, 0);
    const side = { peer: peer.id, joinNonce: you.joinNonce };
    const sdp = `v=0\r\na=fingerprint:sha-256 ${Array(32).fill('AB').join(':')}\r\n`;
    const said = { connection: toText(new Uint8Array(16)), text: sdp };
    const offer = await makeSignal(peer, mesh, side, me, { kind: 'offer', ...said });
    await here.accept(offer, me);
    expect(await codeOf(() => here.accept(offer, me))).toBe('ReplayedDescription');
    const swapped = { ...offer, text: sdp.replaceAll('AB', 'AC') };
    expect(await codeOf(() => here.accept(swapped, me))).toBe('SwappedDescription');
    expect(await codeOf(() => here.accept(offer, { ...me, joinNonce: you.joinNonce }))).toBe(
      'ReplayedDescription',
    );
    const answer = await makeSignal(peer, mesh, side, me, { kind: 'answer', ...said });
    expect(await codeOf(() => here.accept(answer, me))).toBe('UnexpectedAnswer');
    here.offered(peer.id, said.connection);
    await here.accept(answer, me);
    const stranger = { ...offer, sender: 'b'.repeat(32) };
    expect(await codeOf(() => here.accept(stranger, me))).toBe('UnknownPeer');
  });

  it('say one fingerprint', async () => {
    const line = (byte: string): string => `a=fingerprint:sha-256 ${Array(32).fill(byte).join(':')}\r\n`;
    expect(fingerprintOf(line('ab'))).toBe(Array(32).fill('AB').join(':'));
    for (const sdp of ['', line('ab') + line('cd'), line('xy')]) {
      expect(await codeOf(() => fingerprintOf(sdp))).toBe('BadDescription');
    }
  });
});
