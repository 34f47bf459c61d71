// Predicts a Debian package's tags from the words of its description and the names of what it depends on.
import * as tf from "@tensorflow/tfjs";

export const NUM_TAGS = 500;
// Words of one package that are looked at; fewer are filled up with word 0, which no package has.
export const WORDS_MAX = 32;

export function makeModel(numWords) {
  const model = tf.sequential();
  model.add(tf.layers.embedding({inputDim: numWords + 1, outputDim: 64, inputLength: WORDS_MAX}));
  model.add(tf.layers.globalAveragePooling1d());
  // Few packages have any one tag.
  const rarely = tf.initializers.constant({value: -4});
  model.add(tf.layers.dense({units: NUM_TAGS, activation: "sigmoid", biasInitializer: rarely}));
  model.compile({optimizer: tf.train.adam(0.05), loss: "binaryCrossentropy"});
  return model;
}

/** Packages as the model takes them. */
export function tensorsOf(packages) {
  const words = new Int32Array(packages.length * WORDS_MAX);
  const tags = new Float32Array(packages.length * NUM_TAGS);
  packages.forEach((one, i) => {
    words.set(one.words.slice(0, WORDS_MAX).map((word) => word + 1), i * WORDS_MAX);
    for (const tag of one.tags) tags[i * NUM_TAGS + tag] = 1;
  });
  return [tf.tensor2d(words, [packages.length, WORDS_MAX]), tf.tensor2d(tags, [packages.length, NUM_TAGS])];
}

/** Two passes; the loss of the second. */
export async function train(model, packages) {
  const [words, tags] = tensorsOf(packages);
  const {history} = await model.fit(words, tags, {epochs: 2, batchSize: 10, shuffle: false, verbose: 0});
  tf.dispose([words, tags]);
  return history.loss[1];
}

/** The part of all tags that are among the five that the model thinks likeliest. */
export function recallAt5(model, packages) {
  let found = 0;
  let wanted = 0;
  for (let begin = 0; begin < packages.length; begin += 500) {
    const some = packages.slice(begin, begin + 500);
    const likeliest = tf.tidy(() => tf.topk(model.predict(tensorsOf(some)[0]), 5).indices.arraySync());
    some.forEach(({tags}, i) => {
      found += tags.filter((tag) => likeliest[i].includes(tag)).length;
      wanted += tags.length;
    });
  }
  return found / wanted;
}
