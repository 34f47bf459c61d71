// Caller: calls of a program. What the server did not answer, or puts off, is repeated: a restart of the server is survived.
// Every request that changes something has a request_id, so that repeating it is harmless.
import type {DescMethodUnary, MessageInitShape, MessageShape} from "@bufbuild/protobuf";
import {create} from "@bufbuild/protobuf";

import {Backoff} from "../backoff.js";
import {SheafError} from "../errors.js";
import type {Random} from "../random.js";
import type {CallSequence} from "../transfer/call_sequence.js";
import {callAsync, type Transport} from "../transport.js";
import type {Clock} from "../worker/clock.js";

const CALL_MS = 30_000;
const BACKOFF_FIRST = 100;
const BACKOFF_MAX = 5_000;

export class Caller {
  readonly transport: Transport;
  readonly clock: Clock;
  private readonly random: Random;
  private readonly reachMs: number;

  /** `reachMs`: how long to go on while the server cannot be reached. */
  constructor(transport: Transport, clock: Clock, random: Random, reachMs: number) {
    this.transport = transport;
    this.clock = clock;
    this.random = random;
    this.reachMs = reachMs;
  }

  /** An idempotency key that nobody else has. */
  newRequestId(): string {
    return this.random.token(16);
  }

  pause(millis: number): Promise<void> {
    return new Promise((resolve) => this.clock.after(millis, resolve));
  }

  /** One call; `millis` is its time, repetitions included. */
  async call<M extends DescMethodUnary>(
    method: M, init: MessageInitShape<M["input"]>, millis = CALL_MS,
  ): Promise<MessageShape<M["output"]>> {
    const request = create(method.input, init as never) as MessageShape<M["input"]>;
    const begin = this.clock.now();
    const backoff = new Backoff(BACKOFF_FIRST, BACKOFF_MAX);
    for (;;) {
      try {
        const left = Math.max(begin + millis - this.clock.now(), 1);
        return await callAsync(this.transport, method, request, {timeoutMs: left});
      } catch (error) {
        if (!(error instanceof SheafError)) throw error;
        if (error.code !== "UNAVAILABLE" && error.retryAfterMs === undefined) throw error;
        const pause = backoff.next(error, this.random);
        const end = begin + (error.code === "UNAVAILABLE" ? Math.min(millis, this.reachMs) : millis);
        if (this.clock.now() + pause >= end) throw error;
        await this.pause(pause);
      }
    }
  }

  /** Drives a sequence to its end. Throws its error. */
  async drive(sequence: CallSequence): Promise<void> {
    while (!sequence.done) {
      const {method, request} = sequence.next();
      try {
        sequence.onDone(null, await this.call(method, request as never));
      } catch (error) {
        if (!(error instanceof SheafError)) throw error;
        sequence.onDone(error, null);
      }
    }
    if (sequence.error !== null) throw sequence.error;
  }
}
