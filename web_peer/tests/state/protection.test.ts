/* The levels are those of Python: the log's vectors hold one command for each. */

import { expect, it } from 'vitest';

import { decodeCommand } from '../../src/state/member_commands';
import { levelOf, PRESETS, STANDARD } from '../../src/state/protection';
import { vectors } from '../vectors';

interface Vectors {
  readonly traces: { name: string; ops: { command: string }[] }[];
}

it('levels are presets', () => {
  const { traces } = vectors('mesh_state') as Vectors;
  const ops = traces.find(({ name }) => name === 'how answers are protected')?.ops ?? [];
  const chosen = ops.map(({ command }) => decodeCommand(new TextEncoder().encode(command)));
  const protections = chosen.flatMap((each) => (each.kind === 'ProtectionChosen' ? [each.protection] : []));
  expect(protections.slice(0, 4)).toEqual(Object.values(PRESETS));
  expect(protections.map(levelOf)).toEqual(['basic', 'standard', 'high', 'critical', null]);
  expect(levelOf({ ...STANDARD, together: false })).toBeNull();
});
