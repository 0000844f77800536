/* Heartbeat: verdicts by silence, round trips by RFC 6298, and sleep that is not silence. */

import { expect, it } from 'vitest';

import { Heartbeat, HEARTBEAT_TIMES } from '../../src/transport/heartbeat';

const seconds = (from: number, to: number): number[] =>
  Array.from({ length: to - from }, (_, at) => from + at);

function asked(beats: Heartbeat, nowS: number): number {
  const { nonce } = beats.beat(nowS);
  if (nonce === null) throw new Error(`no PING at ${nowS}`);
  return nonce;
}

it('silence grows from alive to lost', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  const verdicts = seconds(1, 12).map((second) => beats.beat(second).verdict);
  expect(verdicts).toEqual([
    ...Array<string>(2).fill('alive'),
    ...Array<string>(4).fill('suspect'),
    ...Array<string>(5).fill('lost'),
  ]);
});

it('any message ends suspicion', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  for (const second of seconds(1, 6)) beats.beat(second);
  beats.heard(5.5);
  expect(beats.beat(6).verdict).toBe('alive');
});

it("this side's sleep is not the other side's silence", () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  beats.beat(1);
  expect(beats.beat(46).verdict).toBe('alive');
  expect(seconds(1, 10).map((second) => beats.beat(46 + second).verdict)).toContain('lost');
});

it('the round trip is smoothed', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  expect(beats.rttS).toBeNull();
  expect(beats.timeoutS).toBeNull();
  beats.answered(asked(beats, 1), 1.1);
  expect(beats.rttS).toBeCloseTo(0.1);
  expect(beats.timeoutS).toBeCloseTo(0.1 + 4 * 0.05);
  beats.answered(asked(beats, 2), 2.3);
  expect(beats.rttS).toBeCloseTo(0.1 + 0.2 / 8);
  expect(beats.timeoutS).toBeCloseTo(0.125 + 4 * (0.05 + (0.2 - 0.05) / 4));
});

it('answers that nobody asked for change nothing', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  const nonce = asked(beats, 1);
  beats.answered(nonce, 1.5);
  beats.answered(nonce, 9);
  beats.answered(12345, 9);
  expect(beats.rttS).toBeCloseTo(0.5);
});

it('nonces differ, and unanswered ones are forgotten', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  const nonces = Array.from({ length: 200 }, (_, at) => asked(beats, at / 100));
  expect(new Set(nonces).size).toBe(200);
  beats.answered(nonces[0] ?? 0, 100);
  expect(beats.rttS).toBeNull();
});

it('who is heard anyway is asked at every fifth beat', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  beats.answered(asked(beats, 0), 0.1);
  const due = seconds(1, 12).map((second) => {
    beats.heard(second - 0.5);
    return beats.beat(second).nonce !== null;
  });
  expect(due.flatMap((isDue, at) => (isDue ? [at + 1] : []))).toEqual([5, 10]);
});

it('silence and work are asked about at every beat', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  beats.answered(asked(beats, 0), 0.1);
  beats.heard(0.5);
  expect(beats.beat(1).nonce).toBeNull();
  expect(beats.beat(2).nonce).not.toBeNull();
  for (const second of seconds(3, 6)) {
    beats.heard(second - 0.5);
    beats.works();
    expect(beats.beat(second).nonce).not.toBeNull();
  }
});

it('as long as the round trip is unknown every beat asks', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  for (const second of seconds(1, 5)) {
    beats.heard(second - 0.5);
    expect(beats.beat(second).nonce).not.toBeNull();
  }
});

it('who slept asks at once', () => {
  const beats = new Heartbeat(HEARTBEAT_TIMES, 0);
  beats.answered(asked(beats, 0), 0.1);
  beats.heard(0.5);
  expect(beats.beat(1).nonce).toBeNull();
  expect(beats.beat(61).nonce).not.toBeNull(); // it heard nothing since
});
