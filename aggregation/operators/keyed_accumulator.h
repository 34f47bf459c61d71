// `keyed_sum`: one running row per key of an open set.
//
// Keys are byte strings (at most kKeyBytesMax each, compared byte by byte) or integers. Rows of one contribution with
// the same key are added and count once as a contributor; contributors are counted only where min_contributors asks for
// it. Identity: no keys. Merge: key by key. Cost: one hash lookup per row; memory O(keys), each key's bytes included.
// Reports and serialised states are in order of key.
#pragma once

#include <memory>

#include "aggregation/output/output_accumulator.h"

namespace sheaf {

std::unique_ptr<OutputAccumulator> MakeKeyedAccumulator(const OutputLayout& layout);

}  // namespace sheaf
