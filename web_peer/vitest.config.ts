import { defineConfig } from 'vitest/config';

export default defineConfig({
  // Generous: a busy machine is no fault of the code.
  test: { include: ['tests/**/*.test.ts'], environment: 'node', testTimeout: 300_000 },
});
