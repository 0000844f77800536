/*
 * Decides what protects answers: how many copies, how standbys follow, how a loss is repaired, what is logged (twin of
 * peer/state/protection.py). A level is a named preset; each setting can be given alone.
 */

import type { Protection } from './generated/commands';

export type Level = 'basic' | 'standard' | 'high' | 'critical';

const MIB = 2 ** 20;

/** Holds in a mesh where nobody chose. */
export const STANDARD: Protection = {
  redundancyMilli: 1500,
  spare: true,
  shadow: 'log',
  strategy: 'progressive',
  transactions: true,
  priority: [],
  together: true,
  logSessionBytes: 32 * MIB,
  logTotalBytes: 256 * MIB,
};

export const PRESETS: Readonly<Record<Level, Protection>> = {
  basic: {
    redundancyMilli: 1000,
    spare: false,
    shadow: 'off',
    strategy: 'simple',
    transactions: false,
    priority: [],
    together: false,
    logSessionBytes: 8 * MIB,
    logTotalBytes: 64 * MIB,
  },
  standard: STANDARD,
  high: { ...STANDARD, redundancyMilli: 2000, shadow: 'shadow', strategy: 'parallel' },
  critical: {
    ...STANDARD,
    redundancyMilli: 3000,
    shadow: 'shadow',
    strategy: 'coordinated',
    logSessionBytes: 64 * MIB,
    logTotalBytes: 512 * MIB,
  },
};

/** The level whose preset this is; null for settings given alone. */
export function levelOf(protection: Protection): Level | null {
  const wanted = spelled(protection);
  for (const level of ['basic', 'standard', 'high', 'critical'] as const) {
    if (spelled(PRESETS[level]) === wanted) return level;
  }
  return null;
}

function spelled(of: Protection): string {
  return JSON.stringify([
    of.redundancyMilli,
    of.spare,
    of.shadow,
    of.strategy,
    of.transactions,
    of.priority,
    of.together,
    of.logSessionBytes,
    of.logTotalBytes,
  ]);
}
