// Uploads, ranges and rows, whatever the server answers: what is wrong is refused, and nothing goes on for ever.
import assert from "node:assert/strict";
import test from "node:test";

import {create, type Message} from "@bufbuild/protobuf";

import {
  FinishUploadResponseSchema, QueryUploadResponseSchema, type ReadBlobRequest, ReadBlobResponseSchema,
  type SelectRowsRequest, type SelectRowsResponse, SelectRowsResponseSchema, type StartUploadRequest, StartUploadResponse_Verdict as Verdict,
  StartUploadResponseSchema, type WriteChunkRequest, WriteChunkResponseSchema,
} from "../../../sdk/js/gen/sheaf/v1/blob_service_pb.js";
import {DType} from "../../../sdk/js/gen/sheaf/v1/tensor_pb.js";
import {type Code, SheafError} from "../../../sdk/js/src/errors.js";
import {BlobFetch} from "../../../sdk/js/src/transfer/blob_fetch.js";
import type {CallSequence} from "../../../sdk/js/src/transfer/call_sequence.js";
import {ChunkSize} from "../../../sdk/js/src/transfer/chunk_size.js";
import {RowFetch} from "../../../sdk/js/src/transfer/row_fetch.js";
import {sha256Hex} from "../../../sdk/js/src/transfer/sha256.js";
import {UploadSession} from "../../../sdk/js/src/transfer/upload_session.js";

type Answers = (method: string, request: any, call: number) => Message | SheafError;

/** Drives the sequence with these answers; the methods that it called. */
function drive(sequence: CallSequence, answers: Answers): string[] {
  const called: string[] = [];
  while (!sequence.done) {
    assert.ok(called.length < 500, "it does not end");
    const {method, request} = sequence.next();
    called.push(method.name);
    const answer = answers(method.name, request, called.length);
    if (answer instanceof SheafError) sequence.onDone(answer, null);
    else sequence.onDone(null, answer);
  }
  return called;
}

const fails = (code: Code) => new SheafError(code, "as the test says");
const FILE = Uint8Array.from({length: 2500}, (_, i) => i % 251);

/** A server that takes uploads in chunks of 1000 bytes; `fault` may answer in its place. */
function uploading(fault: (method: string, call: number) => Message | SheafError | null): {answers: Answers; taken: () => Uint8Array} {
  let bytes = new Uint8Array();
  const answers: Answers = (method, request, call) => {
    const instead = fault(method, call);
    if (instead !== null) return instead;
    switch (method) {
      case "StartUpload":
        bytes = new Uint8Array();
        return create(StartUploadResponseSchema, {verdict: Verdict.SEND, uploadId: "u", chunkBytesMax: 1000n});
      case "WriteChunk": {
        const {offset, data} = request as WriteChunkRequest;
        assert.equal(Number(offset), bytes.length);
        bytes = Uint8Array.of(...bytes, ...data);
        return create(WriteChunkResponseSchema, {committedBytes: BigInt(bytes.length)});
      }
      case "QueryUpload":
        return create(QueryUploadResponseSchema, {committedBytes: BigInt(bytes.length)});
      default:
        return create(FinishUploadResponseSchema);
    }
  };
  return {answers, taken: () => bytes};
}

test("An upload goes on from what was committed, and begins again when it is gone", () => {
  const {answers, taken} = uploading((method, call) => {
    if (call === 3) return fails("UNAVAILABLE");
    if (call === 6 && method === "WriteChunk") return fails("NOT_FOUND");
    return null;
  });
  const upload = new UploadSession({bytes: FILE, requestId: "r"});
  const ids: string[] = [];
  const called = drive(upload, (method, request, call) => {
    if (method === "StartUpload") ids.push((request as StartUploadRequest).requestId);
    return answers(method, request, call);
  });
  assert.equal(upload.error, null);
  assert.deepEqual(taken(), FILE);
  assert.deepEqual(ids, ["r", "r-1"]);
  assert.equal(called.filter((name) => name === "QueryUpload").length, 1);
  assert.equal(upload.digest, sha256Hex(FILE));
});

