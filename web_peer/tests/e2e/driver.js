/*
 * Drives real browsers for the tests in tests/browsers: one JSON object per line in, {id, result} or {id, error} out.
 *
 * Browsers run headless on 127.0.0.1, with candidates of the loopback interface and no traffic of their own.
 */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

import puppeteer from 'puppeteer-core';

const CHROMIUM = [
  ...['--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking'],
  ...['--disable-component-update', '--disable-sync', '--disable-dev-shm-usage', '--disable-default-apps'],
  '--disable-features=WebRtcHideLocalIpsWithMdns',
  '--allow-loopback-in-peer-connection',
];
const FIREFOX = {
  'media.peerconnection.ice.loopback': true,
  'media.peerconnection.ice.obfuscate_host_addresses': false,
  'app.update.disabledForTesting': true,
  'datareporting.policy.dataSubmissionEnabled': false,
};
const ANSWER_MS = 240_000; // on a busy machine
const CHOOSER_MS = 20_000;
const CHOOSER_TRIES = 6;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf-8');

const browsers = new Map(); // and contexts of those that are shared
const shared = new Map(); // promises by kind: one each, started when it is first visited
const pages = new Map();
let last = 0;

function start({ browser, executable, profile, flags = [] }) {
  const firefox = browser === 'firefox';
  return puppeteer.launch({
    browser: firefox ? 'firefox' : 'chrome',
    executablePath: executable,
    headless: true,
    userDataDir: profile,
    args: firefox ? flags : [...CHROMIUM, ...flags],
    extraPrefsFirefox: FIREFOX,
    protocolTimeout: ANSWER_MS,
    timeout: ANSWER_MS,
  });
}

