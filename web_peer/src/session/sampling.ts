/*
 * Decides the next token from logits: penalties, temperature, filters, and a draw that any machine repeats.
 *
 * Every step is spelled out in operations that give the same bits everywhere (docs/protocol.md, Sampling):
 * float64 additions, products and quotients in a stated order, an exponential made of those, and MurmurHash3
 * for chance. Steps come in the order of Hugging Face transformers: penalties, temperature, top-k, top-p, min-p.
 */

import { BadSampling, NotFiniteLogits } from '../errors';
import { LIKELIEST, type SamplingDefaults } from '../planner/sampling_defaults';

const MILLION = 1_000_000; // settings travel as integers, in millionths
export const MAX_SEED = Number.MAX_SAFE_INTEGER;
export const MAX_POSITION = 2 ** 32 - 1; // one 32-bit word of the hash
export const MAX_TOP_K = 2 ** 31 - 1;
export const LOWEST_EXPONENT = -40; // e**-40 = 4e-18: a token this far below the best is never drawn
const BUCKETS = 1024; // of logits, from the best one down to LOWEST_EXPONENT: sorting starts from whole buckets

const LOG2_E = 1.4426950408889634;
const LN2_HIGH = 0.69314718036912381649; // fdlibm's split of ln 2: its low 32 bits are zero, so k * high is exact
const LN2_LOW = 1.90821492927058770002e-10;
// Taylor's coefficients 1/n!; |r| <= 0.347: error below one ulp.
const [T13, T12, T11, T10, T9] = [1 / 6227020800, 1 / 479001600, 1 / 39916800, 1 / 3628800, 1 / 362880];
const [T8, T7, T6, T5, T4, T3] = [1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6];
const MINUS_ZERO = 0x80000000; // as float32 bits
const POWERS = Float64Array.from({ length: 64 }, (_, at) => 2 ** -at);

/** How a session draws its tokens. Numbers are kept to a millionth, so that all peers hold the same. */
export interface Sampling {
  readonly temperature: number; // 0: greedy, the filters below and the seed play no part
  readonly topK: number; // 0: off
  readonly topP: number;
  readonly minP: number;
  readonly repetitionPenalty: number; // CTRL paper, section 4.1; over prompt and generated tokens
  readonly frequencyPenalty: number; // per occurrence, over generated tokens, as in the OpenAI API
  readonly presencePenalty: number; // once, over generated tokens
  readonly seed: number;
}

export const GREEDY: Sampling = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  seed: 0,
};

const RANGES = [
  ['temperature', 'temperature', 0, 100],
  ['topP', 'top_p', 0, 1],
  ['minP', 'min_p', 0, 1],
  ['repetitionPenalty', 'repetition_penalty', 0.01, 100],
  ['frequencyPenalty', 'frequency_penalty', -2, 2],
  ['presencePenalty', 'presence_penalty', -2, 2],
] as const;

export type TokenIds = readonly number[] | Int32Array;

/** Checked settings; what is not given is off. Raises BadSampling for a number out of its range. */
export function samplingOf(given: Partial<Sampling>): Sampling {
  const made = { ...GREEDY, ...given };
  whole('top_k', made.topK, MAX_TOP_K);
  whole('seed', made.seed, MAX_SEED);
  for (const [key, name, low, high] of RANGES) {
    const value = made[key];
    if (typeof value !== 'number' || !(low <= value && value <= high)) {
      throw new BadSampling(`${name} must be a number from ${low} to ${high}, got ${String(value)}`);
    }
    made[key] = roundHalfEven(value * MILLION) / MILLION;
    // The likeliest token alone, however small it is.
    if (key === 'topP' && value > 0) made[key] = Math.max(made[key], 1 / MILLION);
  }
  if (made.topP === 0) {
    throw new BadSampling('top_p must be above 0; use top_p=1 to switch it off, or temperature=0 for greedy');
  }
  return made;
}

/** What an asker says of sampling. Undefined: left out. */
export type AskedSampling = Partial<Omit<Sampling, 'seed'>>;

