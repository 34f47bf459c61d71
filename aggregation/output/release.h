// What a round releases: the tensors of its outputs, and what is said of them.
//
//   ASSIGN_OR_RETURN(const AggregateRelease release, std::move(sum).Release());
//   for (const ReleasedTensor& tensor : release.tensors) RETURN_IF_ERROR(tensor.write(take));
//
// A sparse output w is released as w.indices (INT64 [n, r], sorted, unique), w.values and w.dense_shape (INT64 [rank]);
// a dense one under its own name; a keyed one as w.keys (INT64 [n], or UINT8 [bytes] with w.key_offsets, INT64 [n + 1]:
// key i is bytes offsets[i] to offsets[i + 1]) and w.values, sorted by key.
#pragma once

#include <cstdint>
#include <vector>

#include "aggregation/wire/tensor.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// What is said of a result, beside its tensors.
struct AggregateSummary {
  // One per output, in the order of the spec.
  std::vector<v1::OutputSummary> outputs;
  // One per sparse output: what its data structures decided. Not part of the result.
  std::vector<v1::FoldCounters> folds;
  int64_t num_contributions = 0;
  int64_t num_clients = 0;
};
// With all bytes in memory.
struct AggregateReport : AggregateSummary {
  std::vector<NamedTensor> tensors;
};
// With tensors that are still to be written.
struct AggregateRelease : AggregateSummary {
  std::vector<ReleasedTensor> tensors;
};

}  // namespace sheaf
