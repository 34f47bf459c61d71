// SlotRuns: all coordinates of a store in ascending order, in runs that may be read at once.
//
//   const std::unique_ptr<const SlotRuns> runs = store.Runs(/*run_max=*/1024, parallel);
//   parallel.Run(static_cast<int>(runs->size()), [&](int i) {
//     SlotRuns::Room room;
//     sizes[static_cast<size_t>(i)] = runs->Read(i, room).keys.size();
//   });
//
// Valid until the store changes or ends. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "aggregation/memory/raw_vector.h"
#include "aggregation/sparse/sparse_block.h"

namespace sheaf {

// Coordinates of one block, in ascending order, and the slots of their values.
struct SlotRun {
  std::span<const int64_t> keys;
  std::span<const uint32_t> slots;
  const SlotColumns* columns = nullptr;
  // How many coordinates there are in the runs before this one.
  int64_t num_before = 0;
};

class SlotRuns {
 public:
  // For runs that are put in order when they are read.
  struct Room {
    RawVector<int64_t> keys;
    RawVector<uint32_t> slots;
  };

  virtual ~SlotRuns() = default;
  virtual int64_t size() const = 0;
  // Coordinates of the longest run.
  virtual int64_t longest() const = 0;
  // Run i, until `room` is used again.
  virtual SlotRun Read(int64_t i, Room& room) const = 0;
};

// Of one block, whose coordinates were put in order before.
class OrderedSlots final : public SlotRuns {
 public:
  // Both in ascending order of key; runs have run_max of them, but for the last.
  OrderedSlots(const SlotColumns& columns, Room ordered, int64_t run_max)
      : columns_(columns), ordered_(std::move(ordered)), run_max_(run_max) {}

  int64_t size() const override { return (num_keys() + run_max_ - 1) / run_max_; }
  int64_t longest() const override { return std::min(run_max_, num_keys()); }
  SlotRun Read(int64_t i, Room&) const override {
    const auto begin = static_cast<size_t>(i * run_max_);
    const auto n = static_cast<size_t>(std::min(run_max_, num_keys() - i * run_max_));
    return {.keys = std::span(ordered_.keys).subspan(begin, n),
            .slots = std::span(ordered_.slots).subspan(begin, n),
            .columns = &columns_,
            .num_before = i * run_max_};
  }

 private:
  int64_t num_keys() const { return static_cast<int64_t>(ordered_.keys.size()); }

  const SlotColumns& columns_;
  const Room ordered_;
  const int64_t run_max_;
};

}  // namespace sheaf
