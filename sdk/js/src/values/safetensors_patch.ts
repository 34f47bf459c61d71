// safetensors files that say what of another one is different: patches of a broadcast, so that a model of which some rows have
// changed need not be sent again. blob_service.proto says how a patch is made up.
//
//   const patch = encodePatch(new Safetensors(before), new Safetensors(after), sha256Hex(before));
//   applyPatch(new Safetensors(before), new Safetensors(patch));                        // Now `before` has the bytes of `after`.
//
// Patches are untrusted: each is held to its base before a byte of it is used.
import {invalidArgument, type SheafError} from "../errors.js";
import {dtypeNamed} from "./dtypes.js";
import {encodeSafetensors, type RawTensor, type Safetensors} from "./safetensors.js";
import {product, Tensor} from "./tensor.js";

const BASE = "sheaf.base";
const INDICES = ".indices";
const VALUES = ".values";
// About as much as a header grows by two more tensors: rows of a small tensor are not worth that.
const HEADER_BYTES_OF_ROWS = 128;

/** The digest of the file that this one is a patch of, if it is one. */
export function patchBase(file: Safetensors): string | undefined {
  return Object.hasOwn(file.metadata, BASE) ? file.metadata[BASE] : undefined;
}

/** Where a tensor of the base is different: all of it, or some rows. */
interface Change {
  /** All of the tensor in the base. */
  to: Uint8Array;
  /** All of it, or its rows, one after the other. */
  from: Uint8Array;
  /** Null: all of it. */
  rows: {numbers: BigInt64Array; bytes: number} | null;
}

/**
 * Puts what is different in its place: writes into the bytes of `base`. INVALID_ARGUMENT, naming the tensor, if the patch does not
 * fit; then nothing is written.
 */
export function applyPatch(base: Safetensors, patch: Safetensors): void {
  for (const {to, from, rows} of changesOf(base, patch)) {
    if (rows === null) to.set(from);
    else rows.numbers.forEach((row, i) => to.set(from.subarray(i * rows.bytes, (i + 1) * rows.bytes), Number(row) * rows.bytes));
  }
}

function changesOf(base: Safetensors, patch: Safetensors): Change[] {
  const changes: Change[] = [];
  const whole = new Set<string>();
  // Tensors of the base, by their names.
  const inRows = new Map<string, {indices: RawTensor | null; values: RawTensor | null}>();
  for (const name of patch.names()) {
    const part = patch.raw(name)!;
    const to = base.raw(name);
    // A name that the base has means that tensor.
    if (to !== null) {
      changes.push({to: to.bytes, from: wholeOf(name, part, to), rows: null});
      whole.add(name);
      continue;
    }
    const suffix = [INDICES, VALUES].find((each) => name.endsWith(each)) ?? "";
    const tensor = name.slice(0, name.length - suffix.length);
    if (!base.has(tensor)) throw unfit(name, "is none of the base's, nor rows of one");
    const parts = inRows.get(tensor) ?? {indices: null, values: null};
    parts[suffix === INDICES ? "indices" : "values"] = part;
    inRows.set(tensor, parts);
  }
  for (const [name, {indices, values}] of inRows) {
    if (whole.has(name)) throw unfit(name, "is there whole and in rows");
    if (indices === null) throw unfit(name, "has rows, and no numbers of rows");
    if (values === null) throw unfit(name, "has numbers of rows, and no rows");
    const to = base.raw(name)!;
    changes.push({to: to.bytes, from: values.bytes, rows: rowsOf(name, indices, values, to)});
  }
  return changes;
}

function wholeOf(name: string, part: RawTensor, to: RawTensor): Uint8Array {
  if (part.dtypeName !== to.dtypeName || part.shape.join() !== to.shape.join() || part.bytes.length !== to.bytes.length) {
    throw unfit(name, `is ${described(part)}, and the base's is ${described(to)}`);
  }
  return part.bytes;
}

