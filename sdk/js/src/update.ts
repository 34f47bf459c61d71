// What a computation returns.
import type {Keyed} from "./values/keyed.js";
import type {Sparse} from "./values/sparse.js";
import type {TensorLike} from "./values/tensor.js";

/** The value of one output: dense, sparse, or a table. */
export type Value = TensorLike | Sparse | Keyed | ReadonlyMap<unknown, unknown> | Readonly<Record<string, unknown>>;
export type Values = Readonly<Record<string, Value>>;

/**
 * The values of one client, by the names of the round's outputs.
 *
 *     return new Update({age: mean(ages)}, {weight: ages.length, loss: 0.31});
 *
 * weight: for the weighted operators; above 0, rounded to float32. What else is named is a metric: a number for people to look
 * at; the round shows its mean over all clients, never that of one. RangeError if a number is not finite.
 */
export class Update {
  readonly values: Values;
  readonly weight: number;
  readonly metrics: Readonly<Record<string, number>>;

  constructor(values: Values, numbers: {weight?: number; [metric: string]: number | undefined} = {}) {
    const {weight = 1, ...metrics} = numbers;
    this.values = values;
    this.weight = Math.fround(weight);
    if (!(this.weight > 0 && Number.isFinite(this.weight))) {
      throw new RangeError(`a weight is a finite number above 0, and not ${weight}; a client without data has nothing to ` +
        "return: throw a sheaf.Declined");
    }
    for (const [name, value] of Object.entries(metrics)) {
      if (!Number.isFinite(value)) throw new RangeError(`the metric "${name}" is ${value}; metrics are finite`);
    }
    this.metrics = metrics as Record<string, number>;
  }
}
