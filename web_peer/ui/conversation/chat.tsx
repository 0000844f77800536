/* The conversation: what was said, what the model answered, and where to write next. */

import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

import { Composer } from './composer';
import { isAnswering } from './conversation_view';
import { answeringOf } from './model_choice';
import { copyText } from '../kit/copy_button';
import { Icon, Mark } from '../kit/icons';
import { isGettingReady, JoiningSteps } from '../join/join_card';
import { sayable, spoken } from './read_aloud';
import { usePictureDrop } from './pictures';
import { TurnView } from './turn';
import type { AnswerState, MeshView, View } from '../app/view';

const AT_END_PX = 48; // this close to the end counts as being there: the text then follows

const STARTERS = [
  'Explain in two sentences how several computers can run one language model together.',
  'Write a short poem about fish that swim together.',
  'Show me a Python function that finds the longest word in a sentence.',
];

const isOpen = ({ kind }: AnswerState): boolean => kind === 'thinking' || kind === 'streaming';

/** Says to screen readers whole sentences of the answer as they come, and how it ended. */
function Announcer({ view }: { view: View }) {
  const said = useRef({ id: '', to: 0 });
  const { turns } = view.talk.value;
  const turn = turns.findLast(({ state }) => isOpen(state)) ?? turns.at(-1);
  let saying = '';
  if (turn !== undefined) {
    const id = `${turn.id} ${turn.answers.at}`;
    if (said.current.id !== id) said.current = { id, to: 0 };
    const rest = turn.answer.slice(said.current.to);
    const cut = sayable(rest, turn.state.kind !== 'streaming');
    saying = spoken(rest.slice(0, cut));
    said.current.to += cut;
    if (turn.state.kind === 'thinking') saying = 'Waiting for the answer.';
    if (turn.state.kind === 'none' && !turn.who.you) saying = `${turn.who.name}: ${turn.question}`;
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

/** The open conversation; it follows its end while that is in sight. */
export function Conversation({ view }: { view: View }) {
  const scroller = useRef<HTMLDivElement>(null);
  const atEnd = useSignal(true);
  const { id, turns, people, mayWrite, unsaid } = view.talk.value;

  const look = (): void => {
    const box = scroller.current;
    if (box !== null) atEnd.value = box.scrollHeight - box.scrollTop - box.clientHeight < AT_END_PX;
  };
  const goToEnd = (): void => {
    const box = scroller.current;
    box?.scrollTo({ top: box.scrollHeight });
  };
  const lastId = turns.at(-1)?.id;
  useLayoutEffect(goToEnd, [lastId, id]); // a new message is always shown
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

  const { sees } = answeringOf(view.mesh.value, view.model.value);
  const { isOver, handlers } = usePictureDrop(sees && mayWrite, (files) => view.actions.addPictures(files));

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
    <section class={`conversation${isOver ? ' is-over' : ''}`} aria-label="Conversation" {...handlers}>
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
        {turns.map((turn) => (
          <TurnView
            key={turn.id}
            turn={turn}
            view={view}
            shared={people.length > 1}
            write={mayWrite}
            busy={isAnswering(turns)}
          />
        ))}
        {unsaid && (
          <p class="unsaid hint" role="status">
            The mesh has no coordinator now. You can continue; the others see it when there is one again.
          </p>
        )}
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

function whoRuns({ members }: MeshView, model: string, lending: number): string {
  if (lending > 1) {
    return `${lending} machines run ${model} for everyone here. Your question goes directly between them, through no server.`;
  }
  const alone = members.some(({ you, holds }) => you && holds.length > 0);
  return alone
    ? `This tab runs all of ${model} by itself. Invite someone to share the work.`
    : `One machine runs ${model} for everyone here. Your question goes directly to it, through no server.`;
}

function Empty({ view }: { view: View }) {
  const mesh = view.mesh.value;
  const chosen = answeringOf(mesh, view.model.value);
  if (isGettingReady(view)) {
    return (
      <div class="empty">
        <h2>Getting ready</h2>
        <p>This tab is loading its part of the model. You can already write your question.</p>
        <JoiningSteps view={view} />
      </div>
    );
  }
  const isOwn = chosen.name === '';
  const beside = mesh.models.length < 2 ? '' : mesh.hasOwn ? `, beside ${mesh.model}` : ', beside others';
  const lending = mesh.members.filter((member) => member.holds.length > 0 && member.status !== 'gone').length;
  return (
    <div class="empty">
      <Mark />
      <h2>Ask together</h2>
      <p>
        {chosen.answers
          ? isOwn
            ? whoRuns(mesh, chosen.label, lending)
            : `${chosen.label} answers here${beside}. Your question goes directly to those who run it.`
          : `${chosen.whyNot || 'The model is getting ready.'} You can already write your question.`}
      </p>
      <div class="starters">
        {STARTERS.map((text) => (
          <button
            key={text}
            type="button"
            class="starter"
            disabled={!chosen.answers}
            onClick={() => view.actions.ask(text, false)}
          >
            {text}
          </button>
        ))}
      </div>
    </div>
  );
}
