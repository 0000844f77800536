/*
 * Measures the way to another peer: round trip from small probes, rate from a burst (twin of
 * peer/transport/link_probe.py).
 *
 * Probes travel on the data channel like activations do, so that what is measured is what a step will see.
 */

import { ConnectionLost, PeerError } from '../errors';
import type { Frame, Probe, ProbeAck } from '../wire/generated/frames';
import type { MeasureLinkAnswer } from '../wire/generated/requests';
import { median } from './median';
import type { LinkFacts } from '../state/generated/commands';
import { agreed } from '../state/failure_domains';
import { nowS } from './ticker';

const ROUNDS = 9; // odd, for a median; a first exchange on a fresh connection is slower and is not counted
const SMALL_BYTES = 64;
const FRAME_BYTES = 2048; // an activation of a small model, in several datagrams; what larger ones take is the rate
const BURST_BYTES = 256 * 1024; // several congestion windows, under 0.2 s on any link worth using
const PROBE_TIMEOUT_S = 10;

/** Round trip of a small message, one-way rate of a burst, and what a frame of an activation takes beyond both. */
export interface Measured {
  readonly rttS: number;
  readonly bytesPerS: number;
  readonly overheadS: number;
}

/** As it goes over the wire. `relayed`: as far as this side can tell. */
export function linkWords(
  { rttS, bytesPerS, overheadS }: Measured,
  relayed: boolean | null = null,
): MeasureLinkAnswer {
  return {
    rttUs: Math.round(rttS * 1e6),
    bytesPerS: Math.round(bytesPerS),
    overheadUs: Math.round(overheadS * 1e6),
    relayed,
  };
}

/** A link as both ends measured it: it is relayed both ways or neither. */
export function bothWays(
  me: string,
  peer: string,
  there: MeasureLinkAnswer,
  back: MeasureLinkAnswer,
): readonly LinkFacts[] {
  const relayed = agreed(there.relayed ?? null, back.relayed ?? null);
  return [
    { src: me, dst: peer, ...there, relayed },
    { src: peer, dst: me, ...back, relayed },
  ];
}

interface Open {
  readonly peer: string;
  resolve(atS: number): void;
  reject(error: Error): void;
}

/** Sends probes and matches their answers by nonce; one for all the links of a peer. */
export class Prober {
  private nextNonce = 0;
  private readonly open = new Map<number, Open>();
  private readonly send: (peer: string, frame: Frame) => void;

  constructor(send: (peer: string, frame: Frame) => void) {
    this.send = send;
  }

  /** Raises ConnectionLost, also when an answer comes too late. */
  async measure(peer: string): Promise<Measured> {
    await this.echo(peer, SMALL_BYTES);
    const small: number[] = [];
    const beyond: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      // By turns, so that a busy moment meets both.
      const shortS = await this.echo(peer, SMALL_BYTES);
      small.push(shortS);
      beyond.push((await this.echo(peer, FRAME_BYTES)) - shortS);
    }
    const rttS = median(small);
    const bytesPerS = BURST_BYTES / Math.max((await this.echo(peer, BURST_BYTES)) - rttS, 1e-6);
    return { rttS, bytesPerS, overheadS: Math.max(0, median(beyond) - FRAME_BYTES / bytesPerS) };
  }

  /** Whether `peer` answers one small probe in time. */
  async answers(peer: string, withinS: number): Promise<boolean> {
    try {
      await this.echo(peer, SMALL_BYTES, withinS);
      return true;
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return false;
    }
  }

  /** Answers the other side's probe. */
  probed(peer: string, frame: Probe): void {
    this.send(peer, { kind: 'PROBE_ACK', nonce: frame.nonce, receivedBytes: frame.body.length });
  }

  /** Takes the answer to a probe; an answer to nothing is ignored. */
  acknowledged(peer: string, frame: ProbeAck): void {
    const open = this.open.get(frame.nonce);
    if (open?.peer === peer) open.resolve(nowS());
  }

  gone(peer: string): void {
    for (const open of this.open.values()) {
      if (open.peer === peer) open.reject(new ConnectionLost(`peer ${peer} is gone`));
    }
  }

  private async echo(peer: string, size: number, withinS = PROBE_TIMEOUT_S): Promise<number> {
    const nonce = (this.nextNonce += 1);
    const begun = nowS();
    let late: ReturnType<typeof setTimeout> | undefined;
    try {
      const done = await new Promise<number>((resolve, reject) => {
        this.open.set(nonce, { peer, resolve, reject });
        const text = `peer ${peer} did not answer a probe within ${withinS} s`;
        late = setTimeout(() => reject(new ConnectionLost(text)), withinS * 1000);
        this.send(peer, { kind: 'PROBE', nonce, body: new Uint8Array(size) });
      });
      return done - begun;
    } finally {
      clearTimeout(late);
      this.open.delete(nonce);
    }
  }
}