const operations = {
  async launch(how) {
    const made = await start(how); // others may be started meanwhile
    browsers.set(++last, made);
    return last;
  },
  /** A context of its own in the shared browser of that kind; it closes as a browser does. */
  async visit({ browser, executable }) {
    if (!shared.has(browser)) shared.set(browser, start({ browser, executable }));
    const made = await (await shared.get(browser)).createBrowserContext();
    browsers.set(++last, made);
    return last;
  },
  /** `early`: an expression evaluated in every document before its own scripts. */
  async page({ browser, url, width, height, early }) {
    const page = await browsers.get(browser).newPage();
    page.setDefaultTimeout(ANSWER_MS);
    if (width) await page.setViewport({ width, height });
    if (early) await page.evaluateOnNewDocument(early);
    const heard = [];
    const went = { requests: [], navigations: [], dialogs: [] };
    page.on('request', (request) => went.requests.push(request.url()));
    page.on('framenavigated', (frame) => went.navigations.push(frame.url()));
    page.on('dialog', (dialog) => {
      went.dialogs.push(dialog.message());
      void dialog.dismiss();
    });
    page.on('console', (message) => heard.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => heard.push(`pageerror: ${error?.message ?? error}`));
    await page.goto(url, { waitUntil: 'load' });
    pages.set(++last, { page, heard, went });
    return last;
  },
  evaluate: ({ page, expression }) => pages.get(page).page.evaluate(expression),
  heard: ({ page }) => pages.get(page).heard,
  /** Where a page went since it was opened: addresses asked for, navigations of its frames, dialogs. */
  went: ({ page }) => pages.get(page).went,
  async sized({ page, width, height }) {
    await pages.get(page).page.setViewport({ width, height });
  },
  async key({ page, key }) {
    const { keyboard } = pages.get(page).page;
    const [last, ...held] = key.split('+').reverse();
    for (const each of held.reverse()) await keyboard.down(each);
    await keyboard.press(last);
    for (const each of held) await keyboard.up(each);
  },
  /**
   * Presses a key that opens the file chooser, and chooses `files`, by their paths. A page may open one within 5 s of a
   * key only; where a busy machine takes longer, the key is pressed again, as a person would.
   */
  async choose({ page, key, files }) {
    const { page: tab } = pages.get(page);
    for (let left = CHOOSER_TRIES; ; left -= 1) {
      try {
        const opened = tab.waitForFileChooser({ timeout: CHOOSER_MS });
        const [chooser] = await Promise.all([opened, tab.keyboard.press(key)]);
        await chooser.accept(files);
        return;
      } catch (error) {
        if (error.name !== 'TimeoutError' || left === 1) throw error;
      }
    }
  },
  /** Chromium only: from here on every task of the pages' main threads is recorded. */
  async traceTasks({ page }) {
    await pages.get(page).page.tracing.start({ categories: ['toplevel'] });
  },
  /** The most processor time, in milliseconds, that one task took since then: what a busy machine adds is left out. */
  async longestTask({ page }) {
    const { traceEvents } = JSON.parse(new TextDecoder().decode(await pages.get(page).page.tracing.stop()));
    const isMain = ({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain';
    const mains = new Set(traceEvents.filter(isMain).map(({ pid, tid }) => `${pid} ${tid}`));
    const tasks = traceEvents.filter(
      ({ tdur, pid, tid }) => tdur !== undefined && mains.has(`${pid} ${tid}`),
    );
    if (tasks.length === 0) throw new Error('no task of a main thread was recorded');
    return Math.max(...tasks.map(({ tdur }) => tdur)) / 1000;
  },
  /** What axe-core has against the page as it is now. */
  async axe({ page }) {
    const tab = pages.get(page).page;
    if (!(await tab.evaluate('"axe" in globalThis'))) await tab.evaluate(AXE);
    return tab.evaluate(async () => {
      const { violations } = await globalThis.axe.run(globalThis.document, { resultTypes: ['violations'] });
      return violations.map(({ id, impact, nodes }) => ({
        id,
        impact,
        nodes: nodes.map(({ html, failureSummary }) => `${html.slice(0, 300)} ${failureSummary}`),
      }));
    });
  },
  /** The accessibility tree, as Chromium hands it to screen readers: the nodes that are not ignored. */
  async tree({ page }) {
    const session = await pages.get(page).page.createCDPSession();
    try {
      const { nodes } = await session.send('Accessibility.getFullAXTree');
      return nodes
        .filter(({ ignored }) => !ignored)
        .map(({ role, name, properties = [] }) => ({
          role: role?.value ?? '',
          name: name?.value ?? '',
          focusable: properties.some(({ name, value }) => name === 'focusable' && value.value === true),
        }));
    } finally {
      await session.detach();
    }
  },
  async goto({ page, url }) {
    await pages.get(page).page.goto(url, { waitUntil: 'load' });
  },
  async reload({ page }) {
    await pages.get(page).page.reload({ waitUntil: 'load' });
  },
  /** The tab comes to the front of its window; the one that was there is hidden. */
  async front({ page }) {
    await pages.get(page).page.bringToFront();
  },
  async offline({ page, offline }) {
    await pages.get(page).page.setOfflineMode(offline);
  },
  /** Chromium only. `state`: "frozen" or "active". */
  async lifecycle({ page, state }) {
    const session = await pages.get(page).page.createCDPSession();
    await session.send('Page.setWebLifecycleState', { state });
    await session.detach();
  },
  /** Chromium only: the process with every GPU device dies, as by a fault in a driver. */
  async crashGpu({ browser }) {
    const session = await browsers.get(browser).target().createCDPSession();
    await session.send('Browser.crashGpuProcess').catch(() => undefined);
    await session.detach();
  },
  async screenshot({ page, path }) {
    await pages.get(page).page.screenshot({ path });
  },
  async closePage({ page }) {
    await pages.get(page).page.close();
    pages.delete(page);
  },
  async close({ browser }) {
    await browsers.get(browser).close();
    browsers.delete(browser);
  },
  /** What is still open of a test that ended; browsers that are shared stay. */
  async closeAll() {
    const open = [...browsers.values()];
    browsers.clear();
    pages.clear();
    await Promise.allSettled(open.map((one) => one.close()));
  },
  /** As a crash or a power cut: no page says goodbye. */
  kill({ browser }) {
    const made = browsers.get(browser);
    browsers.delete(browser);
    const { pid } = made.process();
    // The children of a browser are its own: nobody else's process is in that tree.
    const tree = [pid];
    for (const parent of tree) {
      const { stdout } = spawnSync('pgrep', ['-P', String(parent)], { encoding: 'utf-8' });
      tree.push(...stdout.split('\n').filter(Boolean).map(Number));
    }
    for (const each of tree) {
      try {
        process.kill(each, 'SIGKILL');
      } catch {
        continue; // ended with its parent
      }
    }
  },
};

async function answer(line) {
  const { id, op, ...rest } = JSON.parse(line);
  try {
    const result = (await operations[op](rest)) ?? null;
    process.stdout.write(`${JSON.stringify({ id, result })}\n`);
  } catch (error) {
    process.stdout.write(`${JSON.stringify({ id, error: error?.message ?? String(error) })}\n`);
  }
}

const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => void answer(line));
lines.on('close', () => {
  const open = [...browsers.values(), ...shared.values()];
  void Promise.allSettled(open.map(async (browser) => (await browser).close())).then(() => process.exit(0));
});
