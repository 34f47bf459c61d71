// Rounds that are announced before their broadcast is known, and loops that announce them ahead: against a real server.
import assert from "node:assert/strict";
import {existsSync, mkdirSync, readFileSync, writeFileSync} from "node:fs";
import {join} from "node:path";
import test, {after, before, type TestContext} from "node:test";

import {
  type ChangingOptions, type ComputationFunction, connect, ConnectTransport, encodeSafetensors, type LoopOptions, type Result, RoundFailed,
  type RoundOptions, type Server, silent, sum, Tensor, type Transport, Worker, WrongTask,
} from "../../../sdk/js/src/index.js";
import {program, sleep, Sheafd, until} from "./sheafd.js";

const N = {n: sum([])};
const W = {w: sum(3)};

let sheafd: Sheafd;
let server: Server;
let numJobs = 0;

before(async () => {
  sheafd = await Sheafd.start();
  server = connect(sheafd.http);
});
after(() => sheafd.close());

/** A worker, for as long as a test runs. */
function offer(
  context: TestContext, computations: Record<string, ComputationFunction>, options: {prepareAhead?: number} = {},
): void {
  const worker = new Worker({server: sheafd.http, computations, log: silent, graceMs: 500, ...options});
  const running = worker.run();
  context.after(async () => {
    worker.stop();
    await running;
  });
}

const add_one: ComputationFunction = async (task) => {
  const w = (await task.params()).get("w") as Tensor;
  return {w: Array.from(w.data as Float64Array, (value) => value + 1)};
};

function valuesOf(result: Result, name = "w"): number[] {
  return Array.from((result.get(name) as Tensor).data as Float64Array);
}

/** The states of the rounds of a job, oldest first. */
async function states(job: string): Promise<string[]> {
  const seen = [];
  for await (const round of server.rounds({job})) seen.push(round.state);
  return seen.reverse();
}

const newJob = (): string => `job-${++numJobs}`;

async function all(results: AsyncIterable<Result>): Promise<Result[]> {
  const seen = [];
  for await (const result of results) seen.push(result);
  return seen;
}

test("An announced round is opened with its broadcast", async (context) => {
  offer(context, {add_one});
  const round = await server.announce("add_one", {outputs: W, tasks: 2, announceDeadline: 60});
  assert.equal(round.state, "ANNOUNCED");
  assert.ok(!round.hasEnded);
  assert.match(await round.explain(), /waits for its broadcast/);
  const w = [1, 2, 3];
  assert.equal(await round.open({w}), round);
  assert.ok(["COLLECTING", "SEALING", "SUCCEEDED"].includes(round.state), round.state);
  assert.deepEqual(valuesOf(await round.result()), [4, 6, 8]);
  // Asking again, as somebody does who has not heard the answer.
  assert.equal((await round.open({w})).state, "SUCCEEDED");
});

test("A task of an announced round runs until it asks for the broadcast, and goes on when the round is open", async (context) => {
  const begun: string[] = [];
  const asked: string[] = [];
  const rows: ComputationFunction = async (task) => {
    begun.push(task.dataSelector);
    await sleep(20);
    asked.push(task.dataSelector);
    const w = await task.rows("w", [2, 0]);
    return {n: Number((w.data as Float64Array)[0])};
  };
  offer(context, {rows}, {prepareAhead: 2});
  const round = await server.announce("rows", {outputs: N, tasks: ["a", "b", "c"]});
  await until("two tasks are prepared", () => asked.length === 2);
  // The third waits for a place.
  await sleep(200);
  assert.deepEqual(begun.sort(), ["a", "b"]);
  assert.equal(round.state, "ANNOUNCED");
  assert.deepEqual(valuesOf(await (await round.open({w: [5, 6, 7]})).result(), "n"), [21]);
  assert.deepEqual(begun.sort(), ["a", "b", "c"]);
});

