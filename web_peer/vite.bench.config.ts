import { defineConfig } from 'vite';

// The page of `shoal bench browser`, apart from the app: it carries a rival along.
export default defineConfig({
  root: 'bench',
  base: '/bench/',
  build: {
    target: 'es2023',
    outDir: '../build/bench',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 4096,
  },
  worker: { format: 'es' },
});
