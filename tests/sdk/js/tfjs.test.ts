// Models of TensorFlow.js as tasks train them: with the rows that they look up, and with the numbers of the whole.
import assert from "node:assert/strict";
import test from "node:test";

import * as tf from "@tensorflow/tfjs";

import {DeclaredOutput, outputSpec, Sparse, Tensor, type Update} from "../../../sdk/js/src/index.js";
import {load, prepare, Training, update} from "../../../sdk/js/src/tfjs/index.js";

const ROWS = 50;
const WIDTH = 3;

/** A task of a round that trains the model; notes which rows are asked for. */
function taskOf(training: Training, asked: Record<string, number[][]>): any {
  const broadcast = training.broadcast();
  const rowsOf = async (wanted: Record<string, Int32Array>) => Object.fromEntries(Object.entries(wanted).map(([name, rows]) => {
    (asked[name] ??= []).push([...rows]);
    const {data, shape} = broadcast[name]!;
    const width = data.length / (shape[0] ?? 1);
    const values = [...rows].flatMap((row) => [...(data as Float32Array).subarray(row * width, (row + 1) * width)]);
    return [name, new Tensor(Float32Array.from(values), [rows.length, ...shape.slice(1)])];
  }));
  return {
    outputs: Object.entries(training.outputs).map(([name, output]) => new DeclaredOutput(outputSpec(name, output))),
    rowsOf,
    progress: () => {},
    rows: async (name: string, rows: Int32Array) => (await rowsOf({[name]: rows}))[name],
  };
}

type Make = (optimizer: tf.Optimizer) => tf.LayersModel;

// Two lookups of one table, one of them of an input that is computed first; masks; a layer that counts.
const functional: Make = (optimizer) => {
  const first = tf.input({shape: [4], dtype: "int32"});
  const second = tf.input({shape: [4], dtype: "int32"});
  const table = tf.layers.embedding({inputDim: ROWS, outputDim: WIDTH, name: "words", maskZero: true});
  const last = tf.layers.cropping2D({cropping: [[1, 0], [0, 0]]}).apply(
    tf.layers.reshape({targetShape: [4, 1, 1]}).apply(second)) as tf.SymbolicTensor;
  const cut = tf.layers.reshape({targetShape: [3]}).apply(last);
  const both = tf.layers.concatenate().apply([
    tf.layers.globalAveragePooling1d().apply(table.apply(first)) as tf.SymbolicTensor,
    tf.layers.globalMaxPooling1d().apply(table.apply(cut)) as tf.SymbolicTensor,
  ]);
  const normal = tf.layers.batchNormalization().apply(both);
  const model = tf.model({
    inputs: [first, second], outputs: tf.layers.dense({units: 2, activation: "sigmoid"}).apply(normal) as tf.SymbolicTensor,
  });
  model.compile({optimizer, loss: "binaryCrossentropy"});
  return model;
};

const sequential: Make = (optimizer) => {
  const model = tf.sequential();
  model.add(tf.layers.embedding({inputDim: ROWS, outputDim: WIDTH, inputLength: 4}));
  model.add(tf.layers.lstm({units: 2}));
  model.add(tf.layers.dense({units: 2, useBias: false}));
  model.compile({optimizer, loss: "meanSquaredError"});
  return model;
};

function inputsOf(batch: number): tf.Tensor2D {
  const ids = Int32Array.from({length: 24}, (_, i) => (i * 7 + batch * 11) % 23 + 2 * batch);
  return tf.tensor2d(ids, [6, 4], "int32");
}

const labels = () => tf.tensor2d(Float32Array.from({length: 12}, (_, i) => (i % 3 === 0 ? 1 : 0)), [6, 2]);

async function train(model: tf.LayersModel, step: "fit" | "trainOnBatch"): Promise<void> {
  for (let batch = 0; batch < 3; ++batch) {
    const x = model.inputs.length === 1 ? inputsOf(batch) : [inputsOf(batch), inputsOf(batch + 1)];
    if (step === "fit") await model.fit(x, labels(), {epochs: 2, batchSize: 4, shuffle: false, verbose: 0});
    else await model.trainOnBatch(x, labels());
  }
}

const OPTIMIZERS: Record<string, () => tf.Optimizer> = {
  sgd: () => tf.train.sgd(0.5),
  momentum: () => tf.train.momentum(0.1, 0.9),
  adagrad: () => tf.train.adagrad(0.3),
  adam: () => tf.train.adam(0.1),
  rmsprop: () => tf.train.rmsprop(0.05, 0.9, 0.5),
  adadelta: () => tf.train.adadelta(0.5),
  adamax: () => tf.train.adamax(0.1),
};

