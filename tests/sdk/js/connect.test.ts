// Clients that know nothing of this package: connect-web as it comes, and curl. What they are served is what the Connect protocol
// says (https://connectrpc.com/docs/protocol, unary).
import assert from "node:assert/strict";
import {execFile} from "node:child_process";
import test, {after, before} from "node:test";
import {promisify} from "node:util";

import {create, type DescMethodUnary, type DescService, fromBinary, fromJson, toBinary, toJson} from "@bufbuild/protobuf";
import {Code, ConnectError, createClient, type Transport} from "@connectrpc/connect";
import {createConnectTransport} from "@connectrpc/connect-web";

import {AccessService} from "../../../sdk/js/gen/sheaf/v1/access_service_pb.js";
import {BlobService} from "../../../sdk/js/gen/sheaf/v1/blob_service_pb.js";
import {InspectionService} from "../../../sdk/js/gen/sheaf/v1/inspection_service_pb.js";
import {CreateRoundRequestSchema, RoundService} from "../../../sdk/js/gen/sheaf/v1/round_service_pb.js";
import {WorkService} from "../../../sdk/js/gen/sheaf/v1/work_service_pb.js";
import {connect, sum, Worker, silent} from "../../../sdk/js/src/index.js";
import {Sheafd} from "./sheafd.js";

const SERVICES: DescService[] = [AccessService, BlobService, InspectionService, RoundService, WorkService];
// Of google.protobuf.MethodOptions.IdempotencyLevel.
const NO_SIDE_EFFECTS = 1;
const run = promisify(execFile);

let sheafd: Sheafd;
let round: string;

before(async () => {
  sheafd = await Sheafd.start();
  const worker = new Worker({server: sheafd.http, computations: {one: () => ({x: 1})}, log: silent});
  const running = worker.run();
  round = (await connect(sheafd.http).run("one", {outputs: {x: sum([])}, tasks: 1})).round.id;
  worker.stop();
  await running;
});
after(() => sheafd.close());

/** Every method that only looks. */
function reads(): DescMethodUnary[] {
  const methods = SERVICES.flatMap(({methods}) => methods) as DescMethodUnary[];
  return methods.filter(({idempotency}) => Number(idempotency) === NO_SIDE_EFFECTS);
}

/** A request of it that this server has an answer to. */
function question(method: DescMethodUnary): any {
  const request: any = create(method.input);
  if ("round" in request) request.round = round;
  if ("task" in request) request.task = `${round}/0`;
  return request;
}

test("connect-web as it comes calls every read, by GET and POST, serialised and as JSON", async () => {
  const names = reads().map(({name}) => name);
  for (const name of ["GetRound", "ListRounds", "ReadAggregate", "DescribeQueue", "ListTasks", "ListTokens", "GetServerInfo"]) {
    assert.ok(names.includes(name), name);
  }
  for (const useHttpGet of [true, false]) {
    for (const useBinaryFormat of [true, false]) {
      const methods: string[] = [];
      const transport = createConnectTransport({
        baseUrl: `http://${sheafd.http}`, useHttpGet, useBinaryFormat,
        fetch: (input, init) => {
          methods.push(init?.method ?? "GET");
          return fetch(input, init);
        },
      });
      for (const method of reads()) {
        const client: any = createClient(method.parent, transport);
        const answer = await client[method.localName](question(method));
        assert.equal(answer.$typeName, method.output.typeName);
      }
      assert.deepEqual(new Set(methods), new Set([useHttpGet ? "GET" : "POST"]));
    }
  }
});

test("curl calls every read, and gets what connect-web gets", async () => {
  const client: Transport = createConnectTransport({baseUrl: `http://${sheafd.http}`, useBinaryFormat: true});
  for (const method of reads()) {
    const request = question(method);
    const path = `http://${sheafd.http}/${method.parent.typeName}/${method.name}`;
    const text = JSON.stringify(toJson(method.input, request));
    const ask = async (...args: string[]) => fromJson(method.output, JSON.parse((await run("curl", ["-sS", "--fail-with-body", ...args])).stdout));
    const posted = await ask("-H", "content-type: application/json", "-d", text, path);
    const got = await ask("-G", "--data-urlencode", `message=${text}`, "-d", "encoding=json", "-d", "connect=v1", path);
    const {message} = await client.unary(method, undefined, undefined, undefined, request);
    for (const answer of [posted, got]) assert.equal(answer.$typeName, message.$typeName);
    // What the server counts and times changes from call to call.
    if (["GetRound", "ReadAggregate", "GetTask", "ListTasks"].includes(method.name)) {
      for (const answer of [posted, got]) assert.deepEqual(toBinary(method.output, answer), toBinary(method.output, message as any));
    }
  }
});

