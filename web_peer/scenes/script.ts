/* Made-up meshes and conversations that show every state of the page. For development and screenshots only. */

import type {
  AskSettings,
  DictationView,
  Fact,
  JoinStep,
  Lending,
  Member,
  MeshView,
  MyPart,
  NearLine,
  Notice,
  Person,
  Phase,
  PictureView,
  PinEnds,
  ModelRunView,
  OfferedView,
  Talk,
  TalkLine,
  Turn,
} from '../ui/app/view';
import type { MeshState } from '../src/state/mesh_state';
import { DONE, FAILED, OFFERED } from './models';
import { BOAT_URL } from './picture';
import { OFFER, WARNING } from '../ui/app/recovery';

type SceneNotice = Omit<Notice, 'act'> & { readonly label?: string }; // of its button

export interface Scene {
  readonly phase: Phase;
  readonly steps: readonly JoinStep[];
  readonly notices: readonly SceneNotice[];
  readonly mesh: MeshView;
  readonly mine: MyPart;
  readonly turns: readonly Turn[];
  readonly talk: Partial<Talk>; // beside its turns
  readonly talks: readonly TalkLine[];
  readonly settings: Partial<AskSettings>;
  readonly pinEnds: Partial<PinEnds>;
  readonly model: string; // that answers the next question
  readonly state: Partial<MeshState>; // by which the plan sheet shows how plans are made
  readonly offered: readonly OfferedView[];
  readonly modelRun: ModelRunView;
  readonly dictation: DictationView;
  readonly picked: readonly PictureView[]; // that the next question is asked with
  readonly near: readonly NearLine[]; // what a search by meaning finds
  readonly streams: boolean; // the last answer goes on by itself
  readonly answer: string;
}

export const LINK =
  'https://mesh.example.org/#wm5k2zq7n4xj3hrc6ftb2dylp5vaeogs.c2Vjb25kLWludml0ZS1mb3ItYS1zY3JpcHRlZC1tZXNoLWFiYw';
const UNITS = 62; // SmolLM2-135M: embed, 30 layers of two, head

const member = (id: string, name: string, more: Partial<Member>): Member => ({
  id,
  name,
  you: false,
  coordinates: false,
  lends: true,
  status: 'ready',
  doing: '',
  holds: [],
  coming: [],
  runs: '',
  standsBy: [],
  facts: [],
  lentBytes: 1_000_000_000,
  runsOn: 'WebAssembly',
  ...more,
});

const fact = (label: string, value: string, tone: Fact['tone'] = 'plain'): Fact => ({ label, value, tone });
const facts = (runsOn: string, memory: string, helped: string, delay: string, ...first: Fact[]): Fact[] => [
  ...first,
  fact('Runs on', runsOn),
  fact('Memory', memory),
  fact('Tokens helped', helped),
  fact('Now', 'rests'),
  ...(delay === '' ? [] : [fact('From you', delay)]),
];

const YOU = member('a', 'Chromium on Linux', {
  you: true,
  facts: facts('WebAssembly, 4 threads', '268 MB in use of 1 GB', '12,480', ''),
  holds: [[19, 41]],
  runsOn: 'WebAssembly, 4 threads',
});
const FOUNDER = member('b', 'studio', {
  coordinates: true,
  facts: facts('CPU, 8 threads', '312 MB in use of 4 GB', '31,902', '1.4 ms'),
  holds: [[0, 19]],
  lentBytes: 4_000_000_000,
  runsOn: 'CPU, 8 threads',
});
const MIRA = member('c', 'Mira’s laptop', {
  holds: [[41, 62]],
  facts: facts('WebGPU', '251 MB in use of 800 MB', '12,480', '22 ms'),
  runsOn: 'WebGPU',
  lentBytes: 800_000_000,
});
const DESK = member('f', 'desk in the hall', {
  holds: [[19, 41]],
  standsBy: [{ run: [19, 41], of: 'Chromium on Linux', ready: true }],
  facts: facts(
    'CPU, 4 threads',
    '240 MB in use of 2 GB',
    '8,114',
    '3.1 ms',
    fact('Stands by for', 'layers 10–20 of Chromium on Linux: ready', 'good'),
  ),
  lentBytes: 2_000_000_000,
});
const TOWER = member('g', 'Firefox on Windows', {
  status: 'loading',
  coming: [[0, 19]],
  standsBy: [{ run: [0, 19], of: 'studio', ready: false }],
  facts: facts(
    'WebAssembly',
    '1 GB',
    '0',
    '18 ms',
    fact('Stands by for', 'embedding, layers 1–9 of studio: still loading', 'warn'),
  ),
});
const ADA = member('h', 'Ada', { lends: false, lentBytes: 0, runsOn: '' });
const PHONE = member('d', 'Tom’s phone', { lends: false, lentBytes: 0, runsOn: '' });
const MEMBERS = [YOU, FOUNDER, MIRA, PHONE];

