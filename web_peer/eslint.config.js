// What the code of the tab must keep to, beyond what the compiler proves: no floating promise, no `any`, imports one
// way (ui -> src), and pure modules that know no clock, no chance, no page and no network.
import js from '@eslint/js';
import prettier from 'eslint-config-prettier';
import globals from 'globals';
import tseslint from 'typescript-eslint';

// Modules that are functions of their arguments.
// Most have their twin of the same name in peer/, signaling/ or planner/; their heads say which.
const PURE = [
  'activation_log',
  'admission',
  'admitting',
  'asks',
  'breakers',
  'bundles',
  'chat_template',
  'canary_choices',
  'check_choices',
  'checksum',
  'consensus_held',
  'consensus_records',
  'coordinator',
  'effects',
  'electorate',
  'envelopes',
  'errors',
  'evidence',
  'fields',
  'flow',
  'frame_kinds',
  'frames',
  'header',
  'handing_back',
  'heard',
  'heartbeat',
  'held_plan',
  'hex',
  'json_codec',
  'keeping',
  'kept_ends',
  'kv_copy',
  'kv_slots',
  'lateness',
  'manifest',
  'medians',
  'mesh_choices',
  'mesh_commands',
  'mesh_conversations',
  'mesh_fairness',
  'mesh_ledger',
  'mesh_entries',
  'mesh_people',
  'mesh_state',
  'mesh_upkeep',
  'mesh_wish',
  'meter',
  'moving',
  'onnx',
  'order',
  'pace',
  'packing',
  'paths',
  'pipeline',
  'places',
  'plan_request',
  'prefixes',
  'protection',
  'routes',
  'sampling',
  'saying',
  'receipts',
  'relief',
  'repair_order',
  'seats',
  'openings',
  'pinned',
  'session',
  'sha256',
  'shards',
  'signaling_errors',
  'spans',
  'speaking',
  'stage_work',
  'step_times',
  'surroundings',
  'arithmetic_class',
  'crossings',
  'holders',
  'stop_strings',
  'strict_json',
  'tensors',
  'text',
  'token_checks',
  'transaction_records',
  'transactions',
  'turn_frames',
  'turns',
  'versions',
  'voting',
  'weights',
  'whereabouts',
  'wishes',
];

const EFFECTS = [
  ...['window', 'self', 'document', 'navigator', 'location', 'localStorage', 'sessionStorage', 'indexedDB'],
  ...['fetch', 'WebSocket', 'XMLHttpRequest', 'RTCPeerConnection', 'Worker', 'BroadcastChannel', 'caches'],
  ...[
    'Date',
    'performance',
    'crypto',
    'setTimeout',
    'setInterval',
    'queueMicrotask',
    'requestAnimationFrame',
  ],
  ...['console', 'process', 'globalThis'],
];

export default tseslint.config(
  { ignores: ['dist/', 'build/', 'node_modules/', 'coverage/'] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  prettier,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      eqeqeq: 'error',
      'no-control-regex': 'off', // what comes from outside is searched for control characters
      '@typescript-eslint/require-await': 'off', // an interface may promise what one implementation has at once
      '@typescript-eslint/no-misused-spread': ['error', { allow: ['string'] }], // code points are meant
      'no-console': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true, allowDefaultCaseForExhaustiveSwitch: true },
      ],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowNever: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
    },
  },
  {
    files: ['src/**'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [{ regex: '(^|/)ui(/|$)', message: 'src/ knows no page: ui/ imports src/, never back' }],
        },
      ],
    },
  },
  {
    files: [...PURE.map((name) => `src/${name}.ts`), 'src/consensus/*.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              regex: `^(?!\\./(consensus/[a-z_]+|${PURE.join('|')})$|@huggingface/(tokenizers|jinja)$)`,
              message: 'a pure module imports pure modules only',
            },
          ],
        },
      ],
      'no-restricted-globals': [
        'error',
        ...EFFECTS.map((name) => ({ name, message: 'a pure module is handed what it uses' })),
      ],
      'no-restricted-properties': [
        'error',
        { object: 'Math', property: 'random', message: 'chance is handed to a pure module' },
      ],
    },
  },
  {
    files: ['src/consensus/*.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              regex: '^(?!\\./[a-z_]+$|\\.\\./(checksum|hex|order|packing)$)',
              message: 'the consensus core imports its own modules only, and how bytes lie',
            },
          ],
        },
      ],
    },
  },
  {
    files: ['**/*.js'],
    extends: [tseslint.configs.disableTypeChecked],
    languageOptions: { globals: globals.node },
  },
);
