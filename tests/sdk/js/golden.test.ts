// The worker's loop asks what the C++ one asked, call by call, in all recorded transcripts: tests/golden/README.md.
import assert from "node:assert/strict";
import {existsSync, readdirSync, readFileSync} from "node:fs";
import {join} from "node:path";
import test from "node:test";

import {type DescMethodUnary, fromBinary, type Message, type MessageShape, toJson} from "@bufbuild/protobuf";

import {ContributionSchema} from "../../../sdk/js/gen/sheaf/v1/aggregation_pb.js";
import {BlobService, type StartUploadRequest} from "../../../sdk/js/gen/sheaf/v1/blob_service_pb.js";
import {type SyncRequest, WorkService} from "../../../sdk/js/gen/sheaf/v1/work_service_pb.js";
import {fromDuration} from "../../../sdk/js/src/durations.js";
import {type Code, SheafError} from "../../../sdk/js/src/errors.js";
import type {CallOptions, Done, Transport} from "../../../sdk/js/src/transport.js";
import {Agenda} from "./agenda.js";
import {StagedWorker} from "./staged_worker.js";

const GOLDEN = join(process.env["SHEAF_SOURCE"]!, "tests/golden");
const TOLERANCE = 2_000;
// How long it goes on after the transcript's last word.
const EPILOGUE = 3_000;
// Until a worker that is cut off knows that nothing will come.
const LOSS_NOTICED = 500;

const METHODS = new Map<string, DescMethodUnary>([WorkService, BlobService].flatMap((service) =>
  Object.values(service.method).map((method) => [`${service.typeName}/${method.name}`, method as DescMethodUnary] as const)));

interface Exchange {
  call: number;
  from: string;
  method: string;
  delivery: string;
  sent_ms: number;
  received_ms?: number;
  request_bytes?: string;
  status?: Code;
  message?: string;
  trailing?: Record<string, string>;
  response_bytes?: string;
}
interface Incident {
  at_ms: number;
  who: string;
  what: string;
}
interface Transcript {
  workers: Record<string, {concurrency: number; seed: number; prepare_ahead?: number}>;
  exchanges: Exchange[];
  incidents: Incident[];
}
interface Finding {
  /** As numbered in the transcript; 0 for what belongs to no call. */
  call: number;
  what: string;
}

function parse(file: string): Transcript {
  const lines = readFileSync(file, "utf8").split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
  const [header, ...rest] = lines;
  return {
    workers: header.workers ?? {},
    exchanges: rest.filter((line) => "call" in line),
    incidents: rest.filter((line) => "at_ms" in line),
  };
}

function bytes(base64: string | undefined): Uint8Array {
  return new Uint8Array(Buffer.from(base64 ?? "", "base64"));
}

/** What of a request is promised, as JSON; names that the worker chooses apart. */
function promised(method: DescMethodUnary, request: Message): {json: unknown; name: string; wait: number} {
  const json = toJson(method.input, request as never) as Record<string, any>;
  if (method === (BlobService.method.startUpload as DescMethodUnary)) {
    delete json["requestId"];
    return {json, name: (request as StartUploadRequest).requestId, wait: 0};
  }
  // Said since 0.2.
  if (method === (BlobService.method.readBlob as DescMethodUnary)) delete json["takesPatches"];
  if (method !== (WorkService.method.sync as DescMethodUnary)) return {json, name: "", wait: 0};
  const sync = request as SyncRequest;
  for (const free of ["pollId", "wait", "protocolVersion", "softwareVersion"]) delete json[free];
  for (const held of json["held"] ?? []) delete held.progress;
  (json["results"] ?? []).forEach((result: any, i: number) => {
    delete result.timings;
    if (result.failure) delete result.failure.message;
    if (result.release) delete result.release.reason;
    const {outcome} = sync.results[i]!;
    if (outcome.case === "contribution") {
      result.contribution = toJson(ContributionSchema, fromBinary(ContributionSchema, outcome.value));
    }
  });
  return {json, name: sync.pollId, wait: fromDuration(sync.wait)};
}

/** Answers a worker out of the transcript. */
class Prompter implements Transport {
  readonly findings: Finding[] = [];
  /** Nothing that it says arrives. */
  isCutOff = false;

  private readonly agenda: Agenda;
  private readonly start: number;
  private readonly left: Exchange[];
  // Names of the transcript, as this worker calls them; and back.
  private readonly names = new Map<string, string>();
  private readonly back = new Map<string, string>();
  private hasStrayed = false;

  constructor(agenda: Agenda, transcript: Transcript, worker: string) {
    this.agenda = agenda;
    this.start = agenda.now;
    this.left = transcript.exchanges.filter(({from}) => from === worker);
  }

