/*
 * Takes a picture of every state of the page, desktop and phone, light and dark.
 *
 *   npx vite --port 5199 & node scenes/screenshots.js http://127.0.0.1:5199 FOLDER [scene ...]
 */

import { mkdir } from 'node:fs/promises';
import process from 'node:process';
import { setTimeout as wait } from 'node:timers/promises';

import puppeteer from 'puppeteer-core';

const WINDOWS = {
  desktop: { width: 1280, height: 800 },
  phone: { width: 390, height: 844, isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
};
const SCENES = [
  ...[
    'no-link',
    'wrong-link',
    'asking',
    'asking-invited',
    'connecting',
    'gone',
    'waiting',
    'no-relay',
    'older',
    'left',
    'loading',
    'ready',
    'answering',
    'thinking',
  ],
  ...[
    'answered',
    'failed',
    'stopped',
    'paused',
    'battery',
    'viewer',
    'memory',
    'gpu',
    'offline',
    'no-coordinator',
    'few-voters',
    'few-voters-sure',
    'alone',
    'crowd',
    'gone-peer',
    'hostile',
    'together',
    'together-reads',
    'together-outside',
    'together-alone',
    'own-words',
    'picture-question',
    'picture-of-others',
    'dictation',
    'dictation-writing',
    'dictation-refused',
    'two-models',
    'two-models-new',
    'model-withdrawn',
  ],
  ...[
    'answered+share',
    'own-words+share',
    'answered+settings',
    'answered+help',
    'together+people',
    'together+talks',
    'meaning+meaning',
    'crowd+plan',
    'crowd+wish',
    'answered+wish',
    'failed+plan',
    'without-words',
    'models+models',
    'models-done+models',
    'models-failed+models',
  ],
];
const SETTLE_MS = 1500; // a stream is under way by then
const PRESSED = { share: 'KeyS', settings: 'Comma', plan: 'KeyP', wish: 'KeyP' };
const SHOWN_BELOW = { wish: '.sheet .wish' }; // of a sheet that is longer than the window

const [base = 'http://127.0.0.1:5199', folder = 'screenshots', ...wanted] = process.argv.slice(2);
const browser = await puppeteer.launch({
  executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-sync',
  ],
});
await mkdir(folder, { recursive: true });
const page = await browser.newPage();
page.on('pageerror', (error) => process.stderr.write(`${String(error)}\n`));
for (const name of wanted.length > 0 ? wanted : SCENES) {
  const [scene = '', sheet] = name.split('+');
  for (const [window, size] of Object.entries(WINDOWS)) {
    for (const looks of ['light', 'dark']) {
      await page.setViewport(size);
      await page.goto('about:blank');
      await page.goto(`${base}/scenes/index.html?looks=${looks}#${scene}`);
      await page.waitForSelector('.page');
      if (sheet === 'help')
        await page.evaluate(() =>
          globalThis.document.dispatchEvent(
            new globalThis.KeyboardEvent('keydown', { key: '?', bubbles: true }),
          ),
        );
      else if (sheet === 'models') await page.$eval('.to-models', (button) => button.click());
      else if (sheet === 'people') await page.click('.who-is-in');
      else if (sheet === 'talks') await page.click('.to-list').catch(() => undefined);
      else if (sheet === 'meaning') {
        await page.click('.to-list').catch(() => undefined);
        const field = (await page.$('.sheet .find input')) ?? (await page.$('.find input'));
        await field.type('what the sky looks like');
        await page.keyboard.press('Enter');
      } else if (sheet === 'mesh' || sheet === 'part')
        await page.click(`.tabs button:nth-child(${sheet === 'mesh' ? 2 : 3})`).catch(() => undefined);
      else if (sheet !== undefined) {
        const code = PRESSED[sheet];
        await page.evaluate(
          (code) =>
            globalThis.document.dispatchEvent(
              new globalThis.KeyboardEvent('keydown', { key: 'x', code, altKey: true, bubbles: true }),
            ),
          code,
        );
        const below = SHOWN_BELOW[sheet];
        if (below !== undefined) await page.$eval(below, (element) => element.scrollIntoView());
      }
      await wait(scene === 'answering' ? SETTLE_MS : 350);
      await page.screenshot({ path: `${folder}/${name}-${window}-${looks}.png` });
    }
  }
}
await browser.close();
