// The time that leases are counted in: milliseconds since 1970, which include those in which the machine slept, and never go
// back.

export interface Clock {
  now(): number;
  /** Calls back after so many milliseconds, or later. Returns what stops that. */
  after(millis: number, callback: () => void): () => void;
}

// What setTimeout takes.
const TIMEOUT_MAX = 2 ** 31 - 1;

export class SystemClock implements Clock {
  private time = Date.now();
  private wall = Date.now();
  private steady = performance.now();

  now(): number {
    const wall = Date.now();
    const steady = performance.now();
    // The steady clock may stand still while the machine sleeps; the wall clock is set back now and then.
    this.time += Math.max(wall - this.wall, steady - this.steady, 0);
    this.wall = wall;
    this.steady = steady;
    return this.time;
  }

  after(millis: number, callback: () => void): () => void {
    const timer = setTimeout(callback, Math.min(Math.max(millis, 0), TIMEOUT_MAX));
    return () => clearTimeout(timer);
  }
}