test("An upload gives up on a server that loses it, damages it, or takes nothing", () => {
  const outcome = (fault: Parameters<typeof uploading>[0]): Code | undefined => {
    const upload = new UploadSession({bytes: FILE, requestId: "r"});
    drive(upload, uploading(fault).answers);
    return upload.error?.code;
  };
  assert.equal(outcome((method) => (method === "FinishUpload" ? fails("DATA_LOSS") : null)), "DATA_LOSS");
  assert.equal(outcome((method) => (method === "WriteChunk" ? fails("NOT_FOUND") : null)), "NOT_FOUND");
  assert.equal(outcome((method) => (method === "StartUpload" ? fails("RESOURCE_EXHAUSTED") : null)), "RESOURCE_EXHAUSTED");
  assert.equal(outcome((method) => (method === "StartUpload" ? fails("UNAVAILABLE") : null)), "UNAVAILABLE");
  const committed = (bytes: bigint) => create(WriteChunkResponseSchema, {committedBytes: bytes});
  assert.equal(outcome((method) => (method === "WriteChunk" ? committed(0n) : null)), "INTERNAL");
  assert.equal(outcome((method) => (method === "WriteChunk" ? committed(-1n) : null)), "INTERNAL");
  assert.equal(outcome((method) => (method === "WriteChunk" ? committed(9999n) : null)), "INTERNAL");
  // It has 1000 bytes, has lost them, has them again, ..
  let turn = 0;
  assert.equal(outcome((method) => (method === "WriteChunk" ? committed(++turn % 2 === 0 ? 0n : 1000n) : null)), "INTERNAL");
  assert.equal(outcome((method) => (
    method === "StartUpload" ? create(StartUploadResponseSchema, {verdict: 99 as Verdict}) : null)), "INTERNAL");
});

test("What the server does not want is not sent", () => {
  for (const verdict of [Verdict.ALREADY_STORED, Verdict.NOT_NEEDED, Verdict.LEASE_LOST]) {
    const upload = new UploadSession({bytes: FILE, requestId: "r", contribution: {task: "r-1/0", leaseToken: "t"}});
    assert.deepEqual(drive(upload, () => create(StartUploadResponseSchema, {verdict})), ["StartUpload"]);
    assert.equal(upload.error, null);
    assert.equal(upload.verdict, verdict);
  }
});

test("Chunks become smaller over a slow link, down to a bound", () => {
  const size = new ChunkSize();
  assert.ok(size.shrink(1 << 20));
  assert.equal(size.bytesMax, 1 << 17);
  assert.ok(size.shrink(1 << 17));
  assert.equal(size.bytesMax, 1 << 16);
  assert.ok(!size.shrink(1 << 16));
});

function readOf(answer: (request: ReadBlobRequest) => {data: Uint8Array; sizeBytes: bigint}, bytesMax = 1 << 20): BlobFetch {
  const fetch = new BlobFetch(sha256Hex(FILE), bytesMax, new ChunkSize());
  drive(fetch, (_method, request) => create(ReadBlobResponseSchema, answer(request as ReadBlobRequest)));
  return fetch;
}

test("A blob is joined of ranges, and is what its digest says or nothing", () => {
  const size = BigInt(FILE.length);
  const from = ({offset}: ReadBlobRequest, length: number) => FILE.slice(Number(offset), Number(offset) + length);
  assert.deepEqual(readOf((request) => ({data: from(request, 999), sizeBytes: size})).bytes, FILE);
  const code = (...read: Parameters<typeof readOf>) => readOf(...read).error?.code;
  assert.equal(code((request) => ({data: from(request, 999).fill(1), sizeBytes: size})), "DATA_LOSS");
  assert.equal(code(() => ({data: new Uint8Array(), sizeBytes: size})), "DATA_LOSS");
  assert.equal(code((request) => ({data: from(request, 999), sizeBytes: size + request.offset})), "DATA_LOSS");
  assert.equal(code(() => ({data: new Uint8Array(5000), sizeBytes: size})), "DATA_LOSS");
  assert.equal(code(() => ({data: new Uint8Array(5), sizeBytes: -1n})), "DATA_LOSS");
  assert.equal(code((request) => ({data: from(request, 999), sizeBytes: size}), 2499), "RESOURCE_EXHAUSTED");
});

// Row i of the tensor "w" is [i, -i].
const rowBytes = (rows: readonly bigint[]) => new Uint8Array(
  Float32Array.from(rows.flatMap((row) => [Number(row), -Number(row)])).buffer);
const piece = (selection: number, firstRow: number, rows: readonly bigint[]) => ({
  selection, firstRow: BigInt(firstRow), rows: {dtype: DType.FLOAT32, shape: [BigInt(rows.length), 2n], data: rowBytes(rows)},
});

