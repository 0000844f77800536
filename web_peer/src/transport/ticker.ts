/* The clock of the tab, in seconds; it only goes forward. Edge. */

/** Seconds since this page began, with fractions. */
export function nowS(): number {
  return performance.now() / 1000;
}
