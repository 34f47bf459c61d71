// Attempt: one lease, from being handed out until the server has said what became of its result.
//
//                                   v-----------+
//   preparing -> (prepared ->) fetching -> running -> (uploading ->) ready         ended: nothing to report any more
//
// The lease of an announced round is taken ahead: when it is prepared it waits until the round has opened, and until the loop has
// room for it to run. Prepare says what of the broadcast the task needs, the rows or the file are fetched, the computation runs,
// perhaps until it needs more, and a contribution too large for Sync is uploaded first (asking before sending). An error on the
// way becomes a failure to report. Advances by inbox events and by `step`.
import {create} from "@bufbuild/protobuf";

import type {AggregateSpec} from "../../gen/sheaf/v1/aggregation_pb.js";
import {StartUploadResponse_Verdict as UploadVerdict} from "../../gen/sheaf/v1/blob_service_pb.js";
import {type AttemptTimings, AttemptTimings_IntervalSchema, AttemptTimingsSchema} from "../../gen/sheaf/v1/task_pb.js";
import {
  type Lease, type TaskResult, TaskResult_FailureSchema, TaskResult_ReleaseSchema, TaskResultSchema,
} from "../../gen/sheaf/v1/work_service_pb.js";
import {fromDuration, toDuration} from "../durations.js";
import {invalidArgument, SheafError} from "../errors.js";
import type {Log} from "../log.js";
import {OPERANDS} from "../operators.js";
import {BroadcastFetch} from "../transfer/broadcast_fetch.js";
import type {CallSequence} from "../transfer/call_sequence.js";
import {ChunkSize} from "../transfer/chunk_size.js";
import {RowFetch} from "../transfer/row_fetch.js";
import {UploadSession} from "../transfer/upload_session.js";
import {dtypeOf} from "../values/dtypes.js";
import type {BlobCache} from "./blob_cache.js";
import {RunControl} from "./run_control.js";
import type {InputRequest, PreparedTask, Runner, RunOutcome, TaskInputs} from "./runner.js";
import {type DriverParts, SequenceDriver} from "./sequence_driver.js";

// Renewals of one lease are at least this far apart, however little of it remains.
const RENEWAL_PAUSE_MIN = 100;
// A worker that is restarted under its name is sent again what it held, and begins anew; the server renews a lease when its
// progress grows beyond what the first life reported. So each life starts above those before it, as long as the clock does not
// go back.
const PROGRESS_PER_SECOND_BITS = 30n;
// What the server shows of one attempt.
const INTERVALS_MAX = 64;
const MANY_PHASES = "various";
// As PhaseInterval.phase has them; what is not here is upload.
const PHASE_NAMES: Readonly<Record<string, string>> = {
  preparing: "prepare", prepared: "prepared", fetching: "download", running: "compute",
};

/** Owned by the loop; one for all its attempts. */
export interface AttemptParts extends DriverParts {
  runner: Runner;
  cache: BlobCache;
  log: Log;
  callTimeoutMs: number;
  /** This worker's own limits, whatever the server says. */
  broadcastBytesMax: number;
  contributionBytesMax: number;
  /** What this worker's link carries in a call's time. */
  chunkSize: ChunkSize;
  /** As the server last said. */
  inlineBytesMax: number;
  /** Prepares and runs that were started and have not come back, also of attempts that are gone; and prepares of those ahead. */
  busy: number;
  busyAhead: number;
}

export type Phase = "preparing" | "prepared" | "fetching" | "running" | "uploading" | "ready" | "ended";

export class Attempt {
  readonly lease: Lease;
  phase: Phase = "preparing";
  /** A prepare or run has been started and has not come back. */
  isBusy = false;
  deadline = -Infinity;
  /** When the call was sent whose answer says so. */
  private extended = -Infinity;
  renewTime = -Infinity;
  /** When `isReady`. */
  readonly result: TaskResult;
  /** Its round's broadcast is known. */
  isOpen: boolean;

