// What a round is to do, from the arguments of `Server.run`, `create`, `announce` and `loop`.
import {create, type MessageInitShape} from "@bufbuild/protobuf";

import {type AggregateSpec, AggregateSpecSchema, Numerics} from "../../gen/sheaf/v1/aggregation_pb.js";
import {
  Durability, type RoundSpec, RoundSpecSchema, StalenessFunction, type StalenessPolicySchema, type StragglerPolicySchema,
} from "../../gen/sheaf/v1/round_pb.js";
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

/** What is done about attempts that take much longer than others of the round did. What is left out is the server's default. */
export interface Straggler {
  /** Once nothing is queued and few tasks remain, the task of a straggler is leased a second time; the first contribution wins. */
  speculate?: boolean;
  /** Few remain: no more than this part of the round's tasks (0.25). */
  remainingShareMax?: number;
  /** Of the durations of the attempts that succeeded, the quantile by which the others are measured (0.75). */
  quantile?: number;
  /** A straggler has run for longer than this times the quantile (1.5). */
  factor?: number;
  /** No attempt that has run for fewer seconds is one (0.1). */
  ageMin?: number;
  /** So many attempts must have succeeded before there is a quantile (3). */
  finishedMin?: number;
  /** An attempt that takes longer than this times the quantile is lost; none, if it is left out. */
  deadlineFactor?: number;
}

/** What a round that continues another takes over. */
export interface Staleness {
  /** What a contribution weighs whose task was carried through tau rounds: 1 ("constant"), or (1 + tau) ** -exponent. */
  function?: "constant" | "polynomial";
  /** Of "polynomial" (0.5). */
  exponent?: number;
  /** A task goes on through so many rounds at the most (10). */
  max?: number;
}

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
  /**
   * Of a round that is announced: it fails if it is not opened within so many seconds (one hour; of a loop, as long as the rounds
   * before it may take).
   */
  announceDeadline?: number;
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
  /** What is done about attempts that take much longer than others of the round did, such as {speculate: true}. */
  straggler?: Straggler;
  /** Id of a round whose tasks that still run when it has its goal go on in this one (see `buffered` of `Server.loop`). */
  continues?: string;
  /** Of a round that continues another, what it takes over, such as {max: 5}: a task goes on through five rounds at most. */
  staleness?: Staleness;
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
  "attemptDeadline", "announceDeadline", "leaseDuration", "minClients", "priority", "failedMax", "lostMax", "straggler", "continues",
  "staleness", "durability", "contributionBytesMax", "job", "population",
]);
type Kind = "boolean" | "integer" | "number" | "string";
const STRAGGLER: Readonly<Record<keyof Straggler, Kind>> = {
  speculate: "boolean", remainingShareMax: "number", quantile: "number", factor: "number", ageMin: "number", finishedMin: "integer",
  deadlineFactor: "number",
};
const STALENESS: Readonly<Record<keyof Staleness, Kind>> = {function: "string", exponent: "number", max: "integer"};

/** The message, but for the broadcast, which is uploaded. INVALID_ARGUMENT if an argument is of the wrong kind. */
export function roundSpec(computation: string, options: RoundOptions, population: string): RoundSpec {
  for (const name of Object.keys(options)) {
    if (!KNOWN.has(name)) throw invalidArgument(`a round has no argument ${name}; it has ${[...KNOWN].join(", ")}`);
  }
  return create(RoundSpecSchema, {
    population: options.population || population,
    job: options.job,
    computation: {name: computation, versionMin: options.versionMin, config: toBytes(options.config, "config")},
    aggregate: aggregateSpec(options.outputs, options.numerics),
    work: workOf(options),
    goal: options.goal,
    minGoal: options.minGoal,
    overSelection: options.overSelection,
    deadline: durationOf(options.deadline, "deadline"),
    attemptDeadline: durationOf(options.attemptDeadline, "attemptDeadline"),
    announceDeadline: durationOf(options.announceDeadline, "announceDeadline"),
    leaseDuration: durationOf(options.leaseDuration, "leaseDuration"),
    minClients: BigInt(options.minClients ?? 0),
    priority: options.priority,
    retry: {failedMax: options.failedMax, lostMax: options.lostMax},
    straggler: stragglerPolicy(options.straggler),
    continues: options.continues,
    staleness: stalenessPolicy(options.staleness),
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

function stragglerPolicy(straggler: Straggler | undefined): MessageInitShape<typeof StragglerPolicySchema> | undefined {
  if (straggler === undefined) return undefined;
  checkFields(straggler, STRAGGLER, "straggler");
  return {...straggler, ageMin: durationOf(straggler.ageMin, "straggler ageMin")};
}

function stalenessPolicy(staleness: Staleness | undefined): MessageInitShape<typeof StalenessPolicySchema> | undefined {
  if (staleness === undefined) return undefined;
  checkFields(staleness, STALENESS, "staleness");
  const {function: name, exponent, max} = staleness;
  const {CONSTANT, POLYNOMIAL} = StalenessFunction;
  return {function: choice(name, {constant: CONSTANT, polynomial: POLYNOMIAL}, "staleness function"), exponent, max};
}

function checkFields(fields: object, kinds: Readonly<Record<string, Kind>>, what: string): void {
  const known = Object.keys(kinds);
  if (typeof fields !== "object" || fields === null) {
    throw invalidArgument(`${what} is an object with some of ${known.join(", ")}, and not ${fields}`);
  }
  for (const [name, value] of Object.entries(fields)) {
    if (!known.includes(name)) throw invalidArgument(`${what} has no ${name}; it has ${known.join(", ")}`);
    const kind = kinds[name]!;
    const isRight = value === undefined || (kind === "integer" ? Number.isInteger(value) : typeof value === kind);
    if (!isRight) throw invalidArgument(`${what} ${name} is ${kind === "integer" ? "an" : "a"} ${kind}, and not ${JSON.stringify(value)}`);
  }
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

/** INVALID_ARGUMENT, naming what it is of, if it is no length of time in seconds. */
export function checkSeconds(seconds: number, what: string): number {
  if (!(seconds > 0 && seconds < 1e10)) throw invalidArgument(`${what} is a positive number of seconds, and not ${seconds}`);
  return seconds;
}

function durationOf(seconds: number | undefined, what: string) {
  return seconds === undefined ? undefined : toDuration(checkSeconds(seconds, what) * 1000);
}
