/*
 * Drives real browsers for the tests in tests/browsers: one JSON object per line in, {id, result} or {id, error} out.
 *
 * Browsers run headless on 127.0.0.1, with candidates of the loopback interface and no traffic of their own.
 */

import { spawnSync } from 'node:child_process';
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
const ANSWER_MS = 100_000;

const browsers = new Map();
const pages = new Map();
let last = 0;

const operations = {
  async launch({ browser, executable, profile, flags = [] }) {
    const firefox = browser === 'firefox';
    const made = await puppeteer.launch({
      browser: firefox ? 'firefox' : 'chrome',
      executablePath: executable,
      headless: true,
      userDataDir: profile,
      args: firefox ? flags : [...CHROMIUM, ...flags],
      extraPrefsFirefox: FIREFOX,
      protocolTimeout: ANSWER_MS,
    });
    browsers.set(++last, made);
    return last;
  },
  async page({ browser, url, width, height }) {
    const page = await browsers.get(browser).newPage();
    if (width) await page.setViewport({ width, height });
    const heard = [];
    page.on('console', (message) => heard.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => heard.push(`pageerror: ${error?.message ?? error}`));
    await page.goto(url, { waitUntil: 'load' });
    pages.set(++last, { page, heard });
    return last;
  },
  evaluate: ({ page, expression }) => pages.get(page).page.evaluate(expression),
  heard: ({ page }) => pages.get(page).heard,
  async goto({ page, url }) {
    await pages.get(page).page.goto(url, { waitUntil: 'load' });
  },
  async reload({ page }) {
    await pages.get(page).page.reload({ waitUntil: 'load' });
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
  void Promise.allSettled([...browsers.values()].map((browser) => browser.close())).then(() =>
    process.exit(0),
  );
});
