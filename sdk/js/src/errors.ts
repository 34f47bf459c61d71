// What can go wrong in a call, as exceptions. Their text is the server's sentence.
//
//   try {
//     await server.round("r-aaaaaaaa");
//   } catch (error) {
//     if (error instanceof SheafError && error.code === "NOT_FOUND") console.log(error.message);
//   }
//
// docs/reference/errors.md says what each code means.

/** The status codes, as docs/reference/errors.md has them. */
export type Code =
  | "CANCELLED" | "UNKNOWN" | "INVALID_ARGUMENT" | "DEADLINE_EXCEEDED" | "NOT_FOUND" | "ALREADY_EXISTS"
  | "PERMISSION_DENIED" | "RESOURCE_EXHAUSTED" | "FAILED_PRECONDITION" | "ABORTED" | "OUT_OF_RANGE" | "UNIMPLEMENTED"
  | "INTERNAL" | "UNAVAILABLE" | "DATA_LOSS" | "UNAUTHENTICATED";

// A server that asks for more is not believed.
const RETRY_AFTER_MS_MAX = 5 * 60_000;

/** Something that a server, or this package on its behalf, refused or could not do. */
export class SheafError extends Error {
  override readonly name: string = "SheafError";
  readonly code: Code;
  /** The server says that it is worth while to ask again, but not before so many milliseconds have passed. */
  readonly retryAfterMs: number | undefined;

  constructor(code: Code, message: string, options: {retryAfterMs?: number | undefined; cause?: unknown} = {}) {
    super(message, options.cause === undefined ? undefined : {cause: options.cause});
    this.code = code;
    this.retryAfterMs =
      options.retryAfterMs === undefined ? undefined : Math.min(Math.max(options.retryAfterMs, 1), RETRY_AFTER_MS_MAX);
  }

  override toString(): string {
    return `${this.code}: ${this.message}`;
  }
}

/** The request or the value is wrong, whatever the state of the server. */
export function invalidArgument(message: string): SheafError {
  return new SheafError("INVALID_ARGUMENT", message);
}

export function dataLoss(message: string): SheafError {
  return new SheafError("DATA_LOSS", message);
}

/** Adds to an error's text where it happened. It stays the error that it is; one that lets nothing be changed stays as it is. */
export function addNote(error: unknown, note: string): void {
  if (!(error instanceof Error)) return;
  const {message, stack} = error;
  const noted = message === "" ? note : `${message} (${note})`;
  // By Reflect, as a frozen one, or a DOMException, throws at an assignment.
  if (!Reflect.set(error, "message", noted) || stack === undefined || message === "") return;
  // Which is what is shown of an error that nobody catches.
  Reflect.set(error, "stack", stack.replace(message, () => noted));
}

/** A round ended without an aggregate: `state` is "FAILED" or "CANCELLED". */
export class RoundFailed extends SheafError {
  override readonly name: string = "RoundFailed";
  /** Its id. */
  readonly round: string;
  readonly state: string;

  constructor(message: string, round: string, state: string) {
    super("ABORTED", message);
    this.round = round;
    this.state = state;
  }
}

/**
 * A round has not ended, and nothing of it runs or waits: its last tasks failed as often as it allows. It goes on until its
 * deadline: an operator of the server can put its tasks back.
 */
export class RoundStuck extends RoundFailed {
  override readonly name: string = "RoundStuck";
}

/**
 * A computation throws it where there is no data that the task is about. The worker gives the task back; that is no failure.
 */
export class Declined extends Error {
  override readonly name: string = "Declined";
}

/** A computation throws it if the task itself is wrong, so that no worker could do better. The task fails at once. */
export class WrongTask extends Error {
  override readonly name: string = "WrongTask";
}
