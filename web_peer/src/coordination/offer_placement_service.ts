/*
 * Offered models on their way to the members that run them, on the tab that coordinates (twin of
 * peer/coordination/offer_placement_service.py). Edge.
 *
 * A tab has no planner of graphs: it says what placements depend on, and the mesh's server answers with the commands
 * that a process would propose in its place. Whoever stands by takes over at once, without a question to anybody.
 */

import { PeerError } from '../errors';
import type { ModelOffer, ModelPlaced } from '../state/generated/commands';
import type { Command } from '../state/member_commands';
import { EMPTY_STATE, encodeState, type MeshState } from '../state/mesh_state';
import { takenBytes } from './decoder_planning';
import type { Led } from './decoder_planning_service';
import { nextVersion, promoted, stands } from './offer_promotion';

const AGAIN_MS = 30_000; // between tries where a model has no place, or nobody answered

/** What placing offered models takes of a tab that coordinates. */
export interface PlacingSurroundings {
  /** How many units a model has by its manifest. Raises a PeerError. */
  unitsOf(model: string): Promise<number>;
  readonly flops: ReadonlyMap<string, number>; // of a token in a unit of each kind of the mesh's own model
  speaks(peer: string): number; // the version of the protocol that it was heard to speak
  /** What a process would have the log take; null: nobody answers now. Raises a PeerError. */
  place(asked: PlacementsAsked): Promise<readonly ModelPlaced[] | null>;
}

/** What placements depend on. `state`: the mesh without all else that it knows. */
export interface PlacementsAsked {
  readonly state: MeshState;
  readonly speaks: ReadonlyMap<string, number>;
  readonly flops: ReadonlyMap<string, number>;
}

/** Places of all offered models, asked for whenever what they depend on has changed. */
export class Placing {
  private readonly around: PlacingSurroundings;
  private readonly led: Led;
  private seen: readonly unknown[] = []; // of the state, when it was looked at last
  private key = ''; // of the last placement
  private againMs = Infinity; // when that is asked for once more, though nothing has changed
  private isPlacing = false;
  private closed = false;

  constructor(around: PlacingSurroundings, led: Led) {
    this.around = around;
    this.led = led;
  }

  /**
   * Has standbys take over from who is lost, and asks for places where they are to change. `thoroughly`: though the
   * state is the same, since time has passed.
   */
  look(thoroughly = false): void {
    const { state } = this.led;
    const { model, plan, proposed, refused, wish, decoders, members, links, offers, protection } = state;
    const seen = [members, links, offers, protection, model, plan, proposed, refused, wish, decoders];
    const isSame = seen.every((each, at) => each === this.seen[at]);
    if (this.closed || (isSame && !thoroughly)) return;
    this.seen = seen;
    const heirs = promoted(state);
    if (heirs !== null) {
      this.led.submit(heirs); // which looks again
      return;
    }
    const waits = model !== null && plan === null && proposed === null && refused === '';
    if (this.isPlacing) return; // looked at again when that is done
    if (offers.size === 0 || waits) {
      this.key = '';
      return;
    }
    const asked = this.asked();
    const key = keyOf(asked);
    if (key === this.key && performance.now() < this.againMs) return;
    this.key = key;
    this.againMs = Infinity;
    this.isPlacing = true;
    this.place(asked).catch(reportError);
  }

  /** Places nothing any more. */
  close(): void {
    this.closed = true;
  }

  private asked(): PlacementsAsked {
    const { state, around } = { state: this.led.state, around: this.around };
    const { index, model, members, links, plan, proposed, refused, protection, wish, offers, decoders } =
      state;
    return {
      state: {
        ...EMPTY_STATE,
        ...{ index, model, members, links, plan, proposed, refused, protection, wish, offers, decoders },
      },
      speaks: new Map([...members.keys()].map((peer) => [peer, around.speaks(peer)])),
      flops: around.flops,
    };
  }

  private async place(asked: PlacementsAsked): Promise<void> {
    try {
      const found = await this.around.place(asked);
      for (const each of found ?? []) {
        const command = await this.checked(each, asked.state);
        if (command !== null && !this.isOver()) this.led.submit(command);
      }
      const isLacking = [...this.led.state.offers.values()].some(({ stages }) => stages.length === 0);
      if (found === null || isLacking) this.againMs = performance.now() + AGAIN_MS;
    } catch (error) {
      this.againMs = performance.now() + AGAIN_MS;
      if (!(error instanceof PeerError)) throw error;
    } finally {
      this.isPlacing = false;
    }
    this.look(true);
  }

  private isOver(): boolean {
    return this.closed;
  }

  /**
   * What the log is told of an answer, which comes from a server; null where that model was not asked for or was placed
   * meanwhile, where somebody is gone who would run it, or where the stages are not those of its units.
   */
  private async checked(placed: ModelPlaced, before: MeshState): Promise<Command | null> {
    const { name, stages } = placed;
    const asked = before.offers.get(name);
    if (asked === undefined) return null;
    const units = stages.length === 0 ? 0 : await this.around.unitsOf(asked.model);
    const { state } = this.led;
    const offer = state.offers.get(name);
    if (offer === undefined || offer.model !== asked.model || offer.version > asked.version) return null;
    if ((stages.at(-1)?.stop ?? 0) !== units || !isNews(offer, placed)) return null;
    const named = stages.flatMap(({ primary, standbys }) => [primary, ...standbys]);
    if (!named.every((peer) => stands(state, peer))) return null;
    return { ...placed, version: nextVersion(state, offer) };
  }
}

function isNews({ version, stages, why }: ModelOffer, placed: ModelPlaced): boolean {
  const isSame = JSON.stringify(stages) === JSON.stringify(placed.stages);
  if (placed.stages.length > 0) return !isSame;
  return version === 0 || !isSame || JSON.stringify(why) !== JSON.stringify(placed.why);
}

/** Equal for what is placed alike: where models run by now, and what others of them hold, is no reason to ask. */
function keyOf({ state, speaks }: PlacementsAsked): string {
  const { offers, members } = state;
  const others = { index: 0, offers: new Map<string, never>(), decoders: new Map<string, never>() };
  const apart = new Map([...members].map(([peer, member]) => [peer, { ...member, held: [] }]));
  const rest = { ...state, ...others, members: apart, plan: null, proposed: null };
  const taken = takenBytes({ ...state, offers: new Map() });
  return JSON.stringify([
    [...offers].map(([name, { model }]) => [name, model]).sort(),
    new TextDecoder().decode(encodeState(rest)),
    [...taken].sort(),
    [...speaks].sort(),
  ]);
}