  private broadcastDigest: string;
  private readonly parts: AttemptParts;
  private readonly control = new RunControl();
  private readonly timings: AttemptTimings;
  /** It had the lease. */
  private startTime = 0;
  private phaseStart = 0;
  private steps = 0n;
  private progressBase = 0n;
  private task: PreparedTask | null = null;
  private request: InputRequest = {wholeBroadcast: false, selections: []};
  private inputs: TaskInputs = {broadcast: null, selected: []};
  private driver: SequenceDriver | null = null;

  constructor(lease: Lease, parts: AttemptParts) {
    this.lease = lease;
    this.parts = parts;
    this.isOpen = !lease.announced;
    this.broadcastDigest = lease.broadcastDigest;
    this.timings = create(AttemptTimingsSchema);
    this.result = create(TaskResultSchema, {task: lease.task, leaseToken: lease.leaseToken, timings: this.timings});
  }

  get token(): string {
    return this.lease.leaseToken;
  }

  /** It has a result to hand in. */
  get isReady(): boolean {
    return this.phase === "ready";
  }

  /** It prepares, or has prepared, a task of a round that was announced. */
  get isAhead(): boolean {
    return this.lease.announced && (this.phase === "preparing" || this.phase === "prepared");
  }

  /** Grows while anything moves. */
  get progress(): bigint {
    return this.progressBase + this.steps + this.control.progress + (this.driver?.answers ?? 0n);
  }

  get nextTime(): number {
    return this.driver?.nextTime ?? Infinity;
  }

  start(now: number): void {
    this.startTime = this.phaseStart = now;
    this.progressBase = BigInt(Math.floor(now / 1000)) << PROGRESS_PER_SECOND_BITS;
    // Before anything of that size is made.
    const bytes = denseBytes(this.lease.aggregate);
    if (bytes > this.parts.contributionBytesMax) {
      return this.fail(this.tooLarge("the dense outputs of the round take", bytes));
    }
    const counter = this.lease.announced ? "busyAhead" : "busy";
    this.begin(counter);
    this.parts.runner.prepare(this.lease, this.control, (error, task) => {
      this.parts.inbox.post((when) => {
        this.end(counter);
        if (this.phase !== "preparing") return;
        this.enter(this.lease.announced ? "prepared" : "fetching", when);
        if (error !== null) return this.fail(error);
        this.task = task;
        if (!this.lease.announced) this.fetch(task!.inputRequest, when);
      });
    });
  }

  /** The round has opened with this broadcast (empty: none). */
  open(broadcastDigest: string): void {
    if (this.isOpen) return;
    this.isOpen = true;
    this.broadcastDigest = broadcastDigest;
  }

  /** Its turn to run. When it is "prepared" and has opened. */
  goOn(now: number): void {
    this.enter("fetching", now);
    this.fetch(this.task!.inputRequest, now);
  }

  /** Continues what waited for a pause to end. */
  step(now: number): void {
    this.driver?.step(now);
  }

  /** Stops what runs; nothing will be reported. */
  cancel(): void {
    this.control.cancel();
    this.dropDriver();
    this.phase = "ended";
  }

  /** Stops what runs and gives the task back. */
  release(reason: string): void {
    this.control.cancel();
    this.result.outcome = {case: "release", value: create(TaskResult_ReleaseSchema, {reason})};
    this.ready();
  }

  /** The lease runs for `remaining` from `sent` on, the time of the request that granted or renewed it. */
  extend(sent: number, remaining: number): void {
    // An answer that was overtaken. A later one may say less: others have shown how long such tasks take.
    if (sent < this.extended) return;
    this.extended = sent;
    this.deadline = sent + remaining;
    this.renewTime = sent + Math.max(remaining / 3, RENEWAL_PAUSE_MIN);
  }

  /**
   * A renewal was asked for at `now`: do not ask again at once. Who waits for the round to open, or for another run to end, makes
   * progress; who waits for runs that were stopped and do not notice (no place) makes none.
   */
  noteRenewalSent(now: number, hasPlace: boolean): void {
    this.renewTime = now + Math.max((this.deadline - now) / 3, RENEWAL_PAUSE_MIN);
    // A result that waits to be handed in is not a hung computation, and neither is who waits for its round or its turn.
    if (this.isReady || (this.phase === "prepared" && (hasPlace || !this.isOpen))) ++this.steps;
  }

