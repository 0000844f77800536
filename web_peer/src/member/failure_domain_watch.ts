/*
 * What this tab knows of its surroundings, and tells when they change (twin of peer/member/failure_domain_watch.py).
 * Edge.
 *
 * No page learns which machine it runs on: it stays unknown. One tab of a browser lends at a time, so two of them are
 * never two peers.
 */

import { MeshError, PeerError } from '../errors';
import type { Profile } from '../state/generated/commands';
import type { MeshView } from '../replication/mesh_view';
import type { PeerLinks } from '../transport/peer_links';
import {
  hashed,
  hazardMilli,
  publicAddress,
  type Surroundings,
  Telling,
  UNKNOWN,
} from '../state/failure_domains';

const LOOK_MS = 1000;

/** Of the Battery Status API, which only some browsers have. */
interface Battery {
  readonly charging: boolean;
}

/** What browsers may know beside what all of them do. */
interface More {
  readonly userAgentData?: { readonly mobile: boolean };
  readonly connection?: { readonly saveData?: boolean };
  readonly getBattery?: () => Promise<Battery>;
}

type Links = Pick<PeerLinks, 'connectedPeers' | 'connection'>;
type View = Pick<MeshView, 'me' | 'state' | 'measured'>;

/** `says`: false for a peer of the older version, which says nothing; `relayOnly`: it keeps its address to itself. */
export class Around {
  private readonly links: Links;
  private readonly view: View;
  private readonly mesh: string;
  private readonly relayOnly: boolean;
  private readonly says: boolean;
  private readonly telling = new Telling();
  private battery: Battery | null = null;
  private lastAddress = ''; // that was known

  constructor(mesh: string, links: Links, view: View, { relayOnly = false, says = true } = {}) {
    this.mesh = mesh;
    this.links = links;
    this.view = view;
    this.relayOnly = relayOnly;
    this.says = says;
    const more = navigator as More;
    more.getBattery?.().then(
      (battery) => {
        this.battery = battery;
      },
      () => undefined, // a policy forbids it
    );
  }

  /** What this tab says of itself. */
  seen(): Surroundings {
    if (!this.says) return UNKNOWN;
    const more = navigator as More;
    const phone = more.userAgentData?.mobile ?? /Android|iPhone|iPad|Mobile/.test(navigator.userAgent);
    const conditions = new Set<string>();
    if (document.visibilityState === 'hidden') conditions.add('background');
    if (this.battery?.charging === false) conditions.add('battery');
    if (more.connection?.saveData === true) conditions.add('metered');
    return {
      hazardMilli: hazardMilli(phone ? 'phone' : 'tab', conditions),
      machine: '',
      network: hashed('network', this.mesh, this.address()),
      owner: '',
    };
  }

  /** `profile`, with what is known of its surroundings now. */
  with(profile: Profile): Profile {
    return { ...profile, surroundings: this.seen() };
  }

  /** Tells what changed for a while, for as long as this tab lends. */
  follow(signal: AbortSignal): void {
    const timer = setInterval(() => void this.look(), LOOK_MS);
    signal.addEventListener('abort', () => clearInterval(timer));
  }

  private address(): string {
    if (this.relayOnly) return '';
    const { links } = this;
    const mine = links.connectedPeers().map((peer) => links.connection(peer)?.path.mine ?? '');
    const found = publicAddress(mine.join('\n'));
    if (found !== '') this.lastAddress = found;
    return this.lastAddress;
  }

  private async look(): Promise<void> {
    const { me, state } = this.view;
    const member = state.members.get(me);
    if (member?.status !== 'measured' || member.profile === null) return; // it says so when it measures
    const { profile } = member;
    const fresh = this.with(profile);
    const said = profile.surroundings ?? UNKNOWN;
    if (!this.telling.due(Math.floor(performance.now()), said, fresh.surroundings ?? UNKNOWN)) return;
    try {
      const command = { kind: 'MemberMeasured', peer: me, profile: fresh, links: [] } as const;
      await this.view.measured(command);
    } catch (error) {
      if (!(error instanceof PeerError) && !(error instanceof MeshError)) throw error; // it is told again later
    }
  }
}
