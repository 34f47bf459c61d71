// The operators: how the contributions to an output combine. One function for each row of the server's table, under its own
// name; the arguments are the fields of an OutputSpec, as a round's file has them.
//
//   const outputs = {
//     w: weighted_mean([64, 10], {dtype: "float32"}),
//     table: slices_sum([100_000, 16], {dtype: "float32", minContributors: 3}),
//     words: keyed_sum("string", [], {dtype: "int64", dropZeros: true}),
//   };
//
// There is no default operator, because the choice decides the result. docs/reference/operators.md says what each means. An
// argument that would mean nothing for an operator does not exist. The server checks the rest when the round is created: means
// of integers, for example.
import {create} from "@bufbuild/protobuf";

import {
  KeyType, NonFinitePolicy, OutputForm, type OutputSpec, OutputSpecSchema,
} from "../gen/sheaf/v1/aggregation_pb.js";
import {invalidArgument} from "./errors.js";
import {type OutputDTypeName, outputDType} from "./values/dtypes.js";

export type Operand = "dense" | "sparse" | "keyed";
/** Sizes of the dimensions of the dense tensor that the output is or stands for; [] for a number. */
export type Shape = number | readonly number[];

export interface DenseOptions {
  /** Of the values contributed and released; float64 if left out. */
  dtype?: OutputDTypeName;
  /** "reject" refuses contributions with NaN or an infinity; "propagate" treats them as IEEE 754 does. For floats. */
  nonFinite?: "reject" | "propagate";
}
export interface KeyedOptions extends DenseOptions {
  /** Release a coordinate or key only if at least so many clients touched it. */
  minContributors?: number;
  /** Leave out coordinates or keys whose released values are all zero. */
  dropZeros?: boolean;
  /** A contribution with more rows is rejected. */
  nnzMax?: number;
}
export interface SparseOptions extends KeyedOptions {
  /** How many leading dimensions of the shape the indices address; the rest is the shape of a block of values. */
  indexDims?: number;
  /** What is released, if not the operator's own form. */
  form?: "sparse" | "dense";
}

/** One output of a round: what an operator's function returns. */
export interface Output {
  readonly operator: string;
  readonly operand: Operand;
  readonly dtype: OutputDTypeName;
  readonly shape: readonly number[];
  readonly keyType?: "string" | "int64";
  readonly options: Readonly<SparseOptions>;
}

type OptionName = keyof SparseOptions;
const DENSE: readonly OptionName[] = ["dtype", "nonFinite"];
const KEYED: readonly OptionName[] = [...DENSE, "minContributors", "dropZeros", "nnzMax"];
const SPARSE: readonly OptionName[] = [...KEYED, "indexDims", "form"];

/** A function of the table, with the names of the arguments that it takes beside the shape. */
type Operator<Options, Form = (shape: Shape, options?: Options) => Output> =
  Form & {readonly operator: string; readonly operand: Operand; readonly options: readonly string[]};

const TABLE: Operator<never, (...rest: never[]) => Output>[] = [];

function output(
  operator: string, operand: Operand, taken: readonly OptionName[], shape: Shape, options: SparseOptions,
): Output {
  for (const name of Object.keys(options)) {
    if (!(taken as readonly string[]).includes(name)) {
      throw invalidArgument(`${operator} has no argument ${name}; it has ${taken.join(", ")}`);
    }
  }
  const {dtype} = options;
  return {
    operator, operand, options, dtype: outputDType(dtype ?? "float64").name as OutputDTypeName,
    shape: typeof shape === "number" ? [shape] : [...shape],
  };
}

function operator<Options extends SparseOptions>(
  name: string, operand: Operand, options: readonly OptionName[],
): Operator<Options> {
  const call = (shape: Shape, given: Options = {} as Options): Output => output(name, operand, options, shape, given);
  const row = Object.assign(call, {operator: name, operand, options});
  TABLE.push(row as never);
  return row;
}

/** Element by element, the sum of all contributions. */
export const sum = operator<DenseOptions>("sum", "dense", DENSE);
/** Element by element, the sum divided by the number of contributions. Floats only. */
export const mean = operator<DenseOptions>("mean", "dense", DENSE);
/** Element by element, the sum of weight * value divided by the sum of weights. Floats only. */
export const weighted_mean = operator<DenseOptions>("weighted_mean", "dense", DENSE);
/** Element by element, the smallest value. */
export const min = operator<DenseOptions>("min", "dense", DENSE);
/** Element by element, the largest value. */
export const max = operator<DenseOptions>("max", "dense", DENSE);
/** Element by element, how many clients' values are not zero. Takes `dtype`, releases int64. */
export const count = operator<DenseOptions>("count", "dense", DENSE);
/** At each coordinate, the sum of all entries there. Released sparse. */
export const sparse_sum = operator<SparseOptions>("sparse_sum", "sparse", SPARSE);
/** At each coordinate, the sum of all entries there. Released dense. */
export const sparse_sum_to_dense = operator<Omit<SparseOptions, "dropZeros">>(
  "sparse_sum_to_dense", "sparse", SPARSE.filter((name) => name !== "dropZeros"));
