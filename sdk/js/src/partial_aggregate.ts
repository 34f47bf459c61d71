// PartialAggregate: the state of one output over several clients, as docs/reference/partial-aggregates.md defines its bytes.
// Equal sums have equal bytes, whoever wrote them.
//
//   const state = new PartialAggregate(spec, Numerics.EXACT);
//   state.add(declared.dense([1, -2.5]), 1);
//   state.state();
import {KeyType, NonFinitePolicy, Numerics, type OutputSpec} from "../gen/sheaf/v1/aggregation_pb.js";
import {DType as ProtoDType} from "../gen/sheaf/v1/tensor_pb.js";
import {ByteWriter} from "./byte_writer.js";
import {DeclaredOutput} from "./declared_output.js";
import {invalidArgument} from "./errors.js";
import {Keyed} from "./values/keyed.js";
import {linearIndex, Sparse} from "./values/sparse.js";
import {product, Tensor} from "./values/tensor.js";
import {bytesOf} from "./values/text.js";

const VERSION = 2;
const CHUNK = 1024;
const WEIGHTED = new Set(["weighted_mean", "weighted_coordinate_mean", "weighted_client_mean"]);
// Digits of an exact sum: k from -40 to 37, to the base 2^32.
const LEAST_DIGIT = -40;
const BASE = 2 ** 32;
const HALF = 2 ** 31;
// An accumulated digit is below 2^32 times the terms since the last carry, which stays exact as a double.
const TERMS_MAX = 2 ** 20;

/** Running values of some elements. */
interface Cells {
  /** Room for `count` more elements, at the end. */
  grow(count: number): void;
  add(cell: number, value: number | bigint, weight: number): void;
  /** Writes the cells of these numbers. */
  write(cells: readonly number[], out: ByteWriter): void;
}

class FloatParts {
  private readonly view = new DataView(new ArrayBuffer(8));

  /** An integer of at most 53 bits and an exponent of two: their product is the finite value. */
  of(value: number): [integer: number, exponent: number] {
    this.view.setFloat64(0, value);
    const high = this.view.getUint32(0);
    const exponent = (high >>> 20) & 0x7ff;
    const fraction = (high & 0xfffff) * BASE + this.view.getUint32(4);
    const magnitude = exponent === 0 ? fraction : fraction + 2 ** 52;
    return [high >>> 31 ? -magnitude : magnitude, Math.max(exponent, 1) - 1075];
  }
}

const floatParts = new FloatParts();

/** Exact sums: one array of digits for each k that occurs. */
class ExactCells implements Cells {
  private count = 0;
  private readonly bins = new Map<number, Float64Array>();
  private flags = new Uint8Array(0);
  private terms = 0;

  grow(count: number): void {
    this.count += count;
    if (this.count <= this.flags.length) return;
    const room = Math.max(this.count, 2 * this.flags.length);
    const widerFlags = new Uint8Array(room);
    widerFlags.set(this.flags);
    this.flags = widerFlags;
    for (const [k, digits] of this.bins) {
      const wider = new Float64Array(room);
      wider.set(digits);
      this.bins.set(k, wider);
    }
  }

  add(cell: number, value: number | bigint, weight: number): void {
    const number = Number(value);
    if (!Number.isFinite(number)) {
      this.flags[cell]! |= Number.isNaN(number) ? 1 : number > 0 ? 2 : 4;
      return;
    }
    if (number === 0) return;
    const [v, valueExponent] = floatParts.of(number);
    if (weight === 1) {
      this.addTerm(cell, v, valueExponent);
    } else {
      // A weight is a FLOAT32: of its 53 bits the lower 29 are 0. Halves of the value times the upper 24 are exact.
      const [w, weightExponent] = floatParts.of(weight);
      const upperWeight = w / 2 ** 29;
      const upper = Math.trunc(v / 2 ** 26);
      this.addTerm(cell, upper * upperWeight, valueExponent + weightExponent + 29 + 26);
      this.addTerm(cell, (v - upper * 2 ** 26) * upperWeight, valueExponent + weightExponent + 29);
    }
    if (++this.terms >= TERMS_MAX / 4) this.carry();
  }

