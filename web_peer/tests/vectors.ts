/* The vectors that both languages replay, and the two ways of writing that differ: names, and bytes in hex. */

import { readFileSync } from 'node:fs';

import { fromHex } from '../src/wire/hex';

/** The parsed file; each test states the shape that it reads. */
export function vectors(name: string): unknown {
  const url = new URL(`../../tests/vectors/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(url, 'utf-8')) as unknown;
}

export function camel(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

export function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

export const bytesOf = fromHex;
