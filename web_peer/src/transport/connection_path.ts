/* Tells whether a relay or a third peer is in a connection's way (twin of peer/transport/connection_path.py). Pure. */

import { type End, isRelayed } from '../state/failure_domains';

const MAX_CHARS = 1 << 17; // of the other side's description, with its later candidates

/** An engine that may know which addresses it uses: of this side and of the other. */
interface TellsPair {
  selected?(): Promise<readonly End[] | null>;
}

/** The path of one connection over `engine`. */
export class Path {
  mine = ''; // description of this side
  private theirs = '';
  private readonly engine: TellsPair;

  constructor(engine: TellsPair) {
    this.engine = engine;
  }

  /** Takes this side's description, and gives it back. */
  own(sdp: string): string {
    this.mine = sdp;
    return sdp;
  }

  /** Takes the other side's description or a later candidate, and gives it back. */
  other(sdp: string): string {
    const line = sdp.startsWith('v=') ? sdp : `a=${sdp}`;
    this.theirs = `${this.theirs}${line}\n`.slice(0, MAX_CHARS);
    return sdp;
  }

  /** Whether a relay or a third peer is in the way; null: nobody can tell. */
  async relayed(): Promise<boolean | null> {
    const asked = this.engine.selected?.() ?? Promise.resolve(null);
    const pair = await asked.catch(() => null); // it closed meanwhile: some browsers tell nothing then
    return isRelayed([this.mine, this.theirs], pair);
  }
}
