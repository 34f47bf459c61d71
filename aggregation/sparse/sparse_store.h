// SparseStore: the running values of all coordinates that were touched, however they are kept.
//
//   store.Accumulate(values, parallel);
//   size_t num_touched = 0;
//   store.ForEachRun([&](const SlotRun& run) { num_touched += run.keys.size(); });   // In ascending order.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "aggregation/output/checked_value.h"
#include "aggregation/sparse/slot_runs.h"
#include "base/parallel_for.h"

namespace sheaf {

class SparseStore {
 public:
  virtual ~SparseStore() = default;

  // Of one contribution each, in this order. Keys are unsigned and below layout.num_coordinates.
  virtual void Accumulate(CheckedValues values, ParallelFor& parallel) = 0;
  // Tells that about this many coordinates will be added.
  virtual void Expect(int64_t num_coordinates) = 0;
  // Where the values at a coordinate are, added if new; until the next call of another method.
  struct Place {
    SlotColumns* columns;
    int64_t slot;
  };
  virtual Place FindOrAdd(int64_t key) = 0;
  // Everything there is, in ascending order of key. Folds first what waits.
  virtual void ForEachRun(const std::function<void(const SlotRun&)>& visit) = 0;
  // The same, for several threads: runs of rows have at most `run_max` coordinates, those of single values about as
  // many as are best rounded together.
  virtual std::unique_ptr<const SlotRuns> Runs(int64_t run_max, ParallelFor& parallel) = 0;
  // Folds first what waits.
  virtual int64_t num_touched() = 0;
  // The same if that needs no folding.
  virtual std::optional<int64_t> known_touched() const = 0;

  virtual v1::FoldCounters counters() const = 0;
  virtual int64_t memory_bytes() const = 0;
  // As OutputAccumulator.
  virtual int most_bins() const = 0;
};

}  // namespace sheaf
