/*
 * Measures the way to another peer: round trip from small probes, rate from a burst (twin of peer/links.py).
 *
 * Probes travel on the data channel like activations do, so that what is measured is what a step will see.
 */

import { nowS } from './connection';
import { ConnectionLost, PeerError } from './errors';
import type { Frame, Probe, ProbeAck } from './frames';

const ROUNDS = 9; // odd, for a median; a first exchange on a fresh connection is slower and is not counted
const SMALL_BYTES = 64;
const BURST_BYTES = 256 * 1024; // several congestion windows, under 0.2 s on any link worth using
const PROBE_TIMEOUT_S = 9;

/** Round trip of a small message and one-way rate of a burst. */
export interface Measured {
  readonly rttS: number;
  readonly bytesPerS: number;
}

interface Open {
  readonly peer: string;
  resolve(atS: number): void;
  reject(error: Error): void;
}

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
    const rounds: number[] = [];
    for (let round = 0; round < ROUNDS; round++) rounds.push(await this.echo(peer, SMALL_BYTES));
    const rttS = rounds.sort((a, b) => a - b)[(ROUNDS - 1) / 2] ?? 0;
    const burstS = await this.echo(peer, BURST_BYTES);
    return { rttS, bytesPerS: BURST_BYTES / Math.max(burstS - rttS, 1e-6) };
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
