// Runner: how a worker gets its computations run. The loop hands it work and goes on; the answer comes by callback.
//
// Each callback is called exactly once, possibly before the method returns. Cancelling `control` makes it come soon.
// Implementations: ComputationRunner (computation_runner.ts); a test answers from a script when its clock says so.
import type {OfferedComputation} from "../../gen/sheaf/v1/computation_pb.js";
import type {Lease} from "../../gen/sheaf/v1/work_service_pb.js";
import type {SheafError} from "../errors.js";
import type {WantedRows} from "../transfer/row_fetch.js";
import type {Tensor} from "../values/tensor.js";
import type {RunControl} from "./run_control.js";

/** What of the broadcast a task needs before it can go on. */
export interface InputRequest {
  wholeBroadcast: boolean;
  selections: readonly WantedRows[];
  /** And no error if the round has no broadcast. Of an announced round nobody knows while its tasks are prepared. */
  isOptional?: boolean;
}

/** What was requested: the whole broadcast, if it was; one tensor for each selection. */
export interface TaskInputs {
  broadcast: Uint8Array | null;
  selected: Tensor[];
}

export type RunOutcome =
  /** A serialised sheaf.v1.Contribution. */
  | {kind: "contribution"; bytes: Uint8Array}
  /** It goes on when it has been given this. */
  | {kind: "request"; request: InputRequest}
  /** The task is given back. */
  | {kind: "declined"; reason: string};

export interface PreparedTask {
  readonly inputRequest: InputRequest;
}

export interface Runner<T extends PreparedTask = PreparedTask> {
  /** What it can run now. */
  offers(): OfferedComputation[];
  prepare(lease: Lease, control: RunControl, done: (error: SheafError | null, task: T | null) => void): void;
  /** After an outcome that is a request: once more, with what was requested. */
  run(
    task: T, inputs: TaskInputs, control: RunControl, done: (error: SheafError | null, outcome: RunOutcome | null) => void,
  ): void;
}
