/* The page's decisions: turns of a conversation, steps of joining, members in words, the picture, keys, troubles. */

import { describe, expect, it } from 'vitest';

import { Config } from '../../../src/consensus/records';
import { EMPTY_STATE, type MeshState } from '../../../src/state/mesh_state';
import type {
  Decoder,
  Member as StateMember,
  ModelOffer,
  PlanRecord,
  RunStage,
} from '../../../src/state/generated/commands';
import { choicesOf, keptPledge, pledgeRange } from '../../../ui/conversation/saved_choices';
import { meshView, readable, type Seen } from '../../../ui/mesh/members_view';
import { arcPath, boxesOf, hopsOf, memberText, overlap, pictureOf } from '../../../ui/mesh/mesh_geometry';
import { commandOf } from '../../../ui/app/shortcuts';
import { allDone, began, firstSteps, progressed, secondsLeft } from '../../../ui/join/join_steps';
import { phaseAfter } from '../../../ui/app/error_texts';
import { bytesText, delayText, isLoopback, runText, secondsText } from '../../../ui/kit/formatting';

describe('steps of joining', () => {
  const states = (steps: ReturnType<typeof firstSteps>): string =>
    steps.map(({ state }) => state[1]).join('');

  it('go on, never back', () => {
    let steps = began(firstSteps(), 'connect', '');
    expect(states(steps)).toBe('oaaa'); // doing, waiting x3
    steps = began(steps, 'fetch', 'layers 1–3');
    expect(steps.map(({ state }) => state)).toEqual(['done', 'done', 'doing', 'waiting']);
    expect(began(steps, 'measure', '')).toBe(steps);
    expect(allDone(steps).every(({ state }) => state === 'done')).toBe(true);
  });

  it('tell rate and time left', () => {
    let steps = began(firstSteps(), 'fetch', '');
    steps = progressed(steps, 'fetch', 0, 1000, 0);
    steps = progressed(steps, 'fetch', 100, 1000, 1);
    const fetch = steps[2];
    expect(fetch).toMatchObject({ done: 100, total: 1000, perSecond: 100 });
    expect(fetch === undefined ? null : secondsLeft(fetch)).toBe(9);
  });
});

describe('words', () => {
  it.each([
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1 kB'],
    [41_300_000, '41.3 MB'],
    [999_600_000, '1.0 GB'],
    [1_000_000_000, '1 GB'],
    [1_250_000_000, '1.3 GB'],
  ])('%i bytes are %s', (bytes, text) => expect(bytesText(bytes)).toBe(text));

  it.each([
    [0.2, '1 s'],
    [59, '59 s'],
    [61, '2 min'],
    [3600, '1 h'],
    [3900, '1 h 5 min'],
  ])('%d seconds are %s', (seconds, text) => expect(secondsText(seconds)).toBe(text));

  it.each([
    [0.04, '< 0.1 ms'],
    [1.44, '1.4 ms'],
    [23.6, '24 ms'],
  ])('%d ms are %s', (ms, text) => expect(delayText(ms)).toBe(text));

  // embed, 3 layers of attn and ffn, head: 8 units
  it.each([
    [[0, 8], 'the whole model'],
    [[0, 1], 'embedding'],
    [[0, 3], 'embedding, layer 1'],
    [[1, 7], 'layers 1–3'],
    [[0, 2], 'embedding, half of layer 1'],
    [[2, 5], 'half of layer 1, layer 2'],
    [[2, 3], 'half of layer 1'],
    [[3, 4], 'half of layer 2'],
    [[4, 8], 'half of layer 2, layer 3, head'],
    [[7, 8], 'head'],
  ] as const)('units %j are %s', ([first, stop], text) => expect(runText([first, stop], 8)).toBe(text));

  it.each([
    ['http://127.0.0.1:8765/#a.b', true],
    ['http://localhost/#a.b', true],
    ['https://mesh.example.org/#a.b', false],
    ['nonsense', false],
  ])('%s leads to this machine only: %s', (link, only) => expect(isLoopback(link)).toBe(only));
});

