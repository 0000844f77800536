/*
 * Two connections, and two dialers, over a transport in memory: hello, frames, faults, goodbye, both dialling at once.
 */

import { describe, expect, it } from 'vitest';

import { Connection, type ConnectionState, type Engine, TIMES } from '../../src/transport/connection';
import { Dialer } from '../../src/transport/dialer';
import type { EngineEvents } from '../../src/transport/engines/browser';
import { BadCommand, ConnectFailed } from '../../src/errors';
import type { Channel, Frame, Hello } from '../../src/wire/generated/frames';
import { encode } from '../../src/wire/frame_codec';
import { HIGHEST_VERSION, LOWEST_VERSION } from '../../src/limits';

const WAIT_MS = 60_000; // nothing hangs on it but the moment of a failure

/** Both ends by the text of the offer, as signaling would bring them together. */
class Ether {
  private readonly ends = new Map<string, Wire>();
  private made = 0;

  engine(): Wire {
    const wire = new Wire(this, `end ${(this.made += 1)}`);
    this.ends.set(wire.name, wire);
    return wire;
  }

  end(name: string): Wire | undefined {
    return this.ends.get(name);
  }
}

class Wire implements Engine {
  readonly name: string;
  events: EngineEvents | null = null;
  other: Wire | null = null;
  over = false;
  private readonly ether: Ether;

  constructor(ether: Ether, name: string) {
    this.ether = ether;
    this.name = name;
  }

  attach(events: EngineEvents): void {
    this.events = events;
  }

  offer(): Promise<string> {
    return Promise.resolve(this.name);
  }

  accept(offer: string): Promise<string> {
    const other = this.ether.end(offer);
    if (other === undefined) return Promise.reject(new Error('no such offer'));
    this.other = other;
    return Promise.resolve(this.name);
  }

  setAnswer(answer: string): Promise<void> {
    this.other = this.ether.end(answer) ?? null;
    queueMicrotask(() => {
      this.events?.engineOpen();
      this.other?.events?.engineOpen();
    });
    return Promise.resolve();
  }

  addCandidate(): Promise<void> {
    return Promise.resolve();
  }

  send(channel: Channel, piece: Uint8Array<ArrayBuffer>): void {
    const { other } = this;
    const bytes = piece.slice().buffer;
    queueMicrotask(() => {
      if (other?.over === false) other.events?.engineMessage(channel, bytes);
    });
  }

  bufferedBytes(): number {
    return 0;
  }

  close(): void {
    this.over = true;
    const { other } = this;
    setTimeout(() => {
      if (other?.over === false) other.events?.engineClosed('the other side closed the transport');
    });
  }
}

function hello(peer: string, protocol = LOWEST_VERSION): Hello {
  return { kind: 'HELLO', protocol, peer, name: peer, agent: 'test' };
}

/** One end that notes what happens. */
class End {
  readonly frames: Frame[] = [];
  readonly states: ConnectionState[] = [];
  readonly connection: Connection;
  onFrame: (frame: Frame) => void = () => undefined;

  constructor(engine: Engine, own: Hello, peer: string) {
    this.connection = new Connection(engine, own, peer, {
      frame: (frame) => {
        this.frames.push(frame);
        this.onFrame(frame);
      },
      state: (_, state) => this.states.push(state),
      candidate: () => undefined,
    });
  }
}

