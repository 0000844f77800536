/*
 * Decides how the log says among which plans a plan was chosen, with figures in whole numbers (twin of
 * peer/state/plan_alternatives.py). Pure.
 */

import { flag, list, record, text, uint } from '../wire/json_codec';

export const MAX_CHOICES = 16;

/** A plan that was looked at; `tokenUs` 0: it cannot run, and has no figures. */
export interface ChoiceRecord {
  readonly name: string; // "PEER FIRST-STOP > PEER FIRST-STOP", or words
  readonly tokenUs: number; // of one answer
  readonly prefillUs: number; // of one token of a prompt
  readonly rateMilli: number; // thousandths of tokens per second, all promised sessions together
  readonly memoryBytes: number; // on the peer that it fills most
  readonly chosen: boolean;
  readonly best: boolean; // none beats it in both time and rate
  readonly knee: boolean;
  readonly whyNot: string; // in numbers, for people
}

const choice = record<ChoiceRecord>('ChoiceRecord', {
  name: text,
  tokenUs: uint,
  prefillUs: uint,
  rateMilli: uint,
  memoryBytes: uint,
  chosen: flag,
  best: flag,
  knee: flag,
  whyNot: text,
});

export const choicesCodec = list(choice, MAX_CHOICES);
