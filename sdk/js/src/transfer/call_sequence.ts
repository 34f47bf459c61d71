// CallSequence: several calls that depend on one another, as a value that somebody else drives.
//
// An upload is a start, many chunks and a finish. A program awaits the whole; the worker's loop, which never waits, makes one
// call and goes on when the answer is there. Both drive the same sequence:
//
//   while (!upload.done) {
//     const call = upload.next();
//     upload.onDone(...await answerOf(call));
//   }
//
// Exactly one onDone follows each next, unless takeLess says that next gives another call. A sequence may be dropped while its
// call is under way. Sequences do not wait between tries: who drives them does.
import type {DescMethodUnary, Message} from "@bufbuild/protobuf";

import type {SheafError} from "../errors.js";

export interface NextCall {
  method: DescMethodUnary;
  request: Message;
}

export interface CallSequence {
  /** True when there is nothing left to call. */
  readonly done: boolean;
  /** Null while it runs, and when it succeeded. */
  readonly error: SheafError | null;
  /** The call to make now. Not when done. */
  next(): NextCall;
  /**
   * The call that `next` gave was not answered in its time, and over a slow link it will not be the next time either. True if
   * `next` now gives a smaller one instead.
   */
  takeLess(): boolean;
  /** How the call ended that `next` gave. */
  onDone(error: SheafError | null, response: Message | null): void;
}