  // integer * 2^exponent, |integer| < 2^53.
  private addTerm(cell: number, integer: number, exponent: number): void {
    if (integer === 0) return;
    let k = Math.floor(exponent / 32);
    const shift = exponent - 32 * k;
    const low = 2 ** (32 - shift);
    const rest = Math.trunc(integer / low);
    this.digits(k)[cell]! += (integer - rest * low) * 2 ** shift;
    for (let left = rest; left !== 0;) {
      const above = Math.trunc(left / BASE);
      this.digits(++k)[cell]! += left - above * BASE;
      left = above;
    }
  }

  private digits(k: number): Float64Array {
    let digits = this.bins.get(k);
    if (digits === undefined) this.bins.set(k, (digits = new Float64Array(this.flags.length)));
    return digits;
  }

  /** Leaves the balanced digits: from -2^31 to 2^31 - 1. */
  private carry(): void {
    this.terms = 0;
    if (this.bins.size === 0) return;
    const least = Math.max(Math.min(...this.bins.keys()), LEAST_DIGIT);
    for (let k = least; k <= Math.max(...this.bins.keys()); ++k) {
      const digits = this.bins.get(k);
      if (digits === undefined) continue;
      for (let cell = 0; cell < this.count; ++cell) {
        const total = digits[cell]!;
        if (total >= -HALF && total < HALF) continue;
        const digit = ((((total + HALF) % BASE) + BASE) % BASE) - HALF;
        digits[cell] = digit;
        this.digits(k + 1)[cell]! += (total - digit) / BASE;
      }
    }
  }

  write(cells: readonly number[], out: ByteWriter): void {
    this.carry();
    const ks = [...this.bins.keys()].sort((a, b) => a - b).filter((k) => {
      const digits = this.bins.get(k)!;
      return cells.some((cell) => digits[cell] !== 0);
    });
    out.u16(ks.length);
    for (const k of ks) {
      out.i16(k);
      const digits = this.bins.get(k)!;
      for (const cell of cells) out.i32(digits[cell]!);
    }
    const flagged = cells.flatMap((cell, at) => (this.flags[cell] !== 0 ? [[at, this.flags[cell]!] as const] : []));
    out.u16(flagged.length);
    for (const [at, flags] of flagged) {
      out.u16(at);
      out.u8(flags);
    }
  }
}

/** One float for each element, rounded at each step. */
class FloatCells implements Cells {
  private readonly sums: number[] = [];
  private readonly isNarrow: boolean;

  constructor(isNarrow: boolean) {
    this.isNarrow = isNarrow;
  }

  grow(count: number): void {
    for (let i = 0; i < count; ++i) this.sums.push(0);
  }

  add(cell: number, value: number | bigint, weight: number): void {
    const round = this.isNarrow ? Math.fround : (exact: number) => exact;
    this.sums[cell] = round(this.sums[cell]! + round(Number(value) * weight));
  }

  write(cells: readonly number[], out: ByteWriter): void {
    for (const cell of cells) writeFloat(this.sums[cell]!, this.isNarrow, out);
  }
}

/** Sums of integers: they never wrap. */
class IntegerCells implements Cells {
  private readonly sums: bigint[] = [];

  grow(count: number): void {
    for (let i = 0; i < count; ++i) this.sums.push(0n);
  }

  add(cell: number, value: number | bigint): void {
    this.sums[cell]! += BigInt(value);
  }

  write(cells: readonly number[], out: ByteWriter): void {
    const sums = cells.map((cell) => this.sums[cell]!);
    const bytes = sums.every((each) => each === 0n) ? 0 : sums.every((each) => BigInt.asIntN(64, each) === each) ? 8 : 16;
    out.u8(bytes);
    if (bytes === 0) return;
    for (const each of sums) {
      out.i64(BigInt.asIntN(64, each));
      if (bytes === 16) out.i64(each >> 64n);
    }
  }
}

class CountCells implements Cells {
  private readonly counts: number[] = [];

  grow(count: number): void {
    for (let i = 0; i < count; ++i) this.counts.push(0);
  }

  add(cell: number, value: number | bigint): void {
    // NaN is not zero, -0 is.
    if (Number(value) !== 0) ++this.counts[cell]!;
  }

  write(cells: readonly number[], out: ByteWriter): void {
    for (const cell of cells) out.i64(BigInt(this.counts[cell]!));
  }
}

