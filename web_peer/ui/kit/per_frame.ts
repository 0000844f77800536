/* Gathers what comes quickly and hands it on once a frame, so that tokens never cost more than the screen shows. */

/** Calls `flush` at the next frame after `touch`, at most once a frame; in a hidden tab, where frames stop, by timer. */
export class PerFrame {
  private frame = 0;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private readonly flush: () => void;

  constructor(flush: () => void) {
    this.flush = flush;
  }

  touch(): void {
    if (this.timer !== null) return;
    this.frame = requestAnimationFrame(() => this.now());
    this.timer = setTimeout(() => this.now(), 250); // ms; frames come every 17, unless the tab is hidden
  }

  /** Hands on what waits, at once. */
  now(): void {
    this.stop();
    this.flush();
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }
}
