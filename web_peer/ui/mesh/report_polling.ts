/* Asks the peers around this tab now and then what they do, so that the picture shows answers asked elsewhere. */

import { PeerError } from '../../src/errors';
import type { MeshMember } from '../../src/member/mesh_member';
import { routeOf } from '../../src/state/plan_record';
import { serving } from '../../src/state/mesh_state';
import { type Report, reportOf, Reports } from './reports';
import { nowS } from '../../src/transport/ticker';
import { STATUS } from '../../src/wire/generated/requests';

const ASK_MS = 1000; // a report is some 400 bytes: often enough to see work begin and end
const MOST_ASKED = 8; // at once; larger meshes are asked in turn, so that a crowd of pages costs no more
const ANSWER_S = 4;

/** Asks around at most every ASK_MS, and keeps the answers in `reports`. */
export class Watching {
  readonly reports = new Reports();
  private askedAt = Number.NEGATIVE_INFINITY;
  private readonly asking = new Set<string>();
  private turn = 0;

  /** Called often; asks when it is time. A hidden page asks nobody. */
  look(mesh: MeshMember, now: number): void {
    if (document.hidden || now - this.askedAt < ASK_MS || !navigator.onLine) return;
    this.askedAt = now;
    this.reports.keep(new Set(mesh.view.state.members.keys()));
    for (const peer of this.whom(mesh)) void this.ask(mesh, peer);
  }

  /** Peers that compute and are connected; when none of the pipeline is, its first, which a question would need too. */
  private whom(mesh: MeshMember): readonly string[] {
    const { links, view } = mesh;
    const { members } = view.state;
    const near = links.connectedPeers().filter((peer) => members.get(peer)?.compute === true);
    const plan = serving(view.state);
    const route = plan === null ? [] : routeOf(plan);
    const [first] = route;
    const sees = route.some((peer) => peer === view.me || near.includes(peer));
    const all = sees || first === undefined ? near : [first, ...near];
    const free = all.filter((peer) => !this.asking.has(peer));
    if (free.length <= MOST_ASKED) return free;
    this.turn = (this.turn + MOST_ASKED) % free.length;
    return [...free.slice(this.turn), ...free.slice(0, this.turn)].slice(0, MOST_ASKED);
  }

  private async ask(mesh: MeshMember, peer: string): Promise<void> {
    this.asking.add(peer);
    try {
      const answer = await mesh.links.call(peer, STATUS, null, ANSWER_S);
      this.reports.came(peer, reportOf(answer), nowS());
    } catch (error) {
      // It left, or is too busy to say: what it said last grows old by itself.
      if (!(error instanceof PeerError)) throw error;
    } finally {
      this.asking.delete(peer);
    }
  }
}

/** What this tab would say of itself. */
export function ownReport(mesh: MeshMember): Report {
  const { core } = mesh.stage;
  const mine = mesh.lending.facts();
  return {
    steps: mine.tokensHelped,
    active: core.active(),
    sessions: mine.runs.length > 0 ? core.sessions() : 0,
    tokensPerS: mine.tokensPerS,
    weightBytes: mine.weightBytes,
    kvBytes: mine.kvBytes,
    rttS: new Map(),
    stepUs: mesh.stage.units?.stepTimes.mediansUs() ?? [],
    breakers: [],
  };
}