const ME = 'a'.repeat(32);
const FOUNDER = 'b'.repeat(32);
const GUEST = 'c'.repeat(32);

function member(peer: string, more: Partial<StateMember> = {}): StateMember {
  return {
    peer,
    name: 'tab',
    compute: true,
    status: 'measured',
    profile: null,
    held: [],
    reason: '',
    headless: false,
    durable: false,
    incarnation: 0,
    ...more,
  };
}
function plan(...stages: readonly (readonly [string, number, number])[]): PlanRecord {
  return {
    version: 1,
    stages: stages.map(([primary, first, stop]) => ({
      ...{ first, stop, primary, standbys: [] },
      ...{ weightBytes: 0, kvBytes: 0, overheadBytes: 0 },
    })),
    predictedTokenUs: 0,
    predictedRateMilli: 0,
    why: [],
    choices: [],
  };
}
function state(members: readonly StateMember[], more: Partial<MeshState> = {}): MeshState {
  const model: MeshState['model'] = {
    kind: 'ModelChosen',
    model: 'x',
    name: 'SmolLM2-135M-Instruct.Q4_1',
    units: 8,
    context: 2048,
    sessions: 4,
    objective: 'latency',
  };
  return { ...EMPTY_STATE, model, members: new Map(members.map((one) => [one.peer, one])), ...more };
}
const SEEN: Seen = {
  me: ME,
  coordinator: FOUNDER,
  consensus: null,
  busy: new Set(),
  rttS: new Map(),
  reports: new Map(),
  stepsPerS: new Map(),
  left: [],
  online: true,
  lost: false,
  sees: new Set(),
  hears: new Set(),
  unreached: new Set(),
  askable: new Set(),
};

describe('a mesh without a model that answers in words', () => {
  const stage = (primary: string, first: number, stop: number): RunStage => ({
    ...{ first, stop, primary, standbys: [], bytes: 0 },
  });
  const offer = (...stages: readonly RunStage[]): ModelOffer => ({
    ...{ model: 'b', version: 1, stages, latencyUs: 0, rateMilli: 0, why: [] },
  });
  const offers = new Map([
    ['towers', offer(stage(FOUNDER, 0, 2), stage(ME, 2, 3), stage(ME, 4, 5))],
    ['det', offer(stage(ME, 0, 7))],
  ]);
  const members = [member(FOUNDER, { name: 'studio' }), member(ME), member(GUEST, { compute: false })];
  const alone = (more: Partial<MeshState> = {}): MeshState =>
    state(members, { model: null, offers, ...more });

  it('says who runs which models, and that no question is answered', () => {
    const shown = meshView(alone(), SEEN);
    expect(shown).toMatchObject({ model: '', inWords: false, runs: true, answers: false });
    expect(shown.whyNot).toBe('No model here answers in words.');
    expect(shown.members.map((one) => memberText(one, 0))).toEqual([
      'det; unit 2, unit 4 of towers',
      'units 0–1 of towers',
      'asks only',
    ]);
  });

  it('runs nothing while nobody holds the units, and offline', () => {
    expect(meshView(alone({ offers: new Map() }), SEEN).runs).toBe(false);
    expect(meshView(alone({ offers: new Map([['det', offer()]]) }), SEEN).runs).toBe(false);
    expect(meshView(alone(), { ...SEEN, online: false }).runs).toBe(false);
    const paused = state([member(FOUNDER, { status: 'paused' })], {
      ...{ model: null, offers: new Map([['det', offer(stage(FOUNDER, 0, 1))]]) },
    });
    expect(meshView(paused, SEEN).runs).toBe(false);
    expect(meshView(EMPTY_STATE, SEEN).inWords).toBe(true); // nothing is known of it yet
  });
});

