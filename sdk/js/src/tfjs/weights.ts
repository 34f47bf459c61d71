// The weights of a layers model under names that are the same in every process. TensorFlow.js numbers the layers of a process,
// so that the second model that is made has other names than the first.
import * as tf from "@tensorflow/tfjs";

/** What TensorFlow.js keeps a weight in. Its types do not show all of it. */
export interface LayerVariable {
  readonly name: string;
  readonly originalName: string;
  readonly trainable: boolean;
  readonly dtype: string;
  shape: number[];
  val: tf.Variable;
  read(): tf.Tensor;
  write(value: tf.Tensor): unknown;
}

/** An embedding, as TensorFlow.js has it inside. */
export type EmbeddingLayer = tf.layers.Layer & {
  inputDim: number;
  outputDim: number;
  embeddings: LayerVariable;
  embeddingsRegularizer: unknown;
  embeddingsConstraint: unknown;
};

export interface Weight {
  /** "embedding_1/embeddings", "dense_2/kernel"; of a layer that has a name of its author's, "words/embeddings". */
  name: string;
  layer: tf.layers.Layer;
  variable: LayerVariable;
  /** Training changes it: it is not frozen, and no counter. */
  isReturned: boolean;
}

export function isEmbedding(layer: tf.layers.Layer): layer is EmbeddingLayer {
  return layer.getClassName() === "Embedding";
}

/** All weights of the model. */
export function weightsOf(model: tf.LayersModel): Weight[] {
  const counts = new Map<string, number>();
  const taken = new Set<string>();
  return model.layers.flatMap((layer) => {
    const kind = layer.getClassName();
    const number = (counts.get(kind) ?? 0) + 1;
    counts.set(kind, number);
    // What TensorFlow.js calls a layer that was given no name: "embedding_Embedding3".
    const isNumbered = new RegExp(`_${kind}\\d+$`).test(layer.name);
    const prefix = isNumbered ? `${layer.name.replace(new RegExp(`_${kind}\\d+$`), "")}_${number}` : layer.name;
    return (layer.weights as unknown as LayerVariable[]).map((variable) => {
      const own = variable.originalName.split("/").at(-1)!.replace(/[^A-Za-z0-9_.-]/g, "_");
      let name = `${prefix.replace(/[^A-Za-z0-9_./-]/g, "_")}/${own}`;
      for (let i = 2; taken.has(name); ++i) name = `${prefix}/${own}_${i}`;
      taken.add(name);
      // Also statistics, such as those of batch normalisation: they are averaged as parameters are.
      const isReturned = layer.trainable && variable.dtype === "float32";
      return {name, layer, variable, isReturned};
    });
  });
}
