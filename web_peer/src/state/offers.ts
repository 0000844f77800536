/*
 * Decides which models a mesh runs beside its own, under which names, and where their units run (twin of
 * peer/state/offers.py).
 *
 * Pure. What these units are stands in the manifest of each model, which the log does not have: it says runs of units
 * [first, stop) and who holds them.
 */

import { type Codec, table } from '../wire/json_codec';
import {
  MAX_MODELS,
  type ModelOffer,
  type OfferCommand,
  type RunStage,
  modelOfferCodec,
} from './generated/commands';

/** By name. */
export type Offers = ReadonlyMap<string, ModelOffer>;

/** The offers after `command`, or why it changes nothing. `taken`: the names of models that answer in words. */
export function offering(offers: Offers, taken: ReadonlySet<string>, command: OfferCommand): Offers | string {
  const { name } = command;
  const offer = offers.get(name);
  switch (command.kind) {
    case 'ModelOffered': {
      if (taken.has(name) || offer !== undefined) {
        return `a model of this mesh is called ${name} already: offer it under another name`;
      }
      if (offers.size >= MAX_MODELS)
        return `${MAX_MODELS} models are offered, which is the most; withdraw one`;
      const { model } = command;
      const made = { model, version: 0, stages: [], latencyUs: 0, rateMilli: 0, why: [] };
      return new Map(offers).set(name, made);
    }
    case 'ModelWithdrawn':
      return offer === undefined ? `no model is offered under the name ${name}` : without(offers, name);
    case 'ModelPlaced': {
      if (offer === undefined) return `no model is offered under the name ${name}`;
      const { version, stages, latencyUs, rateMilli, why } = command;
      if (version <= offer.version) {
        return `placement ${version} of ${name} is not newer than ${offer.version}`;
      }
      if (!inOrder(stages)) return 'expected stages that hold units from 0 on, each once, in order';
      return new Map(offers).set(name, { ...offer, version, stages, latencyUs, rateMilli, why });
    }
    default:
      return command satisfies never;
  }
}

/** The offers but that of this name. */
export function without(offers: Offers, name: string): Offers {
  return offers.has(name) ? new Map([...offers].filter(([each]) => each !== name)) : offers;
}

function inOrder(stages: readonly RunStage[]): boolean {
  return stages.every(({ first, stop }, place) => first === (stages[place - 1]?.stop ?? 0) && stop > first);
}

// --- wire

export const offersCodec: Codec<Offers> = table(modelOfferCodec, MAX_MODELS);
