// Trains the model on the packages of one maintainer, where they are.
import {load, update} from "sheaf/tfjs";

import {makeModel, train} from "./model.js";

export function trainTags({maintainers, numWords}) {
  return async (task) => {
    const packages = maintainers[Number(task.dataSelector)].slice(0, 512);
    const model = await load(task, () => makeModel(numWords));
    const loss = await train(model, packages);
    return update(model, {weight: packages.length, loss});
  };
}
