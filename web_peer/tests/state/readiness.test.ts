/* Why a mesh without a model that answers in words answers nothing, and whether it runs what it offers. */

import { expect, it } from 'vitest';

import type { Member, MemberStatus, ModelOffer } from '../../src/state/generated/commands';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import { NO_WORDS, NOTHING, runsAny, whyNotReady } from '../../src/state/readiness';

const ADA = 'a'.repeat(32);
const BOB = 'b'.repeat(32);

function offered(...primaries: readonly string[]): ModelOffer {
  const stages = primaries.map((primary, at) => ({
    ...{ first: at, stop: at + 1, primary, standbys: [], bytes: 0 },
  }));
  return { model: 'c', version: 1, stages, latencyUs: 0, rateMilli: 0, why: [] };
}

function mesh(offers: Readonly<Record<string, ModelOffer>>, status: MemberStatus): MeshState {
  const member: Member = {
    ...{ peer: ADA, name: 'Ada', compute: true, status, profile: null, held: [], reason: '' },
    ...{ headless: false, durable: false, incarnation: 0 },
  };
  return { ...EMPTY_STATE, members: new Map([[ADA, member]]), offers: new Map(Object.entries(offers)) };
}

it.each([
  [{}, 'measured', false, `${NO_WORDS}: ${NOTHING}`],
  [{ ocr: offered() }, 'measured', false, `${NO_WORDS}: shoal run asks ocr`],
  [{ ocr: offered(ADA) }, 'measured', true, `${NO_WORDS}: shoal run asks ocr`],
  [{ ocr: offered(ADA) }, 'paused', false, `${NO_WORDS}: shoal run asks ocr`],
  [{ ocr: offered(ADA, BOB) }, 'measured', false, `${NO_WORDS}: shoal run asks ocr`],
  [{ ocr: offered(BOB), det: offered(ADA) }, 'measured', true, `${NO_WORDS}: shoal run asks det, ocr`],
] as const)('%j, %s', (offers, status, runs, said) => {
  const state = mesh(offers, status);
  expect([runsAny(state), whyNotReady(state)]).toEqual([runs, said]);
});
