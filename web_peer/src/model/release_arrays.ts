/*
 * Gives the memory of arrays back at once, rather than at the next collection: the collector does not count what
 * browsers hold beside JavaScript, and lets a model's worth of dead arrays pile up, while a tab is held to its pledge.
 *
 * ArrayBuffer.transfer() does not do it: an array that came from a message, from fetch or from IndexedDB, or that was
 * hashed, has a second owner in the browser, which keeps the memory. Sent away, it leaves both.
 */

let away: MessagePort | null = null;

/** `array` and every other view of its buffer are empty afterwards. */
export function giveBack(array: Uint8Array): void {
  const { buffer } = array;
  if (!(buffer instanceof ArrayBuffer) || buffer.byteLength === 0) return;
  away ??= nowhere();
  away.postMessage(null, [buffer]);
}

/** A port whose other end is closed. */
function nowhere(): MessagePort {
  const { port1, port2 } = new MessageChannel();
  port2.close();
  return port1;
}
