/*
 * Requests between two connected peers: REQUEST and RESPONSE frames as awaitable calls (twin of peer/transport/rpc.py).
 * Edge. The bytes of bodies are counted before they are read.
 */

import { cut } from './connection';
import type { Admitted } from './request_table';
import { BadCommand, BeginAnew, ConnectionLost, MeshError, NotLeader, PeerError } from '../errors';
import { MAX_REFUSAL_BYTES } from '../limits';
import type { Frame, Request, Response } from '../wire/generated/frames';
import type { Body } from '../wire/json_codec';
import { readAnswer, type RequestKind } from '../wire/request_kind';
import { nowS } from './ticker';

export type { Body } from '../wire/json_codec';

const CALL_TIMEOUT_S = 9; // answered from an event loop, never a model run; a person watches: sooner than Python's 20
const MAX_ANSWERING = 32; // requests of one peer; an honest one has a handful
const STATUS = { ok: 0, refused: 1, failed: 2, elsewhere: 3, anew: 4 } as const;
const MAX_PEER = 128; // characters of a peer id
const LARGE_BODY_BYTES = 128 << 10; // of JSON: more may take tens of milliseconds to read
const LARGE_SHARE = 0.05; // of the time, for these
const MAX_PAUSE_S = 2; // after one of them

interface Waiting {
  readonly peer: string;
  readonly maxAnswerBytes: number;
  readonly sinceS: number;
  resolve(body: Body): void;
  reject(error: PeerError): void;
}

/**
 * `send(peer, frame)` hands a frame over; `admit(peer, method)` is this side's part: it raises BadCommand for an unknown
 * method and for a peer without the right.
 */
export class Calls {
  private nextId = 0;
  private readonly answering = new Map<string, number>(); // by peer: how many of its requests
  private readonly open = new Map<number, Waiting>();
  private readonly large = new LargeBodies();
  private readonly send: (peer: string, frame: Frame) => void;
  private readonly admit: (peer: string, method: string) => Admitted;

  constructor(send: (peer: string, frame: Frame) => void, admit: (peer: string, method: string) => Admitted) {
    this.send = send;
    this.admit = admit;
  }

  /**
   * The other side's answer. Raises MeshError with its refusal (NotLeader, BeginAnew where it says so), BadCommand for
   * what is too long to be said and for what is no answer to this, or ConnectionLost, also when it comes too late.
   */
  async call<T, A>(peer: string, kind: RequestKind<T, A>, said: T, timeoutS = CALL_TIMEOUT_S): Promise<A> {
    const { method, maxBodyBytes, maxAnswerBytes } = kind;
    const body = bytesOf(kind.codec.encode(said) as Body);
    checkBytes(method, body, maxBodyBytes);
    const id = (this.nextId += 1);
    let late: ReturnType<typeof setTimeout> | undefined;
    try {
      const answered = await new Promise<Body>((resolve, reject) => {
        this.open.set(id, { peer, maxAnswerBytes, sinceS: nowS(), resolve, reject });
        const text = `peer ${peer} did not answer within ${timeoutS} s`;
        late = setTimeout(() => reject(new ConnectionLost(text)), timeoutS * 1000);
        this.send(peer, { kind: 'REQUEST', id, method, body });
      });
      return readAnswer(kind, answered);
    } finally {
      clearTimeout(late);
      this.open.delete(id);
    }
  }

  /** Answers when the answer is there. Raises BadCommand when the other side asks too much at once. */
  requested(peer: string, frame: Request): void {
    const under = this.answering.get(peer) ?? 0;
    if (under >= MAX_ANSWERING) throw new BadCommand(`expected at most ${MAX_ANSWERING} requests at once`);
    this.answering.set(peer, under + 1);
    void this.respond(peer, frame).finally(() => {
      const left = (this.answering.get(peer) ?? 1) - 1;
      if (left > 0) this.answering.set(peer, left);
      else this.answering.delete(peer);
    });
  }

  /** Wakes the caller; an answer to nothing is ignored. */
  responded(peer: string, frame: Response): void {
    const waiting = this.open.get(frame.id);
    if (waiting?.peer !== peer) return;
    if (frame.status !== STATUS.ok) {
      waiting.reject(refusalOf(frame));
      return;
    }
    try {
      checkBytes('an answer', frame.body, waiting.maxAnswerBytes);
      waiting.resolve(objectOf(frame.body));
    } catch (error) {
      waiting.reject(error instanceof PeerError ? error : new BadCommand('an answer that is no JSON object'));
    }
  }

