// Values: tensors, sparse tensors and tables, what a computation may return for an output, and the bytes that it becomes.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {join} from "node:path";
import test from "node:test";

import {fromBinary, fromJson} from "@bufbuild/protobuf";

import {type AggregateSpec, ContributionSchema, Numerics, OutputSpecSchema} from "../../../sdk/js/gen/sheaf/v1/aggregation_pb.js";
import {
  ClientsContribution, client_mean, type Code, connect, contributionOf, count, DeclaredOutput, encodeSafetensors, Keyed,
  keyed_sum, max, mean, min, OPERATORS, type Output, outputSpec, PartialAggregate, Safetensors, SheafError, slices_sum, Sparse,
  sparse_sum, sum, Tensor, Update, weighted_mean,
} from "../../../sdk/js/src/index.js";
import {aggregateSpec} from "../../../sdk/js/src/program/round_spec.js";

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

function refused(action: () => unknown, because: RegExp, code: Code = "INVALID_ARGUMENT"): void {
  assert.throws(action, (error: unknown) => {
    assert.ok(error instanceof SheafError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, because);
    return true;
  });
}

const declared = (output: Output): DeclaredOutput => new DeclaredOutput(outputSpec("w", output));
const dense = (output: Output, value: unknown): unknown[] => Array.from<unknown>(declared(output).dense(value).data as Float64Array);

// A number of the vectors: "nan", "-inf", "0x1p-149", an integer beyond 2^53 as text, or a number.
function numberOf(value: number | string, isInteger: boolean): number | bigint {
  if (isInteger) return BigInt(value);
  if (typeof value === "number") return value;
  const special: Record<string, number> = {nan: NaN, inf: Infinity, "-inf": -Infinity};
  if (value in special) return special[value]!;
  const [, sign, whole, fraction = "", exponent] = /^(-?)0x([01])(?:\.([0-9a-f]+))?p(-?\d+)$/.exec(value)!;
  const mantissa = Number(BigInt(`0x${whole}${fraction}`)) * 2 ** (-4 * fraction.length);
  // In two steps: 2^-1074 times a power is no product of two normal numbers.
  const half = Math.trunc(Number(exponent) / 2);
  return (sign === "-" ? -1 : 1) * mantissa * 2 ** half * 2 ** (Number(exponent) - half);
}

interface Vector {
  name: string;
  output: any;
  numerics: keyof typeof Numerics;
  clients: {weight?: number | string; dense?: any[]; indices?: number[][]; keys?: (string | number)[]; values?: any[]}[];
  state: string;
}

function vectors(): Vector[] {
  const text = readFileSync(join(process.env["SHEAF_SOURCE"]!, "docs/reference/partial-aggregates.json"), "utf8");
  return JSON.parse(text.replace(/(?<![\w."-])-?\d{16,}(?![\w."])/g, '"$&"')).made;
}

test("Every published state of a partial aggregate is made with the same bytes", () => {
  const made = vectors();
  assert.ok(made.length > 40);
  for (const vector of made) {
    const spec = fromJson(OutputSpecSchema, vector.output);
    const output = new DeclaredOutput(spec);
    const isInteger = output.dtype.kind !== "float";
    const array = (values: any[]) => {
      const numbers = values.map((value) => numberOf(value, isInteger));
      const of = output.dtype.bytes === 8 && isInteger ? numbers : numbers.map(Number);
      return (output.dtype.array as unknown as {from(values: any[]): Float64Array}).from(of);
    };
    const state = new PartialAggregate(spec, Numerics[vector.numerics]);
    for (const client of vector.clients) {
      const weight = Math.fround(Number(numberOf(client.weight ?? 1, false)));
      if (client.dense !== undefined) {
        state.add(output.dense(new Tensor(array(client.dense), output.shape)), weight);
        continue;
      }
      const n = (client.indices ?? client.keys)!.length;
      const values = new Tensor(array(client.values!), [n, ...output.shape.slice(output.indexDims)], output.dtype);
      if (client.keys !== undefined) {
        const keys = client.keys.map((key) => (output.keyType === "int64" ? BigInt(key) : key));
        state.add(output.keyed(new Keyed(keys, values)), weight);
      } else {
        const indices = new Tensor(BigInt64Array.from(client.indices!.flat(), BigInt), [n, output.indexDims]);
        state.add(output.sparse(new Sparse(indices, values, output.shape)), weight);
      }
    }
    assert.equal(hex(state.state()), vector.state, vector.name);
  }
});

