/* The conversation: what was asked, what the model said, and where to ask next. */

import { useSignal } from '@preact/signals';
import { memo } from 'preact/compat';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';

import { isAnswering } from './conversation';
import { copyText, CopyButton } from './copying';
import { Icon, Mark } from './icons';
import { isGettingReady, JoiningSteps } from './joining_card';
import { type Block, GrowingMarkdown } from './markdown';
import { sayable, spoken } from './spoken';
import type { AnswerFacts, MeshView, Turn, View } from './view';
import { rateText } from './words';

const AT_END_PX = 48; // this close to the end counts as being there: the text then follows
const MOST_ROWS_PX = 168;

const STARTERS = [
  'Explain in two sentences how several computers can run one language model together.',
  'Write a short poem about fish that swim together.',
  'Show me a Python function that finds the longest word in a sentence.',
];

const BlockView = memo(
  ({ block }: { block: Block }) => (
    // Safe by ui/markdown.ts, which makes every Block.
    <div class="block" dangerouslySetInnerHTML={{ __html: block.html }} />
  ),
  (before, after) => before.block.html === after.block.html,
);

function AnswerText({ turn }: { turn: Turn }) {
  const growing = useMemo(() => new GrowingMarkdown(), [turn.id]);
  const blocks = growing.blocks(turn.answer);
  return (
    <div class="prose">
      {blocks.map((block, at) => (
        <BlockView key={at} block={block} />
      ))}
    </div>
  );
}

function factsText(facts: AnswerFacts): string {
  const tokens = facts.tokens === 1 ? '1 token' : `${facts.tokens} tokens`;
  const rate = facts.tokensPerS > 0 ? ` · ${rateText(facts.tokensPerS)}` : '';
  const first = facts.firstTokenS > 0 ? ` · first after ${facts.firstTokenS.toFixed(1)} s` : '';
  return `${tokens}${rate}${first}${facts.route.length > 0 ? ` · ${facts.route.join(' → ')}` : ''}`;
}

function TurnFoot({ turn, last, view }: { turn: Turn; last: boolean; view: View }) {
  const { state } = turn;
  if (state.kind === 'thinking' || state.kind === 'streaming') return <div class="foot" />;
  const facts = state.kind === 'failed' ? null : state.facts;
  return (
    <div class="foot">
      {turn.answer !== '' && <CopyButton bare label="Copy answer" text={() => turn.answer} />}
      {last && state.kind !== 'failed' && (
        <button
          type="button"
          class="quiet small"
          title="Answer again"
          aria-label="Answer again"
          onClick={() => view.actions.regenerate()}
        >
          <Icon name="again" />
        </button>
      )}
      <span class="facts">
        {state.kind === 'stopped' && 'stopped · '}
        {state.kind === 'done' && state.why === 'length' && 'cut at the length limit · '}
        {facts !== null && factsText(facts)}
      </span>
    </div>
  );
}

function Waiting({ text }: { text: string }) {
  return (
    <p class="thinking">
      <span class="dots" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      {text}
    </p>
  );
}

const TurnView = memo(
  ({ turn, last, view }: { turn: Turn; last: boolean; view: View }) => (
    <article class="turn" aria-label={`Question ${turn.question.slice(0, 60)}`}>
      <p class="question">{turn.question}</p>
      <div class="answer" aria-busy={turn.state.kind === 'thinking' || turn.state.kind === 'streaming'}>
        {turn.state.kind === 'thinking' && <Waiting text="The question goes through the mesh" />}
        {turn.answer !== '' && <AnswerText turn={turn} />}
        {turn.state.kind === 'streaming' && turn.state.stalled && (
          <Waiting text="No word for a moment; waiting for the mesh to go on" />
        )}
        {turn.state.kind === 'failed' && (
          <div class="failed" role="alert">
            <p>{turn.state.text}</p>
            {last && (
              <button type="button" class="secondary" onClick={() => view.actions.regenerate()}>
                <Icon name="again" />
                <span>Ask again</span>
              </button>
            )}
          </div>
        )}
        <TurnFoot turn={turn} last={last} view={view} />
      </div>
    </article>
  ),
  (before, after) => before.turn === after.turn && before.last === after.last,
);

/** Says to screen readers whole sentences of the answer as they come, and how it ended. */
function Announcer({ view }: { view: View }) {
  const said = useRef({ id: 0, to: 0 });
  const turn = view.turns.value.at(-1);
  let saying = '';
  if (turn !== undefined) {
    if (said.current.id !== turn.id) said.current = { id: turn.id, to: 0 };
    const rest = turn.answer.slice(said.current.to);
    const cut = sayable(rest, turn.state.kind !== 'streaming');
    saying = spoken(rest.slice(0, cut));
    said.current.to += cut;
    if (turn.state.kind === 'thinking') saying = 'Waiting for the answer.';
    if (turn.state.kind === 'stopped') saying += ' Answer stopped.';
    if (turn.state.kind === 'done') saying += ' Answer complete.';
  }
  const held = useRef('');
  if (saying !== '') held.current = saying;
  return (
    <div class="visually-hidden" role="status" aria-live="polite">
      {held.current}
    </div>
  );
}

