/* One message of a conversation and what the model said to it, with what a person can do about both. */

import { useSignal } from '@preact/signals';
import { memo } from 'preact/compat';
import { useEffect, useMemo, useRef } from 'preact/hooks';

import { CopyButton } from '../kit/copy_button';
import { Icon, type IconName } from '../kit/icons';
import { type Block, GrowingMarkdown } from './markdown';
import { Disc } from '../kit/avatar';
import { AskedPictures } from './pictures';
import type { AnswerFacts, Branch, Turn, View } from '../app/view';
import { rateText } from '../kit/formatting';

const BlockView = memo(
  ({ block }: { block: Block }) => (
    // Safe by ui/conversation/markdown.ts, which makes every Block.
    <div class="block" dangerouslySetInnerHTML={{ __html: block.html }} />
  ),
  (before, after) => before.block.html === after.block.html,
);

function AnswerText({ turn }: { turn: Turn }) {
  const growing = useMemo(() => new GrowingMarkdown(), [turn.id, turn.answers.at]);
  const blocks = growing.blocks(turn.answer);
  return (
    <div class="prose">
      {blocks.map((block, at) => (
        <BlockView key={at} block={block} />
      ))}
    </div>
  );
}

/** How an answer came about, in a line; "" where nothing is known. */
export function factsText(facts: AnswerFacts): string {
  const { tokens, tokensPerS, firstTokenS, route } = facts;
  return [
    tokens === 0 ? '' : tokens === 1 ? '1 token' : `${tokens} tokens`, // 0: of an answer that was brought in
    tokensPerS > 0 ? rateText(tokensPerS) : '',
    firstTokenS > 0 ? `first after ${firstTokenS.toFixed(1)} s` : '',
    route.join(' → '),
  ]
    .filter((fact) => fact !== '')
    .join(' · ');
}

function Act({ icon, label, act }: { icon: IconName; label: string; act: () => void }) {
  return (
    <button type="button" class="quiet small" title={label} aria-label={label} onClick={act}>
      <Icon name={icon} />
    </button>
  );
}

/** "‹ 2/3 ›" */
function Branches({ branch, what, go }: { branch: Branch; what: string; go: (by: number) => void }) {
  const { at, of } = branch;
  if (of < 2) return null;
  return (
    <span class="branches" role="group" aria-label={`${what} ${at} of ${of}`}>
      <button
        type="button"
        class="quiet small"
        aria-label={`Previous ${what.toLowerCase()}`}
        disabled={at === 1}
        onClick={() => go(-1)}
      >
        <Icon name="before" />
      </button>
      <span>
        {at}/{of}
      </span>
      <button
        type="button"
        class="quiet small"
        aria-label={`Next ${what.toLowerCase()}`}
        disabled={at === of}
        onClick={() => go(1)}
      >
        <Icon name="after" />
      </button>
    </span>
  );
}

function AnswerFoot({ turn, view, write, busy }: { turn: Turn; view: View; write: boolean; busy: boolean }) {
  const { state } = turn;
  if (state.kind === 'thinking' || state.kind === 'streaming') return <div class="foot" />;
  if (state.kind === 'none' || state.kind === 'queued') return null;
  const facts = state.kind === 'failed' ? null : state.facts;
  const acts = write && !busy;
  return (
    <div class="foot">
      {turn.answer !== '' && <CopyButton bare label="Copy answer" text={() => turn.answer} />}
      {acts && state.kind !== 'failed' && (
        <Act icon="again" label="Regenerate answer" act={() => view.actions.regenerate(turn.id)} />
      )}
      {acts && state.kind === 'stopped' && turn.answer !== '' && (
        <Act icon="on" label="Continue this answer" act={() => view.actions.goOn(turn.id)} />
      )}
      <Branches branch={turn.answers} what="Answer" go={(by) => view.actions.turnTo(turn.id, 'answer', by)} />
      <span class="facts">
        {state.kind === 'stopped' && (state.why === 'length' ? 'cut at the length limit · ' : 'stopped · ')}
        {facts !== null && factsText(facts)}
        {facts?.crossed !== undefined && (
          <span title={facts.crossed}> · continued with other arithmetic</span>
        )}
        {turn.asker !== null && ` · asked by ${turn.asker.you ? 'you' : turn.asker.name}`}
      </span>
    </div>
  );
}

