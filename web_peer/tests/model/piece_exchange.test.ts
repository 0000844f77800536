/* Pieces of weights between two peers: ranges, refusals, wrong bytes found out, floods refused. */

import { createHash } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import type { Connection } from '../../src/transport/connection';
import { BadCommand } from '../../src/errors';
import type { Frame } from '../../src/wire/generated/frames';
import type { BlobRef } from '../../src/planner/blob_ref';
import { OPEN_LENT, Pieces } from '../../src/model/piece_exchange';

const BYTES = Uint8Array.from({ length: 700_000 }, (_, at) => (at * 7) % 251);
const HASH = createHash('sha256').update(BYTES).digest('hex');
const REF: BlobRef = { sha256: 'b'.repeat(64), bytes: BYTES.length, pieces: [HASH] };
const NOT_ALONE = (): boolean => false;
const FOREVER = new AbortController().signal;

/** Far faster than toEqual. */
function sameAs(came: Uint8Array): (bytes: Uint8Array) => boolean {
  return (bytes) => Buffer.from(came).equals(bytes);
}

/** Two ends; what one sends the other takes at once. */
function pair(kept: (hash: string) => Uint8Array | null): { readonly asker: Pieces; readonly giver: Pieces } {
  const to = (end: () => Pieces, from: string) => (_: string, frame: Frame) => {
    if (frame.kind === 'PIECE_REQUEST') end().requested(from, frame);
    else if (frame.kind === 'PIECE') end().came(from, frame);
  };
  const line = (send: (peer: string, frame: Frame) => void) => () =>
    ({ send: (frame: Frame) => send('', frame), drained: () => Promise.resolve() }) as unknown as Connection;
  const sendToGiver = to(() => giver, 'asker');
  const sendToAsker = to(() => asker, 'giver');
  const asker = new Pieces(sendToGiver, line(sendToGiver), () => Promise.resolve(null));
  const giver = new Pieces(sendToAsker, line(sendToAsker), (hash) => Promise.resolve(kept(hash)));
  return { asker, giver };
}

describe('what is lent', () => {
  it('goes to those whom it was lent to, once each, and then it is gone', async () => {
    const { asker, giver } = pair(() => null);
    const over: string[] = [];
    const end = giver.lend(HASH, BYTES, () => over.push('one'));
    giver.lend(HASH, BYTES, () => over.push('two'));
    expect(BYTES).toSatisfy(sameAs(await asker.fetch('giver', HASH, BYTES.length, FOREVER, OPEN_LENT)));
    expect(over).toEqual([]);
    expect(BYTES).toSatisfy(sameAs(await asker.fetch('giver', HASH, BYTES.length, FOREVER, OPEN_LENT)));
    expect(over).toEqual(['one', 'two']);
    await expect(asker.fetch('giver', HASH, BYTES.length, FOREVER)).rejects.toThrow('does not have');
    end();
    expect(over).toHaveLength(2);
  });

  it('is forgotten when nobody asks', async () => {
    const { asker, giver } = pair(() => null);
    const over: string[] = [];
    const endOne = giver.lend(HASH, BYTES, () => over.push('one'));
    const endTwo = giver.lend(HASH, BYTES, () => over.push('two'));
    endOne();
    expect(over).toEqual(['one']);
    expect(BYTES).toSatisfy(sameAs(await asker.fetch('giver', HASH, BYTES.length, FOREVER, OPEN_LENT)));
    endTwo();
    expect(over).toEqual(['one', 'two']);
    await expect(asker.fetch('giver', HASH, BYTES.length, FOREVER)).rejects.toThrow('does not have');
  });
});

describe('pieces', () => {
  it('come whole, in ranges', async () => {
    const { asker, giver } = pair((hash) => (hash === HASH ? BYTES : null));
    const source = asker.source('giver', () => true, NOT_ALONE);
    expect(BYTES).toSatisfy(sameAs(await source.piece(REF, 0, FOREVER)));
    expect(giver.givenBytes).toBe(BYTES.length);
  });

  it('that are not here are refused at once', async () => {
    const { asker } = pair(() => null);
    await expect(asker.source('giver', () => true, NOT_ALONE).piece(REF, 0, FOREVER)).rejects.toThrow(
      'does not have',
    );
    await expect(asker.source('giver', () => false, NOT_ALONE).piece(REF, 0, FOREVER)).rejects.toThrow(
      'does not hold',
    );
  });

  it('that are shorter than they should be are refused', async () => {
    const { asker } = pair(() => BYTES.subarray(0, 300_000));
    await expect(asker.source('giver', () => true, NOT_ALONE).piece(REF, 0, FOREVER)).rejects.toThrow(
      'bytes of',
    );
  });

  it('are asked of one peer one at a time', async () => {
    const { asker } = pair(() => BYTES);
    const source = asker.source('giver', () => true, NOT_ALONE);
    const first = source.piece(REF, 0, FOREVER);
    await expect(source.piece(REF, 0, FOREVER)).rejects.toThrow('another piece');
    await first;
    expect(BYTES).toSatisfy(sameAs(await source.piece(REF, 0, FOREVER)));
  });

  it('wait for one another when nobody else has them', async () => {
    const { asker } = pair(() => BYTES);
    const source = asker.source(
      'giver',
      () => true,
      () => true,
    );
    for (const came of await Promise.all([source.piece(REF, 0, FOREVER), source.piece(REF, 0, FOREVER)])) {
      expect(BYTES).toSatisfy(sameAs(came));
    }
  });

  it('fail when the peer goes, or the asker stops', async () => {
    const asker = new Pieces(
      () => undefined,
      () => null,
      () => Promise.resolve(null),
    );
    const going = asker.source('giver', () => true, NOT_ALONE).piece(REF, 0, FOREVER);
    asker.gone('giver');
    await expect(going).rejects.toThrow('gone');
    const stop = new AbortController();
    const stopped = asker.source('giver', () => true, NOT_ALONE).piece(REF, 0, stop.signal);
    stop.abort();
    await expect(stopped).rejects.toThrow('too long');
  });

  it('asked for in floods end the connection', () => {
    const giver = new Pieces(
      () => undefined,
      () => null,
      () => new Promise(() => undefined),
    );
    const frame = { kind: 'PIECE_REQUEST', id: 1, sha256: HASH, offset: 0, count: 1 } as const;
    for (let sent = 0; sent < 16; sent++) giver.requested('asker', frame);
    expect(() => giver.requested('asker', frame)).toThrow(BadCommand);
  });
});
