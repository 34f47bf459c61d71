// Broadcasts that are patches of others: what a loop sends of a model that has changed in part, and what a worker makes of it.
import assert from "node:assert/strict";
import test from "node:test";

import {create, type DescMethodUnary, type Message, type MessageShape} from "@bufbuild/protobuf";

import {
  BlobService, FinishUploadResponseSchema, type ReadBlobRequest, ReadBlobResponseSchema, type StartUploadRequest,
  StartUploadResponse_Verdict as Verdict, StartUploadResponseSchema, type WriteChunkRequest, WriteChunkResponseSchema,
} from "../../../sdk/js/gen/sheaf/v1/blob_service_pb.js";
import {RoundState} from "../../../sdk/js/gen/sheaf/v1/round_pb.js";
import {
  type CreateRoundRequest, CreateRoundResponseSchema, type OpenRoundRequest, OpenRoundResponseSchema,
} from "../../../sdk/js/gen/sheaf/v1/round_service_pb.js";
import {
  LeaseSchema, ResultVerdict_Verdict, type SyncRequest, SyncResponseSchema, type TaskResult,
} from "../../../sdk/js/gen/sheaf/v1/work_service_pb.js";
import {toDuration} from "../../../sdk/js/src/durations.js";
import {
  type Broadcast, type CallOptions, type Code, type Computation, connect, type Done, encodeSafetensors, Safetensors, SeededRandom, SheafError,
  silent, Sparse, sum, SystemClock, Tensor, type Transport, type TypedArray, Worker, type WorkerConfig,
} from "../../../sdk/js/src/index.js";
import {Caller} from "../../../sdk/js/src/program/caller.js";
import {aggregateSpec} from "../../../sdk/js/src/program/round_spec.js";
import {RoundsAhead} from "../../../sdk/js/src/program/rounds_ahead.js";
import {BroadcastFetch} from "../../../sdk/js/src/transfer/broadcast_fetch.js";
import {ChunkSize} from "../../../sdk/js/src/transfer/chunk_size.js";
import {sha256Hex} from "../../../sdk/js/src/transfer/sha256.js";
import {applyPatch, encodePatch, patchBase} from "../../../sdk/js/src/values/safetensors_patch.js";

type Tensors = Record<string, Tensor>;

const i64 = (...rows: number[]) => new Tensor(BigInt64Array.from(rows, BigInt));
const f32 = (shape: number[], first = 0) => new Tensor(
  Float32Array.from({length: shape.reduce((all, size) => all * size, 1)}, (_, i) => first + i), shape);
const patchOf = (base: Uint8Array | string, tensors: Tensors) => (
  encodeSafetensors(tensors, {"sheaf.base": typeof base === "string" ? base : sha256Hex(base)}));
const copied = (tensors: Tensors): Tensors => Object.fromEntries(Object.entries(tensors).map(([name, {data, shape, dtype}]) => [
  name, new Tensor(data.slice() as TypedArray, shape, dtype)]));

/** A safetensors file with this header. */
function madeOf(header: object, numBytes: number): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + text.length + numBytes);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  return file;
}

/** Blobs by their digests. */
class Blobs extends Map<string, Uint8Array> {
  add(bytes: Uint8Array): string {
    const digest = sha256Hex(bytes);
    this.set(digest, bytes);
    return digest;
  }

  read({digest, offset, takesPatches}: ReadBlobRequest): Message | SheafError {
    assert.ok(takesPatches);
    const blob = this.get(digest);
    if (blob === undefined) return new SheafError("NOT_FOUND", `there is no blob ${digest}`);
    return create(ReadBlobResponseSchema, {
      data: blob.subarray(Number(offset), Number(offset) + 300_000), sizeBytes: BigInt(blob.length),
    });
  }
}

interface Fetched {
  bytes: Uint8Array | null;
  error: SheafError | null;
  bytesReceived: number;
  /** Digests, in their order. */
  asked: string[];
}

function fetched(blobs: Blobs, digest: string, cached: ReadonlyMap<string, Uint8Array> = new Map(), bytesMax = 1 << 24): Fetched {
  const fetch = new BroadcastFetch(digest, {find: (named) => cached.get(named) ?? null, bytesMax, chunkSize: new ChunkSize()});
  const asked: string[] = [];
  while (!fetch.done) {
    const request = fetch.next().request as ReadBlobRequest;
    if (request.offset === 0n) asked.push(request.digest);
    const answer = blobs.read(request);
    if (answer instanceof SheafError) fetch.onDone(answer, null);
    else fetch.onDone(null, answer);
  }
  const {bytes, error, bytesReceived} = fetch;
  assert.equal(bytes === null, error !== null);
  return {bytes, error, bytesReceived, asked};
}

/** Why the file, which comes from a server, is none that a worker takes. */
function refusalOf(blobs: Blobs, digest: string, because: RegExp, code: Code = "DATA_LOSS", bytesMax?: number): void {
  const {error} = fetched(blobs, digest, new Map(), bytesMax);
  assert.equal(error?.code, code, String(error));
  assert.match(error!.message, because);
}

// What blob_service.proto says, in another way than the package does it: row by row, over plain values.
function patchedByHand(tensors: Tensors, patch: Tensors): Tensors {
  const patched = copied(tensors);
  for (const [name, {data, shape}] of Object.entries(patch)) {
    if (name in patched) {
      data.forEach((value: number | bigint, i: number) => (patched[name]!.data[i] = value));
    } else if (name.endsWith(".indices")) {
      const tensor = name.slice(0, -".indices".length);
      const values = patch[`${tensor}.values`]!;
      const width = values.data.length / shape[0]!;
      data.forEach((row: number | bigint, i: number) => {
        for (let j = 0; j < width; ++j) patched[tensor]!.data[Number(row) * width + j] = values.data[i * width + j]!;
      });
    }
  }
  return patched;
}

