// SequenceDriver: drives a CallSequence (an upload, a fetch) without waiting. A call that the server did not answer, or not as
// ours, is repeated after a pause, as often as it takes: the attempt it works for ends when its lease does.
//
// `onDone(now)` is called from an inbox event once the sequence is done. A driver that is dropped abandons its open call.
import {Backoff} from "../backoff.js";
import type {SheafError} from "../errors.js";
import type {Random} from "../random.js";
import type {CallSequence, NextCall} from "../transfer/call_sequence.js";
import type {Transport} from "../transport.js";
import type {Inbox} from "./inbox.js";

export interface DriverParts {
  transport: Transport;
  random: Random;
  inbox: Inbox;
}

// Says nothing of the sequence. UNAUTHENTICATED neither: our token is being replaced, and as long as the server takes none of
// ours it would not hear of a failure.
function isUnanswered(error: SheafError): boolean {
  return error.code === "UNAVAILABLE" || error.code === "DEADLINE_EXCEEDED" || error.code === "UNAUTHENTICATED"
    || error.retryAfterMs !== undefined;
}

export class SequenceDriver {
  /** Grows with every answer. */
  answers = 0n;
  readonly sequence: CallSequence;

  private readonly parts: DriverParts;
  private readonly timeoutMs: number;
  private readonly onSequenceDone: (now: number) => void;
  private call: NextCall | null = null;
  private abandon: (() => void) | null = null;
  private resume = -Infinity;
  private isDropped = false;
  private readonly backoff = new Backoff();

  constructor(parts: DriverParts, sequence: CallSequence, timeoutMs: number, onDone: (now: number) => void) {
    this.parts = parts;
    this.sequence = sequence;
    this.timeoutMs = timeoutMs;
    this.onSequenceDone = onDone;
  }

  /** Makes the next call if none is open and no pause is on. */
  step(now: number): void {
    if (this.abandon !== null || now < this.resume || this.sequence.done || this.isDropped) return;
    this.call ??= this.sequence.next();
    const {method, request} = this.call;
    this.abandon = this.parts.transport.call(method, request, {timeoutMs: this.timeoutMs}, (error, response) => {
      this.parts.inbox.post((when) => {
        if (!this.isDropped) this.onCallDone(error, response, when);
      });
    });
  }

  /** When the pause that is on ends; infinite while a call is open. */
  get nextTime(): number {
    return this.abandon !== null ? Infinity : this.resume;
  }

  drop(): void {
    this.isDropped = true;
    this.abandon?.();
  }

  private onCallDone(error: SheafError | null, response: Parameters<CallSequence["onDone"]>[1], now: number): void {
    this.abandon = null;
    if (error !== null && isUnanswered(error)) {
      if (error.code === "DEADLINE_EXCEEDED" && this.sequence.takeLess()) this.call = null;
      this.resume = now + this.backoff.next(error, this.parts.random);
      return this.step(now);
    }
    ++this.answers;
    this.backoff.reset();
    this.resume = -Infinity;
    this.call = null;
    this.sequence.onDone(error, response);
    if (this.sequence.done) return this.onSequenceDone(now);
    this.step(now);
  }
}
