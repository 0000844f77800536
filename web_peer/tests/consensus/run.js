/* Runs a module of this folder under Node, which does not read TypeScript: `node run.js stdio`, `node run.js record`. */

import { fileURLToPath } from 'node:url';

import { runnerImport } from 'vite';

const [name] = process.argv.slice(2);
const root = fileURLToPath(new URL('../..', import.meta.url));
await runnerImport(fileURLToPath(new URL(`./${name}.ts`, import.meta.url)), {
  root,
  configFile: false,
  logLevel: 'error',
});
