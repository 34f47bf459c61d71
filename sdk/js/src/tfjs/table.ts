// Table: the weight of one embedding of a worker's model: the rows that were looked up so far, and no others.
//
//   const table = new Table(layer, optimizerOf, fetch);
//   await table.hold(ids);                      // Before a step that looks these up.
//   const sparse = table.changes();
//
// The layer computes with a compact weight, in which each row has a place; ids become places where the layer looks them up, so
// that all else (masks, other users of the same input) sees the ids. The weight grows when rows come, and so does what
// optimisers remember of it. Rows that were not looked up neither decay nor move. Memory: O(rows looked up).
import * as tf from "@tensorflow/tfjs";

import {SheafError, Sparse, Tensor} from "../index.js";
import type {EmbeddingLayer} from "./weights.js";

/** Rows of the whole table, in this order. */
export type Fetch = (rows: readonly number[]) => Promise<Float32Array>;

export class Table {
  readonly layer: EmbeddingLayer;
  private readonly optimizer: () => tf.Optimizer | undefined;
  private readonly fetch: Fetch;
  private readonly onLookUp: () => void;
  // Where each row is.
  private readonly places = new Map<number, number>();
  private capacity = 0;
  // As they came, by place.
  private fetched = new Float32Array(0);

  constructor(
    layer: EmbeddingLayer, optimizer: () => tf.Optimizer | undefined, fetch: Fetch, onLookUp: () => void = () => {},
  ) {
    this.onLookUp = onLookUp;
    this.layer = layer;
    this.optimizer = optimizer;
    this.fetch = fetch;
    layer.call = (inputs, kwargs) => this.lookUp(inputs, kwargs);
  }

  get shape(): [number, number] {
    return [this.layer.inputDim, this.layer.outputDim];
  }

  /** Fetches those of the rows that are not here. RangeError if there is no such row. */
  async hold(ids: Iterable<number>): Promise<void> {
    const missing = [...new Set(ids)].filter((row) => !this.places.has(row)).sort((a, b) => a - b);
    if (missing.length === 0) return;
    for (const row of [missing[0]!, missing.at(-1)!]) {
      if (!Number.isInteger(row) || row < 0 || row >= this.layer.inputDim) {
        throw new RangeError(`${row} was looked up in an embedding of ${this.layer.inputDim} rows`);
      }
    }
    const values = await this.fetch(missing);
    const begin = this.places.size;
    if (begin + missing.length > this.capacity) this.grow(Math.max(begin + missing.length, begin === 0 ? 0 : 2 * this.capacity));
    missing.forEach((row, i) => this.places.set(row, begin + i));
    const width = this.layer.outputDim;
    this.fetched.set(values, begin * width);
    const now = this.layer.embeddings.val.dataSync().slice();
    now.set(values, begin * width);
    tf.tidy(() => this.layer.embeddings.val.assign(tf.tensor2d(now as Float32Array, [this.capacity, width])));
  }

  /** The rows that differ from what was fetched, and by how much. */
  changes(): Sparse {
    const width = this.layer.outputDim;
    const now = this.layer.embeddings.val.dataSync();
    const rows: number[] = [];
    const deltas: number[] = [];
    for (const [row, place] of [...this.places].sort(([a], [b]) => a - b)) {
      const begin = place * width;
      const delta = Array.from({length: width}, (_, i) => Math.fround(now[begin + i]! - this.fetched[begin + i]!));
      if (delta.every((each) => each === 0)) continue;
      rows.push(row);
      deltas.push(...delta);
    }
    return new Sparse(Int32Array.from(rows), new Tensor(Float32Array.from(deltas), [rows.length, width]), this.shape);
  }

  private lookUp(inputs: tf.Tensor | tf.Tensor[], kwargs: unknown): tf.Tensor {
    return tf.tidy(() => {
      (this.layer as any).invokeCallHook(inputs, kwargs);
      const input = Array.isArray(inputs) ? inputs[0]! : inputs;
      const ids = input.dataSync();
      const places = new Int32Array(ids.length);
      for (let i = 0; i < ids.length; ++i) {
        const place = this.places.get(Math.trunc(ids[i]!));
        if (place === undefined) {
          throw new SheafError("FAILED_PRECONDITION", `row ${ids[i]} of the embedding has not been fetched: \`fit\`, ` +
            "`fitDataset` and `trainOnBatch` of the model fetch what they look up; before others, await prepare(model, inputs)");
        }
        places[i] = place;
      }
      this.onLookUp();
      return tf.reshape(gather(this.layer.embeddings.read() as tf.Tensor2D, places),
                        this.layer.computeOutputShape(input.shape) as number[]);
    });
  }

  private grow(capacity: number): void {
    const {layer} = this;
    const width = layer.outputDim;
    const fetched = new Float32Array(capacity * width);
    fetched.set(this.fetched);
    this.fetched = fetched;
    const old = layer.embeddings.val;
    const state = stateOf(this.optimizer(), old.name, [this.capacity, width]);
    const {name, trainable} = old;
    const values = this.capacity === 0 ? new Float32Array(0) : (old.dataSync() as Float32Array).slice();
    // A name is one variable's at a time.
    old.dispose();
    layer.embeddings.val = longer(values, capacity, width, 0, trainable, name);
    layer.embeddings.shape = [capacity, width];
    for (const entry of state) {
      const begin = (this.optimizer() as {initialAccumulatorValue?: number}).initialAccumulatorValue ?? 0;
      const before = (entry.variable.dataSync() as Float32Array).slice();
      entry.variable.dispose();
      entry.variable = longer(before, capacity, width, begin, false);
    }
    this.capacity = capacity;
  }
}

/**
 * Rows of a tensor. The gradient of TensorFlow.js's own takes time in proportion to the rows of the table times those that were
 * looked up; this one to the latter. It has the same bits: sums in double precision, rounded once.
 */
const gather = (table: tf.Tensor2D, places: Int32Array): tf.Tensor => tf.customGrad((of) => {
  const [rows, width] = (of as tf.Tensor2D).shape;
  return {
    value: tf.gather(of as tf.Tensor2D, tf.tensor1d(places, "int32")),
    gradFunc: (gradient: tf.Tensor) => {
      const values = gradient.dataSync();
      const sums = new Float64Array(rows * width);
      for (let i = 0; i < places.length; ++i) {
        const begin = places[i]! * width;
        for (let j = 0; j < width; ++j) sums[begin + j]! += values[i * width + j]!;
      }
      return tf.tensor2d(Float32Array.from(sums), [rows, width]);
    },
  };
})(table);

/** What an optimiser remembers of the weight of this name, element by element. */
function stateOf(optimizer: tf.Optimizer | undefined, name: string, shape: number[]): {variable: tf.Variable}[] {
  const found: {variable: tf.Variable}[] = [];
  for (const value of Object.values(optimizer ?? {})) {
    if (!Array.isArray(value)) continue;
    for (const entry of value as {originalName?: string; variable?: tf.Variable}[]) {
      const isOurs = entry?.originalName?.startsWith(`${name}/`) && entry.variable?.shape.join() === shape.join();
      if (isOurs) found.push(entry as {variable: tf.Variable});
    }
  }
  return found;
}

function longer(values: Float32Array, capacity: number, width: number, begin: number, trainable: boolean, name?: string):
    tf.Variable {
  return tf.tidy(() => {
    const data = new Float32Array(capacity * width).fill(begin);
    data.set(values);
    return tf.variable(tf.tensor2d(data, [capacity, width]), trainable, name);
  });
}
