// Drives the benchmark's page in an installed browser: one JSON order on the command line, one JSON answer out.
import process from 'node:process';

import puppeteer from 'puppeteer-core';

const order = JSON.parse(process.argv[2] ?? '{}');
const CHROMIUM = [
  '--no-sandbox',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const launch =
  order.browser === 'firefox'
    ? { browser: 'firefox', extraPrefsFirefox: {} }
    : { browser: 'chrome', args: [...CHROMIUM, ...(order.flags ?? [])] };

const browser = await puppeteer.launch({
  ...launch,
  headless: true,
  executablePath: order.executable,
  protocolTimeout: 900_000,
});
try {
  const answer = { browser: await browser.version() };
  if (order.evaluate !== undefined) {
    const page = await opened('page');
    if (order.crashGpuAt !== undefined) {
      page.on('console', (message) => {
        if (message.text() === order.crashGpuAt) void crashGpu();
      });
    }
    answer.value = await page.evaluate(callOf, order.evaluate.call, order.evaluate.args);
  }
  const sides = {};
  for (const [name, open] of Object.entries(order.sides ?? {})) {
    const page = await opened(name);
    sides[name] = { page, opened: await page.evaluate(callOf, open.call, open.args), rounds: [] };
  }
  // One after the other, so that a busy moment of the machine meets all; the first round warms up.
  for (let round = 0; round <= (order.rounds ?? 0); round++) {
    for (const side of Object.values(sides)) {
      const found = await side.page.evaluate((p, n) => globalThis.round(p, n), order.prompt, order.tokens);
      if (round > 0) side.rounds.push(found);
    }
  }
  for (const [name, { opened, rounds }] of Object.entries(sides)) answer[name] = { opened, rounds };
  process.stdout.write(`${JSON.stringify(answer)}\n`);
} finally {
  await browser.close();
}

async function opened(name) {
  const page = await browser.newPage();
  page.on('pageerror', (error) => process.stderr.write(`${name}: ${error}\n`));
  page.on('console', (message) => process.stderr.write(`${name}: ${message.text()}\n`));
  await page.goto(order.url);
  await page.waitForFunction('window.round !== undefined');
  return page;
}

/** Ends the browser's GPU process, and with it every device. */
async function crashGpu() {
  const session = await browser.target().createCDPSession();
  await session.send('Browser.crashGpuProcess').catch(() => undefined);
}

/** Runs in the page. */
function callOf(call, args) {
  return globalThis[call](...args);
}
