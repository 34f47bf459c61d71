// CheckedValue: one contribution's value of one output, after it was checked against the output's layout.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "aggregation/exact/float_range.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// Does not own its bytes.
struct CheckedValue {
  // Row-major elements: all of a dense output, or one row of `width` per key.
  std::string_view data;
  // Sparse outputs: the linear coordinate of each row; keyed outputs of INT64_KEYS: its key. In any order, repeats
  // allowed.
  std::span<const int64_t> keys;
  // Keyed outputs of STRING_KEYS.
  const google::protobuf::RepeatedPtrField<std::string>* string_keys = nullptr;
  // Finite and > 0.
  float weight = 1;
  // Dense outputs of FLOAT32 that are summed EXACT: what each ExactBlock::kRunMax elements in turn span.
  std::span<const FloatRange> ranges;
  // See fold_growth.h; nothing if nobody counted them.
  std::optional<int64_t> bins;
};

// Of several contributions.
using CheckedValues = std::span<const CheckedValue* const>;

}  // namespace sheaf
