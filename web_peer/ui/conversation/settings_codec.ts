/* How the settings of a conversation stand in the log, and back. Pure. */

import { type Sampling, samplingFromWire, samplingOf, samplingToWire } from '../../src/session/sampling';
import { choicesOf } from './saved_choices';
import type { AskSettings } from '../app/view';

const EIGHT = 8; // integers of OPEN, before what only conversations have

/** Eight integers as in OPEN, the most tokens of an answer (0: as many as fit), whether the seed holds (1). */
export function samplingOfSettings(settings: AskSettings): number[] {
  const { temperature, topP, topK, minP, repetitionPenalty, seed, maxTokens } = settings;
  const sampling = samplingOf({ temperature, topP, topK, minP, repetitionPenalty, seed: seed ?? 0 });
  return [...samplingToWire(sampling), maxTokens ?? 0, seed === null ? 0 : 1];
}

/** What the conversation says; of one that says nothing, or nothing that is understood, those of the `model`. */
export function settingsOfSampling(
  wire: readonly number[],
  instructions: string,
  model: AskSettings,
): AskSettings {
  let sampling: Partial<Sampling> = {};
  try {
    if (wire.length >= EIGHT) sampling = samplingFromWire(wire.slice(0, EIGHT));
  } catch {
    // of a program that means something else by it
  }
  const [most = 0, holds = 0] = wire.slice(EIGHT);
  const seed = holds === 1 ? (sampling.seed ?? null) : null;
  const held = { ...sampling, instructions, seed, maxTokens: most > 0 ? most : null };
  return { ...model, ...choicesOf(held) };
}
