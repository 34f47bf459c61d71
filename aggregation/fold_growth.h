// FoldGrowth: how much memory folding one contribution's value of one output may add, told before it is folded.
//
//   const int64_t bytes = FoldGrowth(layout, value, held, GrowthDetail::kScanned);
//
// It needs the value and what the accumulator held when it was last asked, so that it may run while another thread
// folds. What it does not count: that containers round up as they grow (an index of keys may double, for 16 bytes a
// key), and one more bin of a block that has gone over to canonical bins or carries, once in a thousand contributions.
#pragma once

#include <cstdint>

#include "aggregation/output/checked_value.h"
#include "aggregation/output/output_accumulator.h"
#include "aggregation/output/output_layout.h"
#include "base/parallel_for.h"

namespace sheaf {

enum class GrowthDetail {
  // As if the values were of all magnitudes: takes no time.
  kWorst,
  // What these values need: looks at each, unless its bins were counted.
  kScanned,
};

// `held_bytes`: of the output's accumulator.
int64_t FoldGrowth(const OutputLayout& layout, const CheckedValue& value, int64_t held_bytes, GrowthDetail detail);
// What kScanned looks at every value for, to be kept in CheckedValue::bins.
int64_t CountBins(const OutputLayout& layout, const CheckedValue& value, ParallelFor& parallel);
// Of a partial aggregate that was parsed.
int64_t FoldGrowth(const OutputAccumulator& partial, int64_t held_bytes);

}  // namespace sheaf
