// Tensor: a typed array and a shape.
//
//   const w = new Tensor(new Float32Array(640), [64, 10]);
//   const age = result.get("age").item();
import {invalidArgument} from "../errors.js";
import {type DType, dtypeNamed, dtypeOfArray, isTypedArray, type TypedArray} from "./dtypes.js";

/** What stands for a dense tensor: a number, a (nested) list of numbers, a typed array, a Tensor, or a tensor of TensorFlow.js. */
export type TensorLike =
  | number | bigint | boolean | readonly TensorLike[] | TypedArray | Tensor
  | {readonly shape: readonly number[]; dataSync(): TypedArray};

export function product(sizes: readonly number[]): number {
  return sizes.reduce((all, size) => all * size, 1);
}

/** A dense tensor in row-major (C) order. `data` is not copied. INVALID_ARGUMENT if it does not fit the shape. */
export class Tensor {
  readonly data: TypedArray;
  readonly shape: readonly number[];
  readonly dtype: DType;

  constructor(data: TypedArray, shape: readonly number[] = [data.length], dtype: DType = dtypeOfArray(data)) {
    if (product(shape) !== data.length) {
      throw invalidArgument(`${data.length} values are no tensor of shape [${shape.join(", ")}]`);
    }
    this.data = data;
    this.shape = shape;
    this.dtype = dtype;
  }

  /** From raw little-endian bytes: a view of them where they are aligned, else a copy. */
  static fromBytes(dtype: DType, shape: readonly number[], bytes: Uint8Array): Tensor {
    const aligned = bytes.byteOffset % dtype.bytes === 0 ? bytes : bytes.slice();
    return new Tensor(new dtype.array(aligned.buffer, aligned.byteOffset, aligned.byteLength / dtype.bytes), shape, dtype);
  }

  /** The raw little-endian bytes: a view. */
  bytes(): Uint8Array {
    return new Uint8Array(this.data.buffer, this.data.byteOffset, this.data.byteLength);
  }

  /** The only value. INVALID_ARGUMENT if there is not exactly one. */
  item(): number | bigint {
    if (this.data.length !== 1) throw invalidArgument(`a tensor of shape [${this.shape.join(", ")}] is not one number`);
    return this.data[0]!;
  }

  /** The values of row `i` of the first dimension: a view. */
  row(i: number): TypedArray {
    const width = product(this.shape.slice(1));
    return this.data.subarray(i * width, (i + 1) * width) as TypedArray;
  }

  /** A tensor of one value is that number. */
  valueOf(): number | bigint | this {
    return this.data.length === 1 ? this.data[0]! : this;
  }

  toString(): string {
    return `<sheaf.Tensor ${this.dtype.name} [${this.shape.join(", ")}]>`;
  }
}

/** What the numbers of a value are: its own type's, or plain numbers that become any type that holds them. */
export interface Numbers {
  readonly values: ArrayLike<number | bigint>;
  /** Null for plain numbers. */
  readonly dtype: DType | null;
  /** Null for a typed array, which has a length and no shape. */
  readonly shape: readonly number[] | null;
  /** The value itself, where it is a typed array. */
  readonly data: TypedArray | null;
}

/** Null if it is no dense tensor. */
export function numbersOf(value: unknown): Numbers | null {
  if (value instanceof Tensor) return {values: value.data, dtype: value.dtype, shape: value.shape, data: value.data};
  if (isTypedArray(value)) return {values: value, dtype: dtypeOfArray(value), shape: null, data: value};
  if (typeof value === "number" || typeof value === "bigint" || typeof value === "boolean") {
    return {values: [typeof value === "boolean" ? Number(value) : value], dtype: null, shape: [], data: null};
  }
  if (Array.isArray(value)) return numbersOfList(value);
  if (value !== null && typeof value === "object" && "dataSync" in value && "shape" in value) {
    const {shape} = value as {shape: readonly number[]};
    const data = (value as {dataSync(): TypedArray}).dataSync();
    return {values: data, dtype: dtypeOfArray(data), shape, data};
  }
  return null;
}

