// Sheaf: federated computation, from JavaScript.
//
// A worker, where the data is:
//
//   import {Update, Worker} from "sheaf";
//
//   const worker = new Worker({
//     server: "https://HOST:7443",
//     computations: {mean_age: async (task) => new Update({age: mean(ages)}, {weight: ages.length})},
//   });
//   await worker.run();
//
// A program, anywhere:
//
//   import {connect, weighted_mean} from "sheaf";
//
//   const server = connect({server: "https://HOST:7443"});
//   const result = await server.run("mean_age", {outputs: {age: weighted_mean([])}, tasks: 20});
//   console.log(result.get("age").item(), result.numClients);
export {Declined, type Code, RoundFailed, RoundStuck, SheafError, WrongTask} from "./errors.js";
export {
  client_mean, coordinate_mean, count, keyed_sum, max, mean, min, OPERATORS, type Output, outputSpec, slices_sum, sparse_max,
  sparse_min, sparse_sum, sparse_sum_to_dense, sum, weighted_client_mean, weighted_coordinate_mean, weighted_mean,
} from "./operators.js";
export {type DenseOptions, type KeyedOptions, type Operand, type Shape, type SparseOptions} from "./operators.js";
export {DeclaredOutput} from "./declared_output.js";
export {PartialAggregate} from "./partial_aggregate.js";
export {ClientsContribution, contributionOf} from "./contribution.js";
export {Update, type Value, type Values} from "./update.js";
export {type DType, type DTypeName, type OutputDTypeName, type TypedArray} from "./values/dtypes.js";
export {Keyed, type Key} from "./values/keyed.js";
export {encodeSafetensors, Safetensors} from "./values/safetensors.js";
export {Sparse} from "./values/sparse.js";
export {Tensor, type TensorLike} from "./values/tensor.js";
export {type Log, consoleLog, silent} from "./log.js";
export {Random, SeededRandom, SystemRandom} from "./random.js";
export {type CallOptions, type Done, type Transport} from "./transport.js";
export {ConnectTransport, type ConnectOptions, type Token} from "./connect_transport.js";
export {type Clock, SystemClock} from "./worker/clock.js";
export {type Computation, type ComputationFunction, ComputationRunner, type Returned} from "./worker/computation_runner.js";
export {LeasedTask, Params} from "./worker/leased_task.js";
export {Worker, type WorkerConfig} from "./worker/worker.js";
export {type WorkerCounters, WorkerLoop, type WorkerOptions, type WorkerState} from "./worker/worker_loop.js";
export {connect, type LoopOptions, Round, Server, type ServerConfig, type WaitOptions} from "./program/server.js";
export {Result, type Summary} from "./program/result.js";
export {
  type Broadcast, type RoundOptions, type Slots, type Staleness, type Straggler, type Task,
} from "./program/round_spec.js";
export {type ChangingOptions} from "./program/rounds_ahead.js";
export {RoundView} from "./program/round_view.js";
export {VERSION} from "./version.js";
