/* The page: one screen. Which part of it is shown follows from `View.phase`. */

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

import { Conversation } from '../conversation/chat';
import { isAnswering } from '../conversation/conversation_view';
import { copyText } from '../kit/copy_button';
import { Dialog } from '../kit/dialog';
import { Icon, Mark } from '../kit/icons';
import { AskName, isGettingReady, JoiningCard, JoiningSteps } from '../join/join_card';
import { switchLooks } from '../kit/theme';
import { MeshPicture } from '../mesh/mesh_picture';
import { ModelsPlace, ModelsSheet } from '../models/models_sheet';
import { MyPart } from '../mesh/my_part';
import { NoLink, Outside, Waiting } from '../join/outside';
import { People } from '../mesh/member_list';
import { PlanSheet } from '../plan/plan_sheet';
import { RoundButton } from '../kit/round_button';
import { SettingsSheet } from '../conversation/settings_sheet';
import { ShareSheet } from '../join/share_sheet';
import { type Command, commandOf, ShortcutsSheet } from './shortcuts';
import { TalkBar, TalkList } from '../conversation/conversation_list';
import { TalkSheet } from '../conversation/conversation_sheet';
import type { View } from './view';

type Sheet = 'share' | 'settings' | 'help' | 'talks' | 'talk' | 'plan' | 'models';
type Tab = 'chat' | 'mesh' | 'part';

/** The whole page. */
export function App({ view }: { view: View }) {
  const sheet = useSignal<Sheet | null>(null);
  const tab = useSignal<Tab>('chat');
  const phase = view.phase.value;
  const inMesh = phase.kind === 'in';
  const { inWords } = view.mesh.value;

  const perform = (command: Command): void => {
    switch (command) {
      case 'focus':
        tab.value = 'chat';
        document.getElementById('question')?.focus();
        return;
      case 'stop':
        if (isAnswering(view.talk.peek().turns)) view.actions.stopMine();
        return;
      case 'again': {
        const last = view.talk.peek().turns.findLast(({ toPeople }) => !toPeople);
        if (last !== undefined && last.state.kind !== 'queued') view.actions.regenerate(last.id);
        return;
      }
      case 'copy':
        void copyText(view.talk.peek().turns.findLast(({ answer }) => answer !== '')?.answer ?? '');
        return;
      case 'fresh':
        view.actions.clear();
        return;
      case 'looks':
        switchLooks();
        return;
      case 'share':
      case 'settings':
      case 'help':
      case 'plan': {
        const needs =
          command === 'share'
            ? view.link.peek() !== ''
            : command !== 'plan' || (view.phase.peek().kind === 'in' && view.mesh.peek().hasOwn);
        if (needs) sheet.value = command;
      }
    }
  };
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      const target = event.target;
      const typing =
        target instanceof HTMLTextAreaElement ||
        (target instanceof HTMLInputElement && target.type !== 'range' && target.type !== 'radio');
      const command = commandOf(event, typing, sheet.peek() !== null);
      if (command === null) return;
      event.preventDefault();
      perform(command);
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);

  return (
    <div class="page" data-phase={phase.kind}>
      <Header view={view} open={perform} />
      {phase.kind === 'no-link' && <NoLink view={view} trouble={phase.trouble} />}
      {phase.kind === 'asking' && <AskName view={view} />}
      {phase.kind === 'joining' && <JoiningCard view={view} />}
      {phase.kind === 'waiting' && <Waiting view={view} trouble={phase.trouble} leftS={phase.leftS} />}
      {phase.kind === 'out' && <Outside view={view} trouble={phase.trouble} />}
      {inMesh && <Inside view={view} tab={tab.value} open={(name) => (sheet.value = name)} />}
      {inMesh && (
        <nav class="tabs" aria-label="Parts of the page">
          {(['chat', 'mesh', 'part'] as const).map((name) => (
            <button
              key={name}
              type="button"
              aria-pressed={tab.value === name}
              onClick={() => {
                tab.value = name;
              }}
            >
              <Icon name={name === 'chat' && !inWords ? 'models' : name} />
              <span>{tabName(name, inWords)}</span>
            </button>
          ))}
        </nav>
      )}
      {sheet.value === 'share' && <ShareSheet view={view} close={() => (sheet.value = null)} />}
      {sheet.value === 'settings' && <SettingsSheet view={view} close={() => (sheet.value = null)} />}
      {sheet.value === 'plan' && <PlanSheet view={view} close={() => (sheet.value = null)} />}
      {sheet.value === 'models' && <ModelsSheet view={view} close={() => (sheet.value = null)} />}
      {sheet.value === 'talk' && <TalkSheet view={view} close={() => (sheet.value = null)} />}
      {sheet.value === 'talks' && (
        <Dialog title="Conversations" close={() => (sheet.value = null)}>
          <TalkList view={view} done={() => (sheet.value = null)} />
        </Dialog>
      )}
      {sheet.value === 'help' && <ShortcutsSheet close={() => (sheet.value = null)} />}
    </div>
  );
}

