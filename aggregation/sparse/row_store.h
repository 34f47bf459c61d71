// RowStore: a SparseStore of rows, folded as they come.
#pragma once

#include <vector>

#include "aggregation/output/output_layout.h"
#include "aggregation/sparse/sparse_store.h"

namespace sheaf {

class RowStore final : public SparseStore {
 public:
  explicit RowStore(const OutputLayout& layout);

  void Accumulate(const CheckedValue& value, float weight) override;
  void Expect(int64_t) override {}
  Place FindOrAdd(int64_t key) override;
  void ForEachRun(const std::function<void(const SlotRun&)>& visit) override;
  int64_t num_touched() override { return block_.num_touched(); }
  v1::FoldCounters counters() const override;
  int64_t memory_bytes() const override { return block_.memory_bytes(); }
  int most_bins() const override { return block_.columns().cells->most_bins(); }

 private:
  const OutputLayout& layout_;
  SparseBlock<uint64_t> block_;
  uint32_t num_folds_ = 0;
};

}  // namespace sheaf
