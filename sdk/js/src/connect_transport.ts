// ConnectTransport: calls over HTTP, by fetch, as browsers and Node have it: the Connect protocol, unary, binary messages.
import {Code as ConnectCode, ConnectError} from "@connectrpc/connect";
import {createConnectTransport} from "@connectrpc/connect-web";
import type {DescMethodUnary, MessageShape} from "@bufbuild/protobuf";

import {type Code, SheafError} from "./errors.js";
import type {CallOptions, Done, Transport} from "./transport.js";

// In the error's metadata: "not before so many milliseconds have passed".
const RETRY_HEADER = "grpc-retry-pushback-ms";
// What Connect and the server are given beyond the call's own time, which we keep ourselves: so there is one who ends it.
const GRACE_MS = 1_000;

const CODES: Record<ConnectCode, Code> = {
  [ConnectCode.Canceled]: "CANCELLED",
  [ConnectCode.Unknown]: "UNKNOWN",
  [ConnectCode.InvalidArgument]: "INVALID_ARGUMENT",
  [ConnectCode.DeadlineExceeded]: "DEADLINE_EXCEEDED",
  [ConnectCode.NotFound]: "NOT_FOUND",
  [ConnectCode.AlreadyExists]: "ALREADY_EXISTS",
  [ConnectCode.PermissionDenied]: "PERMISSION_DENIED",
  [ConnectCode.ResourceExhausted]: "RESOURCE_EXHAUSTED",
  [ConnectCode.FailedPrecondition]: "FAILED_PRECONDITION",
  [ConnectCode.Aborted]: "ABORTED",
  [ConnectCode.OutOfRange]: "OUT_OF_RANGE",
  [ConnectCode.Unimplemented]: "UNIMPLEMENTED",
  [ConnectCode.Internal]: "INTERNAL",
  [ConnectCode.Unavailable]: "UNAVAILABLE",
  [ConnectCode.DataLoss]: "DATA_LOSS",
  [ConnectCode.Unauthenticated]: "UNAUTHENTICATED",
};

/** A secret, or a function that gives the one that is valid now; it is asked before each call. */
export type Token = string | (() => string | Promise<string>);

export interface ConnectOptions {
  /** "https://HOST:PORT" or "http://HOST:PORT"; without a scheme it is http. */
  server: string;
  token?: Token | undefined;
  /** Send the token even where others on the network can read it. */
  insecure?: boolean | undefined;
  /** Another than the platform's. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** FAILED_PRECONDITION if the token would travel in the clear. */
export class ConnectTransport implements Transport {
  readonly server: string;
  private readonly token: Token | undefined;
  private readonly inner: ReturnType<typeof createConnectTransport>;
  private readonly open = new Set<AbortController>();

  constructor(options: ConnectOptions) {
    this.server = addressOf(options.server);
    this.token = options.token;
    if (this.token !== undefined && options.insecure !== true && !isPrivate(this.server)) {
      throw new SheafError("FAILED_PRECONDITION", `the token would travel to ${this.server} in the clear: use https, or set ` +
        "insecure: true if nobody else can read that network");
    }
    const fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.inner = createConnectTransport({
      baseUrl: this.server,
      useBinaryFormat: true,
      fetch: async (input, init) => {
        try {
          return await fetch(input, init);
        } catch (error) {
          // What fetch throws says nothing of a call that was given up.
          if (init?.signal?.aborted) throw error;
          throw new ConnectError(`the server at ${this.server} cannot be reached`, ConnectCode.Unavailable, undefined, undefined,
                                 error);
        }
      },
    });
  }

  call<M extends DescMethodUnary>(
    method: M, request: MessageShape<M["input"]>, {timeoutMs}: CallOptions, done: Done<M>,
  ): () => void {
    const controller = new AbortController();
    this.open.add(controller);
    const timer = setTimeout(
      () => controller.abort(new SheafError("DEADLINE_EXCEEDED", `no answer within ${timeoutMs / 1000} s`)),
      timeoutMs);
    const end = (error: SheafError | null, response: MessageShape<M["output"]> | null): void => {
      clearTimeout(timer);
      this.open.delete(controller);
      done(error, response);
    };
    this.send(method, request, timeoutMs, controller.signal).then(
      (response) => end(null, response),
      (error: unknown) => end(errorOf(error, controller.signal), null));
    return () => controller.abort(new SheafError("CANCELLED", "the call was given up"));
  }

  /** Ends all open calls with UNAVAILABLE: their connections may be gone without anybody having said so. */
  reset(why: string): void {
    for (const controller of this.open) controller.abort(new SheafError("UNAVAILABLE", why));
  }

  private async send<M extends DescMethodUnary>(
    method: M, request: MessageShape<M["input"]>, timeoutMs: number, signal: AbortSignal,
  ): Promise<MessageShape<M["output"]>> {
    const headers = new Headers();
    if (this.token !== undefined) {
      const secret = typeof this.token === "string" ? this.token : await this.token();
      headers.set("authorization", `Bearer ${secret}`);
    }
    const answer = await this.inner.unary(method, signal, Math.ceil(timeoutMs) + GRACE_MS, headers, request as never);
    return answer.message as MessageShape<M["output"]>;
  }
}

function errorOf(error: unknown, signal: AbortSignal): SheafError {
  if (signal.aborted && signal.reason instanceof SheafError) return signal.reason;
  if (!(error instanceof ConnectError)) return new SheafError("UNKNOWN", String(error), {cause: error});
  // The connection broke while the answer was read.
  if (error.code === ConnectCode.Unknown && error.cause instanceof TypeError) {
    return new SheafError("UNAVAILABLE", `the answer broke off: ${error.cause.message}`, {cause: error.cause});
  }
  const hint = error.metadata.get(RETRY_HEADER);
  const retryAfterMs = hint !== null && /^\d{1,9}$/.test(hint) ? Number(hint) : undefined;
  return new SheafError(CODES[error.code] ?? "UNKNOWN", error.rawMessage, {retryAfterMs, cause: error.cause});
}

function addressOf(server: string): string {
  const address = /^https?:\/\//.test(server) ? server : `http://${server}`;
  return address.replace(/\/+$/, "");
}

// Encrypted, or within this machine.
function isPrivate(server: string): boolean {
  const {protocol, hostname} = new URL(server);
  return protocol === "https:" || hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}
