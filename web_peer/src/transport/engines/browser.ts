/*
 * RTCPeerConnection with the two channels of docs/protocol.md, as peer/transport/engines/ gives them to Python. Edge;
 * used once.
 *
 * Descriptions go out complete with candidates when gathering ends within GATHER_MS; slower ones go without those
 * that are missing, which then follow one by one.
 */

import { ConnectFailed, SignalingFault, textOf, TransportError } from '../../errors';
import { LOW_WATER_BYTES } from '../../limits';
import { type Channel, CHANNEL_IDS } from '../../wire/generated/frames';
import type { End } from '../../state/failure_domains';

const GATHER_MS = 1500; // host candidates take a few ms, a STUN answer some hundred

/** What an engine tells its connection. */
export interface EngineEvents {
  engineOpen(): void;
  engineMessage(channel: Channel, data: ArrayBuffer | string): void;
  engineWritable(channel: Channel): void;
  engineClosed(reason: string): void;
  engineCandidate(candidate: string): void;
}

/** What getStats says of transports, pairs and candidates. */
interface Stat {
  readonly id: string;
  readonly type: string;
  readonly selectedCandidatePairId?: string;
  readonly selected?: boolean;
  readonly nominated?: boolean;
  readonly state?: string;
  readonly localCandidateId?: string;
  readonly remoteCandidateId?: string;
  readonly address?: string;
  readonly port?: number;
  readonly candidateType?: string;
}

/** The engine of a browser, below one connection. */
export class RtcEngine {
  private readonly connection: RTCPeerConnection;
  private readonly channels: ReadonlyMap<Channel, RTCDataChannel>;
  private readonly open = new Set<Channel>();
  private events: EngineEvents | null = null;
  private described = false; // the own description is out: later candidates follow one by one
  private readonly early: RTCIceCandidateInit[] = []; // of the other side, ahead of its description
  private over = false;

  /** `relayOnly`: nothing but the addresses of TURN relays is told to the other side, or used. */
  constructor(iceServers: readonly RTCIceServer[], relayOnly = false) {
    this.connection = new RTCPeerConnection({
      iceServers: [...iceServers],
      iceTransportPolicy: relayOnly ? 'relay' : 'all',
    });
    this.channels = new Map(
      (['control', 'data'] as const).map((channel) => [channel, this.channel(channel)]),
    );
    this.connection.onconnectionstatechange = () => {
      if (this.connection.connectionState === 'failed') this.gone('the network path failed');
      if (this.connection.connectionState === 'closed') this.gone('the transport closed');
    };
    this.connection.onicecandidate = ({ candidate }) => {
      if (this.described && candidate !== null && candidate.candidate !== '') {
        this.events?.engineCandidate(candidate.candidate);
      }
    };
  }

  attach(events: EngineEvents): void {
    this.events = events;
  }

  async offer(): Promise<string> {
    await this.connection.setLocalDescription(await this.connection.createOffer());
    return this.complete();
  }

  async accept(offer: string): Promise<string> {
    await this.remote('offer', offer);
    await this.connection.setLocalDescription(await this.connection.createAnswer());
    return this.complete();
  }

  setAnswer(answer: string): Promise<void> {
    return this.remote('answer', answer);
  }

  async addCandidate(candidate: string): Promise<void> {
    const init: RTCIceCandidateInit = { candidate, sdpMLineIndex: 0 };
    if (candidate === '') return;
    if (this.connection.remoteDescription === null) {
      this.early.push(init);
      return;
    }
    await this.connection.addIceCandidate(init).catch((error: unknown) => {
      throw new SignalingFault(`expected a usable ICE candidate: ${textOf(error)}`);
    });
  }

  send(channel: Channel, piece: Uint8Array<ArrayBuffer>): void {
    try {
      this.channels.get(channel)?.send(piece);
    } catch (error) {
      throw new TransportError(`the ${channel} channel takes nothing more: ${textOf(error)}`);
    }
  }

  bufferedBytes(channel: Channel): number {
    return this.channels.get(channel)?.bufferedAmount ?? 0;
  }

  /** The ends of what ICE uses. */
  async selected(): Promise<readonly End[] | null> {
    const stats = await this.connection.getStats();
    const all = new Map<string, Stat>();
    stats.forEach((stat: Stat) => all.set(stat.id, stat));
    const pairs = [...all.values()].filter(({ type }) => type === 'candidate-pair');
    const transport = [...all.values()].find(({ type }) => type === 'transport');
    const pair =
      all.get(transport?.selectedCandidatePairId ?? '') ??
      pairs.find(
        ({ selected, nominated, state }) => selected ?? (nominated === true && state === 'succeeded'),
      );
    const ends = [pair?.localCandidateId, pair?.remoteCandidateId].map((id) => all.get(id ?? ''));
    if (ends.some((end) => end === undefined)) return null;
    return ends.map((end) => ({
      host: end?.address ?? '',
      port: end?.port ?? 0,
      kind: end?.candidateType ?? '',
    }));
  }

  close(): void {
    this.over = true;
    this.connection.onconnectionstatechange = null;
    this.connection.onicecandidate = null;
    this.connection.close();
  }

  private channel(channel: Channel): RTCDataChannel {
    const made = this.connection.createDataChannel(channel, { negotiated: true, id: CHANNEL_IDS[channel] });
    made.binaryType = 'arraybuffer';
    made.bufferedAmountLowThreshold = LOW_WATER_BYTES;
    made.onopen = () => {
      this.open.add(channel);
      if (this.open.size === this.channels.size) this.events?.engineOpen();
    };
    made.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) =>
      this.events?.engineMessage(channel, data);
    made.onbufferedamountlow = () => this.events?.engineWritable(channel);
    made.onclose = () => this.gone('the other side closed the transport');
    return made;
  }

  private async remote(type: 'offer' | 'answer', sdp: string): Promise<void> {
    try {
      await this.connection.setRemoteDescription({ type, sdp });
    } catch (error) {
      throw new SignalingFault(`expected a usable ${type} in SDP: ${textOf(error)}`);
    }
    for (const init of this.early.splice(0)) await this.connection.addIceCandidate(init).catch(() => null);
  }

  private async complete(): Promise<string> {
    const { connection } = this;
    if (connection.iceGatheringState !== 'complete') {
      await new Promise<void>((resolve) => {
        const late = setTimeout(resolve, GATHER_MS);
        connection.onicegatheringstatechange = () => {
          if (connection.iceGatheringState !== 'complete') return;
          clearTimeout(late);
          resolve();
        };
      });
      connection.onicegatheringstatechange = null;
    }
    this.described = true;
    const sdp = connection.localDescription?.sdp;
    if (sdp === undefined) throw new ConnectFailed('the browser closed the connection while it was set up');
    return sdp;
  }

  private gone(reason: string): void {
    if (this.over) return;
    this.over = true;
    this.events?.engineClosed(reason);
  }
}