async function until(holds: () => boolean): Promise<void> {
  const end = performance.now() + WAIT_MS;
  while (!holds()) {
    if (performance.now() > end) throw new Error('it did not come about');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function met(a: End, b: End): Promise<void> {
  const offer = await a.connection.offer();
  await a.connection.setAnswer(await b.connection.accept(offer));
}

function pair(helloB = hello('b'), expected = 'b'): readonly [End, End] {
  const ether = new Ether();
  return [new End(ether.engine(), hello('a'), expected), new End(ether.engine(), helloB, 'a')];
}

const TOKEN: Frame = {
  kind: 'TOKEN',
  session: '00'.repeat(16),
  turn: 1,
  position: 2,
  token: 3,
  finish: 0,
};

describe('a connection', () => {
  it('opens, carries frames of every size in order, and says goodbye', async () => {
    const [a, b] = pair();
    await met(a, b);
    await until(() => a.connection.state === 'open' && b.connection.state === 'open');
    const probe: Frame = { kind: 'PROBE', nonce: 1, body: new Uint8Array(900_000).fill(7) };
    a.connection.send(probe);
    a.connection.send(TOKEN);
    await a.connection.close('done');
    expect(a.states).toEqual(['connecting', 'open', 'closing', 'closed']);
    await until(() => b.connection.state === 'closed');
    expect(b.connection.reason).toBe('done');
    const ours = b.frames.filter(({ kind }) => kind === 'PROBE' || kind === 'TOKEN');
    expect(ours.map(({ kind }) => kind).sort()).toEqual(['PROBE', 'TOKEN']);
    expect(encode(ours.find(({ kind }) => kind === 'PROBE') ?? TOKEN)).toEqual(encode(probe));
    expect(() => a.connection.send(TOKEN)).toThrow('it is closed');
  });

  it('speaks the highest version of both sides', async () => {
    const [a, b] = pair({ ...hello('b'), agent: `test speaks ${HIGHEST_VERSION}` });
    await met(a, b);
    await until(() => a.connection.state === 'open' && b.connection.state === 'open');
    expect([a.connection.version, b.connection.version]).toEqual([LOWEST_VERSION, LOWEST_VERSION]);
    expect(a.connection.remote?.agent).toBe('test');
  });

  it('refuses a side that speaks none of its versions', async () => {
    const [a, b] = pair(hello('b', HIGHEST_VERSION + 1));
    await met(a, b);
    await until(() => a.connection.state === 'failed' && b.connection.state === 'failed');
    expect([a.connection.error?.name, b.connection.error?.name]).toEqual([
      'VersionMismatch',
      'VersionMismatch',
    ]);
  });

  it('refuses somebody else than signaling named', async () => {
    const [a, b] = pair(hello('b'), 'c');
    await met(a, b);
    await until(() => a.connection.state === 'failed');
    expect(a.connection.error?.message).toContain('expected c, got b');
  });

  it('ends when a frame breaks a rule of its user', async () => {
    const [a, b] = pair();
    await met(a, b);
    await until(() => a.connection.state === 'open' && b.connection.state === 'open');
    b.onFrame = () => {
      throw new BadCommand('not now');
    };
    a.connection.send(TOKEN);
    await until(() => b.connection.state === 'failed' && a.connection.state === 'closed');
    expect(a.connection.reason).toBe('BadCommand: not now');
  });

  it('fails when the transport goes, and when nobody comes', async () => {
    const ether = new Ether();
    const lonely = new End(ether.engine(), hello('a'), 'b');
    const early = new Connection(
      ether.engine(),
      hello('a'),
      'b',
      { frame: () => undefined, state: () => undefined, candidate: () => undefined },
      { ...TIMES, connectS: 0.01 },
    );
    await early.offer();
    await lonely.connection.offer();
    lonely.connection.engineClosed('the network path failed');
    expect(lonely.connection.error?.message).toContain('the network path failed');
    await until(() => early.state === 'failed');
    expect(early.error?.message).toContain('within 0.01 s');
  });
});

/** A dialer, and the signals that it sends to the other. */
function dialers(): { readonly a: Dialer; readonly b: Dialer; readonly heard: string[] } {
  const ether = new Ether();
  const heard: string[] = [];
  let ids = 0;
  const made = (me: string, other: string, otherDialer: () => Dialer): Dialer =>
    new Dialer(
      hello(me),
      () => ether.engine(),
      (kind, _, id, text) => {
        if (kind !== 'candidate') setTimeout(() => otherDialer().described(me, id, kind, text));
        return Promise.resolve();
      },
      {
        frame: (peer, frame) => heard.push(`${me} got ${frame.kind} of ${peer}`),
        connected: () => heard.push(`${me} connected to ${other}`),
        disconnected: (_, reason) => heard.push(`${me} lost ${other}: ${reason}`),
        congestion: () => undefined,
      },
      () => `id ${(ids += 1)}`,
    );
  const a: Dialer = made('a', 'b', () => b);
  const b: Dialer = made('b', 'a', () => a);
  return { a, b, heard };
}

describe('dialers', () => {
  it('that dial each other at once end with one connection', async () => {
    const { a, b, heard } = dialers();
    a.send('b', TOKEN);
    b.send('a', TOKEN);
    const [there, back] = await Promise.all([a.dial('b'), b.dial('a')]);
    expect([there.peer, back.peer]).toEqual(['b', 'a']);
    await until(() => heard.length >= 4);
    expect(heard.sort()).toEqual([
      'a connected to b',
      'a got TOKEN of b',
      'b connected to a',
      'b got TOKEN of a',
    ]);
    await a.close('left');
    await until(() => heard.includes('b lost a: left'));
    await expect(a.dial('b')).rejects.toThrow('leaving');
  });

  it('say why there is no connection', async () => {
    const refused = new Dialer(
      hello('a'),
      () => new Ether().engine(),
      () => Promise.reject(new Error('peer b is not in the room')),
      {
        frame: () => undefined,
        connected: () => undefined,
        disconnected: () => undefined,
        congestion: () => undefined,
      },
      () => 'id',
    );
    await expect(refused.dial('b')).rejects.toThrow('peer b is not in the room');
    await expect(refused.dial('b')).rejects.toThrow(ConnectFailed);
  });
});
