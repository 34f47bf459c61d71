// What a round released.
import {dataLoss, SheafError} from "../errors.js";
import {Keyed} from "../values/keyed.js";
import {Safetensors} from "../values/safetensors.js";
import {Sparse} from "../values/sparse.js";
import type {Tensor} from "../values/tensor.js";
import {textOf} from "../values/text.js";
import type {RoundView} from "./round_view.js";

/** What is known of one output. */
export interface Summary {
  /** What each released value was divided by, in words. */
  divisor: string;
  /** Its value where one number serves all, else 0. */
  divisorValue: number;
  /** Coordinates or keys that at least one contribution touched. */
  touched: number;
  /** Those in the result. */
  released: number;
}

/**
 * The values that a round released, by the names of its outputs: a Tensor, a Sparse or a Keyed, as the output's operator
 * releases. A mapping that is only read: `get`, `has`, `keys`, `entries`, and iteration over pairs.
 */
export class Result {
  /** The round, ended. */
  readonly round: RoundView;
  /** The safetensors file. */
  readonly file: Uint8Array;
  private readonly tensors: Safetensors;
  private readonly names: readonly string[];

  constructor(round: RoundView, file: Uint8Array) {
    this.round = round;
    this.file = file;
    this.names = (round.message.spec?.aggregate?.outputs ?? []).map(({name}) => name);
    try {
      this.tensors = new Safetensors(file, `the aggregate of round ${round.id}`);
    } catch (error) {
      throw dataLoss((error as Error).message);
    }
  }

  /** NOT_FOUND if there is no output of this name; DATA_LOSS if it is not as a server writes it. */
  get(name: string): Tensor | Sparse | Keyed {
    if (!this.has(name)) {
      throw new SheafError("NOT_FOUND", `round ${this.round.id} has no output "${name}"; it has ${this.names.join(", ")}`);
    }
    try {
      return this.value(name);
    } catch (error) {
      throw dataLoss(`output "${name}" of round ${this.round.id}: ${(error as Error).message}`);
    }
  }

  has(name: string): boolean {
    return this.names.includes(name);
  }

  get size(): number {
    return this.names.length;
  }

  keys(): IterableIterator<string> {
    return this.names.values();
  }

  *entries(): IterableIterator<[string, Tensor | Sparse | Keyed]> {
    for (const name of this.names) yield [name, this.get(name)];
  }

  [Symbol.iterator](): IterableIterator<[string, Tensor | Sparse | Keyed]> {
    return this.entries();
  }

  /** Clients that it combines. */
  get numClients(): number {
    return Number(this.round.message.aggregate?.numClients ?? 0n);
  }

  /** Contributions that it combines; one may combine several clients. */
  get numContributions(): number {
    return Number(this.round.message.aggregate?.numContributions ?? 0n);
  }

  /** SHA-256 of the file, in lower-case hex. */
  get digest(): string {
    return this.round.message.aggregate?.digest ?? "";
  }

  /** Means over all clients of the metrics that they returned. */
  get metrics(): Readonly<Record<string, number>> {
    return this.round.message.metrics;
  }

  /** Where the round's wall time went, in seconds; together they are all of it. */
  get phases(): Readonly<Record<string, number>> {
    return this.round.phases;
  }

  /** For each output: its divisor, and how much was touched and released. */
  get summaries(): Readonly<Record<string, Summary>> {
    return Object.fromEntries((this.round.message.aggregate?.outputs ?? []).map((output) => [output.name, {
      divisor: output.divisor, divisorValue: output.divisorValue, touched: Number(output.touched),
      released: Number(output.released),
    }]));
  }

  private value(name: string): Tensor | Sparse | Keyed {
    const {tensors} = this;
    if (tensors.has(name)) return tensors.get(name);
    if (tensors.has(`${name}.indices`)) {
      const shape = Array.from(tensors.get(`${name}.dense_shape`).data as ArrayLike<number | bigint>, Number);
      return new Sparse(tensors.get(`${name}.indices`), tensors.get(`${name}.values`), shape);
    }
    const keys = tensors.get(`${name}.keys`);
    const values = tensors.get(`${name}.values`);
    if (!tensors.has(`${name}.key_offsets`)) return new Keyed(Array.from(keys.data as BigInt64Array), values);
    const ends = Array.from(tensors.get(`${name}.key_offsets`).data as ArrayLike<number | bigint>, Number);
    const isWhole = ends[0] === 0 && ends.at(-1) === keys.data.length && ends.every((end, i) => i === 0 || ends[i - 1]! <= end);
    if (!isWhole) throw dataLoss("the text keys do not fit their offsets");
    const joined = keys.bytes();
    return new Keyed(ends.slice(1).map((end, i) => textOf(joined.subarray(ends[i], end))), values);
  }
}