describe('the mesh as shown', () => {
  it('says who coordinates, who votes, and how far the log is', () => {
    const servers = [FOUNDER, GUEST, ME].map((id) => ({ id, incarnation: 1, voter: id === FOUNDER }));
    const consensus = { term: 3, config: new Config(servers), commit: 7, last: 9 };
    const known = state([member(FOUNDER, { name: 'studio' })]);
    expect(meshView(known, { ...SEEN, consensus }).coordination).toEqual({
      leader: 'studio',
      term: 3,
      voters: ['studio'],
      learners: 2,
      lag: 2,
    });
    expect(meshView(known, { ...SEEN, consensus, coordinator: null }).coordination?.leader).toBe('');
    expect(meshView(known, SEEN).coordination).toBeNull();
  });

  const held = [
    member(GUEST, { name: 'Ada', compute: false }),
    member(FOUNDER, { held: [{ first: 0, stop: 4 }] }),
    member(ME, { held: [{ first: 4, stop: 8 }] }),
  ];
  const serves = state(held, { plan: plan([FOUNDER, 0, 4], [ME, 4, 8]) });

  it('puts you first, then the pipeline, then who only asks; no two names are the same', () => {
    const view = meshView(serves, SEEN);
    expect(view.members.map(({ id }) => id)).toEqual([ME, FOUNDER, GUEST]);
    expect(view.members.map(({ name }) => name)).toEqual(['tab (aaaa)', 'tab (bbbb)', 'Ada']);
    expect(view).toMatchObject({
      model: 'SmolLM2 135M Instruct',
      answers: true,
      route: [FOUNDER, ME],
      whyNot: '',
    });
  });

  it('tells of each model that answers in words whether it does now', () => {
    const decoder: Decoder = {
      ...{ model: 'y', units: 4, context: 512, sessions: 2, objective: 'latency' },
      ...{
        plan: plan([ME, 0, 4]),
        proposed: null,
        refused: '',
        held: new Map([[ME, [{ first: 0, stop: 4 }]]]),
      },
    };
    const lacks = { ...decoder, plan: null, refused: 'it lacks 12 MiB', held: new Map() };
    const decoders = new Map([
      ['other', decoder],
      ['huge', lacks],
    ]);
    const hears = { ...decoder, model: 'z' };
    const all = new Map([...decoders, ['writer', hears]]);
    const seen = { ...SEEN, sees: new Set(['other']), hears: new Set(['writer']) };
    expect(meshView({ ...serves, decoders: all }, seen).models).toEqual([
      { name: '', label: 'SmolLM2 135M Instruct', context: 2048, answers: true, whyNot: '', sees: false },
      {
        ...{ name: 'huge', label: 'huge', context: 512, answers: false, sees: false },
        whyNot: 'The mesh cannot answer now: it lacks 12 MiB.',
      },
      { name: 'other', label: 'other', context: 512, answers: true, whyNot: '', sees: true },
    ]);
    const foundedWithout = { ...serves, decoders, model: null };
    expect(meshView(foundedWithout, SEEN)).toMatchObject({ models: [], inWords: false, hasOwn: false });
    const shown = meshView(foundedWithout, { ...SEEN, askable: new Set(['huge', 'other']) });
    expect(shown).toMatchObject({ model: '2 models', inWords: true, hasOwn: false, answers: true });
    expect(shown.models.map(({ name }) => name)).toEqual(['huge', 'other']);
    expect(shown.members.map(({ runs }) => runs)).toEqual(['other', '', '']);
    const [huge] = shown.models;
    expect(meshView(foundedWithout, { ...SEEN, askable: new Set(['huge']) })).toMatchObject({
      ...{ model: 'huge', answers: false, whyNot: huge?.whyNot },
    });
  });

  it('shows who answers, loads, and left', () => {
    const busy = meshView(serves, { ...SEEN, busy: new Set([ME, FOUNDER]) });
    expect(busy.members.map(({ status }) => status)).toEqual(['busy', 'busy', 'ready']);
    const loading = meshView(
      state([member(ME), member(FOUNDER, { status: 'joining' })], { proposed: plan([ME, 0, 8]) }),
      { ...SEEN, left: [member(GUEST)] },
    );
    const less = [
      member(ME, { status: 'draining', reason: 'the tab is hidden', held: [{ first: 0, stop: 8 }] }),
      member(FOUNDER, { status: 'draining', reason: 'the battery is low' }),
      member(GUEST, { status: 'paused', reason: 'the network is gone' }),
    ];
    expect(meshView(state(less), SEEN).members).toMatchObject([
      { id: ME, status: 'ready', doing: 'serves while nobody else can: the tab is hidden' },
      { id: FOUNDER, status: 'paused', doing: 'lends nothing now: the battery is low' },
      { id: GUEST, status: 'paused', doing: 'lends nothing now: the network is gone' },
    ]);
    expect(loading.members).toMatchObject([
      { id: ME, status: 'loading', doing: 'fetching the whole model', coming: [[0, 8]] },
      { id: FOUNDER, status: 'loading', doing: 'measuring itself' },
      { id: GUEST, status: 'gone' },
    ]);
    expect(loading.answers).toBe(false);
    expect(loading.whyNot).toContain('waiting for tab (bbbb)');
  });

  it('tells who stands by, and whether it could take over', () => {
    const spare = member(GUEST, { name: 'Ada', held: [] });
    const stages = plan([FOUNDER, 0, 4], [ME, 4, 8]);
    const backed = { ...stages, stages: stages.stages.map((stage) => ({ ...stage, standbys: [GUEST] })) };
    const members = [...held.slice(1), { ...spare, held: [{ first: 0, stop: 4 }] }];
    const shown = meshView(state(members, { plan: backed }), SEEN).members.find(({ id }) => id === GUEST);
    expect(shown?.standsBy).toEqual([
      { run: [0, 4], of: 'tab (bbbb)', ready: true },
      { run: [4, 8], of: 'tab (aaaa)', ready: false },
    ]);
    expect(shown?.facts.slice(0, 2)).toMatchObject([
      { label: 'Stands by for', tone: 'good' },
      { label: 'Stands by for', value: 'half of layer 2, layer 3, head of tab (aaaa): still loading' },
    ]);
    expect(shown === undefined ? '' : memberText(shown, 8)).toBe(
      'stands by for tab (bbbb) · loading to stand by for tab (aaaa)',
    );
  });

  it('says why no question can be answered', () => {
    const refused = meshView(state(held, { refused: `needs 5 MiB more on ${FOUNDER}` }), SEEN);
    expect(refused.whyNot).toBe('The mesh cannot answer now: needs 5 MiB more on tab (bbbb).');
    expect(meshView(serves, { ...SEEN, online: false })).toMatchObject({ answers: false });
    const paused = [FOUNDER, ME].map((peer) => member(peer, { status: 'paused', reason: 'by hand' }));
    for (const refused of ['', 'nobody is here']) {
      expect(meshView(state(paused, { refused }), SEEN).whyNot).toBe(
        'No answers now: all machines that lend to it are paused: one has to go on lending.',
      );
    }
    const asker = member(ME, { compute: false });
    expect(meshView(state([asker]), SEEN).whyNot).toBe(
      'No answers now: nobody lends a machine to it: one has to join.',
    );
  });

  it.each([
    ['cannot be reached', serves, { unreached: new Set([FOUNDER]) }, 'tab (bbbb) cannot be reached', ''],
    [
      'left',
      state([member(ME, { held: [{ first: 4, stop: 8 }] })], { plan: serves.plan }),
      { left: [member(FOUNDER)] },
      'tab (bbbb) left',
      '',
    ],
    [
      'has another part now',
      state([member(FOUNDER, { held: [] }), member(ME, { held: [{ first: 4, stop: 8 }] })], {
        plan: serves.plan,
        proposed: plan([ME, 0, 8]),
      }),
      {},
      'tab (bbbb) does not have it now',
      ' Others are loading it.',
    ],
  ])('says in one line which stage has nobody when its peer %s', (_, at, more, why, next) => {
    expect(meshView(at, { ...SEEN, ...more })).toMatchObject({
      answers: false,
      whyNot: `No answers now: nobody has embedding, layer 1, half of layer 2 (${why}).${next}`,
    });
  });

  it('answers over a standby of a stage whose peer cannot be reached', () => {
    const two = plan([FOUNDER, 0, 4], [ME, 4, 8]);
    const stages = two.stages.map((stage) => (stage.first === 0 ? { ...stage, standbys: [GUEST] } : stage));
    const stands = member(GUEST, { held: [{ first: 0, stop: 4 }] });
    const covered = state([stands, ...held.slice(1)], { plan: { ...two, stages } });
    expect(meshView(covered, { ...SEEN, unreached: new Set([FOUNDER]) })).toMatchObject({
      answers: true,
      whyNot: '',
    });
  });

  it('prefers the delay measured now', () => {
    const links = [{ src: FOUNDER, dst: ME, rttUs: 9000, bytesPerS: 1, overheadUs: 0 }];
    const fresh = meshView({ ...serves, links }, { ...SEEN, rttS: new Map([[FOUNDER, 0.002]]) });
    expect(fresh.links).toEqual([{ a: ME, b: FOUNDER, delayMs: 2 }]);
  });

  it('is said in words and drawn', () => {
    const view = meshView(serves, SEEN);
    const picture = pictureOf(view);
    expect(picture.places).toHaveLength(3);
    expect(picture.lines.map(({ onRoute }) => onRoute)).toEqual([true]);
    expect(picture.summary).toContain('tab (aaaa) (you): ready, half of layer 2, layer 3, head');
    expect(view.members.map((one) => memberText(one, 8))).toContain('asks only');
    expect(pictureOf(meshView(EMPTY_STATE, SEEN)).summary).toBe('Nobody is here yet.');
  });

  it.each([2, 3, 4, 5])('writes the delays of %i peers where nothing covers them', (count) => {
    const peers = ['a', 'b', 'c', 'd', 'e'].slice(0, count).map((one) => one.repeat(32));
    const members = peers.map((peer, at) =>
      member(peer, { name: `machine ${at} of the lab`, held: [{ first: at, stop: at + 1 }] }),
    );
    const links = peers.flatMap((src, at) =>
      peers.slice(at + 1).map((dst) => ({ src, dst, rttUs: 12_345, bytesPerS: 1, overheadUs: 0 })),
    );
    const { lines, places } = pictureOf(meshView({ ...state(members), links }, SEEN));
    const boxes = lines.flatMap(({ label }) => (label === null ? [] : [label]));
    expect(boxes.length).toBeGreaterThanOrEqual(count - 1);
    const all = [...boxes, ...places.flatMap(boxesOf)];
    boxes.forEach((box, at) => {
      expect(all.filter((other, there) => there !== at && overlap(box, other))).toEqual([]);
    });
  });

  it('sends dots over every hop of a token, and back to the first stage', () => {
    expect(hopsOf(['a', 'b', 'c'])).toEqual([
      ['a', 'b'],
      ['b', 'c'],
      ['c', 'a'],
    ]);
    expect(hopsOf(['a'])).toEqual([]);
  });

  it('draws a share of the model as an arc', () => {
    expect(arcPath([0, 2], 8, 10)).toBe('M 0.00 -10.00 A 10 10 0 0 1 10.00 -0.00');
    expect(arcPath([0, 8], 8, 10)).toContain('A 10 10 0 1 1 0 10');
  });

  it('reads ids and units as names and layers', () => {
    expect(readable(`units 0-3 on ${ME} stopped`, new Map([[ME, 'studio']]), 8)).toBe(
      'Embedding, layer 1, half of layer 2 on studio stopped.',
    );
    expect(readable('', new Map(), 8)).toBe('');
  });
});

