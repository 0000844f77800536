import { defineConfig } from 'vite';

// The built app is served by signaling/server.py, under / and with its content security policy: no inline script, no
// data: URLs for code, everything from this origin. It is distributed in the Python package, so it carries the licences
// of what is bundled; of onnxruntime-web, which only workers have and which ships none, in public/.
export default defineConfig({
  base: './',
  build: {
    target: 'es2023',
    assetsInlineLimit: 0,
    sourcemap: false,
    chunkSizeWarningLimit: 2048,
    license: { fileName: 'licenses.md' },
  },
  worker: { format: 'es' },
});