test("What is prepared is computed once, whatever the round opens with", async (context) => {
  let runs = 0;
  // What each asks for, if anything.
  const asks: ComputationFunction = async (task) => {
    ++runs;
    if (task.dataSelector === "nothing") return {n: 1};
    if (task.dataSelector === "both") await Promise.all([task.params(), task.rows("w", [0])]);
    const found = task.dataSelector === "rows" ? task.rows("w", [0]) : task.params();
    return found.then(() => ({n: 10}), (error: Error) => ({n: /has no broadcast/.test(error.message) ? 100 : NaN}));
  };
  offer(context, {asks}, {prepareAhead: 4});
  const released = async (tasks: string[], broadcast?: Record<string, number[]>): Promise<number> => {
    runs = 0;
    const round = await server.announce("asks", {outputs: N, tasks});
    await until("all are prepared", () => runs === tasks.length);
    return valuesOf(await (await round.open(broadcast)).result(), "n")[0]!;
  };
  assert.equal(await released(["nothing", "params", "rows"]), 201);
  assert.equal(await released(["nothing", "params", "rows", "both"], {w: [0]}), 31);
  assert.equal(runs, 4);
});

test("A worker that prepares nothing ahead, or stops, leaves announced tasks to others", async (context) => {
  const begun: string[] = [];
  const named = (name: string): ComputationFunction => async (task) => {
    begun.push(name);
    await task.params();
    return {n: 1};
  };
  offer(context, {waits: named("never")}, {prepareAhead: 0});
  const stopping = new Worker({server: sheafd.http, computations: {waits: named("stopped")}, log: silent, graceMs: 60_000});
  const running = stopping.run();
  const round = await server.announce("waits", {outputs: N, tasks: 1});
  await until("it is prepared", () => begun.length === 1);
  assert.deepEqual(begun, ["stopped"]);
  stopping.stop();
  await running;
  assert.deepEqual(valuesOf(await (await round.open({w: [0]})).result(), "n"), [1]);
  assert.deepEqual(begun, ["stopped", "never"]);
});

test("A broadcast of any kind opens a round", async (context) => {
  offer(context, {add_one, one: () => ({n: 1})});
  const w = new Tensor(new Float64Array(3), [3]);
  // One that is too large to travel along with a call.
  const large = {w, more: new Tensor(new Float64Array(200_000).map((_, i) => Math.sin(i)), [200_000])};
  for (const broadcast of [{w}, encodeSafetensors({w}), await server.upload({w}), large]) {
    const round = await server.announce("add_one", {outputs: W, tasks: 1});
    assert.deepEqual(valuesOf(await (await round.open(broadcast)).result()), [1, 1, 1]);
  }
  const without = await server.announce("one", {outputs: N, tasks: 1});
  assert.deepEqual(valuesOf(await (await without.open()).result(), "n"), [1]);
});

test("What cannot be opened says why", async (context) => {
  offer(context, {add_one});
  const [w, other] = [{w: [0, 0, 0]}, {w: [1, 1, 1]}];
  const round = await (await server.announce("add_one", {outputs: W, tasks: 1})).open(w);
  await assert.rejects(round.open(other), {
    code: "FAILED_PRECONDITION", message: /was opened with the broadcast [0-9a-f]{64}, and cannot be opened with another/,
  });
  await round.result();
  await assert.rejects(round.open(other), {code: "FAILED_PRECONDITION", message: /cannot be opened with another/});
  const created = await server.create("nobody", {outputs: N, tasks: 1});
  await assert.rejects(created.open(w), {code: "FAILED_PRECONDITION", message: /was not announced: it was open from its creation on/});
  const late = await server.announce("nobody", {outputs: N, tasks: 1, announceDeadline: 0.05});
  await late.wait();
  await assert.rejects(late.open(w), {code: "FAILED_PRECONDITION", message: /is FAILED.*cannot be opened any more/});
  const cancelled = await (await server.announce("nobody", {outputs: N, tasks: 1})).cancel("enough");
  await assert.rejects(cancelled.open(w), {code: "FAILED_PRECONDITION", message: /is CANCELLED, enough: it cannot be opened any more/});
  await assert.rejects((await server.announce("nobody", {outputs: N, tasks: 1})).open("0".repeat(64)), {code: "NOT_FOUND"});
  await assert.rejects(server.announce("add_one", {outputs: W, tasks: 1, broadcast: w} as RoundOptions), {
    code: "INVALID_ARGUMENT", message: /comes when it is opened: round.open/,
  });
  await assert.rejects(server.create("add_one", {outputs: W, tasks: 1, announceDeadline: 1}), {
    code: "INVALID_ARGUMENT", message: /announce_deadline is for announced rounds/,
  });
});

