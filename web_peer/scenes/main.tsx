/* The page over a made-up scene, chosen by the part behind "#"; ?looks=dark, ?sheet=share, ?tab=mesh. */

import { signal } from '@preact/signals';
import { render } from 'preact';

import { App } from '../ui/app/app';
import { NO_TALK, titleOf } from '../ui/conversation/conversation_view';
import { applyLooks, looks } from '../ui/kit/theme';
import { PerFrame } from '../ui/kit/per_frame';
import { USUAL } from '../src/planner/sampling_defaults';
import { modelSettings } from '../ui/conversation/saved_choices';
import { NO_PIN } from '../ui/join/pinned_ends_switch';
import type {
  Activity,
  AnswerState,
  AskSettings,
  Audience,
  DictationView,
  MeaningView,
  ModelRunView,
  MyPart,
  Notice,
  Phase,
  PictureView,
  PinEnds,
  Talk,
  Turn,
  View,
} from '../ui/app/view';
import { PLAN, wishShown } from './plans';
import { LINK, SCENES } from './script';

const TOKEN_MS = 55;

const query = new URLSearchParams(location.search);
const name = location.hash.slice(1) || 'ready';
const scene = SCENES[name] ?? SCENES['ready'];
if (scene === undefined) throw new Error('no scene');
Object.assign(globalThis, { scenes: Object.keys(SCENES) }); // for whoever goes through all of them
const chosen = query.get('looks');
if (chosen === 'dark' || chosen === 'light') looks.value = chosen;

const phase = signal<Phase>(scene.phase);
const talk = signal<Talk>({
  ...NO_TALK,
  id: scene.turns.length > 0 ? 'one' : '',
  title: titleOf(scene.turns[0]?.question ?? ''),
  ...scene.talk,
  turns: scene.turns,
});
const ME = { id: 'a', name: 'you', colour: '#17909c', you: true };
const mine = signal<MyPart>(scene.mine);
const activity = signal<Activity>({ route: scene.mesh.route, tokens: 0 });
const relayOnly = signal(false);
const dictation = signal<DictationView>(scene.dictation);
const picked = signal<readonly PictureView[]>(scene.picked);
const audience = signal<Audience>('private');
const model = signal(scene.model);
const pinEnds = signal<PinEnds>({ ...NO_PIN, ...scene.pinEnds });
const wish = signal(wishShown(scene.state, { kind: 'nothing' }));
const modelRun = signal<ModelRunView>(scene.modelRun);
const meaning = signal<MeaningView>({ kind: 'none' });
const MODEL_SETTINGS = modelSettings(USUAL);
const settings = signal<AskSettings>({ ...MODEL_SETTINGS, ...scene.settings });
const notices = signal<readonly Notice[]>(
  scene.notices.map(({ label, ...notice }) => ({
    ...notice,
    act: label === undefined ? null : { label, run: () => undefined },
  })),
);

let timer: ReturnType<typeof setInterval> | undefined;
const facts = { tokens: 120, firstTokenS: 0.6, tokensPerS: 18.1, route: ['studio', 'you', 'Mira’s laptop'] };

/** The answer under way, changed. */
function change(made: (turn: Turn) => { readonly answer?: string; readonly state: AnswerState }): void {
  const turns = talk.value.turns.map((turn) =>
    turn.state.kind === 'thinking' || turn.state.kind === 'streaming' ? { ...turn, ...made(turn) } : turn,
  );
  talk.value = { ...talk.value, turns };
}

function underWay(): Turn | undefined {
  return talk.value.turns.find(({ state }) => state.kind === 'thinking' || state.kind === 'streaming');
}

function stream(): void {
  let waiting = '';
  const frame = new PerFrame(() => {
    const more = waiting;
    waiting = '';
    change(({ answer }) => ({ answer: answer + more, state: { kind: 'streaming', stalled: false } }));
  });
  const words = (scene?.answer ?? '').match(/\s*\S+|\s+$/g) ?? [];
  const begun = underWay()?.answer ?? '';
  let at = 0;
  for (let length = 0; length < begun.length && at < words.length; at += 1) length += words[at]?.length ?? 0;
  timer = setInterval(() => {
    const word = words[at];
    at += 1;
    activity.value = { ...activity.value, tokens: activity.value.tokens + 1 };
    if (word === undefined) {
      clearInterval(timer);
      frame.now();
      change(() => ({ state: { kind: 'done', facts } }));
      return;
    }
    waiting += word;
    frame.touch();
  }, TOKEN_MS);
}

function say(question: string, toPeople: boolean): void {
  const one = { at: 1, of: 1 };
  const state: AnswerState = toPeople ? { kind: 'none' } : { kind: 'thinking' };
  const pictures = toPeople ? [] : picked.value;
  if (!toPeople) picked.value = [];
  const turn = { id: `n${talk.value.turns.length}`, who: ME, toPeople, question, pictures, state };
  const rest = { branch: one, answer: '', model: '', asker: null, answers: one, open: false };
  talk.value = { ...talk.value, id: 'one', turns: [...talk.value.turns, { ...turn, ...rest }] };
  if (!toPeople) stream();
}

