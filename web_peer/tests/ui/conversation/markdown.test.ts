/*
 * @vitest-environment jsdom
 *
 * What a model says is shown as text or safe markup, whatever it says.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { GrowingMarkdown, lastBlockStart, renderMarkdown } from '../../../ui/conversation/markdown';

function shown(markdown: string): HTMLElement {
  const box = document.createElement('div');
  box.innerHTML = renderMarkdown(markdown);
  return box;
}

const ELEMENTS = new Set(
  'P BR HR H3 H4 H5 H6 BLOCKQUOTE UL OL LI STRONG EM S CODE PRE A TABLE THEAD TBODY TR TH TD DIV SPAN BUTTON'.split(
    ' ',
  ),
);
const ATTRIBUTES = new Set([
  'href',
  'class',
  'start',
  'rel',
  'target',
  'type',
  'title',
  'tabindex',
  'role',
  'aria-label',
]);

/** Fails when anything in `box` could run, load, or lead somewhere by itself. */
function expectHarmless(box: HTMLElement): void {
  for (const element of box.querySelectorAll('*')) {
    expect(ELEMENTS, element.outerHTML).toContain(element.tagName);
    for (const { name, value } of element.attributes) {
      expect(ATTRIBUTES, element.outerHTML).toContain(name);
      if (name === 'role') expect(value).toBe('group');
      if (name === 'aria-label') expect(value).toMatch(/^(?:Code|Table)$/);
      if (name === 'href') expect(value).toMatch(/^(?:https?:\/\/|mailto:)/i);
      if (name === 'class') expect(value).toMatch(/^(?:code|code-bar|copy-code|image|table|right|center)$/);
    }
    if (element.tagName === 'A') expect(element.getAttribute('rel')).toBe('noopener noreferrer nofollow');
  }
}

const HOSTILE: readonly string[] = [
  `<script>alert(1)</script>`,
  `<img src=x onerror="alert(1)">`,
  `<svg><script>alert(1)</script></svg>`,
  `<iframe srcdoc="<script>alert(1)</script>"></iframe>`,
  `<style>body{display:none}</style>`,
  `<a href="javascript:alert(1)" onclick="alert(1)">x</a>`,
  `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">`,
  `[x](javascript:alert(1))`,
  `[x](JaVaScRiPt:alert(1))`,
  `[x](data:text/html;base64,PHNjcmlwdD4=)`,
  `[x](vbscript:msgbox)`,
  `[x](&#106;avascript:alert(1))`,
  `[x](//example.org/a)`,
  `[x](/settings)`,
  `[x](blob:https://example.org/1)`,
  `[x](https://example.org/ "t\\" onmouseover=\\"alert(1)")`,
  `[x](https://example.org/"onmouseover="alert(1))`,
  `<https://example.org/"onmouseover="alert(1)>`,
  `<javascript:alert(1)>`,
  `![pixel](https://example.org/track.png)`,
  `![p](data:image/svg+xml;base64,PHN2Zz4=)`,
  `![" onerror="alert(1)](x)`,
  `![<img src=x onerror=alert(1)>](https://example.org/"><script>)`,
  '```"><script>alert(1)</script>\nx\n```',
  '```js onload=alert(1)\n</code></pre><script>alert(1)</script>\n```',
  '    </code><script>alert(1)</script>',
  '| a |\n|:-:|\n| <img src=x onerror=alert(1)> |',
  '[a]: javascript:alert(1)\n\n[a]',
  '# <script>alert(1)</script>',
  '- <b onclick=alert(1)>x</b>',
  '&lt;script&gt;alert(1)&lt;/script&gt;',
  '\u0000<script\u0000>alert(1)</script>',
];

