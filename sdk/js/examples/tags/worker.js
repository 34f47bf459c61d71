// A worker in Node:  SHEAF_SERVER=http://127.0.0.1:7480 node worker.js packages.txt
import {readFileSync} from "node:fs";

import {Worker} from "sheaf";

import {trainTags} from "./computation.js";
import {NUM_TAGS} from "./model.js";
import {readPackages} from "./packages.js";

const data = readPackages(readFileSync(process.argv[2], "utf8"), NUM_TAGS);
const worker = new Worker({computations: {tags: trainTags(data)}});
process.on("SIGTERM", () => worker.stop());
await worker.run();
