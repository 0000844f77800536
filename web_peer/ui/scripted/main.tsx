/* The page over a made-up scene, chosen by the part behind "#"; ?looks=dark, ?sheet=share, ?tab=mesh. */

import { signal } from '@preact/signals';
import { render } from 'preact';

import { App } from '../app';
import { asked, askedAgain, came, finished, stopped } from '../conversation';
import { applyLooks, looks } from '../looks';
import { PerFrame } from '../per_frame';
import { DEFAULT_SETTINGS } from '../settings_sheet';
import type { Activity, AskSettings, MyPart, Notice, Phase, Turn, View } from '../view';
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
const turns = signal<readonly Turn[]>(scene.turns);
const mine = signal<MyPart>(scene.mine);
const activity = signal<Activity>({ route: scene.mesh.route, tokens: 0 });
const settings = signal<AskSettings>({ ...DEFAULT_SETTINGS, ...scene.settings });
const notices = signal<readonly Notice[]>(scene.notices.map((notice) => ({ ...notice, act: null })));

let timer: ReturnType<typeof setInterval> | undefined;
const facts = { tokens: 120, firstTokenS: 0.6, tokensPerS: 18.1, route: ['studio', 'you', 'Mira’s laptop'] };

function stream(): void {
  let waiting = '';
  const frame = new PerFrame(() => {
    turns.value = came(turns.value, turns.value.at(-1)?.id ?? 0, waiting);
    waiting = '';
  });
  const words = (scene?.answer ?? '').match(/\s*\S+|\s+$/g) ?? [];
  const begun = turns.value.at(-1)?.answer ?? '';
  let at = 0;
  for (let length = 0; length < begun.length && at < words.length; at += 1) length += words[at]?.length ?? 0;
  timer = setInterval(() => {
    const word = words[at];
    at += 1;
    activity.value = { ...activity.value, tokens: activity.value.tokens + 1 };
    if (word === undefined) {
      clearInterval(timer);
      frame.now();
      turns.value = finished(turns.value, turns.value.at(-1)?.id ?? 0, 'end', facts);
      return;
    }
    waiting += word;
    frame.touch();
  }, TOKEN_MS);
}

const view: View = {
  phase,
  steps: signal(scene.steps),
  notices,
  mesh: signal(scene.mesh),
  activity,
  mine,
  turns,
  settings,
  link: signal(LINK),
  actions: {
    open: () => (phase.value = { kind: 'joining' }),
    retry: () => (phase.value = { kind: 'joining' }),
    ask: (question) => {
      turns.value = asked(turns.value, question);
      stream();
    },
    stop: () => {
      clearInterval(timer);
      turns.value = stopped(turns.value, turns.value.at(-1)?.id ?? 0, facts);
    },
    regenerate: () => {
      turns.value = askedAgain(turns.value);
      stream();
    },
    clear: () => {
      clearInterval(timer);
      turns.value = [];
    },
    pause: () => (mine.value = { ...mine.value, lending: { kind: 'paused', why: '' } }),
    resume: () => (mine.value = { ...mine.value, lending: { kind: 'lending' } }),
    leave: () => (phase.value = SCENES['left']?.phase ?? phase.value),
    setPledge: (bytes) => (mine.value = { ...mine.value, pledgeBytes: bytes }),
    deleteStored: () => (mine.value = { ...mine.value, stored: { ...mine.value.stored, bytes: 0 } }),
    setSettings: (next) => (settings.value = next),
    dismiss: (id) => (notices.value = notices.value.filter((notice) => notice.id !== id)),
  },
};

const page = document.getElementById('page');
if (page !== null) {
  applyLooks(document.documentElement);
  render(<App view={view} />, page);
  if (scene.streams) stream();
}
