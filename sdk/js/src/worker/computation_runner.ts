// ComputationRunner: runs computations: functions of a LeasedTask, in this thread, as the event loop lets them.
import {create} from "@bufbuild/protobuf";

import {type OfferedComputation, OfferedComputationSchema} from "../../gen/sheaf/v1/computation_pb.js";
import type {Lease} from "../../gen/sheaf/v1/work_service_pb.js";
import {ClientsContribution, contributionOf} from "../contribution.js";
import {Declined, SheafError, WrongTask} from "../errors.js";
import type {Log} from "../log.js";
import type {WantedRows} from "../transfer/row_fetch.js";
import {Update, type Values} from "../update.js";
import type {Tensor} from "../values/tensor.js";
import {LeasedTask, noBroadcast, type TaskHost} from "./leased_task.js";
import type {RunControl} from "./run_control.js";
import type {InputRequest, PreparedTask, Runner, RunOutcome, TaskInputs} from "./runner.js";

type OneClient = Update | Values;
/** What a computation returns: the update of one client, or a (maybe asynchronous) series of those of several. */
export type Returned = OneClient | readonly OneClient[] | Iterable<OneClient> | AsyncIterable<OneClient>;
export type ComputationFunction = (task: LeasedTask) => Returned | Promise<Returned>;
/** A function, or one with a version that rounds may ask for; 1 if left out. */
export type Computation = ComputationFunction | {run: ComputationFunction; version?: number};

export interface RunnerOptions {
  /** What computations find as `task.data` and `task.datasets`. */
  datasets?: Readonly<Record<string, unknown>>;
  /** What a computation throws may quote data: it goes into the log, and to the server only if this is true. */
  shareErrors?: boolean;
}

type RunDone = (error: SheafError | null, outcome: RunOutcome | null) => void;

/** What a function waits for: the whole broadcast, or rows. */
interface Question {
  rows: readonly WantedRows[] | null;
  resolve(answer: {broadcast: Uint8Array | null; selected: Tensor[]}): void;
  reject(error: unknown): void;
}

const NOTHING: InputRequest = {wholeBroadcast: false, selections: []};

/**
 * One task under way. Its function runs at most while a `done` waits, but for what it does not await. That of an announced round
 * runs until it asks for something of the broadcast, and is prepared then.
 */
class RunningTask implements PreparedTask, TaskHost {
  inputRequest = NOTHING;
  readonly datasets: Readonly<Record<string, unknown>>;
  private readonly control: RunControl;
  private readonly start: (host: TaskHost) => Promise<RunOutcome>;
  private done: RunDone | null = null;
  private hasStarted = false;
  // How the function ended, while nobody waited to hear so.
  private ended: (() => void) | null = null;
  // Not asked for yet, and asked for.
  private questions: Question[] = [];
  private asked: Question[] = [];

  constructor(control: RunControl, datasets: Readonly<Record<string, unknown>>, start: (host: TaskHost) => Promise<RunOutcome>) {
    this.control = control;
    this.datasets = datasets;
    this.start = start;
    control.signal.addEventListener("abort", () => {
      for (const question of [...this.questions.splice(0), ...this.asked.splice(0)]) question.reject(cancelled());
    });
  }

  get signal(): AbortSignal {
    return this.control.signal;
  }

  broadcast(): Promise<Uint8Array> {
    return this.ask(null).then(({broadcast}) => broadcast!);
  }

  rows(wanted: readonly WantedRows[]): Promise<Tensor[]> {
    return this.ask(wanted).then(({selected}) => selected);
  }

  progress(): void {
    this.control.reportProgress();
  }

  prepareAhead(done: (error: SheafError | null, task: RunningTask | null) => void): void {
    this.run({broadcast: null, selected: []}, (error, outcome) => {
      // One that ended without asking for anything says so once more when the round is open.
      if (outcome?.kind === "request") this.inputRequest = outcome.request;
      done(error, error === null ? this : null);
    });
  }

  run(inputs: TaskInputs, done: RunDone): void {
    this.done = done;
    if (!this.hasStarted) {
      this.hasStarted = true;
      this.start(this).then(
        (outcome) => this.end(() => this.say(null, outcome)),
        (error: unknown) => this.end(() => this.say(error as SheafError, null)));
      return;
    }
    let at = 0;
    for (const question of this.asked.splice(0)) {
      const count = question.rows?.length ?? 0;
      if (question.rows === null ? inputs.broadcast === null : inputs.selected.length < at + count) {
        question.reject(noBroadcast());
        continue;
      }
      question.resolve({broadcast: inputs.broadcast, selected: inputs.selected.slice(at, at + count)});
      at += count;
    }
    if (this.ended !== null) this.ended();
    else this.flushSoon();
  }