function numbersOfList(list: readonly unknown[]): Numbers | null {
  const shape: number[] = [];
  for (let level: unknown = list; Array.isArray(level) || isTypedArray(level); level = level[0]) {
    shape.push(level.length);
    if (level.length === 0) break;
  }
  const values: (number | bigint)[] = [];
  const collect = (level: unknown, depth: number): boolean => {
    if (depth === shape.length) {
      if (typeof level === "boolean") level = Number(level);
      if (typeof level !== "number" && typeof level !== "bigint") return false;
      values.push(level);
      return true;
    }
    if (!(Array.isArray(level) || isTypedArray(level)) || level.length !== shape[depth]) return false;
    for (let i = 0; i < level.length; ++i) if (!collect(level[i], depth + 1)) return false;
    return true;
  };
  return collect(list, 0) ? {values, dtype: null, shape, data: null} : null;
}

const INTEGER_LIMITS = new Map<string, [bigint, bigint]>([
  ["int64", [-(2n ** 63n), 2n ** 63n - 1n]], ["uint64", [0n, 2n ** 64n - 1n]], ["int32", [-(2n ** 31n), 2n ** 31n - 1n]],
]);

/**
 * The numbers as `dtype`, one of an output, where nothing but the precision of floats is lost. INVALID_ARGUMENT, with the
 * reason, otherwise. The very array where it is of this type already.
 */
export function convert(numbers: Numbers, dtype: DType): TypedArray {
  const {values, dtype: from, data} = numbers;
  if (from === dtype) return data!;
  const converted = new dtype.array(values.length);
  if (dtype.kind === "float") {
    for (let i = 0; i < values.length; ++i) {
      const value = values[i]!;
      const isInteger = typeof value === "bigint" || (from !== null && from.kind !== "float");
      converted[i] = Number(value);
      const stored = converted[i] as number;
      if (isInteger && BigInt(value) !== (Number.isFinite(stored) ? BigInt(stored) : null)) {
        throw invalidArgument(`the integer ${value} is not a ${dtype.name}; declare an output that holds it`);
      }
      if (!isInteger && !Number.isFinite(stored) && Number.isFinite(value)) {
        throw invalidArgument(`a value is beyond the largest ${dtype.name}; declare float64, or return smaller numbers`);
      }
    }
    return converted;
  }
  if (from?.kind === "float") {
    throw invalidArgument(`the value is of dtype ${from.name}, expected ${dtype.name}; convert it as you mean it`);
  }
  const [least, most] = INTEGER_LIMITS.get(dtype.name)!;
  for (let i = 0; i < values.length; ++i) {
    const value = values[i]!;
    if (typeof value === "number" && !Number.isSafeInteger(value)) {
      throw invalidArgument(Number.isInteger(value)
        ? `${value} is not exact as a number: give integers beyond 2^53 as bigint`
        : `the value ${value} is not an integer, expected ${dtype.name}; convert it as you mean it`);
    }
    const integer = BigInt(value);
    if (integer < least || integer > most) {
      throw invalidArgument(`the integer ${integer} is not a ${dtype.name}; declare an output that holds it`);
    }
    converted[i] = (dtype.bytes === 8 ? integer : Number(integer)) as never;
  }
  return converted;
}

/**
 * A tensor of its own type; plain numbers are float64, and bigints int64, or uint64 where they need it. INVALID_ARGUMENT if it
 * is no dense tensor.
 */
export function toTensor(value: unknown, what: string): Tensor {
  const numbers = numbersOf(value);
  if (numbers === null) throw invalidArgument(`${what} is no array of numbers`);
  const plain = typeof numbers.values[0] !== "bigint" ? "float64"
    : Array.prototype.some.call(numbers.values, (each: bigint) => each >= 2n ** 63n) ? "uint64" : "int64";
  const dtype = numbers.dtype ?? dtypeNamed(plain);
  return new Tensor(numbers.data ?? convert(numbers, dtype), numbers.shape ?? [numbers.values.length], dtype);
}