/**
 * Each setting as asked for, what is left out from `defaults`. Raises BadSampling.
 *
 * An asker who says temperature 0 wants the likeliest token: nothing of `defaults` counts then, no penalty either.
 */
export function samplingFor(defaults: SamplingDefaults, asked: AskedSampling, seed = 0): Sampling {
  const rest = asked.temperature === 0 ? LIKELIEST : defaults;
  return samplingOf({ ...rest, ...asked, seed });
}

/** Eight integers in the order of the fields; all but topK and seed in millionths. */
export function samplingToWire(sampling: Sampling): number[] {
  return [
    roundHalfEven(sampling.temperature * MILLION),
    sampling.topK,
    roundHalfEven(sampling.topP * MILLION),
    roundHalfEven(sampling.minP * MILLION),
    roundHalfEven(sampling.repetitionPenalty * MILLION),
    roundHalfEven(sampling.frequencyPenalty * MILLION),
    roundHalfEven(sampling.presencePenalty * MILLION),
    sampling.seed,
  ];
}

/** The inverse of samplingToWire. BadSampling for anything that it cannot have made. */
export function samplingFromWire(values: readonly number[]): Sampling {
  if (values.length !== 8) throw new BadSampling(`sampling settings are 8 integers, got ${values.length}`);
  for (const value of values) {
    if (!Number.isSafeInteger(value)) {
      throw new BadSampling(`sampling settings are integers up to 2^53-1, got ${value}`);
    }
  }
  const [
    temperature = 0,
    topK = 0,
    topP = 0,
    minP = 0,
    repetition = 0,
    frequency = 0,
    presence = 0,
    seed = 0,
  ] = values;
  return samplingOf({
    temperature: temperature / MILLION,
    topK,
    topP: topP / MILLION,
    minP: minP / MILLION,
    repetitionPenalty: repetition / MILLION,
    frequencyPenalty: frequency / MILLION,
    presencePenalty: presence / MILLION,
    seed,
  });
}

/**
 * The token at `position`, from `logits` (vocabulary,), `history` (prompt and generated) and `generated`.
 *
 * Pure: the same arguments give the same token on every machine; chance depends on (seed, position) only.
 * Equal logits are ordered by the lower id. NotFiniteLogits for NaN or +Inf; -Inf means "never".
 */
export function sample(
  logits: Float32Array,
  sampling: Sampling,
  position: number,
  history: TokenIds = [],
  generated: TokenIds = [],
): number {
  if (logits.length === 0)
    throw new NotFiniteLogits('logits must be one row of at least one number, got none');
  let best = bestOf(logits);
  let row = logits;
  if (hasPenalties(sampling, history, generated)) {
    row = penalized(logits, sampling, history, generated);
    best = bestOf(row);
  }
  if (sampling.temperature === 0) return best;
  const { ids, weights } = candidates(row, best, sampling);
  const total = sum(weights);
  const drawn = uniform(sampling.seed, position) * total;
  let running = 0;
  let reached = -1; // drawn can round up to the total itself: then the last token of weight above 0
  for (let place = 0; place < ids.length; place++) {
    running += weights[place] ?? 0;
    if (running > drawn) return ids[place] ?? 0;
    if (reached < 0 && running >= total) reached = place;
  }
  return ids[reached] ?? best;
}

