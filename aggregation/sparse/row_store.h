// RowStore: a SparseStore of rows, folded as they come. Rows lie in the order in which they first came.
//
// Several threads share what is worth it, step by step: while one looks up where the rows of the next step lie, and
// gives new ones their slots, in order, the others fold those of this step, each the rows of lanes of its own. So every
// row gets its addends in the order of the contributions, however many threads there are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "aggregation/output/output_layout.h"
#include "aggregation/sparse/row_index.h"
#include "aggregation/sparse/sparse_store.h"

namespace sheaf {

class RowStore final : public SparseStore {
 public:
  explicit RowStore(const OutputLayout& layout);

  void Accumulate(CheckedValues values, ParallelFor& parallel) override;
  void Expect(int64_t) override {}
  Place FindOrAdd(int64_t key) override;
  void ForEachRun(const std::function<void(const SlotRun&)>& visit) override;
  std::unique_ptr<const SlotRuns> Runs(int64_t run_max, ParallelFor& parallel) override;
  int64_t num_touched() override { return index_.size(); }
  std::optional<int64_t> known_touched() const override { return index_.size(); }
  v1::FoldCounters counters() const override;
  int64_t memory_bytes() const override {
    return static_cast<int64_t>(sizeof *this) + index_.memory_bytes() + columns_.memory_bytes();
  }
  int most_bins() const override { return columns_.cells->most_bins(); }

 private:
  // Some rows of one contribution.
  struct Rows {
    std::span<const int64_t> keys;
    // Where each lies; set once they were looked up.
    std::span<uint32_t> slots;
    const char* values = nullptr;
    float weight = 1;
    // The number of the contribution.
    uint32_t fold = 0;
  };
  // A part of the lanes.
  struct Part {
    int number = 0;
    int of = 1;
  };

  int64_t row_bytes() const;
  // Calls visit(rows) for so many rows at once at most.
  template <typename Visit>
  void ForEachRows(CheckedValues values, size_t rows_max, Visit visit);
  void FoldOneByOne(CheckedValues values);
  void FoldInSteps(std::span<Rows> all, ParallelFor& parallel);
  // The rows of the next step, taken out of `all`: their slots will be in `slots`.
  static std::span<Rows> TakeStep(std::span<Rows>& all, std::span<uint32_t> slots);
  // Sets their slots, adding those there are not.
  void LookUp(std::span<const Rows> step);
  // Of the columns, for all slots.
  void MakeRoom();
  // Folds the rows of these lanes.
  void Fold(const Rows& rows, Part part);
  // Counts who touched the rows.
  void Count(const Rows& rows, std::span<const uint32_t> slots);

  const OutputLayout& layout_;
  RowIndex index_;
  SlotColumns columns_;
  uint32_t num_folds_ = 0;
};

}  // namespace sheaf