describe('troubles', () => {
  it.each([
    ['WrongLink', 'the link ends early', 'no-link', 'link'],
    ['InviteExpired', 'expired', 'out', 'link'],
    ['VersionMismatch', 'differs', 'out', 'reload'],
    ['ServerUnreachable', 'no answer', 'out', 'retry'],
    ['ConnectFailed', 'nobody', 'out', 'retry'],
    ['MeshError', 'the founder closed the mesh (bye)', 'out', 'retry'],
    ['MeshError', 'this page is older than the mesh: reload it', 'out', 'reload'],
    ['MeshError', 'the founder withdrew the invite you came with: ask for a new link', 'out', 'link'],
    ['TypeError', 'x is undefined', 'out', 'retry'],
  ])('%s (%s) is %s, and the way out is %s', (name, text, kind, remedy) => {
    const phase = phaseAfter({ name, text });
    expect(phase.kind).toBe(kind);
    const trouble = phase.kind === 'out' || phase.kind === 'no-link' ? phase.trouble : null;
    expect(trouble?.remedy).toBe(remedy);
    expect(trouble?.text).toMatch(/\.$/);
  });

  it('a mesh without a relay is said to be one, not one in which nobody answers', () => {
    const text = 'this mesh has no relay: ask its founder for one, or join without “Only through the relay”';
    expect(phaseAfter({ name: 'NoRelay', text })).toMatchObject({
      trouble: {
        title: 'This mesh has no relay',
        text: 'Ask its founder for one, or join without “Only through the relay”.',
        remedy: 'retry',
      },
    });
  });
});

