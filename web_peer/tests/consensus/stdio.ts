/*
 * A core of TypeScript as a child process: one JSON line {now, event} in, one {effects, digest} out, where an event is
 * as traces write it. A line that the core refuses is answered by {error}.
 */

import { createInterface } from 'node:readline';

import { textOf, valueOf } from '../../src/consensus/trace_json';
import { Core } from '../../src/consensus/core';
import type { Event } from '../../src/consensus/events';

interface Line {
  readonly core?: string; // which of several; each begins with a boot
  readonly now: number;
  readonly event: unknown;
  readonly digest?: boolean; // false: none is wanted
}

const cores = new Map<string, Core>();

function answer({ core: name = '', now, event, digest = true }: Line): string {
  const read = valueOf(event) as Event;
  if (read.kind === 'boot') cores.set(name, new Core());
  const core = cores.get(name) ?? new Core();
  const effects = core.step(now, read);
  return textOf(digest ? { effects, digest: core.digest() } : { effects });
}

for await (const line of createInterface({ input: process.stdin })) {
  let said: string;
  try {
    said = answer(JSON.parse(line) as Line);
  } catch (error) {
    said = textOf({ error: error instanceof Error ? error.message : 'thrown' });
  }
  process.stdout.write(`${said}\n`);
}
