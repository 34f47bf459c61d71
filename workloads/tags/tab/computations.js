// The computation `tags` for a tab: the same model, steps and bits as workloads/tags/model.h, so that a tab and a daemon return
// the same contribution. IEEE 754 gives one result for each sum, product and quotient, and Math.fround the float32 of it: a
// float32 operation is the double's, rounded (Figueroa, When is double rounding innocuous?, 1995).
//
// A tab's page (/join) shows `about`, asks for the file, and calls `prepare` in a worker thread.

export const about = {
  title: "Tags for Debian packages",
  text: "Learns which tags a package has from the words of its description and the names of what it depends on. "
    + "What leaves this tab is, for each task, how the model moved on the packages of one maintainer.",
  file: {label: "A snapshot of package lists (as sheaf demo tags --keep leaves it)", accept: ".snapshot", sample: "debian-index"},
};

/** `bytes`: the file that the person chose, or the sample. `sheaf`: the package. */
export function prepare({bytes, sheaf}) {
  const dataset = readSnapshot(bytes);
  return {
    computations: {tags: (task) => computeTags(task, dataset, sheaf)},
    summary: `${dataset.clients.length} maintainers, ${dataset.numFeatures} words and names, ${dataset.numLabels} tags`,
  };
}

async function computeTags(task, dataset, sheaf) {
  const config = readConfig(task, sheaf);
  if (config.features !== dataset.numFeatures || config.labels !== dataset.numLabels) {
    throw new sheaf.Declined("the round's model was made from other package lists");
  }
  const client = dataset.clients[Number(/^client:(\d+)$/.exec(task.dataSelector)?.[1] ?? -1)];
  if (client === undefined) throw new sheaf.WrongTask("the task names no maintainer of this snapshot");
  const examples = trainingOrder(client, config, sheaf);
  const rows = touchedRows(examples);
  const labels = Array.from({length: config.labels}, (_, label) => label);
  const {w, b} = await task.rowsOf({w: BigInt64Array.from(rows, BigInt), b: BigInt64Array.from(labels, BigInt)});
  const update = await train(examples, rows, Float32Array.from(w.data), Float32Array.from(b.data), config, task);
  return new sheaf.Update({
    rows: new sheaf.Sparse(BigInt64Array.from(rows, BigInt), new sheaf.Tensor(update.rows, [rows.length, config.labels]),
                           [config.features, config.labels]),
    bias: update.bias,
  }, {weight: examples.length, loss: update.loss, examples: examples.length});
}

// The seed has 64 bits, more than a number of JSON.parse holds.
function readConfig(task, sheaf) {
  const config = task.config;
  const seed = /"seed":\s*(\d+)/.exec(new TextDecoder().decode(task.configBytes))?.[1];
  const isCount = (value) => Number.isInteger(value) && value >= 1;
  const isWell = seed !== undefined && ["batch", "examples_max", "features", "labels"].every((key) => isCount(config[key]))
    && config.learning_rate > 0;
  if (!isWell) throw new sheaf.WrongTask("this is no configuration of the computation \"tags\"");
  return {...config, seed: BigInt(seed), client: BigInt(/\d+$/.exec(task.dataSelector)?.[0] ?? 0)};
}

const MASK = (1n << 64n) - 1n;

/** The examples that a client trains on, in training order: a seeded shuffle, cut off. */
function trainingOrder(examples, config, sheaf) {
  const random = new sheaf.SeededRandom((config.seed * 0x9e3779b97f4a7c15n + config.client) & MASK);
  const order = [...examples];
  for (let i = order.length; i > 1; --i) {
    // As Random::Below of base/random.h (Lemire 2019).
    const other = Number((random.bits() * BigInt(i)) >> 64n);
    [order[i - 1], order[other]] = [order[other], order[i - 1]];
  }
  return order.slice(0, config.examples_max);
}

function touchedRows(examples) {
  const rows = new Set();
  for (const {features} of examples) for (const feature of features) rows.add(feature);
  return [...rows].sort((a, b) => a - b);
}

/** One epoch of mini-batch SGD: what it moved. `weights` is [rows, labels]. */
async function train(examples, rows, weights, bias, config, task) {
  const labels = config.labels;
  const place = new Map(rows.map((row, i) => [row, i * labels]));
  const before = {weights: weights.slice(), bias: bias.slice()};
  const gradients = Array.from({length: config.batch}, () => new Float32Array(labels));
  let loss = 0;
  for (let begin = 0; begin < examples.length; begin += config.batch) {
    // Every gradient of a batch is taken before any step of it.
    const batch = examples.slice(begin, begin + config.batch);
    batch.forEach(({features, positives}, i) => {
      const scores = gradients[i];
      scores.set(bias);
      for (const feature of features) {
        const at = place.get(feature);
        for (let label = 0; label < labels; ++label) scores[label] += weights[at + label];
      }
      loss += scoresToGradient(scores, positives);
    });
    const step = Math.fround(config.learning_rate / batch.length);
    batch.forEach(({features}, i) => {
      const gradient = gradients[i];
      for (let label = 0; label < labels; ++label) bias[label] -= Math.fround(step * gradient[label]);
      for (const feature of features) {
        const at = place.get(feature);
        for (let label = 0; label < labels; ++label) weights[at + label] -= Math.fround(step * gradient[label]);
      }
    });
    task.progress();
    // A tab has one thread for this and for its calls.
    await new Promise((resolve) => setTimeout(resolve));
    task.signal.throwIfAborted();
  }
  return {
    rows: weights.map((value, i) => value - before.weights[i]),
    bias: bias.map((value, i) => value - before.bias[i]),
    loss: examples.length === 0 ? 0 : loss / examples.length,
  };
}

