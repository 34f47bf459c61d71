// Workers and programs in JavaScript against a real server, over HTTP, with workers in C++ and Python beside them.
import assert from "node:assert/strict";
import {existsSync, writeFileSync} from "node:fs";
import {join} from "node:path";
import test, {after, before} from "node:test";

import {create} from "@bufbuild/protobuf";

import {InspectionService} from "../../../sdk/js/gen/sheaf/v1/inspection_service_pb.js";
import {RoundService} from "../../../sdk/js/gen/sheaf/v1/round_service_pb.js";
import {
  type ComputationFunction, connect, ConnectTransport, coordinate_mean, count, Declined, Keyed, keyed_sum, max, mean, min,
  OPERATORS, type Output, type Result, RoundFailed, RoundStuck, type Server, SheafError, silent, slices_sum, Sparse, sparse_sum, sum, Tensor, Update,
  weighted_coordinate_mean, weighted_mean, Worker, type WorkerConfig,
} from "../../../sdk/js/src/index.js";
import {roundSpec} from "../../../sdk/js/src/program/round_spec.js";
import {callAsync} from "../../../sdk/js/src/transport.js";
import {program, sleep, Sheafd, until} from "./sheafd.js";

let sheafd: Sheafd;
let server: Server;

before(async () => {
  sheafd = await Sheafd.start();
  server = connect(sheafd.http);
});
after(() => sheafd.close());

/** Runs the body while so many workers work, each named after its number. */
async function working<T>(
  computations: WorkerConfig["computations"], body: (workers: Worker[]) => Promise<T>, workers = 1,
  config: Partial<WorkerConfig> = {},
): Promise<T> {
  const started = Array.from({length: workers}, () => new Worker({
    server: sheafd.http, computations, log: silent, graceMs: 500, ...config,
  }));
  const running = started.map((worker) => worker.run());
  try {
    return await body(started);
  } finally {
    for (const worker of started) worker.stop();
    await Promise.all(running);
  }
}

test("A computation in JavaScript, asked for by a program in JavaScript", async () => {
  const ages = [40, 50, 75];
  const mean_age: ComputationFunction = async (task) => {
    const [age] = [ages[Number(task.dataSelector)]!];
    return new Update({age}, {weight: age, loss: 1});
  };
  const result: Result = await working({mean_age}, () => server.run(
    "mean_age", {outputs: {age: weighted_mean([])}, tasks: ["0", "1", "2"], job: "ages"}), 2);
  assert.equal((result.get("age") as Tensor).item(), (40 * 40 + 50 * 50 + 75 * 75) / 165);
  assert.equal(result.numClients, 3);
  assert.deepEqual(result.metrics, {loss: 1});
  assert.equal(result.summaries["age"]!.divisorValue, 165);
  assert.deepEqual([...result.keys()], ["age"]);
  const listed = [];
  for await (const round of server.rounds({states: ["SUCCEEDED"], job: "ages"})) listed.push(round.id);
  assert.deepEqual(listed, [result.round.id]);
});

test("Every operator has the arguments that mean something for it, and no others", async () => {
  assert.deepEqual(OPERATORS.map(({operator}) => operator), (await server.info()).operators);
  const transport = new ConnectTransport({server: sheafd.http});
  const values: Record<string, unknown> = {
    indexDims: 2, minContributors: 2, dropZeros: true, nonFinite: "propagate", nnzMax: 5, form: "sparse",
  };
  const isAccepted = async (output: Output): Promise<boolean> => {
    const spec = roundSpec("noop", {outputs: {w: output}, tasks: 1}, "default");
    try {
      await callAsync(transport, RoundService.method.createRound, create(RoundService.method.createRound.input, {
        requestId: "1", spec, validateOnly: true,
      }), {timeoutMs: 10_000});
      return true;
    } catch (error) {
      assert.equal((error as SheafError).code, "INVALID_ARGUMENT");
      return false;
    }
  };
  for (const operator of OPERATORS) {
    const made = (options: object): Output => operator.operator === "keyed_sum"
      ? (operator as Function)("string", [4, 3], options) : (operator as Function)([4, 3], options);
    assert.ok(await isAccepted(made({})), operator.operator);
    // Those that the function does not take are put where it would put them.
    const taken = [];
    for (const [name, value] of Object.entries(values)) {
      if (await isAccepted({...made({}), options: {[name]: value}})) taken.push(name);
    }
    const forms = await isAccepted({...made({}), options: {form: "dense"}});
    assert.deepEqual(new Set([...taken.filter((name) => name !== "form" || forms), "dtype"]), new Set(operator.options),
                     operator.operator);
  }
});