/** A copy of `logits` with the penalties applied: in float64 token by token, rounded once to float32. */
export function penalized(
  logits: Float32Array,
  sampling: Sampling,
  history: TokenIds,
  generated: TokenIds,
): Float32Array {
  const wide = new Map<number, number>();
  if (sampling.repetitionPenalty !== 1 && history.length > 0) {
    checkIds(history, logits.length);
    for (const id of history) {
      if (wide.has(id)) continue;
      const score = logits[id] ?? 0;
      wide.set(id, score < 0 ? score * sampling.repetitionPenalty : score / sampling.repetitionPenalty);
    }
  }
  const { frequencyPenalty, presencePenalty } = sampling;
  if ((frequencyPenalty !== 0 || presencePenalty !== 0) && generated.length > 0) {
    checkIds(generated, logits.length);
    const counts = new Map<number, number>();
    for (const id of generated) counts.set(id, (counts.get(id) ?? 0) + 1);
    for (const [id, count] of counts) {
      wide.set(id, (wide.get(id) ?? logits[id] ?? 0) - count * frequencyPenalty - presencePenalty);
    }
  }
  const row = logits.slice();
  for (const [id, score] of wide) row[id] = score;
  return row;
}

interface Candidates {
  readonly ids: Int32Array;
  readonly weights: Float64Array;
}

/** The ids that may be drawn, ascending, and their weights (not normalized; the best token weighs 1). */
function candidates(logits: Float32Array, best: number, sampling: Sampling): Candidates {
  const top = logits[best] ?? 0;
  const { temperature, topK } = sampling;
  const chosen =
    topK > 0 && topK < logits.length
      ? ascending(highest(logits, top, temperature, topK), logits.length)
      : undefined;
  const most = chosen?.length ?? logits.length;
  const ids = new Int32Array(most);
  const weights = new Float64Array(most);
  let count = 0;
  for (let at = 0; at < most; at++) {
    const id = chosen === undefined ? at : (chosen[at] ?? 0);
    const exponent = ((logits[id] ?? 0) - top) / temperature;
    if (!(exponent >= LOWEST_EXPONENT)) continue;
    ids[count] = id;
    weights[count] = exponential(exponent);
    count += 1;
  }
  let kept: Candidates = { ids: ids.subarray(0, count), weights: weights.subarray(0, count) };
  if (sampling.topP < 1) kept = massPrefix(logits, top, temperature, kept, sampling.topP);
  if (sampling.minP > 0) {
    // The best token weighs 1, so this is minP times its probability.
    const weightsKept = kept.weights;
    const places = Int32Array.from(weightsKept.keys()).filter(
      (at) => (weightsKept[at] ?? 0) >= sampling.minP,
    );
    kept = taken(kept, places);
  }
  return kept;
}

/** e**x for LOWEST_EXPONENT <= x <= 0 from products and sums alone: libraries differ in the last bit. */
export function exponential(exponent: number): number {
  const turns = Math.floor(exponent * LOG2_E + 0.5);
  const r = exponent - turns * LN2_HIGH - turns * LN2_LOW;
  let value = T13 * r + T12; // Horner's scheme, written out: this is where the time of a draw goes
  value = value * r + T11;
  value = value * r + T10;
  value = value * r + T9;
  value = value * r + T8;
  value = value * r + T7;
  value = value * r + T6;
  value = value * r + T5;
  value = value * r + T4;
  value = value * r + T3;
  value = value * r + 0.5;
  value = value * r + 1;
  value = value * r + 1;
  return value * (POWERS[-turns] ?? 0); // exact: a power of two
}

/** A number in [0, 1) with 53 random bits that depends on (seed, position) only. */
export function uniform(seed: number, position: number): number {
  if (!(position >= 0 && position <= MAX_POSITION)) {
    throw new BadSampling(`position must be from 0 to ${MAX_POSITION}, got ${position}`);
  }
  const words = [seed % 2 ** 32, Math.floor(seed / 2 ** 32), position];
  const high = murmur3(words, 1);
  const low = murmur3(words, 2);
  return ((high >>> 5) * 67108864 + (low >>> 6)) / 9007199254740992;
}

/** MurmurHash3_x86_32 of the little-endian 32-bit `words`. */
export function murmur3(words: readonly number[], seed: number): number {
  let state = seed;
  for (const each of words) {
    let word = Math.imul(each, 0xcc9e2d51);
    word = (word << 15) | (word >>> 17);
    state ^= Math.imul(word, 0x1b873593);
    state = (state << 13) | (state >>> 19);
    state = (Math.imul(state, 5) + 0xe6546b64) | 0;
  }
  state ^= 4 * words.length;
  state = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
  state = Math.imul(state ^ (state >>> 13), 0xc2b2ae35);
  return (state ^ (state >>> 16)) >>> 0;
}