export function Conversation({ view }: { view: View }) {
  const scroller = useRef<HTMLDivElement>(null);
  const atEnd = useSignal(true);
  const turns = view.turns.value;

  const look = (): void => {
    const box = scroller.current;
    if (box !== null) atEnd.value = box.scrollHeight - box.scrollTop - box.clientHeight < AT_END_PX;
  };
  const goToEnd = (): void => {
    const box = scroller.current;
    box?.scrollTo({ top: box.scrollHeight });
  };
  const lastId = turns.at(-1)?.id;
  useLayoutEffect(goToEnd, [lastId]); // a new question is always shown
  useLayoutEffect(() => {
    if (atEnd.peek()) goToEnd();
  });
  useEffect(() => {
    const again = (): void => {
      if (atEnd.peek()) goToEnd();
    };
    addEventListener('resize', again);
    return () => removeEventListener('resize', again);
  }, []);

  const copyCode = (event: MouseEvent): void => {
    const button = event.target instanceof Element ? event.target.closest('button.copy-code') : null;
    const text = button?.closest('.code')?.querySelector('code')?.textContent;
    if (!button || !text) return;
    void copyText(text).then((worked) => {
      button.textContent = worked ? 'Copied' : 'Copy by hand';
      setTimeout(() => (button.textContent = 'Copy code'), 1600);
    });
  };

  return (
    <section class="conversation" aria-label="Conversation">
      <div
        class="turns"
        ref={scroller}
        onScroll={look}
        onClick={copyCode}
        tabIndex={0}
        role="group"
        aria-label="Questions and answers"
      >
        {turns.length === 0 && <Empty view={view} />}
        {turns.map((turn, at) => (
          <TurnView key={turn.id} turn={turn} last={at === turns.length - 1} view={view} />
        ))}
      </div>
      {!atEnd.value && (
        <button type="button" class="to-end" onClick={goToEnd} aria-label="Go to the end">
          <Icon name="down" />
        </button>
      )}
      <Announcer view={view} />
      <Composer view={view} />
    </section>
  );
}

function whoRuns({ members, model }: MeshView, lending: number): string {
  if (lending > 1) {
    return `${lending} machines run ${model} for everyone here. What you ask goes straight from one to the next, through no server.`;
  }
  const alone = members.some(({ you, holds }) => you && holds.length > 0);
  return alone
    ? `This tab runs all of ${model} by itself. Invite someone to share the work: what is asked then goes straight from one machine to the next, through no server.`
    : `One machine runs ${model} for everyone here. What you ask goes straight to it, through no server.`;
}

function Empty({ view }: { view: View }) {
  const mesh = view.mesh.value;
  if (isGettingReady(view)) {
    return (
      <div class="empty">
        <h2>Getting ready</h2>
        <p>This tab becomes a peer of the mesh. You can write your question meanwhile.</p>
        <JoiningSteps view={view} />
      </div>
    );
  }
  const lending = mesh.members.filter((member) => member.holds.length > 0 && member.status !== 'gone').length;
  return (
    <div class="empty">
      <Mark />
      <h2>Ask together</h2>
      <p>
        {mesh.answers
          ? whoRuns(mesh, lending)
          : `${mesh.whyNot || 'The model is getting ready.'} You can already write your question.`}
      </p>
      <div class="starters">
        {STARTERS.map((text) => (
          <button
            key={text}
            type="button"
            class="starter"
            disabled={!mesh.answers}
            onClick={() => view.actions.ask(text)}
          >
            {text}
          </button>
        ))}
      </div>
    </div>
  );
}

function Composer({ view }: { view: View }) {
  const draft = useSignal('');
  const field = useRef<HTMLTextAreaElement>(null);
  const answering = isAnswering(view.turns.value);
  const { answers, whyNot } = view.mesh.value;
  const inMesh = view.phase.value.kind === 'in';

  useLayoutEffect(() => {
    const area = field.current;
    if (area === null) return;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, MOST_ROWS_PX)}px`;
  }, [draft.value]);

  const send = (): void => {
    const text = draft.value.trim();
    if (text === '' || answering || !answers || !inMesh) return;
    draft.value = '';
    view.actions.ask(text);
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="composer-box">
        <textarea
          id="question"
          ref={field}
          rows={1}
          value={draft.value}
          placeholder={
            answers ? 'Ask the mesh' : 'Write your question; it can be sent when the mesh is ready'
          }
          aria-label="Your question"
          aria-describedby="composer-hint"
          onInput={(event) => (draft.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send();
          }}
        />
        {answering ? (
          <button
            type="button"
            class="primary round"
            aria-label="Stop the answer"
            title="Stop (Esc)"
            onClick={() => view.actions.stop()}
          >
            <Icon name="stop" />
          </button>
        ) : (
          <button
            type="submit"
            class="primary round"
            aria-label="Send"
            title="Send (Enter)"
            disabled={draft.value.trim() === '' || !answers || !inMesh}
          >
            <Icon name="send" />
          </button>
        )}
      </div>
      <p class={answers ? 'hint' : 'hint is-why'} id="composer-hint">
        {answers || whyNot === ''
          ? 'A small model can be wrong. Enter sends, Shift Enter makes a new line.'
          : whyNot}
      </p>
    </form>
  );
}