// Numbers that no order of adding doubles gets right.
function awkward(client: number): number[] {
  return Array.from({length: 6}, (_, i) => Math.fround(Math.sin(client * 7 + i) * 10 ** (((client * 5 + i * 3) % 31) - 15)));
}

const OUTPUTS = {
  total: sum([6], {dtype: "float32"}),
  mean: weighted_mean([6], {dtype: "float32"}),
  least: min([6], {dtype: "float32"}),
  most: max([6], {dtype: "float32"}),
  seen: count([6], {dtype: "float32"}),
  rows: slices_sum([100, 2], {dtype: "float32"}),
  touched: weighted_coordinate_mean([100, 2], {dtype: "float32", indexDims: 1}),
  cells: sparse_sum([10, 10], {dtype: "float32"}),
  words: keyed_sum("string", [], {dtype: "int64"}),
};

const inJavaScript: ComputationFunction = (task) => {
  const client = Number(task.dataSelector);
  const values = Float32Array.from(awkward(client));
  const rows = new Sparse([client % 100, (client * 3) % 100, 17], values.slice(), [100, 2]);
  return new Update({
    total: values, mean: values, least: values, most: values, seen: values, rows, touched: rows,
    cells: new Sparse([[client % 10, 1], [3, client % 7], [3, client % 7]], values.slice(0, 3), [10, 10]),
    words: {[`w${client % 5}`]: 1, all: client},
  }, {weight: 1 + (client % 13) / 3});
};

// The values come by the payload, as Python's own sine may differ in the last bit.
const IN_PYTHON = `
import sys
import numpy, sheaf

@sheaf.computation
def mixed(task):
    client, values = int(task.data_selector), numpy.array(task.payload, numpy.float32)
    rows = sheaf.Sparse([client % 100, client * 3 % 100, 17], values.reshape(3, 2).copy(), (100, 2))
    return sheaf.Update({
        "total": values, "mean": values, "least": values, "most": values, "seen": values, "rows": rows, "touched": rows,
        "cells": sheaf.Sparse([[client % 10, 1], [3, client % 7], [3, client % 7]], values[:3].copy(), (10, 10)),
        "words": {f"w{client % 5}": 1, "all": client},
    }, weight=1 + client % 13 / 3)

sheaf.work()
`;

const PYTHON = join(process.env["SHEAF_BINARIES"]!, "../python");
const noPython = existsSync(join(PYTHON, "sheaf")) ? false : "this build has no Python package";