/** The lowest id with the highest logit. One look checks the whole row. */
function bestOf(logits: Float32Array): number {
  let best = 0;
  let value = -Infinity;
  for (let id = 0; id < logits.length; id++) {
    const logit = logits[id] ?? 0;
    if (logit > value) {
      best = id;
      value = logit;
    } else if (Number.isNaN(logit)) {
      best = id;
      value = logit;
      break;
    }
  }
  if (!Number.isFinite(value)) {
    const what =
      value === -Infinity ? 'nothing but -Inf' : `${Number.isNaN(value) ? 'nan' : 'inf'} at token ${best}`;
    throw new NotFiniteLogits(
      `logits must be finite, got ${what}; the head or the stage before it computed nonsense`,
    );
  }
  return best;
}

function hasPenalties(sampling: Sampling, history: TokenIds, generated: TokenIds): boolean {
  if (sampling.repetitionPenalty !== 1 && history.length > 0) return true;
  return (sampling.frequencyPenalty !== 0 || sampling.presencePenalty !== 0) && generated.length > 0;
}

/** Places of the `count` highest of `logits`, by (logit down, place up). All when there are fewer. */
function highest(logits: Float32Array, top: number, temperature: number, count: number): Int32Array {
  const buckets = bucketsOf(logits, top, temperature);
  const sizes = new Int32Array(BUCKETS);
  for (let place = 0; place < buckets.length; place++) {
    const bucket = buckets[place] ?? 0;
    sizes[bucket] = (sizes[bucket] ?? 0) + 1;
  }
  return ranked(logits, buckets, bucketsFor(sizes, count)).subarray(0, count);
}

/** The shortest run of candidates by (logit down, id up) whose weights reach `topP` of all; ids ascending. */
function massPrefix(
  logits: Float32Array,
  top: number,
  temperature: number,
  { ids, weights }: Candidates,
  topP: number,
): Candidates {
  const goal = topP * sum(weights);
  const own = new Float32Array(ids.length);
  for (let place = 0; place < ids.length; place++) own[place] = logits[ids[place] ?? 0] ?? 0;
  const buckets = bucketsOf(own, top, temperature);
  const masses = new Float64Array(BUCKETS);
  for (let place = 0; place < buckets.length; place++) {
    const bucket = buckets[place] ?? 0;
    masses[bucket] = (masses[bucket] ?? 0) + (weights[place] ?? 0);
  }
  // Summed in another order, masses are off in the last bits: then one more look, at everything.
  for (const last of [bucketsFor(masses, goal), BUCKETS - 1]) {
    const places = ranked(own, buckets, last);
    let running = 0;
    let length = 0;
    while (length < places.length && (length === 0 || running < goal)) {
      running += weights[places[length] ?? 0] ?? 0;
      length += 1;
    }
    if (running >= goal || places.length === ids.length) {
      return taken({ ids, weights }, ascending(places.subarray(0, length), own.length));
    }
  }
  return { ids, weights };
}

/** Which of BUCKETS each logit falls into, from the best one down to LOWEST_EXPONENT; the last takes all below. */
function bucketsOf(logits: Float32Array, top: number, temperature: number): Uint16Array {
  const scale = BUCKETS / (-LOWEST_EXPONENT * temperature);
  const buckets = new Uint16Array(logits.length);
  for (let place = 0; place < logits.length; place++) {
    buckets[place] = Math.min(BUCKETS - 1, (top - (logits[place] ?? 0)) * scale);
  }
  return buckets;
}

/** The last bucket that is needed to reach `goal`. */
function bucketsFor(contents: Int32Array | Float64Array, goal: number): number {
  let inside = contents[0] ?? 0;
  let last = 0;
  while (inside < goal && last < BUCKETS - 1) {
    last += 1;
    inside += contents[last] ?? 0;
  }
  return last;
}

