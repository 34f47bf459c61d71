// Trains the model over all maintainers but a tenth, and says how well it does on those:
//   SHEAF_SERVER=http://127.0.0.1:7480 node program.js packages.txt [ROUNDS [FILE]]
import {readFileSync, writeFileSync} from "node:fs";

import {connect, encodeSafetensors, SeededRandom} from "sheaf";
import {Training} from "sheaf/tfjs";

import {makeModel, NUM_TAGS, recallAt5} from "./model.js";
import {readPackages} from "./packages.js";

const [packages, rounds = "20", file] = process.argv.slice(2);
const {maintainers, numWords} = readPackages(readFileSync(packages, "utf8"), NUM_TAGS);
const random = new SeededRandom(1);
const sample = (from, count) => {
  const left = [...from];
  return Array.from({length: count}, () => left.splice(Math.floor(random.fraction() * left.length), 1)[0]);
};
const all = maintainers.map((_, client) => client);
const testers = new Set(sample(all, Math.floor(all.length / 10)));
const clients = all.filter((client) => !testers.has(client));
const unseen = [...testers].flatMap((client) => maintainers[client]);

const training = new Training(makeModel(numWords));
const tasks = () => sample(clients, 50).map(String);
let number = 0;
for await (const result of training.rounds(connect(), "tags", {tasks}, {rounds: Number(rounds)})) {
  const {bytesUp, bytesDown} = result.round.message;
  console.log(`round ${++number}  loss ${result.metrics.loss.toFixed(4)}  recall@5 ${recallAt5(training.model, unseen).toFixed(3)}  ` +
    `${bytesUp} bytes up  ${bytesDown} bytes down`);
}
if (file !== undefined) writeFileSync(file, encodeSafetensors(training.broadcast()));