for (const ahead of [0, 1, 4]) {
  test(`A loop gives the same values however many rounds are ahead: ${ahead}`, async (context) => {
    offer(context, {add_one});
    let w = [0, 0, 0];
    const seen = [];
    for await (const result of server.loop("add_one", {outputs: W, tasks: 1, broadcast: () => ({w})}, {rounds: 6, ahead})) {
      w = w.map((value, i) => value + valuesOf(result)[i]!);
      seen.push(w[0]);
    }
    assert.deepEqual(seen, [1, 3, 7, 15, 31, 63]);
  });
}

test("Options are asked for ahead, and the broadcast when the round before was applied", async (context) => {
  offer(context, {add_one});
  const [job, asked] = [newJob(), [] as string[]];
  let w = [0, 0, 0];
  const tasks = async () => {
    await sleep(1);
    asked.push("tasks");
    return 1;
  };
  const broadcast = async () => {
    asked.push(`broadcast ${w[0]}`);
    return {w};
  };
  const apply = async (result: Result) => {
    // The next round is not opened before it is over.
    await sleep(20);
    asked.push("apply");
    w = valuesOf(result);
  };
  for await (const result of server.loop("add_one", {outputs: W, tasks, broadcast, job}, {rounds: 3, ahead: 1, apply})) {
    assert.ok(result.round.hasEnded);
    asked.push("body");
    const now = await states(job);
    assert.ok(now.filter((state) => state === "ANNOUNCED").length <= 1, now.join());
    // The next one runs already.
    assert.ok(now.includes("SUCCEEDED") && now.length === Math.min(3, w[0]! + 2), now.join());
  }
  assert.deepEqual(asked, [
    "tasks", "broadcast 0", "tasks", "apply", "broadcast 1", "tasks", "body", "apply", "broadcast 2", "body", "apply", "body",
  ]);
  assert.deepEqual(await states(job), ["SUCCEEDED", "SUCCEEDED", "SUCCEEDED"]);
});

test("A buffered loop takes what slow workers bring into a later round", async (context) => {
  const after = (millis: number, n: number): ComputationFunction => async () => {
    await sleep(millis);
    return {n};
  };
  for (const uneven of [after(700, 100), after(50, 1), after(50, 1)]) offer(context, {uneven});
  const results: Result[] = [];
  const broughtBy = (result: Result) => valuesOf(result, "n")[0]!;
  for await (const result of server.loop("uneven", {outputs: N, tasks: {count: 3, perWorkerMax: 1}, goal: 2, staleness: {max: 100}},
                                         {buffered: true})) {
    results.push(result);
    if (broughtBy(result) >= 100) break;
    assert.ok(results.length < 100, "what the slow one brings is lost");
  }
  // It counts once, in the round that was there when it came; its worker knows nothing of it.
  assert.ok(results.length > 1);
  assert.ok(results.slice(0, -1).every((result) => broughtBy(result) < 100));
  assert.ok(results.every((result) => result.numContributions >= 2));
  const last = results.at(-1)!;
  const staleness = last.round.contributionsByStaleness;
  assert.equal(Math.max(...Object.keys(staleness).map(Number)), results.length - 1);
  assert.equal(Object.values(staleness).reduce((all, each) => all + each, 0), last.numContributions);
  assert.deepEqual(results[0]!.round.contributionsByStaleness, {});
  for (const [i, {round}] of results.entries()) {
    assert.equal(round.message.spec!.continues, i === 0 ? "" : results[i - 1]!.round.id);
    assert.equal(round.message.spec!.staleness?.max, i === 0 ? undefined : 100);
  }
});