const READY: MeshView = {
  models: [],
  model: 'SmolLM2 135M Instruct',
  inWords: true,
  hasOwn: true,
  writes: '',
  runs: false,
  units: UNITS,
  context: 2048,
  members: MEMBERS,
  links: [
    { a: 'a', b: 'b', delayMs: 1.4 },
    { a: 'a', b: 'c', delayMs: 22 },
    { a: 'b', b: 'c', delayMs: 24 },
    { a: 'b', b: 'd', delayMs: 41 },
  ],
  route: ['b', 'a', 'c'],
  answers: true,
  whyNot: '',
  coordination: { leader: 'studio', term: 3, voters: ['studio'], learners: 3, lag: 0 },
};
/** What `one` runs of the model that the mesh offers, where none answers in words. */
const offeredTo = ({ lends, you }: Member): Pick<Member, 'doing' | 'runs'> => {
  const runs = lends ? `${you ? 'units 12–17' : 'units 0–11'} of ppocr-v4-det` : '';
  return { doing: runs, runs };
};
const withMembers = (members: readonly Member[], more: Partial<MeshView> = {}): MeshView => ({
  ...READY,
  members,
  ...more,
});
const BUSY = withMembers(MEMBERS.map((one) => (one.lends ? { ...one, status: 'busy' as const } : one)));

const MINE: MyPart = {
  name: 'Firefox on Linux',
  lending: { kind: 'lending' },
  pledgeBytes: 1_000_000_000,
  pledgeMostBytes: 4_000_000_000,
  usedBytes: 268_000_000,
  holds: [[19, 41]],
  runsOn: 'WebAssembly, 4 threads',
  tokensHelped: 12_480,
  tokensPerS: 0,
  stored: { bytes: 41_300_000, where: 'kept' },
};

const done = (name: JoinStep['name'], more: Partial<JoinStep> = {}): JoinStep => ({
  name,
  state: 'done',
  detail: '',
  done: 0,
  total: 0,
  perSecond: 0,
  ...more,
});
const ALL_DONE = [done('connect'), done('measure'), done('fetch'), done('ready')];
const FETCHING = [
  done('connect'),
  done('measure'),
  done('fetch', {
    state: 'doing',
    detail: 'Layers 10–20 from 2 peers and the store',
    done: 27_400_000,
    total: 41_300_000,
    perSecond: 4_100_000,
  }),
  done('ready', { state: 'waiting' }),
];

export const ANSWER = `A model is a long stack of **layers**. Each computer keeps a few of them, and a word travels through all of them in order:

1. The first computer turns your question into numbers and runs its layers.
2. It hands the result, a few kilobytes, straight to the next one.
3. The last computer picks the next word and sends it back.

\`\`\`python
def longest_word(sentence: str) -> str:
    return max(sentence.split(), key=len, default="")
\`\`\`

| computer | holds | delay |
| --- | --- | ---: |
| studio | layers 1–9 | 1 ms |
| you | layers 10–20 | 22 ms |

No single machine needs room for the whole model. When one of them leaves, the others take over its layers and the answer goes on.`;

const FACTS = { tokens: 186, firstTokenS: 0.6, tokensPerS: 18.4, route: ['studio', 'you', 'Mira’s laptop'] };
const QUESTION = 'How can several computers run one language model together?';
const ONE = { at: 1, of: 1 };
const ME: Person = {
  ...{ id: 'a', name: 'Lena', colour: '#17909c', role: 'owner' },
  ...{ you: true, here: true, typing: false },
};
const ANSWERED: Turn = {
  id: '1',
  who: ME,
  toPeople: false,
  question: QUESTION,
  pictures: [],
  branch: ONE,
  answer: ANSWER,
  model: '',
  asker: null,
  answers: ONE,
  state: { kind: 'done', facts: FACTS },
  open: false,
};