test("Workers in JavaScript and Python together make the bits that either makes alone", {skip: noPython}, async () => {
  const script = join(sheafd.directory, "mixed.py");
  writeFileSync(script, IN_PYTHON);
  const tasks = Array.from({length: 60}, (_, client) => ({dataSelector: String(client), payload: awkward(client)}));
  const run = () => server.run("mixed", {outputs: OUTPUTS, tasks}, {timeout: 60});
  const slowly: ComputationFunction = async (task) => {
    await sleep(10);
    return inJavaScript(task);
  };
  const alone = await working({mixed: inJavaScript}, run, 3);
  const python = sheafd.helper(program("sheaf-worker"), [
    "--server", sheafd.address, "--serve", `mixed=/usr/bin/python3 ${script}`, "--env", "PYTHONPATH", "--name", "python",
    "--log-level", "error",
  ], {PYTHONPATH: PYTHON});
  const inPython = await run();
  const together = await working({mixed: slowly}, run, 2);
  const counts = await tasksByWorker(together);
  python.kill();
  assert.ok((counts.get("python") ?? 0) > 0 && counts.size >= 2, [...counts].join());
  assert.deepEqual(inPython.file, alone.file);
  assert.deepEqual(together.file, alone.file);
  assert.equal(alone.numClients, 60);
  // Clients that a worker combines itself count as clients, and give the same bits.
  const parts: ComputationFunction = function* (task) {
    for (const client of task.payload as number[]) {
      yield inJavaScript({dataSelector: String(client)} as never) as Update;
    }
  };
  const grouped = await working({mixed: parts}, () => server.run("mixed", {
    outputs: OUTPUTS, tasks: [0, 1, 2, 3].map((part) => ({payload: tasks.map((_, i) => i).filter((i) => i % 4 === part)})),
  }));
  assert.equal(grouped.numClients, 60);
  assert.equal(grouped.numContributions, 4);
  for (const name of ["total", "mean", "least", "most", "seen", "rows", "touched", "cells"] as const) {
    assert.deepEqual(grouped.get(name), alone.get(name), name);
  }
  assert.deepEqual([...(grouped.get("words") as Keyed)], [...(alone.get("words") as Keyed)]);
});

async function tasksByWorker(result: Result): Promise<Map<string, number>> {
  const transport = new ConnectTransport({server: sheafd.http});
  const {input} = InspectionService.method.listTasks;
  const answer = await callAsync(transport, InspectionService.method.listTasks, create(input, {
    round: result.round.id, pageSize: 1000,
  }), {timeoutMs: 10_000});
  const counts = new Map<string, number>();
  for (const {worker} of answer.tasks) counts.set(worker, (counts.get(worker) ?? 0) + 1);
  return counts;
}

test("Workers in JavaScript and C++ share a round", async () => {
  sheafd.helper(program("sheaf-worker"), ["--server", sheafd.address, "--name", "cpp", "--concurrency", "4", "--log-level", "error"]);
  const one_hot: ComputationFunction = async (task) => {
    await sleep(5);
    const counters = new BigInt64Array(Number(task.outputs[0]!.shape[0]));
    counters[task.payload instanceof Uint8Array ? task.payload[0]! : Number(task.payload)] = 1n;
    return {counters};
  };
  const tasks = Array.from({length: 400}, (_, i) => ({payload: new TextEncoder().encode(String(i % 4))}));
  const result = await working({one_hot}, () => server.run(
    "one_hot", {outputs: {counters: sum([4], {dtype: "int64"})}, tasks}, {timeout: 60}), 2);
  assert.deepEqual((result.get("counters") as Tensor).data, BigInt64Array.of(100n, 100n, 100n, 100n));
  const counts = await tasksByWorker(result);
  assert.ok(counts.has("cpp") && counts.size === 3, [...counts].join());
});

test("Large broadcasts, rows of them and large results travel in chunks", async () => {
  const table = new Tensor(Float32Array.from({length: 3_000_000}, (_, i) => i % 8191), [1_000_000, 3]);
  const grow: ComputationFunction = async (task) => {
    const params = await task.params();
    const whole = (params.get("table") as Tensor).data as Float32Array;
    const [first] = (await task.rows("table", [999_999, 5])).data;
    assert.equal(first, whole[2_999_997]);
    return {table: whole};
  };
  const result = await working({grow}, () => server.run("grow", {
    outputs: {table: sum([1_000_000, 3], {dtype: "float32"})}, broadcast: {table}, tasks: 2,
  }, {timeout: 60}));
  const data = (result.get("table") as Tensor).data as Float32Array;
  assert.ok(data.every((each, i) => each === 2 * (i % 8191)));
  const digest = await server.upload({table});
  assert.equal(await server.upload({table}), digest);
  assert.match(digest, /^[0-9a-f]{64}$/);
});

