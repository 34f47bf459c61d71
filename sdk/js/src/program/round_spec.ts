// What a round is to do, from the arguments of `Server.run`, `create` and `loop`.
import {create, type MessageInitShape} from "@bufbuild/protobuf";

import {type AggregateSpec, AggregateSpecSchema, Numerics} from "../../gen/sheaf/v1/aggregation_pb.js";
import {Durability, type RoundSpec, RoundSpecSchema} from "../../gen/sheaf/v1/round_pb.js";
import {type TaskSpec, TaskSpecSchema} from "../../gen/sheaf/v1/task_pb.js";
import {toDuration} from "../durations.js";
import {invalidArgument} from "../errors.js";
import {choice, type Output, outputSpec} from "../operators.js";
import type {Sparse} from "../values/sparse.js";
import type {TensorLike} from "../values/tensor.js";

/** One task that a program lists. */
export interface Task {
  /** What it tells its computation: anything that JSON can say, or bytes. At most 64 KiB. */
  payload?: unknown;
  /** Which of the worker's data it is about, for example "client:17". */
  dataSelector?: string;
  /** Labels that a worker must carry to be given it. */
  requires?: Record<string, string>;
}

/** Interchangeable tasks, for the workers that ask first. */
export interface Slots {
  /** How many; left out, the round's goal, times `overSelection`. */
  count?: number;
  /** Most of them that one worker is given; left out, no limit. */
  perWorkerMax?: number;
  /** What each of them is. */
  task?: Task;
}

/** Tensors by name, bytes of a safetensors file, or the digest that `upload` returned. */
export type Broadcast = Readonly<Record<string, TensorLike | Sparse>> | Uint8Array | string;

/** The arguments of a round. What is left out is the server's default. */
export interface RoundOptions {
  /** What is returned and how it is combined: an operator for each name. */
  outputs: Readonly<Record<string, Output>>;
  /** A number of interchangeable tasks, `Slots`, or a list of tasks or data selectors. May be left out if there is a goal. */
  tasks?: number | Slots | readonly (Task | string)[];
  /** What all tasks receive. */
  broadcast?: Broadcast;
  /** What the computation is told: anything that JSON can say, or bytes. At most 64 KiB. */
  config?: unknown;
  /** Lowest version of the computation that understands `config`. */
  versionMin?: number;
  /** The arithmetic. "exact" if left out. */
  numerics?: "exact" | "f64" | "f32";
  /** Contributions that complete the round; all of its tasks if left out. */
  goal?: number;
  /** With so many it succeeds at its deadline; the goal if left out. */
  minGoal?: number;
  /** Of a goal without a number of tasks: how many tasks there are for each contribution (1.3). */
  overSelection?: number;
  /** The round ends after so many seconds, whatever happens (one hour). */
  deadline?: number;
  /** One attempt at a task may take so many seconds. */
  attemptDeadline?: number;
  /** A worker without progress for so many seconds loses its task (30). */
  leaseDuration?: number;
  /** Release nothing unless at least so many clients are combined. */
  minClients?: number;
  /** 1 (most urgent) to 5. */
  priority?: number;
  /** Attempts at a task that failed, before it is given up (4). */
  failedMax?: number;
  /** Attempts at a task whose worker vanished, before it is given up (16). */
  lostMax?: number;
  /** "durable" if left out; "ephemeral": nothing individual ever reaches the server's disk. */
  durability?: "durable" | "ephemeral";
  /** Largest contribution. */
  contributionBytesMax?: number;
  /** Groups the rounds of one program; jobs of one priority take turns. */
  job?: string;
  /** Another one than the connection's. */
  population?: string;
}

const KNOWN: ReadonlySet<string> = new Set<keyof RoundOptions>([
  "outputs", "tasks", "broadcast", "config", "versionMin", "numerics", "goal", "minGoal", "overSelection", "deadline",
  "attemptDeadline", "leaseDuration", "minClients", "priority", "failedMax", "lostMax", "durability", "contributionBytesMax",
  "job", "population",
]);

