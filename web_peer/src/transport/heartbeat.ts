/* Decides when to ask whether the other peer is there, how far away it is, and when it is lost. Pure. */

import { BEAT_S, LOST_S, SUSPECT_S } from '../limits';

const RTT_GAIN = 1 / 8; // RFC 6298
const RTT_DEVIATION_GAIN = 1 / 4; // RFC 6298
const ASK_BEATS = 5; // a connection that is heard but does not work is asked at every fifth beat
const MAX_ASKED = 64; // PINGs remembered; older ones were never answered

/** How often to ask, after how much silence to suspect the other peer, and after how much it is lost. */
export interface HeartbeatTimes {
  readonly intervalS: number;
  readonly suspectS: number;
  readonly lostS: number;
}

export const HEARTBEAT_TIMES: HeartbeatTimes = { intervalS: BEAT_S, suspectS: SUSPECT_S, lostS: LOST_S };

/** What a beat says about the other peer. */
export type Verdict = 'alive' | 'suspect' | 'lost';

/** Round trip and silence of one connection. `nowS` is any monotonic time. */
export class Heartbeat {
  rttS: number | null = null;
  private readonly times: HeartbeatTimes;
  private heardS: number;
  private beatS: number;
  private readonly askedS = new Map<number, number>();
  private nonce = 0;
  private skipped = 0;
  private isWorking = false;
  private deviationS = 0;

  constructor(times: HeartbeatTimes, nowS: number) {
    this.times = times;
    this.heardS = nowS;
    this.beatS = nowS;
  }

  /** Anything came from the other peer. */
  heard(nowS: number): void {
    this.heardS = nowS;
  }

  /** Data goes over this connection: how long an answer takes has to be known well. */
  works(): void {
    this.isWorking = true;
  }

  /**
   * To be called every intervalS: the verdict, and the nonce of the PING to send now, if one is due.
   *
   * None is due where the other side was heard since the beat before, the connection carries no data, and the round
   * trip was asked for lately: so an idle mesh costs little. A beat that comes late says that this side slept; that time does not count as the other side's silence.
   */
  beat(nowS: number): { readonly verdict: Verdict; readonly nonce: number | null } {
    const lateS = nowS - this.beatS - this.times.intervalS;
    const isHeard = this.heardS > this.beatS;
    if (lateS > this.times.intervalS) this.heardS = Math.min(this.heardS + lateS, nowS);
    this.beatS = nowS;
    const silentS = nowS - this.heardS;
    if (silentS >= this.times.lostS) return { verdict: 'lost', nonce: null };
    return { verdict: silentS >= this.times.suspectS ? 'suspect' : 'alive', nonce: this.ask(nowS, isHeard) };
  }

  private ask(nowS: number, isHeard: boolean): number | null {
    if (isHeard && !this.isWorking && this.rttS !== null && this.skipped < ASK_BEATS - 1) {
      this.skipped += 1;
      return null;
    }
    this.isWorking = false;
    this.skipped = 0;
    this.nonce += 1;
    this.askedS.set(this.nonce, nowS);
    for (const asked of this.askedS.keys()) {
      if (this.askedS.size <= MAX_ASKED) break;
      this.askedS.delete(asked);
    }
    return this.nonce;
  }

  /** A PONG came. One that was never asked for, or comes twice, changes nothing. */
  answered(nonce: number, nowS: number): void {
    const askedS = this.askedS.get(nonce);
    if (askedS === undefined) return;
    this.askedS.delete(nonce);
    const sampleS = nowS - askedS;
    if (this.rttS === null) {
      this.rttS = sampleS;
      this.deviationS = sampleS / 2;
      return;
    }
    this.deviationS += RTT_DEVIATION_GAIN * (Math.abs(this.rttS - sampleS) - this.deviationS);
    this.rttS += RTT_GAIN * (sampleS - this.rttS);
  }

  /** How long an answer may take before it is late (RFC 6298 without its minimum). */
  get timeoutS(): number | null {
    return this.rttS === null ? null : this.rttS + 4 * this.deviationS;
  }
}
