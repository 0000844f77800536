/* A conversation as a read-only web page in one file: no script, nothing loaded, light and dark by the reader's system. */

import { toldText } from '../../src/conversation/picture_marks';
import { saidIn } from './export';
import { GrowingMarkdown } from './markdown';
import type { Talk } from '../app/view';

const STYLE = `:root{color-scheme:light dark;font:16px/1.55 system-ui,sans-serif}
body{max-width:46rem;margin:2rem auto;padding:0 1rem}
article{border-top:1px solid #8884;padding:1rem 0}
.by{font-weight:600;margin:0}
.said{white-space:pre-wrap;overflow-wrap:anywhere}
pre,.table{overflow-x:auto}
pre{background:#8882;padding:.8rem;border-radius:8px}
.code-bar button{display:none}
table{border-collapse:collapse}
td,th{border:1px solid #8886;padding:.2rem .6rem}`;

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
const escaped = (text: string): string =>
  text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character] ?? '');

const answerHtml = (answer: string): string =>
  new GrowingMarkdown()
    .blocks(answer)
    .map(({ html }) => html)
    .join('\n');

/** What is shown of it, branch by branch as chosen, as a whole HTML document. */
export function asPage({ title, turns }: Talk, system: string): string {
  const name = escaped(title === '' ? 'Conversation' : title);
  const articles = turns.map((turn) => {
    const { who, toPeople, answer, state } = turn;
    const asked = `<p class="by">${escaped(who.name)}${toPeople ? ' (to people)' : ''}</p>\n<p class="said">${escaped(toldText(saidIn(turn)))}</p>`;
    const stopped = state.kind === 'stopped' ? ' (stopped)' : '';
    const answered = answer === '' ? '' : `\n<p class="by">Model${stopped}</p>\n${answerHtml(answer)}`;
    return `<article>\n${asked}${answered}\n</article>`;
  });
  const told =
    system.trim() === '' ? [] : [`<blockquote class="said">${escaped(system.trim())}</blockquote>`];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>${name}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<h1>${name}</h1>
${[...told, ...articles].join('\n')}
</main>
</body>
</html>
`;
}
