// The outputs that fuzzed contributions and states are for: every operator, most types and modifiers, small shapes and
// one that only bounds checks can survive.
#pragma once

#include <cstdint>
#include <span>

#include "sheaf/v1/aggregation.pb.h"

namespace sheaf::fuzz {

std::span<const v1::AggregateSpec> Specs();
// Any number picks one.
const v1::AggregateSpec& SpecAt(uint8_t choice);

// Whether its sums are the same bits in whatever order and grouping.
bool IsExact(const v1::AggregateSpec& spec);

}  // namespace sheaf::fuzz