test("A round of one's own continues another, and takes over what runs of it", async (context) => {
  let release = (): void => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  offer(context, {carry: async (task) => {
    if (task.dataSelector === "slow") await held;
    return {n: task.dataSelector === "slow" ? 100 : 1};
  }});
  const options = {outputs: N, goal: 1, minClients: 1, job: newJob()};
  const first = await server.create("carry", {...options, tasks: ["slow", "fast"]});
  while (first.tasks.leased === 0) await first.refresh();
  const second = await server.announce("carry", {...options, tasks: ["fast"], continues: first.id, staleness: {function: "constant", max: 1}});
  offer(context, {carry: () => ({n: 1})});
  assert.deepEqual(valuesOf(await first.result(), "n"), [1]);
  release();
  while (second.numContributions === 0) await second.refresh();
  assert.equal(second.state, "ANNOUNCED");
  assert.deepEqual(second.contributionsByStaleness, {1: 1});
  // It has its goal before it opens.
  assert.deepEqual(valuesOf(await (await second.open()).result(), "n"), [100]);
});

test("Options of stragglers and of staleness are checked by their names and kinds", async () => {
  const refused = async (options: object, message: RegExp) => {
    await assert.rejects(server.create("nobody", {outputs: N, tasks: 1, ...options}), {code: "INVALID_ARGUMENT", message});
  };
  await refused({staleness: {least: 1}}, /staleness has no least; it has function, exponent, max/);
  await refused({staleness: {max: 1.5}}, /staleness max is an integer, and not 1.5/);
  await refused({staleness: {max: "5"}}, /staleness max is an integer, and not "5"/);
  await refused({staleness: {function: "linear"}}, /staleness function is "constant" or "polynomial", and not "linear"/);
  await refused({staleness: {max: 5}}, /spec.staleness is for a round that continues another/);
  await refused({staleness: 5}, /staleness is an object with some of function, exponent, max, and not 5/);
  await refused({straggler: {age: 1}}, /straggler has no age; it has speculate, remainingShareMax, .*, deadlineFactor/);
  await refused({straggler: {ageMin: -1}}, /straggler ageMin is a positive number of seconds, and not -1/);
  await refused({straggler: {deadlineFactor: 0.5}}, /spec.straggler.deadline_factor/);
  await assert.rejects(server.create("nobody", {outputs: N, tasks: 1, continues: "r-none"}), {
    code: "NOT_FOUND", message: /spec.continues names round r-none/,
  });
  const round = await server.create("nobody", {outputs: N, tasks: 1, straggler: {speculate: true, ageMin: 0.25, finishedMin: 2}});
  const {speculate, ageMin, finishedMin} = round.message.spec!.straggler!;
  assert.deepEqual([speculate, ageMin!.nanos, finishedMin], [true, 250_000_000, 2]);
  await round.cancel();
});

for (const [apply, numLeft] of [[undefined, 3], [() => {}, 4]] as const) {
  test(`A loop that is left cancels what it began ahead, ${apply === undefined ? "without" : "with"} apply`, async (context) => {
    offer(context, {add_one});
    const job = newJob();
    for await (const result of server.loop("add_one", {outputs: W, tasks: 1, broadcast: {w: [0, 0, 0]}, job}, {ahead: 3, apply})) {
      assert.deepEqual(valuesOf(result), [1, 1, 1]);
      break;
    }
    const ended = await states(job);
    assert.equal(ended.length, 1 + numLeft);
    assert.equal(ended[0], "SUCCEEDED");
    assert.ok(ended.slice(2).every((state) => state === "CANCELLED"), ended.join());
    // The one that was opened while the body ran may have come to its end.
    assert.ok((apply === undefined ? ["CANCELLED"] : ["CANCELLED", "SUCCEEDED", "SEALING"]).includes(ended[1]!), ended.join());
  });
}

