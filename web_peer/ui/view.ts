/*
 * What the page needs to know and may do, and nothing else: plain values in signals, and actions.
 *
 * ui/bind.ts makes a `View` of a mesh; ui/scripted/ makes one of a script, for tests and screenshots.
 */

import type { ReadonlySignal } from '@preact/signals';

/** Units [first, stop) of the model. */
export type Run = readonly [first: number, stop: number];

// --- coming in

export type StepName = 'connect' | 'measure' | 'fetch' | 'ready';

/** One step of joining. `total` 0: no measure of how far it is; `perSecond` 0: not known. */
export interface JoinStep {
  readonly name: StepName;
  readonly state: 'waiting' | 'doing' | 'done';
  readonly detail: string;
  readonly done: number; // bytes, for the step "fetch"
  readonly total: number;
  readonly perSecond: number;
}

export type Remedy = 'retry' | 'reload' | 'link'; // what the page's button does about it

/** Something that a person should read. `text` says what happened, `remedy` what to do about it. */
export interface Trouble {
  readonly title: string;
  readonly text: string;
  readonly remedy: Remedy | null;
}

export type Phase =
  | { readonly kind: 'no-link'; readonly trouble: Trouble | null } // no link, or one that cannot be right
  | { readonly kind: 'joining' }
  | { readonly kind: 'in' }
  | { readonly kind: 'out'; readonly trouble: Trouble }; // gone, refused, or left

/** A line above the conversation while something is not as it should be. */
export interface Notice {
  readonly id: string; // one notice of each id at a time
  readonly tone: 'calm' | 'warn' | 'bad';
  readonly text: string;
  readonly act: { readonly label: string; readonly run: () => void } | null;
}

// --- the mesh

export type MemberStatus = 'ready' | 'loading' | 'busy' | 'paused' | 'gone';

/** A part of the model that a peer holds besides whoever runs it; "of" is that one's name. */
export interface Standby {
  readonly run: Run;
  readonly of: string;
  readonly ready: boolean;
}

/** One line of a peer's card. */
export interface Fact {
  readonly label: string;
  readonly value: string;
  readonly tone: 'plain' | 'good' | 'warn';
}

export interface Member {
  readonly id: string;
  readonly name: string; // no two members have the same
  readonly you: boolean;
  readonly coordinates: boolean;
  readonly lends: boolean; // false: it only asks
  readonly status: MemberStatus;
  readonly doing: string; // for people: "measuring itself", "fetching 3 of 9 blocks"; "" when there is nothing to say
  readonly holds: readonly Run[];
  readonly coming: readonly Run[]; // given by a plan, not here yet
  readonly standsBy: readonly Standby[];
  readonly facts: readonly Fact[]; // the rest that is known of it, for its card
  readonly lentBytes: number;
  readonly runsOn: string; // "WebGPU", "CPU, 2 threads"; "" unknown
}

export interface LinkView {
  readonly a: string; // member ids
  readonly b: string;
  readonly delayMs: number;
}

/** Who decides in the mesh, by the log that all members share. Names. */
export interface Coordination {
  readonly leader: string; // "": nobody, as far as this tab knows
  readonly term: number;
  readonly voters: readonly string[];
  readonly learners: number; // who follow and do not vote
  readonly lag: number; // entries that this tab knows of and are not committed here yet
}

export interface MeshView {
  readonly model: string; // "" until known
  readonly units: number;
  readonly context: number; // tokens
  readonly members: readonly Member[]; // you first, then in pipeline order, then those who only ask
  readonly links: readonly LinkView[];
  readonly route: readonly string[]; // member ids, in pipeline order; [] while nothing serves
  readonly answers: boolean; // whether a question would be answered now
  readonly whyNot: string;
  readonly coordination: Coordination | null; // null: nothing is known of it yet
}

/** Tokens that went round, counted up while an answer is made anywhere this tab can see. */
export interface Activity {
  readonly route: readonly string[];
  readonly tokens: number;
}

// --- my part

export type Lending =
  | { readonly kind: 'starting' }
  | { readonly kind: 'lending' }
  | { readonly kind: 'paused'; readonly why: string }
  | { readonly kind: 'asks'; readonly why: string }; // a viewer: a second tab, or an invite to ask only

export interface Stored {
  readonly bytes: number; // of pieces kept for the next visit
  readonly where: 'kept' | 'may-go' | 'memory'; // persistent, may be evicted by the browser, or refused by it
}

export interface MyPart {
  readonly lending: Lending;
  readonly pledgeBytes: number;
  readonly pledgeMostBytes: number;
  readonly usedBytes: number; // of the pledge, for weights and caches
  readonly holds: readonly Run[];
  readonly runsOn: string;
  readonly tokensHelped: number;
  readonly tokensPerS: number;
  readonly stored: Stored;
}

// --- the conversation

export interface AnswerFacts {
  readonly tokens: number;
  readonly firstTokenS: number;
  readonly tokensPerS: number;
  readonly route: readonly string[]; // names
}

export type AnswerState =
  | { readonly kind: 'thinking' } // asked, no token yet
  | { readonly kind: 'streaming'; readonly stalled: boolean } // stalled: no token for a while
  | { readonly kind: 'done'; readonly why: 'end' | 'length'; readonly facts: AnswerFacts }
  | { readonly kind: 'stopped'; readonly facts: AnswerFacts | null }
  | { readonly kind: 'failed'; readonly text: string };

/** One question and what came of it. */
export interface Turn {
  readonly id: number;
  readonly question: string;
  readonly answer: string;
  readonly state: AnswerState;
}

/** How to answer. `seed` null: another one each time; `maxTokens` null: as long as there is room. */
export interface AskSettings {
  readonly temperature: number;
  readonly topP: number;
  readonly topK: number;
  readonly minP: number;
  readonly repetitionPenalty: number;
  readonly maxTokens: number | null;
  readonly seed: number | null;
  readonly instructions: string; // the system message; "" none
}

export interface Actions {
  open(link: string): void;
  retry(): void; // join again with the same link
  ask(question: string): void;
  stop(): void;
  regenerate(): void; // the last answer
  clear(): void; // a new conversation
  pause(): void;
  resume(): void;
  leave(): void;
  setPledge(bytes: number): void;
  deleteStored(): void;
  setSettings(settings: AskSettings): void;
  dismiss(notice: string): void;
}

export interface View {
  readonly phase: ReadonlySignal<Phase>;
  readonly steps: ReadonlySignal<readonly JoinStep[]>;
  readonly notices: ReadonlySignal<readonly Notice[]>;
  readonly mesh: ReadonlySignal<MeshView>;
  readonly activity: ReadonlySignal<Activity>;
  readonly mine: ReadonlySignal<MyPart>;
  readonly turns: ReadonlySignal<readonly Turn[]>;
  readonly settings: ReadonlySignal<AskSettings>;
  readonly link: ReadonlySignal<string>; // the invite this tab came with; "" none
  readonly actions: Actions;
}