// --- A table of what the specification says ---------------------------------------------------------------------------

const INFO = "sheaf.v1.InspectionService/GetServerInfo";
const GET_ROUND = "sheaf.v1.RoundService/GetRound";
const JSON_TYPE = {"content-type": "application/json"};

interface Row {
  what: string;
  method?: string;
  /** Of the server. */
  path: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  status: number;
  /** Of the error, if it is one. */
  code?: string;
  type?: string;
  headersHave?: Record<string, RegExp>;
}

const TABLE: Row[] = [
  {what: "an empty message as JSON", path: INFO, headers: JSON_TYPE, body: "{}", status: 200, type: "application/json"},
  {what: "an empty serialised message", path: INFO, headers: {"content-type": "application/proto"}, body: "", status: 200, type: "application/proto"},
  {what: "the version of the protocol", path: INFO, headers: {...JSON_TYPE, "connect-protocol-version": "1"}, body: "{}", status: 200},
  {what: "another version", path: INFO, headers: {...JSON_TYPE, "connect-protocol-version": "2"}, body: "{}", status: 400, code: "invalid_argument"},
  {what: "a parameter of the type", path: INFO, headers: {"content-type": "application/json; charset=utf-8"}, body: "{}", status: 200},
  {what: "an encoding that is none", path: INFO, headers: {...JSON_TYPE, "content-encoding": "identity"}, body: "{}", status: 200},
  {what: "an encoding that is not spoken", path: INFO, headers: {...JSON_TYPE, "content-encoding": "br"}, body: "{}", status: 501, code: "unimplemented"},
  {what: "encodings that are taken", path: INFO, headers: {...JSON_TYPE, "accept-encoding": "br, gzip"}, body: "{}", status: 200},
  {what: "a timeout", path: INFO, headers: {...JSON_TYPE, "connect-timeout-ms": "5000"}, body: "{}", status: 200},
  {what: "a timeout of eleven digits", path: INFO, headers: {...JSON_TYPE, "connect-timeout-ms": "12345678901"}, body: "{}", status: 400, code: "invalid_argument"},
  {what: "a timeout that is no number", path: INFO, headers: {...JSON_TYPE, "connect-timeout-ms": "-1"}, body: "{}", status: 400, code: "invalid_argument"},
  {what: "a codec that is not spoken", path: INFO, headers: {"content-type": "application/xml"}, body: "", status: 415,
   headersHave: {"accept-post": /application\/proto.*application\/json/}},
  {what: "a streaming type", path: INFO, headers: {"content-type": "application/connect+json"}, body: "{}", status: 415},
  {what: "a method that is not there", path: "sheaf.v1.InspectionService/Nothing", headers: JSON_TYPE, body: "{}", status: 404, code: "unimplemented"},
  {what: "a service that is not there", path: "nothing.v1.Nothing/Nothing", headers: JSON_TYPE, body: "{}", status: 404, code: "unimplemented"},
  {what: "no message", path: INFO, headers: JSON_TYPE, body: "{", status: 400, code: "invalid_argument"},
  {what: "not_found", path: GET_ROUND, headers: JSON_TYPE, body: '{"round": "r-none"}', status: 404, code: "not_found"},
  {what: "invalid_argument", path: "sheaf.v1.BlobService/StartUpload", headers: JSON_TYPE, body: "{}", status: 400, code: "invalid_argument"},
  {what: "deadline_exceeded", path: "sheaf.v1.WorkService/Sync", headers: {...JSON_TYPE, "connect-timeout-ms": "50"}, status: 504, code: "deadline_exceeded",
   body: JSON.stringify({protocolVersion: 1, worker: "late", pollId: "p", want: 1, wait: "10s", computations: [{name: "never", version: 1}]})},
  {what: "GET", method: "GET", path: `${INFO}?connect=v1&encoding=json&message=%7B%7D`, status: 200, type: "application/json"},
  {what: "GET, serialised", method: "GET", path: `${INFO}?connect=v1&encoding=proto&base64=1&message=`, status: 200, type: "application/proto"},
  {what: "GET in another order", method: "GET", path: `${INFO}?message=%7B%7D&encoding=json&connect=v1`, status: 200},
  {what: "GET with base64 that is padded", method: "GET", path: `${INFO}?encoding=json&base64=1&message=e30=`, status: 200},
  {what: "GET with base64 that is not", method: "GET", path: `${INFO}?encoding=json&base64=1&message=e30`, status: 200},
  {what: "GET of another version", method: "GET", path: `${INFO}?connect=v2&encoding=json&message=%7B%7D`, status: 400, code: "invalid_argument"},
  {what: "GET of a codec that is not spoken", method: "GET", path: `${INFO}?connect=v1&encoding=xml&message=x`, status: 415},
  {what: "GET without a message", method: "GET", path: `${INFO}?connect=v1&encoding=json`, status: 400, code: "invalid_argument"},
  {what: "GET of what has side effects", method: "GET", path: "sheaf.v1.RoundService/CancelRound?connect=v1&encoding=json&message=%7B%7D", status: 405,
   headersHave: {allow: /POST/}},
  {what: "another verb", method: "PUT", path: INFO, headers: JSON_TYPE, body: "{}", status: 405, headersHave: {allow: /GET.*POST|POST.*GET/}},
];

