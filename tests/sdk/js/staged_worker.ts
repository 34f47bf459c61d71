// StagedWorker: the real WorkerLoop under virtual time, running the computation "golden", version 1: what it does stands in the
// payload of its task (tests/golden/README.md has the table).
import {create, toBinary} from "@bufbuild/protobuf";

import {ContributionSchema} from "../../../sdk/js/gen/sheaf/v1/aggregation_pb.js";
import {type OfferedComputation, OfferedComputationSchema} from "../../../sdk/js/gen/sheaf/v1/computation_pb.js";
import {DType} from "../../../sdk/js/gen/sheaf/v1/tensor_pb.js";
import type {Lease} from "../../../sdk/js/gen/sheaf/v1/work_service_pb.js";
import {SheafError} from "../../../sdk/js/src/errors.js";
import {silent} from "../../../sdk/js/src/log.js";
import {SeededRandom} from "../../../sdk/js/src/random.js";
import type {Transport} from "../../../sdk/js/src/transport.js";
import {BlobCache} from "../../../sdk/js/src/worker/blob_cache.js";
import type {RunControl} from "../../../sdk/js/src/worker/run_control.js";
import type {InputRequest, PreparedTask, Runner, RunOutcome, TaskInputs} from "../../../sdk/js/src/worker/runner.js";
import {WorkerLoop} from "../../../sdk/js/src/worker/worker_loop.js";
import type {Agenda} from "./agenda.js";

interface Script {
  seconds: number;
  silent_from: number;
  value: number;
  too_many: number;
  fail: string;
  permanent: boolean;
  rows: number[];
  broadcast: boolean;
}

class GoldenTask implements PreparedTask {
  readonly inputRequest: InputRequest;
  readonly script: Script;
  private readonly lease: Lease;

  constructor(lease: Lease) {
    this.lease = lease;
    this.script = {
      seconds: 1, silent_from: Infinity, value: 1, too_many: 0, fail: "", permanent: false, rows: [], broadcast: false,
      ...JSON.parse(new TextDecoder().decode(lease.payload) || "{}"),
    };
    const {rows, broadcast} = this.script;
    this.inputRequest = {
      wholeBroadcast: broadcast, selections: rows.length > 0 ? [{tensor: "w", rows: rows.map(BigInt)}] : [],
    };
  }

  end(): Uint8Array {
    const {fail, permanent, value, too_many} = this.script;
    if (fail !== "") throw new SheafError(permanent ? "INVALID_ARGUMENT" : "INTERNAL", fail);
    const output = this.lease.aggregate!.outputs[0]!;
    const size = Number(output.denseShape[0]) + too_many;
    const data = new Uint8Array(new Float32Array(size).fill(value).buffer);
    return toBinary(ContributionSchema, create(ContributionSchema, {
      numClients: 1n,
      outputs: [{name: output.name, value: {case: "dense", value: {dtype: DType.FLOAT32, shape: [BigInt(size)], data}}}],
    }));
  }
}

class GoldenRunner implements Runner<GoldenTask> {
  private readonly agenda: Agenda;

  constructor(agenda: Agenda) {
    this.agenda = agenda;
  }

  offers(): OfferedComputation[] {
    return [create(OfferedComputationSchema, {name: "golden", version: 1})];
  }

  prepare(lease: Lease, _control: RunControl, done: (error: SheafError | null, task: GoldenTask | null) => void): void {
    done(null, new GoldenTask(lease));
  }

  // One second after the other.
  run(
    task: GoldenTask, _inputs: TaskInputs, control: RunControl,
    done: (error: SheafError | null, outcome: RunOutcome | null) => void,
  ): void {
    const go = (second: number): void => {
      if (control.isCancelled) return done(new SheafError("CANCELLED", "told to stop"), null);
      if (second < task.script.seconds) {
        if (second < task.script.silent_from) control.reportProgress();
        return this.agenda.after(1_000, () => go(second + 1));
      }
      try {
        done(null, {kind: "contribution", bytes: task.end()});
      } catch (error) {
        done(error as SheafError, null);
      }
    };
    go(0);
  }
}

export class StagedWorker {
  private readonly agenda: Agenda;
  private readonly loop: WorkerLoop;
  // A timer that is set anew makes the old one void.
  private timer = 0;

  constructor(agenda: Agenda, transport: Transport, worker: string, start: {concurrency: number; seed: number; prepare_ahead?: number}) {
    this.agenda = agenda;
    const {concurrency, prepare_ahead: prepareAhead = 0} = start;
    this.loop = new WorkerLoop({worker, softwareVersion: "golden", concurrency, prepareAhead}, {
      transport,
      runner: new GoldenRunner(agenda),
      cache: new BlobCache(1 << 20),
      random: new SeededRandom(start.seed),
      log: silent,
      wake: () => this.stepAt(agenda.now),
    });
    this.stepAt(agenda.now);
  }

  requestDrain(): void {
    this.loop.requestDrain();
  }

  private stepAt(time: number): void {
    const timer = ++this.timer;
    if (time === Infinity) return;
    this.agenda.at(time, () => {
      if (timer !== this.timer) return;
      const next = this.loop.step(this.agenda.now);
      if (timer === this.timer) this.stepAt(next);
    });
  }
}