const READY_SCENE: Scene = {
  phase: { kind: 'in' },
  steps: ALL_DONE,
  notices: [],
  mesh: READY,
  mine: MINE,
  turns: [],
  talk: {},
  talks: [],
  settings: {},
  pinEnds: {},
  model: '',
  state: {},
  offered: [],
  modelRun: { kind: 'none' },
  dictation: { kind: 'idle' },
  picked: [],
  near: [],
  streams: false,
  answer: ANSWER,
};
const scene = (change: Partial<Scene>): Scene => ({ ...READY_SCENE, ...change });
const out = (title: string, text: string, remedy: 'retry' | 'reload' | 'link'): Scene =>
  scene({ phase: { kind: 'out', trouble: { title, text, remedy } } });
const mine = (lending: Lending, more: Partial<MyPart> = {}): MyPart => ({ ...MINE, lending, ...more });

export const HOSTILE = `Here you go <script>document.title='owned'</script> <img src=x onerror="document.title='owned'">

[click me](javascript:alert(1)) and [this](https://example.org/ "x\\" onclick=\\"alert(1)") ![pixel](https://example.org/track.png)

<iframe src="https://example.org"></iframe><style>body{display:none}</style>`;

// --- several people in one conversation

const TOM: Person = { ...ME, id: 'd', name: 'Tom', colour: '#c2571a', role: 'member', you: false };
const MIRA_HERE: Person = { ...TOM, id: 'c', name: 'Mira', colour: '#a04cc9' };
const ADA_AWAY: Person = { ...TOM, id: 'h', name: 'Ada', colour: '#5c8a1e', role: 'viewer', here: false };
const TOGETHER: Partial<Talk> = {
  id: 'talk',
  title: 'A weekend at the lake',
  readers: 'mesh',
  usedTokens: 612,
  people: [ME, TOM, { ...MIRA_HERE, typing: true }, ADA_AWAY],
  mayRule: true,
  typing: 'Mira writes…',
};
const LINE: TalkLine = {
  ...{ id: '', title: '', people: 1, answering: false, fresh: false, readers: 'mesh', takesPart: true },
  ...{ pinned: false, mayRename: true, mayRemove: true, excerpt: '' },
};
const TALKS: TalkLine[] = [
  { ...LINE, id: 'talk', title: 'A weekend at the lake', people: 4, answering: true, pinned: true },
  {
    ...LINE,
    id: 't2',
    title: 'How can several computers run one model?',
    people: 2,
    fresh: true,
    takesPart: false,
  },
  { ...LINE, id: 't3', title: 'Names for the boat', people: 3, readers: 'invited' },
  { ...LINE, id: 't4', title: 'Explain tides to a child of six', readers: 'browser' },
];
const LAKE = `Here is a short list for two days at the lake:

- **Tent and sleeping bags**, and a mat for each of you
- Swimming things, a towel, sun cream
- A stove with gas, matches, one large pot
- Water for the first evening, food for four meals

Look at the forecast on Thursday: with rain, add boots and a tarpaulin.`;
const SHARED: Turn[] = [
  {
    ...ANSWERED,
    id: 's1',
    who: TOM,
    question: 'We are four people and go camping at a lake for two days. What should we take along?',
    branch: { at: 2, of: 2 },
    answer: LAKE,
    state: { kind: 'done', facts: { tokens: 96, firstTokenS: 0, tokensPerS: 0, route: [] } },
  },
  {
    ...ANSWERED,
    id: 's2',
    who: MIRA_HERE,
    toPeople: true,
    question: 'I have a stove already, and room for one more in the car.',
    answer: '',
    state: { kind: 'none' },
  },
  {
    ...ANSWERED,
    id: 's3',
    question: 'Suggest three dinners that we can cook in one pot.',
    answers: { at: 2, of: 3 },
    answer:
      '1. **Chickpea stew** with tomatoes and spinach: everything comes from tins.\n2. **Pasta e patate**: pasta and potatoes in one broth, cheese at the end.\n3. **Lentil dal** with rice, which cooks',
    state: { kind: 'streaming', stalled: false },
  },
  {
    ...ANSWERED,
    id: 's4',
    who: TOM,
    question: 'And what do we do for breakfast?',
    answer: '',
    state: { kind: 'queued', text: 'Waits for your question' },
  },
];
const NEAR: readonly NearLine[] = [
  {
    talk: 'talk',
    title: 'Trip to the coast',
    text: 'Air scatters short waves of light more than long ones, so it reaches us from everywhere.',
  },
  {
    talk: 'own',
    title: 'Colours',
    text: 'At dusk the way through the air is longer, and red is what is left.',
  },
];
const together = (change: Partial<Scene>): Scene =>
  scene({ mesh: BUSY, turns: SHARED, talk: TOGETHER, talks: TALKS, ...change });

