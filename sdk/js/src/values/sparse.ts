// Sparse tensors: one value made of three parts, never three values.
//
//   const grad = new Sparse([3, 17], rows, [1000, 64]);         // Rows 3 and 17 of a table of 1000.
//   for (let i = 0; i < grad.length; ++i) update(table, grad.rows[i], grad.values.row(i));
import {invalidArgument} from "../errors.js";
import {dtypeNamed, type DType, type TypedArray} from "./dtypes.js";
import {convert, numbersOf, product, Tensor, type TensorLike, toTensor} from "./tensor.js";

// The parts of every Sparse there is: contributed one by one they would give wrong sums without an error.
const parts = new WeakSet<TypedArray>();

/** Whether this very array is the indices or the values of a Sparse. */
export function isPart(data: TypedArray): boolean {
  return parts.has(data);
}

/**
 * A sparse tensor of `shape`: at the coordinate `indices[i]` of the leading dimensions is the block `values[i]`.
 *
 * indices: integers of shape [n, r], or [n], which means [n, 1]. r is how many leading dimensions they address: all of them for
 * single values, 1 for rows of a table. In any order; a coordinate may occur more than once, then its values are added.
 * values: shape [n, ...shape.slice(r)], or a typed array of as many values. INVALID_ARGUMENT if these do not fit each other, or
 * an index is out of range.
 */
export class Sparse {
  /** int32 or int64, shape [n, r]. */
  readonly indices: Tensor;
  /** Shape [n, ...shape.slice(r)]. */
  readonly values: Tensor;
  readonly shape: readonly number[];

  constructor(indices: TensorLike, values: TensorLike, shape: readonly number[]) {
    this.shape = [...shape];
    const rough = indicesOf(indices);
    const flat = numbersOf(values);
    if (flat === null || flat.shape?.length === 0) {
      throw invalidArgument("the values of a Sparse are an array: one value, or one row of values, for each index");
    }
    const [n, r] = rough.shape as [number, number];
    const isEmptyList = n === 0 && Array.isArray(indices);
    const columns = isEmptyList && flat.shape !== null ? Math.max(shape.length - flat.shape.length + 1, 0) : r;
    const blocks = [n, ...shape.slice(columns)];
    const loose = toTensor(values, "what a Sparse has for values");
    const fits = columns <= shape.length && (flat.shape === null
      ? loose.data.length === product(blocks)
      : flat.shape.join() === blocks.join() || (n === 0 && loose.data.length === 0));
    if (!fits) {
      throw invalidArgument(`${n} coordinates of ${columns} index columns into shape [${shape.join(", ")}] need values of ` +
        `shape [${blocks.join(", ")}], and not [${loose.shape.join(", ")}]`);
    }
    this.values = new Tensor(loose.data, blocks, loose.dtype);
    this.indices = new Tensor(rough.data, [n, columns], rough.dtype);
    this.checkRange();
    parts.add(this.values.data);
    parts.add(this.indices.data);
  }

  private checkRange(): void {
    const {data} = this.indices;
    const columns = this.indexDims;
    for (let i = 0; i < data.length; ++i) {
      const size = this.shape[i % columns]!;
      if (data[i]! < 0 || data[i]! >= size) {
        throw invalidArgument(`indices[${Math.floor(i / columns)}, ${i % columns}] is ${data[i]}, outside [0, ${size})`);
      }
    }
  }

  /** How many blocks it has. */
  get length(): number {
    return this.indices.shape[0]!;
  }

  /** How many leading dimensions the indices address. */
  get indexDims(): number {
    return this.indices.shape[1]!;
  }

  /** Of the values. */
  get dtype(): DType {
    return this.values.dtype;
  }

  /** The row numbers of a Sparse whose indices address one dimension. INVALID_ARGUMENT otherwise. */
  get rows(): number[] {
    if (this.indexDims !== 1) {
      throw invalidArgument(`its indices address ${this.indexDims} dimensions, so that they are no row numbers`);
    }
    return Array.from(this.indices.data as ArrayLike<number | bigint>, Number);
  }

  /** The entries of a dense tensor that are not zero; with `indexDims`, the blocks with any such entry. */
  static fromDense(dense: TensorLike, indexDims?: number): Sparse {
    const tensor = toTensor(dense, "a dense tensor");
    const columns = indexDims ?? tensor.shape.length;
    const leading = tensor.shape.slice(0, columns);
    const width = product(tensor.shape.slice(columns));
    const indices: number[] = [];
    const touched: number[] = [];
    for (let block = 0; block < product(leading); ++block) {
      if (!(tensor.data.subarray(block * width, (block + 1) * width) as Float64Array).some((value) => Number(value) !== 0)) {
        continue;
      }
      touched.push(block);
      const index: number[] = [];
      for (let left = block, d = columns - 1; d >= 0; --d) {
        index.unshift(left % leading[d]!);
        left = Math.floor(left / leading[d]!);
      }
      indices.push(...index);
    }
    const values = new tensor.dtype.array(touched.length * width);
    touched.forEach((block, i) => {
      (values as Float64Array).set(tensor.data.subarray(block * width, (block + 1) * width) as Float64Array, i * width);
    });
    const coordinates = new Tensor(BigInt64Array.from(indices, BigInt), [touched.length, columns]);
    return new Sparse(coordinates, new Tensor(values, [touched.length, ...tensor.shape.slice(columns)], tensor.dtype),
                      tensor.shape);
  }

  /** The dense tensor. Values at one coordinate are added, in their order. */
  toDense(): Tensor {
    const dense = new this.dtype.array(product(this.shape));
    const width = product(this.shape.slice(this.indexDims));
    const values = this.values.data;
    for (let i = 0; i < this.length; ++i) {
      const begin = Number(linearIndex(this, i)) * width;
      for (let j = 0; j < width; ++j) {
        (dense[begin + j] as unknown) = (dense[begin + j] as number) + (values[i * width + j] as number);
      }
    }
    return new Tensor(dense, this.shape, this.dtype);
  }

  toString(): string {
    return `<sheaf.Sparse ${this.dtype.name} [${this.shape.join(", ")}]: ${this.length} of shape ` +
      `[${this.values.shape.slice(1).join(", ")}]>`;
  }
}

/** Where block `i` of a sparse tensor is among all blocks of its shape. */
export function linearIndex(sparse: Sparse, i: number): bigint {
  const columns = sparse.indexDims;
  let at = 0n;
  for (let d = 0; d < columns; ++d) at = at * BigInt(sparse.shape[d]!) + BigInt(sparse.indices.data[i * columns + d]!);
  return at;
}

function indicesOf(indices: TensorLike): Tensor {
  const numbers = numbersOf(indices);
  if (numbers === null) throw invalidArgument("the indices of a Sparse are integers");
  if (numbers.dtype?.kind === "float") {
    throw invalidArgument(`the indices of a Sparse are integers, and not ${numbers.dtype.name}`);
  }
  const shape = numbers.shape ?? [numbers.values.length];
  if (shape.length > 2 || shape.length === 0) {
    throw invalidArgument(`the indices of a Sparse have shape [n, r] or [n], and not [${shape.join(", ")}]`);
  }
  const dtype = numbers.dtype?.name === "int32" ? numbers.dtype : dtypeNamed("int64");
  return new Tensor(convert(numbers, dtype), [shape[0]!, shape[1] ?? 1], dtype);
}
