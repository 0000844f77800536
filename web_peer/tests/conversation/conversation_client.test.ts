/* Answers as a tab makes them: when it takes one over, with what, how it ends, what others hear of it. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type {
  AskSettings,
  Begun,
  Conversation as Session,
  Delta,
  Finished,
} from '../../src/origin/answer_stream';
import { NoPlan } from '../../src/errors';
import { USUAL } from '../../src/planner/sampling_defaults';
import { Requests } from '../../src/transport/request_table';
import type { Body } from '../../src/transport/rpc';
import { Hints } from '../../src/conversation/live_hints';
import { begunOf, Making } from '../../src/conversation/answer_in_progress';
import { HIGHEST_VERSION } from '../../src/limits';
import type { TalkLinks, TalkMesh } from '../../src/conversation/local_conversations';
import { type Conversation, converse, messageOf } from '../../src/state/conversations';
import type { ConversationCommand, Member, Message, ModelChosen } from '../../src/state/generated/commands';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import type { Heard } from '../../src/session/origin';
import { Talking } from '../../src/conversation/conversation_client';
import { readAnswer, type RequestKind } from '../../src/wire/request_kind';

const FRESH = '7'.repeat(32);
const SESSION = '0'.repeat(32);
const END = 99;
const PROMPT = [1, 2, 3];
const STANDING: Heard = { answer: 7, turn: 2, spans: [3] };
type Pieces = AsyncGenerator<Delta | Finished, void>;

const defects: unknown[] = []; // what a browser would show in its console

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('reportError', (error: unknown) => void defects.push(error));
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  expect(defects.splice(0)).toEqual([]);
});

const settle = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

/** A mesh that commits what is said when told so. */
class Stage {
  readonly begun: Begun[] = [];
  readonly said: ConversationCommand[] = [];
  readonly models: string[] = []; // that were asked for
  lacks = ''; // a model that is not offered any more
  pieces: () => Pieces = waitsForEver;
  private readonly waiting: (() => void)[] = [];
  private readonly looks = new Set<() => void>();
  private readonly requests = new Requests(() => true);
  private readonly links;
  private readonly view;
  private state: MeshState = { ...EMPTY_STATE, model: { context: 100 } as ModelChosen };

  constructor(members: readonly string[], ...commands: readonly ConversationCommand[]) {
    this.here(...members);
    for (const command of commands) this.apply(command);
    const state = (): MeshState => this.state;
    this.links = {
      on: this.requests.on.bind(this.requests),
      isConnected: () => false,
      prepare: () => undefined,
      speaks: () => HIGHEST_VERSION,
    };
    this.view = {
      me: 'ann',
      get state() {
        return state();
      },
      leader: 'bob',
      subscribe: (look: () => void) => {
        this.looks.add(look);
        return () => this.looks.delete(look);
      },
      onRole: () => () => undefined,
      propose: (command: ConversationCommand) =>
        new Promise<void>((resolve) => {
          this.said.push(command);
          this.waiting.push(() => {
            this.apply(command);
            resolve();
          });
        }),
    };
  }

  talking(): Talking {
    const { links, view } = this;
    const mesh = {
      links,
      view,
      signal: new AbortController().signal,
      onEnded: () => undefined,
      answering: async (model: string) => this.answering(await Promise.resolve(model)),
    };
    const events = { changed: () => undefined, token: () => undefined, refused: () => undefined };
    return new Talking(mesh as unknown as TalkMesh, events);
  }

