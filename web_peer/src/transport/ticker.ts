/* The clock of the tab, in seconds; it only goes forward. Edge. */

export function nowS(): number {
  return performance.now() / 1000;
}
