// Files of tensors: broadcasts and aggregates are safetensors.
//
// 8 bytes of little-endian header length, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {..}}, then the raw
// little-endian bytes. No code, checked as a whole, read in place.
// Format: https://github.com/huggingface/safetensors#format
//
//   const file = encodeSafetensors({w: new Tensor(new Float32Array(12), [3, 4])});
//   new Safetensors(file).get("w");                          // A Tensor over the file's bytes: no copy.
import {invalidArgument, type SheafError} from "../errors.js";
import {type DType, dtypeOfSafetensors} from "./dtypes.js";
import {product, Tensor} from "./tensor.js";

const PREFIX_BYTES = 8;
// The format's own limits.
const HEADER_BYTES_MAX = 100_000_000;
const RANK_MAX = 32;
const METADATA = "__metadata__";

/** A tensor as the header has it, of a type that may have no array here: then (BF16, for example) `dtype` is undefined. */
export interface RawTensor {
  readonly dtype: DType | undefined;
  readonly dtypeName: string;
  readonly shape: readonly number[];
  /** A view of the file. */
  readonly bytes: Uint8Array;
}

/** Where a tensor lies. */
interface Place {
  dtype: DType | undefined;
  dtypeName: string;
  shape: number[];
  begin: number;
  end: number;
}

/**
 * The tensors of a safetensors file, by name, as views of its bytes. The file is untrusted: INVALID_ARGUMENT, naming `what`, if
 * it is malformed.
 */
export class Safetensors {
  readonly metadata: Readonly<Record<string, string>>;
  /** What comes before the tensors: files in which it is the same differ in their values alone. */
  readonly header: Uint8Array;
  private readonly data: Uint8Array;
  private readonly what: string;
  private readonly places = new Map<string, Place>();

  constructor(data: Uint8Array, what = "the file") {
    this.data = data;
    this.what = what;
    const size = data.length;
    if (size < PREFIX_BYTES) throw this.malformed("it ends before its header does");
    const headerBytes = new DataView(data.buffer, data.byteOffset).getBigUint64(0, true);
    if (headerBytes > BigInt(size - PREFIX_BYTES)) throw this.malformed("it ends before its header does");
    if (headerBytes > BigInt(HEADER_BYTES_MAX)) {
      throw this.malformed(`its header has ${headerBytes} bytes, and ${HEADER_BYTES_MAX} are the most`);
    }
    const begin = PREFIX_BYTES + Number(headerBytes);
    this.header = data.subarray(0, begin);
    let metadata: Record<string, string> = {};
    for (const [name, entry] of Object.entries(this.parsed(data.subarray(PREFIX_BYTES, begin)))) {
      if (name === METADATA) metadata = this.checkedMetadata(entry);
      else this.places.set(name, this.place(name, entry, begin, size));
    }
    this.metadata = metadata;
    // The format wants every byte to belong to exactly one tensor.
    let end = begin;
    for (const [name, place] of [...this.places].sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end)) {
      if (place.begin !== end) throw this.malformed(`tensor "${name.slice(0, 128)}" leaves a gap before it or overlaps another`);
      end = place.end;
    }
    if (end !== size) throw this.malformed("there are bytes behind the last tensor");
  }

  /** Null if it is malformed: a broadcast may be any bytes. */
  static orNull(data: Uint8Array): Safetensors | null {
    try {
      return new Safetensors(data);
    } catch {
      return null;
    }
  }

  /** INVALID_ARGUMENT if there is none of this name, or it is of a type that has no array here. */
  get(name: string): Tensor {
    const place = this.places.get(name);
    if (place === undefined) {
      throw invalidArgument(`${this.what} has no tensor "${name}"; it has ${[...this.places.keys()].join(", ") || "none"}`);
    }
    if (place.dtype === undefined) {
      throw invalidArgument(`tensor "${name}" of ${this.what} is of type ${place.dtypeName}, which JavaScript does not have`);
    }
    return Tensor.fromBytes(place.dtype, place.shape, this.data.subarray(place.begin, place.end));
  }

  has(name: string): boolean {
    return this.places.has(name);
  }

  /** Null if there is none of this name. */
  raw(name: string): RawTensor | null {
    const place = this.places.get(name);
    if (place === undefined) return null;
    const {dtype, dtypeName, shape, begin, end} = place;
    return {dtype, dtypeName, shape, bytes: this.data.subarray(begin, end)};
  }

  /** In the order of the header. */
  names(): string[] {
    return [...this.places.keys()];
  }

  private malformed(what: string): SheafError {
    return invalidArgument(`${this.what} is not a safetensors file: ${what}`);
  }

  private parsed(text: Uint8Array): Record<string, unknown> {
    let header: unknown = null;
    try {
      header = JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(text));
    } catch {
      // Said below.
    }
    if (typeof header !== "object" || header === null || Array.isArray(header)) {
      throw this.malformed("its header is not a JSON object");
    }
    return header as Record<string, unknown>;
  }

  private checkedMetadata(entry: unknown): Record<string, string> {
    const isStrings = typeof entry === "object" && entry !== null && !Array.isArray(entry)
      && Object.values(entry).every((value) => typeof value === "string");
    if (!isStrings) throw this.malformed("__metadata__ is not an object of strings");
    return entry as Record<string, string>;
  }

  private place(name: string, entry: unknown, dataBegin: number, size: number): Place {
    const {dtype: dtypeName, shape, data_offsets: offsets} = (entry ?? {}) as Record<string, unknown>;
    const tensor = `tensor "${name.slice(0, 128)}"`;
    if (typeof dtypeName !== "string") throw this.malformed(`${tensor} has no dtype`);
    if (!isSizes(shape) || shape.length > RANK_MAX) throw this.malformed(`${tensor} has no shape, or a malformed one`);
    if (!isSizes(offsets) || offsets.length !== 2) {
      throw this.malformed(`${tensor} has no data_offsets, or malformed ones`);
    }
    const [begin, end] = [dataBegin + offsets[0]!, dataBegin + offsets[1]!];
    if (begin > end || end > size) throw this.malformed(`${tensor} lies outside the file`);
    const dtype = dtypeOfSafetensors(dtypeName);
    if (dtype !== undefined && product(shape) * dtype.bytes !== end - begin) {
      throw this.malformed(`${tensor} has data_offsets that do not fit its shape and dtype`);
    }
    return {dtype, dtypeName, shape, begin, end};
  }
}