/** The smallest or largest value. NaN is both. */
class ExtremeCells implements Cells {
  private readonly values: (number | bigint | null)[] = [];
  private readonly isMax: boolean;
  private readonly dtype: ProtoDType;

  constructor(isMax: boolean, dtype: ProtoDType) {
    this.isMax = isMax;
    this.dtype = dtype;
  }

  grow(count: number): void {
    for (let i = 0; i < count; ++i) this.values.push(null);
  }

  add(cell: number, value: number | bigint): void {
    const before = this.values[cell]!;
    if (before === null || Number.isNaN(value) || (this.isMax ? value > before : value < before)) this.values[cell] = value;
  }

  write(cells: readonly number[], out: ByteWriter): void {
    for (const cell of cells) {
      const value = this.values[cell]!;
      switch (this.dtype) {
        case ProtoDType.FLOAT32:
        case ProtoDType.FLOAT64:
          writeFloat(Number(value), this.dtype === ProtoDType.FLOAT32, out);
          break;
        case ProtoDType.INT32:
          out.i32(Number(value));
          break;
        default:
          out.i64(BigInt.asIntN(64, BigInt(value)));
      }
    }
  }
}

// Zero is +0, and NaN the quiet one, which is the only one that JavaScript writes here.
function writeFloat(value: number, isNarrow: boolean, out: ByteWriter): void {
  if (isNarrow) out.f32(value + 0);
  else out.f64(value + 0);
}

/** The state of one output. */
export class PartialAggregate {
  private readonly spec: OutputSpec;
  private readonly output: DeclaredOutput;
  private readonly numerics: Numerics;
  private readonly width: number;
  private readonly isWeighted: boolean;
  private readonly isCounted: boolean;
  private readonly cells: Cells;
  private clients = 0;
  // Dense: one row. Sparse and keyed: one for each coordinate or key that somebody touched; integers below 2^53 are numbers.
  private readonly rows = new Map<number | bigint | string, number>();
  private readonly contributors: number[] = [];
  // Of weighted_coordinate_mean: sums of weights, one for each row.
  private readonly weights: Cells | null;
  // Of weighted_mean and weighted_client_mean: one sum.
  private readonly allWeights = new ExactCells();

  constructor(spec: OutputSpec, numerics: Numerics) {
    this.spec = spec;
    this.output = new DeclaredOutput(spec);
    this.numerics = numerics === Numerics.NUMERICS_UNSPECIFIED ? Numerics.EXACT : numerics;
    const {operator, shape, indexDims, operand, dtype} = this.output;
    this.width = product(shape.slice(indexDims));
    this.isWeighted = WEIGHTED.has(operator);
    this.isCounted = spec.minContributors > 1n || operator === "coordinate_mean";
    this.cells = cellsOf(operator, spec.dtype, dtype.kind === "float", this.numerics);
    this.weights = operator !== "weighted_coordinate_mean" ? null
      : this.numerics === Numerics.EXACT ? new ExactCells() : new FloatCells(false);
    this.allWeights.grow(1);
    if (operand === "dense") this.rowOf(0);
  }

  /** INVALID_ARGUMENT if the value holds what the round rejects. */
  checkValue(value: Tensor | Sparse | Keyed): void {
    if (this.output.dtype.kind !== "float" || this.spec.nonFinite === NonFinitePolicy.PROPAGATE_NON_FINITE) return;
    const {data} = value instanceof Tensor ? value : value.values;
    const at = (data as Float64Array).findIndex((each) => !Number.isFinite(each));
    if (at >= 0) throw invalidArgument(`output "${this.spec.name}": value ${at} is ${data[at]}, and the round takes finite ones`);
  }

  /** One more client: a value of the output's own kind and dtype (see DeclaredOutput). */
  add(value: Tensor | Sparse | Keyed, weight: number): void {
    ++this.clients;
    this.allWeights.add(0, weight, 1);
    const {data} = value instanceof Tensor ? value : value.values;
    const keys = value instanceof Tensor ? [0] : value instanceof Keyed ? value.keys : coordinates(value);
    const touched = new Set<number>();
    for (let i = 0; i < keys.length; ++i) {
      const row = this.rowOf(keys[i]!);
      for (let j = 0; j < this.width; ++j) {
        this.cells.add(row * this.width + j, data[i * this.width + j]!, this.isWeighted ? weight : 1);
      }
      touched.add(row);
    }
    for (const row of touched) {
      ++this.contributors[row]!;
      this.weights?.add(row, weight, 1);
    }
  }