  /** The model of that name, which has the prompts and the sessions of any. */
  private answering(model: string): unknown {
    this.models.push(model);
    if (model === this.lacks && model !== '') throw new NoPlan(`${model} is not offered`);
    return {
      view: this.view,
      text: { endTokens: [END] },
      samplingDefaults: { ...USUAL, temperature: 0.6, topK: 20 },
      prompts: { chat: () => Promise.resolve({ tokens: PROMPT, pictures: [] }) },
      newSession: () => FRESH,
      conversation: (session = FRESH) => ({
        ...{ session, isOpen: true, underWay: STANDING, stop: () => undefined, close: () => undefined },
        onWait: () => undefined,
        tokens: () => this.pieces(),
        adopt: (_: readonly number[], __: AskSettings, begun: Begun) => {
          this.begun.push(begun);
          return this.pieces();
        },
      }),
    };
  }

  here(...members: readonly string[]): void {
    this.state = { ...this.state, members: new Map(members.map((peer) => [peer, { peer } as Member])) };
    this.tell();
  }

  async hears(peer: string, ids: readonly number[]): Promise<void> {
    const body = { conversation: 'c', message: 'a', after: 0, ids, text: 'one', ...STANDING };
    await this.requests.answer(peer, 'live', body);
  }

  async commit(): Promise<void> {
    for (const each of this.waiting.splice(0)) each();
    this.tell();
    await settle();
  }

  private apply(command: ConversationCommand): void {
    const after = converse(this.state.conversations, command);
    if (typeof after === 'string') throw new Error(after);
    this.state = { ...this.state, conversations: after };
  }

  private tell(): void {
    for (const look of this.looks) look();
  }
}

async function* waitsForEver(): Pieces {
  yield await new Promise<never>(() => undefined);
}

function added(id: string, parent: string, author: string, form: 'answer' | 'to-model'): ConversationCommand {
  const session = form === 'answer' ? SESSION : '';
  const rest = { text: '', whenMs: 1, session, model: '', sampling: [], maxTokens: 50 };
  return { kind: 'MessageAdded', conversation: 'c', id, parent, author, form, ...rest };
}

const within = { conversation: 'c', id: 'a' } as const;
const asked = (author: string): readonly ConversationCommand[] => [
  {
    ...{ kind: 'ConversationStarted', conversation: 'c', title: '', model: '', system: '', sampling: [] },
    ...{ whenMs: 1, peer: 'ann', name: 'Ann', colour: '#000000' },
  },
  added('q', '', author, 'to-model'),
  added('a', 'q', author, 'answer'),
  { kind: 'MessageExtended', ...within, after: 0, tokens: 3, text: 'one two three' },
];

it('an answer goes on in its session only once the log says so, with what was heard but the end', async () => {
  const stage = new Stage(['ann', 'bob'], ...asked('bob'));
  stage.talking();
  await stage.hears('bob', [4, 5, 6, END]);
  stage.here('ann');
  await settle(10);
  expect(stage.said).toMatchObject([
    { kind: 'AnswerAdopted', before: 'bob', author: 'ann', session: SESSION },
  ]);
  expect(stage.begun).toEqual([]);
  await stage.commit();
  expect(stage.begun).toEqual([{ ids: [4, 5, 6], heard: STANDING }]);
});

it('an answer in a conversation that says nothing of sampling is drawn as the model has it', async () => {
  const stage = new Stage(['ann'], ...asked('ann').slice(0, 2));
  stage.talking();
  await settle();
  expect(stage.said).toMatchObject([{ kind: 'MessageAdded', form: 'answer', author: 'ann' }]);
  const { sampling = [] } = stage.said[0] as Partial<Message>;
  expect(sampling.slice(0, 7)).toEqual([600_000, 20, 950_000, 0, 1_000_000, 0, 0]);
});

const chosen = (model: string): ConversationCommand => ({
  ...{ kind: 'ConversationChanged', conversation: 'c', title: '', model, system: '', sampling: [] },
});

it('the model of a conversation answers it, and the answer says so', async () => {
  const stage = new Stage(['ann'], ...asked('ann').slice(0, 2), chosen('other'));
  stage.talking();
  await settle();
  expect(stage.said).toMatchObject([
    { kind: 'MessageAdded', form: 'answer', model: 'other', session: FRESH },
  ]);
  expect(stage.models).toEqual(['other']);
});

