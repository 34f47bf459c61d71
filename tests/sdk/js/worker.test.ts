// The worker as its author sees it, against a stand-in for the server; and calls over HTTP as they travel.
import assert from "node:assert/strict";
import {createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse} from "node:http";
import type {AddressInfo} from "node:net";
import test from "node:test";

import {create, type DescMethodUnary, fromBinary, type MessageShape, toBinary} from "@bufbuild/protobuf";

import {type AggregateSpec, ContributionSchema} from "../../../sdk/js/gen/sheaf/v1/aggregation_pb.js";
import {
  BlobService, ReadBlobResponseSchema, type SelectRowsRequest, SelectRowsResponseSchema,
} from "../../../sdk/js/gen/sheaf/v1/blob_service_pb.js";
import {DType} from "../../../sdk/js/gen/sheaf/v1/tensor_pb.js";
import {
  LeaseSchema, LeaseUpdate_Verdict, ResultVerdict_Verdict, type SyncRequest, type SyncResponse, SyncResponseSchema,
  type TaskResult, WorkService,
} from "../../../sdk/js/gen/sheaf/v1/work_service_pb.js";
import {toDuration} from "../../../sdk/js/src/durations.js";
import {
  type CallOptions, type Computation, ConnectTransport, connect, contributionOf, Declined, type Done, encodeSafetensors,
  keyed_sum, type LeasedTask, SeededRandom, SheafError, silent, slices_sum, Sparse, sum, Tensor, type Transport, Update,
  weighted_mean, Worker, type WorkerConfig, WrongTask,
} from "../../../sdk/js/src/index.js";
import {aggregateSpec} from "../../../sdk/js/src/program/round_spec.js";
import {sha256Hex} from "../../../sdk/js/src/transfer/sha256.js";
import {callAsync} from "../../../sdk/js/src/transport.js";

const TABLE = Array.from({length: 40}, (_, i) => [i, -i]);
const BROADCAST = encodeSafetensors({
  w: new Tensor(Float32Array.from(TABLE.flat()), [40, 2]),
  "s.indices": new Tensor(BigInt64Array.of(3n), [1, 1]), "s.values": new Tensor(Float32Array.of(1.5), [1]),
  "s.dense_shape": new Tensor(BigInt64Array.of(9n)),
});

/** Has tasks for one worker, and parks its calls when there is none left. */
class OneTaskServer implements Transport {
  readonly results: TaskResult[] = [];
  readonly calls: string[] = [];
  onHeld: LeaseUpdate_Verdict = LeaseUpdate_Verdict.HELD;
  leaseMs = 30_000;
  private readonly aggregate: AggregateSpec;
  private readonly payload: string;
  private tasks = 1;

  constructor(outputs: Parameters<typeof aggregateSpec>[0], payload = "null") {
    this.aggregate = aggregateSpec(outputs);
    this.payload = payload;
  }

  call<M extends DescMethodUnary>(
    method: M, request: MessageShape<M["input"]>, _options: CallOptions, done: Done<M>,
  ): () => void {
    this.calls.push(method.name);
    let isOpen = true;
    const answer = this.answer(method, request);
    if (answer !== null) setTimeout(() => isOpen && done(null, answer as MessageShape<M["output"]>), 1);
    return () => (isOpen = false);
  }

  private answer(method: DescMethodUnary, request: unknown): unknown {
    if (method === (WorkService.method.sync as DescMethodUnary)) return this.sync(request as SyncRequest);
    if (method === (BlobService.method.readBlob as DescMethodUnary)) {
      return create(ReadBlobResponseSchema, {data: BROADCAST, sizeBytes: BigInt(BROADCAST.length)});
    }
    const {selections} = request as SelectRowsRequest;
    return create(SelectRowsResponseSchema, {pieces: selections.map(({rows}, selection) => ({
      selection,
      rows: {
        dtype: DType.FLOAT32, shape: [BigInt(rows.length), 2n],
        data: new Uint8Array(Float32Array.from(rows.flatMap((row) => TABLE[Number(row)]!)).buffer),
      },
    }))});
  }

