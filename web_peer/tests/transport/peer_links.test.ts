/* Links to other peers: whom they send to, who is asked, who is told when a peer cannot be reached. */

import { expect, it } from 'vitest';

import { BadCommand, ConnectionLost } from '../../src/errors';
import { announced, SPOKEN } from '../../src/state/version_negotiation';
import { PeerLinks } from '../../src/transport/peer_links';
import { wayAsked } from '../../src/transport/udp_relay';
import type { Frame } from '../../src/wire/generated/frames';
import { text } from '../../src/wire/json_codec';
import { nothing, type RequestKind } from '../../src/wire/request_kind';

const [ANN, BOB] = ['a'.repeat(32), 'b'.repeat(32)];
const SHORT = { maxBodyBytes: 16, maxAnswerBytes: 64 } as const;
const PROBE: Frame = { kind: 'PROBE', nonce: 1, body: new Uint8Array() };

/** Links of Ann, whose browser makes no connection. */
function links(): PeerLinks {
  const engine = (): never => {
    throw new Error('WebRTC is switched off');
  };
  return new PeerLinks(
    announced(SPOKEN, ANN, 'Ann', 'test'),
    engine,
    () => Promise.resolve(),
    () => '',
  );
}

it('frames go to members, and to this peer itself', async () => {
  const ann = links();
  const came: [string, Frame][] = [];
  ann.start((peer, frame) => came.push([peer, frame]));
  expect(() => ann.send(BOB, PROBE)).toThrow(ConnectionLost);
  ann.know(new Map([[BOB, { headless: false }]]), null);
  expect(() => ann.send(BOB, PROBE)).not.toThrow();
  ann.send(ANN, PROBE);
  expect(came).toEqual([]); // never within the call
  await Promise.resolve();
  expect(came).toEqual([[ANN, PROBE]]);
  expect(() => ann.start(() => undefined)).toThrow('somebody takes frames already');
});

it('whoever needs a peer that cannot be reached is told, until it listens no more', async () => {
  const ann = links();
  const told: string[] = [];
  const end = ann.onGone((peer) => told.push(peer));
  ann.sendOrLose(BOB, PROBE);
  expect(told).toEqual([]);
  await Promise.resolve();
  expect(told).toEqual([BOB]);
  end();
  ann.sendOrLose(BOB, PROBE);
  await Promise.resolve();
  expect(told).toEqual([BOB]);
});

it('a member to whom no connection stands any more is unreached as long as it is one', async () => {
  const ann = links();
  ann.know(new Map([[BOB, { headless: false }]]), null);
  expect([...ann.unreached]).toEqual([]);
  const gone = new Promise<string>((tell) => {
    ann.onGone((peer) => tell(peer));
  });
  ann.sendOrLose(BOB, PROBE);
  expect(await gone).toBe(BOB);
  expect([...ann.unreached]).toEqual([BOB]);
  ann.know(new Map(), null);
  expect([...ann.unreached]).toEqual([]);
});

it('this peer asks itself as others ask it', async () => {
  const ann = links();
  const mine = { method: 'mine', sender: 'members', ...SHORT, codec: nothing, answer: text } as const;
  const led = { method: 'led', sender: 'leader', ...SHORT, codec: nothing, answer: text } as const;
  ann.on(mine, (peer) => peer);
  ann.on(led, (peer) => peer);
  await expect(ann.call(ANN, mine, null)).rejects.toThrow(BadCommand);
  ann.know(new Map([[ANN, { headless: false }]]), null);
  await expect(ann.call(ANN, mine, null)).resolves.toBe(ANN);
  await expect(ann.ask(ANN, led, null)).rejects.toThrow('who coordinates');
  ann.know(new Map([[ANN, { headless: false }]]), ANN);
  await expect(ann.ask(ANN, led, null)).resolves.toBe(ANN);
});

it('a way to a peer is asked of who stays first, a few seconds long', async () => {
  const asked: unknown[] = [];
  const near = {
    connectedPeers: () => ['a', 'b', 'c', 'd'],
    call: <T, A>(peer: string, { method }: RequestKind<T, A>, said: T, timeoutS: number): Promise<A> => {
      asked.push([peer, method, said, timeoutS]);
      return Promise.reject(new BadCommand('this peer hands nothing on'));
    },
  };
  expect(await wayAsked(near, (peer) => peer === 'c')('b')).toBeNull();
  expect(asked).toEqual(['c', 'a', 'd'].map((peer) => [peer, 'relay', { peer: 'b' }, 3]));
});
