// The examples, as their comments say how to run them: a Keras model, trained by workers in Node on packages that are made up.
import assert from "node:assert/strict";
import {spawn} from "node:child_process";
import {readFileSync, writeFileSync} from "node:fs";
import {join} from "node:path";
import test, {after, before} from "node:test";

import {connect, Safetensors} from "../../../sdk/js/src/index.js";
import {MAINTAINERS, madeUpPackages, PACKAGES, TOPICS} from "./made_up_packages.js";
import {Sheafd} from "./sheafd.js";

const TAGS = join(process.env["SHEAF_SOURCE"]!, "sdk/js/examples/tags");
const ROUNDS = 3;

let sheafd: Sheafd;
before(async () => {
  sheafd = await Sheafd.start("--store", "memory");
});
after(() => sheafd.close());

test("A Keras model learns from tasks that have only the rows that their words look up", async () => {
  const [data, model] = ["packages.txt", "model.safetensors"].map((name) => join(sheafd.directory, name)) as [string, string];
  writeFileSync(data, madeUpPackages());
  const environment = {SHEAF_SERVER: `http://${sheafd.http}`};
  for (let i = 0; i < 2; ++i) sheafd.helper(process.execPath, [join(TAGS, "worker.js"), data], environment);
  const program = spawn(process.execPath, [join(TAGS, "program.js"), data, String(ROUNDS), model], {
    env: {...process.env, ...environment}, stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  program.stdout.on("data", (piece) => (text += piece));
  assert.equal(await new Promise((resolve) => program.on("close", resolve)), 0, text);
  const lines = [...text.matchAll(/^round +(\d+) +loss ([\d.]+) +recall@5 ([\d.]+) +(\d+) bytes up +(\d+) bytes down$/gm)]
    .map((line) => line.slice(1).map(Number) as [number, number, number, number, number]);
  assert.equal(lines.length, ROUNDS, text);
  assert.ok(lines.at(-1)![1] < lines[0]![1] / 1.5, text);
  // Words of its own for each package and a few of each topic, 64 wide; the layer above them is 64 by 500, and its bias.
  const most = 50 * 4 * ((2 * PACKAGES + 4 * TOPICS + 4) * 64 + 64 * 500 + 500);
  for (const [, , , up, down] of lines) assert.ok(up < most + 50 * 1000 && down < most, text);

  const weights = new Safetensors(readFileSync(model));
  assert.deepEqual(weights.names().sort(), ["dense_1/bias", "dense_1/kernel", "embedding_1/embeddings"]);
  const words = weights.get("embedding_1/embeddings");
  assert.equal(words.shape[1], 64);
  assert.ok(words.shape[0]! > PACKAGES * MAINTAINERS);
  for await (const round of connect(sheafd.http).rounds()) assert.equal(round.state, "SUCCEEDED");
});