test("Requests and answers are what the specification says, row by row", async () => {
  for (const {what, method = "POST", path, headers = {}, body, status, code, type, headersHave = {}} of TABLE) {
    const answer = await fetch(`http://${sheafd.http}/${path}`, {method, headers, ...(body !== undefined && {body: body as any})});
    const text = await answer.text();
    assert.equal(answer.status, status, `${what}: ${text}`);
    if (type !== undefined) assert.equal(answer.headers.get("content-type"), type, what);
    for (const [name, pattern] of Object.entries(headersHave)) assert.match(answer.headers.get(name) ?? "", pattern, `${what}: ${name}`);
    if (code === undefined) continue;
    assert.equal(answer.headers.get("content-type"), "application/json", what);
    const error = JSON.parse(text);
    assert.equal(error.code, code, what);
    assert.ok(typeof error.message === "string" && error.message.length > 0, what);
  }
});

test("Errors reach a client with code, sentence and details", async () => {
  const client = createClient(RoundService, createConnectTransport({baseUrl: `http://${sheafd.http}`, useBinaryFormat: true}));
  await assert.rejects(client.getRound({round: "r-none"}), (error) => {
    assert.ok(error instanceof ConnectError);
    assert.equal(error.code, Code.NotFound);
    assert.match(error.rawMessage, /r-none/);
    return true;
  });
});

test("Unknown fields are ignored, and names may be those of the proto", async () => {
  const answer = await fetch(`http://${sheafd.http}/${GET_ROUND}`, {
    method: "POST", headers: JSON_TYPE, body: JSON.stringify({round, aggregate_bytes_max: "10", aFieldOfTheFuture: {a: [1]}}),
  });
  assert.equal(answer.status, 200);
  const created = toBinary(CreateRoundRequestSchema, create(CreateRoundRequestSchema, {requestId: "r"}));
  // A field with the number 500, as bytes.
  const future = Uint8Array.of(...created, 0xa2, 0x1f, 1, 7);
  const refused = await fetch(`http://${sheafd.http}/sheaf.v1.RoundService/CreateRound`, {
    method: "POST", headers: {"content-type": "application/proto"}, body: future,
  });
  // It was read, and lacks a computation.
  assert.equal(refused.status, 400);
  assert.doesNotMatch((await refused.json() as {message: string}).message, /serialised/);
  assert.equal(fromBinary(CreateRoundRequestSchema, future).requestId, "r");
});
