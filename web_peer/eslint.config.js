// What the code of the tab must keep to, beyond what the compiler proves: no floating promise, no `any`, and pure
// modules that know no clock, no chance, no page and no network. Which file may import which is in layers.js.
import js from '@eslint/js';
import prettier from 'eslint-config-prettier';
import globals from 'globals';
import tseslint from 'typescript-eslint';

import { PURE, PURE_PACKAGES } from './layers.js';

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
    files: [...PURE.map((name) => `${name}.ts`), ...PURE_PACKAGES.map((name) => `src/${name}/**/*.ts`)],
    rules: {
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
    files: ['**/*.js'],
    extends: [tseslint.configs.disableTypeChecked],
    languageOptions: { globals: globals.node },
  },
  {
    files: ['public/*.js'],
    languageOptions: { globals: globals.serviceworker },
  },
);
