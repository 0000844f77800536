import { beforeEach, describe, expect, test } from 'vitest';

import { DeviceLost } from '../../src/errors';
import type { CachePart, Execution, KvCopy } from '../../src/runtime/execution';
import type { FrontWork } from '../../src/runtime/prefix_kv';
import type { KvSlots, Move, Span } from '../../src/runtime/kv_slots';
import { GREEDY } from '../../src/session/sampling';
import { PIECE_TOKENS } from '../../src/runtime/piece_sizes';
import { type Answer, REFUSALS, Stage, type Step } from '../../src/runtime/stage_runtime';

const WIDTH = 4;
const VOCAB = 16;
const widths = { hidden: WIDTH, vocab: VOCAB };
const tick = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

/** Adds one to every activation; the logits' best token is what the first activation of a row rounds to. */
class AddsOne implements Execution {
  readonly provider = 'wasm';
  readonly weightBytes = 0;
  readonly kvBytes = 0;
  readonly overheadBytes = 0;
  readonly calls: string[] = [];
  result = 1; // what is added
  broken = false;
  lost = false;
  tokenMs = 0; // what each token takes of `clockMs`
  clockMs = 0;
  mostRows = Infinity;
  onFree = (): unknown => undefined;
  during: (() => void) | null = null;
  onEmbed = (): unknown => undefined;
  readonly hasEmbed: boolean;
  readonly hasHead: boolean;
  widestHead = 64;
  leastHeld = 0; // positions; fewer were dropped by a window

  constructor(hasEmbed: boolean, hasHead: boolean) {
    this.hasEmbed = hasEmbed;
    this.hasHead = hasHead;
  }

  ensure(_slots: KvSlots, rows: number, positions: number): void {
    if (rows > this.mostRows) throw new Error('out of memory');
    this.calls.push(`room ${rows} ${positions}`);
  }

  move({ source, target, length }: Move): void {
    this.calls.push(`move ${source} ${target} ${length}`);
  }

  copied(row: number, count: number): KvCopy {
    this.calls.push(`copy ${row} ${count}`);
    const free = (): void => {
      this.calls.push(`free ${count}`);
      this.onFree();
    };
    return { bytes: count, free };
  }

  put(row: number, copy: KvCopy): void {
    this.calls.push(`put ${row} ${copy.bytes}`);
  }

  read(row: number, count: number, names: readonly string[]): Promise<Float32Array<ArrayBuffer>> {
    this.calls.push(`read ${row} ${count} ${names.join(' ')}`);
    return Promise.resolve(Float32Array.of(row, count));
  }

  write(row: number, count: number, parts: readonly CachePart[]): boolean {
    for (const { names, have } of parts) {
      this.calls.push(`write ${row} ${count} of ${have} ${names.join(' ')}`);
    }
    return true;
  }

  holds(_row: number, length: number): boolean {
    return length >= this.leastHeld;
  }

  async embed(tokens: Int32Array): Promise<Float32Array> {
    await tick();
    this.onEmbed();
    return Float32Array.from(
      { length: tokens.length * WIDTH },
      (_, at) => tokens[Math.floor(at / WIDTH)] ?? 0,
    );
  }

  async decode(hidden: Float32Array, span: Span, lengths: readonly number[]): Promise<Float32Array> {
    this.calls.push(`decode ${span.start}-${span.stop} [${lengths.join(' ')}]`);
    return this.run(hidden);
  }

  async prompt(hidden: Float32Array, row: number, length: number): Promise<Float32Array> {
    this.calls.push(`prompt ${row} ${length}+${hidden.length / WIDTH}`);
    return this.run(hidden);
  }

  head(hidden: Float32Array): Promise<Float32Array> {
    const logits = new Float32Array((hidden.length / WIDTH) * VOCAB);
    for (let row = 0; row < hidden.length / WIDTH; row++)
      logits[row * VOCAB + (hidden[row * WIDTH] ?? 0)] = 1;
    return Promise.resolve(logits);
  }

  close(): void {
    this.calls.push('close');
  }

  private async run(hidden: Float32Array): Promise<Float32Array> {
    await tick();
    this.clockMs += (this.tokenMs * hidden.length) / WIDTH;
    this.during?.();
    if (this.lost) throw new DeviceLost('the GPU device is gone');
    if (this.broken) throw new Error('out of memory');
    return hidden.map((value) => value + this.result);
  }
}

let execution: AddsOne;
let stage: Stage;