test("A loop in which something is thrown cancels what it began ahead, and says in which round", async (context) => {
  offer(context, {fail: async (task) => {
    if (((await task.params()).get("number") as Tensor).item() === 2) throw new WrongTask("no");
    return {n: 1};
  }});
  const job = newJob();
  let number = 0;
  const numbered = {outputs: N, tasks: 1, broadcast: () => ({number: ++number}), job};
  await assert.rejects(all(server.loop("fail", numbered, {rounds: 9, ahead: 2})), (error: unknown) => {
    assert.ok(error instanceof RoundFailed, String(error));
    assert.match(error.message, /^round r-\w+ failed: .* \(in round 2 of 9 of the loop\)$/);
    assert.match(error.stack!, /in round 2 of 9 of the loop/);
    return true;
  });
  assert.deepEqual(await states(job), ["SUCCEEDED", "FAILED", "CANCELLED", "CANCELLED"]);

  const options = {outputs: N, tasks: 1};
  const noModel = () => { throw new RangeError("no model"); };
  await assert.rejects(all(server.loop("fail", {...options, broadcast: noModel}, {rounds: 2, ahead: 1})), {
    name: "RangeError", message: "no model (in round 1 of 2 of the loop)",
  });
  // What lets nothing be added to it is thrown as it is.
  const frozen = Object.freeze(new RangeError("no model"));
  await assert.rejects(all(server.loop("fail", {...options, broadcast: () => { throw frozen; }})), (error) => error === frozen);
});

test("What a loop is told wrongly is refused before anything begins", async () => {
  const options = {outputs: N, tasks: 1, job: newJob()};
  const refused = async (options: unknown, how: unknown, message: RegExp) => {
    await assert.rejects(all(server.loop("nobody", options as ChangingOptions, how as LoopOptions)), {code: "INVALID_ARGUMENT", message});
  };
  await refused(options, {ahead: -1}, /announces 0 or more rounds ahead, and not -1/);
  await refused(options, {ahead: 0.5}, /announces 0 or more rounds ahead, and not 0.5/);
  await refused(options, 20, /how many rounds a loop has is said by \{rounds: 20\}/);
  await refused(options, {round: 20}, /a loop has no argument round; it has rounds, ahead, apply, buffered, timeout, onProgress/);
  await refused(() => options, {}, /the options of a loop are an object; .* such as broadcast: \(\) => \(\{w\}\)/);
  assert.deepEqual(await states(options.job), []);
});

/** The same server, with something between it and its caller. */
function through(between: (method: string, request: any) => void): Server {
  const inner = new ConnectTransport({server: sheafd.http});
  const transport: Transport = {
    call: (method, request, options, done) => {
      between(method.name, request);
      return inner.call(method, request, options, done);
    },
  };
  return connect({transport});
}

test("A server that does not know announced rounds is told from one that does", async () => {
  const job = newJob();
  const old = through((method, request) => {
    if (method === "CreateRound") request.spec.announced = false;
  });
  await assert.rejects(old.announce("nobody", {outputs: N, tasks: 1, job}), {code: "UNIMPLEMENTED", message: /older than announced rounds/});
  assert.deepEqual(await states(job), ["CANCELLED"]);
});

test("A small round that is announced takes no calls but to announce, to open and to wait", async (context) => {
  offer(context, {add_one});
  const made = new Set<string>();
  const counted = through((method) => void made.add(method));
  assert.equal((await all(counted.loop("add_one", {outputs: W, tasks: 1, broadcast: {w: [0, 0, 0]}}, {rounds: 3, ahead: 1}))).length, 3);
  assert.deepEqual([...made].sort(), ["CreateRound", "GetRound", "OpenRound"]);
});