// Beyond 2^53 no tensor fits a file that can be here.
function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && size >= 0);
}

function byCodePoints(a: string, b: string): number {
  const [left, right] = [[...a], [...b]];
  for (let i = 0; i < Math.min(left.length, right.length); ++i) {
    const difference = left[i]!.codePointAt(0)! - right[i]!.codePointAt(0)!;
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

/** The same tensors give the same bytes as in Python. */
export function encodeSafetensors(tensors: Readonly<Record<string, Tensor>>, metadata: Readonly<Record<string, string>> = {}):
    Uint8Array {
  // As text: JSON.stringify would put names that are numbers first.
  const members: string[] = [];
  if (Object.keys(metadata).length > 0) members.push(`${JSON.stringify(METADATA)}:${JSON.stringify(metadata)}`);
  let offset = 0;
  // Wide types first, so that all are aligned.
  const entries = Object.entries(tensors).sort(
    ([a, x], [b, y]) => y.dtype.bytes - x.dtype.bytes || byCodePoints(a, b));
  for (const [name, tensor] of entries) {
    const place = {
      dtype: tensor.dtype.safetensors, shape: tensor.shape, data_offsets: [offset, offset + tensor.data.byteLength],
    };
    members.push(`${JSON.stringify(name)}:${JSON.stringify(place)}`);
    offset += tensor.data.byteLength;
  }
  const text = new TextEncoder().encode(`{${members.join(",")}}`);
  const headerBytes = Math.ceil(text.length / 8) * 8;
  const file = new Uint8Array(PREFIX_BYTES + headerBytes + offset);
  new DataView(file.buffer).setBigUint64(0, BigInt(headerBytes), true);
  file.fill(0x20, PREFIX_BYTES, PREFIX_BYTES + headerBytes);
  file.set(text, PREFIX_BYTES);
  let at = PREFIX_BYTES + headerBytes;
  for (const [, tensor] of entries) {
    file.set(tensor.bytes(), at);
    at += tensor.data.byteLength;
  }
  return file;
}