  private ask(rows: readonly WantedRows[] | null): Promise<{broadcast: Uint8Array | null; selected: Tensor[]}> {
    if (this.control.isCancelled) return Promise.reject(cancelled());
    return new Promise((resolve, reject) => {
      this.questions.push({rows, resolve, reject});
      this.flushSoon();
    });
  }

  // What is asked in one moment is fetched at once.
  private flushSoon(): void {
    queueMicrotask(() => {
      if (this.done === null || this.questions.length === 0) return;
      this.asked = this.questions.splice(0);
      this.say(null, {
        kind: "request",
        request: {
          wholeBroadcast: this.asked.some(({rows}) => rows === null),
          selections: this.asked.flatMap(({rows}) => rows ?? []),
          isOptional: true,
        },
      });
    });
  }

  private end(tell: () => void): void {
    this.ended = tell;
    if (this.done !== null) tell();
  }

  private say(error: SheafError | null, outcome: RunOutcome | null): void {
    const done = this.done;
    this.done = null;
    done?.(error, outcome);
  }
}

export class ComputationRunner implements Runner<RunningTask> {
  private readonly computations: ReadonlyMap<string, {run: ComputationFunction; version: number}>;
  private readonly options: RunnerOptions;
  private readonly log: Log;

  constructor(computations: Readonly<Record<string, Computation>>, log: Log, options: RunnerOptions = {}) {
    this.computations = new Map(Object.entries(computations).map(
      ([name, each]) => [name, typeof each === "function" ? {run: each, version: 1} : {version: 1, ...each}]));
    this.log = log;
    this.options = options;
  }

  offers(): OfferedComputation[] {
    return [...this.computations].map(([name, {version}]) => create(OfferedComputationSchema, {name, version}));
  }

  prepare(lease: Lease, control: RunControl, done: (error: SheafError | null, task: RunningTask | null) => void): void {
    const name = lease.computation?.name ?? "";
    const wanted = lease.computation?.versionMin ?? 0;
    const found = this.computations.get(name);
    if (found === undefined) {
      return done(new SheafError("UNIMPLEMENTED", `this worker does not offer the computation "${name}"`), null);
    }
    if (found.version < wanted) {
      return done(new SheafError("UNIMPLEMENTED", `this worker's "${name}" has version ${found.version} and the round needs ` +
        `${wanted}: upgrade it`), null);
    }
    const task = new RunningTask(control, this.options.datasets ?? {}, (host) => this.compute(found.run, lease, host));
    if (lease.announced) task.prepareAhead(done);
    else done(null, task);
  }

  run(task: RunningTask, inputs: TaskInputs, control: RunControl, done: RunDone): void {
    if (control.isCancelled) return done(cancelled(), null);
    task.run(inputs, done);
  }

  private async compute(run: ComputationFunction, lease: Lease, host: TaskHost): Promise<RunOutcome> {
    const name = lease.computation!.name;
    try {
      const returned = await run(new LeasedTask(lease, host));
      return {kind: "contribution", bytes: await this.bytesOf(returned, lease, host)};
    } catch (error) {
      if (error instanceof Declined) {
        this.log.info(`task ${lease.task}: declined: ${error.message}`);
        return {kind: "declined", reason: `computation "${name}" has no data for this task`};
      }
      // Our own sentences name outputs and shapes, never data.
      if (error instanceof SheafError) throw error;
      this.log.warn(`task ${lease.task}: ${error instanceof Error ? error.stack ?? error.message : String(error)}`);
      const kind = error instanceof Error ? error.name : typeof error;
      const message = this.options.shareErrors === true && error instanceof Error ? `: ${error.message}` : "";
      throw new SheafError(error instanceof WrongTask ? "INVALID_ARGUMENT" : "INTERNAL",
                           `${kind} in computation "${name}"${message}`, {cause: error});
    }
  }

  private async bytesOf(returned: Returned, lease: Lease, host: TaskHost): Promise<Uint8Array> {
    const aggregate = lease.aggregate!;
    const isSeries = typeof returned === "object" && returned !== null
      && (Symbol.iterator in returned || Symbol.asyncIterator in returned);
    if (!isSeries) return contributionOf(updateOf(returned), aggregate);
    const clients = new ClientsContribution(aggregate);
    for await (const each of returned as AsyncIterable<OneClient>) {
      clients.add(updateOf(each));
      host.progress();
    }
    if (clients.clients === 0) throw new Declined("it returned the updates of no clients");
    return clients.bytes();
  }
}

function updateOf(value: unknown): Update {
  if (value instanceof Update) return value;
  if (typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype) {
    return new Update(value as Values);
  }
  throw new TypeError(`it returned a ${value === null ? "null" : typeof value}; it returns an Update, an object of values, or a ` +
    "series of these, one for each client");
}

function cancelled(): SheafError {
  return new SheafError("CANCELLED", "told to stop");
}