test("An exact sum has the same bytes in any order, over many terms of all magnitudes", () => {
  const spec = outputSpec("w", weighted_mean([3]));
  const terms = Array.from({length: 3000}, (_, i) => ({
    values: [Math.sin(i) * 2 ** ((i * 37) % 600 - 300), (-1) ** i * 1e300, i], weight: Math.fround(1 + (i % 17) / 3),
  }));
  const stateOf = (order: typeof terms): string => {
    const state = new PartialAggregate(spec, Numerics.EXACT);
    for (const {values, weight} of order) state.add(new Tensor(Float64Array.from(values)), weight);
    return hex(state.state());
  };
  const forward = stateOf(terms);
  assert.equal(stateOf([...terms].reverse()), forward);
  assert.equal(stateOf([...terms].sort((a, b) => a.values[0]! - b.values[0]!)), forward);
  // Not as a sum of doubles would be.
  const big = new PartialAggregate(outputSpec("w", sum([1])), Numerics.EXACT);
  for (const value of [1e300, 1, -1e300]) big.add(new Tensor(Float64Array.of(value)), 1);
  const one = new PartialAggregate(outputSpec("w", sum([1])), Numerics.EXACT);
  for (const value of [0, 0, 1]) one.add(new Tensor(Float64Array.of(value)), 1);
  assert.equal(hex(big.state()), hex(one.state()));
});

// As Python's protobuf serialises the same message.
const CONTRIBUTION =
  "0a1d0a016412180801120202021a100000803f000020c0cdcccc3de6b1617f0a110a016e120c08041a0801000000000020000a4e0a01731a490a03e80702" +
  "12180804120202011a10110000000000000003000000000000001a280802120202021a20000000000000e03f000000000000f03f00000000000000400000" +
  "0000000010c00a250a016b2a200a056c696263360a067a6c6962c3a91a0f08031201021a0803000000ffffffff0a380a01692a33121708041201021a10fb" +
  "ffffffffffffff00000000000100001a180805120202011a100100000000000000ffffffffffffffff1500002040220e0a03616363110000000000000000" +
  "220f0a046c6f737311000000000000d03f";

test("A contribution has the bytes that it has in C++ and in Python", () => {
  const aggregate = aggregateSpec({
    d: sum([2, 2], {dtype: "float32"}), n: sum([], {dtype: "int64"}), s: slices_sum([1000, 2]),
    k: keyed_sum("string", [], {dtype: "int32"}), i: keyed_sum("int64", [1], {dtype: "uint64"}),
  });
  const update = new Update({
    i: new Keyed([-5, 2n ** 40n], [[1], [2n ** 64n - 1n]].map((row) => BigUint64Array.from(row, BigInt))),
    k: new Map([["libc6", 3], ["zlib\u00e9", -1]]),
    s: new Sparse([17, 3], [[0.5, 1], [2, -4]], [1000, 2]),
    n: 2n ** 53n + 1n,
    d: Float32Array.of(1, -2.5, 0.1, 3e38),
  }, {weight: 2.5, loss: 0.25, acc: 0});
  assert.equal(hex(contributionOf(update, aggregate)), CONTRIBUTION);
});

