// Sheaf for TensorFlow.js: layers models (the Keras API) as they are. Of their embeddings only the rows travel that the data look
// up; who wrote the model does nothing for it.
//
//   import {load, update} from "sheaf/tfjs";
//
//   const train = async (task) => {
//     const model = await load(task, makeModel);
//     const {history} = await model.fit(inputs, labels);
//     return update(model, {weight: inputs.shape[0], loss: history.loss[0]});
//   };
export {load, prepare, update} from "./local_model.js";
export {Training, type TrainingOptions} from "./training.js";