const MODEL: Tensors = {
  table: f32([50, 3]), wide: f32([4, 2, 5], 100), bias: f32([7], -3), scale: new Tensor(Float64Array.of(0.5), []),
  counts: new Tensor(BigUint64Array.from({length: 20}, (_, i) => BigInt(i)), [20]), flags: new Tensor(Uint8Array.of(0, 1, 1), [3]),
  nothing: f32([0, 4]), columns: f32([4, 0]),
};

test("Patches upon patches are put together to the file that they stand for, whatever of them is at hand", () => {
  for (let seed = 1; seed <= 40; ++seed) {
    const random = new SeededRandom(seed);
    const below = (n: number) => Math.floor(random.fraction() * n);
    const blobs = new Blobs();
    const digests = [blobs.add(encodeSafetensors(MODEL))];
    const files = [encodeSafetensors(MODEL)];
    let now = MODEL;
    for (let i = 0; i < 3; ++i) {
      const patch: Tensors = {};
      for (const [name, {data, shape, dtype}] of Object.entries(MODEL)) {
        const isBig = dtype.bytes === 8 && dtype.kind !== "float";
        const made = (length: number) => new dtype.array(length).map(() => (isBig ? BigInt(below(99)) : below(99)) as never) as TypedArray;
        const what = below(3);
        if (what === 0) patch[name] = new Tensor(made(data.length), shape, dtype);
        if (what !== 1) continue;
        const numRows = shape[0] ?? 1;
        const rows = Array.from({length: numRows}, (_, row) => row).filter(() => below(2) === 0);
        patch[`${name}.indices`] = i64(...rows);
        const values = made(rows.length * data.length / Math.max(numRows, 1));
        patch[`${name}.values`] = new Tensor(values, [rows.length, ...shape.slice(1)], dtype);
      }
      const file = patchOf(digests.at(-1)!, patch);
      digests.push(blobs.add(file));
      now = patchedByHand(now, patch);
      files.push(encodeSafetensors(now));
    }
    const {bytes, asked, bytesReceived} = fetched(blobs, digests[3]!);
    assert.deepEqual(bytes, files[3], `seed ${seed}`);
    assert.deepEqual(asked, [...digests].reverse());
    assert.equal(bytesReceived, digests.reduce((sum, digest) => sum + blobs.get(digest)!.length, 0));
    // What a worker has of one of them, others may be using.
    for (const known of [0, 1, 2]) {
      const cached = files[known]!.slice();
      const again = fetched(blobs, digests[3]!, new Map([[digests[known]!, cached]]));
      assert.deepEqual(again.bytes, files[3], `seed ${seed}`);
      assert.deepEqual(again.asked, digests.slice(known + 1).reverse());
      assert.deepEqual(cached, files[known]);
    }
  }
});

test("A broadcast that is no patch is read as it is", () => {
  const blobs = new Blobs();
  const files = [
    encodeSafetensors(MODEL), encodeSafetensors(MODEL, {made: "by hand"}), Uint8Array.of(1, 2, 3), new Uint8Array(700_000),
    patchOf("0".repeat(64), MODEL).slice(0, -1),
  ];
  for (const file of files) {
    const {bytes, asked} = fetched(blobs, blobs.add(file));
    assert.deepEqual(bytes, file);
    assert.equal(asked.length, 1);
  }
});