  private sync(request: SyncRequest): SyncResponse | null {
    this.results.push(...request.results);
    const leases = request.want > 0 && this.tasks > 0 ? [this.lease(--this.tasks)] : [];
    const isNews = request.results.length > 0 || request.held.length > 0 || leases.length > 0 || request.draining;
    if (!isNews) return null;
    return create(SyncResponseSchema, {
      leases, inlineBytesMax: 1n << 20n,
      verdicts: request.results.map(({task, leaseToken}) => ({task, leaseToken, verdict: ResultVerdict_Verdict.ACCEPTED})),
      held: request.held.map(({task, leaseToken}) => (
        {task, leaseToken, verdict: this.onHeld, remaining: toDuration(this.leaseMs)})),
    });
  }

  private lease(i: number) {
    return create(LeaseSchema, {
      task: `r-1/${i}`, round: "r-1", leaseToken: `token-${i}`, attempt: 1, remaining: toDuration(this.leaseMs),
      computation: {name: "it"}, payload: new TextEncoder().encode(this.payload), aggregate: this.aggregate,
      broadcastDigest: sha256Hex(BROADCAST), minClients: 3n, dataSelector: "client:17",
    });
  }
}

/** Runs the computation for the server's tasks, and stops. */
async function work(server: OneTaskServer, run: Computation, config: Partial<WorkerConfig> = {}): Promise<TaskResult[]> {
  const worker: Worker = new Worker({
    transport: server, computations: {it: run}, log: silent, random: new SeededRandom(1), ...config,
    onChange: (changed) => {
      if (changed.counters.verdicts["ACCEPTED"] !== undefined || changed.counters.stopped > 0) worker.stop();
    },
  });
  await worker.run();
  assert.equal(worker.state, "done");
  return server.results;
}

function failureOf(results: TaskResult[]): {message: string; permanent: boolean} {
  const {outcome} = results[0]!;
  assert.equal(outcome.case, "failure");
  const {message, permanent} = outcome.value as {message: string; permanent: boolean};
  return {message, permanent};
}

test("What a computation returns is what the server is handed", async () => {
  const outputs = {age: weighted_mean([]), seen: keyed_sum("string")};
  const server = new OneTaskServer(outputs, '{"year": 1970}');
  const results = await work(server, async (task) => {
    assert.equal(task.payload.year, 1970);
    assert.equal(task.config, null);
    assert.equal(task.dataSelector, "client:17");
    assert.equal(task.id, "r-1/0");
    assert.equal(task.minClients, 3);
    assert.equal(task.numerics, "EXACT");
    assert.deepEqual(task.outputs.map(({name}) => name), ["age", "seen"]);
    assert.deepEqual(task.data, [40, 50]);
    return new Update({age: 45, seen: {a: 1}}, {weight: 2, loss: 0.5});
  }, {data: {people: [40, 50]}});
  const expected = contributionOf(new Update({age: 45, seen: {a: 1}}, {weight: 2, loss: 0.5}), aggregateSpec(outputs));
  assert.equal(results[0]!.outcome.case, "contribution");
  assert.deepEqual(results[0]!.outcome.value, expected);
});

test("Rows that are asked for in one moment are fetched by one call, and the broadcast once", async () => {
  const server = new OneTaskServer({w: slices_sum([40, 2], {dtype: "float32"})});
  const results = await work(server, async (task) => {
    const [first, second] = await Promise.all([task.rows("w", [3, 5, 3]), task.rows("w", Int32Array.of(7))]);
    assert.deepEqual(first.data, Float32Array.of(3, -3, 5, -5, 3, -3));
    assert.deepEqual(second.shape, [1, 2]);
    const {a} = await task.rowsOf({a: [1]});
    assert.deepEqual(a!.data, Float32Array.of(1, -1));
    const params = await task.params();
    assert.deepEqual(params.names(), ["w", "s"]);
    assert.deepEqual((params.get("s") as Sparse).toDense().data, Float32Array.of(0, 0, 0, 1.5, 0, 0, 0, 0, 0));
    assert.equal(await task.params(), params);
    return {w: new Sparse([3, 5], first.data.subarray(0, 4), [40, 2])};
  });
  assert.equal(results[0]!.outcome.case, "contribution");
  assert.deepEqual(server.calls.filter((name) => name !== "Sync"), ["SelectRows", "SelectRows", "ReadBlob"]);
});