  /** Fails what waits for an answer of `peer`. */
  gone(peer: string, reason: string): void {
    for (const waiting of this.open.values()) {
      if (waiting.peer === peer) waiting.reject(new ConnectionLost(`peer ${peer} is gone: ${reason}`));
    }
  }

  private async respond(peer: string, frame: Request): Promise<void> {
    const reply = (status: number, message: string, body: Uint8Array<ArrayBuffer>): void => {
      try {
        this.send(peer, {
          kind: 'RESPONSE',
          id: frame.id,
          status,
          message: cut(message),
          body,
        });
      } catch (error) {
        if (!(error instanceof PeerError)) throw error;
      }
    };
    try {
      const { maxBodyBytes, maxAnswerBytes, answer } = this.admit(peer, frame.method);
      checkBytes(frame.method, frame.body, maxBodyBytes);
      const isLarge = frame.body.length > LARGE_BODY_BYTES;
      const said = isLarge ? await this.large.read(peer, frame.body) : objectOf(frame.body);
      const body = bytesOf(await answer(said));
      checkBytes(`the answer to ${frame.method}`, body, maxAnswerBytes);
      reply(STATUS.ok, '', body);
    } catch (error) {
      const refuse = (status: number, message: string, body: Body): void =>
        reply(status, message, bytesOf(body));
      if (error instanceof NotLeader) refuse(STATUS.elsewhere, error.message, { leader: error.leader });
      else if (error instanceof BeginAnew) refuse(STATUS.anew, error.message, { above: error.above });
      else if (error instanceof PeerError) refuse(STATUS.refused, error.message, {});
      else {
        reportError(error);
        refuse(STATUS.failed, 'the other peer failed', {});
      }
    }
  }
}

/**
 * Large bodies of requests are read one at a time, in a share of the time, and each peer has its turn: who sends many
 * keeps neither heartbeats nor others waiting.
 */
class LargeBodies {
  private turn: Promise<void> = Promise.resolve();
  private readonly own = new Map<string, Promise<void>>(); // by peer: one of each waits for its turn

  async read(peer: string, bytes: Uint8Array): Promise<Body> {
    const before = this.own.get(peer) ?? Promise.resolve();
    const begins = before.then(() => this.begin());
    const mine = begins.then(() => undefined);
    this.own.set(peer, mine);
    const release = await begins;
    if (this.own.get(peer) === mine) this.own.delete(peer);
    const begunS = nowS();
    try {
      return objectOf(bytes);
    } finally {
      setTimeout(release, Math.min((nowS() - begunS) / LARGE_SHARE, MAX_PAUSE_S) * 1000);
    }
  }

  /** Waits for the turn; what it gives ends it. */
  private async begin(): Promise<() => void> {
    const free = this.turn;
    let release = (): void => undefined;
    this.turn = new Promise((resolve) => {
      release = resolve;
    });
    await free;
    return release;
  }
}

function refusalOf({ status, message, body }: Response): MeshError {
  if (status === STATUS.anew) {
    const { above } = named(body);
    const known = Number.isSafeInteger(above) && (above as number) >= 0 && above !== Number.MAX_SAFE_INTEGER;
    return new BeginAnew(message, known ? (above as number) : 0);
  }
  if (status !== STATUS.elsewhere) return new MeshError(message);
  const { leader } = named(body);
  return new NotLeader(message, typeof leader === 'string' && leader.length <= MAX_PEER ? leader : '');
}

function named(body: Uint8Array): Body {
  try {
    checkBytes('a refusal', body, MAX_REFUSAL_BYTES);
    return objectOf(body);
  } catch {
    return {}; // it names nothing
  }
}

/** Raises BadCommand for JSON of more than `most` bytes. */
function checkBytes(what: string, { length }: Uint8Array, most: number): void {
  if (length > most) {
    throw new BadCommand(
      `${what}: expected at most ${most} bytes of JSON, got ${length}; say less, or in parts`,
    );
  }
}

function bytesOf(body: Body): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new TextEncoder().encode(JSON.stringify(body)));
}

function objectOf(bytes: Uint8Array): Body {
  let body: unknown;
  try {
    body = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new BadCommand(`expected a JSON object, got ${bytes.length} bytes that are not JSON`);
  }
  if (body === null || typeof body !== 'object' || Array.isArray(body)) {
    throw new BadCommand(`expected a JSON object, got ${body === null ? 'null' : typeof body}`);
  }
  return body as Body;
}
