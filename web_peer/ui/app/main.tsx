/* The page's entry: what kind of machine this is, which link it came with, and the page over both. */

import { render } from 'preact';

import { entryOf } from '../../src/conversation/entry_links';
import { measure } from '../../src/runtime/self_benchmark';
import { wishesOf } from '../../src/member/page_options';
import { App } from './app';
import { Bound } from './bind_view';
import { pledgeRange } from '../conversation/saved_choices';
import { applyLooks } from '../kit/theme';

interface MoreNavigator {
  readonly deviceMemory?: number; // GB, Chromium only
  readonly userAgentData?: { readonly mobile: boolean; readonly platform: string };
}

const { userAgent } = navigator;
const more = navigator as MoreNavigator;
const isPhone = more.userAgentData?.mobile ?? /Android|iPhone|iPad|Mobile/.test(userAgent);

/** "Firefox on Windows". */
function browserName(): string {
  const find = (table: readonly (readonly [RegExp, string])[]): string =>
    table.find(([pattern]) => pattern.test(userAgent))?.[1] ?? '';
  const browser = find([
    [/Edg/, 'Edge'],
    [/Firefox|FxiOS/, 'Firefox'],
    [/CriOS|Chrome/, 'Chrome'],
    [/Safari/, 'Safari'],
  ]);
  const system = find([
    [/Android/, 'Android'],
    [/iPhone/, 'iPhone'],
    [/iPad/, 'iPad'],
    [/Windows/, 'Windows'],
    [/Mac OS/, 'Mac'],
    [/CrOS/, 'ChromeOS'],
    [/Linux/, 'Linux'],
  ]);
  return [browser === '' ? 'Browser' : browser, system].filter((part) => part !== '').join(' on ');
}

/** Has the files of the page kept for a start without the network, where the browser can. */
async function keepPage(): Promise<void> {
  try {
    await navigator.serviceWorker.register('./sw.js');
    const { active } = await navigator.serviceWorker.ready;
    const loaded = performance.getEntriesByType('resource').map(({ name }) => name);
    active?.postMessage(loaded);
  } catch {
    // A private window, or no secure context: the page starts with the network only.
  }
}

const page = document.getElementById('page');
if (page !== null) {
  applyLooks(document.documentElement);
  const wishes = wishesOf(location.href);
  const range = pledgeRange(isPhone, more.deviceMemory ?? null);
  const bound = new Bound({
    name: wishes.name ?? browserName(),
    named: wishes.name !== null,
    pledge: range,
    entry: entryOf(wishes.entry),
    wished: wishes.memoryBytes,
    measure,
  });
  render(<App view={bound.view} />, page);
  bound.start(location.hash.length > 1 ? wishes.link : '');
  // Another link pasted into the address bar of this tab.
  addEventListener('hashchange', () => location.reload());
  void keepPage();
}