// --- two models that answer in words

const SECOND = 'gemma3-270m';
const ANSWERS = { context: 2048, answers: true, whyNot: '', sees: false };
const TWO: MeshView = {
  ...BUSY,
  models: [
    { name: '', label: READY.model, ...ANSWERS },
    { name: SECOND, label: SECOND, ...ANSWERS },
  ],
};
const SEES: MeshView = {
  ...BUSY,
  models: [{ name: '', label: 'SmolVLM', ...ANSWERS, sees: true }],
  model: 'SmolVLM',
  writes: 'whisper-tiny',
};
const BOAT: PictureView = { id: 'b', alt: 'our boat on the lake', url: BOAT_URL };
const SEEN = `A small wooden **sailing boat** with two white sails, on a calm lake at sunset.

- The sun stands low over dark mountains, and its light lies on the water.
- The larger sail is full, so there is some wind from the left.`;
const withPicture = (more: Partial<Scene>): Scene =>
  scene({
    mesh: SEES,
    talk: { ...TOGETHER, title: 'The boat on the lake', readers: 'browser', people: [ME] },
    talks: [],
    turns: [
      {
        ...ANSWERED,
        id: 'p1',
        question: 'What is on this picture, and is there wind?',
        pictures: [BOAT],
        answer: SEEN,
        state: { kind: 'done', facts: { tokens: 58, firstTokenS: 1.1, tokensPerS: 17.2, route: [] } },
      },
    ],
    ...more,
  });
const SHORT = 'A name for a boat that a group of friends shares, in one line.';
const twoModels = (more: Partial<Scene>): Scene =>
  scene({
    mesh: TWO,
    model: SECOND,
    talk: { id: 'talk', title: 'Names for the boat', usedTokens: 148 },
    turns: [
      {
        ...ANSWERED,
        id: 'm1',
        model: READY.model,
        question: SHORT,
        answer: '“Common Tide”: it belongs to everybody, and it always comes back.',
        state: { kind: 'done', facts: { ...FACTS, tokens: 17 } },
      },
      {
        ...ANSWERED,
        id: 'm2',
        model: SECOND,
        question: 'Another one, with a bird in it.',
        answer: '**The Shared Heron**: patient, and never',
        state: { kind: 'streaming', stalled: false },
      },
    ],
    ...more,
  });

/** Two of three voters are gone: `notice` is what can be done. */
const fewVoters = (notice: SceneNotice): Scene =>
  scene({
    notices: [
      {
        id: 'coordinator',
        tone: 'bad',
        text: 'The coordinator (studio) is gone: answers go on, but peers that come or go are not planned for; 1 of 3 voters are here, 2 are needed to choose another one (looking for them, try 3).',
        label: 'Try now',
      },
      notice,
    ],
    mesh: withMembers([YOU, MIRA, PHONE], {
      coordination: { leader: '', term: 5, voters: ['studio', 'Mira', 'You'], learners: 1, lag: 0 },
    }),
    turns: [ANSWERED],
  });

/** A conversation in this tab alone, beside those of the mesh. */
const ownWords = (): Scene => {
  return scene({
    turns: [ANSWERED],
    talk: { id: 'own', title: 'A letter that nobody else should read', people: [ME], readers: 'tab' },
    talks: [{ ...LINE, id: 'own', title: 'A letter that nobody else should read', readers: 'tab' }, ...TALKS],
    pinEnds: { on: true, bytes: 145_099_008, state: 'here' },
  });
};