describe('marks that turn the reading order around', () => {
  it.each([
    'see \u202Egnp.exe',
    '`\u2066x\u2069`',
    '```\n\u202Dcode\n```',
    '[a\u202E](https://example.org/\u202E)',
  ])('%j are shown, not obeyed', (text) => {
    const html = renderMarkdown(text);
    expect(html).not.toMatch(/[\u202A-\u202E\u2066-\u2069]/);
    expect(html).toMatch(/\[U\+20[26]/);
  });
});

describe('a hostile answer', () => {
  it.each(HOSTILE)('shows %j as text or safe markup', (markdown) => {
    expectHarmless(shown(markdown));
  });

  it('shows HTML as the text it is', () => {
    const text = `<script>document.title = 'owned'</script>`;
    expect(shown(text).textContent.trim()).toBe(text);
    expect(document.title).toBe('');
  });

  it('loads no image, and says what it was', () => {
    const box = shown('![a cat](https://example.org/cat.png)');
    expect(box.querySelector('img')).toBeNull();
    expect(box.textContent.trim()).toBe('[image: a cat https://example.org/cat.png]');
  });

  it('leaves ordinary links, which open elsewhere and tell nobody', () => {
    const link = shown('[docs](https://example.org/a?b=1&c=2)').querySelector('a');
    expect(link?.getAttribute('href')).toBe('https://example.org/a?b=1&c=2');
    expect(link?.target).toBe('_blank');
  });

  it('is harmless in every mixture, cut anywhere', () => {
    const piece = fc.oneof(
      fc.constantFrom(...HOSTILE),
      fc.constantFrom(
        '\n\n',
        '\n',
        '> ',
        '- ',
        '1. ',
        '**',
        '`',
        '```\n',
        '[',
        '](',
        ')',
        '![',
        '<',
        '>',
        '"',
        "'",
      ),
      fc.string({ maxLength: 8 }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), fc.nat(200), (pieces, cut) => {
        const text = pieces.join('');
        expectHarmless(shown(text.slice(0, text.length - (cut % (text.length + 1)))));
      }),
      { numRuns: 150 },
    );
  });
});

describe('markdown', () => {
  it('renders what models write', () => {
    const box = shown(
      '# Title\n\n**bold** and `code`\n\n```py\nx = 1 < 2\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |',
    );
    expect(box.querySelector('h3')?.textContent).toBe('Title');
    expect(box.querySelector('strong')?.textContent).toBe('bold');
    expect(box.querySelector('pre code')?.textContent).toBe('x = 1 < 2\n');
    expect(box.querySelector('.code-bar span')?.textContent).toBe('py');
    expect(box.querySelector('button.copy-code')?.textContent).toBe('Copy code');
    expect(box.querySelector('td.right')?.textContent).toBe('2');
  });

  it.each([
    ['', 0],
    ['one paragraph', 0],
    ['one\n\ntwo', 5],
    ['one\n\n- a\n\n- b', 5],
    ['```\na\n\nb', 0],
    ['```\na\n```\nrest', 10],
    ['# a\nb', 4],
  ])('finds where the last block of %j begins', (text, at) => {
    expect(lastBlockStart(text)).toBe(at);
  });
});

describe('an answer that grows', () => {
  const ANSWER =
    'A **list**:\n\n1. one\n2. two\n\n   more\n\n```js\nlet a;\n\nlet b;\n```\n\nText\n===\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\ngoes on\n\nEnd *of* it.';

  it.each([1, 2, 7])('ends as the whole does, %i characters at a time', (step) => {
    const growing = new GrowingMarkdown();
    for (let at = 0; at < ANSWER.length; at += step) growing.blocks(ANSWER.slice(0, at));
    const html = growing
      .blocks(ANSWER)
      .map((block) => block.html)
      .join('');
    expect(html).toBe(renderMarkdown(ANSWER));
  });

  it('keeps settled blocks as they are, so that a frame renders only the last one', () => {
    const growing = new GrowingMarkdown();
    const [first] = growing.blocks('one\n\ntwo');
    expect(growing.blocks('one\n\ntwo and more\n\nthree')[0]).toBe(first);
  });

  it('starts anew when the text is another', () => {
    const growing = new GrowingMarkdown();
    growing.blocks('one\n\ntwo');
    expect(growing.blocks('three').map(({ text }) => text)).toEqual(['three']);
  });
});
