// The types that values can have: JavaScript's typed arrays, in the words of numpy, of safetensors and of the protocol.
import {DType as ProtoDType} from "../../gen/sheaf/v1/tensor_pb.js";
import {invalidArgument} from "../errors.js";

// Raw bytes on the wire are little-endian, and typed arrays are views of them.
if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1) throw new Error("sheaf needs a little-endian machine");

export type TypedArray =
  | Float32Array | Float64Array | Int32Array | BigInt64Array | BigUint64Array | Int16Array | Int8Array | Uint32Array
  | Uint16Array | Uint8Array;

interface ArrayType {
  new (length: number): TypedArray;
  new (buffer: ArrayBufferLike, offset: number, length: number): TypedArray;
  readonly name: string;
}

export interface DType {
  readonly name: DTypeName;
  readonly safetensors: string;
  /** Of values that are contributed and released; null for the others that a file may hold. */
  readonly proto: ProtoDType | null;
  readonly bytes: number;
  readonly kind: "float" | "int" | "uint";
  readonly array: ArrayType;
}

export type OutputDTypeName = "float32" | "float64" | "int32" | "int64" | "uint64";
export type DTypeName = OutputDTypeName | "int16" | "int8" | "uint32" | "uint16" | "uint8" | "bool";

const ROWS: readonly DType[] = [
  {name: "float32", safetensors: "F32", proto: ProtoDType.FLOAT32, bytes: 4, kind: "float", array: Float32Array},
  {name: "float64", safetensors: "F64", proto: ProtoDType.FLOAT64, bytes: 8, kind: "float", array: Float64Array},
  {name: "int32", safetensors: "I32", proto: ProtoDType.INT32, bytes: 4, kind: "int", array: Int32Array},
  {name: "int64", safetensors: "I64", proto: ProtoDType.INT64, bytes: 8, kind: "int", array: BigInt64Array as ArrayType},
  {name: "uint64", safetensors: "U64", proto: ProtoDType.UINT64, bytes: 8, kind: "uint", array: BigUint64Array as ArrayType},
  {name: "int16", safetensors: "I16", proto: null, bytes: 2, kind: "int", array: Int16Array},
  {name: "int8", safetensors: "I8", proto: null, bytes: 1, kind: "int", array: Int8Array},
  {name: "uint32", safetensors: "U32", proto: null, bytes: 4, kind: "uint", array: Uint32Array},
  {name: "uint16", safetensors: "U16", proto: null, bytes: 2, kind: "uint", array: Uint16Array},
  {name: "uint8", safetensors: "U8", proto: null, bytes: 1, kind: "uint", array: Uint8Array},
  {name: "bool", safetensors: "BOOL", proto: null, bytes: 1, kind: "uint", array: Uint8Array},
];

const BY_NAME = new Map<string, DType>(ROWS.map((row) => [row.name, row]));
const BY_SAFETENSORS = new Map(ROWS.map((row) => [row.safetensors, row]));
const BY_PROTO = new Map(ROWS.filter(({proto}) => proto !== null).map((row) => [row.proto, row]));
// A Uint8Array is numbers, and not truths.
const BY_ARRAY = new Map(ROWS.filter(({name}) => name !== "bool").map((row) => [row.array.name, row]));

export function dtypeNamed(name: DTypeName): DType {
  return BY_NAME.get(name)!;
}

/** Undefined for a type that has no array here, such as BF16. */
export function dtypeOfSafetensors(name: string): DType | undefined {
  return BY_SAFETENSORS.get(name);
}

/** Null for one that is not known here. */
export function dtypeOf(proto: ProtoDType): DType | null {
  return BY_PROTO.get(proto) ?? null;
}

export function isTypedArray(value: unknown): value is TypedArray {
  return ArrayBuffer.isView(value) && BY_ARRAY.has(value.constructor.name);
}

export function dtypeOfArray(array: TypedArray): DType {
  return BY_ARRAY.get(array.constructor.name)!;
}

/** The dtype of an output. INVALID_ARGUMENT if outputs cannot have it. */
export function outputDType(name: string): DType {
  const dtype = BY_NAME.get(name);
  if (dtype === undefined || dtype.proto === null) {
    throw invalidArgument(`an output cannot be of dtype ${name}; use one of ${[...BY_PROTO.values()].map((row) => row.name).join(", ")}`);
  }
  return dtype;
}