// Of each of these rows, its first value and its last one.
const ROWS = [0, 1, 2, 3, 4999];
const endsOf = (data: ArrayLike<number | bigint>, rows: readonly number[]): number[] => (
  rows.map((row) => Number(data[row * 64]) + Number(data[row * 64 + 63])));

for (const ahead of [0, 2]) {
  test(`A loop about a large model sends what has changed, and workers see all of it, with ahead: ${ahead}`, async (context) => {
    offer(context, {look: async (task) => {
      if (task.dataSelector === "rows") return {w: endsOf((await task.rows("table", ROWS)).data, ROWS.map((_, i) => i))};
      return {w: endsOf(((await task.params()).get("table") as Tensor).data, ROWS)};
    }});
    const sent: string[] = [];
    const counted = through((method, request) => {
      if (method === "StartUpload") sent.push(request.sizeBytes > 1_000_000n ? "whole" : "patch");
      if (method === "CreateRound" || method === "OpenRound") sent.push(...(request.broadcast.length > 0 ? ["inline"] : []));
    });
    const values = new Float32Array(5000 * 64).fill(1);
    let round = 0;
    const broadcast = () => {
      // Nothing has changed in the third.
      if (++round !== 1 && round !== 3) for (const row of [1, 4999]) values[row * 64] = round;
      return {table: new Tensor(values, [5000, 64])};
    };
    const [seen, expected] = [[] as number[][], [] as number[][]];
    const apply = (result: Result) => {
      // Of two tasks.
      seen.push(valuesOf(result).map((value) => value / 2));
      expected.push(endsOf(values, ROWS));
    };
    const options = {outputs: {w: sum(5)}, tasks: ["rows", "whole"], broadcast};
    assert.equal((await all(counted.loop("look", options, {rounds: 5, ahead, apply}))).length, 5);
    assert.deepEqual(seen, expected);
    assert.deepEqual(seen.at(-1), [2, 6, 2, 2, 6]);
    assert.deepEqual(sent, ["whole", "inline", "inline", "inline"]);
  });
}

const READER = `
import sheaf

@sheaf.computation
def slow_to_read(task):
    with open(task.data / task.round, "a") as log:
        log.write("read\\n")
        log.flush()
        w = task.params["w"]
        log.write("run\\n")
    return {"w": w + 1}

sheaf.work()
`;

const PYTHON = join(process.env["SHEAF_BINARIES"]!, "../python");
const noPython = existsSync(join(PYTHON, "sheaf")) ? false : "this build has no Python package";

test("Workers read their data before a program in JavaScript opens the round", {skip: noPython}, async () => {
  const [script, notes] = [join(sheafd.directory, "reader.py"), join(sheafd.directory, "notes")];
  writeFileSync(script, READER);
  mkdirSync(notes);
  sheafd.helper(program("sheaf-worker"), [
    "--server", sheafd.address, "--serve", `slow_to_read=/usr/bin/python3 ${script}`, "--env", "PYTHONPATH", "--data", `notes=${notes}`,
    "--prepare-ahead", "1", "--name", "reader", "--log-level", "error",
  ], {PYTHONPATH: PYTHON});
  const round = await server.announce("slow_to_read", {outputs: W, tasks: 1});
  const log = join(notes, round.id);
  await until("somebody prepares", () => existsSync(log) && readFileSync(log, "utf8") === "read\n");
  assert.equal((await round.refresh()).state, "ANNOUNCED");
  assert.deepEqual(valuesOf(await (await round.open({w: [0, 0, 0]})).result({timeout: 30})), [1, 1, 1]);
  assert.equal(readFileSync(log, "utf8"), "read\nrun\n");
});
