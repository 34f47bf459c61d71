// Tables: a value, or a row of values, at each key of an open set of keys.
//
//   const words = new Keyed(new Map([["libc6", 3], ["zlib1g", 1]]));
//   words.get("libc6");                                               // 3
import {invalidArgument} from "../errors.js";
import {Tensor, type TensorLike, toTensor} from "./tensor.js";
import {bytesOf, textOf} from "./text.js";
import type {TypedArray} from "./dtypes.js";

export type Key = string | bigint;
const KEY_BYTES_MAX = 1024;

/**
 * A table from keys, all text or all integers, to values.
 *
 * keys: text (at most 1024 bytes in UTF-8), bytes, or integers of 64 bits; or a Map from keys to values, or an object. values:
 * one for each key, or one row. A key may occur more than once in what is contributed: its values are added. INVALID_ARGUMENT
 * if keys and values do not fit.
 */
export class Keyed {
  /** In their order. */
  readonly keys: readonly Key[];
  /** Shape [n, ...]. */
  readonly values: Tensor;
  private positions: Map<Key, number> | null = null;

  constructor(
    keys: ReadonlyMap<unknown, unknown> | Readonly<Record<string, unknown>> | readonly unknown[], values?: TensorLike,
  ) {
    const hasValues = Array.isArray(keys) || ArrayBuffer.isView(keys);
    if (hasValues !== (values !== undefined)) {
      throw invalidArgument(hasValues ? "a Keyed needs values, one for each key"
                                      : "the values of a Keyed are in the mapping already");
    }
    const entries = hasValues ? null : keys instanceof Map ? [...keys] : Object.entries(keys);
    const listed: readonly unknown[] = entries === null ? Array.from(keys as readonly unknown[]) : entries.map(([key]) => key);
    this.values = toTensor(values ?? entries!.map(([, value]) => value), "what a Keyed has for values");
    if (this.values.shape.length === 0 || this.values.shape[0] !== listed.length) {
      throw invalidArgument(`${listed.length} keys and values of shape [${this.values.shape.join(", ")}] do not fit: there is ` +
        "one value, or one row of values, for each key");
    }
    this.keys = listed.map(checkedKey);
    if (new Set(this.keys.map((key) => typeof key)).size > 1) {
      throw invalidArgument("the keys of a Keyed are all text, or all integers");
    }
  }

  /** True for text, false for integers, null if there are no keys. */
  get hasTextKeys(): boolean | null {
    return this.keys.length === 0 ? null : typeof this.keys[0] === "string";
  }

  get size(): number {
    return this.keys.length;
  }

  has(key: string | number | bigint | Uint8Array): boolean {
    return this.position(key) !== undefined;
  }

  /** The value at a key, or its row of values; undefined if it is not there. */
  get(key: string | number | bigint | Uint8Array): number | bigint | TypedArray | undefined {
    const at = this.position(key);
    return at === undefined ? undefined : this.at(at);
  }

  *[Symbol.iterator](): IterableIterator<[Key, number | bigint | TypedArray]> {
    for (let i = 0; i < this.keys.length; ++i) yield [this.keys[i]!, this.at(i)];
  }

  private at(i: number): number | bigint | TypedArray {
    return this.values.shape.length === 1 ? this.values.data[i]! : this.values.row(i);
  }

  private position(key: unknown): number | undefined {
    this.positions ??= new Map(this.keys.map((each, i) => [each, i]));
    return this.positions.get(checkedKey(key));
  }

  toString(): string {
    return `<sheaf.Keyed ${this.values.dtype.name} of ${this.size} keys>`;
  }
}

function checkedKey(key: unknown): Key {
  if (typeof key === "number" && Number.isSafeInteger(key)) return BigInt(key);
  if (typeof key === "bigint") {
    if (BigInt.asIntN(64, key) !== key) throw invalidArgument("an integer key has 64 bits at the most");
    return key;
  }
  const text = key instanceof Uint8Array ? textOf(key) : key;
  if (typeof text !== "string") throw invalidArgument("the keys of a Keyed are all text, or all integers");
  if (text.length > KEY_BYTES_MAX / 4 && bytesOf(text).length > KEY_BYTES_MAX) {
    throw invalidArgument(`the key "${text.slice(0, 32)}"... has more than ${KEY_BYTES_MAX} bytes`);
  }
  return text;
}
