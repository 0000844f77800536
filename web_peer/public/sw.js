/*
 * Keeps the files of the page in this browser, so that it opens without the network, as an installed app does too.
 *
 * The page itself comes from the server wherever that answers: another page than the kept one clears what belonged to
 * that. The part of an address behind "#" is a secret, and nothing is kept under it. Weights, and WebAssembly, which the
 * browser keeps by itself, are left alone.
 */

const KEPT = 'shoal-page';
const PAGE = './';
const FILES = /\/(?:assets\/.+\.(?:js|css)|icon\.svg|app-icon\.svg|manifest\.webmanifest)$/;

self.addEventListener('install', (event) => event.waitUntil(self.skipWaiting()));
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

// What a page had loaded before this worker was there.
self.addEventListener('message', (event) => {
  const urls = Array.isArray(event.data) ? event.data.filter((url) => isFile(url)) : [];
  event.waitUntil(keepAll(urls).catch(() => undefined));
});

async function keepAll(urls) {
  await page(new Request(PAGE)); // first: another page than the kept one clears what belonged to that
  await Promise.all(urls.map((url) => file(new Request(url))));
}

self.addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method !== 'GET') return;
  if (request.mode === 'navigate') {
    if (isPage(request.url)) event.respondWith(page(request));
  } else if (isFile(request.url)) event.respondWith(file(request));
});

function isFile(address) {
  const { origin, pathname } = new URL(address);
  return origin === location.origin && FILES.test(pathname);
}

function isPage(address) {
  const { origin, pathname } = new URL(address);
  return origin === location.origin && pathname === new URL(PAGE, location.href).pathname;
}

/** The page from the server, else the kept one. */
async function page(request) {
  const kept = await caches.open(KEPT);
  const before = await kept.match(PAGE);
  try {
    const now = await fetch(request);
    if (now.ok) await keep(kept, before, now.clone());
    return now;
  } catch (error) {
    if (before === undefined) throw error;
    return before;
  }
}

async function keep(kept, before, now) {
  const text = await now.clone().text();
  if (before !== undefined && (await before.clone().text()) === text) return;
  for (const old of await kept.keys()) await kept.delete(old);
  await kept.put(PAGE, now);
}

/** The kept file, whose name changes with its contents; else that of the server. */
async function file(request) {
  const kept = await caches.open(KEPT);
  const before = await kept.match(request);
  if (before !== undefined) return before;
  const now = await fetch(request);
  if (now.ok) await kept.put(request, now.clone());
  return now;
}