test("Bytes of types that JavaScript does not have are patched, too", () => {
  const tensors = (names: Record<string, [string, number[], number]>, metadata?: object) => {
    let end = 0;
    const places = Object.entries(names).map(([name, [dtype, shape, bytes]]) => [name, {dtype, shape, data_offsets: [end, end += bytes]}]);
    return madeOf({...(metadata && {__metadata__: metadata}), ...Object.fromEntries(places)}, end);
  };
  const base = tensors({h: ["BF16", [3, 2], 12], odd: ["F4", [2], 7]});
  base.set([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], base.length - 19);
  const blobs = new Blobs();
  const metadata = {"sheaf.base": blobs.add(base)};
  const patch = tensors({"h.indices": ["I64", [2], 16], "h.values": ["BF16", [2, 2], 8]}, metadata);
  patch.set([0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 21, 22, 23, 24, 25, 26, 27, 28], patch.length - 24);
  const {bytes} = fetched(blobs, blobs.add(patch));
  assert.deepEqual([...bytes!.subarray(-19, -7)], [21, 22, 23, 24, 5, 6, 7, 8, 25, 26, 27, 28]);
  assert.deepEqual(bytes!.subarray(0, -19), base.subarray(0, -19));
  // Nobody has checked that their bytes are as many as their shape says.
  refusalOf(blobs, blobs.add(tensors({odd: ["F4", [2], 8]}, metadata)),
            /tensor "odd" of the patch is F4 \[2\], and the base's is F4 \[2\]/);
  refusalOf(blobs, blobs.add(tensors({"odd.indices": ["I64", [2], 16], "odd.values": ["F4", [2], 7]}, metadata)),
            /tensor "odd.values"/);
  refusalOf(blobs, blobs.add(tensors({h: ["F16", [3, 2], 12]}, metadata)),
            /tensor "h" of the patch is F16 \[3, 2\], and the base's is BF16/);
});

test("A patch that does not fit is refused by its tensor and its digest, and nothing of it is used", () => {
  const base = encodeSafetensors({...MODEL, "s.indices": i64(1, 2), "s.values": f32([2]), s: f32([4])});
  const blobs = new Blobs();
  blobs.add(base);
  const three = f32([2, 3]);
  const wrong: [Tensors, RegExp][] = [
    [{other: f32([1])}, /tensor "other" of the patch is none of the base's, nor rows of one/],
    [{"other.indices": i64(0), "other.values": f32([1])}, /tensor "other.indices" of the patch is none of the base's/],
    [{".indices": i64(0)}, /tensor ".indices" of the patch is none of the base's/],
    [{["x".repeat(500)]: f32([1])}, /tensor "x{128}" of the patch is none/],
    [{table: f32([150])}, /tensor "table" of the patch is F32 \[150\], and the base's is F32 \[50, 3\]/],
    [{bias: new Tensor(new Int32Array(7))}, /tensor "bias" of the patch is I32 \[7\], and the base's is F32 \[7\]/],
    [{bias: f32([8])}, /tensor "bias"/],
    [{scale: new Tensor(Float64Array.of(1), [1])}, /tensor "scale" of the patch is F64 \[1\], and the base's is F64 \[\]/],
    [{"table.indices": i64(1, 2)}, /tensor "table" of the patch has numbers of rows, and no rows/],
    [{"table.values": three}, /tensor "table" of the patch has rows, and no numbers of rows/],
    [{"table.indices": i64(1, 2), "table.values": three, table: f32([50, 3])}, /tensor "table" of the patch is there whole and in rows/],
    [{"table.indices": i64(2, 1), "table.values": three}, /tensor "table" of the patch has its row 1 after row 2/],
    [{"table.indices": i64(2, 2), "table.values": three}, /tensor "table" of the patch has its row 2 after row 2/],
    [{"table.indices": i64(2, 50), "table.values": three}, /tensor "table" of the patch has 50 rows, and row 50 is not among them/],
    [{"table.indices": i64(-1, 2), "table.values": three}, /row -1 is not among them/],
    [{"table.indices": new Tensor(BigInt64Array.of(0n, 2n ** 62n)), "table.values": three}, /row 4611686018427387904 is not among them/],
    [{"table.indices": i64(1, 2), "table.values": f32([2, 4])},
     /tensor "table.values" of the patch is F32 \[2, 4\], and 2 rows of the base's are F32 \[2, 3\]/],
    [{"table.indices": i64(1, 2), "table.values": f32([3, 3])}, /tensor "table.values"/],
    [{"table.indices": i64(1, 2), "table.values": f32([6])}, /tensor "table.values"/],
    [{"table.indices": i64(1, 2), "table.values": new Tensor(new Int32Array(6), [2, 3])},
     /tensor "table.values" of the patch is I32 \[2, 3\]/],
    [{"table.indices": new Tensor(i64(1, 2).data, [2, 1]), "table.values": three}, /tensor "table.indices" of the patch is I64 \[2, 1\]/],
    [{"table.indices": new Tensor(Int32Array.of(1, 2)), "table.values": three}, /tensor "table.indices" of the patch is I32 \[2\]/],
    [{"table.indices": new Tensor(BigUint64Array.of(1n, 2n)), "table.values": three}, /tensor "table.indices" of the patch is U64 \[2\]/],
    [{"scale.indices": i64(1), "scale.values": new Tensor(Float64Array.of(1))}, /tensor "scale" of the patch has 1 rows, and row 1/],
    [{"nothing.indices": i64(0), "nothing.values": f32([1, 4])}, /tensor "nothing" of the patch has 0 rows, and row 0/],
    [{"columns.indices": i64(4), "columns.values": f32([1, 0])}, /tensor "columns" of the patch has 4 rows, and row 4/],
    // Names that the base has are its own tensors, and no rows of "s".
    [{"s.indices": i64(0), "s.values": f32([1])}, /tensor "s.indices" of the patch is I64 \[1\], and the base's is I64 \[2\]/],
  ];
  for (const [tensors, because] of wrong) {
    const patch = patchOf(base, tensors);
    const digest = blobs.add(patch);
    refusalOf(blobs, digest, because);
    assert.ok(fetched(blobs, digest).error!.message.includes(digest));
    // With something that fits before it.
    const file = base.slice();
    const partly = new Safetensors(patchOf(base, {flags: new Tensor(Uint8Array.of(9, 9, 9)), ...tensors}));
    assert.throws(() => applyPatch(new Safetensors(file), partly), {code: "INVALID_ARGUMENT", message: because});
    assert.deepEqual(file, base);
    // The next one upon it fits.
    refusalOf(blobs, blobs.add(patchOf(digest, {bias: f32([7])})), because);
  }
  const {bytes} = fetched(blobs, blobs.add(patchOf(base, {"s.indices": i64(3, 0), "s.values": f32([2], 5)})));
  assert.deepEqual(new Safetensors(bytes!).get("s.indices").data, BigInt64Array.of(3n, 0n));
});

test("A base that is missing, is none, or lies too deep is said, and no more is read than may be", () => {
  const blobs = new Blobs();
  const change = {bias: f32([7], 9)};
  const nowhere = "ab".repeat(32);
  refusalOf(blobs, nowhere, /there is no blob/, "NOT_FOUND");
  refusalOf(blobs, blobs.add(patchOf(nowhere, change)),
            /the broadcast [0-9a-f]{64} is a patch of abab\w+, which could not be read: there is no blob abab/);
  // What is asked of the server for it would be an error of the computation's, and not the server's.
  for (const base of ["", "../etc", nowhere.toUpperCase(), `${nowhere}0`, "x".repeat(999)]) {
    const {error, asked} = fetched(blobs, blobs.add(patchOf(base, change)));
    assert.equal(error!.code, "DATA_LOSS");
    assert.match(error!.message, /the broadcast [0-9a-f]{64} is a patch of "[^"]{0,128}", which is no digest/);
    assert.equal(asked.length, 1);
  }
  const other = blobs.add(Uint8Array.of(1, 2, 3));
  refusalOf(blobs, blobs.add(patchOf(other, change)), new RegExp(`a patch of ${other}, which is not a safetensors file`));
  // What is damaged on its way.
  const whole = encodeSafetensors(MODEL);
  const damaged = new Blobs([[sha256Hex(whole), whole.slice().fill(7, 900)]]);
  refusalOf(damaged, damaged.add(patchOf(whole, change)), /which could not be read: the bytes that arrived have the digest/);

  let digest = blobs.add(whole);
  let size = whole.length;
  for (let depth = 1; depth <= 33; ++depth) {
    const patch = patchOf(digest, {bias: f32([7], depth)});
    digest = blobs.add(patch);
    size += patch.length;
    if (depth === 32) {
      // Each file may have so many bytes, and all of them twice as many.
      const enough = Math.max(whole.length, Math.ceil(size / 2));
      assert.equal(new Safetensors(fetched(blobs, digest, new Map(), enough).bytes!).get("bias").data[0], 32);
      refusalOf(blobs, digest, /is a patch of \w+, which could not be read: the broadcast \w+ has \d+ bytes, and no more than/,
                "RESOURCE_EXHAUSTED", enough - 1);
    }
  }
  refusalOf(blobs, digest, /is more than 32 patches, one upon the other/);
});

test("A chunk that takes too long is asked for again as a smaller one, of the base as well", () => {
  const blobs = new Blobs();
  const base = encodeSafetensors(MODEL);
  blobs.add(base);
  const patch = blobs.add(patchOf(base, {bias: f32([7], 9)}));
  const fetch = new BroadcastFetch(patch, {find: () => null, bytesMax: 1 << 20, chunkSize: new ChunkSize()});
  fetch.onDone(null, blobs.read(fetch.next().request as ReadBlobRequest) as Message);
  assert.equal((fetch.next().request as ReadBlobRequest).length, 0n);
  assert.ok(fetch.takeLess());
  const request = fetch.next().request as ReadBlobRequest;
  assert.deepEqual([request.digest, request.length], [sha256Hex(base), BigInt(1 << 18)]);
});

test("What is different is said by rows where they are few, and else by whole tensors", () => {
  const before = encodeSafetensors(MODEL);
  const partsOf = (change: (tensors: Tensors) => void): string[] | null => {
    const tensors = copied(MODEL);
    change(tensors);
    const after = encodeSafetensors(tensors);
    // Also where nothing is aligned.
    const shifted = new Uint8Array(after.length + 1);
    shifted.set(after, 1);
    const bytes = encodePatch(new Safetensors(before), new Safetensors(after), "base");
    assert.deepEqual(encodePatch(new Safetensors(before), new Safetensors(shifted.subarray(1)), "base"), bytes);
    if (bytes === null || bytes.length === 0) return bytes === null ? null : [];
    const [file, patch] = [before.slice(), new Safetensors(bytes)];
    assert.equal(patchBase(patch), "base");
    applyPatch(new Safetensors(file), patch);
    assert.deepEqual(file, after);
    return patch.names().sort();
  };
  assert.deepEqual(partsOf(() => {}), []);
  assert.deepEqual(partsOf(({table}) => (table!.data[7] = 1)), ["table.indices", "table.values"]);
  assert.deepEqual(partsOf(({table}) => (table!.data[149] = NaN)), ["table.indices", "table.values"]);
  // A bit is a difference, whatever the numbers are.
  assert.deepEqual(partsOf(({table}) => (table!.data[0] = -0)), ["table.indices", "table.values"]);
  assert.deepEqual(partsOf(({table}) => table!.data.fill(1 as never)), ["table"]);
  // Of a small one the rows would take more.
  assert.deepEqual(partsOf(({bias}) => (bias!.data[3] = 1)), ["bias"]);
  assert.deepEqual(partsOf(({counts, flags, scale}) => {
    counts!.data[0] = 9n;
    flags!.data[0] = 9;
    scale!.data[0] = 9;
  }), ["counts.indices", "counts.values", "flags", "scale"]);
  // Not values alone.
  assert.equal(partsOf((tensors) => delete tensors["flags"]), null);
  assert.equal(partsOf((tensors) => (tensors["more"] = f32([1]))), null);
  assert.equal(partsOf((tensors) => (tensors["bias"] = f32([7, 1]))), null);
  assert.equal(partsOf((tensors) => (tensors["bias"] = new Tensor(new Int32Array(7)))), null);
});

test("Names of rows that the file has itself, and types that no rows are released of, make a tensor travel whole", () => {
  const namesIn = (tensors: Tensors, changed: string): string[] => {
    const before = encodeSafetensors(tensors);
    const after = copied(tensors);
    after[changed]!.data[1] = 77 as never;
    const patch = new Safetensors(encodePatch(new Safetensors(before), new Safetensors(encodeSafetensors(after)), "base")!);
    applyPatch(new Safetensors(before), patch);
    assert.deepEqual(before, encodeSafetensors(after));
    return patch.names().sort();
  };
  const x = f32([300, 2]);
  assert.deepEqual(namesIn({x}, "x"), ["x.indices", "x.values"]);
  assert.deepEqual(namesIn({x, "x.indices": i64(1)}, "x"), ["x"]);
  assert.deepEqual(namesIn({x, "x.values": f32([1])}, "x"), ["x"]);
  assert.deepEqual(namesIn({"x.values": x}, "x.values"), ["x.values.indices", "x.values.values"]);
  assert.deepEqual(namesIn({x: new Tensor(new Uint8Array(600), [300, 2])}, "x"), ["x"]);
  assert.deepEqual(namesIn({x: new Tensor(new Int16Array(600), [300, 2])}, "x"), ["x"]);
  // A name that objects treat in a way of their own.
  for (const [shape, names] of [[[300, 2], ["__proto__.indices", "__proto__.values"]], [[2], ["__proto__"]]] as const) {
    const before = encodeSafetensors(Object.fromEntries([["__proto__", f32([...shape])]]));
    const after = before.slice();
    after[after.length - 1]! ^= 1;
    const patch = new Safetensors(encodePatch(new Safetensors(before), new Safetensors(after), "base")!);
    assert.deepEqual(patch.names().sort(), names);
  }
  // A type that has no array here can be kept, and not be sent in part.
  const foreign = madeOf({h: {dtype: "BF16", shape: [2], data_offsets: [0, 4]}}, 4);
  const same = encodePatch(new Safetensors(foreign), new Safetensors(foreign.slice()), "base");
  assert.equal(same!.length, 0);
  const other = foreign.slice();
  other[other.length - 1] = 1;
  assert.equal(encodePatch(new Safetensors(foreign), new Safetensors(other), "base"), null);
});

/** A server as far as a loop needs one to begin rounds. */
class RoundServer implements Transport {
  readonly blobs = new Blobs();
  /** Digests that the rounds have, in their order. */
  readonly rounds: string[] = [];
  /** Since somebody looked: "whole" and "patch" were uploaded, "inline" came with the call, "stored" was not sent again. */
  private sent: string[] = [];
  takesPatches = true;
  /** Of each upload. */
  readonly populations: string[] = [];
  fault: (method: string, request: any) => SheafError | null = () => null;
  private upload = {digest: "", size: 0, bytes: new Uint8Array()};

  call<M extends DescMethodUnary>(method: M, request: MessageShape<M["input"]>, _options: CallOptions, done: Done<M>): () => void {
    // As it is now: the author may change it.
    const copy = structuredClone(request);
    queueMicrotask(() => {
      try {
        const fault = this.fault(method.name, copy);
        if (fault !== null) throw fault;
        done(null, this.answer(method.name, copy) as MessageShape<M["output"]>);
      } catch (error) {
        if (!(error instanceof SheafError)) throw error;
        done(error, null);
      }
    });
    return () => {};
  }

  takeSent(): string[] {
    return this.sent.splice(0);
  }

  private answer(method: string, request: unknown): Message {
    switch (method) {
      case "StartUpload": {
        const {digest, sizeBytes, population} = request as StartUploadRequest;
        this.populations.push(population);
        this.upload = {digest, size: Number(sizeBytes), bytes: new Uint8Array(Number(sizeBytes))};
        const verdict = this.blobs.has(digest) ? Verdict.ALREADY_STORED : Verdict.SEND;
        if (verdict === Verdict.ALREADY_STORED) this.sent.push("stored");
        return create(StartUploadResponseSchema, {verdict, uploadId: "u", takesPatches: this.takesPatches});
      }
      case "WriteChunk": {
        const {offset, data} = request as WriteChunkRequest;
        this.upload.bytes.set(data, Number(offset));
        return create(WriteChunkResponseSchema, {committedBytes: offset + BigInt(data.length)});
      }
      case "FinishUpload":
        this.store(this.upload.bytes, "");
        assert.ok(this.blobs.has(this.upload.digest));
        return create(FinishUploadResponseSchema);
      case "CreateRound": {
        const {spec, broadcast} = request as CreateRoundRequest;
        if (spec!.announced) return create(CreateRoundResponseSchema, {round: {id: "r-announced", state: RoundState.ANNOUNCED, spec}});
        return create(CreateRoundResponseSchema, {round: this.begin(broadcast, spec!.broadcastDigest)});
      }
      case "OpenRound": {
        const {broadcast, broadcastDigest} = request as OpenRoundRequest;
        return create(OpenRoundResponseSchema, {round: this.begin(broadcast, broadcastDigest)});
      }
      default:
        throw new SheafError("UNIMPLEMENTED", method);
    }
  }

  private store(bytes: Uint8Array, how: string): void {
    const file = Safetensors.orNull(bytes);
    const base = file === null ? undefined : patchBase(file);
    if (base !== undefined && !this.blobs.has(base)) throw new SheafError("INVALID_ARGUMENT", "its base is not stored");
    this.sent.push(base === undefined ? how || "whole" : `${how} patch`.trim());
    this.blobs.add(bytes);
  }

  private begin(broadcast: Uint8Array, digest: string): {id: string; state: RoundState} {
    if (broadcast.length > 0) {
      assert.ok(broadcast.length <= 1 << 20);
      this.store(broadcast, "inline");
      assert.equal(digest, sha256Hex(broadcast));
    } else if (!this.blobs.has(digest)) {
      throw new SheafError("NOT_FOUND", `there is no blob ${digest}`);
    } else if (this.sent.length === 0) {
      this.sent.push("digest");
    }
    this.rounds.push(digest);
    return {id: `r-${this.rounds.length}`, state: RoundState.COLLECTING};
  }
}

/** A loop whose rounds end as soon as they have begun. */
class Loop {
  readonly server = new RoundServer();
  private readonly ahead: RoundsAhead;
  // What workers have seen so far.
  private readonly cache = new Map<string, Uint8Array>();

  constructor(broadcast: () => Broadcast, ahead = 0) {
    const caller = new Caller(this.server, new SystemClock(), new SeededRandom(1), 1000);
    this.ahead = new RoundsAhead(caller, "c", {outputs: {n: sum([])}, tasks: 1, broadcast}, "default", {rounds: 99, ahead, buffered: false});
  }

  /** What the next round makes the loop send; workers that are new, and those that have the last ones, read `file`. */
  async sends(file: Uint8Array): Promise<string[]> {
    await this.ahead.next();
    const digest = this.server.rounds.at(-1)!;
    assert.deepEqual(fetched(this.server.blobs, digest).bytes, file);
    const {bytes, asked} = fetched(this.server.blobs, digest, this.cache);
    assert.deepEqual(bytes, file);
    assert.equal(asked.length, 1);
    this.cache.set(digest, bytes!);
    return this.server.takeSent();
  }

  async next(): Promise<unknown> {
    return this.ahead.next();
  }
}

/** A loop about a model of 1.3 MB, which the test changes. */
function aLoop(ahead = 0, model: Tensors = {table: f32([5000, 64]), bias: f32([64])}) {
  const loop = new Loop(() => model, ahead);
  return {
    loop, model, server: loop.server,
    /** Changes a value in each of so many rows; what the loop sends then. */
    step: (numRows: number) => {
      for (let row = 0; row < numRows; ++row) ++(model["table"]!.data as Float32Array)[row * 64]!;
      return loop.sends(encodeSafetensors(model));
    },
  };
}

test("A loop sends what has changed since the round before, and nothing if nothing has", async () => {
  const {model, server, step} = aLoop();
  assert.deepEqual(await step(0), ["whole"]);
  assert.deepEqual(await step(3), ["inline patch"]);
  const patch = new Safetensors(server.blobs.get(server.rounds.at(-1)!)!);
  assert.deepEqual(patch.names().sort(), ["table.indices", "table.values"]);
  assert.deepEqual(patch.get("table.indices").data, BigInt64Array.of(0n, 1n, 2n));
  assert.equal(patchBase(patch), server.rounds[0]);
  assert.deepEqual(await step(0), ["digest"]);
  assert.equal(server.rounds[2], server.rounds[1]);
  model["bias"]!.data.fill(5 as never);
  assert.deepEqual(await step(0), ["inline patch"]);
  assert.equal(patchBase(new Safetensors(server.blobs.get(server.rounds.at(-1)!)!)), server.rounds[2]);
  // Back to what was sent before: its bytes are other ones, as they lie upon others.
  model["bias"]!.data.forEach((_: unknown, i: number) => (model["bias"]!.data[i] = i));
  assert.deepEqual(await step(0), ["inline patch"]);
  assert.deepEqual(await step(5000), ["whole"]);
  assert.deepEqual(await step(1), ["inline patch"]);
  // Other names, types and shapes are another model.
  model["more"] = f32([1]);
  assert.deepEqual(await step(0), ["whole"]);
  model["more"] = f32([1, 1]);
  assert.deepEqual(await step(0), ["whole"]);
  model["more"] = new Tensor(new Int32Array(1), [1, 1]);
  assert.deepEqual(await step(0), ["whole"]);
  assert.deepEqual(await step(1), ["inline patch"]);
});

test("An announced round is opened with what has changed, too", async () => {
  const {step} = aLoop(2);
  assert.deepEqual(await step(0), ["whole"]);
  assert.deepEqual(await step(3), ["inline patch"]);
  assert.deepEqual(await step(0), ["digest"]);
  assert.deepEqual(await step(5000), ["whole"]);
});

test("A broadcast is uploaded for the population of its round", async () => {
  const [options, large] = [{outputs: {n: sum([])}, tasks: 1}, {table: f32([5000, 64])}];
  const transport = new RoundServer();
  const server = connect({transport, population: "wards"});
  await server.create("c", {...options, broadcast: large});
  await server.create("c", {...options, broadcast: large, population: "phones"});
  await (await server.announce("c", options)).open(large);
  await (await server.announce("c", {...options, population: "phones"})).open(large);
  await server.upload(large);
  // Where a round is that names none.
  await connect({transport}).upload(large);
  assert.deepEqual(transport.populations, ["wards", "phones", "wards", "phones", "wards", "default"]);
  for (const ahead of [0, 1]) {
    const {step, server} = aLoop(ahead);
    assert.deepEqual([await step(0), await step(4200)], [["whole"], ["patch"]]);
    assert.deepEqual(server.populations, ["default", "default"]);
  }
});

test("The whole is sent again after 32 patches, or as many bytes as it has", async () => {
  const few = aLoop();
  const kinds: string[] = [];
  for (let i = 0; i < 68; ++i) kinds.push(...await few.step(i === 0 ? 0 : 1));
  const expected = Array.from({length: 68}, (_, i) => (i % 33 === 0 ? "whole" : "inline patch"));
  assert.deepEqual(kinds, expected);

  const large = aLoop(0, {table: f32([10_000, 64])});
  assert.deepEqual(await large.step(0), ["whole"]);
  // More than what goes along with a call; 43 % of the whole.
  assert.deepEqual(await large.step(4200), ["patch"]);
  assert.deepEqual(await large.step(4200), ["patch"]);
  assert.deepEqual(await large.step(4200), ["whole"]);
  assert.deepEqual(await large.step(4200), ["patch"]);
  assert.deepEqual(await large.step(9999), ["whole"]);
});

test("No patch is sent to a server that does not say that it takes them", async () => {
  const {server, step} = aLoop();
  server.takesPatches = false;
  assert.deepEqual(await step(0), ["whole"]);
  assert.deepEqual(await step(1), ["whole"]);
  assert.deepEqual(await step(0), ["stored"]);
  server.takesPatches = true;
  assert.deepEqual(await step(0), ["stored"]);
  assert.deepEqual(await step(1), ["inline patch"]);
});

test("A patch that is refused is followed by the whole, and no other error is", async () => {
  const {server, step, loop} = aLoop();
  const refuse = (method: string, code: Code) => {
    server.fault = (called, request) => {
      const isPatch = called === method && (request.broadcast?.length > 0 || (called === "StartUpload" && request.sizeBytes < 1_000_000n));
      return isPatch ? new SheafError(code, "as the test says") : null;
    };
  };
  assert.deepEqual(await step(0), ["whole"]);
  refuse("CreateRound", "INVALID_ARGUMENT");
  assert.deepEqual(await step(1), ["whole"]);
  // What is not taken along with the call may be taken by itself.
  refuse("CreateRound", "RESOURCE_EXHAUSTED");
  assert.deepEqual(await step(1), ["patch"]);
  for (const code of ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"] as const) {
    server.fault = (called, request) => (
      request.broadcast?.length > 0 || (called === "StartUpload" && request.sizeBytes < 1_000_000n)
        ? new SheafError(called === "StartUpload" ? code : "RESOURCE_EXHAUSTED", "as the test says") : null);
    assert.deepEqual(await step(1), ["whole"]);
  }
  server.fault = () => null;
  // Its base is gone, and so is what was named last.
  server.blobs.clear();
  assert.deepEqual(await step(1), ["whole"]);
  server.blobs.clear();
  assert.deepEqual(await step(0), ["whole"]);
  assert.deepEqual(await step(1), ["inline patch"]);
  // What is wrong with the round is said of the whole as well.
  server.fault = (called) => (called === "CreateRound" ? new SheafError("INVALID_ARGUMENT", "no such operator") : null);
  await assert.rejects(loop.next(), {code: "INVALID_ARGUMENT", message: "no such operator"});
  server.fault = (called) => (called === "CreateRound" ? new SheafError("PERMISSION_DENIED", "not for you") : null);
  server.takeSent();
  await assert.rejects(step(1), {code: "PERMISSION_DENIED"});
  assert.deepEqual(server.takeSent(), []);
});

test("Bytes of a file are compared as tensors are, with what they were when they were sent", async () => {
  let file: Uint8Array = encodeSafetensors({table: f32([5000, 64])}, {made: "once"});
  const loop = new Loop(() => file);
  const sends = () => loop.sends(file.slice());
  assert.deepEqual(await sends(), ["whole"]);
  // In place.
  file[file.length - 1]! ^= 1;
  assert.deepEqual(await sends(), ["inline patch"]);
  file[file.length - 999]! ^= 1;
  assert.deepEqual(await sends(), ["inline patch"]);
  assert.deepEqual(await sends(), ["digest"]);
  file = encodeSafetensors({table: f32([5000, 64])}, {made: "twice"});
  assert.deepEqual(await sends(), ["whole"]);
  // Any bytes.
  file = Uint8Array.from({length: 2 << 20}, (_, i) => i % 251);
  assert.deepEqual(await sends(), ["whole"]);
  file[5] = 9;
  assert.deepEqual(await sends(), ["whole"]);
  file = encodeSafetensors({table: f32([5000, 64])}, {made: "three times"});
  assert.deepEqual(await sends(), ["whole"]);
  file[file.length - 1]! ^= 1;
  assert.deepEqual(await sends(), ["inline patch"]);
});

test("A patch that an author has made travels as it is, and nothing is a patch of it", async () => {
  const whole = encodeSafetensors({table: f32([10_000, 64])});
  let file = whole;
  const loop = new Loop(() => file);
  await loop.next();
  const changed = (first: number): Tensors => ({"table.indices": i64(...Array(5000).keys()), "table.values": f32([5000, 64], first)});
  for (const first of [1, 2]) {
    file = patchOf(whole, changed(first));
    await loop.next();
    assert.equal(loop.server.rounds.at(-1), sha256Hex(file));
  }
});

test("A small broadcast, and parts of a sparse one, go as they are", async () => {
  const small = {bias: f32([10])};
  const loop = new Loop(() => small);
  for (let i = 0; i < 3; ++i) {
    ++(small.bias.data as Float32Array)[0]!;
    assert.deepEqual(await loop.sends(encodeSafetensors(small)), ["inline"]);
  }
  const values = f32([5000, 64]);
  const indices = new Tensor(BigInt64Array.from({length: 5000}, (_, i) => BigInt(i)), [5000, 1]);
  const sparse = new Loop(() => ({s: new Sparse(indices, values, [9000, 64])}));
  const file = () => encodeSafetensors({"s.indices": indices, "s.values": values, "s.dense_shape": i64(9000, 64)});
  assert.deepEqual(await sparse.sends(file()), ["whole"]);
  values.data[64 * 7] = 1;
  assert.deepEqual(await sparse.sends(file()), ["inline patch"]);
});

/** Has tasks of rounds with these broadcasts, one after the other. */
class TaskServer implements Transport {
  readonly results: TaskResult[] = [];
  readonly read: string[] = [];
  private readonly blobs: Blobs;
  private readonly digests: readonly string[];
  private numGiven = 0;

  constructor(blobs: Blobs, digests: readonly string[]) {
    this.blobs = blobs;
    this.digests = digests;
  }

  call<M extends DescMethodUnary>(method: M, request: MessageShape<M["input"]>, _options: CallOptions, done: Done<M>): () => void {
    let isOpen = true;
    const isRead = method === (BlobService.method.readBlob as DescMethodUnary);
    const answer = isRead ? this.readBlob(request as ReadBlobRequest) : this.sync(request as SyncRequest);
    if (answer !== null) {
      setTimeout(() => {
        if (!isOpen) return;
        if (answer instanceof SheafError) done(answer, null);
        else done(null, answer as MessageShape<M["output"]>);
      }, 1);
    }
    return () => (isOpen = false);
  }

  private readBlob(request: ReadBlobRequest): Message | SheafError {
    this.read.push(request.digest);
    return this.blobs.read(request);
  }

  private sync(request: SyncRequest): Message | null {
    this.results.push(...request.results);
    const i = this.numGiven;
    const isNext = request.want > 0 && i < this.digests.length && i === this.results.length;
    if (isNext) ++this.numGiven;
    if (!isNext && request.results.length === 0 && request.held.length === 0 && !request.draining) return null;
    const lease = create(LeaseSchema, {
      task: `r-${i}/0`, round: `r-${i}`, leaseToken: `token-${i}`, attempt: 1, remaining: toDuration(30_000), computation: {name: "it"},
      aggregate: aggregateSpec({n: sum([])}), broadcastDigest: this.digests[i] ?? "",
    });
    return create(SyncResponseSchema, {
      leases: isNext ? [lease] : [], inlineBytesMax: 1n << 20n,
      verdicts: request.results.map(({task, leaseToken}) => ({task, leaseToken, verdict: ResultVerdict_Verdict.ACCEPTED})),
    });
  }
}

async function work(server: TaskServer, numTasks: number, it: Computation, config: Partial<WorkerConfig> = {}): Promise<void> {
  const worker: Worker = new Worker({
    transport: server, computations: {it}, log: silent, random: new SeededRandom(1), ...config,
    onChange: () => server.results.length === numTasks && worker.stop(),
  });
  await worker.run();
}

test("A worker that computes for one round after the other reads of each no more than its patch", async () => {
  const blobs = new Blobs();
  const model = {table: f32([1000, 4])};
  const digests = [blobs.add(encodeSafetensors(model))];
  for (let i = 1; i <= 3; ++i) {
    const values = new Tensor(new Float32Array(4).fill(-i), [1, 4]);
    digests.push(blobs.add(patchOf(digests.at(-1)!, {"table.indices": i64(i), "table.values": values})));
  }
  const seen: number[][] = [];
  const it: Computation = async (task) => {
    const {data} = (await task.params()).get("table") as Tensor;
    seen.push([4, 8, 12].map((at) => Number(data[at])));
    return {n: 1};
  };
  const server = new TaskServer(blobs, [...digests, digests[3]!]);
  await work(server, 5, it);
  assert.deepEqual(seen, [[4, 8, 12], [-1, 8, 12], [-1, -2, 12], [-1, -2, -3], [-1, -2, -3]]);
  assert.deepEqual(server.read, digests);
  const sizes = digests.map((digest) => blobs.get(digest)!.length);
  assert.deepEqual(server.results.map(({timings}) => Number(timings!.bytesDown)), [...sizes, 0]);
  // One that is new reads all of them; one that keeps nothing reads them each time.
  const late = new TaskServer(blobs, [digests[3]!, digests[3]!]);
  await work(late, 2, it);
  assert.deepEqual(late.read, [...digests].reverse());
  const forgetful = new TaskServer(blobs, [digests[2]!, digests[3]!]);
  await work(forgetful, 2, it, {cacheBytesMax: 0});
  assert.equal(forgetful.read.length, 3 + 4);
});

test("A task whose broadcast is a patch that does not fit fails, and may be tried elsewhere", async () => {
  const blobs = new Blobs();
  const base = blobs.add(encodeSafetensors(MODEL));
  const server = new TaskServer(blobs, [
    blobs.add(patchOf(base, {"table.indices": i64(50), "table.values": f32([1, 3])})),
    blobs.add(patchOf("cd".repeat(32), {bias: f32([7])})),
  ]);
  await work(server, 2, async (task) => {
    await task.params();
    return {n: 1};
  });
  const failures = server.results.map(({outcome}) => {
    assert.equal(outcome.case, "failure");
    return outcome.value as {message: string; permanent: boolean};
  });
  assert.match(failures[0]!.message,
               /DATA_LOSS: the broadcast [0-9a-f]{64} does not fit .* tensor "table" of the patch has 50 rows, and row 50/);
  assert.match(failures[1]!.message, /DATA_LOSS: the broadcast [0-9a-f]{64} is a patch of (cd){32}, which could not be read/);
  assert.ok(failures.every(({permanent}) => !permanent));
});