function rowsOf(name: string, indices: RawTensor, values: RawTensor, to: RawTensor): Change["rows"] {
  if (indices.dtypeName !== "I64" || indices.shape.length !== 1) {
    throw unfit(name + INDICES, `is ${described(indices)}, and numbers of rows are I64 [n]`);
  }
  // A scalar has one row.
  const [numRows = 1, ...rowShape] = to.shape;
  const numValues = indices.shape[0]!;
  const shape = [numValues, ...rowShape];
  // Of a type that is not known here nobody has checked that shape and bytes fit.
  const bytes = to.dtype !== undefined ? product(rowShape) * to.dtype.bytes : numRows > 0 ? to.bytes.length / numRows : 0;
  const fits = values.dtypeName === to.dtypeName && values.shape.join() === shape.join() && Number.isInteger(bytes)
    && values.bytes.length === numValues * bytes;
  if (!fits) {
    throw unfit(name + VALUES, `is ${described(values)}, and ${numValues} rows of the base's are ${described({...to, shape})}`);
  }
  const numbers = Tensor.fromBytes(dtypeNamed("int64"), indices.shape, indices.bytes).data as BigInt64Array;
  let before = -1n;
  for (const row of numbers) {
    if (row < 0n || row >= BigInt(numRows)) throw unfit(name, `has ${numRows} rows, and row ${row} is not among them`);
    if (row <= before) throw unfit(name, `has its row ${row} after row ${before}`);
    before = row;
  }
  return {numbers, bytes};
}

function described({dtypeName, shape}: RawTensor): string {
  return `${dtypeName.slice(0, 16)} [${shape.join(", ")}]`;
}

function unfit(tensor: string, why: string): SheafError {
  return invalidArgument(`tensor "${tensor.slice(0, 128)}" of the patch ${why}`);
}

/**
 * A patch of `before`, whose digest is `base`, that stands for `after`. Of each tensor it has the rows that differ, or all of it if
 * that is not more. Empty bytes if nothing differs; null if no patch can say it: what is not values alone differs, or a tensor
 * of a type that has no array here.
 */
export function encodePatch(before: Safetensors, after: Safetensors, base: string): Uint8Array | null {
  if (!sameBytes(before.header, after.header) || patchBase(after) !== undefined) return null;
  const parts = Object.create(null) as Record<string, Tensor>;
  for (const name of after.names()) {
    const [old, now] = [before.raw(name)!, after.raw(name)!];
    const rowBytes = rowBytesOf(now, after.has(name + INDICES) || after.has(name + VALUES));
    const rows = differingRows(old.bytes, now.bytes, rowBytes);
    if (rows.length === 0) continue;
    if (now.dtype === undefined) return null;
    if (rows.length * (BigInt64Array.BYTES_PER_ELEMENT + rowBytes) + HEADER_BYTES_OF_ROWS > now.bytes.length) {
      parts[name] = Tensor.fromBytes(now.dtype, now.shape, now.bytes);
      continue;
    }
    const values = new Uint8Array(rows.length * rowBytes);
    rows.forEach((row, i) => values.set(now.bytes.subarray(row * rowBytes, (row + 1) * rowBytes), i * rowBytes));
    parts[name + INDICES] = new Tensor(BigInt64Array.from(rows, BigInt));
    parts[name + VALUES] = Tensor.fromBytes(now.dtype, [rows.length, ...now.shape.slice(1)], values);
  }
  return Object.keys(parts).length === 0 ? new Uint8Array() : encodeSafetensors(parts, {[BASE]: base});
}

/** All of its bytes if it travels only as a whole: servers know rows of values that are released, and no others. */
function rowBytesOf({dtype, shape, bytes}: RawTensor, namesAreTaken: boolean): number {
  const isWhole = namesAreTaken || shape.length === 0 || dtype === undefined || dtype.proto === null;
  return isWhole ? bytes.length : product(shape.slice(1)) * dtype.bytes;
}

/** Ascending. It stops when sending all of the tensor takes no more than the rows that it has found. */
function differingRows(a: Uint8Array, b: Uint8Array, rowBytes: number): number[] {
  const rows: number[] = [];
  if (a.length === 0) return rows;
  const width = Uint32Array.BYTES_PER_ELEMENT;
  const areWords = [a.byteOffset, b.byteOffset, rowBytes].every((each) => each % width === 0);
  const words = (bytes: Uint8Array) => new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / width);
  const [left, right, step] = areWords ? [words(a), words(b), rowBytes / width] : [a, b, rowBytes];
  const most = a.length / (BigInt64Array.BYTES_PER_ELEMENT + rowBytes);
  for (let begin = 0, row = 0; begin < left.length && rows.length <= most; begin += step, ++row) {
    const end = begin + step;
    let at = begin;
    while (at < end && left[at] === right[at]) ++at;
    if (at < end) rows.push(row);
  }
  return rows;
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && differingRows(a, b, a.length).length === 0;
}
