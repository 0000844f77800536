/*
 * Decides how a message of a conversation says that a picture was asked with: a line for each before its words (twin of
 * peer/conversation/picture_marks.py). Pure.
 *
 * The log has the hash of the file and a description, never the picture: whoever asked has it, nobody else.
 */

export const MAX_ALT = 200; // characters of a description
const MARKS = /^(?:!\[[^[\]\n]{0,200}\]\(picture:[0-9a-f]{64}\)\n){1,16}/u;
const MARK = /!\[([^[\]\n]{0,200})\]\(picture:([0-9a-f]{64})\)\n/gu;
const UNSAYABLE = /[[\]\s]+/g;

/** A picture that a message has: the SHA-256 of its file, and what is to be seen on it in words. */
export interface PictureMark {
  readonly sha256: string;
  readonly alt: string;
}

/** What a message says: its pictures in order, and its words. */
export interface Marked {
  readonly pictures: readonly PictureMark[];
  readonly words: string;
}

/** The text of a message with these pictures. */
export function markedText({ pictures, words }: Marked): string {
  const lines = pictures.map(({ sha256, alt }) => {
    const said = [...alt.replaceAll(UNSAYABLE, ' ').trim()].slice(0, MAX_ALT).join('');
    return `![${said}](picture:${sha256})\n`;
  });
  return lines.join('') + words;
}

/** The pictures and the words of a message; marks that stand anywhere else than before its words are words. */
export function unmarkedText(text: string): Marked {
  const marks = MARKS.exec(text)?.[0] ?? '';
  const pictures = [...marks.matchAll(MARK)].map(([, alt = '', sha256 = '']) => ({ sha256, alt }));
  return { pictures, words: text.slice(marks.length) };
}

/** A message for a model that is not shown its pictures, and for readers: "[picture: a cat]" and the words. */
export function toldText(text: string): string {
  const { pictures, words } = unmarkedText(text);
  return pictures.map(({ alt }) => `[picture${alt === '' ? '' : `: ${alt}`}]\n`).join('') + words;
}