test("Several clients make one contribution of states", () => {
  const aggregate: AggregateSpec = aggregateSpec({w: weighted_mean([2]), n: keyed_sum("string", [], {dtype: "int64"})});
  const clients = new ClientsContribution(aggregate);
  clients.add(new Update({w: [1, 2], n: {a: 1}}, {weight: 3, loss: 1}));
  clients.add(new Update({w: [3, 4], n: {}}, {loss: 2}));
  refused(() => clients.add(new Update({w: [NaN, 0], n: {}})), /output "w": value 0 is NaN/);
  const message = fromBinary(ContributionSchema, clients.bytes());
  assert.equal(message.numClients, 2n);
  assert.equal(message.weight, 0);
  assert.deepEqual(message.metrics, {loss: 1.5});
  assert.deepEqual(message.outputs.map(({name, value}) => [name, value.case]), [["w", "state"], ["n", "state"]]);
});

test("Rows of a table are a sparse tensor of one index column", () => {
  const rows = new Sparse([7, 2], new Float32Array(6).fill(1), [9, 3]);
  assert.equal(rows.indexDims, 1);
  assert.deepEqual(rows.rows, [7, 2]);
  assert.equal((rows.toDense().data as Float32Array).reduce((all, each) => all + each, 0), 6);
  const blocks = Sparse.fromDense(rows.toDense(), 1);
  assert.deepEqual(blocks.rows, [2, 7]);
  assert.deepEqual(blocks.values.shape, [2, 3]);
  assert.deepEqual(Sparse.fromDense([[0, 5], [0, 0]]).indices.data, BigInt64Array.of(0n, 1n));
});

test("A sparse tensor of nothing keeps its index columns", () => {
  assert.deepEqual(new Sparse([], new Tensor(new Float32Array(0), [0, 3]), [9, 3]).indices.shape, [0, 1]);
  assert.deepEqual(new Sparse([], [], [9, 3]).indices.shape, [0, 2]);
  assert.deepEqual(new Sparse(new Int32Array(0), new Float32Array(0), [9, 3]).indices.shape, [0, 1]);
});

test("Parts of a sparse tensor that do not fit are refused", () => {
  for (const [because, indices, values, shape] of [
    [/indices\[1, 0\] is 9, outside \[0, 9\)/, [0, 9], [1, 2], [9]],
    [/indices\[0, 1\] is -1/, [[0, -1]], [1], [9, 3]],
    [/is not an integer/, [0.5], [1], [9]],
    [/need values of shape \[1\]/, [0], [1, 2], [9]],
    [/need values of shape \[1, 3\]/, [0], [1], [9, 3]],
    [/are an array: one value/, [0], 1, [9]],
  ] as const) refused(() => new Sparse(indices as never, values as never, shape), because);
});

test("Tables have keys of text, bytes or integers", () => {
  const table = new Keyed(new Map<unknown, number>([["libc6", 3], [Uint8Array.of(0x7a, 0xff), 1]]));
  assert.deepEqual([...table], [["libc6", 3], ["z\udcff", 1]]);
  assert.equal(table.get(Uint8Array.of(0x7a, 0xff)), 1);
  assert.deepEqual([...new Keyed([5, -1], [1, 2])], [[5n, 1], [-1n, 2]]);
  for (const keys of [["a", 1], [1.5], [2n ** 63n], [true], ["x".repeat(1025)]]) {
    refused(() => new Keyed(keys, new Float64Array(keys.length)), /key/);
  }
});