describe('choices', () => {
  it('lend at most 1 GB on desktops and 300 MB on phones unless told otherwise', () => {
    expect(pledgeRange(false, 8).usual).toBe(1e9);
    expect(pledgeRange(false, null).usual).toBe(1e9);
    expect(pledgeRange(false, 2).usual).toBe(5e8);
    expect(pledgeRange(true, 8).usual).toBe(3e8);
    expect(pledgeRange(true, 1).usual).toBe(2.5e8);
    expect(keptPledge(pledgeRange(true, 8))).toBe(3e8); // nothing kept here
  });

  it('take nothing unchecked from storage', () => {
    expect(choicesOf(null)).toEqual({});
    expect(choicesOf({ temperature: 'hot', topP: 7, seed: 1.5, maxTokens: -1, instructions: 4 })).toEqual({});
    const chosen = { temperature: 0, topK: 5, seed: 7, maxTokens: null, instructions: 'Be short.' };
    expect(choicesOf({ ...chosen, topK: 5.2, looks: 'dark' })).toEqual(chosen);
  });
});

describe('keys', () => {
  const press = (key: string, more = {}): Parameters<typeof commandOf>[0] => ({
    ...{ key, code: '', altKey: false, ctrlKey: false, metaKey: false },
    ...more,
  });

  it.each([
    [press('Escape'), true, false, null], // nor does a second press stop an answer
    [press('.', { code: 'Period', altKey: true }), true, false, 'stop'],
    [press('Escape'), false, true, null], // the sheet closes itself
    [press('/'), false, false, 'focus'],
    [press('/'), true, false, null],
    [press('?'), false, false, 'help'],
    [press('ß', { code: 'KeyS', altKey: true }), true, false, 'share'],
    [press('r', { code: 'KeyR', ctrlKey: true }), false, false, null],
    [press('x'), false, false, null],
  ])('%j, typing %s, sheet %s: %s', (key, typing, sheet, command) => {
    expect(commandOf(key, typing, sheet)).toBe(command);
  });
});
