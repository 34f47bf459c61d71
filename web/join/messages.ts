// What the page and its worker thread tell each other.
import type {WorkerState} from "../../sdk/js/src/index.js";

/** What `computations.js` says of itself, for the person who decides. */
export interface About {
  title: string;
  text: string;
  /** What it computes on; left out if it needs no file. `sample`: the name of a file of the server's that will do. */
  file?: {label: string; accept?: string; sample?: string};
}

/** The page's to the thread. */
export type Order =
  // `bytes`: of the file that was chosen; null if none is needed. `sample`: fetch this instead.
  | {kind: "start"; module: string; bytes: ArrayBuffer | null; sample: string | null; token: string; bytesMax: number}
  | {kind: "stop"};

/** The thread's to the page. */
export type Report =
  | {kind: "progress"; state: WorkerState; accepted: number; leases: number; sent: number; received: number; isReachable: boolean;
     summary: string}
  | {kind: "ended"; problem: string; needsToken: boolean; isOverLimit: boolean};