function make(hasEmbed: boolean, hasHead: boolean, slots = 3, context = 200): void {
  execution = new AddsOne(hasEmbed, hasHead);
  stage = new Stage(execution, widths, { slots, context }, () => execution.clockMs);
}

function step(session: string, position: number, count: number, more: Partial<Step> = {}): Step {
  const input = execution.hasEmbed
    ? { tokens: new Int32Array(count).fill(3), hidden: null }
    : { tokens: null, hidden: new Float32Array(count * WIDTH).fill(3) };
  const pick = execution.hasHead
    ? { sampling: GREEDY, position: position + count, history: [], generated: 0 }
    : null;
  return {
    session,
    turn: 7,
    position,
    last: true,
    pick,
    mostRows: 0,
    prompt: false,
    behind: false,
    shift: 0,
    ...input,
    ...more,
  };
}

async function all(): Promise<Answer[]> {
  const answers: Answer[] = [];
  while (stage.busy) answers.push(...(await stage.turn()));
  return answers;
}

async function run(...steps: Step[]): Promise<Answer[]> {
  for (const one of steps) stage.submit(one);
  return all();
}

const ran = (): string[] => execution.calls.filter((call) => /^(decode|prompt)/.test(call));

describe('a whole model whose asker keeps embedding and head', () => {
  beforeEach(() => make(true, true));

  test('takes activations, hands activations back and draws nothing', async () => {
    const hidden = new Float32Array(5 * WIDTH).fill(3);
    const answers = await run(
      step('a', 0, 5, { tokens: null, hidden, last: false, pick: null, prompt: true }),
      step('a', 5, 1, { tokens: null, hidden: hidden.slice(0, WIDTH), last: false, pick: null }),
    );
    const states = answers.map((answer) =>
      answer.kind === 'done' ? [...(answer.hidden ?? [])] : answer.text,
    );
    expect(states).toEqual([Array(5 * WIDTH).fill(4), Array(WIDTH).fill(4)]);
    expect(answers.every((answer) => answer.kind === 'done' && answer.token === null)).toBe(true);
  });

  test('refuses what is no activation', async () => {
    const hidden = new Float32Array(WIDTH + 1);
    const [answer] = await run(step('a', 0, 1, { tokens: null, hidden, last: false, pick: null }));
    expect(answer).toMatchObject({ kind: 'refused', reason: REFUSALS.failed });
  });
});

