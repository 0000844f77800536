/* Made-up models that a mesh offers beside its own. For development and screenshots only. */

import type { ModelRunView, OfferedView } from '../ui/app/view';

const MB = 1e6;

/** A detector on two peers, an embedding model on one, and a model that fits nowhere. */
export const OFFERED: readonly OfferedView[] = [
  {
    name: 'ppocr-v4-det',
    places: [
      { peer: 'studio', you: false, units: 'units 0–11', bytes: 31.2 * MB, standbys: ['Mira’s laptop'] },
      { peer: 'you', you: true, units: 'units 12–17', bytes: 18.4 * MB, standbys: [] },
    ],
    runMs: 142,
    perS: 11.6,
    whyNot: '',
    takesTexts: false,
    takes: [{ name: 'x', type: 'float32', shape: '1 × 3 × height × width', forms: ['picture', 'json'] }],
    gives: [{ name: 'sigmoid_0.tmp_0', type: 'float32', shape: '1 × 1 × height × width', forms: [] }],
    times: {
      lanes: [
        {
          peer: 'studio',
          you: false,
          spans: [{ units: 'units 0–11', beginsMs: 0, endsMs: 83, critical: true }],
        },
        {
          peer: 'you',
          you: true,
          spans: [{ units: 'units 12–17', beginsMs: 91, endsMs: 142, critical: true }],
        },
      ],
      crossings: [{ from: 'studio', to: 'you', bytes: 1.2 * MB, critical: true }],
      critical: ['units 0–11 on studio', 'studio to you', 'units 12–17 on this tab'],
      endsMs: 142,
    },
  },
  {
    name: 'all-minilm-l6-v2',
    places: [{ peer: 'Mira’s laptop', you: false, units: 'units 0–12', bytes: 96 * MB, standbys: [] }],
    runMs: 12.4,
    perS: 80.1,
    whyNot: '',
    takesTexts: true,
    takes: [
      { name: 'tokens', type: 'int64', shape: 'batch × length', forms: ['json'] },
      { name: 'mask', type: 'float32', shape: 'batch × length', forms: ['json'] },
    ],
    gives: [{ name: 'embedding', type: 'float32', shape: 'batch × 384', forms: [] }],
    times: {
      lanes: [
        {
          peer: 'Mira’s laptop',
          you: false,
          spans: [{ units: 'units 0–12', beginsMs: 0, endsMs: 12.4, critical: true }],
        },
      ],
      crossings: [],
      critical: ['units 0–12 on Mira’s laptop'],
      endsMs: 12.4,
    },
  },
  {
    name: 'whisper-large',
    places: [],
    runMs: 0,
    perS: 0,
    whyNot: 'Nobody has the room: units 0–31 take 2.9 GB, and 1.1 GB are free on the roomiest peer.',
    takesTexts: false,
    takes: [],
    gives: [],
    times: null,
  },
];

export const DONE: ModelRunView = {
  kind: 'done',
  model: 'ppocr-v4-det',
  tookMs: 151,
  peers: ['studio', 'you'],
  outputs: [
    {
      name: 'sigmoid_0.tmp_0',
      type: 'float32',
      shape: '1 × 1 × 320 × 480',
      values:
        '0.0001221  0.0001373  0.0001411  0.9312  0.9634  0.9702  0.9688  0.9571  0.0002136  … 153591 more',
      file: new Blob([]),
    },
  ],
};

export const FAILED: ModelRunView = {
  kind: 'failed',
  model: 'ppocr-v4-det',
  text: 'x: a picture expected, such as PNG or JPEG',
};
