// What a worker hands in for a task, as bytes: the values of one client, or states that combine those of several.
import {create, toBinary} from "@bufbuild/protobuf";

import {
  type AggregateSpec, type Contribution, ContributionSchema, type OutputValue, OutputValueSchema,
} from "../gen/sheaf/v1/aggregation_pb.js";
import {
  KeyedTableSchema, SparseTensorSchema, type Tensor as ProtoTensor, TensorSchema,
} from "../gen/sheaf/v1/tensor_pb.js";
import {checkNames, DeclaredOutput} from "./declared_output.js";
import {PartialAggregate} from "./partial_aggregate.js";
import type {Update} from "./update.js";
import type {Keyed} from "./values/keyed.js";
import type {Sparse} from "./values/sparse.js";
import {Tensor} from "./values/tensor.js";
import {bytesOf} from "./values/text.js";

/**
 * The contribution of one client. INVALID_ARGUMENT, naming the output, for what is not as the round declares it. The same
 * values give the same bytes as in C++ and in Python.
 */
export function contributionOf(update: Update, aggregate: AggregateSpec): Uint8Array {
  const declared = aggregate.outputs.map((spec) => new DeclaredOutput(spec));
  checkNames(update.values, declared);
  return toBinary(ContributionSchema, create(ContributionSchema, {
    outputs: declared.map((output) => outputValue(output, update.values[output.name])),
    weight: update.weight,
    metrics: sorted(update.metrics),
  }));
}

/** The contribution of several clients: a partial aggregate. Metrics are their means. */
export class ClientsContribution {
  private readonly declared: readonly DeclaredOutput[];
  private readonly states: readonly PartialAggregate[];
  private readonly metrics = new Map<string, number>();
  private numClients = 0;

  constructor(aggregate: AggregateSpec) {
    this.declared = aggregate.outputs.map((spec) => new DeclaredOutput(spec));
    this.states = aggregate.outputs.map((spec) => new PartialAggregate(spec, aggregate.numerics));
  }

  /** One more client. INVALID_ARGUMENT as of contributionOf; then nothing of it counts. */
  add(update: Update): void {
    checkNames(update.values, this.declared);
    const values = this.declared.map((output) => [output, update.values[output.name]] as const).map(
      ([output, value]) => output[output.operand](value));
    this.states.forEach((state, i) => state.checkValue(values[i]!));
    this.states.forEach((state, i) => state.add(values[i]!, update.weight));
    for (const [name, value] of Object.entries(update.metrics)) this.metrics.set(name, (this.metrics.get(name) ?? 0) + value);
    ++this.numClients;
  }

  get clients(): number {
    return this.numClients;
  }

  bytes(): Uint8Array {
    const metrics: Record<string, number> = {};
    for (const [name, total] of this.metrics) metrics[name] = total / this.numClients;
    const message: Contribution = create(ContributionSchema, {
      outputs: this.declared.map(({name}, i) => create(OutputValueSchema, {
        name, value: {case: "state", value: this.states[i]!.state()},
      })),
      numClients: BigInt(this.numClients),
      metrics: sorted(metrics),
    });
    return toBinary(ContributionSchema, message);
  }
}

// The entries of a map travel in the order in which they were put in.
function sorted(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function outputValue(output: DeclaredOutput, value: unknown): OutputValue {
  const {name} = output;
  switch (output.operand) {
    case "dense":
      return create(OutputValueSchema, {name, value: {case: "dense", value: tensorOf(output.dense(value))}});
    case "sparse":
      return create(OutputValueSchema, {name, value: {case: "sparse", value: sparseOf(output.sparse(value))}});
    case "keyed":
      return create(OutputValueSchema, {name, value: {case: "keyed", value: keyedOf(output, output.keyed(value))}});
  }
}

function tensorOf(tensor: Tensor): ProtoTensor {
  return create(TensorSchema, {dtype: tensor.dtype.proto!, shape: tensor.shape.map(BigInt), data: tensor.bytes()});
}

function sparseOf(sparse: Sparse) {
  return create(SparseTensorSchema, {
    denseShape: sparse.shape.map(BigInt), indices: tensorOf(sparse.indices), values: tensorOf(sparse.values),
  });
}

function keyedOf(output: DeclaredOutput, table: Keyed) {
  const values = tensorOf(table.values);
  if (output.keyType === "string") {
    return create(KeyedTableSchema, {stringKeys: table.keys.map((key) => bytesOf(key as string)), values});
  }
  return create(KeyedTableSchema, {intKeys: tensorOf(new Tensor(BigInt64Array.from(table.keys as bigint[]))), values});
}