test("Values become the output's dtype where only the precision of floats is lost", () => {
  const [wide, narrow, whole] = [sum(2), sum(2, {dtype: "float32"}), sum(2, {dtype: "int32"})];
  assert.deepEqual(dense(narrow, [0.1, 1]), [Math.fround(0.1), 1]);
  assert.deepEqual(dense(wide, BigUint64Array.of(2n ** 63n, 0n)), [2 ** 63, 0]);
  assert.deepEqual(dense(whole, [true, false]), [1, 0]);
  assert.deepEqual(dense(whole, BigInt64Array.of(3n, -4n)), [3, -4]);
  assert.deepEqual(dense(whole, [3, -4]), [3, -4]);
  assert.deepEqual(dense(sum([1, 2]), Float64Array.of(1, 2)), [1, 2]);
  for (const [value, output] of [
    [Float64Array.of(1, 2), whole], [[1.5, 2], whole], [[2 ** 31, 0], whole], [BigInt64Array.of(2n ** 53n + 1n, 0n), wide],
    [Int32Array.of(2 ** 24 + 1, 0), narrow], [[1e300, 0], narrow], [["a", "b"], wide], [[null, 1], wide],
    [[-1, 0], sum(2, {dtype: "uint64"})], [[2 ** 53, 0], sum(2, {dtype: "int64"})],
  ] as const) refused(() => declared(output).dense(value), /output "w"/);
  assert.deepEqual(dense(narrow, [Infinity, NaN]), [Infinity, NaN]);
  // As TensorFlow.js has them.
  assert.deepEqual(dense(narrow, {shape: [2], dataSync: () => Float32Array.of(1, 2)}), [1, 2]);
});

test("A sparse tensor, or a part of one, is no value of a dense output", () => {
  const grad = new Sparse([0, 1], Float64Array.of(1, 2), [2]);
  refused(() => declared(sum(2)).dense(grad), /a sparse tensor is one operand: declare the output with a sparse/);
  refused(() => declared(sum(2)).dense(grad.values), /the indices or the values of a Sparse, which are never summed/);
  const aggregate = aggregateSpec({w: sparse_sum(2)});
  refused(() => contributionOf(new Update({"w.values": grad.values, "w.indices": grad.indices}), aggregate),
          /return the whole Sparse or Keyed as "w"/);
  refused(() => aggregateSpec({"w.indices": sum(2), "w.values": sum(2)}), /the parts of one sparse tensor/);
  assert.deepEqual(dense(sum(2), grad.toDense()), [1, 2]);
});

test("Each output is returned once and nothing else", () => {
  const aggregate = aggregateSpec({a: sum([]), b: sum([])});
  refused(() => contributionOf(new Update({a: 1}), aggregate), /the output "b" is missing/);
  refused(() => contributionOf(new Update({a: 1, b: 2, c: 3}), aggregate), /there is no output "c"; the round declares a, b/);
  refused(() => contributionOf(new Update({a: [1], b: 2}), aggregate), /the array has shape \[1\], expected \[\]/);
});

test("Rows and tables of another kind are refused with what to do", () => {
  const rows = declared(slices_sum([9, 3]));
  const table = declared(keyed_sum("string", [], {dtype: "int64"}));
  refused(() => rows.sparse(new Float64Array(27)), /make one of the indices and values, or with Sparse.fromDense/);
  refused(() => rows.sparse(new Sparse([0], [[1]], [9, 1])), /shape \[9, 1\], expected \[9, 3\]/);
  refused(() => rows.sparse(new Sparse([[0, 0]], [1], [9, 3])), /address 2 dimensions, expected 1/);
  refused(() => table.keyed(new Map([[1, 2]])), /its keys are text, and these are not/);
  refused(() => table.keyed({a: 1.5}), /not an integer/);
  refused(() => table.keyed({a: [1]}), /shape \[1, 1\], expected \[1\]/);
  refused(() => table.keyed([1]), /takes a Keyed, a Map or an object/);
  assert.equal(table.keyed({}).size, 0);
});

test("Weights and metrics are finite numbers, weights above 0", () => {
  for (const weight of [0, -1, NaN, Infinity, 1e39]) assert.throws(() => new Update({}, {weight}), RangeError);
  assert.throws(() => new Update({}, {loss: NaN}), RangeError);
  assert.equal(new Update({}, {weight: 0.1}).weight, Math.fround(0.1));
});

