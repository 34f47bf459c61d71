// The task that a computation is given.
import {Numerics} from "../../gen/sheaf/v1/aggregation_pb.js";
import type {Lease} from "../../gen/sheaf/v1/work_service_pb.js";
import {DeclaredOutput} from "../declared_output.js";
import {invalidArgument, SheafError} from "../errors.js";
import {SeededRandom} from "../random.js";
import {sha256Hex} from "../transfer/sha256.js";
import type {WantedRows} from "../transfer/row_fetch.js";
import {dtypeNamed} from "../values/dtypes.js";
import {Safetensors} from "../values/safetensors.js";
import {Sparse} from "../values/sparse.js";
import {convert, numbersOf, type Tensor, type TensorLike} from "../values/tensor.js";

// JSON numbers are doubles to many: integers below 2^53 are the same to all.
const SEED_BELOW = 1n << 53n;

/** Whoever runs the computation: fetches what a task needs, and hears that it makes progress. */
export interface TaskHost {
  broadcast(): Promise<Uint8Array>;
  rows(wanted: readonly WantedRows[]): Promise<Tensor[]>;
  progress(): void;
  readonly signal: AbortSignal;
  readonly datasets: Readonly<Record<string, unknown>>;
}

/** A round's broadcast: tensors by name, and a Sparse where its three parts were sent. Nothing is copied. */
export class Params {
  private readonly file: Safetensors;

  constructor(bytes: Uint8Array) {
    this.file = new Safetensors(bytes, "the broadcast");
  }

  /** INVALID_ARGUMENT if there is none of this name. */
  get(name: string): Tensor | Sparse {
    if (!this.file.has(name) && this.file.has(`${name}.dense_shape`)) {
      const shape = Array.from(this.file.get(`${name}.dense_shape`).data as ArrayLike<number | bigint>, Number);
      return new Sparse(this.file.get(`${name}.indices`), this.file.get(`${name}.values`), shape);
    }
    return this.file.get(name);
  }

  /** With one name for each three parts. */
  names(): string[] {
    const names = this.file.names();
    const wholes = names.filter((name) => name.endsWith(".dense_shape")).map((name) => name.slice(0, -".dense_shape".length));
    const sparse = wholes.filter((name) => ["indices", "values"].every((part) => names.includes(`${name}.${part}`)));
    const parts = new Set(sparse.flatMap((name) => ["indices", "values", "dense_shape"].map((part) => `${name}.${part}`)));
    return [...names.filter((name) => !parts.has(name)), ...sparse];
  }
}

/** One task, leased to this worker. */
export class LeasedTask {
  private readonly lease: Lease;
  private readonly host: TaskHost;
  private fetched: Promise<Params> | null = null;
  private done = 0;

  constructor(lease: Lease, host: TaskHost) {
    this.lease = lease;
    this.host = host;
  }

  /** The round's broadcast; of an announced round once it is open. NOT_FOUND if it has none. */
  params(): Promise<Params> {
    if (this.hasNoBroadcast()) return Promise.reject(noBroadcast());
    this.fetched ??= this.host.broadcast().then((bytes) => new Params(bytes));
    return this.fetched;
  }

  /**
   * Rows of one tensor of the broadcast, in the order of `indices`; repeats are allowed. Shape [n, ...shape of a row]. Fetches
   * these rows and not the whole. INVALID_ARGUMENT if these are no row numbers, NOT_FOUND if there is no broadcast.
   */
  async rows(tensor: string, indices: TensorLike): Promise<Tensor> {
    return (await this.rowsOf({[tensor]: indices}))[tensor]!;
  }

  /** As `rows`, of several tensors at once: row numbers by tensor give rows by tensor, for the price of one question. */
  async rowsOf(indices: Readonly<Record<string, TensorLike>>): Promise<Record<string, Tensor>> {
    if (this.hasNoBroadcast()) throw noBroadcast();
    const wanted = Object.entries(indices).map(([tensor, numbers]) => ({tensor, rows: rowNumbers(numbers)}));
    const found = await this.host.rows(wanted);
    return Object.fromEntries(wanted.map(({tensor}, i) => [tensor, found[i]!]));
  }

