// A worker's copy of a model: received, trained, and what training has changed.
import * as tf from "@tensorflow/tfjs";

import {type LeasedTask, SheafError, Tensor, Update, type Values} from "../index.js";
import {Table} from "./table.js";
import {type EmbeddingLayer, isEmbedding, type LayerVariable, weightsOf} from "./weights.js";

/** What came with the task, by name: tables, and whole tensors that are returned. */
interface Received {
  tables: Map<string, Table>;
  returned: Map<string, {variable: LayerVariable; before: Float32Array}>;
}

const received = new WeakMap<tf.LayersModel, Received>();

type Inputs = tf.Tensor | tf.Tensor[] | {[name: string]: tf.Tensor};

/**
 * The model that `makeModel` makes, with the weights that the round has sent.
 *
 *     const model = await load(task, makeModel);
 *     const {history} = await model.fit(inputs, labels);
 *     return update(model, {weight: inputs.shape[0], loss: history.loss[0]});
 *
 * makeModel: makes the layers, and compiles them; what it sets the weights of embeddings to takes neither time nor memory. The
 * rows of an embedding are fetched when `fit`, `fitDataset` or `trainOnBatch` is about to look them up; all other weights now.
 * INVALID_ARGUMENT, naming it, if a weight is not of the shape that the round says.
 */
export async function load(task: LeasedTask, makeModel: () => tf.LayersModel): Promise<tf.LayersModel> {
  const model = withoutMemory(makeModel);
  const declared = new Map(task.outputs.map((output) => [output.name, output]));
  const tables = new Map<string, Table>();
  const whole: {name: string; variable: LayerVariable}[] = [];
  for (const {name, layer, variable} of weightsOf(model)) {
    const output = declared.get(name);
    if (!isEmbedding(layer)) {
      whole.push({name, variable});
      if (output !== undefined) checkShape(name, variable.shape, output.shape);
      continue;
    }
    if (output !== undefined) checkShape(name, [layer.inputDim, layer.outputDim], output.shape);
    if (output === undefined || output.operand === "sparse") {
      const fetch = async (rows: readonly number[]) => (await task.rows(name, Int32Array.from(rows))).data as Float32Array;
      // A step is progress.
      tables.set(name, new Table(layer, () => model.optimizer, fetch, () => task.progress()));
    } else {
      makeWhole(layer);
      whole.push({name, variable});
    }
  }
  const counts = whole.map(({name, variable: {shape}}) => [name, range(shape.length === 0 ? 1 : shape[0]!)] as const);
  const sent = whole.length === 0 ? {} : await task.rowsOf(Object.fromEntries(counts));
  const returned: Received["returned"] = new Map();
  for (const {name, variable} of whole) {
    const data = sent[name]!.data as Float32Array;
    tf.tidy(() => void variable.write(tf.tensor(data, variable.shape, variable.dtype as "float32")));
    if (declared.has(name)) returned.set(name, {variable, before: data});
  }
  received.set(model, {
    tables: new Map([...tables].filter(([name]) => declared.has(name))), returned,
  });
  followInputs(model, [...tables.values()]);
  return model;
}

/**
 * What training has changed of a model that `load` returned: for a computation to return. Of embeddings the rows that differ,
 * of all else the differences. `numbers` as of `Update`: a weight, and metrics. The model is disposed of.
 */
export function update(model: tf.LayersModel, numbers: ConstructorParameters<typeof Update>[1] = {}): Update {
  const known = received.get(model);
  if (known === undefined) throw new SheafError("INVALID_ARGUMENT", "update takes the model that load returned, once");
  const values: Record<string, Values[string]> = {};
  for (const [name, table] of known.tables) values[name] = table.changes();
  for (const [name, {variable, before}] of known.returned) {
    const now = variable.read().dataSync() as Float32Array;
    values[name] = new Tensor(now.map((each, i) => each - before[i]!), variable.shape);
  }
  received.delete(model);
  const {optimizer} = model;
  model.dispose();
  // One that was given as an object is its owner's, who made it for this model.
  optimizer?.dispose();
  return new Update(values, numbers);
}

/** Fetches the rows of embeddings that these inputs look up. Before what does not do so itself: `predict`, `evaluate`. */
export async function prepare(model: tf.LayersModel, inputs: Inputs): Promise<void> {
  await preparers.get(model)?.(inputs);
}

