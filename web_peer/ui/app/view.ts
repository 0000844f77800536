/*
 * What the page needs to know and may do, and nothing else: plain values in signals, and actions.
 *
 * ui/app/bind_view.ts makes a `View` of a mesh; scenes/ makes one of a script, for tests and screenshots.
 */

import type { ReadonlySignal } from '@preact/signals';

import type { Goal, PlanStrategy } from '../../src/state/generated/commands';

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
  | { readonly kind: 'asking' } // what the person is called, before the first visit
  | { readonly kind: 'joining' }
  | { readonly kind: 'in' }
  | { readonly kind: 'waiting'; readonly trouble: Trouble; readonly leftS: number } // to try again; 0: it tries now
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
  readonly runs: string; // of models beside the mesh's own, for people: "units 0–4 of detector"
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

/** A model that answers in words. `name` "": the mesh's own. */
export interface AnsweringView {
  readonly name: string;
  readonly label: string; // for people
  readonly context: number; // tokens
  readonly answers: boolean; // whether a question would be answered now
  readonly whyNot: string;
  readonly sees: boolean; // whether it can be asked with pictures
}

export interface MeshView {
  readonly models: readonly AnsweringView[]; // that answer in words, the mesh's own first; [] where none does
  readonly model: string; // what answers in words, for people: the mesh's own, or further ones; "" until known
  readonly writes: string; // a model that writes what is said now; "" none
  readonly inWords: boolean; // false: no model here answers in words, the mesh runs what is offered
  readonly hasOwn: boolean; // whether the mesh was founded for a model that answers in words
  readonly runs: boolean; // whether an offered model would run now
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
  readonly name: string; // that others see
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

// --- conversations

export type Role = 'owner' | 'member' | 'viewer';

/** Somebody who takes part in a conversation. */
export interface Person {
  readonly id: string; // of the peer
  readonly name: string; // no two in one conversation have the same
  readonly colour: string;
  readonly role: Role;
  readonly you: boolean;
  readonly here: boolean;
  readonly typing: boolean;
}

/** Who said something, also when they take no part any more. */
export type Who = Pick<Person, 'id' | 'name' | 'colour' | 'you'>;

/** Whom a conversation is for that begins. */
export type Audience = 'private' | 'invited' | 'mesh';

/** Who reads a conversation: this person, in this tab or this browser; or everyone in the mesh. */
export type Readers = 'tab' | 'browser' | 'invited' | 'mesh'; // invited: others of the mesh may not take part

/** One conversation in the list. */
export interface TalkLine {
  readonly id: string;
  readonly title: string;
  readonly people: number;
  readonly answering: boolean;
  readonly fresh: boolean; // something came since this person looked
  readonly readers: Readers;
  readonly takesPart: boolean;
  readonly pinned: boolean; // stands first, for this person
  readonly mayRename: boolean;
  readonly mayRemove: boolean;
  readonly excerpt: string; // where it says what is looked for; ""
}

/** A conversation in which something near in meaning to what is looked for is said. */
export interface NearLine {
  readonly talk: string;
  readonly title: string;
  readonly text: string; // what is said there
}

/** What came of a search by meaning. */
export type MeaningView =
  | { readonly kind: 'none' }
  | { readonly kind: 'looking'; readonly done: number; readonly of: number } // parts of messages that are read
  | { readonly kind: 'found'; readonly query: string; readonly near: readonly NearLine[] } // the nearest first
  | { readonly kind: 'failed'; readonly text: string };

export interface AnswerFacts {
  readonly tokens: number;
  readonly firstTokenS: number; // 0: another peer asked, who knows
  readonly tokensPerS: number;
  readonly route: readonly string[]; // names
  readonly crossed?: string; // where it went on with other arithmetic, in words
}

export type AnswerState =
  | { readonly kind: 'none' } // a message to people
  | { readonly kind: 'queued'; readonly text: string } // "Waits for Ana’s question"
  | { readonly kind: 'thinking'; readonly waits?: string } // "you are third in line, about 20 s"
  | { readonly kind: 'streaming'; readonly stalled: boolean } // stalled: no token for a while
  | { readonly kind: 'done'; readonly facts: AnswerFacts }
  | { readonly kind: 'stopped'; readonly why: 'hand' | 'length'; readonly facts: AnswerFacts | null }
  | { readonly kind: 'failed'; readonly text: string };

/** Which of several branches is shown: the `at`th (from 1) of `of`. */
export interface Branch {
  readonly at: number;
  readonly of: number;
}

/** Where dictation is. */
export type DictationView =
  | { readonly kind: 'idle' }
  | { readonly kind: 'asking' } // for the microphone
  | { readonly kind: 'recording'; readonly seconds: number; readonly level: number } // from 0 to 1
  | { readonly kind: 'writing'; readonly share: number } // of what was said, from 0 to 1
  | { readonly kind: 'failed'; readonly text: string };

/** What was said, for the field where a person writes; each id once. */
export interface DictatedView {
  readonly id: number;
  readonly text: string;
}

/** A picture of a question. `url` "": it is not here, which is so with those of others. */
export interface PictureView {
  readonly id: string; // the SHA-256 of its file
  readonly alt: string; // what is to be seen on it, in words
  readonly url: string;
}

/** One message and what came of it. */
export interface Turn {
  readonly id: string;
  readonly who: Who;
  readonly toPeople: boolean;
  readonly question: string; // without its pictures
  readonly pictures: readonly PictureView[];
  readonly branch: Branch;
  readonly answer: string;
  readonly model: string; // that answered, for people; "" where the mesh has only one
  readonly asker: Who | null; // who asked the model, where that is somebody else
  readonly answers: Branch;
  readonly state: AnswerState;
  readonly open: boolean; // not in the log yet: nobody coordinates
}

/** A link into the open conversation, and the key by which the log knows it. The link is a secret. */
export interface Offered {
  readonly key: string;
  readonly link: string;
}

/** The conversation that is shown. `id` "": it begins with the first message. */
export interface Talk {
  readonly id: string;
  readonly title: string;
  readonly people: readonly Person[]; // you first
  readonly turns: readonly Turn[];
  readonly usedTokens: number; // of the context, by what was said; 0: not known yet
  readonly readers: Readers;
  readonly takesPart: boolean;
  readonly mayEnter: boolean; // takes no part yet, and may
  readonly mayWrite: boolean;
  readonly mayRule: boolean;
  readonly byInvite: boolean; // only who is invited takes part
  readonly offers: readonly {
    readonly key: string;
    readonly role: 'member' | 'viewer';
    readonly by: string;
  }[];
  readonly out: readonly { readonly id: string; readonly name: string }[]; // who was put out, and is in the mesh
  readonly mayTake: boolean; // none of its owners is here
  readonly typing: string; // "Ana writes…"
  readonly unsaid: boolean; // what is said here reaches others when somebody coordinates again
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

/** Whether what this person asks anew stays in this tab, which then holds both ends of the model. */
export interface PinEnds {
  readonly on: boolean;
  readonly bytes: number; // of both ends; 0: the model is not known yet
  readonly state: 'away' | 'loading' | 'here' | 'failed';
  readonly done: number; // of bytes that are fetched now
  readonly total: number;
  readonly text: string; // why it failed
}

export interface Actions {
  open(link: string): void;
  join(name: string): void; // under that name; "": under that of the browser
  retry(): void; // join again with the same link, now
  setPinEnds(on: boolean): void; // for conversations that begin from now on
  setRelayOnly(only: boolean): void; // joining under way stops: it may have told an address already
  ask(text: string, toPeople: boolean): void; // to the model with the pictures that are added
  addPictures(files: readonly Blob[]): void; // to the next question
  removePicture(id: string): void;
  dictate(): void; // records, by the microphone
  stopDictating(): void; // and writes what was said
  dropDictation(): void;
  describePicture(id: string, alt: string): void;
  stop(): void; // the answer under way, anybody's
  stopMine(): void;
  regenerate(turn: string): void;
  goOn(turn: string): void;
  edit(turn: string, text: string): void; // another branch
  takeBack(turn: string): void; // a question that waits
  /** Shows the next (1) or the last (-1) branch of a message, or of its answers. */
  turnTo(turn: string, of: 'message' | 'answer', by: number): void;
  writes(now: boolean): void;
  clear(): void; // a new conversation
  show(talk: string): void;
  choose(audience: Audience): void; // of the conversation that begins with the next message
  chooseModel(name: string): void; // that answers from the next question on; "": the mesh's own
  takePart(): void; // in the open conversation
  rename(talk: string, title: string): void;
  remove(talk: string): void; // for everybody who reads it
  pin(talk: string, on: boolean): void;
  search(query: string): void; // "": the whole list again
  searchMeaning(query: string): void; // by the model `View.meaningModel`; "": no more
  shareCopy(audience: Exclude<Audience, 'private'>): void; // of the open private conversation
  setRole(person: string, role: Role): void;
  putOut(person: string): void;
  offerEntry(role: 'member' | 'viewer'): Promise<Offered | null>; // a link into the open conversation
  withdrawEntry(key: string): void;
  chooseEntry(byInvite: boolean): void;
  callMe(name: string): void;
  exported(form: 'markdown' | 'json' | 'page'): string; // page: read-only HTML in one file
  importFile(file: Blob): void;
  pause(): void;
  resume(): void;
  leave(): void;
  setPledge(bytes: number): void;
  deleteStored(): void;
  setSettings(change: Partial<AskSettings>): void; // what the person sets stays theirs, with any model
  resetSettings(): void; // to those of the model
  dismiss(notice: string): void;
  watchPlan(shown: boolean): void; // whether somebody looks at `View.plan`
  wishPlan(strategy: PlanStrategy, goal: Goal): void; // how plans are made from now on
  lookAtModel(name: string): void; // has what it takes and gives shown
  runModel(name: string, inputs: ReadonlyMap<string, GivenInput>): void;
  stopModel(): void; // the run under way
}

// --- the plan

/** A plan to compare: milliseconds a token of one answer, tokens a second of all promised conversations. */
export interface ChoiceView {
  readonly words: string;
  readonly route: string;
  readonly tokenMs: number;
  readonly perS: number;
  readonly chosen: boolean;
  readonly onFront: boolean; // no other one is at least as good in both
  readonly knee: boolean; // of the front: where more of one costs most of the other
  readonly able: boolean; // false: it cannot run, and has no figures
  readonly promptMs: number; // for each token of a prompt; 0: not reckoned
  readonly memoryBytes: number; // on the peer that it fills most; 0: not reckoned
  readonly whyNot: string; // in numbers; "": nothing is said
}

export interface StandbyView {
  readonly name: string;
  readonly ready: boolean;
}

/** Times in milliseconds a token; null: not known. */
export interface StageView {
  readonly peer: string;
  readonly name: string;
  readonly you: boolean;
  readonly here: boolean; // holds its units, and may serve
  readonly run: Run;
  readonly units: string;
  readonly predictedMs: number | null;
  readonly measuredMs: number | null;
  readonly standbys: readonly StandbyView[];
}

/** What a token crosses between two stages; the last one leads back to the first. */
export interface HopView {
  readonly from: string;
  readonly to: string;
  readonly back: boolean;
  readonly predictedMs: number | null; // one way, with what is sent
  readonly roundTripMs: number | null; // now; when it was planned, where nobody says
  readonly bytes: number; // of one token
  readonly bytesPerS: number;
}

/** Bytes that a peer lends, and what the plan puts there. */
export interface MemoryView {
  readonly peer: string;
  readonly name: string;
  readonly you: boolean;
  readonly pledge: number;
  readonly weights: number;
  readonly kv: number; // of all promised conversations, whole
  readonly standby: number; // weights and KV of what it stands by for
  readonly scratch: number; // what computing takes besides
  readonly inUse: number; // weights and KV now, as it reports; 0: it says nothing
}

export interface LossView {
  readonly peer: string;
  readonly name: string;
  readonly you: boolean;
  readonly tokenMs: number | null; // afterwards; null: answers would stop
  readonly outcome: 'unnoticed' | 'covered' | 'waits' | 'stops';
  readonly text: string;
}

export interface PlanView {
  readonly version: number;
  readonly serves: boolean;
  readonly strategy: string;
  readonly goal: string;
  readonly sessions: number;
  readonly context: number;
  readonly tokenMs: number; // predicted for one answer, when it was planned
  readonly nowMs: number; // the same by what peers measured of themselves since; where they did not, as planned
  readonly allPerS: number; // tokens of all promised conversations together
  readonly measuredMs: number | null; // of the last answer to this tab over these stages
  readonly stages: readonly StageView[];
  readonly hops: readonly HopView[]; // as many as stages; none when there is one stage
  readonly memory: readonly MemoryView[];
  readonly losses: readonly LossView[];
  readonly choices: readonly ChoiceView[]; // this plan among others, fastest first
  readonly comparedBy: 'planner' | 'tab'; // whose figures those are
  readonly why: readonly string[];
  readonly next: string; // what the plan after this one waits for; "" none is on its way
}

/** A group of units that the strategy `component` keeps together. */
export interface GroupView {
  readonly name: string;
  readonly units: string;
  readonly prefers: string; // a name; "": any peer
}

export interface WishView {
  readonly strategy: PlanStrategy;
  readonly goal: Goal;
  readonly groups: readonly GroupView[];
  readonly hasGroups: boolean; // that `component` can be chosen with: the present ones, or the last ones seen here
  readonly byHand: boolean; // borders are fixed by hand: plans go by the wish once they are not
  readonly mayWish: boolean;
  readonly outcome: string; // for people; "": nothing was asked here
  readonly tone: 'calm' | 'busy' | 'bad'; // busy: more is to come
}

// --- the models

/** In what form a person can give an input. */
export type InputForm = 'json' | 'picture' | 'sound' | 'words';

/** An input or output of a model. */
export interface PortView {
  readonly name: string;
  readonly type: string; // "float32"
  readonly shape: string; // "1 × 3 × height × width"; "one number"
  readonly forms: readonly InputForm[]; // of an input, the most fitting one first
}

/** Units of an offered model on one peer. */
export interface PlaceView {
  readonly peer: string; // name
  readonly you: boolean;
  readonly units: string; // "units 0–4"
  readonly bytes: number;
  readonly standbys: readonly string[];
}

/** When a peer computes, of one run alone; milliseconds. */
export interface SpanView {
  readonly units: string;
  readonly beginsMs: number;
  readonly endsMs: number;
  readonly critical: boolean; // only who makes it shorter makes the run shorter
}

/** Who runs what, in time: a lane for each peer. */
export interface TimesView {
  readonly lanes: readonly {
    readonly peer: string;
    readonly you: boolean;
    readonly spans: readonly SpanView[];
  }[];
  readonly crossings: readonly {
    readonly from: string;
    readonly to: string;
    readonly bytes: number;
    readonly critical: boolean;
  }[];
  readonly critical: readonly string[]; // the critical path in time, for people: "units 0–1 on studio", "studio to Ada"
  readonly endsMs: number;
}

/** A model that the mesh offers beside its own. */
export interface OfferedView {
  readonly name: string;
  readonly places: readonly PlaceView[]; // [] while it runs nowhere
  readonly runMs: number; // predicted, of one run
  readonly perS: number; // predicted, of a stream
  readonly whyNot: string; // why it runs nowhere, or cannot be shown
  readonly takes: readonly PortView[]; // [] until its manifest is here
  readonly takesTexts: boolean; // all its inputs can be made of texts
  readonly gives: readonly PortView[];
  readonly times: TimesView | null; // null until its manifest is here
}

/** In place of the name of an input: texts, of which all inputs are made. */
export const TEXTS = '';

/** An input as a person gives it. */
export type GivenInput =
  | { readonly form: 'json' | 'words'; readonly text: string }
  | { readonly form: 'picture' | 'sound'; readonly file: Blob };

export interface OutputView {
  readonly name: string;
  readonly type: string;
  readonly shape: string;
  readonly values: string; // the first ones
  readonly file: Blob | null; // .npy; null where numpy has no such type
}

/** The run that was asked here last. */
export type ModelRunView =
  | { readonly kind: 'none' }
  | { readonly kind: 'running'; readonly model: string }
  | { readonly kind: 'failed'; readonly model: string; readonly text: string }
  | {
      readonly kind: 'done';
      readonly model: string;
      readonly tookMs: number;
      readonly peers: readonly string[]; // names
      readonly outputs: readonly OutputView[];
    };

// --- all of it

export interface View {
  readonly phase: ReadonlySignal<Phase>;
  readonly steps: ReadonlySignal<readonly JoinStep[]>;
  readonly notices: ReadonlySignal<readonly Notice[]>;
  readonly mesh: ReadonlySignal<MeshView>;
  readonly plan: ReadonlySignal<PlanView | null>; // kept up to date while it is watched
  readonly wish: ReadonlySignal<WishView | null>; // null: the model is not known yet
  readonly offered: ReadonlySignal<readonly OfferedView[]>; // beside the mesh's own model, by name
  readonly modelRun: ReadonlySignal<ModelRunView>;
  readonly activity: ReadonlySignal<Activity>;
  readonly mine: ReadonlySignal<MyPart>;
  readonly talk: ReadonlySignal<Talk>;
  readonly dictation: ReadonlySignal<DictationView>;
  readonly dictated: ReadonlySignal<DictatedView>;
  readonly picked: ReadonlySignal<readonly PictureView[]>; // that the next question is asked with
  readonly audience: ReadonlySignal<Audience>; // of the conversation that begins with the next message
  readonly model: ReadonlySignal<string>; // that answers the next question; "": the mesh's own
  readonly talks: ReadonlySignal<readonly TalkLine[]>; // pinned ones first, then the newest
  readonly meaning: ReadonlySignal<MeaningView>;
  readonly meaningModel: ReadonlySignal<string>; // an embedding model that the mesh offers; "" none
  readonly settings: ReadonlySignal<AskSettings>; // of the conversation that is shown
  readonly modelSettings: ReadonlySignal<AskSettings>; // what the model has for whoever chooses nothing
  readonly pinEnds: ReadonlySignal<PinEnds>;
  readonly relayOnly: ReadonlySignal<boolean>; // whether this tab joins through the mesh's relay only
  readonly link: ReadonlySignal<string>; // the invite this tab came with; "" none
  readonly isInvited: boolean; // the link leads into a conversation
  readonly lastLink: string; // of the mesh that this browser was in before; "" none
  readonly actions: Actions;
}
