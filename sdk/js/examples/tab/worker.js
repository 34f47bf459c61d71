// Runs in a Web Worker of index.html.
import {Declined, Update, Worker} from "./sheaf.js";

self.onmessage = async ({data: file}) => {
  const numbers = (await file.text()).split(/\s+/).filter((word) => word !== "").map(Number);

  const file_mean = () => {
    if (numbers.length === 0) throw new Declined("an empty file");
    const sum = numbers.reduce((all, each) => all + each, 0);
    return new Update({mean: sum / numbers.length}, {weight: numbers.length});
  };

  const worker = new Worker({
    computations: {file_mean},
    onChange: ({state, counters}) => self.postMessage({state, accepted: counters.verdicts.ACCEPTED ?? 0}),
  });
  self.onmessage = () => worker.stop();
  await worker.run();
};
