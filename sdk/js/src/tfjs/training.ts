// The program's side: the model, and how it takes over what rounds release.
import * as tf from "@tensorflow/tfjs";

import {
  type ChangingOptions, type LoopOptions, type Output, type Result, type Server, SheafError, Sparse, type SparseOptions, Tensor,
  type Shape, weighted_coordinate_mean, weighted_mean,
} from "../index.js";
import {isEmbedding, type Weight, weightsOf} from "./weights.js";

export interface TrainingOptions {
  /** How far the model moves by what a round releases. 1 is federated averaging. */
  rate?: number;
  /** The operator of the rows of embeddings; the default divides each row by the weight of the clients that touched it. */
  tables?: (shape: Shape, options: SparseOptions) => Output;
  /** That of all other weights. */
  whole?: (shape: Shape, options: {dtype: "float32"}) => Output;
}

/**
 * A model that rounds train: what they broadcast, what they return, and how it moves the model, in place.
 *
 *     const training = new Training(makeModel());
 *     for await (const result of training.rounds(server, "tags", {tasks: 50}, {rounds: 20})) console.log(result.metrics.loss);
 */
export class Training {
  readonly model: tf.LayersModel;
  readonly outputs: Readonly<Record<string, Output>>;
  private readonly weights: readonly Weight[];
  private readonly rate: number;

  constructor(model: tf.LayersModel, options: TrainingOptions = {}) {
    const {rate = 1, tables = weighted_coordinate_mean, whole = weighted_mean} = options;
    this.model = model;
    this.rate = rate;
    this.weights = weightsOf(model);
    this.outputs = Object.fromEntries(this.weights.filter(({isReturned}) => isReturned).map(({name, layer, variable}) => [
      name, isEmbedding(layer) ? tables(variable.shape, {dtype: "float32", indexDims: 1})
                               : whole(variable.shape, {dtype: "float32"}),
    ]));
  }

  /** All weights, by names that are the same in every process; also what a file of them has. */
  broadcast(): Record<string, Tensor> {
    return Object.fromEntries(this.weights.map(({name, variable}) => [
      name, new Tensor(variable.read().dataSync() as Float32Array, variable.shape)]));
  }

  /** Moves the model by what a round released. */
  apply(result: Result): void {
    for (const {name, variable, isReturned} of this.weights) {
      if (!isReturned) continue;
      const released = result.get(name);
      const values = (variable.read().dataSync() as Float32Array).slice();
      if (released instanceof Sparse) {
        const width = released.values.data.length / Math.max(released.length, 1);
        released.rows.forEach((row, i) => {
          for (let j = 0; j < width; ++j) values[row * width + j]! += this.rate * Number(released.values.data[i * width + j]);
        });
      } else if (released instanceof Tensor) {
        released.data.forEach((delta: number | bigint, i: number) => (values[i]! += this.rate * Number(delta)));
      } else {
        throw new SheafError("INVALID_ARGUMENT", `"${name}" was released as a table of keys`);
      }
      tf.tidy(() => void variable.write(tf.tensor(values, variable.shape)));
    }
  }

  /** Rounds one after the other, as of `Server.loop`; each is applied before its result comes. */
  rounds(
    server: Server, computation: string, options: Omit<ChangingOptions, "outputs" | "broadcast">,
    how: Omit<LoopOptions, "apply"> = {},
  ): AsyncGenerator<Result, void> {
    return server.loop(computation, {...options, outputs: this.outputs, broadcast: () => this.broadcast()},
                       {...how, apply: (result) => this.apply(result)});
  }
}