/** The message, but for the broadcast, which is uploaded. INVALID_ARGUMENT if an argument is of the wrong kind. */
export function roundSpec(computation: string, options: RoundOptions, population: string): RoundSpec {
  for (const name of Object.keys(options)) {
    if (!KNOWN.has(name)) throw invalidArgument(`a round has no argument ${name}; it has ${[...KNOWN].join(", ")}`);
  }
  return create(RoundSpecSchema, {
    population: options.population ?? population,
    job: options.job,
    computation: {name: computation, versionMin: options.versionMin, config: toBytes(options.config, "config")},
    aggregate: aggregateSpec(options.outputs, options.numerics),
    work: workOf(options),
    goal: options.goal,
    minGoal: options.minGoal,
    overSelection: options.overSelection,
    deadline: durationOf(options.deadline, "deadline"),
    attemptDeadline: durationOf(options.attemptDeadline, "attemptDeadline"),
    leaseDuration: durationOf(options.leaseDuration, "leaseDuration"),
    minClients: BigInt(options.minClients ?? 0),
    priority: options.priority,
    retry: {failedMax: options.failedMax, lostMax: options.lostMax},
    durability: choice(options.durability, {durable: Durability.DURABLE, ephemeral: Durability.EPHEMERAL}, "durability"),
    contributionBytesMax: BigInt(options.contributionBytesMax ?? 0),
  });
}

/** The outputs of a round. */
export function aggregateSpec(outputs: Readonly<Record<string, Output>>, numerics: string = "exact"): AggregateSpec {
  if (typeof outputs !== "object" || outputs === null) {
    throw invalidArgument("a round needs outputs: an operator for each name, such as {age: weighted_mean([])}");
  }
  for (const [name, output] of Object.entries(outputs)) {
    const whole = name.replace(/\.indices$/, "");
    if (whole !== name && output.operand === "dense" && `${whole}.values` in outputs) {
      throw invalidArgument(`outputs "${name}" and "${whole}.values" are the parts of one sparse tensor, and would be ` +
        `combined one by one, which gives wrong sums without an error: declare "${whole}" with a sparse operator, such as ` +
        "sparse_sum");
    }
  }
  return create(AggregateSpecSchema, {
    outputs: Object.entries(outputs).map(([name, output]) => outputSpec(name, output)),
    numerics: choice(numerics, {exact: Numerics.EXACT, f64: Numerics.F64, f32: Numerics.F32}, "numerics"),
  });
}

function workOf({tasks, goal}: RoundOptions): MessageInitShape<typeof RoundSpecSchema>["work"] {
  if (tasks === undefined && !goal) {
    throw invalidArgument("a round needs tasks, or a goal: how many contributions complete it");
  }
  if (Array.isArray(tasks)) {
    if (tasks.length === 0) throw invalidArgument("a round without tasks has nothing to do");
    const listed = (tasks as readonly (Task | string)[]).map(
      (task) => taskSpec(typeof task === "string" ? {dataSelector: task} : task));
    return {case: "listed", value: {tasks: listed}};
  }
  const slots = typeof tasks === "object" ? (tasks as Slots) : tasks === undefined ? {} : {count: tasks};
  if (slots.count !== undefined && !(slots.count >= 1)) {
    throw invalidArgument(`a round of ${slots.count} tasks has nothing to do`);
  }
  return {
    case: "openSlots",
    value: {count: slots.count ?? 0, perWorkerMax: slots.perWorkerMax ?? 0, task: taskSpec(slots.task ?? {})},
  };
}

function taskSpec({payload, dataSelector, requires}: Task): TaskSpec {
  return create(TaskSpecSchema, {payload: toBytes(payload, "payload"), dataSelector, requirements: requires});
}

/** A config or payload on the wire: bytes as they are, nothing for undefined and null, else JSON. */
function toBytes(value: unknown, what: string): Uint8Array {
  if (value === undefined || value === null) return new Uint8Array();
  if (value instanceof Uint8Array) return value;
  try {
    const text = JSON.stringify(value);
    if (text !== undefined) return new TextEncoder().encode(text);
  } catch {
    // Said below.
  }
  throw invalidArgument(`${what} is neither bytes nor what JSON can say`);
}

function durationOf(seconds: number | undefined, what: string) {
  if (seconds === undefined) return undefined;
  if (!(seconds > 0 && seconds < 1e10)) throw invalidArgument(`${what} is a positive number of seconds, and not ${seconds}`);
  return toDuration(seconds * 1000);
}