  private begin(counter: "busy" | "busyAhead"): void {
    this.isBusy = true;
    ++this.parts[counter];
  }

  private end(counter: "busy" | "busyAhead"): void {
    this.isBusy = false;
    --this.parts[counter];
  }

  private fetch(request: InputRequest, now: number): void {
    this.request = request;
    this.inputs = {broadcast: null, selected: []};
    const {computation, round} = this.lease;
    const {broadcastDigest} = this;
    if ((request.wholeBroadcast || request.selections.length > 0) && broadcastDigest === "") {
      if (request.isOptional === true) return this.run(now);
      return this.fail(invalidArgument(
        `computation "${computation?.name}" needs a broadcast and round ${round} has none: create the round with one`));
    }
    if (!request.wholeBroadcast) return this.fetchRows(now);
    const {cache, broadcastBytesMax: bytesMax, chunkSize} = this.parts;
    this.inputs.broadcast = cache.find(broadcastDigest);
    if (this.inputs.broadcast !== null) return this.fetchRows(now);
    const fetch = new BroadcastFetch(broadcastDigest, {find: (digest) => cache.find(digest), bytesMax, chunkSize});
    this.drive(fetch, now, (when) => {
      if (fetch.error !== null) return this.fail(fetch.error);
      this.inputs.broadcast = fetch.bytes!;
      cache.insert(broadcastDigest, fetch.bytes!);
      this.timings.bytesDown += BigInt(fetch.bytesReceived);
      this.fetchRows(when);
    });
  }

  private fetchRows(now: number): void {
    if (this.request.selections.length === 0) return this.run(now);
    const fetch = new RowFetch(this.broadcastDigest, this.request.selections, this.parts.broadcastBytesMax);
    this.drive(fetch, now, (when) => {
      if (fetch.error !== null) return this.fail(fetch.error);
      this.timings.bytesDown += BigInt(fetch.bytesReceived);
      this.inputs.selected = fetch.takeTensors();
      this.run(when);
    });
  }

  private run(now: number): void {
    this.enter("running", now);
    this.begin("busy");
    this.parts.runner.run(this.task!, this.inputs, this.control, (error, outcome) => {
      this.parts.inbox.post((when) => {
        this.end("busy");
        this.onRun(error, outcome, when);
      });
    });
  }

  private onRun(error: SheafError | null, outcome: RunOutcome | null, now: number): void {
    if (this.phase !== "running") return;
    if (outcome?.kind === "request") {
      this.enter("fetching", now);
      return this.fetch(outcome.request, now);
    }
    this.task = null;
    this.enter("uploading", now);
    if (error !== null) return this.fail(error);
    if (outcome!.kind === "declined") return this.release(outcome!.reason);
    this.handIn(outcome!.bytes, now);
  }

  private handIn(contribution: Uint8Array, now: number): void {
    const size = contribution.length;
    const roundMax = this.lease.contributionBytesMax;
    if (size > this.parts.contributionBytesMax) return this.fail(this.tooLarge("the contribution has", size));
    if (roundMax > 0n && BigInt(size) > roundMax) {
      return this.fail(invalidArgument(`the contribution has ${size} bytes and round ${this.lease.round} takes at most ` +
        `${roundMax}: raise the round's limit or send less`));
    }
    if (size <= this.parts.inlineBytesMax) {
      this.result.outcome = {case: "contribution", value: contribution};
      return this.ready();
    }
    const upload = new UploadSession({
      bytes: contribution,
      requestId: this.parts.random.token(26),
      contribution: {task: this.lease.task, leaseToken: this.token},
      chunkSize: this.parts.chunkSize,
    });
    this.drive(upload, now, (when) => this.onUploaded(upload, when));
  }

