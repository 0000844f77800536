/*
 * A model of the mesh as this peer has it: its manifest, what turns words into tokens, and pieces of weights that
 * peers give each other (twin of peer/model/local_model.py). Edge.
 */

import type { Decoder, Manifest } from '../planner/manifest';
import { type SamplingDefaults, USUAL } from '../planner/sampling_defaults';
import type { Pieces } from './piece_exchange';
import type { Prompts } from './prompts';
import type { Text } from './tokenizer';

/** Before its manifest is known, this peer can neither ask nor give pieces. */
export class LocalModel {
  readonly pieces: Pieces;
  private known: Manifest | null = null;
  private graphs: ReadonlyMap<string, Uint8Array> | null = null;
  private words: Prompts | null = null;

  /** `pieces`: one for all models of this peer, which know pieces by their hashes alone. */
  constructor(pieces: Pieces) {
    this.pieces = pieces;
  }

  /** What the model is made of; null: it is not known yet. */
  get manifest(): Manifest | null {
    return this.known;
  }

  /** The same with the graphs of its units; null: they are not here yet. */
  get decoder(): Decoder | null {
    const { known: manifest, graphs } = this;
    return manifest === null || graphs === null ? null : { manifest, graphs };
  }

  /** How answers are drawn where whoever asks leaves that out; of a model that is not known yet, the usual. */
  get samplingDefaults(): SamplingDefaults {
    return this.known?.sampling ?? USUAL;
  }

  /** Its tokenizer and template; null: they are not here yet. */
  get text(): Text | null {
    return this.words?.text ?? null;
  }

  /** What makes prompts tokens without holding the page up; null: the tokenizer is not here yet. */
  get prompts(): Prompts | null {
    return this.words;
  }

  /** From here on the model is known. */
  know(manifest: Manifest): void {
    this.known = manifest;
  }

  /** From here on the graphs of its units are here, by hash. */
  knowGraphs(graphs: ReadonlyMap<string, Uint8Array>): void {
    this.graphs = graphs;
  }

  /** From here on words can be made tokens. */
  read(prompts: Prompts): void {
    this.words = prompts;
  }

  /** No prompt is read any more. */
  close(): void {
    this.words?.close();
  }
}
