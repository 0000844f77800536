import { defineConfig } from 'vite';

// The built app is served by signaling/server.py, under / and with its content security policy: no inline script, no
// data: URLs for code, everything from this origin.
export default defineConfig({
  base: './',
  build: { target: 'es2023', assetsInlineLimit: 0, sourcemap: false, chunkSizeWarningLimit: 2048 },
  worker: { format: 'es' },
});
