// What a round wants returned, as a computation sees it: one OutputSpec of a lease, and the check of a value against it.
import {KeyType, type OutputSpec} from "../gen/sheaf/v1/aggregation_pb.js";
import {invalidArgument, SheafError} from "./errors.js";
import {type Operand, OPERANDS} from "./operators.js";
import {type DType, dtypeOf} from "./values/dtypes.js";
import {Keyed} from "./values/keyed.js";
import {isPart, Sparse} from "./values/sparse.js";
import {convert, numbersOf, product, Tensor} from "./values/tensor.js";

const PARTS = ["indices", "values", "dense_shape", "keys", "key_offsets"];

/** One output: its name, operator, what it takes, dtype and shape. */
export class DeclaredOutput {
  readonly name: string;
  readonly operator: string;
  readonly operand: Operand;
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Of sparse operators, else 0. */
  readonly indexDims: number;
  /** Of keyed operators, else null. */
  readonly keyType: "string" | "int64" | null;

  /** UNIMPLEMENTED if the operator or dtype is not known here. */
  constructor(spec: OutputSpec) {
    this.name = spec.name;
    this.operator = spec.operator;
    const operand = OPERANDS.get(spec.operator);
    const dtype = dtypeOf(spec.dtype);
    if (operand === undefined || dtype === null) {
      throw new SheafError("UNIMPLEMENTED", `this worker does not know the ${
        operand === undefined ? `operator '${spec.operator}'` : `dtype ${spec.dtype}`}: upgrade it`);
    }
    this.operand = operand;
    this.dtype = dtype;
    this.shape = spec.denseShape.map(Number);
    const own = spec.operator === "slices_sum" ? 1 : this.shape.length;
    this.indexDims = operand === "sparse" ? spec.indexDims || own : 0;
    this.keyType = operand !== "keyed" ? null : spec.keyType === KeyType.INT64_KEYS ? "int64" : "string";
  }

  /** The dense tensor that a value is. INVALID_ARGUMENT, naming the output, if it is none, or another. */
  dense(value: unknown): Tensor {
    if (value instanceof Sparse) {
      throw this.refused("it takes a dense array, and this is a sparse tensor; a sparse tensor is one operand: declare the " +
        "output with a sparse operator, such as sparse_sum or slices_sum, or return its toDense()");
    }
    const numbers = numbersOf(value);
    if (numbers === null) throw this.refused(`it takes a dense array, and this is a ${kindOf(value)}`);
    if (numbers.data !== null && isPart(numbers.data)) {
      throw this.refused("this array is the indices or the values of a Sparse, which are never summed one by one: declare " +
        "the output with a sparse operator, such as sparse_sum or slices_sum, and return the Sparse itself");
    }
    // A typed array has no shape of its own.
    const fits = numbers.shape === null ? numbers.values.length === product(this.shape)
                                        : numbers.shape.join() === this.shape.join();
    if (!fits) {
      throw this.refused(`the array has shape [${(numbers.shape ?? [numbers.values.length]).join(", ")}], expected ` +
        `[${this.shape.join(", ")}]`);
    }
    return new Tensor(this.guarded(() => convert(numbers, this.dtype)), this.shape, this.dtype);
  }

  /** The sparse tensor that a value is, of this dtype. INVALID_ARGUMENT as above. */
  sparse(value: unknown): Sparse {
    if (!(value instanceof Sparse)) {
      throw this.refused(`it takes a Sparse, and this is a ${kindOf(value)}; make one of the indices and values, or with ` +
        "Sparse.fromDense");
    }
    if (value.shape.join() !== this.shape.join()) {
      throw this.refused(`the Sparse has shape [${value.shape.join(", ")}], expected [${this.shape.join(", ")}]`);
    }
    if (value.indexDims !== this.indexDims) {
      throw this.refused(`the indices address ${value.indexDims} dimensions, expected ${this.indexDims}; indexDims of the ` +
        "output says how many");
    }
    const values = this.guarded(() => convert(numbersOf(value.values)!, this.dtype));
    if (values === value.values.data) return value;
    return new Sparse(value.indices, new Tensor(values, value.values.shape, this.dtype), value.shape);
  }

  /** The table that a value is, of this dtype. INVALID_ARGUMENT as above. */
  keyed(value: unknown): Keyed {
    const isMapping = value instanceof Keyed || value instanceof Map
      || (typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype);
    if (!isMapping) throw this.refused(`it takes a Keyed, a Map or an object, and this is a ${kindOf(value)}`);
    const table = this.guarded(() => (value instanceof Keyed ? value : new Keyed(value as Map<unknown, unknown>)));
    const wanted = this.keyType === "string";
    if (table.hasTextKeys !== null && table.hasTextKeys !== wanted) {
      throw this.refused(`its keys are ${wanted ? "text" : "integers"}, and these are not`);
    }
    const shape = [table.size, ...this.shape];
    if (table.size > 0 && table.values.shape.join() !== shape.join()) {
      throw this.refused(`the values have shape [${table.values.shape.join(", ")}], expected [${shape.join(", ")}]`);
    }
    // Plain numbers became float64; integers among them are no floats that somebody meant.
    const values = this.guarded(() => convert(
      {...numbersOf(table.values)!, dtype: value instanceof Keyed ? table.values.dtype : null}, this.dtype));
    return new Keyed(table.keys, new Tensor(values, shape, this.dtype));
  }

  private refused(why: string): SheafError {
    return invalidArgument(`output "${this.name}", operator "${this.operator}": ${why}`);
  }

  private guarded<T>(make: () => T): T {
    try {
      return make();
    } catch (error) {
      if (error instanceof SheafError) throw this.refused(error.message);
      throw error;
    }
  }
}

function kindOf(value: unknown): string {
  if (value === null || typeof value !== "object") return value === null ? "null" : typeof value;
  return value.constructor?.name ?? "object";
}

/** INVALID_ARGUMENT if a value is missing, or there is one beside the outputs. */
export function checkNames(values: Readonly<Record<string, unknown>>, outputs: readonly DeclaredOutput[]): void {
  const names = outputs.map(({name}) => name);
  for (const name of Object.keys(values)) {
    if (names.includes(name)) continue;
    const dot = name.lastIndexOf(".");
    const whole = name.slice(0, Math.max(dot, 0));
    if (names.includes(whole) && PARTS.includes(name.slice(dot + 1))) {
      throw invalidArgument(`there is no output "${name}": return the whole Sparse or Keyed as "${whole}", it is one value`);
    }
    throw invalidArgument(`there is no output "${name}"; the round declares ${names.join(", ")}`);
  }
  for (const name of names) {
    if (!(name in values)) {
      throw invalidArgument(`the output "${name}" is missing; return a value for each of ${names.join(", ")}`);
    }
  }
}