test("Rows are asked for in windows, and joined of pages and pieces", () => {
  const wanted = [{tensor: "w", rows: [5n, 3n, 5n, 8n]}, {tensor: "empty", rows: []}, {tensor: "w", rows: [1n, 2n]}];
  const fetch = new RowFetch("d", wanted, 1 << 20, 3);
  const asked: number[][] = [];
  drive(fetch, (_method, request: SelectRowsRequest) => {
    if (request.cursor === "") asked.push(request.selections.map(({rows}) => rows.length));
    // A row of each selection a page, and all that are left with the second.
    const isFirst = request.cursor === "";
    const pieces = request.selections.flatMap(({rows}, i) => {
      if (isFirst) return i === 0 ? [piece(0, 0, rows.slice(0, 1))] : [];
      return [piece(i, i === 0 ? 1 : 0, i === 0 ? rows.slice(1) : rows)];
    });
    return create(SelectRowsResponseSchema, {pieces, nextCursor: isFirst ? "more" : ""});
  });
  assert.equal(fetch.error, null);
  const tensors = fetch.takeTensors();
  assert.deepEqual(tensors.map(({shape}) => shape), [[4, 2], [0, 2], [2, 2]]);
  assert.deepEqual(tensors[0]!.data, Float32Array.of(5, -5, 3, -3, 5, -5, 8, -8));
  assert.deepEqual(tensors[2]!.data, Float32Array.of(1, -1, 2, -2));
  assert.equal(fetch.bytesReceived, 48);
  assert.deepEqual(asked, [[3], [1, 0, 1], [1]]);
});

test("Rows that come otherwise than they were asked for are refused", () => {
  const outcome = (answer: (call: number) => Partial<Pick<SelectRowsResponse, "nextCursor">> & {pieces: any[]}, bytesMax = 1 << 20) => {
    const fetch = new RowFetch("d", [{tensor: "w", rows: [1n, 2n]}, {tensor: "w", rows: [3n]}], bytesMax);
    drive(fetch, (_method, _request, call) => create(SelectRowsResponseSchema, answer(call)));
    return fetch.error?.code;
  };
  const whole = [piece(0, 0, [1n, 2n]), piece(1, 0, [3n])];
  assert.equal(outcome(() => ({pieces: whole})), undefined);
  const wrong: Record<string, any[]> = {
    "nothing": [],
    "too few": [piece(0, 0, [1n]), piece(1, 0, [3n])],
    "too many": [piece(0, 0, [1n, 2n, 2n]), piece(1, 0, [3n])],
    "out of order": [piece(1, 0, [3n]), piece(0, 0, [1n, 2n])],
    "a gap": [piece(0, 1, [2n]), piece(1, 0, [3n])],
    "of nobody": [...whole, piece(2, 0, [3n])],
    "of nobody, below": [...whole, piece(-1, 0, [3n])],
    "of another shape": [piece(0, 0, [1n]), {...piece(0, 1, [2n]), rows: {dtype: DType.FLOAT32, shape: [1n, 1n], data: new Uint8Array(4)}}],
    "of another dtype": [piece(0, 0, [1n]), {...piece(0, 1, [2n]), rows: {dtype: DType.INT32, shape: [1n, 2n], data: new Uint8Array(8)}}],
    "of an unknown dtype": [{...piece(0, 0, [1n]), rows: {dtype: 77 as DType, shape: [1n, 2n], data: new Uint8Array(8)}}],
    "of too few bytes": [{...piece(0, 0, [1n, 2n]), rows: {dtype: DType.FLOAT32, shape: [2n, 2n], data: new Uint8Array(15)}}],
    "of a negative shape": [{...piece(0, 0, [1n, 2n]), rows: {dtype: DType.FLOAT32, shape: [-2n, -2n], data: new Uint8Array(16)}}],
    "without a shape": [{...piece(0, 0, [1n]), rows: {dtype: DType.FLOAT32, shape: [], data: new Uint8Array(4)}}],
    "without rows": [{selection: 0, firstRow: 0n}],
  };
  for (const [what, pieces] of Object.entries(wrong)) assert.equal(outcome(() => ({pieces})), "DATA_LOSS", what);
  // Pages that bring nothing, and a cursor that stays.
  assert.equal(outcome((call) => ({pieces: [], nextCursor: `c${call}`})), "DATA_LOSS");
  assert.equal(outcome((call) => ({pieces: call === 1 ? [piece(0, 0, [1n])] : [piece(0, 1, [2n])], nextCursor: "same"})), "DATA_LOSS");
  assert.equal(outcome(() => ({pieces: whole}), 23), "RESOURCE_EXHAUSTED");
});