  /**
   * Says that the task makes progress: `done` is a number that grows; without it, calls are counted. A lease is renewed only
   * while its task makes progress, and only if the computation leaves the thread a moment: `await` something.
   */
  progress(done = this.done + 1): void {
    if (!(done > this.done)) return;
    this.done = done;
    this.host.progress();
  }

  /** Aborted when the task is not wanted any more: its lease was lost, its round ended, or the worker stops. */
  get signal(): AbortSignal {
    return this.host.signal;
  }

  /** The worker's only data. NOT_FOUND if it has none, or several. */
  get data(): unknown {
    const names = Object.keys(this.datasets);
    if (names.length === 1) return this.datasets[names[0]!];
    throw new SheafError("NOT_FOUND", names.length === 0 ? "this worker has no data: give it `data: {NAME: ..}`"
      : `this worker has data of several names: ${names.join(", ")}; choose with task.datasets[NAME]`);
  }

  /** All data of the worker, by name. */
  get datasets(): Readonly<Record<string, unknown>> {
    return this.host.datasets;
  }

  /** What of the data the task is about; "" if it does not say. */
  get dataSelector(): string {
    return this.lease.dataSelector;
  }

  /** The round's `config`: the JSON value that it is, bytes if it is not JSON, null if there is none. */
  get config(): any {
    return valueOf(this.lease.computation?.config);
  }

  /** The task's own `payload`, as `config`. */
  get payload(): any {
    return valueOf(this.lease.payload);
  }

  /** The round's `config` as it came; for whole numbers from 2^53 on, which no number of JSON.parse holds. */
  get configBytes(): Uint8Array {
    return this.lease.computation?.config ?? new Uint8Array();
  }

  /** The task's own `payload` as it came. */
  get payloadBytes(): Uint8Array {
    return this.lease.payload;
  }

  /** What to return: one declaration for each output of the round. */
  get outputs(): DeclaredOutput[] {
    return (this.lease.aggregate?.outputs ?? []).map((spec) => new DeclaredOutput(spec));
  }

  /** From 0 to below 2^53, the same in each attempt of this task, in every language. */
  get seed(): number {
    return Number(BigInt(`0x${sha256Hex(new TextEncoder().encode(this.lease.task)).slice(0, 16)}`) % SEED_BELOW);
  }

  /** Chance that begins at `seed`: the same in each attempt of this task. */
  random(): SeededRandom {
    return new SeededRandom(this.seed);
  }

  /** Name of the computation. */
  get computation(): string {
    return this.lease.computation?.name ?? "";
  }

  /** Id of the round. */
  get round(): string {
    return this.lease.round;
  }

  /** Id of the task. */
  get id(): string {
    return this.lease.task;
  }

  /** 1 for the first. */
  get attempt(): number {
    return this.lease.attempt;
  }

  /** Clients that the round combines at the least before it releases anything. */
  get minClients(): number {
    return Number(this.lease.minClients) || 1;
  }

  /** The arithmetic of the round: "EXACT", "F64" or "F32". */
  get numerics(): string {
    return Numerics[this.lease.aggregate?.numerics || Numerics.EXACT]!;
  }

  // What an announced round opens with, nobody knows before.
  private hasNoBroadcast(): boolean {
    return this.lease.broadcastDigest === "" && !this.lease.announced;
  }
}

export function noBroadcast(): SheafError {
  return new SheafError("NOT_FOUND", "the round has no broadcast, hence no rows");
}

function rowNumbers(indices: TensorLike): bigint[] {
  const numbers = numbersOf(indices);
  if (numbers === null || numbers.dtype?.kind === "float" || (numbers.shape !== null && numbers.shape.length !== 1)) {
    throw invalidArgument("row numbers are integers of shape [n]");
  }
  return Array.from(convert(numbers, dtypeNamed("int64")) as BigInt64Array);
}

function valueOf(bytes: Uint8Array | undefined): unknown {
  if (bytes === undefined || bytes.length === 0) return null;
  try {
    return JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(bytes));
  } catch {
    return bytes;
  }
}