  state(): Uint8Array {
    const covered = new ByteWriter();
    covered.bytes(new TextEncoder().encode("SHAO"));
    covered.u32(VERSION);
    covered.string(new TextEncoder().encode(this.signature()));
    covered.string(this.body());
    covered.u32(covered.crc32());
    return covered.take();
  }

  private rowOf(key: number | bigint | string): number {
    let row = this.rows.get(key);
    if (row !== undefined) return row;
    row = this.rows.size;
    this.rows.set(key, row);
    this.contributors.push(0);
    this.cells.grow(this.width);
    this.weights?.grow(1);
    return row;
  }

  private signature(): string {
    const {name, operator, dtype, denseShape, keyType, nonFinite} = this.spec;
    return [
      name, operator, ProtoDType[dtype], Numerics[this.numerics], `[${denseShape.join(", ")}]`,
      `index_dims=${this.output.indexDims}`, this.output.operand === "keyed" ? KeyType[keyType] : "KEY_TYPE_UNSPECIFIED",
      `non_finite=${nonFinite === NonFinitePolicy.PROPAGATE_NON_FINITE}`, `counted=${this.isCounted}`,
    ].join(" ");
  }

  private body(): Uint8Array {
    const out = new ByteWriter();
    out.i64(BigInt(this.clients));
    const {operand, operator} = this.output;
    const order = [...this.rows].map(([key, row]) => ({key, row}));
    if (operand === "sparse") {
      order.sort((a, b) => (a.key < b.key ? -1 : 1));
      out.i64(BigInt(order.length));
      for (const {key} of order) out.i64(BigInt(key));
      if (this.isCounted || this.weights !== null) for (const {row} of order) out.i64(BigInt(this.contributors[row]!));
      if (this.weights !== null) this.writeCells(this.weights, order.map(({row}) => row), out);
    } else if (operand === "keyed") {
      const keyed = order.map(({key, row}) => ({key, row, bytes: typeof key === "string" ? bytesOf(key) : null}));
      keyed.sort((a, b) => (a.bytes !== null ? compareBytes(a.bytes, b.bytes!) : a.key < b.key ? -1 : 1));
      order.splice(0, order.length, ...keyed);
      out.i64(BigInt(keyed.length));
      for (const {key, row, bytes} of keyed) {
        if (bytes !== null) out.string(bytes);
        else out.i64(BigInt(key));
        if (this.isCounted) out.i64(BigInt(this.contributors[row]!));
      }
    }
    if (operator === "weighted_mean" || operator === "weighted_client_mean") this.allWeights.write([0], out);
    const elements: number[] = [];
    for (const {row} of order) for (let j = 0; j < this.width; ++j) elements.push(row * this.width + j);
    this.writeCells(this.cells, elements, out);
    return out.take();
  }

  private writeCells(cells: Cells, numbers: readonly number[], out: ByteWriter): void {
    for (let at = 0; at < numbers.length; at += CHUNK) cells.write(numbers.slice(at, at + CHUNK), out);
  }
}

function cellsOf(operator: string, dtype: ProtoDType, isFloat: boolean, numerics: Numerics): Cells {
  if (operator === "count") return new CountCells();
  if (operator.endsWith("min") || operator.endsWith("max")) return new ExtremeCells(operator.endsWith("max"), dtype);
  if (!isFloat) return new IntegerCells();
  if (numerics === Numerics.EXACT) return new ExactCells();
  return new FloatCells(numerics === Numerics.F32);
}

// As numbers where all of them can be: a Map of bigints takes several times as long.
function coordinates(sparse: Sparse): readonly (number | bigint)[] {
  const isSmall = product(sparse.shape.slice(0, sparse.indexDims)) < Number.MAX_SAFE_INTEGER;
  return Array.from({length: sparse.length}, (_, i) => (isSmall ? Number(linearIndex(sparse, i)) : linearIndex(sparse, i)));
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < Math.min(a.length, b.length); ++i) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return a.length - b.length;
}
