/*
 * Turns what a model said into markup that is safe to show. A model's words are untrusted: somebody may have told it
 * what to say.
 *
 * Three walls, each enough by itself: markdown-it takes no HTML; its links, images and code are written by the rules
 * below, which make no element that loads anything; and DOMPurify lets through only the few elements and attributes
 * named here. Links lead out of the page only when a person follows them.
 */

import createDOMPurify from 'dompurify';
import MarkdownIt, { type RendererRule, type Token } from 'markdown-it';

const TAGS = [
  ...['p', 'br', 'hr', 'h3', 'h4', 'h5', 'h6', 'blockquote', 'ul', 'ol', 'li', 'strong', 'em', 's'],
  ...['code', 'pre', 'a', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'div', 'span', 'button'],
];
const SAFE_ATTRIBUTES = [
  ...['class', 'start', 'rel', 'target', 'type', 'title', 'tabindex', 'role', 'aria-label'],
];
const ATTRIBUTES = ['href', ...SAFE_ATTRIBUTES]; // only href leads anywhere
const SAFE_LINK = /^(?:https?:\/\/|mailto:)/i;
const TURNING = /[\u202A-\u202E\u2066-\u2069]/g; // embeddings, overrides, isolates
const LANGUAGE = /^[\w+#.-]{1,24}$/;

type Rule = (tokens: readonly Token[], at: number) => string;

const markdown = MarkdownIt({ html: false, linkify: false, breaks: true, typographer: false });
const { escapeHtml } = markdown.utils;
markdown.validateLink = (url) => SAFE_LINK.test(url.trim());

const attribute = (token: Token | undefined, name: string): string => String(token?.attrGet(name) ?? '');

const heading: Rule = (tokens, at) => {
  // The page has its own h1 and h2.
  const token = tokens[at];
  const level = Math.min(6, Number(token?.tag.slice(1) ?? 1) + 2);
  return token?.nesting === 1 ? `<h${level}>` : `</h${level}>\n`;
};
const code: Rule = (tokens, at) => {
  const token = tokens[at];
  const language = token?.info.trim().split(/\s+/)[0] ?? '';
  const shown = LANGUAGE.test(language) ? escapeHtml(language) : 'text';
  return (
    `<div class="code"><div class="code-bar"><span>${shown}</span>` +
    `<button type="button" class="copy-code">Copy code</button></div>` +
    `<pre tabindex="0" role="group" aria-label="Code"><code>${escapeHtml(token?.content ?? '')}</code></pre></div>\n`
  );
};
const aligned: Rule = (tokens, at) => {
  const token = tokens[at];
  const style = attribute(token, 'style');
  const side = /right|center/.exec(style)?.[0];
  return side === undefined ? `<${token?.tag ?? 'td'}>` : `<${token?.tag ?? 'td'} class="${side}">`;
};
const RULES: Readonly<Record<string, Rule>> = {
  heading_open: heading,
  heading_close: heading,
  fence: code,
  code_block: code,
  th_open: aligned,
  td_open: aligned,
  table_open: () => '<div class="table" tabindex="0" role="group" aria-label="Table"><table>\n',
  table_close: () => '</table></div>\n',
  image: (tokens, at) => {
    const token = tokens[at];
    const address = attribute(token, 'src');
    return `<span class="image">[image: ${escapeHtml(token?.content ?? '')} ${escapeHtml(address)}]</span>`;
  },
  link_open: (tokens, at) => {
    const address = attribute(tokens[at], 'href');
    const safe = SAFE_LINK.test(address) ? ` href="${escapeHtml(address)}"` : '';
    return `<a${safe} target="_blank" rel="noopener noreferrer nofollow" title="${escapeHtml(address)}">`;
  },
};
Object.assign(markdown.renderer.rules, RULES satisfies Readonly<Record<string, RendererRule>>);

let purifier: ReturnType<typeof createDOMPurify> | null = null;

function purified(html: string): string {
  purifier ??= createDOMPurify(window);
  return purifier.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: [...ATTRIBUTES],
    ALLOWED_URI_REGEXP: SAFE_LINK,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ADD_URI_SAFE_ATTR: SAFE_ATTRIBUTES,
  });
}

/**
 * Safe HTML of one markdown text. Characters that turn the reading order around are shown, not obeyed: they make a file
 * name or a line of code read as what it is not. Right-to-left languages need none of them.
 */
export function renderMarkdown(text: string): string {
  return purified(markdown.render(text.replace(TURNING, (mark) => `[U+${codeOf(mark)}]`)));
}

const codeOf = (mark: string): string => mark.charCodeAt(0).toString(16).toUpperCase();

/**
 * Where the last block of `text` begins, in characters. What is before it does not change any more when text is
 * added at the end.
 */
export function lastBlockStart(text: string): number {
  const blocks = markdown.parse(text, {}).filter((token) => token.level === 0 && token.map !== null);
  const line = blocks.filter((token) => token.nesting >= 0).at(-1)?.map?.[0] ?? 0;
  let at = 0;
  for (let passed = 0; passed < line; passed += 1) {
    at = text.indexOf('\n', at) + 1;
    if (at === 0) return text.length;
  }
  return at;
}

/** One rendered part of an answer. A settled one stays as it is. */
export interface Block {
  readonly html: string;
  readonly text: string;
}

/**
 * An answer that grows, rendered anew only from its last block on: a frame costs as much as one paragraph, not as
 * the whole answer.
 */
export class GrowingMarkdown {
  private settled: Block[] = [];
  private settledTo = 0;
  private shown = '';
  private made: readonly Block[] = [];

  /** Blocks of `text`. When `text` does not go on from the one before, everything is rendered. */
  blocks(text: string): readonly Block[] {
    if (text === this.shown && this.made.length > 0) return this.made;
    if (!text.startsWith(this.shown)) {
      this.settled = [];
      this.settledTo = 0;
    }
    this.shown = text;
    const tail = text.slice(this.settledTo);
    const cut = lastBlockStart(tail);
    if (cut > 0) {
      const part = tail.slice(0, cut);
      this.settled = [...this.settled, { html: renderMarkdown(part), text: part }];
      this.settledTo += cut;
    }
    const open = tail.slice(cut);
    this.made = open === '' ? this.settled : [...this.settled, { html: renderMarkdown(open), text: open }];
    return this.made;
  }
}