test("What is wrong with an output or a call is said at once", () => {
  refused(() => sum([], {dtype: "float16" as never}), /cannot be of dtype float16; use one of float32/);
  refused(() => keyed_sum("bytes" as never), /"string" or "int64"/);
  refused(() => outputSpec("w", sparse_sum(3, {form: "thick" as never})), /form is "sparse" or "dense", and not "thick"/);
  refused(() => outputSpec("w", sum(3, {nonFinite: "no" as never})), /nonFinite is "reject" or "propagate", and not "no"/);
  refused(() => outputSpec("w", 3 as never), /output "w" is a number, and not an operator such as/);
  refused(() => sum([], {minContributors: 2} as never), /sum has no argument minContributors; it has dtype, nonFinite/);
  refused(() => connect({server: "http://example.com", token: "s"}), /in the clear/, "FAILED_PRECONDITION");
  connect({server: "http://127.0.0.1:1", token: "s"});
  connect({server: "https://example.com", token: "s"});
});

test("The functions are named after their operators", () => {
  assert.equal(OPERATORS.length, 16);
  for (const operator of [sum, mean, weighted_mean, min, max, count, client_mean]) {
    assert.equal(operator([]).operator, operator.operator);
  }
});

// As Python's sheaf.safetensors writes the same tensors.
const FILE =
  "9000000000000000" + Buffer.from(
    '{"__metadata__":{"a":"b"},"b":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"é":{"dtype":"F32","shape":[2,1],' +
    '"data_offsets":[8,16]},"1":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}}').toString("hex");

test("A safetensors file is written with the bytes that Python writes, and read in place", () => {
  const file = encodeSafetensors({
    1: new Tensor(Uint8Array.of(1, 2, 3)), "é": new Tensor(Float32Array.of(1, 2), [2, 1]), b: new Tensor(Float64Array.of(0.5), []),
  }, {a: "b"});
  const header = Buffer.from(FILE, "hex").subarray(8);
  assert.equal(Buffer.from(file.subarray(8, 8 + header.length)).toString(), header.toString());
  assert.equal(Number(new DataView(file.buffer).getBigUint64(0, true)) % 8, 0);
  const read = new Safetensors(file);
  assert.deepEqual(read.metadata, {a: "b"});
  assert.deepEqual(read.get("é").data, Float32Array.of(1, 2));
  assert.equal(read.get("b").item(), 0.5);
  assert.equal(read.get("b").data.buffer, file.buffer);
  // What lies where its type cannot is copied.
  const shifted = new Uint8Array(file.length + 1);
  shifted.set(file, 1);
  assert.deepEqual(new Safetensors(shifted.subarray(1)).get("é").data, Float32Array.of(1, 2));
});

test("A malformed safetensors file is refused as a whole", () => {
  const made = (header: string, data = 0): Uint8Array => {
    const text = new TextEncoder().encode(header);
    const file = new Uint8Array(8 + text.length + data);
    new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
    file.set(text, 8);
    return file;
  };
  for (const [file, because] of [
    [new Uint8Array(7), /ends before its header/],
    [Uint8Array.of(255, 255, 255, 255, 255, 255, 255, 255, 0), /ends before its header/],
    [made("[]"), /not a JSON object/],
    [made("{"), /not a JSON object/],
    [made('{"a":{}}'), /has no dtype/],
    [made('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}'), /has no shape/],
    [made('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}'), /data_offsets/],
    [made('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'), /lies outside/],
    [made('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', 4), /do not fit its shape/],
    [made('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', 8), /leaves a gap/],
    [made('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 8), /bytes behind/],
    [made('{"__metadata__":{"a":1}}'), /object of strings/],
  ] as const) refused(() => new Safetensors(file), because);
  const foreign = new Safetensors(made('{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}', 2));
  refused(() => foreign.get("a"), /BF16, which JavaScript does not have/);
  refused(() => foreign.get("b"), /has no tensor "b"; it has a/);
});
