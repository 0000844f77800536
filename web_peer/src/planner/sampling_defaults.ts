/*
 * How answers of a model are drawn where a caller leaves that out: its own generation settings, else one choice for all
 * models (twin of planner/model/sampling_defaults.py).
 */

/** Settings within BOUNDS, kept to a millionth. `temperature` 0: the likeliest token always. */
export interface SamplingDefaults {
  readonly temperature: number;
  readonly topK: number; // 0: off
  readonly topP: number;
  readonly minP: number;
  readonly repetitionPenalty: number;
}

export const MILLION = 1_000_000; // numbers are kept to a millionth, as sampling settings travel

/** Those of sampling settings, both ends included. */
export const BOUNDS = {
  temperature: [0, 100],
  top_k: [0, 2 ** 31 - 1],
  top_p: [1 / MILLION, 1],
  min_p: [0, 1],
  repetition_penalty: [0.01, 100],
} as const;

export const LIKELIEST: SamplingDefaults = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
};

/** Of models that say nothing: small ones stay readable. */
export const USUAL: SamplingDefaults = { ...LIKELIEST, temperature: 0.7, topP: 0.95 };