describe('a middle stage', () => {
  beforeEach(() => make(false, false));

  test('answers with activations, the turn and what is cached', async () => {
    const [answer] = await run(step('a', 0, 5, { last: false }));
    expect(answer).toMatchObject({ kind: 'done', session: 'a', turn: 7, position: 0, count: 5, token: null });
    expect(answer?.kind === 'done' && [...(answer.hidden ?? [])]).toEqual(Array(5 * WIDTH).fill(4));
    expect(stage.lengths()).toEqual(new Map([['a', 5]]));
  });

  test('batches decodes of different sessions in one call', async () => {
    await run(step('a', 0, 5), step('b', 0, 3), step('c', 0, 2));
    execution.calls.length = 0;
    const answers = await run(step('a', 5, 1), step('b', 3, 1), step('c', 2, 1));
    expect(ran()).toEqual(['decode 0-3 [5 3 2]']);
    expect(answers.map((answer) => answer.session)).toEqual(['a', 'b', 'c']);
  });

  test('an idle row rides along with its own length', async () => {
    await run(step('a', 0, 5), step('b', 0, 3), step('c', 0, 2));
    execution.calls.length = 0;
    await run(step('a', 5, 1), step('c', 2, 1));
    expect(ran()).toEqual(['decode 0-3 [5 3 2]']);
    expect(stage.lengths().get('b')).toBe(3);
  });

  test('a batch holds as few rows as its steps ask for', async () => {
    await run(step('a', 0, 2), step('b', 0, 2));
    execution.calls.length = 0;
    await run(step('a', 2, 1, { mostRows: 1 }), step('b', 2, 1, { mostRows: 1 }));
    expect(ran()).toEqual(['decode 0-1 [2]', 'decode 1-2 [2]']);
  });

  test('pieces of prompts take turns, and decodes pass between them', async () => {
    await run(step('c', 0, 2));
    execution.calls.length = 0;
    stage.submit(step('a', 0, PIECE_TOKENS + 6));
    stage.submit(step('b', 0, PIECE_TOKENS + 1));
    await stage.turn();
    stage.submit(step('c', 2, 1));
    await all();
    expect(ran()).toEqual([
      `prompt 1 0+${PIECE_TOKENS}`,
      'decode 0-1 [2]',
      `prompt 2 0+${PIECE_TOKENS}`,
      `prompt 1 ${PIECE_TOKENS}+6`,
      `prompt 2 ${PIECE_TOKENS}+1`,
    ]);
  });

  test('while answers are under way, pieces take no longer than their batches come apart', async () => {
    execution.tokenMs = 1;
    await run(step('c', 0, 2), step('a', 0, PIECE_TOKENS));
    for (let position = 2; position < 6; position++) {
      await run(step('c', position, 1));
      execution.clockMs += 3;
    }
    execution.calls.length = 0;
    stage.submit(step('b', 0, 8));
    for (let position = 6; stage.busy; position++) {
      stage.submit(step('c', position, 1));
      await stage.turn();
    }
    expect(ran()).toEqual(['decode 0-1 [6]', 'prompt 2 0+4', 'decode 0-1 [7]', 'prompt 2 4+4']);
    stage.release('c');
    await run(step('b', 8, PIECE_TOKENS));
    expect(ran().at(-1)).toBe(`prompt 0 8+${PIECE_TOKENS}`);
  });

  test('steps of one session run in order, whatever their kind', async () => {
    const answers = await run(step('a', 0, 3), step('a', 3, 1), step('a', 4, 1));
    expect(answers.map((answer) => answer.kind)).toEqual(['done', 'done', 'done']);
    expect(stage.lengths().get('a')).toBe(5);
  });

  test('a step before the cached end goes back', async () => {
    await run(step('a', 0, 10));
    const [answer] = await run(step('a', 4, 1));
    expect(answer?.kind).toBe('done');
    expect(stage.lengths().get('a')).toBe(5);
  });

  test.each([
    { name: 'a gap', bad: (): Step => step('a', 4, 1), reason: REFUSALS.missingPosition, have: 3 },
    {
      name: 'a negative position',
      bad: (): Step => step('a', -1, 1),
      reason: REFUSALS.missingPosition,
      have: 3,
    },
    {
      name: 'past the context',
      bad: (): Step => step('a', 3, 198),
      reason: REFUSALS.contextOverflow,
      have: 3,
    },
    {
      name: 'NaN',
      bad: (): Step => step('a', 3, 1, { hidden: new Float32Array(WIDTH).fill(NaN) }),
      reason: REFUSALS.notFiniteInput,
      have: 3,
    },
    {
      name: 'infinity',
      bad: (): Step => step('a', 3, 1, { hidden: Float32Array.of(0, Infinity, -Infinity, 0) }),
      reason: REFUSALS.notFiniteInput,
      have: 3,
    },
    {
      name: 'another width',
      bad: (): Step => step('a', 3, 1, { hidden: new Float32Array(WIDTH + 1) }),
      reason: REFUSALS.failed,
      have: 3,
    },
    { name: 'nothing', bad: (): Step => step('a', 3, 0), reason: REFUSALS.failed, have: 3 },
  ])('refuses $name and keeps what is cached', async ({ bad, reason, have }) => {
    await run(step('a', 0, 3));
    const [answer] = await run(bad());
    expect(answer).toMatchObject({ kind: 'refused', session: 'a', turn: 7, reason, have });
    expect(stage.lengths().get('a')).toBe(have);
  });

  test('refuses a session too many until one is released', async () => {
    await run(step('a', 0, 2), step('b', 0, 2), step('c', 0, 2));
    expect(await run(step('d', 0, 2))).toMatchObject([{ kind: 'refused', reason: REFUSALS.noSlot }]);
    stage.release('a');
    expect(await run(step('d', 0, 2))).toMatchObject([{ kind: 'done' }]);
    expect(execution.calls).toContain('move 2 0 2');
  });

  test('a result that is not finite is refused, and its positions are not kept', async () => {
    await run(step('a', 0, 3));
    execution.result = NaN;
    const answers = await run(step('a', 3, 1), step('b', 0, 5));
    expect(answers.map((answer) => answer.kind === 'refused' && answer.reason)).toEqual([5, 5]);
    expect(stage.lengths().get('a')).toBe(3);
  });

  test('a call that fails refuses its steps and leaves the others be', async () => {
    await run(step('a', 0, 3), step('b', 0, 3));
    execution.broken = true;
    expect(await run(step('a', 3, 1))).toMatchObject([
      {
        kind: 'refused',
        reason: REFUSALS.failed,
        have: 3,
        text: expect.stringContaining('out of memory') as string,
      },
    ]);
    execution.broken = false;
    expect(await run(step('a', 3, 1))).toMatchObject([{ kind: 'done' }]);
  });

  test('truncation waits for the steps before it', async () => {
    stage.submit(step('a', 0, 10));
    stage.truncate('a', 4);
    stage.submit(step('a', 4, 1));
    const answers = await all();
    expect(answers.map((answer) => answer.kind)).toEqual(['done', 'done']);
    expect(stage.lengths().get('a')).toBe(5);
  });

  test('a session whose window has dropped what it takes back begins again', async () => {
    await run(step('a', 0, 20));
    execution.leastHeld = 10;
    expect(await run(step('a', 9, 1))).toMatchObject([{ have: 0, reason: REFUSALS.missingPosition }]);
    await run(step('a', 0, 20));
    expect(await run(step('a', 10, 1))).toMatchObject([{ kind: 'done' }]);
    stage.truncate('a', 4);
    expect(await run(step('a', 4, 1))).toMatchObject([{ have: 0 }]);
  });

  test('pieces of wide heads do not end at another place than all before them', async () => {
    execution.widestHead = 256;
    await run(step('a', 0, 200));
    const pieces = execution.calls.filter((call) => call.startsWith('prompt'));
    expect(pieces).toEqual(['prompt 0 0+63', 'prompt 0 63+64', 'prompt 0 127+64', 'prompt 0 191+9']);
  });

  test('a release in mid-call drops the answer and frees the slot afterwards', async () => {
    await run(step('a', 0, 3), step('b', 0, 3));
    execution.during = () => {
      execution.during = null;
      stage.release('a');
      stage.submit(step('a', 0, 2)); // the same session again, from its beginning
    };
    const answers = await run(step('a', 3, 1), step('b', 3, 1));
    expect(answers.map(({ session, position, kind }) => `${session} ${position} ${kind}`)).toEqual([
      'b 3 done',
      'a 0 done',
    ]);
    expect(stage.lengths()).toEqual(
      new Map([
        ['b', 4],
        ['a', 2],
      ]),
    );
  });

  test('a release in the middle of a prompt ends it', async () => {
    stage.submit(step('a', 0, 3 * PIECE_TOKENS));
    await stage.turn();
    stage.release('a');
    expect(await all()).toEqual([]);
    expect(stage.lengths()).toEqual(new Map());
  });
});