test("The updates of several clients become one partial aggregate", async () => {
  async function* clients() {
    yield {w: [1]};
    yield new Update({w: [2]}, {weight: 3});
  }
  for (const series of [clients, () => [{w: [1]}, {w: [2]}]]) {
    const [result] = await work(new OneTaskServer({w: sum([1])}), series as Computation);
    const message = fromBinary(ContributionSchema, result!.outcome.value as Uint8Array);
    assert.equal(message.numClients, 2n);
    assert.equal(message.outputs[0]!.value.case, "state");
  }
});

test("A computation that declines gives its task back; one that fails says what kind of error it was, and no data", async () => {
  const outputs = {w: sum([])};
  const throwing = (error: unknown): Computation => () => {
    throw error;
  };
  const [declined] = await work(new OneTaskServer(outputs), throwing(new Declined("no record of Ms Smith")));
  assert.equal(declined!.outcome.case, "release");
  assert.doesNotMatch(JSON.stringify(declined!.outcome.value), /Smith/);
  assert.deepEqual(failureOf(await work(new OneTaskServer(outputs), throwing(new TypeError("no age of Ms Smith")))),
                   {message: 'INTERNAL: TypeError in computation "it"', permanent: false});
  assert.deepEqual(failureOf(await work(new OneTaskServer(outputs), throwing(new TypeError("no age")), {shareErrors: true})),
                   {message: 'INTERNAL: TypeError in computation "it": no age', permanent: false});
  assert.equal(failureOf(await work(new OneTaskServer(outputs), throwing(new WrongTask("of another study")))).permanent, true);
  const wrong = failureOf(await work(new OneTaskServer(outputs), () => ({w: [1, 2]})));
  assert.deepEqual(wrong, {
    message: 'INVALID_ARGUMENT: output "w", operator "sum": the array has shape [2], expected []', permanent: true,
  });
  assert.match(failureOf(await work(new OneTaskServer(outputs), () => 3 as never)).message, /TypeError/);
  assert.match(failureOf(await work(new OneTaskServer(outputs), {run: () => ({w: 1}), version: 2}, {contributionBytesMax: 4}))
                   .message, /returns at most 4/);
});

test("A task that is not wanted any more is told so, and what it waits for ends", async () => {
  const server = new OneTaskServer({w: sum([])});
  server.leaseMs = 600;
  server.onHeld = LeaseUpdate_Verdict.CANCELLED;
  let ended: unknown = null;
  await work(server, async (task: LeasedTask) => {
    await new Promise((resolve) => task.signal.addEventListener("abort", resolve));
    ended = await task.rows("w", [1]).catch((error: SheafError) => error.code);
    return {w: 1};
  });
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(ended, "CANCELLED");
  assert.equal(server.results.length, 0);
});

/** A server of HTTP whose answers are the test's. */
async function listening(handle: (request: IncomingMessage, body: Buffer, response: ServerResponse) => void):
    Promise<{address: string; server: HttpServer}> {
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece) => pieces.push(piece)).on("end", () => handle(request, Buffer.concat(pieces), response));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server};
}

test("Calls travel as the Connect protocol has them, with the token that is valid now", async () => {
  let secret = "one";
  const seen: string[] = [];
  const {address, server} = await listening((request, body, response) => {
    seen.push(`${request.method} ${request.url} ${request.headers["content-type"]} ${request.headers.authorization}`);
    assert.equal(request.headers["connect-protocol-version"], "1");
    assert.ok(Number(request.headers["connect-timeout-ms"]) > 0);
    assert.equal(body.length, 0);
    response.writeHead(200, {"content-type": "application/proto"}).end(toBinary(SyncResponseSchema, create(SyncResponseSchema)));
  });
  const transport = new ConnectTransport({server: address.replace("http://", ""), token: async () => secret});
  for (secret of ["one", "two"]) {
    await callAsync(transport, WorkService.method.sync, create(WorkService.method.sync.input), {timeoutMs: 5000});
  }
  assert.deepEqual(seen, ["one", "two"].map(
    (token) => `POST /sheaf.v1.WorkService/Sync application/proto Bearer ${token}`));
  server.close();
});

