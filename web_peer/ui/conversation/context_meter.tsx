/* How much of the context the open conversation uses: what the model reads with the next question. */

import type { Talk } from '../app/view';

const FULL = 0.85; // of the context: from here on the meter warns

/** A meter with a tooltip in words; nothing before something was said. */
export function ContextMeter({ talk, context }: { talk: Talk; context: number }) {
  const { usedTokens } = talk;
  if (usedTokens === 0 || context === 0) return null;
  const percent = Math.min(100, Math.round((100 * usedTokens) / context));
  const text = `Context used: ${percent}% (${usedTokens} of ${context} tokens)`;
  return (
    <span class={usedTokens > FULL * context ? 'context is-full' : 'context'} title={text}>
      <meter
        min={0}
        max={context}
        high={FULL * context}
        value={Math.min(usedTokens, context)}
        aria-label={text}
      />
      <span aria-hidden="true">{percent}%</span>
    </span>
  );
}
