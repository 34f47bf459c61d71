// Transport: what callers of the server use. One function makes every call, so that retries, faults and recorded answers are
// written once and not once per method.
//
//   const cancel = transport.call(WorkService.method.sync, request, {timeoutMs: 40_000}, (error, response) => ..);
//
// Implementations: ConnectTransport (connect_transport.ts), and in tests one that answers out of a transcript.
import type {DescMethodUnary, MessageShape} from "@bufbuild/protobuf";

import type {SheafError} from "./errors.js";

export interface CallOptions {
  /** The call ends with DEADLINE_EXCEEDED after this time. */
  timeoutMs: number;
}

export type Done<M extends DescMethodUnary> = (
  error: SheafError | null, response: MessageShape<M["output"]> | null,
) => void;

export interface Transport {
  /**
   * Sends `request` to `method` and calls `done` once, with an error or a response; never before this returns. UNAVAILABLE
   * if the server cannot be reached. What it returns abandons the call: `done` is called with CANCELLED, or not at all.
   */
  call<M extends DescMethodUnary>(
    method: M, request: MessageShape<M["input"]>, options: CallOptions, done: Done<M>,
  ): () => void;
}

/** The same as a promise. */
export function callAsync<M extends DescMethodUnary>(
  transport: Transport, method: M, request: MessageShape<M["input"]>, options: CallOptions,
): Promise<MessageShape<M["output"]>> {
  return new Promise((resolve, reject) => {
    transport.call(method, request, options, (error, response) => {
      if (error !== null) reject(error);
      else resolve(response!);
    });
  });
}
