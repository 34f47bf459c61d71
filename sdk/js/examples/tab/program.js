// The mean over the files of so many tabs:  SHEAF_SERVER=http://127.0.0.1:7480 node program.js 2
import {connect, weighted_mean} from "sheaf";

const tabs = Number(process.argv[2]);
const result = await connect().run("file_mean", {
  outputs: {mean: weighted_mean([])},
  tasks: {count: tabs, perWorkerMax: 1},
  minClients: tabs,
});
console.log(`mean ${result.get("mean").item()} of ${result.numClients} clients`);