test("A round that fails, is stuck or is cancelled says so", async () => {
  const fail: ComputationFunction = (task) => {
    if (task.payload === "decline") throw new Declined("nothing here");
    throw new Error("secret");
  };
  await working({fail}, async () => {
    const outputs = {w: mean([])};
    const stuck = await server.create("fail", {outputs, tasks: [{payload: 1}], failedMax: 1});
    await assert.rejects(stuck.wait({timeout: 20}), (error: unknown) => {
      assert.ok(error instanceof RoundStuck, String(error));
      assert.match(error.message, /Error in computation "fail"|failed as often as it allows/);
      assert.doesNotMatch(error.message, /secret/);
      return true;
    });
    assert.match(await stuck.explain(), /r-/);
    await stuck.cancel("not wanted");
    assert.equal(stuck.state, "CANCELLED");
    await assert.rejects(stuck.result(), (error: unknown) => error instanceof RoundFailed && /not wanted/.test(error.message));
    const waiting = await server.create("nobody", {outputs, tasks: 1});
    await assert.rejects(waiting.wait({timeout: 0.2}), {code: "DEADLINE_EXCEEDED"});
    await waiting.cancel();
  });
  await assert.rejects(server.round("r-aaaaaaaa"), {code: "NOT_FOUND"});
  await assert.rejects(server.create("x", {outputs: {w: mean([], {dtype: "int32"})}, tasks: 1}), {code: "INVALID_ARGUMENT"});
});

test("Coordinates that too few clients touched are withheld, and rounds follow one another", async () => {
  const share: ComputationFunction = (task) => ({w: new Sparse([task.payload, 9], [1, 2], [10])});
  await working({share}, async () => {
    const outputs = {w: coordinate_mean(10, {minContributors: 2})};
    let rounds = 0;
    for await (const result of server.loop("share", {outputs, tasks: () => [{payload: 1}, {payload: 2 + rounds}]}, {rounds: 2})) {
      ++rounds;
      assert.deepEqual((result.get("w") as Sparse).rows, [9]);
      assert.equal(result.summaries["w"]!.touched, 3);
    }
    assert.equal(rounds, 2);
  });
});

test("The server is killed in the middle of a round, and each client counts once", async () => {
  const one: ComputationFunction = async () => {
    await sleep(20);
    return {n: 1n};
  };
  await working({one}, async (workers) => {
    const round = await server.create("one", {outputs: {n: sum([], {dtype: "int64"})}, tasks: 300, leaseDuration: 5});
    await until("some are done", () => (workers[0]!.counters.verdicts["ACCEPTED"] ?? 0) > 5);
    await sheafd.kill();
    await sleep(300);
    await sheafd.start();
    const result = await round.result({timeout: 60});
    assert.equal((result.get("n") as Tensor).item(), 300n);
  }, 4, {concurrency: 2});
});

test("A worker that is frozen loses its lease, and nothing else", async () => {
  const script = join(sheafd.directory, "frozen.mjs");
  writeFileSync(script, `
    import {Worker} from ${JSON.stringify(join(process.env["SHEAF_SOURCE"]!, "sdk/js/dist/sheaf.js"))};
    const one = async (task) => {
      for (let i = 0; i < 20; ++i) { await new Promise((resolve) => setTimeout(resolve, 50)); task.progress(); }
      return {n: 1n};
    };
    await new Worker({server: ${JSON.stringify(sheafd.http)}, computations: {freeze: one}, worker: "frozen"}).run();
  `);
  const frozen = sheafd.helper(process.execPath, [script]);
  const outputs = {n: sum([], {dtype: "int64"})};
  const round = await server.create("freeze", {outputs, tasks: 4, leaseDuration: 2});
  for (let leased = 0; leased === 0; await sleep(20)) leased = (await round.refresh()).tasks.leased;
  frozen.kill("SIGSTOP");
  const one: ComputationFunction = () => ({n: 1n});
  const result = await working({freeze: one}, () => round.result({timeout: 60}));
  assert.equal((result.get("n") as Tensor).item(), 4n);
  assert.equal(Number(result.round.message.numLostAttempts), 1);
  frozen.kill("SIGCONT");
  // It is there again.
  const again = await server.run("freeze", {outputs, tasks: 1}, {timeout: 60});
  assert.deepEqual([...(await tasksByWorker(again)).keys()], ["frozen"]);
});
