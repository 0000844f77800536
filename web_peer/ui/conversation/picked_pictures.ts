/*
 * Pictures that this tab has: those that the next question is asked with, and those of questions since the page was
 * opened. They stay in its memory; the conversation has their hashes and descriptions.
 */

import { signal } from '@preact/signals';

import type { PictureMark } from '../../src/conversation/picture_marks';
import { BadPicture, textOf } from '../../src/errors';
import { MAX_PICTURES } from '../../src/model/picture_parts';
import { FORMATS, type PictureFile, sizeOf } from '../../src/model/pictures';
import { toHex } from '../../src/wire/hex';
import { sha256 } from '../../src/wire/sha256';
import type { PictureView } from '../app/view';

const MOST_BYTES = 200 << 20; // of all files that are kept; the oldest are forgotten first
const TYPES: readonly string[] = FORMATS.map((format) => `image/${format.toLowerCase()}`);

/** What a file chooser offers. */
export const ACCEPTED = TYPES.join(',');

interface Kept extends PictureFile {
  readonly url: string;
}

/** One page's pictures. */
export class PickedPictures {
  readonly picked = signal<readonly PictureView[]>([]);
  private readonly kept = new Map<string, Kept>(); // by SHA-256, the oldest first
  private readonly tell: (text: string) => void;

  constructor(tell: (text: string) => void) {
    this.tell = tell;
  }

  /** The picture of that SHA-256, where it is here. */
  file(id: string): PictureFile | null {
    return this.kept.get(id) ?? null;
  }

  /** An address of it in this page; "" where it is not here. */
  urlOf(id: string): string {
    return this.kept.get(id)?.url ?? '';
  }

  /** Adds pictures to the next question. What is none that may be asked with is said. */
  async add(files: readonly Blob[]): Promise<void> {
    for (const file of files) {
      const name = file instanceof File ? file.name : '';
      try {
        await this.addOne(file, name);
      } catch (error) {
        if (!(error instanceof BadPicture)) throw error;
        this.tell(`${name === '' ? 'This file' : `“${name}”`} cannot be added: ${textOf(error)}`);
      }
    }
  }

  /** Takes one out of the next question. */
  remove(id: string): void {
    this.picked.value = this.picked.value.filter((each) => each.id !== id);
  }

  /** What is to be seen on one of the next question, in words. */
  describe(id: string, alt: string): void {
    this.picked.value = this.picked.value.map((each) => (each.id === id ? { ...each, alt } : each));
  }

  /** The pictures of the question that is asked now; the next one has none. */
  take(): readonly PictureMark[] {
    const taken = this.picked.value.map(({ id, alt }) => ({ sha256: id, alt }));
    this.picked.value = [];
    return taken;
  }

  private async addOne(file: Blob, name: string): Promise<void> {
    if (this.picked.value.length >= MAX_PICTURES) {
      throw new BadPicture(`a question has at most ${MAX_PICTURES} pictures; remove another one first`);
    }
    if (file.type !== '' && !TYPES.includes(file.type)) {
      throw new BadPicture(`a picture (${FORMATS.join(', ')}) expected, got ${file.type}`);
    }
    await sizeOf(file);
    const bytes = new Uint8Array(await file.arrayBuffer());
    const id = toHex(sha256(bytes));
    this.keep(id, new Blob([bytes], { type: file.type }));
    if (this.picked.value.some((each) => each.id === id)) return;
    const alt = name.replace(/\.[^.]*$/, '').replaceAll(/[_\s]+/g, ' ');
    this.picked.value = [...this.picked.value, { id, alt, url: this.urlOf(id) }];
  }

  private keep(sha: string, file: Blob): void {
    if (this.kept.has(sha)) return;
    this.kept.set(sha, { sha256: sha, file, url: URL.createObjectURL(file) });
    let bytes = [...this.kept.values()].reduce((sum, each) => sum + each.file.size, 0);
    for (const [old, { file: other, url }] of [...this.kept].slice(0, -1)) {
      if (bytes <= MOST_BYTES) break;
      if (this.picked.value.some(({ id }) => id === old)) continue;
      URL.revokeObjectURL(url);
      this.kept.delete(old);
      bytes -= other.size;
    }
  }
}