describe('fronts of prompts', () => {
  beforeEach(() => make(false, false));
  const front = (what: FrontWork['what'], session: string, count: number): void =>
    stage.front({ what, session, digest: 'd', count });

  test('a session begins with a copy, and only what follows runs', async () => {
    await run(step('a', 0, 5, { prompt: true }));
    front('keep', 'a', 4);
    front('share', 'b', 4);
    const answers = await run(step('b', 4, 2, { prompt: true }));
    expect(answers).toMatchObject([{ kind: 'done', session: 'b', position: 4, count: 2 }]);
    expect(execution.calls.filter((call) => /^(copy|put|prompt)/.test(call))).toEqual([
      'prompt 0 0+5',
      'copy 0 4',
      'put 1 4',
      'prompt 1 4+2',
    ]);
    expect(stage.frontBytes).toBe(4);
    front('drop', '', 0);
    await all();
    expect(stage.frontBytes).toBe(0);
    expect(execution.calls.at(-1)).toBe('free 4');
  });

  test('a release before or behind a copy finds its session', async () => {
    await run(step('a', 0, 5));
    front('keep', 'a', 4);
    stage.release('a');
    front('share', 'b', 4);
    stage.release('b');
    await all();
    expect(stage.lengths()).toEqual(new Map());
    front('share', 'c', 4);
    await all();
    expect(stage.lengths()).toEqual(new Map([['c', 4]]));
  });

  test('what is not there is computed: the step says what it lacks', async () => {
    await run(step('a', 0, 3));
    front('keep', 'a', 4); // not computed so far
    front('share', 'b', 4);
    expect(await run(step('b', 4, 2))).toMatchObject([
      { kind: 'refused', have: 0, reason: REFUSALS.missingPosition },
    ]);
  });

  test('they go before a session does when memory is short', async () => {
    await run(step('a', 0, 5));
    front('keep', 'a', 4);
    await all();
    execution.mostRows = 1;
    execution.onFree = () => (execution.mostRows = 2);
    expect(await run(step('b', 0, 5))).toMatchObject([{ kind: 'done', session: 'b' }]);
    expect(stage.frontBytes).toBe(0);
  });
});