// --- workloads/logistic.cc ------------------------------------------------------------------------------------------

const f = Math.fround;
const SATURATION = 30;
const LEAST_PROBABILITY = 9.3e-14;
const LOG2_E = f(1.44269504);
const LN2_HIGH = f(0.693359375);
const LN2_LOW = f(-2.12194440e-4);
const ROUNDER = 12582912;
const TERMS = [f(1 / 720), f(1 / 120), f(1 / 24), f(1 / 6), 0.5, 1, 1];

const float = new Float32Array(1);
const int = new Int32Array(float.buffer);
const double = new Float64Array(1);
const words = new Uint32Array(double.buffer);
float[0] = ROUNDER;
const ROUNDER_BITS = int[0];

// exp(x) for |x| <= SATURATION.
function exp(x) {
  const rounded = f(f(x * LOG2_E) + ROUNDER);
  const n = f(rounded - ROUNDER);
  const r = f(f(x - f(n * LN2_HIGH)) - f(n * LN2_LOW));
  let p = f(1 / 5040);
  for (const term of TERMS) p = f(f(p * r) + term);
  float[0] = rounded;
  const exponent = int[0] - ROUNDER_BITS;
  float[0] = p;
  int[0] += exponent * (1 << 23);
  return float[0];
}

function sigmoid(x) {
  return f(1 / f(1 + exp(-Math.min(Math.max(x, -SATURATION), SATURATION))));
}

function log(x) {
  double[0] = x;
  let exponent = (words[1] >>> 20) - 1023;
  words[1] = (words[1] & 0xfffff) | 0x3ff00000;
  let m = double[0];
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++exponent;
  }
  const s = (m - 1) / (m + 1);
  const s2 = s * s;
  let series = 0;
  for (let k = 15; k >= 1; k -= 2) series = series * s2 + 1 / k;
  return exponent * 0.693147180559945309417 + 2 * s * series;
}

const unlikelihood = (p) => Math.max(1 - p, LEAST_PROBABILITY);

/** Replaces each score by sigmoid(score) - y; the summed log loss. */
function scoresToGradient(scores, positives) {
  for (let i = 0; i < scores.length; ++i) scores[i] = sigmoid(scores[i]);
  let loss = 0;
  for (let begin = 0; begin < scores.length; begin += 16) {
    let product = 1;
    for (let i = begin; i < Math.min(begin + 16, scores.length); ++i) product *= unlikelihood(scores[i]);
    loss -= log(product);
  }
  for (const positive of positives) {
    loss += log(unlikelihood(scores[positive])) - log(scores[positive]);
    scores[positive] -= 1;
  }
  return loss;
}

// --- workloads/tags/snapshot.cc -------------------------------------------------------------------------------------

const HEAD_BYTES = 24;
const VERSION = 1;

/** {numFeatures, numLabels, clients: the examples of each, {features, positives}}. Throws a sentence about damaged bytes. */
function readSnapshot(bytes) {
  const head = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const begins = bytes.length >= HEAD_BYTES && new TextDecoder().decode(bytes.subarray(0, 8)) === "SHEAFTAG";
  if (!begins) throw new Error("this file is no snapshot of package lists");
  if (head.getUint32(8, true) !== VERSION) throw new Error(`this page reads snapshots of version ${VERSION}`);
  if (Number(head.getBigUint64(16, true)) !== bytes.length - HEAD_BYTES) throw new Error("bytes of the snapshot are missing");
  let at = HEAD_BYTES;
  const damaged = () => new Error("the snapshot is damaged");
  const varint = () => {
    let value = 0;
    for (let scale = 1; at < bytes.length && scale < 2 ** 42; scale *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
    throw damaged();
  };
  const count = () => {
    const value = varint();
    if (value > bytes.length - at) throw damaged();
    return value;
  };
  const ascending = (bound, Numbers) => {
    const numbers = new Numbers(count());
    let previous = -1;
    for (let i = 0; i < numbers.length; ++i) {
      const gap = varint();
      previous += gap;
      if (gap < 1 || previous >= bound) throw damaged();
      numbers[i] = previous;
    }
    return numbers;
  };
  const numFeatures = varint();
  const numLabels = count();
  const numClients = count();
  for (let i = 0; i < numLabels; ++i) {
    const nameBytes = count();
    at += nameBytes;
  }
  const clients = Array.from({length: numClients}, () => {
    varint();
    return Array.from({length: count()}, () => ({
      features: ascending(numFeatures, Uint32Array), positives: ascending(numLabels, Uint16Array),
    }));
  });
  if (at !== bytes.length) throw damaged();
  return {numFeatures, numLabels, clients};
}