it('a question to a model that was withdrawn ends with the reason', async () => {
  const stage = new Stage(['ann'], ...asked('ann').slice(0, 2), chosen('other'));
  stage.lacks = 'other';
  stage.talking();
  await settle();
  await stage.commit();
  expect(stage.said).toMatchObject([
    { kind: 'MessageAdded', form: 'answer', model: 'other' },
    { kind: 'MessageEnded', state: 'failed', reason: 'other is not offered' },
  ]);
});

it('an answer goes on with the model that gave it, whatever answers the next question', async () => {
  const stage = new Stage(['ann', 'bob'], ...asked('bob'), chosen('other'));
  stage.talking();
  await stage.hears('bob', [4, 5, 6]);
  stage.here('ann');
  await settle(10);
  await stage.commit();
  expect(stage.begun).toEqual([{ ids: [4, 5, 6], heard: STANDING }]);
  expect(new Set(stage.models)).toEqual(new Set(['']));
});

it('what somebody else than its author says of an answer counts for nothing', async () => {
  const ended = { state: 'stopped', tokens: 3, text: null, reason: '' } as const;
  const stage = new Stage(['ann', 'bob'], ...asked('ann'), { kind: 'MessageEnded', ...within, ...ended });
  const talking = stage.talking();
  await stage.hears('bob', [7, 8, 9]);
  talking.goOn('c', 'a');
  await settle();
  await stage.commit();
  expect(stage.begun).toEqual([{ ids: [], heard: 1 }]);
});

it('what the log has of an answer stays when it is stopped while it is made again', async () => {
  const stage = new Stage(['ann'], ...asked('ann'));
  stage.pieces = async function* (): Pieces {
    yield { kind: 'delta', text: 'one', token: 4 };
    yield { kind: 'finished', why: 'cancelled' } as Finished;
  };
  const talking = stage.talking();
  await settle();
  await stage.commit();
  await stage.commit();
  expect(stage.said.at(-1)).toEqual({
    ...{ kind: 'MessageEnded', ...within, state: 'stopped', tokens: 3, text: null, reason: '' },
  });
  const { messages } = talking.conversations.get('c') as Conversation;
  expect(messageOf(messages, 'a')?.text).toBe('one two three');
});

it('what was heard of another prompt is not gone on with', () => {
  vi.setSystemTime(1234);
  expect(begunOf([4], null, 3)).toEqual({ ids: [4], heard: 1 });
  expect(begunOf([4], STANDING, 3)).toEqual({ ids: [4], heard: STANDING });
  expect(begunOf([4], STANDING, 5)).toEqual({ ids: [4], heard: 1234 });
});

it('others hear of a long answer piece by piece, tokens and text alike', async () => {
  const told: Body[] = [];
  const call = <T, A>(_: string, kind: RequestKind<T, A>, said: T): Promise<A> => {
    told.push(kind.codec.encode(said) as Body);
    return Promise.resolve(readAnswer(kind, {}));
  };
  const hints = new Hints({
    isConnected: () => true,
    prepare: () => undefined,
    call,
  } satisfies Partial<TalkLinks>);
  const making = new Making(
    'c',
    { session: SESSION, underWay: STANDING, onWait: () => undefined } as unknown as Session,
    [],
  );
  await making.run(
    (async function* (): Pieces {
      for (let token = 0; token < 5000; token += 1) yield { kind: 'delta', text: 'x', token };
    })(),
    () => undefined,
    () => undefined,
  );
  for (let round = 0; round < 3; round += 1) {
    hints.live('c', 'a', ['bob'], making);
    await settle(200);
  }
  const lengths = told.map(({ after, ids, text }) => [after, (ids as number[]).length, String(text).length]);
  expect(lengths).toEqual([
    [0, 4096, 4096],
    [4096, 904, 904],
  ]);
});