for (const [name, optimizer] of Object.entries(OPTIMIZERS)) {
  for (const [kind, make] of Object.entries({functional, sequential})) {
    for (const step of ["fit", "trainOnBatch"] as const) {
      test(`A ${kind} model trained by ${step} with ${name} has the bits that it has with the whole table`, async () => {
        const training = new Training(make(optimizer()));
        const before = training.broadcast();
        const asked: Record<string, number[][]> = {};
        const local = await load(taskOf(training, asked), () => make(optimizer()));
        // Made later, with other numbers in the names of its layers; the same weights.
        const whole = make(optimizer());
        whole.setWeights(training.model.getWeights());
        await train(local, step);
        await train(whole, step);
        const returned: Update = update(local);
        const after = new Training(whole).broadcast();
        assert.deepEqual(Object.keys(returned.values).sort(), Object.keys(before).sort());
        for (const [weight, value] of Object.entries(returned.values)) {
          const expected = (after[weight]!.data as Float32Array).map((each, i) => each - Number(before[weight]!.data[i]));
          const dense = value instanceof Sparse ? value.toDense() : value as Tensor;
          assert.deepEqual(dense.data, expected, weight);
        }
        const table = Object.keys(returned.values).find((each) => each.endsWith("/embeddings"))!;
        assert.equal(table, kind === "functional" ? "words/embeddings" : "embedding_1/embeddings");
        const fetched = asked[table]!.flat();
        assert.equal(new Set(fetched).size, fetched.length, "a row is fetched once");
        assert.ok(fetched.length < ROWS);
        assert.ok((returned.values[table] as Sparse).length <= fetched.length);
      });
    }
  }
}

test("A table of a hundred million rows takes the memory of those that are looked up", async () => {
  const make = (rows: number) => () => {
    const model = tf.sequential();
    model.add(tf.layers.embedding({inputDim: rows, outputDim: 8, inputLength: 2}));
    model.add(tf.layers.flatten());
    model.add(tf.layers.dense({units: 1}));
    model.compile({optimizer: "sgd", loss: "meanSquaredError"});
    return model;
  };
  const small = new Training(make(4)());
  const task = taskOf(small, {});
  const outputs = {...small.outputs};
  task.outputs = Object.entries(outputs).map(([name, output]) => new DeclaredOutput(outputSpec(name, {
    ...output, shape: output.operand === "sparse" ? [100_000_000, 8] : output.shape,
  })));
  task.rows = async (_name: string, rows: Int32Array) => new Tensor(new Float32Array(rows.length * 8).fill(0.5), [rows.length, 8]);
  const numTensors = tf.memory().numTensors;
  const model = await load(task, make(100_000_000));
  await model.fit(tf.tensor2d([[99_999_999, 3]], [1, 2], "int32"), tf.tensor2d([[1]]), {verbose: 0});
  const table = update(model).values["embedding_1/embeddings"] as Sparse;
  assert.deepEqual(table.rows, [3, 99_999_999]);
  assert.deepEqual(table.shape, [100_000_000, 8]);
  // The two tensors of the test.
  assert.equal(tf.memory().numTensors, numTensors + 2);
});

test("What is looked up without having been fetched, or is not there, says what to do", async () => {
  const make = () => sequential(tf.train.sgd(0.1));
  const model = await load(taskOf(new Training(make()), {}), make);
  assert.throws(() => model.predict(inputsOf(0)), /has not been fetched: .*await prepare\(model, inputs\)/);
  await prepare(model, inputsOf(0));
  model.predict(inputsOf(0));
  await assert.rejects(model.trainOnBatch(tf.tensor2d([[1, 2, 3, ROWS]], [1, 4], "int32"), labels()),
                       /50 was looked up in an embedding of 50 rows/);
  update(model);
  assert.throws(() => update(model), /the model that load returned, once/);
  const wider = () => {
    const other = tf.sequential();
    other.add(tf.layers.embedding({inputDim: ROWS, outputDim: WIDTH + 1, inputLength: 4}));
    return other;
  };
  await assert.rejects(load(taskOf(new Training(make()), {}), wider), /\[50, 4\] in the model of this worker, and \[50, 3\] in/);
});

test("What is frozen is sent, and not returned", async () => {
  const make = () => {
    const model = functional(tf.train.sgd(0.5));
    for (const layer of model.layers) if (["Embedding", "Dense"].includes(layer.getClassName())) layer.trainable = false;
    model.compile({optimizer: tf.train.sgd(0.5), loss: "binaryCrossentropy"});
    return model;
  };
  const training = new Training(make());
  assert.deepEqual(Object.keys(training.outputs).map((name) => name.split("/")[0]),
                   Array.from({length: 4}, () => "batch_normalization_1"));
  const asked: Record<string, number[][]> = {};
  const model = await load(taskOf(training, asked), make);
  await train(model, "fit");
  assert.deepEqual(Object.keys(update(model).values).length, 4);
  assert.ok(asked["words/embeddings"]!.flat().length < ROWS);
});