  private onUploaded(upload: UploadSession, now: number): void {
    if (upload.error !== null) return this.fail(upload.error);
    switch (upload.verdict) {
      case UploadVerdict.NOT_NEEDED:
        this.parts.log.debug(`task ${this.lease.task}: the round does not need this contribution any more`);
        this.phase = "ended";
        return;
      case UploadVerdict.LEASE_LOST:
        this.parts.log.info(`task ${this.lease.task}: the lease was lost before its contribution was uploaded`);
        this.phase = "ended";
        return;
      default:
        this.result.outcome = {case: "uploadId", value: upload.uploadId};
        this.enter("uploading", now);
        this.ready();
    }
  }

  private tooLarge(what: string, bytes: number): SheafError {
    return new SheafError("RESOURCE_EXHAUSTED", `${what} ${bytes} bytes and this worker returns at most ` +
      `${this.parts.contributionBytesMax}: raise its contributionBytesMax`);
  }

  private fail(error: SheafError): void {
    if (this.phase === "ended") return;
    this.parts.log.warn(`task ${this.lease.task}: ${error}`);
    this.result.outcome = {
      case: "failure",
      value: create(TaskResult_FailureSchema, {message: error.toString(), permanent: error.code === "INVALID_ARGUMENT"}),
    };
    this.ready();
  }

  private ready(): void {
    this.phase = "ready";
    this.dropDriver();
    this.task = null;
    this.inputs = {broadcast: null, selected: []};
  }

  /** As the answer said that brought the lease; one that was sent again while it was on its way brought nothing. */
  noteGrant(grantTime: AttemptTimings["grantTime"]): void {
    this.timings.grantTime ??= grantTime;
  }

  /** The result goes out. */
  noteHandedIn(now: number): void {
    // Of one that was never started there is nothing to tell.
    if (this.timings.intervals.length > 0) this.timings.handedIn = toDuration(now - this.startTime);
  }

  /** A computation that asks for rows again and again has more than are shown: the last is of all that comes then. */
  private addInterval(phase: string, now: number): void {
    if (now <= this.phaseStart) return;
    const {intervals} = this.timings;
    const last = intervals[INTERVALS_MAX - 1];
    if (last !== undefined) {
      last.phase = MANY_PHASES;
      last.end = toDuration(now - this.startTime);
      return;
    }
    const begin = toDuration(this.phaseStart - this.startTime);
    intervals.push(create(AttemptTimings_IntervalSchema, {phase, begin, end: toDuration(now - this.startTime)}));
  }

  /** Starts a phase and notes when the last one was. */
  private enter(phase: Phase, now: number): void {
    const took = now - this.phaseStart;
    this.addInterval(PHASE_NAMES[this.phase] ?? "upload", now);
    const add = (before: AttemptTimings["upload"]) => toDuration(fromDuration(before) + took);
    const timings = this.timings;
    switch (this.phase) {
      case "preparing":
        timings.prepare = add(timings.prepare);
        break;
      case "prepared":
        // It waited, and did nothing.
        break;
      case "fetching":
        timings.download = add(timings.download);
        break;
      case "running":
        timings.compute = add(timings.compute);
        break;
      default:
        timings.upload = add(timings.upload);
    }
    this.phase = phase;
    this.phaseStart = now;
    ++this.steps;
    this.dropDriver();
  }

  private drive(sequence: CallSequence, now: number, onDone: (now: number) => void): void {
    this.dropDriver();
    this.driver = new SequenceDriver(this.parts, sequence, this.parts.callTimeoutMs, onDone);
    this.driver.step(now);
  }

  // What its answers counted so far stays counted.
  private dropDriver(): void {
    if (this.driver === null) return;
    this.steps += this.driver.answers;
    this.driver.drop();
    this.driver = null;
  }
}

/** Of one contribution. */
function denseBytes(aggregate: AggregateSpec | undefined): number {
  let total = 0;
  for (const output of aggregate?.outputs ?? []) {
    if (OPERANDS.get(output.operator) !== "dense") continue;
    const bytes = dtypeOf(output.dtype)?.bytes ?? 0;
    total += output.denseShape.reduce((product, size) => product * Math.max(Number(size), 0), bytes);
  }
  return total;
}