const view: View = {
  phase,
  steps: signal(scene.steps),
  notices,
  mesh: signal(scene.mesh),
  plan: signal(scene.mesh.route.length > 0 ? PLAN : null),
  wish,
  offered: signal(scene.offered),
  modelRun,
  activity,
  mine,
  talk,
  talks: signal(scene.talks),
  dictation,
  dictated: signal({ id: 0, text: '' }),
  picked,
  audience,
  model,
  meaning,
  meaningModel: signal(scene.near.length > 0 ? 'all-minilm-l6-v2' : ''),
  settings,
  modelSettings: signal(MODEL_SETTINGS),
  link: signal(LINK),
  isInvited: name === 'asking-invited',
  lastLink: name === 'no-link' ? LINK : '',
  relayOnly,
  pinEnds,
  actions: {
    open: () => (phase.value = { kind: 'joining' }),
    join: () => (phase.value = { kind: 'joining' }),
    retry: () => (phase.value = { kind: 'joining' }),
    ask: say,
    dictate: () => (dictation.value = { kind: 'recording', seconds: 0, level: 0.5 }),
    stopDictating: () => (dictation.value = { kind: 'writing', share: 0 }),
    dropDictation: () => (dictation.value = { kind: 'idle' }),
    addPictures: (files) => {
      const added = files.map((file, at) => ({ id: `f${at}`, alt: '', url: URL.createObjectURL(file) }));
      picked.value = [...picked.value, ...added];
    },
    removePicture: (id) => (picked.value = picked.value.filter((each) => each.id !== id)),
    describePicture: (id, alt) =>
      (picked.value = picked.value.map((each) => (each.id === id ? { ...each, alt } : each))),
    stop: () => {
      clearInterval(timer);
      change(() => ({ state: { kind: 'stopped', why: 'hand', facts } }));
    },
    stopMine: () => view.actions.stop(),
    regenerate: (id) => {
      const turns = talk.value.turns.map((turn) =>
        turn.id === id ? { ...turn, answer: '', state: { kind: 'thinking' as const } } : turn,
      );
      talk.value = { ...talk.value, turns };
      stream();
    },
    goOn: () => undefined,
    edit: (_, text) => say(text, false),
    takeBack: (id) => {
      talk.value = { ...talk.value, turns: talk.value.turns.filter((turn) => turn.id !== id) };
    },
    turnTo: () => undefined,
    writes: () => undefined,
    clear: () => {
      clearInterval(timer);
      talk.value = NO_TALK;
    },
    show: () => (talk.value = { ...NO_TALK, ...scene.talk, turns: scene.turns }),
    choose: (chosen) => (audience.value = chosen),
    chooseModel: (chosen) => (model.value = chosen),
    takePart: () => (talk.value = { ...talk.value, takesPart: true, mayEnter: false, mayWrite: true }),
    rename: (_, title) => (talk.value = { ...talk.value, title }),
    remove: () => (talk.value = NO_TALK),
    pin: () => undefined,
    search: () => (meaning.value = { kind: 'none' }),
    searchMeaning: (query) => (meaning.value = { kind: 'found', query, near: scene.near }),
    shareCopy: () => undefined,
    setRole: () => undefined,
    putOut: () => undefined,
    offerEntry: () => Promise.resolve({ key: '', link: `${LINK}&in=c1.${'A'.repeat(43)}` }),
    withdrawEntry: () => undefined,
    chooseEntry: (byInvite) => (talk.value = { ...talk.value, byInvite }),
    callMe: (name) => (mine.value = { ...mine.value, name }),
    exported: () => '',
    importFile: () => undefined,
    pause: () => (mine.value = { ...mine.value, lending: { kind: 'paused', why: '' } }),
    resume: () => (mine.value = { ...mine.value, lending: { kind: 'lending' } }),
    leave: () => (phase.value = SCENES['left']?.phase ?? phase.value),
    setPledge: (bytes) => (mine.value = { ...mine.value, pledgeBytes: bytes }),
    deleteStored: () => (mine.value = { ...mine.value, stored: { ...mine.value.stored, bytes: 0 } }),
    setSettings: (change) => (settings.value = { ...settings.value, ...change }),
    resetSettings: () => (settings.value = MODEL_SETTINGS),
    dismiss: (id) => (notices.value = notices.value.filter((notice) => notice.id !== id)),
    watchPlan: () => undefined,
    wishPlan: (strategy, goal) => {
      const next = { kind: 'PlanWished' as const, strategy, goal, components: [] };
      const asked = {
        kind: 'said' as const,
        wish: next,
        version: 7,
        refused: '',
        sinceMs: performance.now(),
        anew: true,
      };
      wish.value = wishShown({ ...scene.state, wish: next }, asked);
    },
    lookAtModel: () => undefined,
    runModel: (model) => (modelRun.value = { kind: 'running', model }),
    stopModel: () => (modelRun.value = { kind: 'none' }),
    setPinEnds: (on) => (pinEnds.value = { ...pinEnds.value, on, state: on ? 'here' : 'away' }),
    setRelayOnly: (only) => (relayOnly.value = only),
  },
};

const page = document.getElementById('page');
if (page !== null) {
  applyLooks(document.documentElement);
  render(<App view={view} />, page);
  if (scene.streams) stream();
}
