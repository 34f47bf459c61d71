// Backoff: how long to leave a server alone that did not answer. Full jitter: uniform between nothing and a bound that
// doubles with every failure, so that a thousand workers do not come back in one instant.
import type {SheafError} from "./errors.js";
import type {Random} from "./random.js";

/**
 * How long to wait after a refusal: not less than it asks for, and up to as much again, or up to `bound` more if that is
 * longer, so that those who were refused together do not come back together. Without a hint: up to `bound`.
 */
export function pauseAfter(error: SheafError, bound: number, random: Random): number {
  const least = error.retryAfterMs ?? 0;
  return least + random.between(0, Math.max(bound, least));
}

export class Backoff {
  private readonly first: number;
  private readonly max: number;
  private count = 0;

  constructor(first = 100, max = 10_000) {
    this.first = first;
    this.max = max;
  }

  /** The pause after one more failure, of which `error` tells; no shorter than that asks for. */
  next(error: SheafError, random: Random): number {
    const bound = Math.min(this.max, this.first * 2 ** Math.min(this.count, 20));
    ++this.count;
    return pauseAfter(error, bound, random);
  }

  reset(): void {
    this.count = 0;
  }

  get failures(): number {
    return this.count;
  }
}
