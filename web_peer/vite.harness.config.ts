import { defineConfig } from 'vite';

// The page of tests/e2e: the tab's code without its page, served in place of the app.
export default defineConfig({
  root: 'tests/harness',
  base: './',
  build: {
    outDir: '../../build/harness',
    emptyOutDir: true,
    target: 'es2023',
    assetsInlineLimit: 0,
    minify: false,
  },
  worker: { format: 'es' },
});
