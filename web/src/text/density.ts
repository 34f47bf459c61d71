// How sparse a round is: what its outputs would be if they were dense.
import type {OutputSpecJson} from "../../gen/sheaf/v1/aggregation_pb.js";
import {int} from "./format.js";

const DTYPE_BYTES: Record<string, number> = {FLOAT32: 4, FLOAT64: 8, INT32: 4, INT64: 8, UINT64: 8, UINT8: 1};
// Beside those that begin with "sparse_" or "slices_".
const SPARSE = ["coordinate_mean", "weighted_coordinate_mean", "client_mean", "weighted_client_mean"];

function product(sizes: readonly (string | number)[]): number {
  return sizes.reduce<number>((all, size) => all * int(size), 1);
}

export function isSparse({operator = ""}: OutputSpecJson): boolean {
  return /^(sparse|slices)_/.test(operator) || SPARSE.includes(operator);
}

/** Whether its keys are open, so that there is no dense form. */
export function isKeyed({keyType}: OutputSpecJson): boolean {
  return keyType !== undefined && keyType !== "KEY_TYPE_UNSPECIFIED";
}

/** How many coordinates (or rows, for slices) there are to touch. */
export function coordinatesOf(output: OutputSpecJson): number {
  const shape = output.denseShape ?? [];
  const indexDims = output.indexDims || (output.operator === "slices_sum" ? 1 : shape.length);
  return product(shape.slice(0, indexDims));
}

/** Of one contribution whose outputs are all dense; null if some have no dense form. */
export function denseBytesOf(outputs: readonly OutputSpecJson[]): number | null {
  if (outputs.some(isKeyed)) return null;
  return outputs.reduce((sum, output) => sum + product(output.denseShape ?? []) * (DTYPE_BYTES[output.dtype ?? ""] ?? 0), 0);
}