/** Places of the logits in buckets up to `last`, by (logit down, place up): a radix sort, 11 bits at a time. */
function ranked(logits: Float32Array, buckets: Uint16Array, last: number): Int32Array {
  const bits = new Uint32Array(logits.buffer, logits.byteOffset, logits.length);
  let places = new Int32Array(logits.length);
  let count = 0;
  for (let place = 0; place < logits.length; place++) {
    if ((buckets[place] ?? 0) <= last) places[count++] = place;
  }
  places = places.subarray(0, count);
  let ranks = new Uint32Array(count);
  for (let at = 0; at < count; at++) {
    const word = bits[places[at] ?? 0] ?? 0;
    // 0 is the highest float32; -0 and 0 are equal, so that their ids decide.
    ranks[at] = word > MINUS_ZERO ? word : 0x7fffffff - (word === MINUS_ZERO ? 0 : word);
  }
  for (const shift of [0, 11, 22]) {
    const ends = new Int32Array(2049);
    for (let at = 0; at < count; at++) {
      const digit = (((ranks[at] ?? 0) >>> shift) & 2047) + 1;
      ends[digit] = (ends[digit] ?? 0) + 1;
    }
    for (let digit = 1; digit < 2049; digit++) ends[digit] = (ends[digit] ?? 0) + (ends[digit - 1] ?? 0);
    const nextPlaces = new Int32Array(count);
    const nextRanks = new Uint32Array(count);
    for (let at = 0; at < count; at++) {
      const rank = ranks[at] ?? 0;
      const digit = (rank >>> shift) & 2047;
      const to = ends[digit] ?? 0;
      ends[digit] = to + 1;
      nextPlaces[to] = places[at] ?? 0;
      nextRanks[to] = rank;
    }
    places = nextPlaces;
    ranks = nextRanks;
  }
  return places;
}

/** The same places in order; a mark for each beats sorting when there are many. */
function ascending(places: Int32Array, most: number): Int32Array {
  const marked = new Uint8Array(most);
  for (let at = 0; at < places.length; at++) marked[places[at] ?? 0] = 1;
  const ordered = new Int32Array(places.length);
  let count = 0;
  for (let place = 0; place < most; place++) if (marked[place] === 1) ordered[count++] = place;
  return ordered;
}

function taken({ ids, weights }: Candidates, places: Int32Array): Candidates {
  return {
    ids: places.map((at) => ids[at] ?? 0),
    weights: Float64Array.from(places, (at) => weights[at] ?? 0),
  };
}

/** Strictly left to right. */
function sum(values: Float64Array): number {
  let total = 0;
  for (let at = 0; at < values.length; at++) total += values[at] ?? 0;
  return total;
}

function checkIds(tokens: TokenIds, vocabulary: number): void {
  let low = tokens[0] ?? 0;
  let high = low;
  for (const token of tokens) {
    if (token < low) low = token;
    if (token > high) high = token;
  }
  if (low < 0 || high >= vocabulary) {
    throw new BadSampling(`token ids must be from 0 to ${vocabulary - 1}, got ${low} to ${high}`);
  }
}

function whole(name: string, value: number, limit: number): void {
  if (!Number.isSafeInteger(value) || value < 0 || value > limit) {
    throw new BadSampling(`${name} must be a whole number from 0 to ${limit}, got ${value}`);
  }
}

function roundHalfEven(value: number): number {
  const low = Math.floor(value);
  const rest = value - low;
  if (rest !== 0.5) return rest < 0.5 ? low : low + 1;
  return low % 2 === 0 ? low : low + 1;
}

/** Whether the tail must know the tokens so far: only then do they travel with OPEN. */
export function needsHistory(sampling: Sampling): boolean {
  return (
    sampling.repetitionPenalty !== 1 || sampling.frequencyPenalty !== 0 || sampling.presencePenalty !== 0
  );
}
