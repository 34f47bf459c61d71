// RowStore: a SparseStore of rows, folded as they come. Rows lie in the order in which they first came.
#pragma once

#include <memory>
#include <vector>

#include "aggregation/output/output_layout.h"
#include "aggregation/sparse/row_index.h"
#include "aggregation/sparse/sparse_store.h"

namespace sheaf {

class RowStore final : public SparseStore {
 public:
  explicit RowStore(const OutputLayout& layout);

  void Accumulate(const CheckedValue& value, float weight) override;
  void Expect(int64_t) override {}
  Place FindOrAdd(int64_t key) override;
  void ForEachRun(const std::function<void(const SlotRun&)>& visit) override;
  std::unique_ptr<const SlotRuns> Runs(int64_t run_max, ParallelFor& parallel) override;
  int64_t num_touched() override { return index_.size(); }
  v1::FoldCounters counters() const override;
  int64_t memory_bytes() const override {
    return static_cast<int64_t>(sizeof *this) + index_.memory_bytes() + columns_.memory_bytes();
  }
  int most_bins() const override { return columns_.cells->most_bins(); }

 private:
  // Slots of the keys, for all of which the columns have room then.
  void Find(const int64_t* keys, int n, uint32_t* slots);

  const OutputLayout& layout_;
  RowIndex index_;
  SlotColumns columns_;
  uint32_t num_folds_ = 0;
};

}  // namespace sheaf