test("Errors over HTTP have the server's code, its sentence, and its hint when to come back", async () => {
  let answer: [number, string, Record<string, string>] = [400, "", {}];
  const {address, server} = await listening((_request, _body, response) => {
    if (answer[0] === 0) return void response.destroy();
    if (answer[0] === 1) return void response.writeHead(200, {"content-type": "application/proto", "content-length": "9"}).flushHeaders();
    response.writeHead(answer[0], {"content-type": "application/json", ...answer[2]}).end(answer[1]);
  });
  const transport = new ConnectTransport({server: address});
  const call = async (timeoutMs = 5000) => {
    try {
      await callAsync(transport, WorkService.method.sync, create(WorkService.method.sync.input), {timeoutMs});
      return null;
    } catch (error) {
      assert.ok(error instanceof SheafError);
      return error;
    }
  };
  answer = [429, '{"code":"resource_exhausted","message":"too much at once"}', {"grpc-retry-pushback-ms": "1500"}];
  const busy = await call();
  assert.deepEqual([busy!.code, busy!.message, busy!.retryAfterMs], ["RESOURCE_EXHAUSTED", "too much at once", 1500]);
  answer = [404, '{"code":"not_found","message":"there is no round r-x"}', {}];
  assert.equal((await call())!.toString(), "NOT_FOUND: there is no round r-x");
  answer = [503, "<html>a proxy</html>", {"content-type": "text/html"}];
  assert.equal((await call())!.code, "UNAVAILABLE");
  answer = [0, "", {}];
  assert.equal((await call())!.code, "UNAVAILABLE");
  answer = [1, "", {}];
  assert.equal((await call(50))!.code, "DEADLINE_EXCEEDED");
  server.closeAllConnections();
  server.close();
  assert.equal((await call())!.code, "UNAVAILABLE");
  // A program repeats it, but not for ever.
  await assert.rejects(connect({server: address, seconds: 0.2}).info(), {code: "UNAVAILABLE"});
});

test("A tab that slept gives up the calls that it had open, and calls again at once", async () => {
  let now = 1e12;
  const planned: {time: number; callback: () => void}[] = [];
  let calls = 0;
  const fetch = ((_input: unknown, init: RequestInit) => {
    ++calls;
    return new Promise((_resolve, reject) => init.signal!.addEventListener("abort", () => reject(init.signal!.reason)));
  }) as typeof globalThis.fetch;
  const worker = new Worker({
    computations: {it: () => ({w: 1})}, transport: new ConnectTransport({server: "http://127.0.0.1:1", fetch}), log: silent,
    random: new SeededRandom(1),
    clock: {
      now: () => now,
      after: (millis, callback) => {
        const entry = {time: now + millis, callback};
        planned.push(entry);
        return () => void planned.splice(planned.indexOf(entry), 1);
      },
    },
  });
  const running = worker.run();
  const settle = () => new Promise((resolve) => setTimeout(resolve, 5));
  await settle();
  assert.equal(calls, 1);
  const wakeUp = async () => {
    for (const {callback} of planned.splice(0)) callback();
    await settle();
  };
  // Parked, and awake: it goes on waiting.
  now += 10_000;
  await wakeUp();
  assert.equal(calls, 1);
  now += 3_600_000;
  await wakeUp();
  assert.equal(worker.counters.failedSyncs, 1);
  now += 500;
  await wakeUp();
  assert.equal(calls, 2);
  // Nobody hears that it stops.
  worker.stop();
  for (let i = 0; i < 5; ++i, now += 10_000) await wakeUp();
  await running;
});