describe('caches of answers that move', () => {
  beforeEach(() => make(false, false));
  const heard: unknown[] = [];
  const done = (what: unknown): void => void heard.push(what);
  const part: CachePart = { names: ['key.0', 'value.0'], have: 6, values: new Float32Array(12) };
  beforeEach(() => heard.splice(0));
  const moved = (): string[] => execution.calls.filter((call) => /^(move|read|write)/.test(call));

  test('go from one row to another, and the session goes on behind them', async () => {
    await run(step('a', 0, 5, { prompt: true }));
    stage.cache({ what: 'share', session: 'b', source: 'a', count: 4, done });
    const answers = await run(step('b', 4, 1), step('a', 5, 1));
    expect(answers).toMatchObject([
      { kind: 'done', session: 'b', position: 4 },
      { kind: 'done', session: 'a', position: 5 },
    ]);
    expect(moved()).toEqual(['move 0 1 4']);
    expect(heard).toEqual([true]);
  });

  test('are read as numbers, and put as such', async () => {
    await run(step('a', 0, 5));
    stage.cache({ what: 'read', session: 'a', count: 5, names: ['key.0'], done });
    stage.cache({ what: 'write', session: 'b', count: 4, parts: [part, part], done });
    await all();
    expect(await heard[0]).toEqual(Float32Array.of(0, 5));
    expect(heard[1]).toBe(true);
    const write = 'write 1 4 of 6 key.0 value.0';
    expect(moved()).toEqual(['read 0 5 key.0', write, write]);
    expect(stage.lengths()).toEqual(
      new Map([
        ['a', 5],
        ['b', 4],
      ]),
    );
  });

  test('that are not there, or have no room, change nothing', async () => {
    make(false, false, 2, 8);
    await run(step('a', 0, 5));
    stage.cache({ what: 'read', session: 'a', count: 6, names: [], done });
    stage.cache({ what: 'read', session: 'x', count: 0, names: [], done });
    stage.cache({ what: 'share', session: 'b', source: 'a', count: 6, done });
    stage.cache({ what: 'share', session: 'b', source: 'x', count: 0, done });
    stage.cache({ what: 'write', session: 'b', count: 8, parts: [part], done }); // the whole context
    await all();
    expect(heard).toEqual([null, null, false, false, false]);
    expect(stage.lengths()).toEqual(new Map([['a', 5]]));
    execution.mostRows = 1; // memory is short
    stage.cache({ what: 'write', session: 'b', count: 4, parts: [part], done });
    await all();
    expect(heard.at(-1)).toBe(false);
    expect(await run(step('b', 4, 1))).toMatchObject([{ have: 0, reason: REFUSALS.missingPosition }]);
    execution.mostRows = 2;
    await run(step('b', 0, 1));
    stage.cache({ what: 'write', session: 'c', count: 4, parts: [part], done }); // both rows are taken
    await all();
    expect(heard.at(-1)).toBe(false);
    expect(moved()).toEqual([]);
  });

  test('of a session that is over by then are not given', async () => {
    await run(step('a', 0, 5));
    stage.release('a');
    stage.cache({ what: 'share', session: 'b', source: 'a', count: 4, done });
    await all();
    expect(heard).toEqual([false]);
  });
});

test.each([
  ['a prompt', 3],
  ['a decode', 1],
])('%s that breaks off with its device is not refused: somebody else computes it again', async (_, count) => {
  const lost = new AddsOne(false, false);
  lost.lost = true;
  const stage = new Stage(lost, widths, { slots: 2, context: 64 });
  stage.submit(step('a', 0, count));
  await expect(stage.turn()).rejects.toThrow(DeviceLost);
});

describe('a whole model', () => {
  beforeEach(() => make(true, true));

  test('the head runs for the last token and the pick is its token', async () => {
    const [answer] = await run(step('a', 0, 5));
    expect(answer).toMatchObject({ kind: 'done', count: 5, hidden: null, token: 4 });
    expect(await run(step('a', 5, 1))).toMatchObject([{ token: 4 }]);
  });

  test('a chunk that is not the last one draws nothing', async () => {
    expect(await run(step('a', 0, 5, { last: false, pick: null }))).toMatchObject([{ token: null }]);
  });

  test.each([[-1], [VOCAB]])('token %s is refused', async (token) => {
    const [answer] = await run(step('a', 0, 1, { tokens: Int32Array.of(token) }));
    expect(answer).toMatchObject({ kind: 'refused', reason: REFUSALS.failed });
  });
});