function tabName(name: Tab, inWords: boolean): string {
  switch (name) {
    case 'chat':
      return inWords ? 'Chat' : 'Models';
    case 'mesh':
      return 'Mesh';
    case 'part':
      return 'My part';
  }
}

function modelsText(count: number, first: string): string {
  if (count === 0) return 'No model yet';
  return count === 1 ? first : `${count} models to run`;
}

function Header({ view, open }: { view: View; open: (command: Command) => void }) {
  const mesh = view.mesh.value;
  const inMesh = view.phase.value.kind === 'in';
  const here = mesh.members.filter((member) => member.status !== 'gone').length;
  const offered = view.offered.value;
  const works = mesh.inWords ? mesh.answers || (!mesh.hasOwn && mesh.runs) : mesh.runs;
  const brand = (
    <>
      <Mark />
      <span class="word">Shoal</span>
    </>
  );
  return (
    <header class="top">
      {inMesh ? <h1 class="brand">{brand}</h1> : <span class="brand">{brand}</span>}
      {inMesh && (
        <span class="model">
          <strong>{mesh.inWords ? mesh.model : modelsText(offered.length, offered[0]?.name ?? '')}</strong>
          <span class={`pill ${works ? 'is-ready' : 'is-loading'}`}>
            <span class="status" aria-hidden="true" />
            {works
              ? `${here} here`
              : isGettingReady(view)
                ? 'getting ready'
                : mesh.inWords
                  ? 'not answering now'
                  : 'nothing runs now'}
          </span>
        </span>
      )}
      <span class="top-buttons">
        {inMesh && mesh.inWords && (
          <RoundButton
            icon="settings"
            label="Settings"
            title="Settings (Alt ,)"
            act={() => open('settings')}
          />
        )}
        <RoundButton
          icon="keys"
          label="Keyboard shortcuts"
          title="Keyboard shortcuts (?)"
          more="wide"
          act={() => open('help')}
        />
        <RoundButton
          icon="looks"
          label="Light or dark mode"
          title="Light or dark mode (Alt L)"
          more="wide"
          act={() => open('looks')}
        />
        {inMesh && view.link.value !== '' && (
          <button
            type="button"
            class="primary"
            aria-label="Invite someone"
            title="Invite someone (Alt S)"
            onClick={() => open('share')}
          >
            <Icon name="share" />
            <span class="wide">Invite</span>
          </button>
        )}
      </span>
    </header>
  );
}

function Notices({ view }: { view: View }) {
  return (
    <div class="notices" role="status">
      {view.notices.value.map((notice) => (
        <div key={notice.id} class={`notice is-${notice.tone}`}>
          <p>{notice.text}</p>
          {notice.act !== null && (
            <button type="button" class="link" onClick={notice.act.run}>
              {notice.act.label}
            </button>
          )}
          <button
            type="button"
            class="quiet small"
            aria-label="Hide this notice"
            onClick={() => view.actions.dismiss(notice.id)}
          >
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}

interface InsideProps {
  readonly view: View;
  readonly tab: Tab;
  readonly open: (sheet: 'talks' | 'talk' | 'plan' | 'models') => void;
}

function Inside({ view, tab, open }: InsideProps) {
  const lit = useSignal('');
  const { inWords, hasOwn } = view.mesh.value;
  const offered = inWords ? view.offered.value.length : 0;
  const joining = isGettingReady(view) && (view.talk.value.turns.length > 0 || !inWords); // else the conversation's place shows it
  return (
    <main class={inWords ? 'inside' : 'inside is-without-words'} data-tab={tab}>
      {inWords && (
        <nav class="talks" aria-label="Conversations">
          <TalkList view={view} />
        </nav>
      )}
      <div class="talk">
        {inWords && <TalkBar view={view} open={open} />}
        <Notices view={view} />
        {inWords ? <Conversation view={view} /> : <ModelsPlace view={view} />}
      </div>
      <div class="side">
        <section class="for-mesh" aria-label="The mesh">
          <h2 class="visually-hidden">Picture of the mesh</h2>
          <MeshPicture view={view} lit={lit.value} />
          {hasOwn && (
            <button
              type="button"
              class="secondary to-plan"
              aria-label="See the plan"
              title="Alt P"
              onClick={() => open('plan')}
            >
              <Icon name="plan" />
              <span>See the plan</span>
            </button>
          )}
          {offered > 0 && (
            <button type="button" class="secondary to-models" onClick={() => open('models')}>
              <Icon name="models" />
              <span>{`Run another model (${offered})`}</span>
            </button>
          )}
          <People view={view} lit={lit} />
        </section>
        <div class="for-part">
          {joining && (
            <section class="joining" aria-label="Joining">
              <h2>Joining</h2>
              <JoiningSteps view={view} />
            </section>
          )}
          <MyPart view={view} />
        </div>
      </div>
    </main>
  );
}