const preparers = new WeakMap<tf.LayersModel, (inputs: Inputs) => Promise<void>>();

/** Has the model fetch what it is about to look up. */
function followInputs(model: tf.LayersModel, tables: readonly Table[]): void {
  const lookups = tables.flatMap((table) => idsOf(model, table.layer).map((ids) => ({table, ids})));
  const hold = async (inputs: Inputs): Promise<void> => {
    const tensors = Array.isArray(inputs) ? inputs : inputs instanceof tf.Tensor ? [inputs]
      : model.inputNames.map((name) => (inputs as Record<string, tf.Tensor>)[name]!);
    for (const {table, ids} of lookups) await table.hold(ids(tensors));
  };
  preparers.set(model, hold);
  const {fit, trainOnBatch, fitDataset} = model;
  model.fit = async (x, y, options) => {
    await hold(x as Inputs);
    if (options?.validationData !== undefined) await hold(options.validationData[0] as Inputs);
    return fit.call(model, x, y, options);
  };
  model.trainOnBatch = async (x, y) => {
    await hold(x as Inputs);
    return trainOnBatch.call(model, x, y);
  };
  // What a Dataset is in the types of one part of TensorFlow.js is not what it is in those of another.
  model.fitDataset = async (dataset: any, options: any) => fitDataset.call(model, dataset.mapAsync(async (value: any) => {
    await hold(value.xs ?? value[0]);
    return value;
  }), options);
}

/** What an embedding looks up for the model's inputs, for each place where it is used: an input itself, or made of inputs. */
function idsOf(model: tf.LayersModel, layer: EmbeddingLayer): ((inputs: readonly tf.Tensor[]) => Iterable<number>)[] {
  const nodes = (layer as unknown as {inboundNodes: {inputTensors: tf.SymbolicTensor[]}[]}).inboundNodes;
  return nodes.flatMap(({inputTensors}) => {
    const symbol = inputTensors[0]!;
    const at = model.inputs.indexOf(symbol);
    if (at >= 0) return [(inputs: readonly tf.Tensor[]) => integers(inputs[at]!.dataSync())];
    let before: tf.LayersModel;
    try {
      before = tf.model({inputs: model.inputs, outputs: symbol});
    } catch {
      // It is used in another model, too.
      return [];
    }
    return [(inputs: readonly tf.Tensor[]) => {
      const made = before.predict([...inputs]) as tf.Tensor;
      const ids = integers(made.dataSync());
      made.dispose();
      return ids;
    }];
  });
}

function integers(values: ArrayLike<number>): Set<number> {
  return new Set(Array.from(values, Math.trunc));
}

function range(size: number): Int32Array {
  return Int32Array.from({length: size}, (_, i) => i);
}

function checkShape(name: string, here: readonly number[], there: readonly number[]): void {
  if (here.join() === there.join()) return;
  throw new SheafError("INVALID_ARGUMENT", `"${name}" has shape [${here.join(", ")}] in the model of this worker, and ` +
    `[${there.join(", ")}] in the round: program and worker need the same model`);
}

/** Embeddings that are made inside have weights of one row, however many rows they have. */
function withoutMemory<T>(make: () => T): T {
  const prototype = Object.getPrototypeOf(tf.layers.embedding({inputDim: 1, outputDim: 1})) as {
    build: (this: EmbeddingLayer, shape: unknown) => void;
  };
  const {build} = prototype;
  prototype.build = function (this: EmbeddingLayer) {
    buildWith(this, 1);
  };
  try {
    return make();
  } finally {
    prototype.build = build;
  }
}

function buildWith(layer: EmbeddingLayer, rows: number): void {
  layer.embeddings = (layer as any).addWeight(
    "embeddings", [rows, layer.outputDim], "float32", tf.initializers.zeros(), layer.embeddingsRegularizer, true,
    layer.embeddingsConstraint);
  layer.built = true;
}

/** An embedding whose round wants all of it. */
function makeWhole(layer: EmbeddingLayer): void {
  const old = layer.embeddings.val;
  const {name, trainable} = old;
  const shape: [number, number] = [layer.inputDim, layer.outputDim];
  old.dispose();
  layer.embeddings.val = tf.tidy(() => tf.variable(tf.zeros(shape), trainable, name));
  layer.embeddings.shape = shape;
}