/** At each row, the sum of all row slices there. Released sparse. */
export const slices_sum = operator<SparseOptions>("slices_sum", "sparse", SPARSE);
/** At each coordinate, the sum divided by the number of contributions that touched it. Floats only. */
export const coordinate_mean = operator<SparseOptions>("coordinate_mean", "sparse", SPARSE);
/** At each coordinate, the sum of weight * value divided by the weight of those that touched it. Floats only. */
export const weighted_coordinate_mean = operator<SparseOptions>("weighted_coordinate_mean", "sparse", SPARSE);
/** At each coordinate, the sum divided by the number of all contributions: absent counts as zero. Floats only. */
export const client_mean = operator<SparseOptions>("client_mean", "sparse", SPARSE);
/** At each coordinate, the sum of weight * value divided by the weight of all: absent counts as zero. Floats only. */
export const weighted_client_mean = operator<SparseOptions>("weighted_client_mean", "sparse", SPARSE);
/** At each coordinate, the smallest entry of those that touched it: absent is not zero. Released sparse. */
export const sparse_min = operator<Omit<SparseOptions, "form">>(
  "sparse_min", "sparse", SPARSE.filter((name) => name !== "form"));
/** At each coordinate, the largest entry of those that touched it: absent is not zero. Released sparse. */
export const sparse_max = operator<Omit<SparseOptions, "form">>(
  "sparse_max", "sparse", SPARSE.filter((name) => name !== "form"));
/**
 * At each key of an open set, the sum of all rows there. Released as a `Keyed`, sorted by key. `shape` is that of the value at
 * one key.
 */
export const keyed_sum: Operator<KeyedOptions, (
  keyType: "string" | "int64", shape?: Shape, options?: KeyedOptions,
) => Output> = Object.assign(
  (keyType: "string" | "int64", shape: Shape = [], options: KeyedOptions = {}): Output => {
    if (keyType !== "string" && keyType !== "int64") throw invalidArgument('the keys are of type "string" or "int64"');
    return {...output("keyed_sum", "keyed", KEYED, shape, options), keyType};
  },
  {operator: "keyed_sum", operand: "keyed" as const, options: KEYED},
);
TABLE.push(keyed_sum as never);

/** The functions, in the order of the table. */
export const OPERATORS: readonly Operator<never, (...rest: never[]) => Output>[] = TABLE;

/** What each operator takes. */
export const OPERANDS: ReadonlyMap<string, Operand> = new Map(TABLE.map((row) => [row.operator, row.operand]));

/** The message for one output. */
export function outputSpec(name: string, declared: Output): OutputSpec {
  if (typeof declared !== "object" || declared === null || !OPERANDS.has(declared.operator)) {
    throw invalidArgument(`output "${name}" is a ${typeof declared}, and not an operator such as weighted_mean([])`);
  }
  const {options} = declared;
  return create(OutputSpecSchema, {
    name,
    operator: declared.operator,
    dtype: outputDType(declared.dtype).proto!,
    denseShape: declared.shape.map(BigInt),
    indexDims: options.indexDims ?? 0,
    minContributors: BigInt(options.minContributors ?? 0),
    dropZeros: options.dropZeros ?? false,
    nnzMax: BigInt(options.nnzMax ?? 0),
    keyType: {none: KeyType.KEY_TYPE_UNSPECIFIED, string: KeyType.STRING_KEYS, int64: KeyType.INT64_KEYS}[
      declared.keyType ?? "none"],
    form: choice(options.form, {sparse: OutputForm.SPARSE, dense: OutputForm.DENSE}, "form"),
    nonFinite: choice(options.nonFinite, {
      reject: NonFinitePolicy.NON_FINITE_POLICY_UNSPECIFIED, propagate: NonFinitePolicy.PROPAGATE_NON_FINITE,
    }, "nonFinite"),
  });
}

/** What the protocol calls the choice; 0 if it was left out. INVALID_ARGUMENT if there is no such choice. */
export function choice(value: string | undefined, choices: Record<string, number>, what: string): number {
  if (value === undefined) return 0;
  const found = choices[value];
  if (found === undefined) {
    throw invalidArgument(`${what} is ${Object.keys(choices).map((each) => `"${each}"`).join(" or ")}, and not "${value}"`);
  }
  return found;
}
