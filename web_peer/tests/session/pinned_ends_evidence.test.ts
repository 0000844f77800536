/* What judges are shown of an answer whose ends stay with the tab, and what a first stage says of its inputs. */

import { describe, expect, it } from 'vitest';

import { ActivationLog } from '../../src/session/activation_log';
import { BadCommand } from '../../src/errors';
import { base64, fromBase64 } from '../../src/session/evidence';
import type { Open } from '../../src/wire/generated/frames';
import { Returned, sentOf, ShownEnds } from '../../src/session/pinned_ends_evidence';
import { GREEDY } from '../../src/session/sampling';
import { Seat } from '../../src/session/seat';
import { tensorOf } from '../../src/wire/tensors';
import { type Court, digestOf, marksOf, testimony } from '../../src/audit/witness';

const SESSION = '07'.repeat(16);
const SENT = tensorOf(Float32Array.of(1, 2, 3), [3, 1]);
/** An embedding of one column, in which each token is its own row. */
const EMBEDS = { width: 1, embed: (ids: Int32Array) => tensorOf(Float32Array.from(ids), [ids.length, 1]) };

function bytes(...numbers: readonly number[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Float32Array.from(numbers).buffer);
}

describe('an asker that keeps its ends', () => {
  const returned = new Returned();
  returned.note(SESSION, 2, tensorOf(Float32Array.of(7), [1, 1]));
  const shown = new ShownEnds(sentOf(EMBEDS, [1, 2, 3]), returned.of(SESSION), 3);
  ['first', 'middle', 'last'].forEach((judge, stage) => shown.asked(judge, stage));

  it('shows each judge its own end', () => {
    expect(shown.shown('first', 'sent', 1, 3)).toEqual({ rows: base64(bytes(2, 3)) });
    expect(shown.shown('first', 'sent', 1, 4)).toEqual({ rows: null });
    expect(shown.shown('last', 'back', 2, 3)).toEqual({ rows: base64(bytes(7)) });
    expect(shown.shown('last', 'back', 1, 3)).toEqual({ rows: null });
  });

  it('shows no more than one answer carries', () => {
    const width = 96 * 1024; // two rows are as much as it may be
    let embedded = 0;
    const embed = ({ length }: Int32Array) => {
      embedded += length;
      return tensorOf(new Float32Array(length * width), [length, width]);
    };
    const ends = new ShownEnds(sentOf({ embed, width }, [1, 2, 3]), new ActivationLog(9), 1);
    ends.asked('judge', 0);
    expect(ends.shown('judge', 'sent', 0, 2)['rows']).toHaveLength(1024 * 1024);
    expect(ends.shown('judge', 'sent', 0, 3)).toEqual({ rows: null });
    expect(embedded).toBe(2); // what is shown, and only when it is asked for
  });

  it('writes rows as base64, however many', () => {
    for (const length of [0, 1, 8191, 8192, 20_001]) {
      const some = Uint8Array.from({ length }, (_, at) => at * 7);
      expect(base64(some)).toBe(Buffer.from(some).toString('base64'));
      expect(fromBase64(base64(some))).toEqual(some);
    }
    expect(fromBase64('no base64!')).toBeNull();
  });

  it.each([
    ['last', 'sent'],
    ['middle', 'sent'],
    ['first', 'back'],
    ['stranger', 'back'],
    ['first', 'tokens'],
  ])('shows %s no %s', (judge, side) => {
    expect(() => shown.shown(judge, side, 0, 1)).toThrow(BadCommand);
  });

  it('keeps the newest states only', () => {
    const many = new Returned();
    const row = tensorOf(new Float32Array(1 << 17), [1, 1 << 17]);
    for (let session = 0; session < 20; session += 1) many.note(`s${session}`, 0, row);
    expect(many.of('s3').bytes).toBe(0);
    expect(many.of('s19').bytes).toBe(1 << 19);
  });
});

describe('a first stage of such an answer', () => {
  const opening = { session: SESSION, stage: 0, origin: 'asker', route: ['me', 'x'], sampling: [], plan: 1 };
  const seat = new Seat(opening as unknown as Open, { first: 0, stop: 2 }, GREEDY, new ActivationLog(99), 0);
  seat.inputs.append(0, SENT);
  seat.submitted = 3;
  const held = [{ first: 0, stop: 2 }];
  const members = new Map(
    ['asker', 'holder', 'other'].map((peer) => [peer, { held: peer === 'holder' ? held : [] }]),
  );
  const plan = {
    version: 1,
    stages: [
      { first: 0, stop: 2 },
      { first: 2, stop: 4 },
    ],
  };
  const court = {
    view: { state: { members, plan, proposed: null } },
    stage: { core: { seatAt: () => seat } },
  } as unknown as Court;
  const asks = { session: SESSION, stage: 0, first: 0, stop: 3, seen: '' };

  it('says whether its inputs are those that a holder has, and nothing else of them', async () => {
    const digest = await digestOf(await marksOf(bytes(1, 2, 3), 3));
    const other = await digestOf(await marksOf(bytes(1, 2, 4), 3));
    for (const [seen, same] of [
      [digest, true],
      [other, false],
      ['', false],
    ] as const) {
      expect(await testimony(court, 'holder', { ...asks, side: 'match', seen })).toEqual({ same });
    }
    const longer = { ...asks, stop: 4, side: 'match', seen: digest } as const;
    expect(await testimony(court, 'holder', longer)).toEqual({ same: null });
    expect(await testimony(court, 'holder', { ...asks, first: 1, side: 'match', seen: digest })).toEqual({
      same: null,
    });
    for (const side of ['marks', 'in'] as const) {
      await expect(testimony(court, 'holder', { ...asks, side })).rejects.toThrow('who alone');
    }
    await expect(testimony(court, 'other', { ...asks, side: 'match', seen: digest })).rejects.toThrow(
      'holder',
    );
  });
});