const OWNED: Partial<MeshState> = {
  people: { roles: new Map([['a', 'owner']]), invites: new Map(), revocations: new Map() },
};
const GROUPED: Partial<MeshState> = {
  wish: {
    ...{ kind: 'PlanWished', strategy: 'component', goal: 'balanced' },
    components: [
      { name: 'low', first: 0, stop: 30, prefers: 'b' },
      { name: 'high', first: 30, stop: 62, prefers: '' },
    ],
  },
};

export const SCENES: Readonly<Record<string, Scene>> = {
  'no-link': scene({ phase: { kind: 'no-link', trouble: null } }),
  'own-words': ownWords(),
  'picture-question': withPicture({ picked: [{ ...BOAT, id: 'b2', alt: 'the boat, seen from behind' }] }),
  'picture-of-others': withPicture({
    mesh: { ...SEES, models: TWO.models.map((each) => ({ ...each, sees: each.name !== '' })) },
    turns: [
      { ...ANSWERED, id: 'p2', who: TOM, question: 'Whose boat is it?', pictures: [{ ...BOAT, url: '' }] },
    ],
    talk: TOGETHER,
  }),
  dictation: withPicture({ dictation: { kind: 'recording', seconds: 7.4, level: 0.62 } }),
  'dictation-writing': withPicture({ dictation: { kind: 'writing', share: 0.5 } }),
  'dictation-refused': withPicture({
    dictation: {
      kind: 'failed',
      text: 'The browser does not let this page use the microphone: allow it beside the page’s address, then try again.',
    },
  }),
  'two-models': twoModels({}),
  'two-models-new': twoModels({ mesh: { ...TWO, members: MEMBERS }, talk: {}, turns: [] }),
  'model-withdrawn': twoModels({ mesh: { ...TWO, models: TWO.models.slice(0, 1) } }),
  'wrong-link': scene({
    phase: {
      kind: 'no-link',
      trouble: {
        title: 'This link cannot be right',
        text: 'The invite at the end of the link has 48 characters, this one has 31: some of it is missing. Copy the whole link again.',
        remedy: 'link',
      },
    },
  }),
  asking: scene({ phase: { kind: 'asking' } }),
  'asking-invited': scene({ phase: { kind: 'asking' } }),
  connecting: scene({
    phase: { kind: 'joining' },
    steps: [
      done('connect', { state: 'doing', detail: 'Waiting for the founder to answer' }),
      done('measure', { state: 'waiting' }),
      done('fetch', { state: 'waiting' }),
      done('ready', { state: 'waiting' }),
    ],
  }),
  gone: out(
    'Nobody answers in this mesh',
    'Its founder has not been there for 8 seconds. Ask whoever sent the link whether the mesh still runs, then try again.',
    'retry',
  ),
  waiting: scene({
    phase: {
      kind: 'waiting',
      trouble: {
        title: 'The server of this link does not answer',
        text: 'No signaling server answers at https://mesh.example.org: check the link, and that `shoal serve` runs there.',
        remedy: 'retry',
      },
      leftS: 8,
    },
  }),
  'no-relay': out(
    'This mesh has no relay',
    'Ask its founder for one (shoal serve --turn), or join without “Only through the relay”.',
    'retry',
  ),
  older: out(
    'This page is older than the mesh',
    'This tab speaks protocol version 1, the mesh speaks version 2. Reload the page to get the new version; stored weights stay.',
    'reload',
  ),
  left: out(
    'You left the mesh',
    'Stored weights are kept for your next visit. The link still works.',
    'retry',
  ),
  loading: scene({
    steps: FETCHING,
    mesh: withMembers(
      [
        { ...YOU, status: 'loading', holds: [], coming: [[19, 41]], doing: 'fetching layers 10–20' },
        FOUNDER,
        { ...MIRA, status: 'loading', holds: [], coming: [[41, 62]], doing: 'measuring itself' },
      ],
      { answers: false, whyNot: 'The mesh cannot answer yet: you and Mira’s laptop are still loading.' },
    ),
    mine: mine(
      { kind: 'starting' },
      { holds: [], usedBytes: 0, tokensHelped: 0, stored: { bytes: 27_400_000, where: 'kept' } },
    ),
  }),
  ready: READY_SCENE,
  answered: scene({ turns: [ANSWERED], state: GROUPED }),
  answering: scene({
    mesh: BUSY,
    mine: { ...MINE, tokensPerS: 18.4 },
    turns: [
      {
        ...ANSWERED,
        answer:
          'Several computers each keep a few **layers** of the model and pass the work on, one to the next.',
        question: 'What is a shoal, in one line?',
      },
      {
        ...ANSWERED,
        id: '2',
        answer: ANSWER.slice(0, ANSWER.indexOf(' default')),
        state: { kind: 'streaming', stalled: false },
      },
    ],
    streams: true,
  }),
  thinking: scene({
    mesh: BUSY,
    turns: [{ ...ANSWERED, answer: '', state: { kind: 'thinking' } }],
  }),
  failed: scene({
    mesh: withMembers([YOU, FOUNDER, { ...MIRA, status: 'gone', holds: [] }, PHONE], {
      answers: false,
      route: [],
      whyNot: 'The mesh cannot answer now: layers 21–30 are nowhere. It re-plans with who is here.',
    }),
    turns: [
      {
        ...ANSWERED,
        answer: ANSWER.slice(0, 180),
        state: {
          kind: 'failed',
          text: 'The answer broke off: Mira’s laptop left the mesh and nobody else holds its layers yet. Ask again in a few seconds.',
        },
      },
    ],
  }),
  stopped: scene({
    turns: [
      {
        ...ANSWERED,
        answer: ANSWER.slice(0, 260),
        state: { kind: 'stopped', why: 'hand', facts: { ...FACTS, tokens: 61 } },
      },
    ],
  }),
  paused: scene({
    mine: mine({ kind: 'paused', why: '' }, { holds: [], usedBytes: 0 }),
    mesh: withMembers(
      [
        { ...YOU, holds: [], status: 'paused', doing: 'lends nothing now' },
        { ...FOUNDER, holds: [[0, 41]] },
        MIRA,
        PHONE,
      ],
      {
        route: ['b', 'c'],
      },
    ),
    turns: [ANSWERED],
  }),
  battery: scene({
    mine: mine({ kind: 'paused', why: 'the battery is below 20%' }, { holds: [], usedBytes: 0 }),
    notices: [
      {
        id: 'battery',
        tone: 'calm',
        text: 'The battery is below 20%: this tab lends nothing until it charges.',
      },
    ],
  }),
  viewer: scene({
    mine: mine(
      {
        kind: 'asks',
        why: 'Another tab of this browser lends already. This one asks, and takes over when the other closes.',
      },
      { holds: [], usedBytes: 0, tokensHelped: 0 },
    ),
    notices: [
      {
        id: 'viewer',
        tone: 'calm',
        text: 'Another tab of this browser already computes. You can ask here all the same.',
      },
    ],
    mesh: withMembers([
      { ...PHONE, id: 'e', name: 'Chromium on Linux (2)', you: true },
      { ...YOU, you: false },
      FOUNDER,
      MIRA,
    ]),
  }),
  memory: scene({
    mine: mine({ kind: 'lending' }, { stored: { bytes: 41_300_000, where: 'memory' } }),
    notices: [
      {
        id: 'storage',
        tone: 'warn',
        text: 'This browser refuses to store the weights (a private window, or no room). They stay in memory and are fetched again next time.',
      },
    ],
  }),
  gpu: scene({
    notices: [
      {
        id: 'gpu',
        tone: 'warn',
        text: 'The graphics device was lost. This tab goes on with WebAssembly, slower.',
      },
    ],
  }),
  offline: scene({
    notices: [
      {
        id: 'offline',
        tone: 'bad',
        text: 'This machine is offline. The mesh goes on without it; this tab comes back by itself.',
      },
    ],
    mesh: {
      ...READY,
      answers: false,
      whyNot: 'You are offline: questions can be sent when the network is back.',
    },
    turns: [ANSWERED],
  }),
  'no-coordinator': scene({
    notices: [
      {
        id: 'coordinator',
        tone: 'bad',
        text: 'The coordinator (studio) is gone: no answer meanwhile, nobody here has a part of the model; nobody can take its place, it has to come back (looking for it, try 2).',
      },
    ],
    mesh: withMembers([YOU, MIRA, PHONE], {
      answers: false,
      whyNot: 'The coordinator is gone, and its part of the model with it: no answer until it is back.',
      coordination: { leader: '', term: 3, voters: ['studio'], learners: 3, lag: 1 },
    }),
  }),
  'few-voters': fewVoters({ id: 'recover', tone: 'calm', text: OFFER, label: 'Go on without them' }),
  'few-voters-sure': fewVoters({
    id: 'recover-sure',
    tone: 'bad',
    text: WARNING,
    label: 'Yes, go on without them',
  }),
  alone: scene({
    mesh: withMembers(
      [
        {
          ...YOU,
          coordinates: true,
          holds: [[0, 62]],
          facts: facts('WebAssembly, 4 threads', '412 MB in use of 1 GB', '0', ''),
        },
      ],
      { route: ['a'], links: [] },
    ),
    mine: { ...MINE, holds: [[0, 62]], tokensHelped: 0 },
  }),
  models: scene({ turns: [ANSWERED], offered: OFFERED }),
  'models-done': scene({ turns: [ANSWERED], offered: OFFERED, modelRun: DONE }),
  'models-failed': scene({ turns: [ANSWERED], offered: OFFERED, modelRun: FAILED }),
  'without-words': scene({
    mesh: withMembers(
      [YOU, FOUNDER, PHONE].map((one) => ({
        ...one,
        holds: [],
        ...offeredTo(one),
        facts: one.facts.filter(({ label }) => label === 'Runs on' || label === 'Memory'),
      })),
      {
        model: '',
        inWords: false,
        hasOwn: false,
        runs: true,
        answers: false,
        units: 0,
        context: 0,
        route: [],
      },
    ),
    mine: { ...MINE, holds: [], tokensHelped: 0 },
    offered: OFFERED,
    modelRun: DONE,
  }),
  crowd: scene({
    mesh: withMembers([YOU, FOUNDER, MIRA, DESK, TOWER, PHONE, ADA], {
      links: [
        ...READY.links,
        { a: 'f', b: 'b', delayMs: 2.2 },
        { a: 'a', b: 'f', delayMs: 3.1 },
        { a: 'a', b: 'g', delayMs: 18 },
        { a: 'b', b: 'g', delayMs: 19 },
        { a: 'b', b: 'h', delayMs: 35 },
      ],
    }),
    turns: [ANSWERED],
    state: OWNED,
  }),
  elsewhere: scene({
    mesh: withMembers(
      [YOU, FOUNDER, MIRA, DESK].map((one) => ({ ...one, status: 'busy' as const })),
      {},
    ),
    streams: true,
    answer: '',
  }),
  'gone-peer': scene({
    mesh: withMembers(
      [YOU, FOUNDER, { ...DESK, standsBy: [] }, { ...MIRA, status: 'gone', holds: [], facts: [] }, PHONE],
      { route: ['b', 'a', 'f'] },
    ),
    turns: [ANSWERED],
  }),
  together: together({}),
  meaning: together({ near: NEAR }),
  'together-reads': together({
    mesh: READY,
    turns: SHARED.slice(0, 2),
    talk: {
      ...TOGETHER,
      people: [{ ...ME, role: 'viewer' }, { ...TOM, role: 'owner' }, MIRA_HERE, ADA_AWAY],
      mayRule: false,
      mayWrite: false,
      typing: '',
    },
  }),
  'together-outside': together({
    mesh: READY,
    turns: SHARED.slice(0, 2),
    talk: {
      ...TOGETHER,
      people: [TOM, MIRA_HERE],
      mayRule: false,
      takesPart: false,
      mayEnter: true,
      mayWrite: false,
      typing: '',
    },
  }),
  'together-alone': together({
    mesh: withMembers([YOU, MIRA, PHONE], {
      coordination: { leader: '', term: 3, voters: ['studio'], learners: 3, lag: 1 },
    }),
    turns: [
      ...SHARED.slice(0, 2),
      {
        ...ANSWERED,
        id: 's5',
        question: 'Suggest a game for the evening that needs no things.',
        answer:
          'Twenty questions: one of you thinks of a thing, the others ask what can be answered by yes or no.',
        state: { kind: 'stopped', why: 'length', facts: { ...FACTS, tokens: 24 } },
        open: true,
      },
    ],
    talk: { ...TOGETHER, people: [ME, TOM, MIRA_HERE, ADA_AWAY], typing: '', unsaid: true },
  }),
  hostile: scene({ turns: [{ ...ANSWERED, question: 'Show me a hostile answer', answer: HOSTILE }] }),
};