/** Moving dots, and what is waited for. */
export function Waiting({ text }: { text: string }) {
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

function Failed({ turn, text, view, acts }: { turn: Turn; text: string; view: View; acts: boolean }) {
  return (
    <div class="failed" role="alert">
      <p>{text}</p>
      {acts && (
        <div class="buttons">
          <button type="button" class="secondary" onClick={() => view.actions.regenerate(turn.id)}>
            <Icon name="again" />
            <span>Ask again</span>
          </button>
          {turn.answer !== '' && (
            <button type="button" class="secondary" onClick={() => view.actions.goOn(turn.id)}>
              <Icon name="on" />
              <span>Continue</span>
            </button>
          )}
        </div>
      )}
    </div>
  );
}

/** The field in which a person changes what they said. */
function Editor({ turn, view, close }: { turn: Turn; view: View; close: () => void }) {
  const text = useSignal(turn.question);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const area = field.current;
    area?.focus();
    area?.setSelectionRange(area.value.length, area.value.length);
  }, []);
  const save = (): void => {
    const said = text.value.trim();
    if (said !== '' && said !== turn.question) view.actions.edit(turn.id, said);
    close();
  };
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <textarea
        ref={field}
        rows={3}
        value={text.value}
        aria-label="Edit your message"
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Escape') {
            event.stopPropagation();
            close();
          } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            save();
          }
        }}
      />
      <div class="buttons">
        <button type="submit" class="primary">
          Send
        </button>
        <button type="button" class="secondary" onClick={close}>
          Cancel
        </button>
      </div>
    </form>
  );
}

function Message({ turn, view, shared, write }: { turn: Turn; view: View; shared: boolean; write: boolean }) {
  const editing = useSignal(false);
  const { who } = turn;
  if (editing.value) {
    return <Editor turn={turn} view={view} close={() => (editing.value = false)} />;
  }
  const isLeft = shared && !who.you;
  const acts = who.you && write;
  return (
    <div class={`said${isLeft ? ' is-other' : ''}${turn.toPeople ? ' to-people' : ''}`}>
      {isLeft && <Disc who={who} />}
      <div class="said-body">
        {(isLeft || turn.toPeople) && (
          <p class="said-by">
            {isLeft && <strong>{who.name}</strong>}
            {turn.toPeople && <span>to people, not the model</span>}
          </p>
        )}
        <AskedPictures pictures={turn.pictures} />
        {turn.question !== '' && <p class="question">{turn.question}</p>}
        <div class="said-foot">
          <Branches
            branch={turn.branch}
            what="Message"
            go={(by) => view.actions.turnTo(turn.id, 'message', by)}
          />
          {turn.open && <span class="facts">not sent to the others yet</span>}
          <span class="on-hover">
            <span class="copy">
              <CopyButton bare label="Copy message" text={() => turn.question} />
            </span>
            {acts && <Act icon="edit" label="Edit message" act={() => (editing.value = true)} />}
          </span>
        </div>
      </div>
    </div>
  );
}

interface Props {
  readonly turn: Turn;
  readonly view: View;
  readonly shared: boolean; // others take part
  readonly write: boolean; // this person may
  readonly busy: boolean; // an answer is under way
}

export const TurnView = memo(
  ({ turn, view, shared, write, busy }: Props) => {
    const { state } = turn;
    const isOpen = state.kind === 'thinking' || state.kind === 'streaming';
    return (
      <article
        class="turn"
        aria-label={`${turn.who.you ? 'You' : turn.who.name}: ${turn.question.slice(0, 60)}`}
      >
        <Message turn={turn} view={view} shared={shared} write={write} />
        {state.kind === 'queued' && (
          <div class="queued">
            <Waiting text={state.text} />
            {write && turn.who.you && (
              <button type="button" class="link" onClick={() => view.actions.takeBack(turn.id)}>
                Cancel question
              </button>
            )}
          </div>
        )}
        {state.kind !== 'none' && state.kind !== 'queued' && (
          <div class="answer" role="group" aria-label="Answer" aria-busy={isOpen}>
            {turn.model !== '' && <p class="answer-by">{turn.model}</p>}
            {state.kind === 'thinking' && (
              <Waiting
                text={
                  state.waits === undefined
                    ? 'Working on it'
                    : `All sessions of the mesh are in use: ${state.waits}`
                }
              />
            )}
            {turn.answer !== '' && <AnswerText turn={turn} />}
            {state.kind === 'streaming' && state.stalled && (
              <Waiting text="Waiting for the mesh to continue" />
            )}
            {state.kind === 'failed' && (
              <Failed turn={turn} text={state.text} view={view} acts={write && !busy} />
            )}
            <AnswerFoot turn={turn} view={view} write={write} busy={busy} />
          </div>
        )}
      </article>
    );
  },
  (before, after) =>
    before.turn === after.turn &&
    before.shared === after.shared &&
    before.write === after.write &&
    before.busy === after.busy,
);