  call<M extends DescMethodUnary>(
    method: M, request: MessageShape<M["input"]>, _options: CallOptions, done: Done<M>,
  ): () => void {
    const lost = () => done(new SheafError("UNAVAILABLE", "no answer"), null);
    const now = this.agenda.now - this.start;
    if (this.isCutOff) {
      this.agenda.after(LOSS_NOTICED, lost);
      return () => {};
    }
    const at = this.left.findIndex((exchange) => METHODS.get(exchange.method) === (method as DescMethodUnary));
    if (at < 0) {
      // Said once.
      if (!this.hasStrayed) this.findings.push({call: 0, what: `after ${now} ms it calls ${method.name}, which it did not`});
      this.hasStrayed = true;
      return () => {};
    }
    const [exchange] = this.left.splice(at, 1) as [Exchange];
    this.compare(method, exchange, request);
    if (Math.abs(now - exchange.sent_ms) > TOLERANCE) this.find(exchange, `sent: was after ${exchange.sent_ms} and is after ${now}`);
    if (exchange.received_ms === undefined) return () => {};
    this.agenda.after(exchange.received_ms - exchange.sent_ms, () => {
      if (exchange.delivery !== "answered" && exchange.delivery !== "turned away") return lost();
      if (exchange.status !== "OK" as Code) {
        const hint = exchange.trailing?.["grpc-retry-pushback-ms"];
        const retryAfterMs = hint === undefined ? undefined : Number(hint);
        return done(new SheafError(exchange.status!, exchange.message ?? "", {retryAfterMs}), null);
      }
      done(null, fromBinary(method.output, bytes(exchange.response_bytes)) as MessageShape<M["output"]>);
    });
    return () => {};
  }

  close(): void {
    for (const exchange of this.left) this.find(exchange, `${exchange.method} is not called`);
  }

  private find({call}: Exchange, what: string): void {
    this.findings.push({call, what});
  }

  private compare(method: DescMethodUnary, exchange: Exchange, request: Message): void {
    const before = promised(method, fromBinary(method.input, bytes(exchange.request_bytes)));
    const actual = promised(method, request);
    try {
      assert.deepStrictEqual(actual.json, before.json);
    } catch (error) {
      this.find(exchange, (error as Error).message);
    }
    if (Math.abs(before.wait - actual.wait) > TOLERANCE) this.find(exchange, `wait: was ${before.wait} and is ${actual.wait}`);
    if ((before.name === "") !== (actual.name === "")) {
      this.find(exchange, `the name: was "${before.name}" and is "${actual.name}"`);
      return;
    }
    if ((this.names.get(before.name) ?? actual.name) !== actual.name) this.find(exchange, `${before.name} has another name now`);
    if ((this.back.get(actual.name) ?? before.name) !== before.name) this.find(exchange, `${actual.name} is two things`);
    this.names.set(before.name, actual.name);
    this.back.set(actual.name, before.name);
  }
}

function play(transcript: Transcript, worker: string): Finding[] {
  const agenda = new Agenda();
  const start = agenda.now;
  const prompter = new Prompter(agenda, transcript, worker);
  let life: StagedWorker | null = null;
  let end = 0;
  for (const {sent_ms, received_ms} of transcript.exchanges) end = Math.max(end, sent_ms, received_ms ?? 0);
  for (const {at_ms, who, what} of transcript.incidents) {
    end = Math.max(end, at_ms);
    if (who !== worker) continue;
    agenda.at(start + at_ms, () => {
      if (what === "starts") life = new StagedWorker(agenda, prompter, worker, transcript.workers[worker]!);
      else if (what === "is told to stop") life!.requestDrain();
      else prompter.isCutOff = what === "is cut off";
    });
  }
  agenda.playUntil(start + end + EPILOGUE);
  prompter.close();
  return prompter.findings;
}

// What later versions do otherwise, for a reason: rows of exceptions.cc.
function exceptedCalls(name: string): Set<number> {
  const rows = readFileSync(join(GOLDEN, "exceptions.cc"), "utf8").matchAll(/\{"([^"]+)", Side::kWorker, (\d+),/g);
  return new Set([...rows].filter((row) => row[1] === name).map((row) => Number(row[2])));
}

const folders = readdirSync(GOLDEN).filter((name) => existsSync(join(GOLDEN, name, "sequences")));
for (const folder of folders.map((name) => `${name}/sequences`)) {
  for (const file of readdirSync(join(GOLDEN, folder))) {
    const name = `${folder}/${file.replace(/\.jsonl$/, "")}`;
    test(`Answered as in ${name}, the worker asks the same`, () => {
      const transcript = parse(join(GOLDEN, folder, file));
      const excepted = exceptedCalls(name);
      for (const worker of Object.keys(transcript.workers)) {
        const unexpected = play(transcript, worker).filter(({call}) => !excepted.has(call));
        assert.deepEqual(unexpected, [], worker);
      }
    });
  }
}

test("A worker that asks for more, or is not answered as it was, is found out", () => {
  const transcript = parse(join(GOLDEN, "v1/sequences/steady.jsonl"));
  transcript.workers["edge-1"]!.concurrency = 2;
  assert.notDeepEqual(play(transcript, "edge-1"), []);
  const silent = parse(join(GOLDEN, "v1/sequences/lost_answers.jsonl"));
  silent.exchanges.filter(({from}) => from === "edge-1").slice(3).forEach((exchange) => delete exchange.received_ms);
  assert.notDeepEqual(play(silent, "edge-1"), []);
});
